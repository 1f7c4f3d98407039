// The versions of matmul by wgmma: tensor cores that read shared memory by themselves, which TMA
// fills. They are for 16-bit floats on GPUs of compute capability 9.0.
#pragma once

#include "matmul_product.cuh"
#include "wgmma.cuh"

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

// What is asked of TMA. y and the halves of z have boxes of 64 x 64.
struct Maps {
    CUtensorMap x, w, y, z[2];
};

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
    } else {
        for (int r = 0; r < count / 2; r += 64) load(r, int(row) + r, step * kTileDepth);
    }
}

// Begins with 64 rows of x by the columns of the tile, over all k of a stage.
template <bool kTransX, bool kTransW, class T, int N>
__device__ void multiply(float (&sums)[N], const T* x, const T* w, bool adds) {
    const uint64_t of_x = wgmma_descriptor(x), of_w = wgmma_descriptor(w, kBox);
    wgmma_fence();
#pragma unroll
    for (int k = 0; k < kTileDepth / 16; ++k) {
        wgmma<T, kTransX, kTransW>(
            sums, of_x + k * (kTransX ? 128 : 2), of_w + k * (kTransW ? 128 : 2), adds || k > 0);
    }
    wgmma_commit();
}
template <class T, int N>
__device__ void multiply(float (&sums)[N], const Product<T>& p, const T* x, const T* w, bool adds) {
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

// What a warpgroup has summed is made to y in parts of 64 columns: 32 numbers of each thread.
constexpr int kPart = 64;

struct PartPlace {
    int64_t matrix;
    int row, unit;  // the first row and the first unit

    __device__ PartPlace(int64_t matrix, int row, int unit)
        : matrix(matrix), row(row), unit(unit) {}
    // Number i of a thread, if y has it.
    template <class T>
    __device__ bool has(const Product<T>& p, int i) const {
        return row + row_of_sum(i) < p.rows && unit + column_of_sum(i) < p.units;
    }
    // Where it stands if a row has `columns`.
    template <class T>
    __device__ int64_t at(const Product<T>& p, int i, int64_t columns) const {
        return (matrix * p.rows + row + row_of_sum(i)) * columns + unit + column_of_sum(i);
    }
};

// Numbers of a part go straight between memory and registers.
template <class T>
struct Direct {
    const Product<T>& p;

    __device__ void fetch(const PartPlace&) {}
    __device__ float bias(const PartPlace& at, int half, int i) const {
        const int column = at.unit + column_of_sum(i);
        return column < p.units ? float(p.bias[half * p.units + column]) : 0.f;
    }
    __device__ void add_residual(float (&part)[32], const PartPlace& at) const {
#pragma unroll
        for (int i = 0; i < 32; ++i)
            if (at.has(p, i)) part[i] += float(p.residual[at.at(p, i, p.units)]);
    }
    __device__ void write(T* to, int64_t columns, const float (&part)[32],
                          const PartPlace& at) const {
#pragma unroll
        for (int i = 0; i < 32; ++i)
            if (at.has(p, i)) to[at.at(p, i, columns)] = T(part[i]);
    }
    __device__ void write_y(const float (&part)[32], const PartPlace& at) const {
        write(p.y, p.units, part, at);
    }
    __device__ void write_z(const float (&part)[32], const PartPlace& at, int half) const {
        write(p.z + half * p.units, halves(p) * p.units, part, at);
    }
};

// z made to y, but for residual. gate(i): of the right half of z.
template <class T, class Gate>
__device__ void to_y(float (&part)[32], const Product<T>& p, Gate gate) {
    switch (p.act) {
        case kNone:
            return;
        case kRelu:
#pragma unroll
            for (int i = 0; i < 32; ++i) part[i] = quickly_activated(kRelu, part[i]);
            return;
        case kGelu:
#pragma unroll
            for (int i = 0; i < 32; ++i) part[i] = quickly_activated(kGelu, part[i]);
            return;
        case kSilu:
#pragma unroll
            for (int i = 0; i < 32; ++i) part[i] = quickly_activated(kSilu, part[i]);
            return;
        case kSwiglu:
#pragma unroll
            for (int i = 0; i < 32; ++i) part[i] = quickly_activated(kSilu, part[i]) * gate(i);
    }
}

template <class T>
bool __device__ is_plain(const Product<T>& p) {
    return !p.bias && !p.residual && !p.z && p.act == kNone;
}

// The sums of a warpgroup, whose 64 rows begin with `row`, made to y, and to z if that is wanted.
// memory: how parts come from memory and go there, as Direct does. fetch has been called for the
// first part, and is called for each of the others a part ahead.
template <class T, int N, class Memory>
__device__ void finish(const float (&sums)[N], const Product<T>& p, const TilePlace& tile, int row,
                       Memory& memory) {
    constexpr int kParts = N / 32;
    const auto& parts = reinterpret_cast<const float (&)[kParts][32]>(sums);
    const int count = kParts / halves(p);
    PartPlace at(tile.matrix, row, int(tile.column) * count * kPart);
    if (is_plain(p)) {
#pragma unroll
        for (int n = 0; n < kParts; ++n, at.unit += kPart) {
            float part[32];
#pragma unroll
            for (int i = 0; i < 32; ++i) part[i] = p.scale * parts[n][i];
            memory.write_y(part, at);
        }
        return;
    }
#pragma unroll 1
    for (int n = 0; n < count; ++n, at.unit += kPart) {
        const auto z = [&](int half, int i) {
            const float product = p.scale * taken(parts, half * count + n, i);
            return p.bias ? product + memory.bias(at, half, i) : product;
        };
        float part[32];
#pragma unroll
        for (int half = 1; half >= 0; --half) {
            if (half == 1 && (halves(p) == 1 || !p.z)) continue;
#pragma unroll
            for (int i = 0; i < 32; ++i) part[i] = z(half, i);
            if (p.z) memory.write_z(part, at, half);
        }
        to_y(part, p, [&](int i) { return z(1, i); });
        if (p.residual) memory.add_residual(part, at);
        if (n + 1 < count) memory.fetch({at.matrix, at.row, at.unit + kPart});
        memory.write_y(part, at);
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

    float sums[64] = {};
    for (int step = 0; step < steps; ++step) {
        const int i = step % Tile::kStages;
        shared.full[i].wait(step / Tile::kStages % 2);
        multiply(
            sums, p, shared.stages[i].x + group * 64 * kTileDepth, shared.stages[i].w, step > 0);
        wgmma_wait<0>();
        __syncthreads();
        if (threadIdx.x == 0 && step + Tile::kStages < steps) fetch(step + Tile::kStages);
    }
    Direct<T> memory{p};
    finish(sums, p, place, int(place.row) * kTileRows + group * 64, memory);
#endif
}

// ---- specialized: of three warpgroups one asks for the tiles and two multiply, 128 x 256 elements
// of y, so that they wait for tiles alone. The blocks, one for each multiprocessor, stay and take
// tile after tile: the tiles of the next one are fetched while this one is written.
// Flaw: each block reads all that it needs from the L2 cache: of w the same as its neighbours.
//
// ---- cluster: blocks in pairs, one below the other, have the same columns. Each asks for half of
// their tile of w, and TMA writes it to both: a quarter fewer bytes... come from the L2 cache.
// Flaw: a thread's elements of y are scattered over rows, and written 4 bytes at a time.
//
// ---- stores: the warpgroups write y to shared memory, 64 columns at a time, and TMA stores it
// while they go on. And tiles that are taken at the same time lie in a square, so that what they
// read is found in the L2 cache.

template <class T, int columns, int pair, bool stores>
struct Plan {
    static constexpr int kColumns = columns;
    static constexpr int kPair = pair;       // blocks of a cluster
    static constexpr bool kStores = stores;  // y by TMA
    static constexpr int kStages = columns == 256 ? 4 : 6;
    static constexpr int kThreads = (kConsumers + 1) * kWarpgroup;
    struct Shared {
        Stage<T, columns> stages[kStages];
        T boxes[stores ? kConsumers : 1][stores ? 2 : 1][stores ? 64 * kPart : 1];
        Mbarrier full[kStages], empty[kStages];
    };
    static constexpr int kBytes = sizeof(Shared) + kTileAlign;
};

// The order in which tiles are taken. A pair of blocks has two tiles, one below the other.
struct TileOrder {
    TileGrid grid;
    int pair;
    int64_t high;  // pairs of a column that are taken before those of the next column

    __host__ __device__ int64_t pairs() const { return ceil_div<int64_t>(grid.rows, pair); }
    int64_t places() const { return grid.batch * pairs() * grid.columns; }

    // Where the block of number `rank` in its pair is with place n; false if there is no such
    // place.
    __device__ bool at(int64_t n, int rank, TilePlace& place) const {
        const int64_t all = pairs() * grid.columns;
        if (n >= grid.batch * all) return false;
        const int64_t i = n % all, first = i / (high * grid.columns) * high;
        const int64_t height = smaller(pairs() - first, high);
        const int64_t within = i - first * grid.columns;
        place = {n / all, (first + within % height) * pair + rank, within / height};
        return true;
    }
};

#if HAS_WGMMA

// Which stage is used next, and in which of its phases.
template <int count>
struct Ring {
    int stage = 0, round = 0;
    __device__ void next() {
        if (++stage == count) stage = 0, ++round;
    }
};

// Parts pass through boxes of shared memory, two for each warpgroup: TMA stores them from there
// while the threads go on. residual comes 16 bytes at a time, a part ahead, and is brought to the
// threads that need it by way of the box, too.
template <class T>
class Boxed {
  public:
    __device__ Boxed(const Product<T>& p, const Maps& maps, T (&boxes)[2][64 * kPart], int group)
        : p_(p), maps_(maps), boxes_(boxes), group_(group) {}

    __device__ void fetch(const PartPlace& at) {
        if (p_.bias) {
#pragma unroll
            for (int half = 0; half < 2; ++half)
#pragma unroll
                for (int i = 0; i < 8; ++i) {
                    const int column = at.unit + column_of_sum(4 * i);
                    if (half < halves(p_) && column < p_.units)
                        bias_[half][i] = load<2>(p_.bias + half * p_.units + column);
                }
        }
        if (p_.residual) {
#pragma unroll
            for (int i = 0; i < 4; ++i) {
                const int row = at.row + row_of_piece(i), column = at.unit + threadIdx.x % 8 * 8;
                if (row < p_.rows && column < p_.units)
                    residual_[i] =
                        load_once<8>(p_.residual + (at.matrix * p_.rows + row) * p_.units + column);
            }
        }
    }
    __device__ float bias(const PartPlace&, int half, int i) const {
        return float(bias_[half][i / 4][i % 2]);
    }
    __device__ void add_residual(float (&part)[32], const PartPlace&) {
        open_box();
#pragma unroll
        for (int i = 0; i < 4; ++i) {
            const int piece = threadIdx.x % 8 * kVecBytes;
            store(reinterpret_cast<T*>(box_ + swizzled(row_of_piece(i), piece)), residual_[i]);
        }
        __syncwarp();
#pragma unroll
        for (int n = 0; n < 4; ++n) {
            uint32_t words[4];
            load_sums(box_, 16 * n, words);
            for (int i = 0; i < 8; ++i)
                part[8 * n + i] += float(reinterpret_cast<const T*>(words)[i]);
        }
        __syncwarp();
    }
    __device__ void write_y(const float (&part)[32], const PartPlace& at) {
        write(maps_.y, part, at);
    }
    __device__ void write_z(const float (&part)[32], const PartPlace& at, int half) {
        write(maps_.z[half], part, at);
    }

  private:
    // Of the rows of a warp, the one of which this lane has 8 columns.
    __device__ static int row_of_piece(int i) {
        return threadIdx.x % kWarpgroup / kWarp * 16 + i * 4 + threadIdx.x % kWarp / 8;
    }
    __device__ void open_box() {
        if (box_) return;
        box_ = reinterpret_cast<char*>(boxes_[turn_++ % 2]);
        if (threadIdx.x % kWarpgroup == 0) tma_store_wait_read<1>();  // what it held is stored
        warpgroup_barrier(group_);
    }
    __device__ void write(const CUtensorMap& map, const float (&part)[32], const PartPlace& at) {
        open_box();
#pragma unroll
        for (int n = 0; n < 4; ++n) {
            uint32_t words[4];
            for (int i = 0; i < 4; ++i)
                words[i] = rounded_pair<T>(part[8 * n + 2 * i], part[8 * n + 2 * i + 1]);
            store_sums(box_, 16 * n, words);
        }
        tma_writes_done();
        warpgroup_barrier(group_);
        if (threadIdx.x % kWarpgroup == 0) tma_store(map, box_, at.unit, at.row, int(at.matrix));
        box_ = nullptr;
    }

    const Product<T>& p_;
    const Maps& maps_;
    T (&boxes_)[2][64 * kPart];
    const int group_;
    char* box_ = nullptr;  // that is being filled
    int turn_ = 0;
    Vec<T, 2> bias_[2][8];
    Vec<T, 8> residual_[4];
};

#endif

template <class T, class Plan>
__global__ void WGMMA_KERNEL(Plan::kThreads)
    matmul_specialized(const __grid_constant__ Maps maps, Product<T> p, TileOrder order) {
#if HAS_WGMMA
    constexpr int kStages = Plan::kStages, kColumns = Plan::kColumns, kPair = Plan::kPair;
    extern __shared__ char dynamic[];
    auto& shared = tile_aligned<typename Plan::Shared>(dynamic);
    const int rank = blockIdx.x % kPair, blocks = gridDim.x / kPair;
    const int steps = int(ceil_div<int64_t>(p.depth, kTileDepth));
    const int group = threadIdx.x / kWarpgroup, thread = threadIdx.x % kWarpgroup;
    if (threadIdx.x == 0) {
        for (Mbarrier& full : shared.full) full.init();
        for (Mbarrier& empty : shared.empty) empty.init(kConsumers * kPair);
    }
    if constexpr (kPair > 1) {
        cluster_arrive();
        cluster_wait();
    } else {
        __syncthreads();
    }

    Ring<kStages> ring;
    TilePlace place;
    if (group == kConsumers) {
        give_registers<40>();
        for (int64_t n = blockIdx.x / kPair; thread == 0 && order.at(n, rank, place); n += blocks) {
            const auto rows = TileRows<kTileRows>::of(place.row, p.rows);
            const auto columns = TileRows<kColumns>::of_w(p, place.column);
            for (int step = 0; step < steps; ++step, ring.next()) {
                auto& stage = shared.stages[ring.stage];
                Mbarrier& full = shared.full[ring.stage];
                shared.empty[ring.stage].wait((ring.round + 1) % 2);
                full.arrive_expect_tx(sizeof(stage));
                for (int half = 0; half < 2; ++half) {
                    fetch_half<kTileRows>(stage.x, half, maps.x, p.x.col == 1, rows.first[half],
                                          step, place.matrix, full, 0);
                    // A block of a pair asks for its half, for both.
                    if (kPair == 1 || half == rank)
                        fetch_half<kColumns>(
                            stage.w, half, maps.w, p.w.col == 1, columns.first[half], step,
                            place.matrix, full, kPair == 1 ? 0 : (1 << kPair) - 1);
                }
            }
        }
    } else {
        take_registers<232>();
        auto memory = [&] {
            if constexpr (Plan::kStores) {
                return Boxed<T>(p, maps, shared.boxes[group], group);
            } else {
                return Direct<T>{p};
            }
        }();
        const auto done = [&](int stage) {  // this warpgroup has read it
            if constexpr (kPair > 1) {
                if (thread < kPair) shared.empty[stage].arrive_in(thread);
            } else {
                if (thread == 0) shared.empty[stage].arrive();
            }
        };
        for (int64_t n = blockIdx.x / kPair; order.at(n, rank, place); n += blocks) {
            float sums[kColumns / 2];
            int before = 0;
            for (int step = 0; step < steps; ++step, ring.next()) {
                const auto& stage = shared.stages[ring.stage];
                shared.full[ring.stage].wait(ring.round % 2);
                multiply(sums, p, stage.x + group * 64 * kTileDepth, stage.w, step > 0);
                wgmma_wait<1>();  // the products of the step before are done
                if (step > 0) done(before);
                before = ring.stage;
            }
            const int row = int(place.row) * kTileRows + group * 64;
            memory.fetch({place.matrix, row, int(place.column) * (kColumns / halves(p))});
            wgmma_wait<0>();
            done(before);
            finish(sums, p, place, row, memory);
        }
        if (Plan::kStores && thread == 0) tma_store_wait();
    }
    if constexpr (kPair > 1) {  // the other block's copies and arrivals must find this one's memory
        cluster_arrive();
        cluster_wait();
    }
#endif
}

// ---- launches

// x or w as TMA reads it. rows: of a box, where a line is a row.
template <class T>
bool make_map(CUtensorMap& map, const Product<T>& p, const Operand<T>& of, int64_t rows,
              int rows_of_box) {
    if (!reads_in_vectors(of)) return false;
    return of.col == 1 ? make_tensor_map(
                             map, of.data, p.batch, rows, p.depth, of.matrix, of.row, rows_of_box)
                       : make_tensor_map(
                             map, of.data, p.batch, p.depth, rows, of.matrix, of.col, kTileDepth);
}

// y or half of z, of `columns` columns in all.
template <class T>
bool make_map_of_y(CUtensorMap& map, const Product<T>& p, T* y, int64_t columns) {
    return is_aligned(y) && columns % kVec<T> == 0 &&
           make_tensor_map(map, y, p.batch, p.rows, p.units, p.rows * columns, columns, 64);
}

// TMA counts in 32 bits, and takes nothing that is empty.
template <class T>
bool fits_tma(const Product<T>& p) {
    const int64_t most = 0x7fffffff;
    return p.rows <= most && p.units <= most / 2 && 0 < p.depth && p.depth <= most &&
           p.batch <= most;
}

template <class T>
bool make_maps(Maps& maps, const Product<T>& p, int columns, bool stores) {
    if (!fits_tma(p) || (p.act == kSwiglu && p.w.col != 1 && p.units % kVec<T> != 0)) return false;
    if (!make_map(maps.x, p, p.x, p.rows, kTileRows / 2) ||
        !make_map(maps.w, p, p.w, p.units * halves(p), columns / 2))
        return false;
    if (!stores) return true;
    if (!make_map_of_y(maps.y, p, p.y, p.units)) return false;
    for (int half = 0; p.z && half < halves(p); ++half)
        if (!make_map_of_y(maps.z[half], p, p.z + half * p.units, p.units * halves(p)))
            return false;
    return true;
}

template <class Plan, class T>
bool launch_plan(const Product<T>& p, int64_t high, cudaStream_t stream) {
    const auto kernel = matmul_specialized<T, Plan>;
    Maps maps;
    if (!has_wgmma(kernel, Plan::kThreads) || Plan::kBytes > shared_bytes() ||
        !make_maps(maps, p, Plan::kColumns, Plan::kStores))
        return false;
    cudaFuncSetAttribute(kernel, cudaFuncAttributeMaxDynamicSharedMemorySize, Plan::kBytes);
    const TileOrder order{TileGrid(p, kTileRows, Plan::kColumns), Plan::kPair, high};
    const int64_t blocks = smaller<int64_t>(order.places(), multiprocessors() / Plan::kPair);
    launch_clusters(kernel, Plan::kPair, unsigned(blocks * Plan::kPair), Plan::kThreads,
                    Plan::kBytes, stream, maps, p, order);
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

// Version 0 is wgmma. False: none of them can, on this GPU or as x and w lie in memory.
template <class T>
bool launch_wgmma(const Product<T>& p, int64_t version, cudaStream_t stream) {
    enum { kPlain, kSpecialized, kCluster, kStores };
    if (version >= kStores && launch_plan<Plan<T, 256, 2, true>>(p, 8, stream)) return true;
    if (version >= kCluster && launch_plan<Plan<T, 256, 2, false>>(p, 1, stream)) return true;
    if (version >= kSpecialized && launch_plan<Plan<T, 256, 1, false>>(p, 1, stream)) return true;
    return launch_plain(p, stream);
}
