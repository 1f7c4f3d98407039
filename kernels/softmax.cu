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

#include "edges.cuh"
#include "softmax.cuh"
#include "waiting.cuh"
#include "walk.cuh"

// Elements per access. double, which is here for checks of gradients, does without vectors and
// without the versions that need them, for every kernel more takes time to compile.
template <class T>
constexpr int kAccess = sizeof(T) == 8 ? 1 : kVec<T>;

// Do small errors of the arithmetic show in a result, or does rounding it to T hide them?
template <class T>
constexpr bool kExact = sizeof(T) > 2;

// ---- naive: one thread per row.
// Flaw: neighbouring threads read cols apart, rows threads cannot fill a GPU, and forward reads x
// three times, backward g and y twice.
// (unroll 1: loops left rolled compile faster, and nothing here is about speed.)

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
    LongSum<A> sum;
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
    LongSum<A> dot, lack;
#pragma unroll 1
    for (int64_t c = 0; c < cols; ++c) dot += A(g[c]) * A(y[c]);
    if (kExact<T>) {
#pragma unroll 1
        for (int64_t c = 0; c < cols; ++c) lack += (A(g[c]) - dot.value) * A(y[c]);
    }
#pragma unroll 1
    for (int64_t c = 0; c < cols; ++c) dx[c] = T(A(y[c]) * (A(g[c]) - dot.value - lack.value));
}

// ---- online: the threads of one or more warps share a row, and neighbouring threads read
// neighbours. Max and sum come from one pass: what is in the sum is scaled down when the max grows.
// V is 1 here; vector, where it cannot keep a row, takes these kernels with V = kAccess, and
// cluster, with several blocks, for a row that it cannot keep and that is no multiple of the vector
// wide. Flaw: the row is read a second time for the result.

template <class T, int V>
__global__ void forward_online(const T* x, T* y, int64_t rows, int64_t cols, int blocks) {
    using A = Acc<T>;
    const int64_t first = (cluster_rank() * blockDim.x + threadIdx.x) * V;
    const int64_t step = blocks * blockDim.x * V;
    const int64_t stride = int64_t(clusters()) * blockDim.y;
    RowMerge merge(blocks);
    for (int64_t top = int64_t(cluster_index(blocks)) * blockDim.y; top < rows; top += stride) {
        const int64_t row = top + threadIdx.y;
        const int64_t end = row < rows ? cols : 0;  // past the last row there is nothing to do
        Soft<T> soft = Soft<T>::of_nothing();
#pragma unroll 4
        for (int64_t c = first; c < end; c += step) {
            const Vec<T, V> v = load<V>(x + row * cols + c);
            A most = A(v[0]);
            for (int k = 1; k < V; ++k) most = larger(most, A(v[k]));
            soft.raise(most);
            const A shift = soft.shift();
            for (int k = 0; k < V; ++k) soft.add(A(v[k]), shift);
        }
        soft = merge(soft);
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
    RowMerge merge(blocks);
    for (int64_t top = int64_t(cluster_index(blocks)) * blockDim.y; top < rows; top += stride) {
        const int64_t row = top + threadIdx.y;
        const int64_t end = row < rows ? cols : 0;
        Total<A> dot = {0}, lack = {0};
#pragma unroll 4
        for (int64_t c = first; c < end; c += step) {
            const Vec<T, V> u = load<V>(g + row * cols + c), v = load<V>(y + row * cols + c);
            for (int k = 0; k < V; ++k) dot.value += A(u[k]) * A(v[k]);
        }
        dot = merge(dot);
        if (kExact<T>) {
#pragma unroll 4
            for (int64_t c = first; c < end; c += step) {
                const Vec<T, V> u = load<V>(g + row * cols + c), v = load<V>(y + row * cols + c);
                for (int k = 0; k < V; ++k) lack.value += (A(u[k]) - dot.value) * A(v[k]);
            }
            lack = merge(lack);
        }
#pragma unroll 4
        for (int64_t c = first; c < end; c += step) {
            const Vec<T, V> u = load<V>(g + row * cols + c);
            Vec<T, V> v = load<V>(y + row * cols + c);
            for (int k = 0; k < V; ++k) v[k] = T(A(v[k]) * (A(u[k]) - dot.value - lack.value));
            store(dx + row * cols + c, v);
        }
    }
}

// ---- vector: a row waits in shared memory, to which asynchronous copies of 16 bytes bring it
// without a register on the way. So memory is read once, and much is on its way at any time: 128
// bytes to each thread, 192 KiB to a multiprocessor. A thread takes the max of its own part first,
// and the powers from that, so that one barrier is enough. Where rows are no multiple of the vector
// wide, they begin and end with single elements (edges.cuh), which wait in registers.
// Flaw: a row is as wide as 512 threads can hold.
//
// ---- cluster: a row too wide for one block is spread over several, which merge their parts in
// each other's shared memory. Needs Hopper; elsewhere such a row goes back to online.
// A row that does not fit there either is walked: some of it is read again.
// Flaw: such a row goes back to online if it is no multiple of the vector wide.

template <class T, bool kWhole>
__global__ __launch_bounds__(kMostThreads, kWaitingBlocks) void forward_vector(
    const T* x, T* y, int64_t rows, int cols, int blocks) {
    using A = Acc<T>;
    constexpr int V = kVec<T>, N = kVectors<1>;
    Part<T, 1> part(blocks);
    RowMerge merge(blocks);
    const int64_t stride = int64_t(clusters()) * blockDim.y;
    for (int64_t top = int64_t(cluster_index(blocks)) * blockDim.y; top < rows; top += stride) {
        const int64_t row = top + threadIdx.y;
        const T* in = x + row * cols;
        const Inner<T, kWhole> inner(in, row < rows ? cols : 0);  // past the last one nothing
        const int end = inner.width();
        T edges[2] = {};
        inner.edges(part.thread(), [&](int n, int c) { edges[n] = in[c]; });
        if (end > 0) part.fetch(end, in + inner.begin);
        part.await();
        Soft<T> mine = Soft<T>::of_nothing();
#pragma unroll
        for (int n = 0; n < N; ++n) {
            if (part.column(n) >= end) break;
            const Vec<T, V> v = part.at(n, 0);
            for (int k = 0; k < V; ++k) mine.max = larger(mine.max, A(v[k]));
        }
        const A shift = mine.shift();
#pragma unroll
        for (int n = 0; n < N; ++n) {
            if (part.column(n) >= end) break;
            const Vec<T, V> v = part.at(n, 0);
            for (int k = 0; k < V; ++k) mine.add(A(v[k]), shift);
        }
        inner.edges(part.thread(), [&](int n, int) {
            mine.raise(A(edges[n]));
            mine.add(A(edges[n]), mine.shift());
        });
        const Soft<T> all = merge(mine);
        const Ratio<T> share(1, all.sum);
        const auto result = [&](T x) { return T(share * exponential<T>(A(x) - all.max)); };
        T* out = y + row * cols;
#pragma unroll
        for (int n = 0; n < N; ++n) {
            const int c = part.column(n);
            if (c >= end) break;
            Vec<T, V> v = part.at(n, 0);
            for (int k = 0; k < V; ++k) v[k] = result(v[k]);
            store_at_once(out + inner.begin + c, v);
        }
        inner.edges(part.thread(), [&](int n, int c) { out[c] = result(edges[n]); });
    }
}

template <class T, bool kWhole>
__global__ __launch_bounds__(kMostThreads, kWaitingBlocks) void backward_vector(
    const T* g, const T* y, T* dx, int64_t rows, int cols, int blocks) {
    using A = Acc<T>;
    constexpr int V = kVec<T>, N = kVectors<2>;
    Part<T, 2> part(blocks);
    RowMerge merge(blocks);
    const int64_t stride = int64_t(clusters()) * blockDim.y;
    for (int64_t top = int64_t(cluster_index(blocks)) * blockDim.y; top < rows; top += stride) {
        const int64_t row = top + threadIdx.y;
        const T *g_row = g + row * cols, *y_row = y + row * cols;
        T* out = dx + row * cols;
        const Inner<T, kWhole> inner(g_row, row < rows ? cols : 0);
        const int end = inner.width();
        T g_edges[2] = {}, y_edges[2] = {};
        inner.edges(
            part.thread(), [&](int n, int c) { g_edges[n] = g_row[c], y_edges[n] = y_row[c]; });
        if (end > 0) part.fetch(end, g_row + inner.begin, y_row + inner.begin);
        part.await();
        Total<A> dot = {0}, lack = {0};
        inner.edges(part.thread(), [&](int n, int) { dot.value += A(g_edges[n]) * A(y_edges[n]); });
#pragma unroll
        for (int n = 0; n < N; ++n) {
            if (part.column(n) >= end) break;
            const Vec<T, V> u = part.at(n, 0), v = part.at(n, 1);
            for (int k = 0; k < V; ++k) dot.value += A(u[k]) * A(v[k]);
        }
        dot = merge(dot);
        if (kExact<T>) {
            const auto add_lack = [&](T u, T v) { lack.value += (A(u) - dot.value) * A(v); };
            inner.edges(part.thread(), [&](int n, int) { add_lack(g_edges[n], y_edges[n]); });
#pragma unroll
            for (int n = 0; n < N; ++n) {
                if (part.column(n) >= end) break;
                const Vec<T, V> u = part.at(n, 0), v = part.at(n, 1);
                for (int k = 0; k < V; ++k) add_lack(u[k], v[k]);
            }
            lack = merge(lack);
        }
        const auto result = [&](T u, T v) { return T(A(v) * (A(u) - dot.value - lack.value)); };
#pragma unroll
        for (int n = 0; n < N; ++n) {
            const int c = part.column(n);
            if (c >= end) break;
            const Vec<T, V> u = part.at(n, 0);
            Vec<T, V> v = part.at(n, 1);
            for (int k = 0; k < V; ++k) v[k] = result(u[k], v[k]);
            store_at_once(out + inner.begin + c, v);
        }
        inner.edges(part.thread(), [&](int n, int c) { out[c] = result(g_edges[n], y_edges[n]); });
    }
}

// Vectors of each tensor that stay in a thread's registers, of a row that no cluster can keep.
constexpr int kHeldForward = 3, kHeldBackward = 2;

template <class T>
__global__ __launch_bounds__(kHalfThreads, 2) void forward_long(const T* x, T* y, int cols,
                                                                int blocks, int kept) {
    using A = Acc<T>;
    Walk<T, 1, kHeldForward> walk(cols, blocks, kept);
    RowMerge<kHalfThreads / kWarp> merge(blocks);
    const int64_t begin = int64_t(cluster_index()) * cols;
    const T* in = x + begin;
    T* out = y + begin;
    Soft<T> mine = Soft<T>::of_nothing();
    const auto add = [&](int, const auto& v) {
        mine.raise(largest(v));
        mine.add(v);
    };
    walk.read(add, in);
    const Soft<T> all = merge(mine);
    const Ratio<T> share(1, all.sum);
    const auto finish = [&](int c, auto& v) {
        for (T& value : v[0].at) value = T(share * exponential<T>(A(value) - all.max));
        store(out + c, v[0]);
    };
    walk.read_again(finish, in);
}

template <class T, int kThreads>
__global__ __launch_bounds__(kThreads, kAllThreads / kThreads) void backward_long(
    const T* g, const T* y, T* dx, int cols, int blocks, int kept) {
    using A = Acc<T>;
    constexpr int V = kVec<T>;
    Walk<T, 2, kHeldBackward> walk(cols, blocks, kept);
    RowMerge<kThreads / kWarp> merge(blocks);
    const int64_t begin = int64_t(cluster_index()) * cols;
    const T *g_row = g + begin, *y_row = y + begin;
    T* out = dx + begin;
    Total<A> dot = {0}, lack = {0};
    const auto add = [&](int, const auto& v) {
        for (int k = 0; k < V; ++k) dot.value += A(v[0][k]) * A(v[1][k]);
    };
    walk.read(add, g_row, y_row);
    dot = merge(dot);
    if (kExact<T>) {
        const auto add_lack = [&](int, const auto& v) {
            for (int k = 0; k < V; ++k) lack.value += (A(v[0][k]) - dot.value) * A(v[1][k]);
        };
        walk.read_again(add_lack, g_row, y_row);
        lack = merge(lack);
    }
    const auto finish = [&](int c, auto& v) {
        for (int k = 0; k < V; ++k) v[1][k] = T(A(v[1][k]) * (A(v[0][k]) - dot.value - lack.value));
        store(out + c, v[1]);
    };
    walk.read_again(finish, g_row, y_row);
}

// ---- launch choices

struct Shape {
    int threads, rows, blocks;  // threads of a row in a block, rows of a block, blocks of a row
};

// For rows that wait in shared memory: the first one that has room for the row and that the GPU can
// launch; of a row that has its blocks to itself, no more warps than it needs.
constexpr Shape kShapes[] = {
    // columns of a 2-byte type, forward; backward half as many
    {8, 16, 1},   //    512; rows of one warp, whose sums need no barrier
    {16, 8, 1},   //   1024
    {32, 4, 1},   //   2048
    {64, 2, 1},   //   4096
    {128, 1, 1},  //   8192
    {256, 1, 1},  //  16384
    {512, 1, 1},  //  32768
    {256, 1, 4},  //  65536; not {512, 1, 2}: smaller blocks begin and end at more times
    {256, 1, 8},  // 131072
    {512, 1, 8},  // 262144
};

struct Plan {
    Shape shape;
    bool whole;         // is a row nothing but vectors?
    bool waits, walks;  // does all of the row wait in shared memory? what there is room for?
    int bytes;          // of shared memory that a block's rows need, if all of them wait
};

// K: as many tensors are read. blocks: of a row, at most. tensors: all, read and written.
template <class T, int K, class... P>
Plan plan_of(int64_t cols, int64_t version, int blocks, const P*... tensors) {
    constexpr int V = kAccess<T>;
    const bool may = V > 1 && version >= 2;
    const bool whole = may && is_aligned(tensors...) && cols % V == 0;
    const bool edges = may && may_have_edges<T>(cols, tensors...);
    for (Shape shape : kShapes) {
        const int64_t each = ceil_div<int64_t>(cols / V, shape.blocks * kVectors<K>);  // threads
        if (!(whole || edges) || each > shape.threads || shape.blocks > blocks) continue;
        if (shape.rows == 1) shape.threads = whole_warps(each);
        const int bytes = waiting_bytes(shape.threads * shape.rows);
        if (bytes + kMergeBytes <= shared_bytes()) return {shape, whole, true, false, bytes};
    }
    const int64_t vectors = whole ? cols / V : cols;
    // No more threads than there is work for, and no more blocks than have enough of it.
    int size = kWarp;
    while (size < kMostThreads && size < vectors) size *= 2;
    while (blocks > 1 && blocks * size * 8 > vectors) blocks /= 2;
    const bool walks = whole && version >= 3 && cols <= 1 << 30;  // a column there is an int
    return {{size, size < 128 ? 128 / size : 1, blocks}, whole, false, walks, 0};
}

// Blocks of a row, at most: more than one where the version and the GPU have clusters, in which the
// kernel is launched then.
template <class Kernel>
int row_blocks(Kernel* kernel, int64_t version) {
    return version >= 3 && has_clusters(kernel) ? kClusterBlocks : 1;
}

template <class Kernel, class... Arguments>
void launch(Kernel* kernel, const Plan& plan, int64_t rows, cudaStream_t stream,
            Arguments... arguments) {
    const int blocks = plan.shape.blocks;
    const dim3 block(plan.shape.threads, plan.shape.rows);
    const int64_t all = ceil_div<int64_t>(rows, plan.shape.rows) * blocks;
    const unsigned grid = grid_of(all) / blocks * blocks;
    if (plan.bytes > 0) {
        cudaFuncSetAttribute(kernel, cudaFuncAttributeMaxDynamicSharedMemorySize, plan.bytes);
    }
    if (blocks > 1) {
        launch_clusters(kernel, blocks, grid, block, plan.bytes, stream, arguments..., blocks);
    } else {
        kernel<<<grid, block, plan.bytes, stream>>>(arguments..., blocks);
    }
}

// ---- launchers. version: 0 naive, 1 online, 2 vector, 3 cluster

template <class T>
cudaError_t softmax_forward(const T* x, T* y, int64_t rows, int64_t cols, int64_t version,
                            cudaStream_t stream) {
    if (rows == 0 || cols == 0) return cudaSuccess;
    if (version == 0) {
        forward_naive<<<ceil_div<int64_t>(rows, 128), 128, 0, stream>>>(x, y, rows, cols);
        return cudaGetLastError();
    }
    constexpr int V = kAccess<T>;
    const int blocks = row_blocks(forward_online<T, V>, version);
    const Plan plan = plan_of<T, 1>(cols, version, blocks, x, y);
    if constexpr (V > 1) {
        if (plan.waits) {
            const auto kernel = plan.whole ? forward_vector<T, true> : forward_vector<T, false>;
            launch(kernel, plan, rows, stream, x, y, rows, int(cols));
            return cudaGetLastError();
        }
        if (plan.walks) {
            const LongLaunch walk = long_launch<T, 1>(forward_long<T>, kHalfThreads, rows, cols);
            walk.start(forward_long<T>, stream, x, y, int(cols), walk.blocks, walk.kept);
            return cudaGetLastError();
        }
    }
    const auto kernel = plan.whole ? forward_online<T, V> : forward_online<T, 1>;
    launch(kernel, plan, rows, stream, x, y, rows, cols);
    return cudaGetLastError();
}

template <class T>
cudaError_t softmax_backward(const T* g, const T* y, T* dx, int64_t rows, int64_t cols,
                             int64_t version, cudaStream_t stream) {
    if (rows == 0 || cols == 0) return cudaSuccess;
    if (version == 0) {
        backward_naive<<<ceil_div<int64_t>(rows, 128), 128, 0, stream>>>(g, y, dx, rows, cols);
        return cudaGetLastError();
    }
    constexpr int V = kAccess<T>;
    const int blocks = row_blocks(backward_online<T, V>, version);
    const Plan plan = plan_of<T, 2>(cols, version, blocks, g, y, dx);
    if constexpr (V > 1) {
        if (plan.waits) {
            const auto kernel = plan.whole ? backward_vector<T, true> : backward_vector<T, false>;
            launch(kernel, plan, rows, stream, g, y, dx, rows, int(cols));
            return cudaGetLastError();
        }
        if (plan.walks) {
            auto kernel = backward_long<T, kHalfThreads>;
            LongLaunch walk = long_launch<T, 2>(kernel, kHalfThreads, rows, cols);
            if (walk.left > kHeldBackward) {  // and would be read again
                kernel = backward_long<T, kAllThreads>;
                walk = long_launch<T, 2>(kernel, kAllThreads, rows, cols);
            }
            walk.start(kernel, stream, g, y, dx, int(cols), walk.blocks, walk.kept);
            return cudaGetLastError();
        }
    }
    const auto kernel = plan.whole ? backward_online<T, V> : backward_online<T, 1>;
    launch(kernel, plan, rows, stream, g, y, dx, rows, cols);
    return cudaGetLastError();
}

#define INSTANTIATE(T)                                          \
    template cudaError_t softmax_forward<T>(                    \
        const T*, T*, int64_t, int64_t, int64_t, cudaStream_t); \
    template cudaError_t softmax_backward<T>(                   \
        const T*, const T*, T*, int64_t, int64_t, int64_t, cudaStream_t);
FOR_EACH_TYPE(INSTANTIATE)
