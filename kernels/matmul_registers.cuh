// The version of matmul in which each thread keeps a part of y in its registers: the best for
// arithmetic units without tensor cores.
#pragma once

#include "matmul_product.cuh"

// ---- registers: a block of 128 threads has 64 x 128 elements of y, and each thread 8 x 8 of them
// in its registers (32 x 64 and 4 x 4 of doubles). For 64 products it reads 16 elements of shared
// memory. While it multiplies 16 of k, the next 16 are on their way to its registers, from where
// they go to a second pair of tiles.
//
// A sum of thousands of floats loses digits. So there are three sums of each element: that of a
// run, which is the 16 of k of a tile; that of 16 runs; and that of all, which keeps what it loses.
// The first two are in registers, and leave room for two blocks on a multiprocessor.
// Flaw: the products are those of the arithmetic units, one for each lane; tensor cores do 16 times
// as many of 16-bit floats.

constexpr int kSquareThreads = 128, kAcross = 16, kDown = kSquareThreads / kAcross;
constexpr int kSquareDepth = 16;  // of k, in a tile: a run
constexpr int kGroup = 16;        // runs that are added up in registers
template <class T>
constexpr int kEach = sizeof(T) == 8 ? 4 : 8;  // of a thread, in both directions
template <class T>
constexpr int kSideX = kDown * kEach<T>;
template <class T>
constexpr int kSideW = kAcross * kEach<T>;

// A tile has a line for each of k, longer by a vector than it has rows, and after each four lines
// 24 elements are left free: so what a warp writes of neighbouring rows, four of k at a time, goes
// to different banks.
template <class T, int side>
constexpr int kLine = side + kVec<Acc<T>>;
template <class T, int side>
__device__ constexpr int line_of(int k) {
    return k * kLine<T, side> + k / 4 * 24;
}
template <class T, int side>
using SquareTile = Acc<T>[line_of<T, side>(kSquareDepth)];

// How a thread brings its share of each tile of x or w: vectors of neighbours in memory, which are
// those of a row or those of a column.
template <class T, int side>
class SquareFill {
    static constexpr int V = kVec<T>, kCount = side * kSquareDepth / V / kSquareThreads;
    static constexpr int kOfRow = kSquareDepth / V, kOfColumn = side / V;  // vectors
    static constexpr int kHalves = kCount > 1 ? 2 : 1;  // with swiglu, a tile of w has two
    static constexpr int kOfHalf = kCount / kHalves;

    bool by_row, vectors;    // whether neighbours are of one row; whether 16 bytes are read at once
    int r, k;                // where the first vector is in a tile
    unsigned there = 0;      // a bit for each vector: whether its first row is in the matrix
    int of_column = V;       // rows that the matrix has of those of a vector
    const T* from[kHalves];  // the first vectors of both halves, of the next tile
    int64_t neighbour, apart, ahead;  // in memory, to the next element, vector and tile
    Vec<T, V> next[kCount];

    __device__ int row_of(int i) const { return by_row ? r + i * (kSquareThreads / kOfRow) : r; }
    __device__ int k_of(int i) const { return by_row ? k : k + i * (kSquareThreads / kOfColumn); }

  public:
    __device__ SquareFill(const Operand<T>& of, int64_t matrix, const TileRows<side>& rows,
                          bool vectors)
        : by_row(of.col == 1), vectors(vectors) {
        const int thread = threadIdx.x;
        r = by_row ? thread / kOfRow : thread % kOfColumn * V;
        k = by_row ? thread % kOfRow * V : thread / kOfColumn;
        neighbour = by_row ? of.col : of.row;
        apart = by_row ? kSquareThreads / kOfRow * of.row : kSquareThreads / kOfColumn * of.col;
        ahead = kSquareDepth * of.col;
#pragma unroll
        for (int i = 0; i < kCount; ++i) there |= unsigned(rows(row_of(i)) >= 0) << i;
#pragma unroll
        for (int half = 0; half < kHalves; ++half) {
            const int i = half * kOfHalf;
            from[half] = at(of, matrix, rows(row_of(i)), k_of(i));
        }
        for (int n = 1; n < V && !by_row; ++n)
            if (rows(r + n) < 0 && of_column > n) of_column = n;
        this->vectors = vectors && of_column == V;
    }

    // Asks for the next tile, before which there are `done` of `depth` k. What is not there is 0.
    __device__ void read(int64_t done, int64_t depth) {
        if (vectors && done + kSquareDepth <= depth) {
#pragma unroll
            for (int i = 0; i < kCount; ++i)
                next[i] =
                    there >> i & 1 ? load<V>(from[i / kOfHalf] + i % kOfHalf * apart) : Vec<T, V>{};
        } else {
            const int left = int(smaller<int64_t>(depth - done, kSquareDepth));
#pragma unroll
            for (int i = 0; i < kCount; ++i) {
                const int of_vector = by_row ? left - k_of(i) : k_of(i) < left ? of_column : 0;
                const int count = there >> i & 1 ? of_vector : 0;
                const T* const first = from[i / kOfHalf] + i % kOfHalf * apart;
#pragma unroll
                for (int n = 0; n < V; ++n) next[i][n] = n < count ? first[n * neighbour] : T(0.f);
            }
        }
#pragma unroll
        for (int half = 0; half < kHalves; ++half) from[half] += ahead;
    }
    __device__ void write(SquareTile<T, side>& tile) const {
#pragma unroll
        for (int i = 0; i < kCount; ++i) {
            Acc<T> numbers[V];
#pragma unroll
            for (int n = 0; n < V; ++n) numbers[n] = Acc<T>(next[i][n]);
            Acc<T>* const to = tile + line_of<T, side>(k_of(i)) + row_of(i);
            if (by_row) {
#pragma unroll
                for (int n = 0; n < V; ++n) to[line_of<T, side>(n)] = numbers[n];
            } else {
                store(to, numbers);
            }
        }
    }
};

// Where a thread's elements are in a tile of y: number i of `across` finds its rows, or its
// columns, in vectors beside those of its neighbours. Half of the columns are in each half of the
// tile, so that with swiglu it has both halves of z.
template <class T, int across>
__device__ int place_of(int i, int n) {
    constexpr int V = kVec<Acc<T>>;
    return n / V * (across * V) + i * V + n % V;
}
template <class T, int across>
__device__ void take_line(Acc<T> (&to)[kEach<T>], const Acc<T>* line, int i) {
    constexpr int V = kVec<Acc<T>>;
#pragma unroll
    for (int n = 0; n < kEach<T>; n += V) {
        const auto vector = load<V>(line + place_of<T, across>(i, n));
#pragma unroll
        for (int k = 0; k < V; ++k) to[n + k] = vector[k];
    }
}

// sums += those of a run.
template <class T>
__device__ void add_run(Acc<T> (&sums)[kEach<T>][kEach<T>], const Acc<T>* tile_x,
                        const Acc<T>* tile_w, int down, int right) {
    constexpr int each = kEach<T>;
    Acc<T> run[each][each];
#pragma unroll
    for (int k = 0; k < kSquareDepth; ++k) {
        Acc<T> x[each], w[each];
        take_line<T, kDown>(x, tile_x + line_of<T, kSideX<T>>(k), down);
        take_line<T, kAcross>(w, tile_w + line_of<T, kSideW<T>>(k), right);
#pragma unroll
        for (int m = 0; m < each; ++m)
#pragma unroll
            for (int n = 0; n < each; ++n)
                run[m][n] = k == 0 ? x[m] * w[n] : run[m][n] + x[m] * w[n];
    }
#pragma unroll
    for (int m = 0; m < each; ++m)
#pragma unroll
        for (int n = 0; n < each; ++n) sums[m][n] += run[m][n];
}

// vectors: whether x and w may be read 16 bytes at a time.
template <class T>
__global__ void __launch_bounds__(kSquareThreads, 2) matmul_registers(Product<T> p, TileGrid grid,
                                                                      bool vectors) {
    using A = Acc<T>;
    constexpr int each = kEach<T>;
    __shared__ alignas(kVecBytes) SquareTile<T, kSideX<T>> tiles_x[2];
    __shared__ alignas(kVecBytes) SquareTile<T, kSideW<T>> tiles_w[2];
    const TilePlace place = grid.place(blockIdx.x);
    const auto rows = TileRows<kSideX<T>>::of(place.row, p.rows);
    const auto columns = TileRows<kSideW<T>>::of_w(p, place.column);
    SquareFill<T, kSideX<T>> fill_x(p.x, place.matrix, rows, vectors);
    SquareFill<T, kSideW<T>> fill_w(p.w, place.matrix, columns, vectors);
    // A warp has 4 x 8 threads: it reads 4 vectors of a line of x and 8 of one of w.
    const int warp = threadIdx.x / kWarp, lane = threadIdx.x % kWarp;
    const int down = warp / 2 * 4 + lane / 8, right = warp % 2 * 8 + lane % 8;
    const int steps = int(ceil_div<int64_t>(p.depth, kSquareDepth));
    const auto read = [&](int step) {
        const int64_t done = int64_t(step) * kSquareDepth;
        if (step < steps) fill_x.read(done, p.depth), fill_w.read(done, p.depth);
    };
    const auto write = [&](int step) {
        if (step < steps) fill_x.write(tiles_x[step % 2]), fill_w.write(tiles_w[step % 2]);
        __syncthreads();
    };

    KahanSum<A> totals[each][each];  // in memory, for registers have no room
    A sums[each][each] = {};
    const auto end_group = [&] {
#pragma unroll 1
        for (int m = 0; m < each; ++m)
            for (int n = 0; n < each; ++n) totals[m][n] += taken(sums, m, n);
#pragma unroll
        for (int m = 0; m < each; ++m)
#pragma unroll
            for (int n = 0; n < each; ++n) sums[m][n] = 0;
    };
    read(0);
    write(0);
    for (int step = 0; step < steps; ++step) {
        read(step + 1);
        add_run<T>(sums, tiles_x[step % 2], tiles_w[step % 2], down, right);
        if (step % kGroup == kGroup - 1) end_group();
        write(step + 1);
    }
    end_group();
#pragma unroll 1
    for (int m = 0; m < each; ++m) {
        const int64_t row = rows(place_of<T, kDown>(down, m));
        for (int n = 0; n < each; ++n) {
            const int64_t unit = columns(place_of<T, kAcross>(right, n));
            if (row >= 0 && unit >= 0 && n < each / halves(p))
                put(p, place.matrix, row, unit, totals[m][n].value,
                    totals[m][(n + each / 2) % each].value);
        }
    }
}

template <class T>
void launch_registers(const Product<T>& p, cudaStream_t stream) {
    const TileGrid grid(p, kSideX<T>, kSideW<T>);
    const bool vectors = reads_in_vectors(p.x) && reads_in_vectors(p.w) &&
                         (p.act != kSwiglu || p.w.col == 1 || p.units % kVec<T> == 0);
    matmul_registers<<<grid.tiles(), kSquareThreads, 0, stream>>>(p, grid, vectors);
}
