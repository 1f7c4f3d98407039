// softmax of rows that no cluster can keep: version stream. Some of a row waits in shared memory
// and in registers, the rest is read again. Flaw: a row that is no multiple of the vector wide goes
// back to online.
#pragma once

#include "launches.cuh"

// Vectors of each tensor that stay in a thread's registers.
constexpr int kHeldForward = 3, kHeldBackward = 2;

template <class T>
__global__ __launch_bounds__(kHalfThreads, 2) void forward_stream(const T* x, T* y, int cols,
                                                                  int blocks, int kept) {
    using A = Acc<T>;
    RowStream<T, 1, kHeldForward> stream(cols, blocks, kept);
    RowReduce<kHalfThreads / kWarp> reduce(blocks);
    const int64_t begin = int64_t(cluster_index()) * cols;
    const T* in = x + begin;
    T* out = y + begin;
    OnlineSoftmax<T> mine = OnlineSoftmax<T>::identity();
    const auto add = [&](int, const auto& v) {
        mine.raise(largest(v));
        mine.add(v);
    };
    stream.read(add, in);
    const OnlineSoftmax<T> all = reduce(mine);
    const Ratio<T> share(1, all.sum);
    const auto write_result = [&](int c, auto& v) {
        for (T& value : v[0].at) value = T(share * exponential<T>(A(value) - all.max));
        store(out + c, v[0]);
    };
    stream.read_again(write_result, in);
}

template <class T, int kThreads>
__global__ __launch_bounds__(kThreads, kAllThreads / kThreads) void backward_stream(
    const T* g, const T* y, T* dx, int cols, int blocks, int kept) {
    using A = Acc<T>;
    constexpr int V = kVec<T>;
    RowStream<T, 2, kHeldBackward> stream(cols, blocks, kept);
    RowReduce<kThreads / kWarp> reduce(blocks);
    const int64_t begin = int64_t(cluster_index()) * cols;
    const T *g_row = g + begin, *y_row = y + begin;
    T* out = dx + begin;
    Sums<1, A> dot = {0}, lack = {0};
    const auto add = [&](int, const auto& v) {
        for (int k = 0; k < V; ++k) dot.values[0] += A(v[0][k]) * A(v[1][k]);
    };
    stream.read(add, g_row, y_row);
    dot = reduce(dot);
    if (kExact<T>) {
        const auto add_lack = [&](int, const auto& v) {
            for (int k = 0; k < V; ++k) lack.values[0] += (A(v[0][k]) - dot.values[0]) * A(v[1][k]);
        };
        stream.read_again(add_lack, g_row, y_row);
        lack = reduce(lack);
    }
    const auto write_result = [&](int c, auto& v) {
        for (int k = 0; k < V; ++k)
            v[1][k] = T(A(v[1][k]) * (A(v[0][k]) - dot.values[0] - lack.values[0]));
        store(out + c, v[1]);
    };
    stream.read_again(write_result, g_row, y_row);
}

// ---- which kernel takes which rows

constexpr RowShape kShapes[] = {
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

// The launch of a kernel for which rows of K tensors wait in shared memory.
template <class T, int K, class... P>
RowLaunch waiting_launch(void (*kernel)(P...), int64_t rows, int64_t cols, int64_t version) {
    constexpr int N = kSharedVectors / K;
    return forward_launch<T>(
        kShapes, kernel, rows, cols, N, N, kSharedBytes, version >= kCluster ? kClusterBlocks : 1);
}

// Launches the kernel that takes such rows in vectors, and reads each vector once or keeps some.
// False if there is none.
template <class T>
bool launch_forward(const T* x, T* y, int64_t rows, int64_t cols, int64_t version,
                    cudaStream_t stream) {
    if constexpr (kHasVectors<T>) {
        const bool aligned = rows_are_aligned<T>(cols, x, y);
        if (version < kVector || !(aligned || may_have_edges<T>(cols, x, y))) return false;
        const auto kernel = aligned ? forward_vector<T, true> : forward_vector<T, false>;
        const RowLaunch launch = waiting_launch<T, 1>(kernel, rows, cols, version);
        if (launch.blocks > 0) {
            launch.start(kernel, stream, x, y, rows, int(cols), launch.blocks);
            return true;
        }
        if (!aligned || version < kStream) return false;
        const auto streams = stream_launch<T, 1>(forward_stream<T>, rows, kHalfThreads, cols);
        streams.start(forward_stream<T>, stream, x, y, int(cols), streams.blocks, streams.kept);
        return true;
    }
    return false;
}

template <class T>
bool launch_backward(const T* g, const T* y, T* dx, int64_t rows, int64_t cols, int64_t version,
                     cudaStream_t stream) {
    if constexpr (kHasVectors<T>) {
        const bool aligned = rows_are_aligned<T>(cols, g, y, dx);
        if (version < kVector || !(aligned || may_have_edges<T>(cols, g, y, dx))) return false;
        const auto kernel = aligned ? backward_vector<T, true> : backward_vector<T, false>;
        const RowLaunch launch = waiting_launch<T, 2>(kernel, rows, cols, version);
        if (launch.blocks > 0) {
            launch.start(kernel, stream, g, y, dx, rows, int(cols), launch.blocks);
            return true;
        }
        if (!aligned || version < kStream) return false;
        auto streaming = backward_stream<T, kHalfThreads>;
        auto streams = stream_launch<T, 2>(streaming, rows, kHalfThreads, cols);
        if (streams.left > kHeldBackward) {  // and would be read again
            streaming = backward_stream<T, kAllThreads>;
            streams = stream_launch<T, 2>(streaming, rows, kAllThreads, cols);
        }
        streams.start(streaming, stream, g, y, dx, int(cols), streams.blocks, streams.kept);
        return true;
    }
    return false;
}
