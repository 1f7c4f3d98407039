// The version of matmul in which each thread keeps a part of y in its registers: the best for
// arithmetic units without tensor cores.
#pragma once

#include "matmul_product.cuh"

// ---- registers: a block of 256 threads has 128 x 128 elements of y, and each thread 8 x 8 of them
// in its registers (64 x 64 and 4 x 4 of doubles). For 64 products it reads 16 elements of shared
// memory. While it multiplies 8 of k, the next 8 are on their way to its registers, from where they
// go to a second pair of tiles.
//
// A sum of thousands of floats loses digits; in runs, which are then added up, fewer.
// Flaw: the products are those of the arithmetic units, one for each lane; tensor cores do 16 times
// as many of 16-bit floats.

constexpr int kSquareThreads = 256, kAcross = 16;  // of a block; of those, side by side
constexpr int kSquareDepth = 8;                    // of k, in a tile
constexpr int kRunSteps = 2;                       // tiles of a run
template <class T>
constexpr int kEach = sizeof(T) == 8 ? 4 : 8;  // of a thread, in both directions
template <class T>
constexpr int kSide = kAcross * kEach<T>;

// A tile has a line for each of k, longer by a vector, so that neighbours of a row, which go to
// different lines, go to different banks.
template <class T>
constexpr int kLine = kSide<T> + kVec<Acc<T>>;
template <class T>
using SquareTile = Acc<T>[kSquareDepth * kLine<T>];

// How a thread brings its share of each tile of x or w: neighbours in memory, which are those of a
// row or those of a column.
template <class T>
class SquareFill {
    static constexpr int side = kSide<T>, kCount = side * kSquareDepth / kSquareThreads;

    bool by_row, vectors;  // whether neighbours are of one row; whether they are read in one access
    int r, k;              // where the first one is in a tile
    int there;             // how many of them have a row in the matrix
    const T* from;         // the first one, of the next tile
    int64_t ahead;         // from tile to tile
    Vec<T, kCount> next;

  public:
    __device__ SquareFill(const Operand<T>& of, int64_t matrix, const TileRows<side>& rows,
                          bool vectors)
        : by_row(of.col == 1), vectors(vectors), ahead(kSquareDepth * of.col) {
        constexpr int kOfRow = kSquareDepth / kCount, kOfColumn = side / kCount;
        const int thread = threadIdx.x;
        r = by_row ? thread / kOfRow : thread % kOfColumn * kCount;
        k = by_row ? thread % kOfRow * kCount : thread / kOfColumn;
        const int64_t row = rows(r), left = (r < side / 2 ? rows.end[0] : rows.end[1]) - row;
        there = row < 0 ? 0 : by_row ? kCount : int(smaller<int64_t>(left, kCount));
        from = at(of, matrix, row, k);
    }

    // Asks for the next tile, before which there are `done` of `depth` k. What is not there is 0.
    __device__ void read(int64_t done, int64_t depth) {
        const int left = int(smaller<int64_t>(depth - done - k, kCount));
        const int count = by_row && there > 0 ? left : left > 0 ? there : 0;
        if (vectors && count == kCount) {
            next = load<kCount>(from);
        } else {
#pragma unroll
            for (int i = 0; i < kCount; ++i) next[i] = i < count ? from[i] : T(0.f);
        }
        from += ahead;
    }
    __device__ void write(SquareTile<T>& tile) const {
        Acc<T> numbers[kCount];
#pragma unroll
        for (int i = 0; i < kCount; ++i) numbers[i] = Acc<T>(next[i]);
        if (by_row) {
#pragma unroll
            for (int i = 0; i < kCount; ++i) tile[(k + i) * kLine<T> + r] = numbers[i];
        } else {
            store(tile + k * kLine<T> + r, numbers);
        }
    }
};

// Where a thread's elements are in a tile of y: number i of kAcross finds its rows, or its columns,
// in vectors beside those of its neighbours. Half of them are in each half of the tile, so that
// with swiglu it has both halves of z.
template <class T>
__device__ int place_of(int i, int n) {
    constexpr int V = kVec<Acc<T>>;
    return n / V * (kAcross * V) + i * V + n % V;
}
template <class T>
__device__ void take_line(Acc<T> (&to)[kEach<T>], const Acc<T>* line, int i) {
    constexpr int V = kVec<Acc<T>>;
#pragma unroll
    for (int n = 0; n < kEach<T>; n += V) {
        const auto vector = load<V>(line + place_of<T>(i, n));
#pragma unroll
        for (int k = 0; k < V; ++k) to[n + k] = vector[k];
    }
}

// vectors: whether x and w may be read 16 bytes at a time.
template <class T>
__global__ void __launch_bounds__(kSquareThreads) matmul_registers(Product<T> p, TileGrid grid,
                                                                   bool vectors) {
    using A = Acc<T>;
    constexpr int each = kEach<T>, side = kSide<T>;
    __shared__ alignas(kVecBytes) SquareTile<T> tiles_x[2], tiles_w[2];
    const TilePlace place = grid.place(blockIdx.x);
    const auto rows = TileRows<side>::of(place.row, p.rows);
    const auto columns = TileRows<side>::of_w(p, place.column);
    SquareFill<T> fill_x(p.x, place.matrix, rows, vectors);
    SquareFill<T> fill_w(p.w, place.matrix, columns, vectors);
    const int down = threadIdx.x / kAcross, right = threadIdx.x % kAcross;
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
    const auto end_run = [&] {
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
        const A *line_x = tiles_x[step % 2], *line_w = tiles_w[step % 2];
#pragma unroll
        for (int k = 0; k < kSquareDepth; ++k, line_x += kLine<T>, line_w += kLine<T>) {
            A x[each], w[each];
            take_line<T>(x, line_x, down);
            take_line<T>(w, line_w, right);
#pragma unroll
            for (int m = 0; m < each; ++m)
#pragma unroll
                for (int n = 0; n < each; ++n) sums[m][n] += x[m] * w[n];
        }
        if (step % kRunSteps == kRunSteps - 1) end_run();
        write(step + 1);
    }
    end_run();
#pragma unroll 1
    for (int m = 0; m < each; ++m) {
        const int64_t row = rows(place_of<T>(down, m));
        for (int n = 0; n < each; ++n) {
            const int64_t unit = columns(place_of<T>(right, n));
            if (row >= 0 && unit >= 0 && n < each / halves(p))
                put(p, place.matrix, row, unit, totals[m][n].value,
                    totals[m][(n + each / 2) % each].value);
        }
    }
}

template <class T>
void launch_registers(const Product<T>& p, cudaStream_t stream) {
    const TileGrid grid(p, kSide<T>, kSide<T>);
    const bool vectors = reads_in_vectors(p.x) && reads_in_vectors(p.w) &&
                         (p.act != kSwiglu || p.w.col == 1 || p.units % kVec<T> == 0);
    matmul_registers<<<grid.tiles(), kSquareThreads, 0, stream>>>(p, grid, vectors);
}
