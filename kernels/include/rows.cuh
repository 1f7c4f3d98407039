// Rows as the ops that normalise take them: which threads have which columns, how the next rows
// come in meanwhile, and the launches.
#pragma once

#include "async.cuh"
#include "cluster.cuh"
#include "edges.cuh"
#include "reduce.cuh"
#include "walk.cuh"

// double, which is here for checks of gradients, does without the vector version: a warp of doubles
// fills whole lines of memory anyway, and every kernel more takes time to compile.
template <class T>
constexpr bool kHasVectors = sizeof(T) < 8;

// May these tensors' rows be read in vectors? A column of such a row is an int.
template <class T, class... P>
bool is_whole(int64_t cols, const P*... tensors) {
    return kHasVectors<T> && cols % kVec<T> == 0 && cols <= 1 << 30 && is_aligned(tensors...);
}

// A product that is rounded before it goes on, and so is the same wherever it is needed: dx is a
// difference of which most may cancel. Were h = g * weight fused with the subtraction of its
// average, a row of equal h would get a gradient other than 0: the rounding error, times a rstd
// that may be large.
__device__ inline float product(float a, float b) { return __fmul_rn(a, b); }
__device__ inline double product(double a, double b) { return __dmul_rn(a, b); }

// 1 / sqrt(a), to half an ULP: all of a row is wrong by what this is wrong by. rsqrt is quick and
// not exact; what is lost, 1 - a * r * r, is found with fused products and made good.
template <class A>
__device__ A inverse_root(A a) {
    const A r = rsqrt(a);
    const A root = a * r, rest = fma(a, r, -root);
    const A lost = fma(-root, r, A(1)) - rest * r;
    return isfinite(root) ? fma(r * lost, A(0.5), r) : r;
}

// ---- a thread's columns: `count` vectors, `step` columns apart, from `first` on

constexpr int kForwardThreads = 512;  // of a block, at most
constexpr int kWideThreads = 1024;    // of a block that fills a multiprocessor: 64 registers each

constexpr int kBackwardThreads = 512;  // of a multiprocessor: 128 registers each, all it has
template <class T>
constexpr int kBackwardVectors = sizeof(T) == 2 ? 2 : 4;  // 16 columns

// Of a row that is shared out among the blocks of a cluster. rank: the block's among them, or 0.
// begin: where the row's first vector does.
template <class T, int count>
struct Columns {
    int first, step;
    __device__ explicit Columns(int rank, int begin = 0)
        : first(begin + (rank * count * blockDim.x + threadIdx.x) * kVec<T>),
          step(blockDim.x * kVec<T>) {}
    __device__ int operator[](int n) const { return first + n * step; }
};

// The same, but vectors that would be past the end are the last ones of the row once more: so that
// all threads do the same, without a branch, and what they do twice is `there` once. (Were they all
// the very last one, L2 would write it one time after another.)
template <class T, int count>
class FullColumns : public Columns<T, count> {
  public:
    const int cols;
    __device__ FullColumns(int blocks, int cols) : Columns<T, count>(cluster_rank()), cols(cols) {
        const int excess = blocks * count * blockDim.x * kVec<T> - cols;
#pragma unroll
        for (int n = 0; n < count; ++n) {
            at_[n] = there(n) ? past_end(n) : past_end(n) - excess;
#if PLAYGROUND_CUDA
            asm("" : "+r"(at_[n]));  // nvcc would follow both ways, and store in parts
#endif
        }
    }
    __device__ bool there(int n) const { return past_end(n) < cols; }
    __device__ int operator[](int n) const { return at_[n]; }

  private:
    __device__ int past_end(int n) const { return Columns<T, count>::operator[](n); }
    int at_[count];
};

// Where a row of threads of a block that stays takes rows: `first`, and every `stride`-th after it;
// the block's own first row is `behind` before that. Rows that begin equally far from a boundary
// have their vectors in the same columns: where a row has edges, those are a thread's.
template <bool kWhole>
struct Turns {
    int64_t stride, behind, first;
    __device__ Turns()
        : stride(int64_t(gridDim.x) * blockDim.y),
          behind(kWhole ? threadIdx.y : int64_t(threadIdx.y) * gridDim.x),
          first((kWhole ? int64_t(blockIdx.x) * blockDim.y : blockIdx.x) + behind) {}
};

// The thread's part of a tensor [cols], as numbers to calculate with.
template <class T, int N, bool kWhole>
__device__ void read_columns(const T* tensor, const Columns<T, N>& column,
                             const Inner<T, kWhole>& inner, Acc<T> (&to)[N][kVec<T>]) {
#pragma unroll
    for (int n = 0; n < N; ++n) {
        const int c = column[n];
        if (c >= inner.end) break;
        const Vec<T, kVec<T>> v = inner.beside(tensor, c);
        for (int k = 0; k < kVec<T>; ++k) to[n][k] = Acc<T>(v[k]);
    }
}

// Rows that are merged at once where a cluster has a row: its blocks wait long for each other, and
// so half as often. Four bytes an element leave no shared memory for it, and hide more of the wait.
template <class T>
constexpr int kWideRows = sizeof(T) == 2 ? 2 : 1;

// ---- the next R rows of K tensors, on their way to shared memory while the thread works on others

extern __shared__ Line on_the_way[];

template <class T, int K, int R = 1>
struct NextRows {
    static constexpr int V = kVec<T>, N = kBackwardVectors<T>;

    // Vector n of tensor k, in the i-th row of those that come in an even (0) or odd (1) turn.
    // Neighbours' vectors are neighbours.
    __device__ Vec<T, V>& at(int turn, int n, int k, int i = 0) const {
        const int part = ((turn * R + i) * N + n) * K + k;
        const int threads = blockDim.x * blockDim.y,
                  thread = threadIdx.y * blockDim.x + threadIdx.x;
        return reinterpret_cast<Vec<T, V>*>(on_the_way)[part * threads + thread];
    }

    // The i-th of them, as a batch of its own. begin: the row's first element in each tensor. end:
    // the columns to fetch; 0 past the last row.
    template <class... P>
    __device__ void fetch(int turn, int i, const Columns<T, N>& column, int end, int64_t begin,
                          const P*... tensors) const {
#pragma unroll
        for (int n = 0; n < N; ++n) {
            const int c = column[n];
            if (c >= end) break;
            int k = 0;
            (copy_async<V>(at(turn, n, k++, i).at, tensors + begin + c), ...);
        }
        close_batch();
    }

    // Of shared memory, that each thread needs.
    static constexpr int kBytes = 2 * R * N * K * kVecBytes;
};

// A number of the next row, which is on its way to a register meanwhile; where there is none, 0.
template <class T>
class NextNumber {
  public:
    __device__ void ask(const T* from, bool there) {
        if constexpr (sizeof(T) == 2) {
            bits_ = there ? *reinterpret_cast<const uint16_t*>(from) : 0;
        } else {
            bits_ = there ? *reinterpret_cast<const uint32_t*>(from) : 0;
        }
    }
    // Waits for the first one, before the loop that asks for the others. Else nvcc waits for it in
    // there, where it is needed first, and by then for the one behind it too. (What a thread sends
    // to itself must have come.)
    __device__ void await() {
#if PLAYGROUND_CUDA
        bits_ = __shfl_sync(0xffffffff, bits_, (threadIdx.y * blockDim.x + threadIdx.x) % kWarp);
#endif
    }
    __device__ T get() const {
        T number;
        memcpy(&number, &bits_, sizeof(T));
        return number;
    }

  private:
    uint32_t bits_ = 0;
};

// ---- rows that a block, or a cluster, takes R at a time: D times so many of K tensors wait in
// shared memory, or are on their way there. N vectors of each are the thread's.

template <class T, int N, int D, int K = 1, int R = 1>
class RowQueue {
  public:
    static constexpr int V = kVec<T>;

    // Of tensors [rows, cols]: row `first`, and every `stride`-th after it. (Rows so wide are no
    // more than an int counts.) A tensor may be null; its vectors are then anything.
    template <class... P>
    __device__ RowQueue(const FullColumns<T, N>& column, int first, int stride, int rows,
                        const P*... tensors)
        : tensors_{tensors...}, column_(column), row_(first), stride_(stride), rows_(rows) {
        static_assert(sizeof...(P) == K);
        for (; turn_ < D; ++turn_, row_ += R * stride) {
#pragma unroll
            for (int i = 0; i < R; ++i) {
#pragma unroll
                for (int n = 0; n < N; ++n) replace(n, i);
            }
        }
        turn_ = 0;
    }

    // Returns when the first R rows are there, or those k turns behind them.
    template <int k = 0>
    __device__ void await() {
        await_batches<(D - 1 - k) * R * N>();
    }

    // Vector n of a tensor, in the i-th of those rows. Neighbours' vectors are neighbours.
    template <int k = 0>
    __device__ Vec<T, V>& at(int n, int tensor = 0, int i = 0) {
        static_assert(k < D);
        const int turn = turn_ + k < D ? turn_ + k : turn_ + k - D;
        const int part = ((turn * R + i) * N + n) * K + tensor;
        return reinterpret_cast<Vec<T, V>*>(on_the_way)[part * blockDim.x + threadIdx.x];
    }

    // Nobody needs vector n of the i-th row any more: asks for that of the row D turns behind.
    __device__ void replace(int n, int i = 0) {
        const int row = row_ + i * stride_;
        const int64_t begin = int64_t(row) * column_.cols + column_[n];
#pragma unroll
        for (int k = 0; k < K; ++k) {
            if (row < rows_ && (K == 1 || tensors_[k] != nullptr))
                copy_async<V>(at(n, k, i).at, tensors_[k] + begin);
        }
        close_batch();
    }

    // The next R rows are the first.
    __device__ void advance() {
        turn_ = turn_ + 1 < D ? turn_ + 1 : 0;
        row_ += R * stride_;
    }

    // Of shared memory, that each thread needs.
    static constexpr int kBytes = D * R * N * K * kVecBytes;

  private:
    const T* tensors_[K];
    FullColumns<T, N> column_;
    int row_, stride_, rows_;  // row_: the first of those that replace the first
    int turn_ = 0;
};

// The block's sums of its columns, to its part of `sums` [cols]: those that its rows of threads
// have are added up first. Every thread calls, when the last row has come. lone: of the thread's
// column of the edges.
template <class T, int N, bool kWhole>
__device__ void write_columns(Acc<T>* sums, const Columns<T, N>& column,
                              const Inner<T, kWhole>& inner, Acc<T> (&mine)[N][kVec<T>],
                              Acc<T> lone = 0) {
    constexpr int V = kVec<T>;
    struct Place {
        Acc<T> sums[N * V + (kWhole ? 0 : 1)];
    };
    for (int half = blockDim.y / 2; half > 0; half /= 2) {
        const int from = int(threadIdx.y) - half;  // who gives away, to whom
        Place* places = reinterpret_cast<Place*>(on_the_way);
        __syncthreads();
        if (from >= 0 && from < half) {
            Place& place = places[from * blockDim.x + threadIdx.x];
            for (int n = 0; n < N; ++n) {
                for (int k = 0; k < V; ++k) place.sums[n * V + k] = mine[n][k];
            }
            if constexpr (!kWhole) place.sums[N * V] = lone;
        }
        __syncthreads();
        if (from >= 0) continue;
        const Place& place = places[threadIdx.y * blockDim.x + threadIdx.x];
        for (int n = 0; n < N; ++n) {
            for (int k = 0; k < V; ++k) mine[n][k] += place.sums[n * V + k];
        }
        if constexpr (!kWhole) lone += place.sums[N * V];
    }
    if (threadIdx.y > 0) return;
    const int c = inner.lone(threadIdx.x);
    if (c >= 0) sums[c] = lone;
#pragma unroll
    for (int n = 0; n < N; ++n) {
        const int c = column[n];
        if (c >= inner.end) break;
        inner.put_beside(sums, c, mine[n]);
    }
}

// ---- launch choices: the first row of a table whose threads hold the whole row of the tensor

constexpr int kNarrowVectors = 4;  // of a thread, in a row that a warp can so hold

struct Shape {
    int threads, rows;  // threads of a row in a block, rows of a block
    int blocks;         // of a cluster
};
constexpr Shape kForward[] = {
    // columns of a 2-byte type, at 4 vectors a thread; at 8 twice as many
    {8, 16, 1},    //    256
    {16, 8, 1},    //    512
    {32, 4, 1},    //   1024; one warp, whose sums need no barrier
    {64, 4, 1},    //   2048
    {128, 2, 1},   //   4096; two rows: they share the weights in the cache
    {256, 1, 1},   //   8192
    {512, 1, 1},   //  16384
    {256, 1, 4},   //  32768; not {512, 1, 2}: smaller blocks begin and end at more times
    {256, 1, 8},   //  65536
    {512, 1, 8},   // 131072
    {512, 1, 16},  // 262144
};

// The first row of the table that has so many threads and can be launched; of that, no more warps
// than there is work for. most: blocks.
template <int n, class... P>
RowLaunch find(const Shape (&table)[n], int64_t threads, int most, void (*kernel)(P...)) {
    for (const Shape& shape : table) {
        if (threads > shape.threads * shape.blocks) continue;
        if (shape.blocks > most || (shape.blocks > 1 && !has_clusters(kernel))) break;
        const int64_t each =
            shape.threads > kWarp ? whole_warps(ceil_div<int64_t>(threads, shape.blocks))
                                  : shape.threads;
        return {dim3(shape.blocks), dim3(each, shape.rows), shape.blocks};
    }
    return {};
}

// Of a forward kernel in which each thread keeps so many vectors of one row, in registers or in
// that much shared memory a thread. most: blocks that the kernel's rows may have.
template <class T, class... P>
RowLaunch forward_launch(void (*kernel)(P...), int64_t rows, int64_t cols, int vectors,
                         int bytes = 0, int most = kClusterBlocks) {
    const int64_t needed = cols / kVec<T>;  // vectors
    int64_t threads = ceil_div<int64_t>(needed, smaller(vectors, kNarrowVectors));
    if (threads > kWarp) threads = ceil_div<int64_t>(needed, vectors);
    RowLaunch launch = find(kForward, threads, most, kernel);
    const int64_t grid = ceil_div<int64_t>(rows, launch.block.y) * launch.blocks;
    if (grid > 0x7fffffff) return {};  // CUDA's limit
    launch.grid = dim3(grid);
    launch.bytes = bytes * launch.block.x * launch.block.y;
    if (launch.bytes > 0 && !allow(kernel, launch.bytes)) return {};
    if (launch.blocks > kClusterBlocks &&
        clusters_at_once(kernel, launch.blocks, launch.block, launch.bytes) == 0)
        return {};
    return launch;
}

// How many blocks share a row that needs so many threads. More than eight are sixteen: a cluster's
// blocks come from the 16 or 18 multiprocessors of one part of the GPU, which has no room for two
// clusters of nine either.
inline int64_t blocks_of(int64_t needed, int64_t threads) {
    const int64_t blocks = ceil_div(needed, threads);
    return blocks <= kClusterBlocks || blocks > kMostBlocks ? blocks : kMostBlocks;
}

// Clusters that stay and take row after row, of as many threads together as a row needs. bytes: of
// shared memory, that each thread needs.
template <class... P>
RowLaunch cluster_of(void (*kernel)(P...), int blocks, int64_t needed, int64_t rows, int bytes) {
    const dim3 threads(whole_warps(ceil_div<int64_t>(needed, blocks)));
    bytes *= threads.x;
    if (!allow(kernel, bytes)) return {};
    const int64_t at_once = clusters_at_once(kernel, blocks, threads, bytes);
    if (at_once == 0) return {};
    return {dim3(smaller(rows, at_once) * blocks), threads, blocks, bytes};
}

// Of a forward kernel whose clusters stay, in which each thread has N vectors of a row and D rows
// of K tensors wait: in two blocks of a multiprocessor, which hide each other's waits, or in one
// twice as large. threads: of a block, at most. most: blocks of a row. Few rows are spread over
// more blocks than they need.
template <class T, int N, int D, int K = 1, class... P>
RowLaunch wide_launch(void (*kernel)(P...), int threads, int64_t rows, int64_t cols,
                      int most = kMostBlocks) {
    const int64_t needed = ceil_div<int64_t>(cols, N * kVec<T>);  // threads
    int64_t blocks = blocks_of(needed, threads);
    if (blocks < 2) blocks = 2;
    while (blocks < kClusterBlocks && rows * blocks * 2 <= multiprocessors()) ++blocks;
    if (blocks > most || !has_clusters(kernel)) return {};
    return cluster_of(kernel, blocks, needed, rows, RowQueue<T, N, D, K>::kBytes);
}

// Of a backward kernel whose blocks stay, take row after row, and leave the sums of their columns.
// bytes: of shared memory, that each thread needs.
template <class T, class... P>
RowLaunch backward_launch(void (*kernel)(P...), int64_t rows, int64_t cols, int bytes) {
    const int64_t needed = ceil_div<int64_t>(cols / kVec<T>, kBackwardVectors<T>);  // threads
    const int64_t blocks = blocks_of(needed, kBackwardThreads);
    if (blocks > kMostBlocks || (blocks > 1 && !has_clusters(kernel))) return {};
    if (blocks > 1) return cluster_of(kernel, blocks, needed, rows, bytes);
    // Rows of up to 256 threads have two blocks of a multiprocessor at least, which hide each
    // other's barriers; narrow ones share a block, as far as no thread is left over by that.
    dim3 block(needed <= kWarp / 2 ? kWarp / 2 : whole_warps(needed));
    const auto at_once = [](int threads) { return kBackwardThreads / threads; };
    for (int threads = block.x; 2 * threads <= kBackwardThreads / 2; threads *= 2) {
        if (at_once(threads) > 2 * at_once(2 * threads)) break;
        block.y *= 2;
    }
    const int threads = block.x * block.y;
    bytes *= threads;
    if (!allow(kernel, bytes)) return {};
    // As many blocks as run at once; where that makes rows begin alike, a multiple of V (Turns).
    const int64_t V = cols % kVec<T> == 0 ? 1 : kVec<T>;
    const int64_t wanted = ceil_div<int64_t>(rows, block.y),
                  most = multiprocessors() * at_once(threads);
    const int64_t grid = smaller(ceil_div(wanted, V), most < V ? 1 : most / V) * V;
    return {dim3(grid), block, 1, bytes};
}

// Threads of a block that has a row of any width to itself: no more than there is work for.
inline int block_threads(int64_t cols) {
    int threads = kWarp;
    while (threads < 512 && threads < cols) threads *= 2;
    return threads;
}

// Threads (columns, slices of the rows) for a sum over rows, enough of both to give each
// multiprocessor 2048 threads. each: columns of a thread.
struct Slices {
    dim3 block, grid;
    Slices(int64_t rows, int64_t cols, int each = 1) : block(kWarp, 8) {
        const int64_t across = ceil_div<int64_t>(cols, each * block.x);
        const int64_t down = smaller(
            ceil_div<int64_t>(rows, block.y), ceil_div<int64_t>(multiprocessors() * 8, across));
        grid = dim3(across, smaller<int64_t>(down, 65535));  // CUDA's limit in y
    }
    Slices(dim3 block, dim3 grid) : block(block), grid(grid) {}
    int64_t count() const { return int64_t(grid.y) * block.y; }
};

// The same of vectors, for kernels that write dx as well. Their blocks lie across the columns,
// where they read and write neighbours, and are as many as run at the same time.
constexpr int kRowsAhead = 2;       // that a thread asks for before it works on the first
constexpr int kSliceThreads = 256;  // of a block
constexpr int kSliceBlocks = 4;     // of a multiprocessor: 64 registers a thread

template <class T>
Slices wide_slices(int64_t rows, int64_t cols) {
    const int64_t across = ceil_div<int64_t>(cols, kSliceThreads * kVec<T>);
    const int64_t down = smaller(rows, multiprocessors() * kSliceBlocks / across);
    return {dim3(kSliceThreads), dim3(across, smaller<int64_t>(down < 1 ? 1 : down, 65535))};
}

// Of backward: row by row, with `launch`. Or, if that has no blocks, in two readings: first row by
// row, for dx or, of a row in vectors, for the averages that dx takes; then slice by slice, for
// what is left and for the columns' sums.
template <class T>
struct BackwardPlan {
    bool whole;  // in vectors?
    Slices slices;
    RowLaunch launch = {};
    bool is_wide = false;  // of the kernel for rows that clusters share?

    BackwardPlan(bool whole, int64_t rows, int64_t cols)
        : whole(whole),
          slices(whole ? wide_slices<T>(rows, cols) : Slices(rows, cols)),
          rows_(rows),
          cols_(cols) {}

    // Rows with edges have a block of their own, or none of these.
    void take_edges(const RowLaunch& edges) {
        if (edges.blocks == 1) launch = edges;
    }

    // Should such rows take the kernel for rows that clusters share? Those with a block of their
    // own may, too.
    bool wants_wide(bool also_blocks = false) const {
        return launch.blocks > 1 || (also_blocks && launch.block.x > kBackwardThreads / 2);
    }
    void take_wide(const RowLaunch& wide) {
        if (wide.blocks == 0 && launch.blocks == 1) return;  // there is no room for more rows
        launch = wide;
        is_wide = true;
    }

    // Of each column, as many partial sums are left.
    int64_t count() const { return launch.blocks > 0 ? launch.slices() : slices.count(); }

    // Those take so many rows [cols], and behind them the averages of the rows, [rows, 2].
    int64_t partials() const {
        const bool has_averages = whole && launch.blocks == 0;
        return count() + (has_averages ? ceil_div<int64_t>(2 * rows_, cols_) : 0);
    }
    Acc<T>* averages(Acc<T>* partials) const { return partials + count() * cols_; }

  private:
    int64_t rows_, cols_;
};
