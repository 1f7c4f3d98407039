// What the norms share for rows too wide for one block, and how they launch rows of any width.
#pragma once

#include "launches.cuh"
#include "norms.cuh"

constexpr int kWideThreads = 1024;  // of a block that fills a multiprocessor: 64 registers each

// Rows whose sums are reduced at once where a cluster has a row: its blocks wait long for each
// other, and so half as often. Four bytes an element leave no shared memory for it, and hide more
// of the wait.
template <class T>
constexpr int kRowsTogether = sizeof(T) == 2 ? 2 : 1;

// The moments of R rows, `stride` apart, that a thread asks for long before it needs them. Until
// then they take a register: lane 2 * i of the warp has the i-th row's mean, and its neighbour its
// rstd. (Loaded by all lanes alike, they would be moved to the warp's own registers, which waits
// for them.)
template <class A, int R>
class PrefetchedMoments {
  public:
    __device__ PrefetchedMoments(const A* mean, const A* rstd, int rows, int stride)
        : from_(threadIdx.x % 2 == 0 ? mean : rstd),
          rows_(rows),
          ahead_(threadIdx.x / 2 % R * stride) {}

    // (Past the last row, any.)
    __device__ A fetch(int first) const { return from_[smaller(first + ahead_, rows_ - 1)]; }

    __device__ Moments<A> of(A fetched, int i = 0) const {
        return {
            __shfl_sync(0xffffffff, fetched, 2 * i), __shfl_sync(0xffffffff, fetched, 2 * i + 1)};
    }

  private:
    const A* from_;
    int rows_, ahead_;
};

// The first and the last of a cluster's rows for which ShiftedMoments do not suffice.
struct InexactRows {
    int first = 0, last = -1;
    __device__ bool any() const { return last >= 0; }
    __device__ void note(int row) {
        if (!any()) first = row;
        last = row;
    }
};

// From the first to the last of those, again, the rows where ShiftedMoments have lost digits: y
// from x. It is no part of the kernel's loop: there even a branch that is never taken costs 6%.
// N: vectors of a thread in a row.
template <class T, int N, class Reduce>
__device__ __noinline__ void redo_inexact(
    const T* x, const T* weight, const T* bias, T* y, Acc<T>* mean, Acc<T>* rstd,
    InexactRows inexact, int cols, int blocks, Reduce reduce, Acc<T> inverse_cols, Acc<T> eps) {
    using Shifted = ShiftedMoments<T>;
    constexpr int V = kVec<T>;
    const Columns<T> column(0, cluster_rank(), blocks);
    // Two threads have stored each vector that ClampedColumns let both have. The exchange of sums
    // below then has their stores come before the one of this function.
    __threadfence();
    for (int row = inexact.first; row <= inexact.last; row += clusters()) {
        const T* in = x + int64_t(row) * cols;
        T* out = y + int64_t(row) * cols;
        const auto each = [&](auto visit) {
#pragma unroll 1
            for (int n = 0; n < N && column[n] < cols; ++n) visit(load<V>(in + column[n]));
        };
        const Acc<T> shift = Shifted::shift_of(load<V>(in));
        Sums<2, Acc<T>> sums = {0, 0};
        each([&](const Vec<T, V>& v) { Shifted::add(sums, v, shift); });
        if (Shifted::suffice(Shifted::from(reduce(sums), shift, inverse_cols, eps), shift))
            continue;
        const Moments<Acc<T>> of = two_pass_moments<T>(each, reduce, inverse_cols, eps);
#pragma unroll 1
        for (int n = 0; n < N && column[n] < cols; ++n) {
            const int c = column[n];
            store(out + c,
                  shift_and_scale(load<V>(in + c), of, load<V>(weight + c), load<V>(bias + c)));
        }
        if (column.first == 0) store_moments(of, row, mean, rstd);
    }
}

// What dx takes of a row that no cluster can keep: the averages over the row of h = g * weight and,
// times rstd, of h * xhat. averages: [rows, 2]
template <class T>
__global__ __launch_bounds__(kSumThreads, 2) void averages_stream(
    const T* g, const T* x, const T* weight, const Acc<T>* mean, const Acc<T>* rstd,
    Acc<T>* averages, int cols, int blocks, Acc<T> inverse_cols) {
    using A = Acc<T>;
    RowStream<T, 2> stream(cols, blocks, 0);
    RowReduce reduce(blocks);
    const int64_t row = cluster_index();
    const A m = mean[row], r = rstd[row];
    Sums<2, A> mine = {0, 0};
    const auto add = [&](int c, const auto& v) {
        const Vec<T, kVec<T>> w = load<kVec<T>>(weight + c);
        for (int k = 0; k < kVec<T>; ++k) {
            const A h = multiply_rn(A(v[0][k]), A(w[k]));
            mine.values[0] += h;
            mine.values[1] += h * ((A(v[1][k]) - m) * r);
        }
    };
    stream.read(add, g + row * cols, x + row * cols);
    const auto sums = reduce(mine);
    if (!stream.is_first()) return;
    averages[2 * row] = sums[0] * inverse_cols;
    averages[2 * row + 1] = sums[1] * inverse_cols * r;
}

// ---- launch choices

constexpr RowShape kForwardShapes[] = {
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
constexpr int kNarrowVectors = 4;  // of a thread, in a row that a warp can so hold

// Threads that a row needs in backward.
template <class T>
int64_t backward_threads(int64_t cols) {
    return ceil_div<int64_t>(cols / kVec<T>, kBackwardVectors<T>);
}

// The launch of a backward kernel whose blocks stay, take row after row, and leave the sums of
// their columns. bytes: of shared memory, for each thread.
template <class T, class... P>
RowLaunch backward_launch(void (*kernel)(P...), int64_t rows, int64_t cols, int bytes) {
    const int64_t needed = backward_threads<T>(cols), blocks = blocks_of(needed, kBackwardThreads);
    if (blocks > kMostBlocks || (blocks > 1 && !has_clusters(kernel))) return {};
    if (blocks > 1) return persistent_launch(kernel, blocks, needed, rows, bytes);
    // Rows of up to 256 threads have two blocks of a multiprocessor at least, which hide each
    // other's barriers; narrow ones share a block, as far as no thread is left over by that.
    dim3 block(needed <= kWarp / 2 ? kWarp / 2 : round_up_to_warps(needed));
    const auto at_once = [](int threads) { return kBackwardThreads / threads; };
    for (int threads = block.x; 2 * threads <= kBackwardThreads / 2; threads *= 2) {
        if (at_once(threads) > 2 * at_once(2 * threads)) break;
        block.y *= 2;
    }
    const int threads = block.x * block.y;
    bytes *= threads;
    if (!allow(kernel, bytes)) return {};
    // The grid has as many blocks as run at once; where that makes rows begin alike, a multiple of
    // V (GridStride).
    const int64_t V = cols % kVec<T> == 0 ? 1 : kVec<T>;
    const int64_t wanted = ceil_div<int64_t>(rows, block.y),
                  most = multiprocessors() * at_once(threads);
    const int64_t grid = smaller(ceil_div(wanted, V), most < V ? 1 : most / V) * V;
    return {dim3(grid), block, 1, bytes};
}

// Blocks of threads (columns, slices of the rows) for a sum over rows, enough of both to give each
// multiprocessor 2048 threads; but no more blocks down the rows than the second pass has sums of a
// column in flight. Narrow rows have as many threads across as columns, so that a warp has several
// rows.
struct Slices {
    dim3 block, grid;
    Slices(int64_t rows, int64_t cols) : block(kWarp) {
        while (block.x > 1 && block.x / 2 >= cols) block.x /= 2;
        block.y = kSliceThreads / block.x;
        const int64_t across = ceil_div<int64_t>(cols, block.x);
        const int64_t down = smaller(
            ceil_div<int64_t>(rows, block.y), ceil_div<int64_t>(multiprocessors() * 8, across));
        grid = dim3(across, smaller<int64_t>(down, kSumsAhead * kSumThreads / 8));
    }
    Slices(dim3 block, dim3 grid) : block(block), grid(grid) {}
    int64_t count() const { return grid.y; }  // a block leaves one sum of each column
};

// The same of vectors, for kernels that write dx as well. Their blocks lie across the columns,
// where they read and write neighbours, and are as many as run at the same time.
constexpr int kRowsAhead = 2;    // in flight per thread
constexpr int kSliceBlocks = 4;  // of a multiprocessor: 64 registers a thread

template <class T>
Slices vector_slices(int64_t rows, int64_t cols) {
    const int64_t across = ceil_div<int64_t>(cols, kSliceThreads * kVec<T>);
    const int64_t down = smaller(rows, multiprocessors() * kSliceBlocks / across);
    return {dim3(kSliceThreads), dim3(across, smaller<int64_t>(down < 1 ? 1 : down, 65535))};
}

// The kernels of an op's backward that hold a row in vectors; Arguments is the struct that they
// take. Where a type has no vectors, or the target no clusters, they are null.
template <class Arguments>
struct BackwardKernels {
    void (*vector)(Arguments) = nullptr;  // of aligned rows that one block holds
    void (*edges)(Arguments) = nullptr;   // of rows that begin between two boundaries
    void (*cluster)(Arguments, int blocks) = nullptr;
    int bytes = 0, cluster_bytes = 0;  // of shared memory, for each thread
    int most = kBackwardThreads;       // threads of a row that are left to `vector`
};

// Which kernel backward takes for rows of this width: of those that its version allows, from block
// on, the last one that can take such rows.
template <class T>
struct BackwardPlan {
    enum Kernel { block, vector, edges, cluster, stream } kernel = block;
    Slices slices;          // of block and stream, which read the rows once more for the columns
    RowLaunch launch = {};  // of the others

    // first: a tensor whose rows begin as those of all others do. are_aligned: do all tensors begin
    // on a boundary?
    template <class Arguments>
    BackwardPlan(const BackwardKernels<Arguments>& kernels, const T* first, bool are_aligned,
                 int64_t rows, int64_t cols, int64_t version)
        : slices(rows, cols), rows_(rows), cols_(cols) {
        if (!kHasVectors<T> || version < kVector || !are_aligned) return;
        const auto launch_of = [&](auto kernel, int bytes) {
            return backward_launch<T>(kernel, rows, cols, bytes);
        };
        if (rows_are_aligned<T>(cols, first)) {
            offer(vector, launch_of(kernels.vector, kernels.bytes));
            // (Where no block has a second row, there is none to fetch ahead.)
            const bool is_wide = backward_threads<T>(cols) > kernels.most &&
                                 (launch.blocks == 0 || rows > multiprocessors());
            if (kernels.cluster != nullptr && version >= kCluster && is_wide)
                offer(cluster, launch_of(kernels.cluster, kernels.cluster_bytes));
            if (version >= kStream) offer_stream();
        } else if (may_have_edges<T>(cols, first)) {
            offer(edges, launch_of(kernels.edges, kernels.bytes));
        }
    }

    // Starts the kernel, if it is one of those.
    template <class Arguments>
    void start(const BackwardKernels<Arguments>& kernels, cudaStream_t stream,
               const Arguments& arguments) const {
        if (kernel == vector) launch.start(kernels.vector, stream, arguments);
        if (kernel == edges) launch.start(kernels.edges, stream, arguments);
        if (kernel == cluster) launch.start(kernels.cluster, stream, arguments, launch.blocks);
    }

    // How many partial sums of each column are left.
    int64_t count() const { return launch.blocks > 0 ? launch.slices() : slices.count(); }

    // Whether one block of each column has all rows, so that the first pass is the last one.
    bool is_whole() const { return count() == 1 && kernel != cluster && kernel != stream; }

    // How many rows [cols] they take, with the averages of the rows, [rows, 2], behind them.
    int64_t partials() const {
        return count() + (kernel == stream ? ceil_div<int64_t>(2 * rows_, cols_) : 0);
    }
    Acc<T>* averages(Acc<T>* partials) const { return partials + count() * cols_; }

  private:
    void offer(Kernel offered, const RowLaunch& candidate) {
        if (candidate.blocks == 0 || (candidate.blocks > 1 && offered != cluster)) return;
        kernel = offered;
        launch = candidate;
    }
    void offer_stream() {
        if (kernel != block) return;
        kernel = stream;
        slices = vector_slices<T>(rows_, cols_);
    }

    int64_t rows_, cols_;
};
