// What the wgmma versions of attention share, forward and backward: tile schedulers, tiles in
// shared memory, and products of a warpgroup.
#pragma once

#include "attention_mma.cuh"
#include "tma_heads.cuh"
#include "wgmma_registers.cuh"

// Whether blocks are persistent, with a static schedule of several tiles, so that the prologue of a
// tile overlaps with the epilogue of the one before. Not for packed sequences, whose work per block
// is unknown on the host, nor where shared memory has no room for two tiles.
template <int kCols, class Call>
constexpr bool kIsPersistent = !Call::kPacked && kCols <= 128;

// The static tile scheduler: the last tiles of all slices, `abreast` of each, then those before,
// and so on, for as many slices at a time as fit into L2 with the operands that their blocks share.
// In causal attention the last tile of rows has the most work and comes first.
struct TileScheduler {
    int tiles, slices, at_once;
    int blocks;     // as many as there are tiles, each for one; or fewer
    bool pairs;     // whether a block takes the n-th tile with the n-th last one
    bool reverses;  // whether every second round begins with the last block
    int abreast;    // tiles of a slice that come before the next slice's

    // The largest tiles that are paired. There are so few pairs of larger ones that blocks would
    // wait a tenth of the time for the last of them.
    static constexpr int kMostPaired = 128;

    // Calls f(tile, slice) for each tile of this block. Persistent blocks shall have equal work. In
    // causal attention all pairs take equally long. Larger tiles come in rounds in alternating
    // directions: a block with more work in one round has less in the next. That balances less
    // well, but leaves less over at the end than pairs, of which there are half as many.
    template <bool kMayPair, class F>
    __device__ void for_each(F f) const {
        const bool in_pairs = kMayPair && pairs;
        const int items = in_pairs ? (tiles + 1) / 2 : tiles;
        int mine = blockIdx.x;  // of the blocks, in the order in which they have the next round
        for (int first = 0; first < slices; first += at_once) {
            const int together = smaller(at_once, slices - first), count = together * items;
            for (int round = 0; round * blocks < count; ++round) {
                const bool back = reverses && round % 2;
                const int n = round * blocks + (back ? blocks - 1 - mine : mine);
                if (n >= count) continue;
                const int begin = n / (abreast * together) * abreast;
                const int among = n - begin * together, width = smaller(abreast, items - begin);
                const int item = begin + among % width, slice = first + among / width;
                int tile = tiles - 1 - item;
#pragma unroll 1
                for (int left = in_pairs && tile != item ? 2 : 1; left > 0; --left, tile = item)
                    f(tile, slice);
            }
            mine = (mine + blocks - count % blocks) % blocks;
        }
    }
};

// The dynamic tile scheduler. Blocks draw indices from a counter in memory. An index stands for the
// first tile of all slices, then the next one, and so on, for as many slices at a time as fit into
// L2. The slices after the first `grouped` come all at a time: where first tiles have the most
// work, none of them then begins near the end.
struct DynamicTileScheduler {
    int tiles, slices, at_once, grouped;
    __host__ __device__ int count() const { return tiles * slices; }
    __host__ __device__ void find(int tile_index, int64_t& tile, int64_t& slice) const {
        const bool in_group = tile_index < grouped * tiles;
        const int first = in_group ? tile_index / (at_once * tiles) * at_once : grouped;
        const int together = in_group ? smaller(at_once, grouped - first) : slices - grouped;
        const int n = tile_index - first * tiles;
        tile = n / together, slice = first + n % together;
    }
};

#if HAS_WGMMA

// The position in the pipeline: the next stage and the parity of its phase.
template <int kStages>
struct PipelineState {
    int stage = 0, phase = 0;
    __device__ void next() {
        if (++stage == kStages) stage = 0, phase ^= 1;
    }
};

// Initialises a kernel's shared memory and its barriers.
template <class Shared>
__device__ Shared& begin_block(char* memory) {
    auto& shared = tile_aligned<Shared>(memory);
    if (threadIdx.x == 0) shared.init();
    __syncthreads();
    return shared;
}

// s [64, N] = 64 rows of x, in boxes of x_rows, times N rows of w: all, or some of a tile of
// w_rows.
template <class T, int kCols, int x_rows, int w_rows = 0, int N2>
__device__ void start_rows(float (&s)[N2], const char* x, const char* w) {
    constexpr int N = w_rows ? w_rows : 2 * N2;
    const uint64_t left = wgmma_descriptor(x), right = wgmma_descriptor(w);
#pragma unroll
    for (int c = 0; c < kCols / 16; ++c) {
        wgmma<T>(s, left + c / 4 * (box_bytes(x_rows) / 16) + c % 4 * 2,
                 right + c / 4 * (box_bytes(N) / 16) + c % 4 * 2, c > 0);
    }
    wgmma_commit();
}

// Loads a warpgroup's 64 rows of a tile into registers: words[4 * c ..] for columns 16 * c to 16 *
// c + 15.
template <int rows, int kCols>
__device__ void keep_rows(uint32_t (&words)[kCols / 4], char* tile) {
    const int lane = threadIdx.x % kWarp, row = threadIdx.x / kWarp * 16 + lane % 16;
#pragma unroll
    for (int c = 0; c < kCols / 16; ++c)
        ldmatrix(reinterpret_cast<uint32_t (&)[4]>(words[4 * c]),
                 at_chunk(tile, rows, row, 2 * c + lane / 16), false);
}
// s [64, N] = these rows times all N rows of w.
template <class T, int kCols, int N2>
__device__ void start_kept_rows(float (&s)[N2], const uint32_t (&words)[kCols / 4], const char* w) {
    const uint64_t right = wgmma_descriptor(w);
#pragma unroll
    for (int c = 0; c < kCols / 16; ++c) {
        const auto& left = reinterpret_cast<const uint32_t (&)[4]>(words[4 * c]);
        wgmma<T, false>(s, left, right + c / 4 * (box_bytes(2 * N2) / 16) + c % 4 * 2, c > 0);
    }
    wgmma_commit();
}

// accum [64, N] += factor [64, w_rows] times w.
template <class T, int w_rows, int N2>
__device__ void start_columns(float (&accum)[N2], const uint32_t (&factor)[w_rows / 4],
                              const char* w) {
#pragma unroll
    for (int r = 0; r < w_rows; r += 16) {
        const auto& left = reinterpret_cast<const uint32_t (&)[4]>(factor[r / 4]);
        wgmma<T, true>(accum, left, wgmma_descriptor(w, box_bytes(w_rows)) + r * 8, true);
    }
    wgmma_commit();
}

// Writes 64 rows of a warpgroup's accumulators to shared memory for TMA, in boxes of so many rows;
// the first of their columns to `column`, a multiple of 16.
template <class T, int rows, int N2>
__device__ void accum_to_shared(char* tile, const float (&accum)[N2], int column = 0) {
#pragma unroll
    for (int c = 0; c < 2 * N2; c += 16) {
        uint32_t words[4];
#pragma unroll
        for (int i = 0; i < 4; ++i)
            words[i] = rounded_pair<T>(accum[c / 2 + 2 * i], accum[c / 2 + 2 * i + 1]);
        store_accum(tile + (column + c) / 64 * box_bytes(rows), (column + c) % 64, words);
    }
}
// Stores them by TMA, from `column` on.
template <int rows, int kCols>
__device__ void store_rows(const CUtensorMap& map, const char* tile, int64_t cols, int row,
                           int64_t head, int64_t batch, int column = 0) {
    for (int box = 0; box < kCols / 64; ++box, column += 64) {
        if (column < cols)
            tma_store(map, tile + box * box_bytes(rows), column, row, int(head), int(batch));
    }
}

// Zeroes the rows of a tile past the `there` rows of a sequence: they belong to the next sequence,
// and 0 times them may be NaN. Each of kThreads threads clears a share.
template <int rows, int kCols, int kThreads>
__device__ void clear_share(char* tile, int there, int thread) {
    constexpr int kChunks = kCols / 8;
    for (int i = there * kChunks + thread; i < rows * kChunks; i += kThreads)
        *reinterpret_cast<uint4*>(at_chunk(tile, rows, i / kChunks, i % kChunks)) = uint4{};
    tma_writes_done();  // wgmma reads as TMA does
}
// The same by all consumer threads.
template <int rows, int kCols, int groups>
__device__ void clear_tail(char* tile, int64_t there) {
    constexpr int kThreads = groups * kWarpgroup;
    if (there >= rows) return;
    clear_share<rows, kCols, kThreads>(tile, int(there), threadIdx.x);
    asm volatile("bar.sync 4, %0;" ::"n"(kThreads) : "memory");
}

// Writes the valid rows of a warpgroup's 64, the first one to y. TMA would overwrite the next
// sequence.
template <class T, int N2>
__device__ void write_tail(T* y, const float (&accum)[N2], const float (&factor)[2], int64_t rows,
                           int64_t stride, int64_t cols) {
    const int first = threadIdx.x % kWarpgroup / kWarp * 16;  // of this warp
    write_rows(y + first * stride, accum, factor, rows - first, stride, int(cols));
}

// The warp scheduler barrier of ping-pong: warpgroups run one after the other, the first one first.
template <int kGroups>
struct WarpSchedulerBarrier {
    int group;
    __device__ explicit WarpSchedulerBarrier(int group) : group(group) {
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
// `begin` on, a multiple of kKeys, and before `end`.
template <int kRows, int kKeys, class Call, class F>
__device__ void for_each_tile_of_rows(const Call& whole, const TileScheduler& scheduler, F f) {
    scheduler.for_each<kRows <= TileScheduler::kMostPaired>([&](int64_t tile, int64_t slice) {
        const auto& a = whole.of_rows(tile, kRows);
        Place place = a.place(slice);
        place.row = tile * kRows;
        if (Call::kPacked && place.row >= a.rows) return;
        const int begin = int(a.first_key(place.row)) / kKeys * kKeys;
        const int end = int(a.end_key(smaller<int64_t>(place.row + kRows, a.rows) - 1));
        f(a, place, begin, end);
    });
}

// Loads a tile by TMA: rows from `row` on.
template <int rows, int kCols>
__device__ void load_tile(char* to, const CUtensorMap& map, int row, int64_t head, int64_t batch,
                          Mbarrier& full) {
    full.arrive_expect_tx(tile_bytes(rows, kCols));
    for (int box = 0; box < kCols / 64; ++box)
        tma_load(to + box * box_bytes(rows), map, box * 64, row, int(head), int(batch), full);
}

#endif

// ---- on the host

// A tensor map of q, k, v or a tensor of that shape.
template <class T>
bool map_rows(CUtensorMap& map, const T* at, int64_t batches, int64_t heads, int64_t rows,
              int64_t cols, const Strides& s, int box_rows = 64) {
    return make_tensor_map(map, at, batches, heads, rows, cols, s.batch, s.head, s.row, box_rows);
}

// The static schedule of so many slices of so many tiles each, of `size` rows or keys. The blocks
// of a slice share `shared` rows twice, and `group` slices (GQA) share the same ones. Half of the
// L2 cache is for them; for persistent blocks of more than 64 columns a sixth was faster. abreast:
// with several, the two multiprocessors of a TPC read the same operands at the same time.
template <int kCols, class Call>
TileScheduler scheduler_of(const Call& a, int64_t slices, int64_t tiles, int size, int64_t shared,
                           int64_t group, int abreast = 1) {
    constexpr int64_t room = (kIsPersistent<kCols, Call> && kCols > 64 ? 8 : 24) << 20;
    const int64_t at_once = (room / (4 * shared * a.cols + 1) + 1) * group, count = slices * tiles;
    const int64_t blocks = kIsPersistent<kCols, Call> ? multiprocessors() : count;
    const bool differ = a.right < a.keys && count > 2 * blocks;
    const bool pairs = differ && size <= TileScheduler::kMostPaired;
    return {int(tiles),
            int(slices),
            int(smaller(slices, at_once)),
            int(smaller(count, blocks)),
            pairs,
            differ && !pairs,
            abreast};
}
