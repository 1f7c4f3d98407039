// The versions of matmul by wgmma: tensor cores that read shared memory by themselves, which TMA
// fills. They are for 16-bit floats on GPUs of compute capability 9.0.
#pragma once

#include "matmul_fused.cuh"
#include "stages.cuh"

constexpr int kTileRows = 128;  // of x, in two warpgroups of 64
constexpr int kTileDepth = 64;  // of k: 128 bytes
constexpr int kConsumers = kTileRows / 64;

// Tiles of x and w, of one step of k. Either by rows, a line for each; or, where neighbours in
// memory are of one column, boxes of 64 rows, a line for each of k.
template <class T, int columns>
struct Stage {
    T x[kTileRows * kTileDepth], w[columns * kTileDepth];
};
constexpr int kBox = 64 * kTileRow;  // bytes

// What is asked of TMA. y and the like have boxes of 64 x 64, or of 16 rows where something is
// fused and each warp stores its own; the residual always has 64. The halves of z are two matrices.
struct Maps {
    CUtensorMap x, w, y, z, residual;
};

// By which a warpgroup's sums become y, 32 columns at a time, in rows of 128 bytes: those of the
// left and of the right half of z, or two chunks in turn.
constexpr int kChunk = 32;
struct alignas(kTileAlign) Boxes {
    float chunks[2][64 * kChunk];
};

// What a block of two warpgroups that multiply, and one that fetches, has in shared memory.
template <class Stage, int count>
struct StagesAndBoxes {
    Stage stages[count];
    Boxes boxes[kConsumers];
    Mbarrier full[count], empty[count];
};

// y is the residual, too: y += scale * x w^T.
template <class T>
__host__ __device__ bool adds_to_y(const Product<T>& p) {
    return p.residual == p.y;
}

template <class T>
__host__ __device__ bool is_plain(const Product<T>& p) {
    return !p.bias && (!p.residual || adds_to_y(p)) && !p.z && p.act == kNone;
}

#if HAS_WGMMA

// Asks for half of a tile of `count` rows of x or w, which begins with `row`; for this block, or
// for those blocks of the cluster whose bit is set.
template <int count, class T>
__device__ void fetch_half(T* tile, int half, const CUtensorMap& map, bool by_row, int64_t row,
                           int step, int64_t matrix, Mbarrier& full, unsigned blocks) {
    const auto load = [&](int r, int column, int line) {
        T* const to = tile + (half * (count / 2) + r) * kTileDepth;
        if (blocks == 0) {
            tma_load(to, map, column, line, int(matrix), full);
        } else {
            tma_load_multicast(to, map, column, line, int(matrix), full, blocks);
        }
    };
    if (by_row) {
        load(0, step * kTileDepth, int(row));
    } else if (count == 64) {  // one box, which has both halves
        if (half == 0) load(0, int(row), step * kTileDepth);
    } else {
        for (int r = 0; r < count / 2; r += 64) load(r, int(row) + r, step * kTileDepth);
    }
}

// Begins with 64 rows of x for each of the sums, by the columns of the tile, over all k of a stage.
template <bool kTransX, bool kTransW, class T, int kEach, int N>
__device__ void multiply(float (&sums)[kEach][N], const T* x, const T* w, bool adds) {
    const uint64_t of_x = wgmma_descriptor(x), of_w = wgmma_descriptor(w, kBox);
    wgmma_fence();
#pragma unroll
    for (int k = 0; k < kTileDepth / 16; ++k) {
#pragma unroll
        for (int n = 0; n < kEach; ++n)
            wgmma<T, kTransX, kTransW>(sums[n], of_x + n * (kBox >> 4) + k * (kTransX ? 128 : 2),
                                       of_w + k * (kTransW ? 128 : 2), adds || k > 0);
    }
    wgmma_commit();
}
template <class T, int kEach, int N>
__device__ void multiply(float (&sums)[kEach][N], const Product<T>& p, const T* x, const T* w,
                         bool adds) {
    if (p.x.col == 1 && p.w.col == 1) {
        multiply<false, false>(sums, x, w, adds);
    } else if (p.x.col == 1) {
        multiply<false, true>(sums, x, w, adds);
    } else if (p.w.col == 1) {
        multiply<true, false>(sums, x, w, adds);
    } else {
        multiply<true, true>(sums, x, w, adds);
    }
}

// ---- from a warpgroup's sums to y
//
// A thread's sums lie scattered over rows. By way of shared memory each thread gets eight
// neighbours of a row, and finds their bias and residual, and writes their y and z, in 16 bytes
// each.

// Chunk n of the sums.
template <int chunks, int N>
__device__ void put_chunk(float* box, const float (&sums)[chunks][N], int n) {
#pragma unroll
    for (int i = 0; i < N; i += 2) {
        const float two[] = {taken(sums, n, i), taken(sums, n, i + 1)};
        char* const to = reinterpret_cast<char*>(box);
        store(reinterpret_cast<float*>(to + swizzled(row_of_sum(i), 4 * column_of_sum(i))), two);
    }
}

// Eight neighbours of a row of y.
template <class T>
struct Eight {
    int64_t row, unit;  // of all matrices; the first of eight units
    int there;          // those of them that there are
    bool vectors;       // whether 16 bytes of y and the like may be read and written at once

    __device__ void read(float (&to)[8], const T* from) const {
        if (vectors) {
            const Vec<T, 8> all = load<8>(from);
#pragma unroll
            for (int i = 0; i < 8; ++i) to[i] = float(all[i]);
        } else {
#pragma unroll
            for (int i = 0; i < 8; ++i) to[i] = i < there ? float(from[i]) : 0.f;
        }
    }
    __device__ void write(T* to, const float (&from)[8]) const {
        if (vectors) {
            Vec<T, 8> all;
#pragma unroll
            for (int i = 0; i < 8; ++i) all[i] = T(from[i]);
            store_at_once(to, all);
        } else {
#pragma unroll
            for (int i = 0; i < 8; ++i)
                if (i < there) to[i] = T(from[i]);
        }
    }

    // z, of sums in a row of a box. half: of z, with swiglu.
    __device__ void make_z(float (&z)[8], const float* box, int line, int column,
                           const Product<T>& p, int half) const {
        const char* const from = reinterpret_cast<const char*>(box);
#pragma unroll
        for (int i = 0; i < 8; i += 4) {
            const Vec<float, 4> four =
                load<4>(reinterpret_cast<const float*>(from + swizzled(line, 4 * (column + i))));
#pragma unroll
            for (int k = 0; k < 4; ++k) z[i + k] = p.scale * four[k];
        }
        if (p.bias) {
            float bias[8];
            read(bias, p.bias + half * p.units + unit);
#pragma unroll
            for (int i = 0; i < 8; ++i) z[i] += bias[i];
        }
        if (p.z) write(p.z + (row * halves(p) + half) * p.units + unit, z);
    }
};

// The sums of a warpgroup, whose first row and unit are given, made to y, and to z if it is wanted.
template <class T, int N>
__device__ void finish(const float (&sums)[N], const Product<T>& p, Boxes& boxes, int64_t matrix,
                       int row, int64_t unit, int group) {
    constexpr int kChunks = N / 16;
    const auto& chunks = reinterpret_cast<const float (&)[kChunks][16]>(sums);
    const int count = kChunks / halves(p), thread = threadIdx.x % kWarpgroup;
    const bool vectors = p.units % 8 == 0 && is_aligned(p.y, p.z, p.bias, p.residual);
#pragma unroll 1
    for (int n = 0; n < count; ++n, unit += kChunk) {
        warpgroup_barrier(group);  // nobody reads the boxes any more
        put_chunk(boxes.chunks[0], chunks, n);
        if (p.act == kSwiglu) put_chunk(boxes.chunks[1], chunks, count + n);
        warpgroup_barrier(group);
#pragma unroll 1
        for (int line = thread / 4; line < 64; line += 32) {
            const int column = thread % 4 * 8;
            const int64_t left = p.units - unit - column;
            if (row + line >= p.rows || left <= 0) continue;
            const Eight<T> eight = {matrix * p.rows + row + line, unit + column,
                                    int(smaller<int64_t>(left, 8)), vectors};
            float residual[8], right[8], y[8];
            if (p.residual) eight.read(residual, p.residual + eight.row * p.units + eight.unit);
            if (p.act == kSwiglu) eight.make_z(right, boxes.chunks[1], line, column, p, 1);
            eight.make_z(y, boxes.chunks[0], line, column, p, 0);
            with_act(p.act, [&](auto act) { activate<act, T>(y); });
#pragma unroll
            for (int i = 0; i < 8; ++i) {
                if (p.act == kSwiglu) y[i] *= right[i];
                if (p.residual) y[i] += residual[i];
            }
            eight.write(p.y + eight.row * p.units + eight.unit, y);
        }
    }
}

// Of floats, each thread writes what it has.
template <int N>
__device__ void finish(const float (&sums)[N], const Product<float>& p, Boxes&, int64_t matrix,
                       int row, int64_t unit, int) {
    constexpr int kChunks = N / 16;
    const auto& chunks = reinterpret_cast<const float (&)[kChunks][16]>(sums);
    const int count = kChunks / halves(p);
#pragma unroll 1
    for (int n = 0; n < count; ++n, unit += kChunk) {
#pragma unroll
        for (int i = 0; i < 16; ++i) {
            const int64_t r = row + row_of_sum(i), u = unit + column_of_sum(i);
            if (r < p.rows && u < p.units)
                put(p, matrix, r, u, taken(chunks, n, i), taken(chunks, (n + count) % kChunks, i));
        }
    }
}

// The same where y is nothing but scale * sums, or if `adds` they are added to it, rounded: by TMA,
// 64 columns at a time, while the threads go on. turn: counts them.
template <class T, int N>
__device__ void store_scaled(const float (&sums)[N], float scale, Boxes& boxes,
                             const CUtensorMap& map, int matrix, int row, int unit, int group,
                             int& turn, bool adds = false) {
    const bool first = threadIdx.x % kWarpgroup == 0;
#pragma unroll
    for (int n = 0; n < N; n += 32, unit += 64) {
        char* const box = reinterpret_cast<char*>(boxes.chunks[turn++ % 2]);
        if (first) tma_store_wait_read<1>();  // what this box held before is stored
        warpgroup_barrier(group);
#pragma unroll
        for (int i = 0; i < 32; i += 8) {
            uint32_t words[4];
            for (int k = 0; k < 4; ++k)
                words[k] =
                    rounded_pair<T>(scale * sums[n + i + 2 * k], scale * sums[n + i + 2 * k + 1]);
            store_sums(box, 2 * i, words);
        }
        tma_writes_done();
        warpgroup_barrier(group);
        if (first && adds) {
            tma_add(map, box, unit, row, matrix);
        } else if (first) {
            tma_store(map, box, unit, row, matrix);
        }
    }
}

#endif

// ---- wgmma: a block of two warpgroups has 128 x 128 elements of y. Four stages wait in shared
// memory; a thread asks for a stage again when all have multiplied it.
// Flaw: the tensor cores have nothing to do while the threads wait for each other, and between one
// block's end and the next one's first tiles.

template <class T>
struct PlainTile {
    static constexpr int kColumns = 128, kStages = 4, kThreads = 2 * kWarpgroup;
    struct Shared {
        Stage<T, kColumns> stages[kStages];
        Boxes boxes[kConsumers];
        Mbarrier full[kStages];
    };
    static constexpr int kBytes = sizeof(Shared) + kTileAlign;
};

template <class T>
__global__ void WGMMA_KERNEL(PlainTile<T>::kThreads)
    matmul_wgmma(const __grid_constant__ Maps maps, Product<T> p, TileGrid grid) {
#if HAS_WGMMA
    using Tile = PlainTile<T>;
    extern __shared__ char dynamic[];
    auto& shared = tile_aligned<typename Tile::Shared>(dynamic);
    const TilePlace place = grid.place(blockIdx.x);
    const auto rows = TileRows<kTileRows>::of(place.row, p.rows);
    const auto columns = TileRows<Tile::kColumns>::of_w(p, place.column);
    const int steps = int(ceil_div<int64_t>(p.depth, kTileDepth));
    const int group = threadIdx.x / kWarpgroup;
    const auto fetch = [&](int step) {
        Mbarrier& full = shared.full[step % Tile::kStages];
        auto& stage = shared.stages[step % Tile::kStages];
        full.arrive_expect_tx(sizeof(stage));
        for (int half = 0; half < 2; ++half) {
            fetch_half<kTileRows>(
                stage.x, half, maps.x, p.x.col == 1, rows.first[half], step, place.matrix, full, 0);
            fetch_half<Tile::kColumns>(stage.w, half, maps.w, p.w.col == 1, columns.first[half],
                                       step, place.matrix, full, 0);
        }
    };
    if (threadIdx.x == 0) {
        for (Mbarrier& full : shared.full) full.init();
        for (int step = 0; step < Tile::kStages && step < steps; ++step) fetch(step);
    }
    __syncthreads();

    float sums[1][Tile::kColumns / 2] = {};
    for (int step = 0; step < steps; ++step) {
        const int i = step % Tile::kStages;
        shared.full[i].wait(step / Tile::kStages % 2);
        multiply(
            sums, p, shared.stages[i].x + group * 64 * kTileDepth, shared.stages[i].w, step > 0);
        wgmma_wait<0>();
        __syncthreads();
        if (threadIdx.x == 0 && step + Tile::kStages < steps) fetch(step + Tile::kStages);
    }
    finish(sums[0], p, shared.boxes[group], place.matrix, int(place.row) * kTileRows + group * 64,
           columns.first[0], group);
#endif
}

// ---- specialized: of three warpgroups one asks for the tiles and two multiply, 128 x 256 elements
// of y, so that they wait for tiles alone. The blocks, one for each multiprocessor, stay and take
// tile after tile: the tiles of the next one are fetched while this one is written.
// Flaw: each block reads all that it needs from the L2 cache, of w the same as its neighbours.
//
// ---- cluster: blocks in pairs, one below the other, have the same columns. Each asks for half of
// their tile of w, and TMA writes it to both: a third fewer bytes come from the L2 cache.
// Flaw: the tensor cores wait while the warpgroups write y; and a row of tiles reads all of w.
//
// ---- stores: the warpgroups leave y in shared memory, 64 columns at a time, and TMA stores it
// while they go on. And tiles that are taken at the same time lie in a square, so that what they
// read is found in the L2 cache; then pairs gain nothing, and each block is alone again. What else
// is to be done with the sums is done in their registers before (matmul_fused.cuh); nothing is
// multiplied meanwhile. Where TMA cannot store the results, and more is to be done with the sums
// than to round them, the warpgroups take turns: each has a tile of 128 x 128 to itself, and
// finishes it while the other one multiplies. So they do where a short depth is added to y, which
// takes TMA longer than to store it.

// Where a tile is, in tiles.
struct TileAt {
    int matrix, row, column;

    TileAt() = default;
    __device__ TileAt(const TilePlace& place)
        : matrix(int(place.matrix)), row(int(place.row)), column(int(place.column)) {}
};

template <class T, int columns, int pair, bool stores, int turns = 1, bool fused = false>
struct Plan {
    static constexpr int kColumns = columns;
    static constexpr int kPair = pair;       // blocks of a cluster
    static constexpr bool kStores = stores;  // y by TMA
    static constexpr bool kFused = fused;  // and more may be done with the sums than to scale them
    static constexpr bool kSplits = stores && !fused;  // and a tile may be several blocks' work
    static constexpr int kTurns = turns;  // tiles in work: one for all warpgroups, or one each
    static constexpr int kStages = columns > 128 ? 4 : columns > 64 ? 6 : 8;
    // Steps at a tile's end that one warpgroup makes after the other.
    static constexpr int kLast = stores && turns == 1 && columns == 256 ? 3 : 0;
    static constexpr int kThreads = (kConsumers + 1) * kWarpgroup;
    struct Shared {
        Stage<T, columns> stages[kStages];
        Boxes boxes[kConsumers];
        uint32_t bias[kConsumers][columns / 2];  // of their tile, in pairs
        Mbarrier full[kStages], empty[kStages];
        Mbarrier turn[kConsumers];  // that it is this warpgroup's turn to multiply
        TileAt tiles[kStages];      // where the tile of a stage is
    };
    static constexpr int kBytes = sizeof(Shared) + kTileAlign;
};

constexpr int kHigh = 16;  // tiles of a column that are taken before those of the next column

// The order in which tiles are taken. A pair of blocks has two tiles, one below the other.
struct TileOrder {
    int batch, pairs, columns, pair;
    int high;  // pairs of a column that are taken before those of the next column

    TileOrder(const TileGrid& grid, int pair, int high)
        : batch(int(grid.batch)),
          pairs(int(ceil_div<int64_t>(grid.rows, pair))),
          columns(int(grid.columns)),
          pair(pair),
          high(high) {}

    __host__ __device__ int places() const { return batch * pairs * columns; }

    // Where the block of number `rank` in its pair is with place n; false if there is no such
    // place.
    __device__ bool at(int n, int rank, TilePlace& place) const {
        if (n >= places()) return false;
        const int i = n % (pairs * columns), first = i / (high * columns) * high;
        const int height = smaller(pairs - first, high), within = i - first * columns;
        place = {n / (pairs * columns), (first + within % height) * pair + rank, within / height};
        return true;
    }
};

// Of the tiles, in their order, so many are multiplied whole, and the others in parts of the depth,
// whose sums matmul_split.cuh adds up. All of these are shares of the work, each with a number n:
// first the whole tiles, then the first part of all others, and so on. Steps beyond the depth find
// zeros.
struct Split {
    int whole = 0x7fffffff, parts = 1;
    int others = 0;  // tiles
    int steps = 0;   // of a part

    int shares(int tiles) const { return others ? whole + others * parts : tiles; }

    // The tile of share n, and the step with which it begins.
    __device__ int tile(int n, int& first) const {
        first = 0;
        if (n < whole) return n;
        first = (n - whole) / others * steps;
        return whole + (n - whole) % others;
    }
};

#if HAS_WGMMA

// A part's sums, as they are in the registers of `threads` threads: neighbours write 16 bytes
// each, one after the other.
template <int N>
__device__ void put_part(float* to, const float (&sums)[N], int thread, int threads) {
#pragma unroll
    for (int i = 0; i < N; i += 4) {
        const Vec<float, 4> four = {sums[i], sums[i + 1], sums[i + 2], sums[i + 3]};
        store(to + (int64_t(i / 4) * threads + thread) * 4, four);
    }
}

// Which stage is used next, and in which of its phases.
template <int count>
struct Ring {
    int stage = 0, round = 0;
    __device__ void next() {
        if (++stage == count) stage = 0, ++round;
    }
    __device__ void skip(int steps) {
        round += (stage + steps) / count;
        stage = (stage + steps) % count;
    }
};

// The residual of a tile: TMA brings it to the stages behind those of x and w, two chunks of 64
// columns to a stage, of each a box for one warpgroup after the other. It waits there for the sums.
constexpr int kOfStage = 2;  // chunks

// One thread asks for it. ring: the stage that is next.
template <class Shared, int count>
__device__ void fetch_residual(Shared& shared, Ring<count>& ring, const CUtensorMap& map,
                               const TilePlace& place, int chunks) {
    for (int n = 0; n < chunks; n += kOfStage, ring.next()) {
        Mbarrier& full = shared.full[ring.stage];
        auto* const boxes = shared.stages[ring.stage].x;
        const int there = smaller(chunks - n, kOfStage) * kConsumers;
        shared.empty[ring.stage].wait((ring.round + 1) % 2);
        full.arrive_expect_tx(there * kBox);
        for (int i = 0; i < there; ++i)
            tma_load(boxes + i * 64 * 64, map,
                     (int(place.column) * chunks + n + i / kConsumers) * 64,
                     int(place.row) * kTileRows + i % kConsumers * 64, int(place.matrix), full);
    }
}

// What a warpgroup reads of it. ring: the first of its stages.
template <class Shared, int count>
struct Residual {
    Shared& shared;
    Ring<count> ring;
    int group;

    // The box of chunk n; the chunks are read in their order.
    __device__ const auto* wait_for(int n) const {
        if (n % kOfStage == 0) shared.full[ring.stage].wait(ring.round % 2);
        return shared.stages[ring.stage].x + (n % kOfStage * kConsumers + group) * 64 * 64;
    }
    // Says so when all threads have read a stage.
    __device__ void is_read(int n, bool last) {
        if (n % kOfStage != kOfStage - 1 && !last) return;
        warpgroup_barrier(group);
        if (threadIdx.x % kWarpgroup == 0) shared.empty[ring.stage].arrive();
        ring.next();
    }
};

#endif

template <class T, class Plan>
__global__ void WGMMA_KERNEL(Plan::kThreads)
    matmul_specialized(const __grid_constant__ Maps maps, Product<T> p, TileOrder order,
                       Split split, int shares) {
#if HAS_WGMMA
    constexpr int kStages = Plan::kStages, kColumns = Plan::kColumns, kPair = Plan::kPair;
    constexpr int kTurns = Plan::kTurns;
    extern __shared__ char dynamic[];
    auto& shared = tile_aligned<typename Plan::Shared>(dynamic);
    const Pair<kPair> pair;
    const int steps = int(ceil_div<int64_t>(p.depth, kTileDepth));
    // The shuffle tells the compiler that all threads of a warp count alike: else it keeps what
    // they count by in each one's registers, and moves it from there for every wgmma.
    const int group = __shfl_sync(0xffffffff, threadIdx.x / kWarpgroup, 0);
    const int thread = threadIdx.x % kWarpgroup;
    if (threadIdx.x == 0) {
        init_stages(shared, kConsumers / kTurns * kPair);
        for (Mbarrier& turn : shared.turn) turn.init();
    }
    pair.begin();

    const int count = Plan::kSplits ? shares : order.places();
    // Where share n is, and with which step it begins. That takes divisions, one after the other:
    // those who multiply would make them between two tiles, so they are told by who fetches.
    const auto find = [&](int n, TilePlace& place, int& first) {
        first = 0;
        order.at(Plan::kSplits ? split.tile(n, first) : n, pair.rank, place);
    };
    const auto steps_of = [&](int n) {
        return Plan::kSplits && n >= split.whole ? split.steps : steps;
    };
    Ring<kStages> ring;
    if (group == kConsumers) {
        give_registers<40>();
        for (int n = pair.index; thread == 0 && n < count; n += pair.count) {
            TilePlace place;
            int first;
            find(n, place, first);
            const int end = first + steps_of(n);
            const auto rows = TileRows<kTileRows>::of(place.row, p.rows);
            const auto columns = TileRows<kColumns>::of_w(p, place.column);
            for (int step = first; step < end; ++step, ring.next()) {
                auto& stage = shared.stages[ring.stage];
                Mbarrier& full = shared.full[ring.stage];
                shared.empty[ring.stage].wait((ring.round + 1) % 2);
                shared.tiles[ring.stage] = place;
                full.arrive_expect_tx(sizeof(stage));
                for (int half = 0; half < 2; ++half) {
                    fetch_half<kTileRows>(stage.x, half, maps.x, p.x.col == 1, rows.first[half],
                                          step, place.matrix, full, 0);
                    // A block of a pair asks for its half, for both.
                    if (kPair == 1 || half == pair.rank)
                        fetch_half<kColumns>(
                            stage.w, half, maps.w, p.w.col == 1, columns.first[half], step,
                            place.matrix, full, pair.kAll);
                }
            }
            if (Plan::kFused && p.residual)
                fetch_residual(shared, ring, maps.residual, place, kColumns / 64 / halves(p));
        }
    } else {
        take_registers<232>();
        Boxes& boxes = shared.boxes[group];
        int stored = 0;
        const auto done = [&](int stage) { pair.is_read(shared.empty[stage], thread); };
        // With turns, the stages of every second tile are the other warpgroup's. This one must not
        // wait for its own before those are there: a barrier tells one phase from the next one, but
        // not from the one after that.
        int n = pair.index, of_tile = group * 64, turn = 0;
        if (kTurns > 1)
            n += group * pair.count, of_tile = 0, turn = 1 - group, ring.skip(group * steps);
        for (; n < count; n += kTurns * pair.count, ring.skip((kTurns - 1) * steps)) {
            const int of_share = steps_of(n);
            if (kTurns > 1) shared.turn[group].wait(turn++ % 2);
            shared.full[ring.stage].wait(ring.round % 2);
            const TileAt place = shared.tiles[ring.stage];
            const int row = int(place.row) * kTileRows + of_tile;
            const int unit = int(place.column) * (kColumns / halves(p));
            const uint32_t bias = Plan::kFused ? bias_of_tile(p, unit, kColumns) : 0;
            // The second warpgroup leaves the tensor cores to the first one's last steps, and then
            // has them for its own, while the first one stores its sums. (Not where stages also
            // bring a residual, which would come late; nor in shares so short that the first one
            // could be two of them ahead.)
            const bool in_turn = Plan::kLast > 0 && of_share >= kStages && !p.residual;
            float sums[kTurns][kColumns / 2];
            int before = 0;
            for (int step = 0; step < of_share; ++step, ring.next()) {
                const auto& stage = shared.stages[ring.stage];
                shared.full[ring.stage].wait(ring.round % 2);
                if (in_turn && group == 1 && step == of_share - Plan::kLast)
                    shared.turn[1].wait(turn++ % 2);
                multiply(sums, p, stage.x + of_tile * kTileDepth, stage.w, step > 0);
                if (in_turn && group == 0 && step == of_share - 1 && thread == 0)
                    shared.turn[1].arrive();
                wgmma_wait<1>();  // the products of the step before are done
                if (step > 0) done(before);
                before = ring.stage;
            }
            if (kTurns > 1 && thread == 0) shared.turn[1 - group].arrive();
            if (Plan::kFused) {
                // While the last products go on. Nobody reads the bias of the tile before any more.
                warpgroup_barrier(group);
                if (thread < kColumns / 2) shared.bias[group][thread] = bias;
                warpgroup_barrier(group);
            }
            wgmma_wait<0>();
            done(before);
            if (Plan::kSplits && n >= split.whole) {
                put_part(p.parts + int64_t(n - split.whole) * (kTileRows * kColumns), sums[0],
                         threadIdx.x, kConsumers * kWarpgroup);
                continue;
            }
#pragma unroll
            for (int i = 0; i < kTurns; ++i) {
                if constexpr (Plan::kFused) {
                    Residual<typename Plan::Shared, kStages> residual = {shared, ring, group};
                    store_fused(sums[i], p, shared.bias[group], residual, maps, boxes,
                                int(place.matrix), row + i * 64, unit, stored);
                    if (p.residual) ring.skip(ceil_div(kColumns / 64 / halves(p), kOfStage));
                } else if constexpr (Plan::kStores) {
                    store_scaled<T>(sums[i], p.scale, boxes, maps.y, int(place.matrix),
                                    row + i * 64, unit, group, stored, adds_to_y(p));
                } else {
                    finish(sums[i], p, boxes, place.matrix, row + i * 64, unit, group);
                }
            }
        }
        if (Plan::kStores) wait_for_stores();
    }
    pair.end();
#endif
}

// ---- launches

// x or w as TMA reads it. rows: of a box, where a line is a row.
template <class T>
bool make_map(CUtensorMap& map, const Product<T>& p, const Operand<T>& of, int64_t rows,
              int rows_of_box, CUtensorMapL2promotion promotion = kPromotion) {
    if (!reads_in_vectors(of)) return false;
    return of.col == 1 ? make_tensor_map(map, of.data, p.batch, rows, p.depth, of.matrix, of.row,
                                         rows_of_box, promotion)
                       : make_tensor_map(map, of.data, p.batch, p.depth, rows, of.matrix, of.col,
                                         kTileDepth, promotion);
}

// TMA counts in 32 bits, and takes nothing that is empty.
template <class T>
bool fits_tma(const Product<T>& p) {
    const int64_t most = 0x7fffffff;
    return p.rows <= most && p.units <= most / 2 && 0 < p.depth && p.depth <= most &&
           p.batch <= most;
}

template <class T>
bool make_maps(Maps& maps, const Product<T>& p, int columns, bool stores, bool fused = false) {
    if (!fits_tma(p) || (p.act == kSwiglu && p.w.col != 1 && p.units % kVec<T> != 0)) return false;
    if (!make_map(maps.x, p, p.x, p.rows, kTileRows / 2) ||
        !make_map(maps.w, p, p.w, p.units * halves(p), columns / 2))
        return false;
    if (!stores) return true;
    if (!is_aligned(p.y, p.z, p.bias, p.residual) || p.units % kVec<T> != 0) return false;
    const int64_t wide = p.units * halves(p);
    const auto make_like_y = [&](CUtensorMap& map, const T* at, int rows) {
        return make_tensor_map(map, at, p.batch, p.rows, p.units, p.rows * p.units, p.units, rows);
    };
    return make_like_y(maps.y, p.y, fused ? kWarpRows : 64) &&
           (!p.residual || make_like_y(maps.residual, p.residual, 64)) &&
           (!p.z || (p.batch == 1 && make_tensor_map(maps.z, p.z, halves(p), p.rows, p.units,
                                                     p.units, wide, kWarpRows)));
}

template <class Plan, class T>
bool launch_plan(const Product<T>& p, int high, cudaStream_t stream, Split split = {}) {
    const auto kernel = matmul_specialized<T, Plan>;
    Maps maps;
    if (!has_wgmma(kernel, Plan::kThreads) || Plan::kBytes > shared_bytes() ||
        multiprocessors() < Plan::kPair ||
        !make_maps(maps, p, Plan::kColumns, Plan::kStores, Plan::kFused))
        return false;
    cudaFuncSetAttribute(kernel, cudaFuncAttributeMaxDynamicSharedMemorySize, Plan::kBytes);
    const TileGrid grid(p, kTileRows, Plan::kColumns);
    if (grid.tiles() > 0x3fffffff) return false;  // which are counted in 32 bits
    const TileOrder order(grid, Plan::kPair, high);
    const int shares = split.shares(order.places());
    const int pairs = smaller(shares, multiprocessors() / Plan::kPair);
    launch_clusters(kernel, Plan::kPair, unsigned(pairs * Plan::kPair), Plan::kThreads,
                    Plan::kBytes, stream, maps, p, order, split, shares);
    return true;
}

template <class T>
bool launch_plain(const Product<T>& p, cudaStream_t stream) {
    using Tile = PlainTile<T>;
    Maps maps;
    if (!has_wgmma(matmul_wgmma<T>, Tile::kThreads) || !make_maps(maps, p, Tile::kColumns, false))
        return false;
    cudaFuncSetAttribute(
        matmul_wgmma<T>, cudaFuncAttributeMaxDynamicSharedMemorySize, Tile::kBytes);
    const TileGrid grid(p, kTileRows, Tile::kColumns);
    matmul_wgmma<<<grid.tiles(), Tile::kThreads, Tile::kBytes, stream>>>(maps, p, grid);
    return true;
}

// The columns that a tile may have. Those of 96 and 192, which are not made of boxes of 64, are for
// a w by row, and where nothing is fused.
constexpr int kColumnsOfTiles[] = {64, 96, 128, 192, 256};

template <class T>
bool has_tiles(const Product<T>& p, int columns) {
    if (sizeof(T) == 4) return columns % 128 == 0;
    if (columns == 64) return p.act != kSwiglu;  // its halves would be half a box each
    return columns % 128 == 0 || (is_plain(p) && p.w.col == 1);
}

// What a step of tiles of so many columns takes, beside one of 256: more than their share, for
// fewer products are made of what shared memory gives. Measured on an H200.
inline double cost_of_step(int columns) {
    switch (columns) {
        case 64:
            return 0.4;
        case 96:
            return 0.48;
        case 128:
            return 0.535;
        default:
            return columns == 192 ? 0.79 : 1;
    }
}

// What a step of k takes with all tiles of so many columns. The fewer columns, the more
// multiprocessors have a tile.
template <class T>
double cost_of_tiles(const Product<T>& p, int columns) {
    const int64_t tiles = TileGrid(p, kTileRows, columns).tiles();
    return cost_of_step(columns) * double(ceil_div<int64_t>(tiles, multiprocessors()));
}

// Whether tiles of 128 columns are done before those of 256.
template <class T>
bool is_for_narrow_tiles(const Product<T>& p) {
    return cost_of_tiles(p, 128) < cost_of_tiles(p, 256);
}

// Whole tiles, of as many columns as are done first; of two that take as long, the wider ones.
template <bool fused, class T>
bool launch_best_tiles(const Product<T>& p, int high, cudaStream_t stream) {
    int best = 256;
    for (int columns : kColumnsOfTiles)
        if (has_tiles(p, columns) && cost_of_tiles(p, columns) < cost_of_tiles(p, best))
            best = columns;
    if (best == 64) return launch_plan<Plan<T, 64, 1, true, 1, fused>>(p, high, stream);
    if (best == 128) return launch_plan<Plan<T, 128, 1, true, 1, fused>>(p, high, stream);
    if constexpr (!fused) {
        if (best == 96) return launch_plan<Plan<T, 96, 1, false>>(p, high, stream);
        if (best == 192) return launch_plan<Plan<T, 192, 1, true>>(p, high, stream);
    }
    return launch_plan<Plan<T, 256, 1, true, 1, fused>>(p, high, stream);
}

// Of so many tiles of so short a depth, additions take 4 to 8% less time in turns, and of 2048 of k
// up to 8% more. Measured on an H200.
template <class T>
bool adds_in_turns(const Product<T>& p) {
    const int64_t tiles = TileGrid(p, kTileRows, 128).tiles();
    return adds_to_y(p) && p.depth <= 1536 && tiles >= 4 * multiprocessors();
}

// Version 0 is wgmma. False: none of them can, on this GPU or as x and w lie in memory.
template <class T>
bool launch_wgmma(const Product<T>& p, int64_t version, cudaStream_t stream) {
    enum { kPlain, kSpecialized, kCluster, kStores };
    if (version >= kStores) {
        if (is_plain(p)) {
            if (adds_in_turns(p) && launch_plan<Plan<T, 128, 1, true, 2>>(p, kHigh, stream))
                return true;
            if (launch_best_tiles<false>(p, kHigh, stream)) return true;
        } else {
            if (launch_best_tiles<true>(p, kHigh, stream)) return true;
            if (launch_plan<Plan<T, 128, 1, false, 2>>(p, kHigh, stream)) return true;
        }
    }
    if (version >= kCluster && launch_plan<Plan<T, 256, 2, false>>(p, 1, stream)) return true;
    if (version >= kSpecialized && launch_plan<Plan<T, 256, 1, false>>(p, 1, stream)) return true;
    return launch_plain(p, stream);
}
