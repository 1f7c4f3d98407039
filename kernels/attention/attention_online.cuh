// The online version of attention, forward: softmax in one pass, without tensor cores.
#pragma once

#include "attention_tiles.cuh"

// ---- online: one pass over tiles of 32 keys. A block has 32 rows and keeps for each the largest
// score so far, the sum of e^(score - largest), and the sum of the same times v; whenever a tile
// raises the largest score, both sums are scaled down (softmax.cuh). Takes up to 256 columns, for
// the sums are in registers; more go to naive. Backward is naive's.
// Flaw: every multiplication reads its factors from shared memory, and no tensor core works.

constexpr int kOnlineMost = 256;

template <class T, int kCols, class Call>
__global__ __launch_bounds__(kTileThreads) void forward_online(Call whole, const T* q, const T* k,
                                                               const T* v, T* y, Acc<T>* stats) {
    using A = Acc<T>;
    constexpr int kParts = kCols / kTile;
    __shared__ Tile<A> left, right, weights;
    const RowTile<Call> tile(whole, blockIdx.x);
    const Call& a = tile.a;
    if (tile.rows <= 0) return;
    q += a.at(a.q, tile.place);
    k += a.key_at(a.k, tile.place, 0);
    v += a.key_at(a.v, tile.place, 0);

    OnlineSoftmax<T> soft[kRows];  // its sum: over this thread's keys
    for (auto& each : soft) each = OnlineSoftmax<T>::identity();
    A accum[kParts][kRows][kColumns] = {};
    const int64_t last = tile.end_key();
    for (int64_t first = tile.first_key(); first < last; first += kTile) {
        const int64_t keys = a.keys - first;
        const TileScores<T, Call> products(left, right, a, q, tile.rows, k + first * a.k.row, keys);
#pragma unroll
        for (int r = 0; r < kRows; ++r) {
            const int64_t row = tile.place.row + tile_row(r);
            const bool is_row = tile_row(r) < tile.rows;
            A scores[kColumns], most = -A(INFINITY);
#pragma unroll
            for (int n = 0; n < kColumns; ++n) {
                const bool seen = is_row && a.sees(row, first + tile_column(n));
                scores[n] = seen ? products.score(r, n) : -A(INFINITY);
                most = larger(most, scores[n]);
            }
            const A before = soft[r].max;
            soft[r].raise(warp_max(most, kWide));
            const A shift = soft[r].shift(), factor = exponential<T>(before - shift);
#pragma unroll
            for (int n = 0; n < kColumns; ++n) {
                const A p = exponential<T>(scores[n] - shift);
                weights[tile_row(r)][tile_column(n)] = p;
                soft[r].sum += p;
            }
#pragma unroll
            for (int c = 0; c < kParts; ++c) {
#pragma unroll
                for (int n = 0; n < kColumns; ++n) accum[c][r][n] *= factor;
            }
        }
#pragma unroll
        for (int c = 0; c < kParts; ++c) {
            if (c * kTile >= a.cols) break;
            __syncthreads();
            fetch(right, v + first * a.v.row, a.v.row, keys, c * kTile, a.cols);
            __syncthreads();
            add_terms<A>(accum[c], tile.rows, [&](A part, int r, int n, int i) {
                return fma(weights[tile_row(r)][i], right[i][tile_column(n)], part);
            });
        }
    }

#pragma unroll
    for (int r = 0; r < kRows; ++r) {
        const A sum = warp_sum(soft[r].sum, kWide);
        if (tile_row(r) >= tile.rows) continue;
        Place place = tile.place;
        place.row += tile_row(r);
        const bool sees = a.first_key(place.row) < a.end_key(place.row);
#pragma unroll
        for (int c = 0; c < kParts; ++c) {
#pragma unroll
            for (int n = 0; n < kColumns; ++n) {
                const int column = c * kTile + tile_column(n);
                if (column < a.cols)
                    y[a.at(a.y, place) + column] = T(sees ? accum[c][r][n] / sum : A(0));
            }
        }
        if (stats && threadIdx.x % kWide == 0) save(stats, a.line(place), soft[r].max, sum);
    }
}
