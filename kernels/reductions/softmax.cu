// softmax: y = e^(x - max) / sum of e^(x - max), with the max and the sum of each row
//
//   x, y, g, dx [rows, cols] T        g: the gradient that arrives, dx: the gradient that leaves
//
// Traffic, the least a kernel can move: forward reads x and writes y, 2 * sizeof(T) bytes per
// element; backward reads g and y and writes dx, 3 * sizeof(T). Without subtracting the max, e^x
// would overflow; with it the result is the same, for numerator and denominator change alike.
//
// Backward is dx = y * (g - dot), with dot = sum of g * y over the row: an average of g, for the y
// add up to 1. But only nearly, and the sum is rounded; both show in dx where g is close to dot,
// and much where both are large. So dot is taken as rough, and the average of g - dot is what it
// lacks. Where T is a 2-byte type, the rounding of y itself is larger than that, and the rough one
// will do.

#include "cluster.cuh"
#include "softmax.cuh"

enum Version : int64_t { kNaive, kOnline, kVector, kCluster, kStream };  // as in softmax.py

// Elements per access, where rows are aligned.
template <class T>
constexpr int kAccess = kHasVectors<T> ? kVec<T> : 1;

// Do small errors of the arithmetic show in a result, or does rounding it to T hide them?
template <class T>
constexpr bool kExact = sizeof(T) > 2;

// ---- naive: one thread per row.
// Flaw: reads are not coalesced, rows threads cannot fill a GPU, and forward reads x
// three times, backward g and y twice.
// (unroll 1: rolled loops compile faster, and speed does not matter here.)

template <class T>
__global__ void forward_naive(const T* x, T* y, int64_t rows, int64_t cols) {
    using A = Acc<T>;
    const int64_t row = int64_t(blockIdx.x) * blockDim.x + threadIdx.x;
    if (row >= rows) return;
    x += row * cols;
    y += row * cols;
    A max = -A(INFINITY);
#pragma unroll 1
    for (int64_t c = 0; c < cols; ++c) max = larger(max, A(x[c]));
    KahanSum<A> sum;
#pragma unroll 1
    for (int64_t c = 0; c < cols; ++c) sum += exponential<T>(A(x[c]) - max);
#pragma unroll 1
    for (int64_t c = 0; c < cols; ++c) y[c] = T(exponential<T>(A(x[c]) - max) / sum.value);
}

template <class T>
__global__ void backward_naive(const T* g, const T* y, T* dx, int64_t rows, int64_t cols) {
    using A = Acc<T>;
    const int64_t row = int64_t(blockIdx.x) * blockDim.x + threadIdx.x;
    if (row >= rows) return;
    g += row * cols;
    y += row * cols;
    dx += row * cols;
    KahanSum<A> dot, lack;
#pragma unroll 1
    for (int64_t c = 0; c < cols; ++c) dot += A(g[c]) * A(y[c]);
    if (kExact<T>) {
#pragma unroll 1
        for (int64_t c = 0; c < cols; ++c) lack += (A(g[c]) - dot.value) * A(y[c]);
    }
#pragma unroll 1
    for (int64_t c = 0; c < cols; ++c) dx[c] = T(A(y[c]) * (A(g[c]) - dot.value - lack.value));
}

// ---- online: the threads of one or more warps share a row, and reads
// are coalesced. Max and sum come from one pass: what is in the sum is scaled down when the max
// grows. V is 1 here. For rows that they cannot keep, vector takes these kernels with V = kAccess,
// and cluster with several blocks as well. Flaw: the row is read a second time for the result.

template <class T, int V>
__global__ void forward_online(const T* x, T* y, int64_t rows, int64_t cols, int blocks) {
    using A = Acc<T>;
    const int64_t first = (cluster_rank() * blockDim.x + threadIdx.x) * V;
    const int64_t step = blocks * blockDim.x * V;
    const int64_t stride = int64_t(clusters()) * blockDim.y;
    RowReduce reduce(blocks);
    for (int64_t top = int64_t(cluster_index(blocks)) * blockDim.y; top < rows; top += stride) {
        const int64_t row = top + threadIdx.y;
        const int64_t end = row < rows ? cols : 0;  // past the last row there is nothing to do
        OnlineSoftmax<T> soft = OnlineSoftmax<T>::identity();
#pragma unroll 4
        for (int64_t c = first; c < end; c += step) {
            const Vec<T, V> v = load<V>(x + row * cols + c);
            A most = A(v[0]);
            for (int k = 1; k < V; ++k) most = larger(most, A(v[k]));
            soft.raise(most);
            const A shift = soft.shift();
            for (int k = 0; k < V; ++k) soft.add(A(v[k]), shift);
        }
        soft = reduce(soft);
        const Ratio<T> share(1, soft.sum);
#pragma unroll 4
        for (int64_t c = first; c < end; c += step) {
            Vec<T, V> v = load<V>(x + row * cols + c);
            for (int k = 0; k < V; ++k) v[k] = T(share * exponential<T>(A(v[k]) - soft.max));
            store(y + row * cols + c, v);
        }
    }
}

template <class T, int V>
__global__ void backward_online(const T* g, const T* y, T* dx, int64_t rows, int64_t cols,
                                int blocks) {
    using A = Acc<T>;
    const int64_t first = (cluster_rank() * blockDim.x + threadIdx.x) * V;
    const int64_t step = blocks * blockDim.x * V;
    const int64_t stride = int64_t(clusters()) * blockDim.y;
    RowReduce reduce(blocks);
    for (int64_t top = int64_t(cluster_index(blocks)) * blockDim.y; top < rows; top += stride) {
        const int64_t row = top + threadIdx.y;
        const int64_t end = row < rows ? cols : 0;
        Sums<1, A> dot = {0}, lack = {0};
#pragma unroll 4
        for (int64_t c = first; c < end; c += step) {
            const Vec<T, V> u = load<V>(g + row * cols + c), v = load<V>(y + row * cols + c);
            for (int k = 0; k < V; ++k) dot.values[0] += A(u[k]) * A(v[k]);
        }
        dot = reduce(dot);
        if (kExact<T>) {
#pragma unroll 4
            for (int64_t c = first; c < end; c += step) {
                const Vec<T, V> u = load<V>(g + row * cols + c), v = load<V>(y + row * cols + c);
                for (int k = 0; k < V; ++k) lack.values[0] += (A(u[k]) - dot.values[0]) * A(v[k]);
            }
            lack = reduce(lack);
        }
#pragma unroll 4
        for (int64_t c = first; c < end; c += step) {
            const Vec<T, V> u = load<V>(g + row * cols + c);
            Vec<T, V> v = load<V>(y + row * cols + c);
            for (int k = 0; k < V; ++k)
                v[k] = T(A(v[k]) * (A(u[k]) - dot.values[0] - lack.values[0]));
            store(dx + row * cols + c, v);
        }
    }
}

// ---- vector: a row waits in shared memory, to which asynchronous copies of 16 bytes bring it
// without a register on the way. So memory is read once, and much is on its way at any time: 128
// bytes to each thread, 192 KiB to a multiprocessor. A thread takes the max of its own part first,
// and the powers from that, so that one barrier is enough. Where rows are no multiple of the vector
// wide, they begin and end with single elements (rows.cuh), which wait in registers.
// Flaw: a row is as wide as 512 threads can hold.
//
// ---- cluster: the same kernels with several blocks for a row, which reduce in each other's shared
// memory. Needs Hopper. Flaw: a row that does not fit there either falls back to online.

// The row, where K tensors are read.
template <class T, int K>
using WaitingRow = SharedRows<T, kSharedVectors / K, K>;

template <class T, bool kAligned>
__global__ __launch_bounds__(kSharedThreads, kSharedBlocks) void forward_vector(
    const T* x, T* y, int64_t rows, int cols, int blocks) {
    using A = Acc<T>;
    using Row = WaitingRow<T, 1>;
    constexpr int V = kVec<T>, N = kSharedVectors;
    const Columns<T> column(0, cluster_rank(), blocks);
    const int thread = column.first / V;
    RowReduce reduce(blocks);
    const int64_t stride = int64_t(clusters()) * blockDim.y;
    for (int64_t top = int64_t(cluster_index(blocks)) * blockDim.y; top < rows; top += stride) {
        const int64_t row = top + threadIdx.y;
        const T* in = x + row * cols;
        const Interior<T, kAligned> interior(
            in, row < rows ? cols : 0);  // past the last one nothing
        const int end = interior.width();
        T edges[2] = {};
        interior.edges(thread, [&](int n, int c) { edges[n] = in[c]; });
        if (end > 0) Row::fetch(0, column, end, in + interior.begin);
        cp_async_wait<0>();
        OnlineSoftmax<T> mine = OnlineSoftmax<T>::identity();
#pragma unroll
        for (int n = 0; n < N; ++n) {
            if (column[n] >= end) break;
            const Vec<T, V> v = Row::at(n);
            for (int k = 0; k < V; ++k) mine.max = larger(mine.max, A(v[k]));
        }
        const A shift = mine.shift();
#pragma unroll
        for (int n = 0; n < N; ++n) {
            if (column[n] >= end) break;
            const Vec<T, V> v = Row::at(n);
            for (int k = 0; k < V; ++k) mine.add(A(v[k]), shift);
        }
        interior.edges(thread, [&](int n, int) {
            mine.raise(A(edges[n]));
            mine.add(A(edges[n]), mine.shift());
        });
        const OnlineSoftmax<T> all = reduce(mine);
        const Ratio<T> share(1, all.sum);
        const auto result = [&](T x) { return T(share * exponential<T>(A(x) - all.max)); };
        T* out = y + row * cols;
#pragma unroll
        for (int n = 0; n < N; ++n) {
            const int c = column[n];
            if (c >= end) break;
            Vec<T, V> v = Row::at(n);
            for (int k = 0; k < V; ++k) v[k] = result(v[k]);
            store_at_once(out + interior.begin + c, v);
        }
        interior.edges(thread, [&](int n, int c) { out[c] = result(edges[n]); });
    }
}

template <class T, bool kAligned>
__global__ __launch_bounds__(kSharedThreads, kSharedBlocks) void backward_vector(
    const T* g, const T* y, T* dx, int64_t rows, int cols, int blocks) {
    using A = Acc<T>;
    using Row = WaitingRow<T, 2>;
    constexpr int V = kVec<T>, N = kSharedVectors / 2;
    const Columns<T> column(0, cluster_rank(), blocks);
    const int thread = column.first / V;
    RowReduce reduce(blocks);
    const int64_t stride = int64_t(clusters()) * blockDim.y;
    for (int64_t top = int64_t(cluster_index(blocks)) * blockDim.y; top < rows; top += stride) {
        const int64_t row = top + threadIdx.y;
        const T *g_row = g + row * cols, *y_row = y + row * cols;
        T* out = dx + row * cols;
        const Interior<T, kAligned> interior(g_row, row < rows ? cols : 0);
        const int end = interior.width();
        T g_edges[2] = {}, y_edges[2] = {};
        interior.edges(thread, [&](int n, int c) { g_edges[n] = g_row[c], y_edges[n] = y_row[c]; });
        if (end > 0) Row::fetch(0, column, end, g_row + interior.begin, y_row + interior.begin);
        cp_async_wait<0>();
        Sums<1, A> dot = {0}, lack = {0};
        interior.edges(thread, [&](int n, int) { dot.values[0] += A(g_edges[n]) * A(y_edges[n]); });
#pragma unroll
        for (int n = 0; n < N; ++n) {
            if (column[n] >= end) break;
            const Vec<T, V> u = Row::at(n), v = Row::at(n, 1);
            for (int k = 0; k < V; ++k) dot.values[0] += A(u[k]) * A(v[k]);
        }
        dot = reduce(dot);
        if (kExact<T>) {
            const auto add_lack = [&](T u, T v) {
                lack.values[0] += (A(u) - dot.values[0]) * A(v);
            };
            interior.edges(thread, [&](int n, int) { add_lack(g_edges[n], y_edges[n]); });
#pragma unroll
            for (int n = 0; n < N; ++n) {
                if (column[n] >= end) break;
                const Vec<T, V> u = Row::at(n), v = Row::at(n, 1);
                for (int k = 0; k < V; ++k) add_lack(u[k], v[k]);
            }
            lack = reduce(lack);
        }
        const auto result = [&](T u, T v) {
            return T(A(v) * (A(u) - dot.values[0] - lack.values[0]));
        };
#pragma unroll
        for (int n = 0; n < N; ++n) {
            const int c = column[n];
            if (c >= end) break;
            const Vec<T, V> u = Row::at(n);
            Vec<T, V> v = Row::at(n, 1);
            for (int k = 0; k < V; ++k) v[k] = result(u[k], v[k]);
            store_at_once(out + interior.begin + c, v);
        }
        interior.edges(thread, [&](int n, int c) { out[c] = result(g_edges[n], y_edges[n]); });
    }
}

// ---- stream, for rows that no cluster can keep; and which kernel takes which rows

#include "softmax_wide.cuh"

// ---- launchers. A version that cannot take the rows falls back to the one before.

// The launch of an online kernel for rows of so many accesses, with at most `blocks` blocks a row.
// It has no more threads than there is work for, and no more blocks than have enough of it.
inline RowLaunch online_launch(int64_t rows, int64_t accesses, int blocks) {
    int threads = kWarp;
    while (threads < kSharedThreads && threads < accesses) threads *= 2;
    while (blocks > 1 && blocks * threads * 8 > accesses) blocks /= 2;
    const dim3 block(threads, threads < 128 ? 128 / threads : 1);
    const int64_t grid = ceil_div<int64_t>(rows, block.y) * blocks;
    return {dim3(grid_of(grid) / blocks * blocks), block, blocks};
}

// Blocks of a row, at most: more than one where the version and the GPU have clusters.
template <class Kernel>
int row_blocks(Kernel* kernel, int64_t version) {
    return version >= kCluster && has_clusters(kernel) ? kClusterBlocks : 1;
}

template <class T>
cudaError_t softmax_forward(const T* x, T* y, int64_t rows, int64_t cols, int64_t version,
                            cudaStream_t stream) {
    if (rows == 0 || cols == 0) return cudaSuccess;
    if (version == kNaive) {
        forward_naive<<<ceil_div<int64_t>(rows, 128), 128, 0, stream>>>(x, y, rows, cols);
    } else if (!launch_forward(x, y, rows, cols, version, stream)) {
        const bool aligned = version >= kVector && cols % kAccess<T> == 0 && is_aligned(x, y);
        const auto kernel = aligned ? forward_online<T, kAccess<T>> : forward_online<T, 1>;
        const RowLaunch launch =
            online_launch(rows, aligned ? cols / kAccess<T> : cols, row_blocks(kernel, version));
        launch.start(kernel, stream, x, y, rows, cols, launch.blocks);
    }
    return cudaGetLastError();
}

template <class T>
cudaError_t softmax_backward(const T* g, const T* y, T* dx, int64_t rows, int64_t cols,
                             int64_t version, cudaStream_t stream) {
    if (rows == 0 || cols == 0) return cudaSuccess;
    if (version == kNaive) {
        backward_naive<<<ceil_div<int64_t>(rows, 128), 128, 0, stream>>>(g, y, dx, rows, cols);
    } else if (!launch_backward(g, y, dx, rows, cols, version, stream)) {
        const bool aligned = version >= kVector && cols % kAccess<T> == 0 && is_aligned(g, y, dx);
        const auto kernel = aligned ? backward_online<T, kAccess<T>> : backward_online<T, 1>;
        const RowLaunch launch =
            online_launch(rows, aligned ? cols / kAccess<T> : cols, row_blocks(kernel, version));
        launch.start(kernel, stream, g, y, dx, rows, cols, launch.blocks);
    }
    return cudaGetLastError();
}

#define INSTANTIATE(T)                                        \
    template decltype(softmax_forward<T>) softmax_forward<T>; \
    template decltype(softmax_backward<T>) softmax_backward<T>;
FOR_EACH_TYPE(INSTANTIATE)
