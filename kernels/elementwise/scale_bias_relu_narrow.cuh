// scale_bias_relu: backward of narrow rows. V rows consist of as many whole vectors as a row has
// columns, whatever the width. A block has a thread for each vector of such a group of rows, and as
// many groups as make kThreads, so its vectors are contiguous in memory. A thread steps by whole
// groups, so all its vectors begin in the same column. A block leaves one sum per column: with one
// for each row of threads, as in backward_vector, the second pass would read more than the first.
#pragma once

constexpr int kNarrowCols = kThreads / 2;  // at most

template <class T>
__global__ __launch_bounds__(kThreads, kBackwardBlocks) void backward_narrow(
    const T* g, const T* x, PerColumn<T> scale, const T* bias, T* dx, ColumnSums<T> dscale,
    ColumnSums<T> dbias, int64_t elements, int cols) {
    launch_dependents();
    using A = Acc<T>;
    constexpr int V = kVec<T>;
    __shared__ A scale_sums[kThreads * V], bias_sums[kThreads * V];
    const int thread = threadIdx.y * blockDim.x + threadIdx.x, threads = blockDim.x * blockDim.y;
    A s[V], b[V], scale_sum[V] = {}, bias_sum[V] = {};
    for (int k = 0, c = threadIdx.x * V % cols; k < V; ++k) {
        s[k] = scale[c];
        b[k] = A(bias[c]);
        if (++c == cols) c = 0;
    }
    const auto dx_of = [&](T g, T x, int k) {
        const A d = gradient(A(g), A(x), s[k], b[k]);
        scale_sum[k] += d * A(x);
        bias_sum[k] += d;
        return T(s[k] * d);
    };
    const int64_t first = (int64_t(blockIdx.x) * threads + thread) * V;
    const int64_t step = int64_t(gridDim.x) * threads * V, end = elements / V * V;
    for (int64_t at = first; at < end; at += kUnroll * step) {
        Vec<T, V> u[kUnroll], v[kUnroll];
        for (int r = 0; r < kUnroll; ++r) {
            u[r] = load_once<V>(g + at + r * step, at + r * step < end);
            v[r] = load_once<V>(x + at + r * step, at + r * step < end);
        }
        for (int r = 0; r < kUnroll; ++r) {
            if (at + r * step >= end) break;
            for (int k = 0; k < V; ++k) v[r][k] = dx_of(u[r][k], v[r][k], k);
            store(dx + at + r * step, v[r]);
        }
    }
    // The last rows may end within a vector: that of the thread whose turn it is.
    if (end < elements && end >= first && (end - first) % step == 0) {
        for (int k = 0; k < V; ++k)
            if (end + k < elements) dx[end + k] = dx_of(g[end + k], x[end + k], k);
    }
    for (int k = 0; k < V; ++k) {
        scale_sums[thread * V + k] = scale_sum[k];
        bias_sums[thread * V + k] = bias_sum[k];
    }
    add_rows_together(blockDim.y * V, cols, scale_sums, bias_sums);
    if (thread >= cols) return;
    dscale.store(blockIdx.x * cols, thread, scale_sums[thread]);
    dbias.store(blockIdx.x * cols, thread, bias_sums[thread]);
}
