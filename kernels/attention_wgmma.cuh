// The versions of attention by wgmma, forward: tensor cores that read shared memory by themselves,
// which TMA fills. They are for 16-bit floats on GPUs of compute capability 9.0.
//
// A block has two or three warpgroups that multiply, each 64 rows of q, and one whose first thread
// asks TMA for tiles of k and v, two tiles ahead. Registers go from that one to the others. The
// others take turns: while one multiplies, the next one takes powers.
//
// Blocks may be persistent: such a one has several tiles of rows, and while one ends, what the next
// one needs is on its way.
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
    static constexpr int kRows = 64 * kConsumers, kKeys = kCols > 128 ? 64 : 128;
    static constexpr int kStages = kCols > 64 ? 2 : 3;
    static constexpr int kTiles = kCols > 128 ? 1 : 2;  // of q, the second for what comes next
    static constexpr int kRegisters = kConsumers == 2 ? 240 : 160;  // of a thread that multiplies
    static constexpr int kLeft = kConsumers == 2 ? 24 : 32;         // of one that does not
    static constexpr int kOfQ = tile_bytes(kRows, kCols), kOfK = tile_bytes(kKeys, kCols);
    struct Shared {
        char q[kTiles][kOfQ];  // in the end y
        char k[kStages][kOfK], v[kStages][kOfK];
        Mbarrier q_full[kTiles], q_empty[kTiles];
        Mbarrier k_full[kStages], k_empty[kStages], v_full[kStages], v_empty[kStages];
        __device__ void init() {
            for (int i = 0; i < kTiles; ++i) q_full[i].init(), q_empty[i].init(kConsumers);
            for (int i = 0; i < kStages; ++i) {
                k_full[i].init(), k_empty[i].init(kConsumers);
                v_full[i].init(), v_empty[i].init(kConsumers);
            }
        }
    };
    static constexpr int kBytes = sizeof(Shared) + kTileAlign;
};

// Which tile of which slice comes when, and to which block: the last tile of all slices, then the
// one before, and so on; but only of so many slices at a time as find room in L2 with what their
// blocks share. Where it is causal the last tile of rows has the most to do, and comes first.
struct Order {
    int tiles, slices, at_once;
    int blocks;  // as many as there are tiles, each for one; or fewer
    bool pairs;
    // Rows of a tile. Pairs of larger ones are so few that blocks would wait a tenth of the time
    // for the last of them.
    static constexpr int kMostPaired = 128;

    // Calls f(tile, slice) for each that this block has. Where it is causal, blocks with several
    // shall have as much to do as each other. With `pairs` a block has the n-th tile with the n-th
    // last one, for all such pairs take as long. Without, rounds go back and forth: who has more to
    // do in one has less in the next. That fits less well, but leaves less over in the end than
    // pairs, of which there are half as many.
    template <bool kMayPair, class F>
    __device__ void for_each(F f) const {
        const bool in_pairs = kMayPair && pairs;
        const int items = in_pairs ? (tiles + 1) / 2 : tiles;
        int mine = blockIdx.x;  // of the blocks, in the order in which they have the next round
        for (int first = 0; first < slices; first += at_once) {
            const int together = smaller(at_once, slices - first), count = together * items;
            for (int round = 0; round * blocks < count; ++round) {
                const int n = round * blocks + (round % 2 ? blocks - 1 - mine : mine);
                if (n >= count) continue;
                const int item = n / together, slice = first + n % together;
                int tile = tiles - 1 - item;
#pragma unroll 1
                for (int left = in_pairs && tile != item ? 2 : 1; left > 0; --left, tile = item)
                    f(tile, slice);
            }
            mine = (mine + blocks - count % blocks) % blocks;
        }
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

// Of this thread. A shuffle tells the compiler that it is the same for a warp: so addresses that
// depend on it, those of tiles in descriptors, are computed once for a warp, in uniform registers.
__device__ inline int warpgroup_number() {
    return __shfl_sync(0xffffffff, threadIdx.x / kWarpgroup, 0);
}

// A kernel's shared memory, with barriers that all threads of the block may use.
template <class Shared>
__device__ Shared& begin_block(char* memory) {
    auto& shared = tile_aligned<Shared>(memory);
    if (threadIdx.x == 0) shared.init();
    __syncthreads();
    return shared;
}

// s [64, N] = 64 rows of x, in boxes of x_rows, times all N rows of w.
template <class T, int kCols, int x_rows, int N2>
__device__ void start_rows(float (&s)[N2], const char* x, const char* w) {
    constexpr int N = 2 * N2;
    const uint64_t left = wgmma_descriptor(x), right = wgmma_descriptor(w);
#pragma unroll
    for (int c = 0; c < kCols / 16; ++c) {
        wgmma<T>(s, left + c / 4 * (box_bytes(x_rows) / 16) + c % 4 * 2,
                 right + c / 4 * (box_bytes(N) / 16) + c % 4 * 2, c > 0);
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
// From `column` on.
template <int rows, int kCols>
__device__ void store_rows(const CUtensorMap& map, const char* tile, int64_t cols, int row,
                           int64_t head, int64_t batch, int column = 0) {
    for (int box = 0; box < kCols / 64; ++box, column += 64) {
        if (column < cols)
            tma_store(map, tile + box * box_bytes(rows), column, row, int(head), int(batch));
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

// Calls f(attention, first row, begin, end) for each tile of rows of a block. They see keys from
// `begin` on, with which a tile of keys begins, and before `end`.
template <int kRows, int kKeys, class Call, class F>
__device__ void for_each_tile_of_rows(const Call& whole, const Order& order, F f) {
    order.for_each<kRows <= Order::kMostPaired>([&](int64_t tile, int64_t slice) {
        const auto& a = whole.of_rows(tile, kRows);
        Place place = a.place(slice);
        place.row = tile * kRows;
        if (Call::kPacked && place.row >= a.rows) return;
        const int begin = int(a.first_key(place.row)) / kKeys * kKeys;
        const int end = int(a.end_key(smaller<int64_t>(place.row + kRows, a.rows) - 1));
        f(a, place, begin, end);
    });
}

// Asks for a tile: rows from `row` on.
template <int rows, int kCols>
__device__ void load_tile(char* to, const CUtensorMap& map, int row, int64_t head, int64_t batch,
                          Mbarrier& full) {
    full.arrive_expect_tx(tile_bytes(rows, kCols));
    for (int box = 0; box < kCols / 64; ++box)
        tma_load(to + box * box_bytes(rows), map, box * 64, row, int(head), int(batch), full);
}

#endif

template <class T, int kCols, bool kOverlap, class Call>
__global__ WGMMA_KERNEL(WgmmaForward<kCols>::kThreads) void forward_wgmma(
    const __grid_constant__ ForwardMaps maps, const __grid_constant__ Call whole, Order order, T* y,
    float* stats) {
#if HAS_WGMMA
    using S = WgmmaForward<kCols>;
    constexpr int kKeys = S::kKeys;
    extern __shared__ char memory[];
    auto& shared = begin_block<typename S::Shared>(memory);
    const int group = warpgroup_number();
    if (group == S::kConsumers) {
        give_registers<S::kLeft>();
        if (threadIdx.x % kWarpgroup != 0) return;
        Ring<S::kTiles> q_ring;
        Ring<S::kStages> ring;
        const auto fetch = [&](const auto& a, Place place, int begin, int end) {
            const int64_t head = place.head / a.group(), batch = place.batch % a.kv_batches;
            shared.q_empty[q_ring.stage].wait(q_ring.phase ^ 1);
            load_tile<S::kRows, kCols>(shared.q[q_ring.stage], maps.q, a.row_coordinate(place.row),
                                       place.head, place.batch, shared.q_full[q_ring.stage]);
            q_ring.next();
            for (int key = begin; key < end; key += kKeys, ring.next()) {
                const int i = ring.stage, row = a.key_coordinate(key);
                shared.k_empty[i].wait(ring.phase ^ 1);
                load_tile<kKeys, kCols>(shared.k[i], maps.k, row, head, batch, shared.k_full[i]);
                shared.v_empty[i].wait(ring.phase ^ 1);
                load_tile<kKeys, kCols>(shared.v[i], maps.v, row, head, batch, shared.v_full[i]);
            }
        };
        for_each_tile_of_rows<S::kRows, kKeys>(whole, order, fetch);
        return;
    }

    take_registers<S::kRegisters>();
    const bool is_first = threadIdx.x % kWarpgroup == 0;
    const Turns<S::kConsumers> turns(group);
    const float scale = float(whole.scale) * kLog2OfE;
    Ring<S::kTiles> q_ring;
    Ring<S::kStages> ring, before;
    const auto multiply = [&](const auto& a, Place place, int begin, int end) {
        const int top = int(place.row) + group * 64;  // this warpgroup's rows
        const int last = int(a.end_key(top)), first = int(a.first_key(top + 63));  // all see these
        char *const tile = shared.q[q_ring.stage], *const q_tile = tile + group * box_bytes(64);
        float sums[kCols / 2] = {}, scores[kKeys / 2], factor[2];
        uint32_t weights[kKeys / 4];
        RowsSoftmax soft;
        const auto hide_some = [&](int key) {
            if (key + kKeys <= last && key >= first) return;
            const Limits limits(a, top + row_of_sum(0), key);
            hide(scores, limits.begin, limits.end);
        };
        shared.q_full[q_ring.stage].wait(q_ring.phase);
        if constexpr (Call::kPacked)
            clear_tail<S::kRows, kCols, S::kConsumers>(tile, a.rows - place.row);
        const auto wait_for_v = [&](int64_t key, const auto& ring) {
            shared.v_full[ring.stage].wait(ring.phase);
            if constexpr (Call::kPacked)
                clear_tail<kKeys, kCols, S::kConsumers>(shared.v[ring.stage], a.keys - key);
        };
        if constexpr (!kOverlap) {
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
            shared.k_full[ring.stage].wait(ring.phase);
            turns.wait();
            wgmma_fence();
            start_rows<T, kCols, S::kRows>(scores, q_tile, shared.k[ring.stage]);
            turns.pass();
            wgmma_wait<0>();
            if (is_first) shared.k_empty[ring.stage].arrive();
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
            if (is_first) shared.v_empty[before.stage].arrive();
            before.next();
        }

        float share[2];
#pragma unroll
        for (int half = 0; half < 2; ++half)
            share[half] =
                finish(a, soft, half, {place.batch, place.head, top + row_of_sum(2 * half)}, stats);
        if (Call::kPacked && top + 64 > a.rows) {
            write_tail(y + a.at(a.y, {place.batch, place.head, top}), sums, share, a.rows - top,
                       a.y.row, a.cols);
        } else {
            scale_rows(sums, share);
            put_rows<T, S::kRows>(q_tile, sums);
            tma_writes_done();
            warpgroup_barrier(group);
            if (is_first && top < a.rows) {
                store_rows<S::kRows, kCols>(
                    maps.y, q_tile, a.cols, a.row_coordinate(top), place.head, place.batch);
                tma_store_wait_read<0>();
            }
        }
        if (is_first) shared.q_empty[q_ring.stage].arrive();
        q_ring.next();
    };
    for_each_tile_of_rows<S::kRows, kKeys>(whole, order, multiply);
#endif
}

// ---- on the host

// A map of q, k, v or what has their shape.
template <class T>
bool map_rows(CUtensorMap& map, const T* at, int64_t batches, int64_t heads, int64_t rows,
              int64_t cols, const Strides& s, int box_rows = 64) {
    return make_tensor_map(map, at, batches, heads, rows, cols, s.batch, s.head, s.row, box_rows);
}

// Whether a block has several tiles, one after the other, so that the next one's begin does not
// have to wait for the end of this one. Each has a block of its own where nobody can tell
// beforehand which blocks have as much to do: of packed sequences, and, as measured, of long causal
// ones above 64 columns; and where shared memory has no room for two.
template <int kCols, class Call>
bool has_several_tiles(const Call& a) {
    if (Call::kPacked || kCols > 128) return false;
    return kCols <= 64 || a.right >= a.keys || a.keys <= 1024;
}

// The order of so many slices, in so many tiles each, of `size` rows or keys. Of what their blocks
// share a slice has `shared` rows twice, and `group` slices have the same. Half of the L2 cache is
// for that.
template <int kCols, class Call>
Order order_of(const Call& a, int64_t slices, int64_t tiles, int size, int64_t shared,
               int64_t group) {
    constexpr int64_t room = 24 << 20;
    const int64_t at_once = (room / (4 * shared * a.cols + 1) + 1) * group, count = slices * tiles;
    const int64_t blocks = has_several_tiles<kCols>(a) ? multiprocessors() : count;
    const bool pairs = size <= Order::kMostPaired && a.right < a.keys && count > 2 * blocks;
    return {
        int(tiles), int(slices), int(smaller(slices, at_once)), int(smaller(count, blocks)), pairs};
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
    const Order order =
        order_of<kCols>(a, a.slices(), a.row_tiles(S::kRows), S::kRows, a.keys, a.group());
    kernel<<<order.blocks, S::kThreads, S::kBytes, stream>>>(maps, a, order, y, stats);
    return true;
}
