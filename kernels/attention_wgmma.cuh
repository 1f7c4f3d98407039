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

#ifndef C64
#define C64 3
#endif
#ifndef K64
#define K64 128
#endif
#ifndef K128
#define K128 128
#endif
template <int kCols>
struct WgmmaForward {
    static constexpr int kConsumers = kCols > 64 ? 2 : C64;
    static constexpr int kThreads = kWarpgroup * (kConsumers + 1);
    static constexpr int kRows = 64 * kConsumers, kKeys = kCols > 128 ? 64 : kCols > 64 ? K128 : K64, kStages = 2;
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

// Which rows a block has. Blocks begin in the order of their numbers. The last rows come first, for
// those see the most keys where it is causal, and short work fills up gaps in the end; but only of
// so many slices at a time as find room in L2 with their keys.
struct Order {
    int64_t tiles, slices, at_once;
    __device__ Place place(const Attention& a, int rows) const {
        const int64_t section = blockIdx.x / (at_once * tiles), first = section * at_once;
        const int64_t n = blockIdx.x - first * tiles, count = smaller(at_once, slices - first);
        Place place = a.place((first + n % count) * a.rows);
        place.row = (tiles - 1 - n / count) * rows;
        return place;
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
        const uint32_t left[4] = {
            factor[r / 4], factor[r / 4 + 1], factor[r / 4 + 2], factor[r / 4 + 3]};
        wgmma<T, true>(sums, left, wgmma_descriptor(w, box_bytes(w_rows)) + r * 8, true);
    }
    wgmma_commit();
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

template <class T, int kCols, bool kOverlap>
__global__ WGMMA_KERNEL(WgmmaForward<kCols>::kThreads) void forward_wgmma(
    const __grid_constant__ ForwardMaps maps, const __grid_constant__ Attention a, Order order,
    float* stats) {
#if HAS_WGMMA
    using S = WgmmaForward<kCols>;
    constexpr int kKeys = S::kKeys, kBoxes = kCols / 64;
    extern __shared__ char memory[];
    auto& shared = tile_aligned<typename S::Shared>(memory);
    const int group = threadIdx.x / kWarpgroup;
    const Place place = order.place(a, S::kRows);
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
            tma_load(shared.q + box * box_bytes(S::kRows), maps.q, box * 64, int(place.row),
                     int(place.head), int(place.batch), shared.q_full);
        }
        const int head = int(place.head / a.group()), batch = int(place.batch % a.kv_batches);
        Ring<S::kStages> ring;
        for (int key = begin; key < end; key += kKeys, ring.next()) {
            const int i = ring.stage;
            shared.k_empty[i].wait(ring.phase ^ 1);
            shared.k_full[i].arrive_expect_tx(S::kOfK);
            for (int box = 0; box < kBoxes; ++box)
                tma_load(shared.k[i] + box * box_bytes(kKeys), maps.k, box * 64, key, head, batch,
                         shared.k_full[i]);
            shared.v_empty[i].wait(ring.phase ^ 1);
            shared.v_full[i].arrive_expect_tx(S::kOfK);
            for (int box = 0; box < kBoxes; ++box)
                tma_load(shared.v[i] + box * box_bytes(kKeys), maps.v, box * 64, key, head, batch,
                         shared.v_full[i]);
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
            shared.v_full[i].wait(ring.phase);
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
        shared.v_full[before.stage].wait(before.phase);
        wgmma_fence();
        start_columns<T, kKeys>(sums, weights, shared.v[before.stage]);
        wgmma_wait<0>();
    }

    float share[2];
#pragma unroll
    for (int half = 0; half < 2; ++half)
        share[half] =
            finish(a, soft, half, {place.batch, place.head, top + row_of_sum(2 * half)}, stats);
    scale_rows(sums, share);
#pragma unroll
    for (int c = 0; c < kCols; c += 16) {
        uint32_t words[4];
#pragma unroll
        for (int i = 0; i < 4; ++i)
            words[i] = rounded_pair<T>(sums[c / 2 + 2 * i], sums[c / 2 + 2 * i + 1]);
        store_sums(q_tile + c / 64 * box_bytes(S::kRows), c % 64, words);
    }
    tma_writes_done();
    warpgroup_barrier(group);
    if (is_first && top < a.rows) {
        const int64_t slice = place.batch * a.heads + place.head;
        for (int box = 0; box < kBoxes; ++box) {
            if (box * 64 < a.cols)
                tma_store(maps.y, q_tile + box * box_bytes(S::kRows), box * 64, top, int(slice));
        }
        tma_store_wait_read<0>();
    }
#endif
}

// ---- on the host

// A map of q, k, v or what has their shape.
template <class T>
bool map_rows(CUtensorMap& map, const T* at, int64_t batches, int64_t heads, int64_t rows,
              int64_t cols, const Strides& s, int box_rows) {
    return make_tensor_map(map, at, batches, heads, rows, cols, s.batch, s.head, s.row, box_rows);
}

// How many slices of q may be under way together, so that their keys find room in half of the L2
// cache, in blocks of so many rows.
inline Order order_of(const Attention& a, int rows) {
    constexpr int64_t room = 24 << 20;
    const int64_t of_keys = 4 * a.keys * a.cols + 1, heads = room / of_keys + 1;
    return {ceil_div<int64_t>(a.rows, rows), a.slices(), smaller(a.slices(), heads * a.group())};
}

// False: not for this GPU, or not for TMA.
template <class T, int kCols, bool kOverlap>
bool launch_forward_wgmma(const Attention& a, const T* q, const T* k, const T* v, T* y,
                          float* stats, cudaStream_t stream) {
    using S = WgmmaForward<kCols>;
    const auto kernel = forward_wgmma<T, kCols, kOverlap>;
    if (a.keys == 0 || !has_wgmma(kernel, S::kThreads) || S::kBytes > shared_bytes()) return false;
    ForwardMaps maps;
    if (!map_rows(maps.q, q, a.batches, a.heads, a.rows, a.cols, a.q, S::kRows) ||
        !map_rows(maps.k, k, a.kv_batches, a.kv_heads, a.keys, a.cols, a.k, S::kKeys) ||
        !map_rows(maps.v, v, a.kv_batches, a.kv_heads, a.keys, a.cols, a.v, S::kKeys) ||
        !make_tensor_map(maps.y, y, a.slices(), a.rows, a.cols, a.rows * a.cols, a.cols, 64))
        return false;
    cudaFuncSetAttribute(kernel, cudaFuncAttributeMaxDynamicSharedMemorySize, S::kBytes);
    const Order order = order_of(a, S::kRows);
    kernel<<<order.tiles * order.slices, S::kThreads, S::kBytes, stream>>>(maps, a, order, stats);
    return true;
}
