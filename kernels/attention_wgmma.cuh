// The versions of attention by wgmma: tensor cores that read shared memory by themselves, which TMA
// fills. They are for 16-bit floats on GPUs of compute capability 9.0.
//
// A block has two or three warpgroups that multiply, each 64 rows of q, and one whose first thread
// asks TMA for tiles of k and v, two tiles ahead. Registers go from that one to the others. The
// others take turns: while one multiplies, the next one takes powers.
//
// What is missing to 64, 128 or 256 columns, TMA fills up with zeros.
#pragma once

#include "attention_mma.cuh"
#include "tma_heads.cuh"
#include "wgmma_registers.cuh"

struct ForwardMaps {
    CUtensorMap q, k, v, y;
};

template <int kCols>
struct WgmmaForward {
    static constexpr int kConsumers = kCols > 64 ? 2 : 3;
    static constexpr int kThreads = kWarpgroup * (kConsumers + 1);
    static constexpr int kRows = 64 * kConsumers, kKeys = kCols > 128 ? 64 : 128, kStages = 2;
    static constexpr int kRegisters = kConsumers == 2 ? 240 : 160;  // of a thread that multiplies
    static constexpr int kLeft = kConsumers == 2 ? 24 : 32;         // of one that does not
    static constexpr int kOfQ = tile_bytes(kRows, kCols), kOfK = tile_bytes(kKeys, kCols);
    struct Shared {
        char q[kOfQ];  // in the end y
        char k[kStages][kOfK], v[kStages][kOfK];
        Mbarrier q_full, k_full[kStages], k_empty[kStages], v_full[kStages], v_empty[kStages];
    };
    static constexpr int kBytes = sizeof(Shared) + kTileAlign;
};

// Which tile of which slice a block has. Blocks begin in the order of their numbers: the first tile
// of all slices, then the second, and so on; but only of so many slices at a time as find room in
// L2 with what their blocks share.
struct Order {
    int64_t tiles, slices, at_once;
    __device__ void find(int64_t& tile, int64_t& slice) const {
        const int64_t section = blockIdx.x / (at_once * tiles), first = section * at_once;
        const int64_t n = blockIdx.x - first * tiles, count = smaller(at_once, slices - first);
        tile = n / count;
        slice = first + n % count;
    }
    // Where it is causal the last tile sees the most keys: it comes first, and short work fills up
    // gaps in the end.
    __device__ void find_last_first(int64_t& tile, int64_t& slice) const {
        find(tile, slice);
        tile = tiles - 1 - tile;
    }
};

#if HAS_WGMMA

// Which stage of a ring is next, and which of its phases.
template <int kStages>
struct Ring {
    int stage = 0, phase = 0;
    __device__ void next() {
        if (++stage == kStages) stage = 0, phase ^= 1;
    }
};

// s [64, N] = 64 rows of x, in boxes of x_rows, times all N rows of w.
template <class T, int kCols, int x_rows, int N2>
__device__ void start_rows(float (&s)[N2], const char* x, const char* w) {
    constexpr int N = 2 * N2;
#pragma unroll
    for (int c = 0; c < kCols / 16; ++c) {
        const uint64_t left = wgmma_descriptor(x + c / 4 * box_bytes(x_rows)) + c % 4 * 2;
        const uint64_t right = wgmma_descriptor(w + c / 4 * box_bytes(N)) + c % 4 * 2;
        wgmma<T>(s, left, right, c > 0);
    }
    wgmma_commit();
}

// sums [64, N] += factor [64, w_rows] times w.
template <class T, int w_rows, int N2>
__device__ void start_columns(float (&sums)[N2], const uint32_t (&factor)[w_rows / 4],
                              const char* w) {
#pragma unroll
    for (int r = 0; r < w_rows; r += 16) {
        const auto& left = reinterpret_cast<const uint32_t (&)[4]>(factor[r / 4]);
        wgmma<T, true>(sums, left, wgmma_descriptor(w, box_bytes(w_rows)) + r * 8, true);
    }
    wgmma_commit();
}

// Writes 64 rows of a warpgroup's sums to where TMA takes them from, in boxes of so many rows.
template <class T, int rows, int N2>
__device__ void put_rows(char* tile, const float (&sums)[N2]) {
#pragma unroll
    for (int c = 0; c < 2 * N2; c += 16) {
        uint32_t words[4];
#pragma unroll
        for (int i = 0; i < 4; ++i)
            words[i] = rounded_pair<T>(sums[c / 2 + 2 * i], sums[c / 2 + 2 * i + 1]);
        store_sums(tile + c / 64 * box_bytes(rows), c % 64, words);
    }
}
template <int rows, int kCols>
__device__ void store_rows(const CUtensorMap& map, const char* tile, int64_t cols, int row,
                           int64_t head, int64_t batch) {
    for (int box = 0; box < kCols / 64; ++box) {
        if (box * 64 < cols)
            tma_store(map, tile + box * box_bytes(rows), box * 64, row, int(head), int(batch));
    }
}

// What a tile has past the last `there` rows of a sequence is the next one's, and 0 times it may be
// NaN: so it becomes 0, for all warpgroups that multiply. Each of their threads takes part.
template <int rows, int kCols, int groups>
__device__ void clear_tail(char* tile, int64_t there) {
    constexpr int kThreads = groups * kWarpgroup, kChunks = kCols / 8;
    if (there >= rows) return;
    for (int i = int(there) * kChunks + threadIdx.x; i < rows * kChunks; i += kThreads)
        *reinterpret_cast<uint4*>(at_chunk(tile, rows, i / kChunks, i % kChunks)) = uint4{};
    tma_writes_done();  // wgmma reads as TMA does
    asm volatile("bar.sync 4, %0;" ::"n"(kThreads) : "memory");
}

// Writes those of a warpgroup's 64 rows that a sequence still has, the first one to y. TMA would
// write to the next sequence.
template <class T, int N2>
__device__ void write_tail(T* y, const float (&sums)[N2], const float (&factor)[2], int64_t rows,
                           int64_t stride, int64_t cols) {
    const int first = threadIdx.x % kWarpgroup / kWarp * 16;  // of this warp
    write_rows(y + first * stride, sums, factor, rows - first, stride, int(cols));
}

// The turns of warpgroups, one after the other; the first has the first turn.
template <int kGroups>
struct Turns {
    int group;
    __device__ explicit Turns(int group) : group(group) {
        if (group == 0) arrive(0);
    }
    __device__ void wait() const { asm volatile("bar.sync %0, 256;" ::"r"(8 + group) : "memory"); }
    __device__ void pass() const { arrive(group + 1 < kGroups ? group + 1 : 0); }

  private:
    __device__ static void arrive(int to) {
        asm volatile("bar.arrive %0, 256;" ::"r"(8 + to) : "memory");
    }
};

#endif

template <class T, int kCols, bool kOverlap, class Call>
__global__ WGMMA_KERNEL(WgmmaForward<kCols>::kThreads) void forward_wgmma(
    const __grid_constant__ ForwardMaps maps, const __grid_constant__ Call whole, Order order, T* y,
    float* stats) {
#if HAS_WGMMA
    using S = WgmmaForward<kCols>;
    constexpr int kKeys = S::kKeys, kBoxes = kCols / 64;
    extern __shared__ char memory[];
    auto& shared = tile_aligned<typename S::Shared>(memory);
    const int group = threadIdx.x / kWarpgroup;
    int64_t tile, slice;
    order.find_last_first(tile, slice);
    const auto& a = whole.of_rows(tile, S::kRows);
    Place place = a.place(slice);
    place.row = tile * S::kRows;
    if (Call::kPacked && place.row >= a.rows) return;
    const int begin = int(a.first_key(place.row)) / kKeys * kKeys;
    const int end = int(a.end_key(smaller<int64_t>(place.row + S::kRows, a.rows) - 1));

    if (threadIdx.x == 0) {
        shared.q_full.init();
        for (int i = 0; i < S::kStages; ++i) {
            shared.k_full[i].init();
            shared.v_full[i].init();
            shared.k_empty[i].init(S::kConsumers);
            shared.v_empty[i].init(S::kConsumers);
        }
    }
    __syncthreads();

    if (group == S::kConsumers) {
        give_registers<S::kLeft>();
        if (threadIdx.x % kWarpgroup != 0) return;
        shared.q_full.arrive_expect_tx(S::kOfQ);
        for (int box = 0; box < kBoxes; ++box) {
            tma_load(shared.q + box * box_bytes(S::kRows), maps.q, box * 64,
                     a.row_coordinate(place.row), int(place.head), int(place.batch), shared.q_full);
        }
        const int head = int(place.head / a.group()), batch = int(place.batch % a.kv_batches);
        Ring<S::kStages> ring;
        for (int key = begin; key < end; key += kKeys, ring.next()) {
            const int i = ring.stage;
            shared.k_empty[i].wait(ring.phase ^ 1);
            shared.k_full[i].arrive_expect_tx(S::kOfK);
            for (int box = 0; box < kBoxes; ++box)
                tma_load(shared.k[i] + box * box_bytes(kKeys), maps.k, box * 64,
                         a.key_coordinate(key), head, batch, shared.k_full[i]);
            shared.v_empty[i].wait(ring.phase ^ 1);
            shared.v_full[i].arrive_expect_tx(S::kOfK);
            for (int box = 0; box < kBoxes; ++box)
                tma_load(shared.v[i] + box * box_bytes(kKeys), maps.v, box * 64,
                         a.key_coordinate(key), head, batch, shared.v_full[i]);
        }
        return;
    }

    take_registers<S::kRegisters>();
    const bool is_first = threadIdx.x % kWarpgroup == 0;
    const int top = int(place.row) + group * 64;  // this warpgroup's rows
    const int last = int(a.end_key(top)), first = int(a.first_key(top + 63));  // all see these
    char* const q_tile = shared.q + group * box_bytes(64);
    const Turns<S::kConsumers> turns(group);
    const float scale = float(a.scale) * kLog2OfE;
    float sums[kCols / 2] = {}, scores[kKeys / 2], factor[2];
    uint32_t weights[kKeys / 4];
    RowsSoftmax soft;
    const auto hide_some = [&](int key) {
        if (key + kKeys <= last && key >= first) return;
        const Limits limits(a, top + row_of_sum(0), key);
        hide(scores, limits.begin, limits.end);
    };
    shared.q_full.wait(0);
    if constexpr (Call::kPacked)
        clear_tail<S::kRows, kCols, S::kConsumers>(shared.q, a.rows - place.row);
    const auto wait_for_v = [&](int64_t key, const auto& ring) {
        shared.v_full[ring.stage].wait(ring.phase);
        if constexpr (Call::kPacked)
            clear_tail<kKeys, kCols, S::kConsumers>(shared.v[ring.stage], a.keys - key);
    };
    if constexpr (!kOverlap) {
        Ring<S::kStages> ring;
        for (int key = begin; key < end; key += kKeys, ring.next()) {
            const int i = ring.stage;
            shared.k_full[i].wait(ring.phase);
            turns.wait();
            wgmma_fence();
            start_rows<T, kCols, S::kRows>(scores, q_tile, shared.k[i]);
            wgmma_wait<0>();
            turns.pass();
            if (is_first) shared.k_empty[i].arrive();
            hide_some(key);
            soft.take(scores, scale, factor);
            scale_rows(sums, factor);
            as_factor<T>(weights, scores);
            wait_for_v(key, ring);
            wgmma_fence();
            start_columns<T, kKeys>(sums, weights, shared.v[i]);
            wgmma_wait<0>();
            if (is_first) shared.v_empty[i].arrive();
        }
    } else if (begin < end) {
        Ring<S::kStages> ring, before;
        shared.k_full[0].wait(0);
        turns.wait();
        wgmma_fence();
        start_rows<T, kCols, S::kRows>(scores, q_tile, shared.k[0]);
        turns.pass();
        wgmma_wait<0>();
        if (is_first) shared.k_empty[0].arrive();
        hide_some(begin);
        soft.take(scores, scale, factor);
        as_factor<T>(weights, scores);
        ring.next();
        for (int key = begin + kKeys; key < end; key += kKeys, ring.next(), before.next()) {
            shared.k_full[ring.stage].wait(ring.phase);
            turns.wait();
            wgmma_fence();
            start_rows<T, kCols, S::kRows>(scores, q_tile, shared.k[ring.stage]);
            shared.v_full[before.stage].wait(before.phase);
            start_columns<T, kKeys>(sums, weights, shared.v[before.stage]);
            turns.pass();
            wgmma_wait<1>();
            if (is_first) shared.k_empty[ring.stage].arrive();
            hide_some(key);
            soft.take(scores, scale, factor);
            wgmma_wait<0>();
            if (is_first) shared.v_empty[before.stage].arrive();
            scale_rows(sums, factor);
            as_factor<T>(weights, scores);
        }
        wait_for_v((end - 1) / kKeys * kKeys, before);
        wgmma_fence();
        start_columns<T, kKeys>(sums, weights, shared.v[before.stage]);
        wgmma_wait<0>();
    }

    float share[2];
#pragma unroll
    for (int half = 0; half < 2; ++half)
        share[half] =
            finish(a, soft, half, {place.batch, place.head, top + row_of_sum(2 * half)}, stats);
    if (Call::kPacked && top + 64 > a.rows) {
        write_tail(y + a.at(a.y, {place.batch, place.head, top}), sums, share, a.rows - top,
                   a.y.row, a.cols);
        return;
    }
    scale_rows(sums, share);
    put_rows<T, S::kRows>(q_tile, sums);
    tma_writes_done();
    warpgroup_barrier(group);
    if (is_first && top < a.rows) {
        store_rows<S::kRows, kCols>(
            maps.y, q_tile, a.cols, a.row_coordinate(top), place.head, place.batch);
        tma_store_wait_read<0>();
    }
#endif
}

// ---- backward: dq for the rows of a block, and dk and dv for its keys, in two kernels, so that
// nobody adds to what another one writes. Both compute scores and slopes, s = q k^T and g v^T:
// seven products, where one kernel needs five, but has to add up dq over all blocks. That takes
// atomics, in another order on every run, or blocks that wait for each other.
//
// Powers are taken while the slopes are multiplied; and dq of a tile ends while the next tile's
// scores begin. For dk and dv that would be as well, but ptxas then makes each product wait for the
// one before.

template <int kCols>
struct WgmmaBackward {
    static constexpr int kConsumers = 2, kThreads = kWarpgroup * (kConsumers + 1);
    static constexpr int kRegisters = 240, kLeft = 24;
    static constexpr int kBlock = 64 * kConsumers;  // rows, or keys, of a block
    static constexpr int kOfBlock = tile_bytes(kBlock, kCols);
    template <int kStep, int kStages>
    struct Shared {
        static constexpr int kOfStep = tile_bytes(kStep, kCols);
        char x[2][kOfBlock];          // q and g, or k and v
        char w[kStages][2][kOfStep];  // the other two
        RowInfo infos[kStages][kStep];
        Mbarrier x_full, w_full[kStages], w_empty[kStages];
        __device__ void init() {
            x_full.init();
            for (int i = 0; i < kStages; ++i) w_full[i].init(), w_empty[i].init(kConsumers);
        }
    };
    // Keys, or rows, of a step: registers have to hold scores and slopes of them.
    static constexpr int kKeys = kCols > 64 ? 64 : 128, kRows = 64;
    using OfQ = Shared<kKeys, 2>;
    using OfKv = Shared<kRows, 3>;
};

struct BackwardMaps {
    CUtensorMap q, g, k, v;  // in boxes of a block, or of a step
    CUtensorMap to[2];       // dq, or dk and dv
};

#if HAS_WGMMA

// A tile of two tensors: rows from `row` on.
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

#endif

template <class T, int kCols, class Call>
__global__ WGMMA_KERNEL(WgmmaBackward<kCols>::kThreads) void backward_q_wgmma(
    const __grid_constant__ BackwardMaps maps, const __grid_constant__ Call whole, Order order,
    const RowInfo* infos, T* dq) {
#if HAS_WGMMA
    using S = WgmmaBackward<kCols>;
    constexpr int kKeys = S::kKeys, kStages = 2;
    extern __shared__ char memory[];
    auto& shared = tile_aligned<typename S::OfQ>(memory);
    const int group = threadIdx.x / kWarpgroup;
    int64_t tile, slice;
    order.find_last_first(tile, slice);
    const auto& a = whole.of_rows(tile, S::kBlock);
    Place place = a.place(slice);
    place.row = tile * S::kBlock;
    if (Call::kPacked && place.row >= a.rows) return;
    const int begin = int(a.first_key(place.row)) / kKeys * kKeys;
    const int end = int(a.end_key(smaller<int64_t>(place.row + S::kBlock, a.rows) - 1));
    if (threadIdx.x == 0) shared.init();
    __syncthreads();

    if (group == S::kConsumers) {
        give_registers<S::kLeft>();
        if (threadIdx.x % kWarpgroup != 0) return;
        shared.x_full.arrive_expect_tx(2 * S::kOfBlock);
        load_both<S::kBlock, kCols>(shared.x[0], maps.q, maps.g, a.row_coordinate(place.row),
                                    place.head, place.batch, shared.x_full);
        Ring<kStages> ring;
        for (int key = begin; key < end; key += kKeys, ring.next()) {
            const int i = ring.stage;
            shared.w_empty[i].wait(ring.phase ^ 1);
            shared.w_full[i].arrive_expect_tx(2 * S::OfQ::kOfStep);
            load_both<kKeys, kCols>(
                shared.w[i][0], maps.k, maps.v, a.key_coordinate(key), place.head / a.group(),
                place.batch % a.kv_batches, shared.w_full[i]);
        }
        return;
    }

    take_registers<S::kRegisters>();
    const bool is_first = threadIdx.x % kWarpgroup == 0;
    const int top = int(place.row) + group * 64;
    const int last = int(a.end_key(top)), first = int(a.first_key(top + 63));  // all see these
    char *const q_tile = shared.x[0] + group * box_bytes(64), *const g_tile = q_tile + S::kOfBlock;
    const float scale = float(a.scale) * kLog2OfE;
    RowInfo info[2];
    for (int half = 0; half < 2; ++half) {
        const int row = top + row_of_sum(2 * half);
        info[half] = {INFINITY, 0};
        if (row < a.rows) info[half] = infos[info_at(a, {place.batch, place.head, row})];
    }
    float sums[kCols / 2] = {}, scores[kKeys / 2], slopes[kKeys / 2];
    uint32_t ds[kKeys / 4];
    shared.x_full.wait(0);
    Ring<kStages> ring, before;
    for (int key = begin; key < end; key += kKeys, ring.next()) {
        char *const k_tile = shared.w[ring.stage][0], *const v_tile = shared.w[ring.stage][1];
        shared.w_full[ring.stage].wait(ring.phase);
        if constexpr (Call::kPacked) clear_tail<kKeys, kCols, S::kConsumers>(k_tile, a.keys - key);
        wgmma_fence();
        start_rows<T, kCols, S::kBlock>(scores, q_tile, k_tile);
        start_rows<T, kCols, S::kBlock>(slopes, g_tile, v_tile);
        wgmma_wait<1>();  // the scores are there, and dq of the tile before
        if (key > begin) {
            if (is_first) shared.w_empty[before.stage].arrive();
            before.next();
        }
#pragma unroll
        for (int i = 0; i < kKeys / 2; ++i)
            scores[i] = exp2_of(fmaf(scores[i], scale, -info[i / 2 % 2].shift));
        wgmma_wait<0>();
#pragma unroll
        for (int i = 0; i < kKeys / 2; ++i)
            slopes[i] = scores[i] * (slopes[i] - info[i / 2 % 2].delta);
        if (key + kKeys > last || key < first) {
            const Limits limits(a, top + row_of_sum(0), key);
            clear(slopes, limits.begin, limits.end);
        }
        as_factor<T>(ds, slopes);
        wgmma_fence();
        start_columns<T, kKeys>(sums, ds, k_tile);
    }
    wgmma_wait<0>();
    const float factor[2] = {float(a.scale), float(a.scale)};
    if (Call::kPacked && top + 64 > a.rows) {
        write_tail(dq + a.at(a.dq, {place.batch, place.head, top}), sums, factor, a.rows - top,
                   a.dq.row, a.cols);
        return;
    }
    scale_rows(sums, factor);
    put_rows<T, S::kBlock>(q_tile, sums);
    tma_writes_done();
    warpgroup_barrier(group);
    if (is_first && top < a.rows) {
        store_rows<S::kBlock, kCols>(
            maps.to[0], q_tile, a.cols, a.row_coordinate(top), place.head, place.batch);
        tma_store_wait_read<0>();
    }
#endif
}

// The scores are k q^T here: so p and ds have the rows of dv and dk.
template <class T, int kCols, class Call>
__global__ WGMMA_KERNEL(WgmmaBackward<kCols>::kThreads) void backward_kv_wgmma(
    const __grid_constant__ BackwardMaps maps, const __grid_constant__ Call whole, Order order,
    const RowInfo* infos, T* dk, T* dv) {
#if HAS_WGMMA
    using S = WgmmaBackward<kCols>;
    constexpr int kRows = S::kRows, kStages = 3;
    extern __shared__ char memory[];
    auto& shared = tile_aligned<typename S::OfKv>(memory);
    const int group = threadIdx.x / kWarpgroup;
    int64_t tile, slice;
    order.find(tile, slice);
    const auto& a = whole.of_keys(tile, S::kBlock);
    const int key = int(tile) * S::kBlock;
    if (Call::kPacked && key >= a.keys) return;

    // The tiles of rows that see one of these keys: of each sharer those from `low` to `high`.
    const int64_t shift = a.keys - a.rows;
    const int64_t first_row = key - shift - a.right;
    const int64_t last_row = smaller<int64_t>(key + S::kBlock, a.keys) - 1 - shift + a.left;
    const int low = first_row > 0 ? int(smaller(first_row, a.rows)) / kRows : 0;
    const int64_t end = smaller(last_row + 1, a.rows);
    const int high = end > 0 ? int(ceil_div<int64_t>(end, kRows)) : 0;
    const int of_sharer = high > low ? high - low : 0, count = of_sharer * int(a.sharing());
    if (threadIdx.x == 0) shared.init();
    __syncthreads();

    if (group == S::kConsumers) {
        give_registers<S::kLeft>();
        if (threadIdx.x % kWarpgroup != 0) return;
        shared.x_full.arrive_expect_tx(2 * S::kOfBlock);
        load_both<S::kBlock, kCols>(shared.x[0], maps.k, maps.v, a.key_coordinate(key),
                                    slice % a.kv_heads, slice / a.kv_heads, shared.x_full);
        Ring<kStages> ring;
        for (int sharer = 0; sharer < int(a.sharing()); ++sharer) {
            Place place = a.sharer(slice, sharer, 0);
            for (int n = low; n < high; ++n, ring.next()) {
                const int i = ring.stage;
                place.row = n * kRows;
                shared.w_empty[i].wait(ring.phase ^ 1);
                shared.w_full[i].arrive_expect_tx(2 * S::OfKv::kOfStep + sizeof(shared.infos[i]));
                load_both<kRows, kCols>(shared.w[i][0], maps.q, maps.g, a.row_coordinate(place.row),
                                        place.head, place.batch, shared.w_full[i]);
                bulk_load(shared.infos[i], infos + info_at(a, place), sizeof(shared.infos[i]),
                          shared.w_full[i]);
            }
        }
        return;
    }

    take_registers<S::kRegisters>();
    const bool is_first = threadIdx.x % kWarpgroup == 0;
    const int top = key + group * 64;
    char *const k_tile = shared.x[0] + group * box_bytes(64), *const v_tile = k_tile + S::kOfBlock;
    const float scale = float(a.scale) * kLog2OfE;
    float of_k[kCols / 2] = {}, of_v[kCols / 2] = {}, scores[kRows / 2], slopes[kRows / 2];
    uint32_t p[kRows / 4], ds[kRows / 4];
    shared.x_full.wait(0);
    Ring<kStages> ring;
    int row = low * kRows;
    for (int n = 0; n < count; ++n, ring.next()) {
        char *const q_tile = shared.w[ring.stage][0], *const g_tile = shared.w[ring.stage][1];
        const RowInfo* const its = shared.infos[ring.stage];
        shared.w_full[ring.stage].wait(ring.phase);
        if constexpr (Call::kPacked) {
            clear_tail<kRows, kCols, S::kConsumers>(q_tile, a.rows - row);
            clear_tail<kRows, kCols, S::kConsumers>(g_tile, a.rows - row);
        }
        wgmma_fence();
        start_rows<T, kCols, S::kBlock>(scores, k_tile, q_tile);
        start_rows<T, kCols, S::kBlock>(slopes, v_tile, g_tile);
        wgmma_wait<1>();  // the scores are there
        // All rows see all keys, or some do not: which ones, in rows counted from the first.
        const bool some = top < a.first_key(row + kRows - 1) || top + 64 > a.end_key(row);
        int its_begin[2], its_end[2];
#pragma unroll
        for (int half = 0; half < 2; ++half) {
            const int64_t from = top + row_of_sum(2 * half) - shift;
            its_begin[half] = int(from - a.right - row);
            its_end[half] = int(from + a.left + 1 - row);
        }
#pragma unroll
        for (int i = 0; i < kRows / 2; ++i)
            scores[i] = exp2_of(fmaf(scores[i], scale, -its[column_of(i)].shift));
        wgmma_wait<0>();  // the slopes are there
        if (some) clear(scores, its_begin, its_end);
#pragma unroll
        for (int i = 0; i < kRows / 2; ++i)
            slopes[i] = scores[i] * (slopes[i] - its[column_of(i)].delta);
        if (some) clear(slopes, its_begin, its_end);
        as_factor<T>(p, scores);
        as_factor<T>(ds, slopes);
        wgmma_fence();
        start_columns<T, kRows>(of_v, p, g_tile);
        start_columns<T, kRows>(of_k, ds, q_tile);
        wgmma_wait<0>();
        if (is_first) shared.w_empty[ring.stage].arrive();
        row += kRows;
        if (row == high * kRows) row = low * kRows;
    }
    const float factor[2] = {float(a.scale), float(a.scale)};
    if (Call::kPacked && top + 64 > a.keys) {
        const float one[2] = {1, 1};
        write_tail(dk + a.kv_at(a.dk, slice, top), of_k, factor, a.keys - top, a.dk.row, a.cols);
        write_tail(dv + a.kv_at(a.dv, slice, top), of_v, one, a.keys - top, a.dv.row, a.cols);
        return;
    }
    scale_rows(of_k, factor);
    put_rows<T, S::kBlock>(k_tile, of_k);
    put_rows<T, S::kBlock>(v_tile, of_v);
    tma_writes_done();
    warpgroup_barrier(group);
    if (is_first && top < a.keys) {
        const int64_t head = slice % a.kv_heads, batch = slice / a.kv_heads;
        store_rows<S::kBlock, kCols>(
            maps.to[0], k_tile, a.cols, a.key_coordinate(top), head, batch);
        store_rows<S::kBlock, kCols>(
            maps.to[1], v_tile, a.cols, a.key_coordinate(top), head, batch);
        tma_store_wait_read<0>();
    }
#endif
}

// ---- on the host

// A map of q, k, v or what has their shape. Warpgroups write boxes of 64 rows.
template <class T>
bool map_rows(CUtensorMap& map, const T* at, int64_t batches, int64_t heads, int64_t rows,
              int64_t cols, const Strides& s, int box_rows = 64) {
    return make_tensor_map(map, at, batches, heads, rows, cols, s.batch, s.head, s.row, box_rows);
}

// The order of the blocks of so many slices, in so many tiles each. Of what they share a slice has
// `shared` rows twice, and `group` slices have the same. Half of the L2 cache is for that.
inline Order order_of(const Attention& a, int64_t slices, int64_t tiles, int64_t shared,
                      int64_t group) {
    constexpr int64_t room = 24 << 20;
    const int64_t at_once = (room / (4 * shared * a.cols + 1) + 1) * group;
    return {tiles, slices, smaller(slices, at_once)};
}

// False: not for this GPU, or not for TMA.
template <class T, int kCols, bool kOverlap, class Call>
bool launch_forward_wgmma(const Call& a, const T* q, const T* k, const T* v, T* y, float* stats,
                          cudaStream_t stream) {
    using S = WgmmaForward<kCols>;
    const auto kernel = forward_wgmma<T, kCols, kOverlap, Call>;
    if (a.keys == 0 || !has_wgmma(kernel, S::kThreads) || S::kBytes > shared_bytes()) return false;
    ForwardMaps maps;
    if (!map_rows(maps.q, q, a.batches, a.heads, a.all_rows(), a.cols, a.q, S::kRows) ||
        !map_rows(maps.k, k, a.kv_batches, a.kv_heads, a.all_keys(), a.cols, a.k, S::kKeys) ||
        !map_rows(maps.v, v, a.kv_batches, a.kv_heads, a.all_keys(), a.cols, a.v, S::kKeys) ||
        !map_rows(maps.y, y, a.batches, a.heads, a.all_rows(), a.cols, a.y))
        return false;
    cudaFuncSetAttribute(kernel, cudaFuncAttributeMaxDynamicSharedMemorySize, S::kBytes);
    const Order order = order_of(a, a.slices(), a.row_tiles(S::kRows), a.keys, a.group());
    kernel<<<order.tiles * order.slices, S::kThreads, S::kBytes, stream>>>(
        maps, a, order, y, stats);
    return true;
}

template <class T, int kCols, class Call>
bool can_backward_wgmma() {
    using S = WgmmaBackward<kCols>;
    constexpr int bytes = sizeof(typename S::OfQ) > sizeof(typename S::OfKv)
                              ? sizeof(typename S::OfQ)
                              : sizeof(typename S::OfKv);
    return has_wgmma(backward_q_wgmma<T, kCols, Call>, S::kThreads) &&
           has_wgmma(backward_kv_wgmma<T, kCols, Call>, S::kThreads) &&
           bytes + kTileAlign <= shared_bytes();
}

// Not only if it can, but also if TMA takes the tensors.
template <class T, int kCols, class Call>
bool map_backward(BackwardMaps& of_q, BackwardMaps& of_kv, const Call& a, const T* g, const T* q,
                  const T* k, const T* v, T* dq, T* dk, T* dv) {
    using S = WgmmaBackward<kCols>;
    const auto map = [&](BackwardMaps& maps, int rows, int keys) {
        return map_rows(maps.q, q, a.batches, a.heads, a.all_rows(), a.cols, a.q, rows) &&
               map_rows(maps.g, g, a.batches, a.heads, a.all_rows(), a.cols, a.g, rows) &&
               map_rows(maps.k, k, a.kv_batches, a.kv_heads, a.all_keys(), a.cols, a.k, keys) &&
               map_rows(maps.v, v, a.kv_batches, a.kv_heads, a.all_keys(), a.cols, a.v, keys);
    };
    const auto map_gradient = [&](CUtensorMap& map, const T* of_k_or_v, const Strides& strides) {
        return map_rows(map, of_k_or_v, a.kv_batches, a.kv_heads, a.all_keys(), a.cols, strides);
    };
    return a.slices() * a.all_rows() > 0 && a.kv_slices() * a.all_keys() > 0 &&
           map(of_q, S::kBlock, S::kKeys) && map(of_kv, S::kRows, S::kBlock) &&
           map_rows(of_q.to[0], dq, a.batches, a.heads, a.all_rows(), a.cols, a.dq) &&
           map_gradient(of_kv.to[0], dk, a.dk) && map_gradient(of_kv.to[1], dv, a.dv);
}

// False: TMA does not take the tensors.
template <class T, int kCols, class Call>
bool launch_backward_wgmma(const Call& a, const T* g, const T* q, const T* k, const T* v,
                           const T* y, const float* stats, float* scratch, T* dq, T* dk, T* dv,
                           cudaStream_t stream) {
    using S = WgmmaBackward<kCols>;
    BackwardMaps of_q, of_kv;
    if (!map_backward<T, kCols>(of_q, of_kv, a, g, q, k, v, dq, dk, dv)) return false;
    RowInfo* const infos = reinterpret_cast<RowInfo*>(scratch);
    launch_row_infos(a, g, y, stats, infos, stream);
    const auto start =
        [&](auto kernel, int bytes, const BackwardMaps& maps, const Order& order, auto... to) {
            bytes += kTileAlign;
            cudaFuncSetAttribute(kernel, cudaFuncAttributeMaxDynamicSharedMemorySize, bytes);
            kernel<<<order.tiles * order.slices, S::kThreads, bytes, stream>>>(
                maps, a, order, infos, to...);
        };
    start(backward_kv_wgmma<T, kCols, Call>, sizeof(typename S::OfKv), of_kv,
          order_of(a, a.kv_slices(), a.key_tiles(S::kBlock), a.rows * a.sharing(), 1), dk, dv);
    start(backward_q_wgmma<T, kCols, Call>, sizeof(typename S::OfQ), of_q,
          order_of(a, a.slices(), a.row_tiles(S::kBlock), a.keys, a.group()), dq);
    return true;
}
