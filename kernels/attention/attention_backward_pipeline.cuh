// The backward kernels by wgmma share this: tiles, pipeline loads, and a step's softmax gradient.
#pragma once

#include "attention_wgmma_tiles.cuh"

struct BackwardMaps {
    CUtensorMap q, g, k, v;  // in boxes of a block, or of a step
    CUtensorMap to[2];       // dq, or dk and dv
};

// Which blocks have a tile of keys: one block, in the first `whole` slices of k and v, and `splits`
// blocks that share it in the others. Blocks are counted in the order of their slices.
struct KvSplit {
    int whole, splits;
    template <class Call>
    int count(const Call& a) const {  // blocks that have the n-th tile, of all slices
        return whole + int(a.kv_slices() - whole) * splits;
    }
};

// The accumulators of dk and dv of blocks that share a tile of keys, in scratch memory: those of
// the `count` blocks for dk, then for dv. convert_accum adds up the `splits` of each tile. Element
// i of thread t of a warpgroup, which has 64 keys, is at i / 4 * 4 * kWarpgroup + 4 * t + i % 4.
struct DkDvPartials {
    float* values;
    KvSplit kv;
    int count;
    // keys and cols: of a tile.
    __host__ __device__ int64_t at(int is_dv, int partial, int keys, int cols) const {
        return (int64_t(is_dv) * count + partial) * keys * cols;
    }
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

// The steps of a block with a tile of keys: those of the rows from step low on, before step high,
// of each slice of q that shares the keys. They begin with the last rows; of the same rows, all
// slices of q come before the rows before. If several blocks share a tile of keys, a block has
// every `splits`-th step from number `split` on, and its accumulators have the number `partial`.
struct Steps {
    int low, high;
    int split, splits, partial;
};

// The steps whose rows see one of kKeys keys, from `key` on.
template <int kKeys, int kRows, class Call>
__device__ Steps steps_of_rows(const Call& a, int key, int split, int splits, int partial) {
    const int64_t shift = a.keys - a.rows;
    const int64_t first_row = key - shift - a.right;
    const int64_t last_row = smaller<int64_t>(key + kKeys, a.keys) - 1 - shift + a.left;
    const int low = first_row > 0 ? int(smaller(first_row, a.rows)) / kRows : 0;
    const int64_t end = smaller(last_row + 1, a.rows);
    const int high = end > 0 ? int(ceil_div<int64_t>(end, kRows)) : 0;
    return {low, high > low ? high : low, split, splits, partial};
}

// Calls f(attention, slice, key, steps) for a tile of keys, from `key` on, if there are such keys.
// n: which of the blocks that KvSplit counts has it.
template <int kKeys, int kRows, class Call, class F>
__device__ void with_tile_of_keys(const Call& whole, int tiles, const KvSplit& kv, int64_t tile,
                                  int64_t n, F f) {
    const int shared = int(n) - kv.whole, partial = shared * tiles + int(tile);
    const int splits = shared < 0 ? 1 : kv.splits;
    const int slice = shared < 0 ? int(n) : kv.whole + shared / splits;
    const int split = shared < 0 ? 0 : shared % splits;
    const auto& a = whole.of_keys(tile, kKeys);
    const int key = int(tile) * kKeys;
    if (Call::kPacked && key >= a.keys) return;
    f(a, int64_t(slice), key, steps_of_rows<kKeys, kRows>(a, key, split, splits, partial));
}

// Calls it for each tile of keys of a block.
template <int kKeys, int kRows, class Call, class F>
__device__ void for_each_tile_of_keys(const Call& whole, const TileScheduler& scheduler,
                                      const KvSplit& kv, F f) {
    scheduler.for_each<true>([&](int64_t number, int64_t n) {
        with_tile_of_keys<kKeys, kRows>(
            whole, scheduler.tiles, kv, scheduler.tiles - 1 - number, n, f);
    });
}

// Calls f(place) for each step of a block.
template <int kRows, class Call, class F>
__device__ void for_each_step(const Call& a, int64_t slice, Steps steps, F f) {
    const Place first = a.q_place(slice, 0, 0);
    const int q_slices = int(a.q_slices_per_kv()), group = int(a.group());
    int row = (steps.high - 1) * kRows, q_slice = steps.split;
    while (true) {
        for (; q_slice >= q_slices; q_slice -= q_slices) row -= kRows;
        if (row < steps.low * kRows) return;
        f(Place{first.batch + q_slice / group * a.kv_batches, first.head + q_slice % group, row});
        q_slice += steps.splits;
    }
}

// The rows of the steps of a block, in the same order, and how many steps it has.
template <int kRows>
struct StepRows {
    int row, count;
    template <class Call>
    __device__ StepRows(const Call& a, Steps steps) : q_slices_(int(a.q_slices_per_kv())) {
        const int all = (steps.high - steps.low) * q_slices_ - steps.split;
        count = all > 0 ? (all + steps.splits - 1) / steps.splits : 0;
        row = (steps.high - 1 - steps.split / q_slices_) * kRows;
        left_ = q_slices_ - steps.split % q_slices_;
    }
    __device__ void next(Steps steps) {
        for (left_ -= steps.splits; left_ <= 0; left_ += q_slices_) row -= kRows;
    }

  private:
    int q_slices_, left_;  // slices of q, and those that are left of these rows
};

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

// The same for all steps of a block.
template <int kRows, int kCols, class Shared, int kStages, class Call>
__device__ void load_steps(Shared& shared, PipelineState<kStages>& pipe, const BackwardMaps& maps,
                           const RowInfo* infos, const Call& a, int64_t slice, Steps steps) {
    for_each_step<kRows>(a, slice, steps, [&](const Place& place) {
        load_step<kRows, kCols>(shared, pipe, maps, infos, a, place);
    });
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

// A warpgroup's accumulators, for convert_accum.
template <int N>
__device__ void store_accum(float* to, const float (&accum)[N]) {
#pragma unroll
    for (int i = 0; i < N; i += 4)
        store(to + i * kWarpgroup + threadIdx.x % kWarpgroup * 4,
              Vec<float, 4>{{accum[i], accum[i + 1], accum[i + 2], accum[i + 3]}});
}

// The epilogue: writes dk and dv of a warpgroup's 64 keys, those from number `first` on of the
// block's, which begin at `key`, and of the columns from `column` on. They go through the shared
// memory of its k and v, or, where blocks share the keys, to scratch memory.
template <int kBlock, int kCols, class T, class Call, int N2>
__device__ void store_gradients(const BackwardMaps& maps, const Call& a, int64_t slice, int key,
                                int first, int column, char* k_tile, char* v_tile,
                                float (&dk_accum)[N2], const float (&dv_accum)[N2],
                                const DkDvPartials& partials, const Steps& steps, T* dk, T* dv) {
    if (steps.splits > 1) {
        float* const to = partials.values + first * kCols + column * 64;
        store_accum(to + partials.at(0, steps.partial, kBlock, kCols), dk_accum);
        store_accum(to + partials.at(1, steps.partial, kBlock, kCols), dv_accum);
        return;
    }
    const int top = key + first;
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

// ---- the pass over accumulators

// The float accumulators of dq, in scratch memory: number i of thread t at i / 4 * 4 * kWarpgroup +
// 4 * t + i % 4, for each tile of 64 rows of a slice and each 64 columns; and a semaphore, which
// counts the tiles of keys that have been added. Semaphores start at 0.
struct DqAccum {
    static constexpr int kPart = 64,
                         kNumbers = kPart * kPart;  // columns and floats of an accumulator
    float* values;
    int* semaphores;
    int* tile_counter;  // of the scheduler

    // Scratch ints: one tile counter and one semaphore per tile of accumulators. A multiple of 4,
    // so that what follows is aligned.
    static int64_t ints(int64_t tiles, int cols) {
        return ceil_div<int64_t>(tiles * (cols / kPart) + 1, 4) * 4;
    }
};

constexpr int kConvertThreads = 256;

// Scales and rounds accumulators of 64 rows of 64 columns: a thread has eight columns of two rows.
// `to`: the first of them; there are so many rows and columns. add(sums, at): adds the thread's 16
// accumulators, four at `at`, the next four behind those; of no row for which has_some(row) is
// false are there any, and its elements are 0.
template <class T, class HasSome, class Add>
__device__ void convert_accum_tile(T* to, int64_t stride, int64_t rows, int64_t cols, float scale,
                                   HasSome has_some, Add add) {
    const int chunk = threadIdx.x % 8, lanes = threadIdx.x / 8 * 4;  // of four lanes
    const int row = lanes / 32 * 16 + lanes % 32 / 4;                // and that 8 below it
    const bool some[2] = {has_some(row), has_some(row + 8)};
    float sums[16] = {};
    if (some[0] || some[1]) add(sums, (chunk * kWarpgroup + lanes) * 4);
    Vec<T, 8> two[2];
    for (int i = 0; i < 16; ++i)
        two[i / 2 % 2][i / 4 * 2 + i % 2] = T(some[i / 2 % 2] ? sums[i] * scale : 0.f);
    for (int half = 0; half < 2 && chunk * 8 < cols; ++half) {
        if (row + half * 8 < rows) store(to + (row + half * 8) * stride + chunk * 8, two[half]);
    }
}

__device__ inline void add_accum(float (&sums)[16], const float* from) {
#pragma unroll
    for (int i = 0; i < 16; i += 4) {
        const Vec<float, 4> four = load<4>(from + i);
        for (int k = 0; k < 4; ++k) sums[i + k] += four[k];
    }
}

// Makes dq from its accumulators, and, where blocks share the tiles of keys, dk and dv from theirs,
// which it adds up in a fixed order. The first dq_blocks blocks have 64 rows of a slice each, and
// 64 columns; the others 64 of the kKeys keys of a tile, and 64 columns of dk or dv.
template <class T, int kCols, int kKeys, class Call>
__global__ __launch_bounds__(kConvertThreads, 4) void convert_accum(
    Call whole, DqAccum dq_accum, DkDvPartials partials, int dq_blocks, T* dq, T* dk, T* dv) {
    constexpr int kParts = kCols / DqAccum::kPart;
    grid_dependency_wait();
    const bool is_dq = int(blockIdx.x) < dq_blocks;
    int n = is_dq ? blockIdx.x : blockIdx.x - dq_blocks;
    const int part = n % kParts, column = part * DqAccum::kPart;
    n /= kParts;
    if (is_dq) {
        const int64_t slice = n % whole.slices();
        Place place = whole.place(slice);
        int64_t tile = n / whole.slices();
        const int64_t at = (slice * whole.row_tiles(64) + tile) * kParts + part;
        const auto& a = whole.of_rows(tile, 64);
        place.row = tile * 64;
        // A row that sees no key has no accumulators, unless another row of its tile sees some.
        const auto sees_keys = [&](int row) {
            row += int(place.row);
            return row < a.rows && a.first_key(row) < a.end_key(row);
        };
        convert_accum_tile(
            dq + a.at(a.dq, place) + column, a.dq.row, a.rows - place.row, a.cols - column,
            float(a.scale), sees_keys, [&](float (&sums)[16], int from) {
                add_accum(sums, dq_accum.values + at * DqAccum::kNumbers + from);
            });
        return;
    }
    const KvSplit kv = partials.kv;
    const int is_dv = n % 2, first = n / 2 % (kKeys / 64) * 64;
    n /= 2 * (kKeys / 64);
    const int slices = int(whole.kv_slices()) - kv.whole, slice = n % slices;
    const int tiles = partials.count / (kv.splits * slices);
    int64_t tile = n / slices;
    const float* const values =
        partials.values + first * kCols + part * DqAccum::kNumbers +
        partials.at(is_dv, slice * kv.splits * tiles + int(tile), kKeys, kCols);
    const auto& a = whole.of_keys(tile, kKeys);
    const int64_t key = tile * kKeys + first;
    const Strides& strides = is_dv ? a.dv : a.dk;
    convert_accum_tile(
        (is_dv ? dv : dk) + a.kv_at(strides, kv.whole + slice, key) + column, strides.row,
        a.keys - key, a.cols - column, is_dv ? 1.f : float(a.scale), [](int) { return true; },
        [&](float (&sums)[16], int from) {
#pragma unroll 2
            for (int split = 0; split < kv.splits; ++split)
                add_accum(sums, values + int64_t(split) * tiles * kKeys * kCols + from);
        });
}

// ---- on the host

// How many blocks share a tile of kKeys keys, of kCols columns, with steps of kRows rows: so many
// that the time is shortest, in steps, of which each takes about 2.5 microseconds whatever the head
// size. A block costs kBlockSteps more, to begin and to end; and what blocks leave that share a
// tile is written and read again. kMixes: whether only the slices may be shared that would begin
// the last round of blocks. Packed sequences have the bits that each has by itself: one block.
constexpr double kBlockSteps = 1.5, kConvertSteps = 0.6, kBytesOfStep = 7e6;
constexpr int kMostSplits = 128;

// The steps of the mean tile, of those of a tile that all rows see: 1 or less.
template <int kKeys, class Call>
double mean_steps(const Call& a) {
    const double shift = double(a.keys - a.rows) + a.right, tiles = a.key_tiles(kKeys);
    // The first row that sees a tile is number * kKeys - shift.
    const double first = shift > 0 ? floor(shift / kKeys) + 1 : 0, hidden = tiles - first;
    if (a.right >= a.keys || hidden <= 0) return 1;
    const double row = kKeys * (first + tiles - 1) / 2 - shift;
    const double mean = 1 - hidden / tiles * row / a.rows;
    return mean > 0.1 ? mean : 0.1;
}

template <int kKeys, int kRows, int kCols, bool kMixes, class Call>
KvSplit kv_split(const Call& a, int processors = multiprocessors()) {
    const int slices = int(a.kv_slices());
    KvSplit best = {slices, 1};
    if (Call::kPacked || slices == 0) return best;
    const double tiles = a.key_tiles(kKeys), mean = mean_steps<kKeys>(a);
    const double all = a.q_slices_per_kv() * ceil_div<int64_t>(a.rows, kRows);
    const auto cost = [&](const KvSplit& kv) {
        const double whole = kv.whole * tiles, shared = (slices - kv.whole) * tiles * kv.splits;
        const double of_whole = all + kBlockSteps, of_shared = ceil(all / kv.splits) + kBlockSteps;
        double time;
        if (mean > 0.95) {
            // Whole tiles come in rounds; processors that have none in the last one begin with
            // shared tiles, of which the others then come in rounds.
            const double rounds = floor(whole / processors), left = whole - rounds * processors;
            const double early = left > 0 ? (processors - left) * floor(of_whole / of_shared) : 0;
            time = (rounds + (left > 0)) * of_whole;
            if (shared > early) time += ceil((shared - early) / processors) * of_shared;
        } else {  // the longest come first, so that all processors end at about the same time
            const double longest = shared > 0 ? of_shared : of_whole;
            const double steps = (whole + shared) * (mean * all / kv.splits + kBlockSteps);
            time = steps / processors > longest ? steps / processors : longest;
        }
        const double bytes = shared * kKeys * kCols * 2 * 2 * sizeof(float);
        return time + (shared > 0 ? kConvertSteps + bytes / kBytesOfStep : 0);
    };
    double least = cost(best);
    const auto consider = [&](int whole) {
        for (int splits = 2; splits <= kMostSplits && splits <= all; ++splits) {
            if ((slices - whole) * tiles * splits > 4 * processors) break;
            const double time = cost({whole, splits});
            if (time < 0.97 * least) best = {whole, splits}, least = time;
        }
    };
    consider(0);
    const double rounds = floor(slices * tiles / processors);
    const int whole = int(rounds * processors / tiles);
    if (kMixes && mean > 0.95 && whole > 0 && whole < slices) consider(whole);
    return best;
}

// The partial accumulators: of how many blocks, and how many floats of scratch memory they take.
template <int kKeys, int kRows, int kCols, bool kMixes, class Call>
DkDvPartials partials_of(const Call& a, float* scratch) {
    const KvSplit kv = kv_split<kKeys, kRows, kCols, kMixes>(a);
    return {scratch, kv, int((kv.count(a) - kv.whole) * a.key_tiles(kKeys))};
}
template <int kKeys, int kRows, int kCols, bool kMixes, class Call>
int64_t partials_scratch(const Call& a) {
    return 2 * int64_t(partials_of<kKeys, kRows, kCols, kMixes>(a, nullptr).count) * kKeys * kCols;
}

template <class T, int kCols, int kKeys, class Call>
void launch_convert_accum(const Call& a, const DqAccum& dq_accum, const DkDvPartials& partials,
                          T* dq, T* dk, T* dv, cudaStream_t stream) {
    constexpr int kParts = kCols / DqAccum::kPart;
    const int64_t dq_blocks = dq == nullptr ? 0 : a.slices() * a.row_tiles(64) * kParts;
    const int64_t kv_blocks = partials.count / partials.kv.splits * (kKeys / 64) * 2 * kParts;
    if (dq_blocks + kv_blocks == 0) return;
    launch_secondary(convert_accum<T, kCols, kKeys, Call>, 1, unsigned(dq_blocks + kv_blocks),
                     kConvertThreads, stream, a, dq_accum, partials, int(dq_blocks), dq, dk, dv);
}

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
