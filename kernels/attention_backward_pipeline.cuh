// What the backward kernels by wgmma share: tiles, pipeline loads, and the softmax gradient of a
// step.
#pragma once

#include "attention_wgmma_tiles.cuh"

struct BackwardMaps {
    CUtensorMap q, g, k, v;  // in boxes of a block, or of a step
    CUtensorMap to[2];       // dq, or dk and dv
};

#if HAS_WGMMA

// Loads a tile of two tensors, rows from `row` on.
template <int rows, int kCols>
__device__ void load_both(char* to, const CUtensorMap& one, const CUtensorMap& other, int row,
                          int64_t head, int64_t batch, Mbarrier& full) {
    for (int box = 0; box < kCols / 64; ++box) {
        char* const place = to + box * box_bytes(rows);
        tma_load(place, one, box * 64, row, int(head), int(batch), full);
        tma_load(
            place + tile_bytes(rows, kCols), other, box * 64, row, int(head), int(batch), full);
    }
}

// A range of steps: from number low on, before number high.
struct Steps {
    int low, high;
};

// The steps whose rows see one of kKeys keys, from `key` on.
template <int kKeys, int kRows, class Call>
__device__ Steps steps_of_rows(const Call& a, int key) {
    const int64_t shift = a.keys - a.rows;
    const int64_t first_row = key - shift - a.right;
    const int64_t last_row = smaller<int64_t>(key + kKeys, a.keys) - 1 - shift + a.left;
    const int low = first_row > 0 ? int(smaller(first_row, a.rows)) / kRows : 0;
    const int64_t end = smaller(last_row + 1, a.rows);
    const int high = end > 0 ? int(ceil_div<int64_t>(end, kRows)) : 0;
    return {low, high > low ? high : low};
}

// Calls f(attention, slice, key, steps) for each tile of keys of a block, from `key` on. Every
// slice of q that shares these keys has the same steps.
template <int kKeys, int kRows, class Call, class F>
__device__ void for_each_tile_of_keys(const Call& whole, const TileScheduler& scheduler, F f) {
    scheduler.for_each<true>([&](int64_t number, int64_t slice) {
        int64_t tile = scheduler.tiles - 1 - number;
        const auto& a = whole.of_keys(tile, kKeys);
        const int key = int(tile) * kKeys;
        if (Call::kPacked && key >= a.keys) return;
        f(a, slice, key, steps_of_rows<kKeys, kRows>(a, key));
    });
}

// The producer: loads q, g and infos of a step when its stage has been released.
template <int kRows, int kCols, class Shared, int kStages, class Call>
__device__ void load_step(Shared& shared, PipelineState<kStages>& pipe, const BackwardMaps& maps,
                          const RowInfo* infos, const Call& a, const Place& place) {
    const int i = pipe.stage;
    shared.w_empty[i].wait(pipe.phase ^ 1);
    tma_writes_done();  // orders the threads' reads of infos before the load
    shared.w_full[i].arrive_expect_tx(2 * tile_bytes(kRows, kCols) + sizeof(shared.infos[i]));
    load_both<kRows, kCols>(shared.w[i][0], maps.q, maps.g, a.row_coordinate(place.row), place.head,
                            place.batch, shared.w_full[i]);
    // Infos end on a multiple of 64 rows, maybe in the middle of a step; the first ones stand in
    // for the rest.
    const RowInfo* const from = infos + info_at(a, place);
    for (int row = 0; row < kRows; row += 64)
        bulk_load(shared.infos[i] + row, row == 0 || place.row + row < a.rows ? from + row : from,
                  64 * sizeof(RowInfo), shared.w_full[i]);
    pipe.next();
}

// The same for all steps of a tile of keys: of each slice of q that shares k and v, in turn.
template <int kRows, int kCols, class Shared, int kStages, class Call>
__device__ void load_steps(Shared& shared, PipelineState<kStages>& pipe, const BackwardMaps& maps,
                           const RowInfo* infos, const Call& a, int64_t slice, Steps steps) {
    for (int q_slice = 0; q_slice < int(a.q_slices_per_kv()); ++q_slice) {
        for (int n = steps.low; n < steps.high; ++n)
            load_step<kRows, kCols>(
                shared, pipe, maps, infos, a, a.q_place(slice, q_slice, n * kRows));
    }
}

// p from scores [64 keys, rows], and ds from dp. row_infos: of the rows.
template <int N>
__device__ void compute_p(float (&p)[N], const float (&scores)[N], float scale,
                          const RowInfo* row_infos) {
#pragma unroll
    for (int i = 0; i < N; ++i)
        p[i] = quick_power_of_2(fmaf(scores[i], scale, -row_infos[column_of(i)].lse_log2));
}
template <int N>
__device__ void compute_ds(float (&dp)[N], const float (&p)[N], const RowInfo* row_infos) {
#pragma unroll
    for (int i = 0; i < N; ++i) dp[i] = p[i] * (dp[i] - row_infos[column_of(i)].delta);
}

// Zeroes the elements of 64 keys, from `key` on, that rows from `row` on do not see, and those of
// keys from `keys` on and rows from `rows` on, which do not exist and whose p is arbitrary. some:
// whether there are any. shift: a.keys - a.rows.
constexpr int64_t kNoEnd = INT64_MAX;
template <int N, class Call>
__device__ void clear_hidden(float (&x)[N], bool some, const Call& a, int64_t shift, int key,
                             int row, int64_t keys = kNoEnd, int64_t rows = kNoEnd) {
    if (!some) return;
    int begin[2], end[2];
#pragma unroll
    for (int half = 0; half < 2; ++half) {
        const int n = key + accum_row(2 * half);
        const int64_t from = n - shift;
        const bool there = n < keys && row < rows;
        begin[half] = int(from - a.right - row);
        end[half] = there ? int(from + a.left + 1 - row) : 0;
    }
    keep_columns(x, begin, end, 0);
}

// A barrier of all consumer threads.
__device__ inline void consumers_barrier() {
    asm volatile("bar.sync 3, %0;" ::"n"(2 * kWarpgroup) : "memory");
}

// The epilogue: writes dk and dv of a warpgroup's 64 keys, from `top` on, and of the columns from
// `column` on, through the shared memory of its k and v.
template <int kBlock, class T, class Call, int N2>
__device__ void store_gradients(const BackwardMaps& maps, const Call& a, int64_t slice, int top,
                                int column, char* k_tile, char* v_tile, float (&dk_accum)[N2],
                                const float (&dv_accum)[N2], T* dk, T* dv) {
    const float factor[2] = {float(a.scale), float(a.scale)}, one[2] = {1, 1};
    const int64_t there = a.keys - top;
    if (Call::kPacked && there < 64) {
        const int64_t cols = a.cols - column;
        write_tail(
            dk + a.kv_at(a.dk, slice, top) + column, dk_accum, factor, there, a.dk.row, cols);
        write_tail(dv + a.kv_at(a.dv, slice, top) + column, dv_accum, one, there, a.dv.row, cols);
        return;
    }
    scale_rows(dk_accum, factor);
    accum_to_shared<T, kBlock>(k_tile, dk_accum);
    accum_to_shared<T, kBlock>(v_tile, dv_accum);
    tma_writes_done();
    warpgroup_barrier(threadIdx.x / kWarpgroup);
    if (threadIdx.x % kWarpgroup != 0 || there <= 0) return;
    const int row = a.key_coordinate(top);
    const int64_t head = slice % a.kv_heads, batch = slice / a.kv_heads;
    store_rows<kBlock, 2 * N2>(maps.to[0], k_tile, a.cols, row, head, batch, column);
    store_rows<kBlock, 2 * N2>(maps.to[1], v_tile, a.cols, row, head, batch, column);
    tma_store_wait_read<0>();
}

#endif

// ---- on the host

// Makes the tensor maps of the inputs, in boxes of so many rows and keys, and of the results; false
// if TMA cannot read or write the tensors.
template <class T, class Call>
bool map_inputs(BackwardMaps& maps, const Call& a, const T* g, const T* q, const T* k, const T* v,
                int rows, int keys) {
    return a.slices() * a.all_rows() > 0 && a.kv_slices() * a.all_keys() > 0 &&
           map_rows(maps.q, q, a.batches, a.heads, a.all_rows(), a.cols, a.q, rows) &&
           map_rows(maps.g, g, a.batches, a.heads, a.all_rows(), a.cols, a.g, rows) &&
           map_rows(maps.k, k, a.kv_batches, a.kv_heads, a.all_keys(), a.cols, a.k, keys) &&
           map_rows(maps.v, v, a.kv_batches, a.kv_heads, a.all_keys(), a.cols, a.v, keys);
}
template <class T, class Call>
bool map_dq(BackwardMaps& maps, const Call& a, const T* dq) {
    return map_rows(maps.to[0], dq, a.batches, a.heads, a.all_rows(), a.cols, a.dq);
}
template <class T, class Call>
bool map_dk_dv(BackwardMaps& maps, const Call& a, const T* dk, const T* dv) {
    const auto map = [&](CUtensorMap& map, const T* to, const Strides& strides) {
        return map_rows(map, to, a.kv_batches, a.kv_heads, a.all_keys(), a.cols, strides);
    };
    return map(maps.to[0], dk, a.dk) && map(maps.to[1], dv, a.dv);
}
