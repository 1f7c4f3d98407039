// The registers version of matmul: register tiling, the fastest without tensor cores.
#pragma once

#include <cuda_pipeline_primitives.h>

#include "matmul_product.cuh"

// ---- registers: a block of 128 threads computes 64 x 128 elements of y, and each thread 8 x 8 of
// them in registers (32 x 64 and 4 x 4 of doubles). For 64 products a thread reads 16 elements of
// shared memory. Double buffering: asynchronous copies bring the next 32 of k while these are
// multiplied, because no registers are left for them.
//
// A sum of thousands of floats loses digits. So there are three accumulators per element: for a
// run, which is 16 of k; for a group of 16 runs; and for all groups. The first two are in registers
// and leave room for two blocks per multiprocessor.
// Flaw: the products run on the CUDA cores;
// tensor cores multiply 16-bit floats 16 times as fast.

constexpr int kSquareThreads = 128, kAcross = 16, kDown = kSquareThreads / kAcross;
constexpr int kSquareDepth = 32;  // of k, in a tile
constexpr int kSquareStages = 2;  // pairs of tiles
constexpr int kRunDepth = 16;     // of k, in a run
constexpr int kGroup = 8;         // tiles whose runs are accumulated in registers
template <class T>
constexpr int kEach = sizeof(T) == 8 ? 4 : 8;  // elements of a thread in both directions

// A tile of x or w. by_row: each row has a line of k, in which pieces of 16 bytes are swizzled, so
// that those of eight neighbouring lines are in different banks; otherwise each k has a line of
// rows. Thread i of `across` reads as many rows as it has of y.
template <class T, int across, bool by_row_>
struct SquareTile {
    static constexpr bool by_row = by_row_;
    static constexpr int kSide = across * kEach<T>;
    static constexpr int V = kVec<T>, kAccums = kVec<Acc<T>>;
    alignas(kVecBytes) T at[kSide * kSquareDepth];

    __device__ static int place(int row, int k) {
        if (!by_row) return k * kSide + row;
        constexpr int kPieces = kSquareDepth / V, kLines = kPieces < 8 ? 8 / kPieces : 1;
        const int piece = (k / V) ^ (row / kLines % smaller(kPieces, 8));
        return row * kSquareDepth + piece * V + k % V;
    }
    // Half of the rows are in each half of the tile, so that with swiglu it has both halves of z.
    __device__ static int row_of(int i, int m) {
        return by_row ? m * across + i
                      : m / kAccums * (across * kAccums) + i * kAccums + m % kAccums;
    }
    // Loads kAccums of k of the rows of a thread, from `first` on.
    __device__ void take(Acc<T> (&to)[kAccums][kEach<T>], int i, int first) const {
        if constexpr (by_row) {
#pragma unroll
            for (int m = 0; m < kEach<T>; ++m) {
                const auto of_row = load<kAccums>(at + place(row_of(i, m), first));
#pragma unroll
                for (int k = 0; k < kAccums; ++k) to[k][m] = Acc<T>(of_row[k]);
            }
        } else {
#pragma unroll
            for (int k = 0; k < kAccums; ++k)
#pragma unroll
                for (int m = 0; m < kEach<T>; m += kAccums) {
                    const auto of_column = load<kAccums>(at + place(row_of(i, m), first + k));
#pragma unroll
                    for (int n = 0; n < kAccums; ++n) to[k][m + n] = Acc<T>(of_column[n]);
                }
        }
    }
};

// How a thread copies its part of each tile, N neighbouring elements at a time; N = 1 copies
// elements of neighbouring threads.
template <class T, class Tile, int N>
class SquareFill {
    static constexpr int kCount = Tile::kSide * kSquareDepth / N / kSquareThreads;
    static constexpr int kOfHalf = (kCount + 1) / 2;  // with swiglu, a tile of w has two halves

    bool by_row;            // whether neighbours in memory are of one row
    int row, k;             // where the first copy is in a tile
    unsigned there = 0;     // by row a bit for each copy, whether its row is in the matrix;
    int rows_there = 0;     // by column, how many of its rows are
    bool all_there;         // what a tile has of all copies' rows
    const T* from[2] = {};  // the first copies of both halves, of the next tile
    int64_t apart, ahead;   // in memory, to the next copy and to the next tile

    __device__ int row_of(int i) const {
        return by_row ? row + i * (kSquareThreads * N / kSquareDepth) : row;
    }
    __device__ int k_of(int i) const {
        return by_row ? k : k + i * (kSquareThreads * N / Tile::kSide);
    }
    __device__ const T* source(int i) const {
        return (i < kOfHalf ? from[0] : from[1]) + i % kOfHalf * apart;
    }
    __device__ void copy(Tile& tile, int i) const {
        T* const to = tile.at + Tile::place(row_of(i), k_of(i));
        if constexpr (N * sizeof(T) >= 4) {
            __pipeline_memcpy_async(to, source(i), N * sizeof(T));
        } else {
            *to = *source(i);
        }
    }
    // The same with bounds checks.
    __device__ void copy(Tile& tile, int i, int depth) const {
        const int left = depth - k_of(i);
        const int count = !by_row ? (left > 0 ? rows_there : 0) : there >> i & 1 ? left : 0;
        T* const to = tile.at + Tile::place(row_of(i), k_of(i));
        for (int n = 0; n < N; ++n) to[n] = n < count ? source(i)[n] : T(0.f);
    }

  public:
    __device__ SquareFill(const Operand<T>& of, int64_t matrix, const TileRows<Tile::kSide>& rows)
        : by_row(N > 1 ? Tile::by_row : of.col == 1), ahead(kSquareDepth * of.col) {
        const int element = threadIdx.x * N;
        row = by_row ? element / kSquareDepth : element % Tile::kSide;
        k = by_row ? element % kSquareDepth : element / Tile::kSide;
        apart = (row_of(1) - row) * of.row + (k_of(1) - k) * of.col;
#pragma unroll
        for (int i = 0; i < kCount; ++i) {
            const int64_t of_matrix = rows(row_of(i));
            there |= unsigned(of_matrix >= 0) << i;
            if (i % kOfHalf == 0) from[i / kOfHalf] = at(of, matrix, of_matrix, k_of(i));
        }
        while (rows_there < N && rows(row + rows_there) >= 0) ++rows_there;
        all_there = by_row ? there == unsigned((uint64_t(1) << kCount) - 1) : rows_there == N;
    }
    // Starts the copy of the next tile, which has `depth` of k. The rest is 0.
    __device__ void operator()(Tile& tile, int depth) {
        if (all_there && depth == kSquareDepth) {
#pragma unroll
            for (int i = 0; i < kCount; ++i) copy(tile, i);
        } else {
#pragma unroll 1
            for (int i = 0; i < kCount; ++i) copy(tile, i, depth);
        }
        from[0] += ahead, from[1] += ahead;
    }
};

// Accumulates a run, which begins at `first` of a tile's k. right and down: the rows of w and of x
// of this thread; those of w are the first index of the accumulators.
template <class T, class X, class W>
__device__ void add_run(Acc<T> (&accum)[kEach<T>][kEach<T>], const X& tile_x, const W& tile_w,
                        int down, int right, int first) {
    constexpr int each = kEach<T>, V = kVec<Acc<T>>;
    Acc<T> run[each][each];
#pragma unroll
    for (int done = 0; done < kRunDepth; done += V) {
        Acc<T> x[V][each], w[V][each];
        tile_x.take(x, down, first + done);
        tile_w.take(w, right, first + done);
#pragma unroll
        for (int n = 0; n < each; ++n)
#pragma unroll
            for (int k = 0; k < V; ++k)
#pragma unroll
                for (int m = 0; m < each; ++m)
                    run[n][m] = x[k][m] * w[k][n] + (done + k == 0 ? Acc<T>(0) : run[n][m]);
    }
#pragma unroll
    for (int n = 0; n < each; ++n)
#pragma unroll
        for (int m = 0; m < each; ++m) accum[n][m] += run[n][m];
}

// N: elements per copy.
template <class T, bool x_by_row, bool w_by_row, int N, class Grid = TileGrid>
__global__ void __launch_bounds__(kSquareThreads, 2) matmul_registers(Product<T> p, Grid grid) {
    using A = Acc<T>;
    using X = SquareTile<T, kDown, x_by_row>;
    using W = SquareTile<T, kAcross, w_by_row>;
    constexpr int each = kEach<T>;
    __shared__ X tiles_x[kSquareStages];
    __shared__ W tiles_w[kSquareStages];
    TilePlace place;
    if (!grid.find(blockIdx.x, p, place)) return;
    const auto rows = TileRows<X::kSide>::of(place.row, p.rows);
    const auto columns = TileRows<W::kSide>::of_w(p, place.column);
    SquareFill<T, X, N> fill_x(p.x, place.matrix, rows);
    SquareFill<T, W, N> fill_w(p.w, place.matrix, columns);
    // A warp has 4 x 8 threads. Lanes i and i ^ 1 read the same elements of w, i and i ^ 2 the same
    // of x: shared memory then serves 16 lanes at once instead of 8.
    const int warp = threadIdx.x / kWarp, lane = threadIdx.x % kWarp;
    const int down = warp / 2 * 4 + lane / 16 * 2 + lane % 2, right = warp % 2 * 8 + lane / 2 % 8;
    const int steps = int(ceil_div<int64_t>(p.depth, kSquareDepth));
    const auto fetch = [&](int step) {
        if (step < steps) {
            const int64_t left = p.depth - int64_t(step) * kSquareDepth;
            const int depth = int(smaller<int64_t>(left, kSquareDepth));
            fill_x(tiles_x[step % kSquareStages], depth);
            fill_w(tiles_w[step % kSquareStages], depth);
        }
        __pipeline_commit();
    };

    KahanSum<A> totals[each][each];  // in local memory: there are no registers left
    A accum[each][each] = {};
    const auto end_group = [&] {
#pragma unroll
        for (int n = 0; n < each; ++n)
#pragma unroll
            for (int m = 0; m < each; ++m) totals[n][m] += accum[n][m], accum[n][m] = 0;
    };
#pragma unroll 1
    for (int step = 0; step < kSquareStages - 1; ++step) fetch(step);
    for (int group = 0; group < steps; group += kGroup) {
        for (int step = group; step < smaller(group + kGroup, steps); ++step) {
            __pipeline_wait_prior(kSquareStages - 2);
            __syncthreads();  // this stage is full, and the previous one is free
            fetch(step + kSquareStages - 1);
#pragma unroll 1  // the instruction cache holds a run, but not a tile
            for (int first = 0; first < kSquareDepth; first += kRunDepth)
                add_run<T>(accum, tiles_x[step % kSquareStages], tiles_w[step % kSquareStages],
                           down, right, first);
        }
        end_group();
    }
#pragma unroll 1
    for (int n = 0; n < each / rows_per_unit(p); ++n) {
        const int64_t unit = columns(W::row_of(right, n));
        for (int m = 0; m < each; ++m) {
            const int64_t row = rows(X::row_of(down, m));
            if (row >= 0 && unit >= 0)
                epilogue_element(p, place.matrix, row, unit, totals[n][m].value,
                                 totals[(n + each / 2) % each][m].value);
        }
    }
}

template <class T, class Grid = TileGrid, class... Groups>
Grid square_tiles(const Product<T>& p, Groups... groups) {
    return {p, SquareTile<T, kDown, true>::kSide, SquareTile<T, kAcross, true>::kSide, groups...};
}

// Whether there are no more tiles than multiprocessors. For double this version is then the
// fastest: the larger tiles of `mma` would leave more multiprocessors idle.
template <class T>
bool has_few_tiles(const Product<T>& p) {
    return square_tiles(p).tiles() <= multiprocessors();
}

// groups: of a GroupGrid.
template <class Grid = TileGrid, class T, class... Groups>
void launch_registers(const Product<T>& p, cudaStream_t stream, Groups... groups) {
    const Grid grid = square_tiles<T, Grid>(p, groups...);
    const auto launch = [&](auto kernel) {
        kernel<<<grid.tiles(), kSquareThreads, 0, stream>>>(p, grid);
    };
    const bool vectors = reads_in_vectors(p.x) && reads_in_vectors(p.w) &&
                         (p.act != kSwiglu || p.w.col == 1 || p.units % kVec<T> == 0);
    constexpr int V = kVec<T>;
    if (vectors && p.x.col == 1 && p.w.col == 1)
        return launch(matmul_registers<T, true, true, V, Grid>);
    if constexpr (sizeof(T) > 2) {  // 16-bit types have tensor cores
        if (vectors && p.x.col == 1) return launch(matmul_registers<T, true, false, V, Grid>);
        if (vectors && p.w.col == 1) return launch(matmul_registers<T, false, true, V, Grid>);
        if (vectors) return launch(matmul_registers<T, false, false, V, Grid>);
    }
    launch(matmul_registers<T, true, true, 1, Grid>);
}
