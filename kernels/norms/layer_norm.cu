// layer_norm: y = (x - mean) * rstd * weight + bias, with the mean and 1 / deviation of each row
//
//   x, y, g, dx [rows, cols] T          weight, bias, dweight, dbias [cols] T
//   mean, rstd [rows] float             partials [count, cols] float    (double for double)
//   g: the gradient that arrives; dx, dweight, dbias: the gradients that leave
//
// Traffic, the least a kernel can move: forward reads x and writes y, 2 * sizeof(T) bytes per
// element; backward reads g and x and writes dx, 3 * sizeof(T). What is per row or per column is
// small beside it.
//
// With xhat = (x - mean) * rstd and h = g * weight, backward is
//   dx = rstd * (h - average of h - xhat * average of h * xhat)      averages over the row
//   dweight = sum of g * xhat, dbias = sum of g                      sums over the rows
// norms.cuh has what the norms share, rows.cuh the sums over a row's threads and their columns.

#include "norms.cuh"

// What forward takes.
template <class T>
struct Forward {
    const T *x, *weight, *bias;
    T* y;
    Acc<T>*mean, *rstd;  // null where there will be no backward
    int64_t rows, cols;
    Acc<T> eps, inverse_cols;  // 1 / cols, so that no thread divides
};

// What backward takes. Partial sums over rows are left for a second pass.
template <class T>
struct Backward {
    const T *g, *x, *weight;
    const Acc<T>*mean, *rstd;
    T* dx;
    ColumnSums<T> dweight, dbias;
    int64_t rows, cols;
    Acc<T> inverse_cols;
};

// ---- naive: one thread per row, and for dweight and dbias one thread per column.
// Flaw: reads are not coalesced, and rows or cols threads cannot fill a GPU.
// (unroll 1: rolled loops compile faster, and speed does not matter here.)

template <class T>
__global__ void forward_naive(Forward<T> p) {
    using A = Acc<T>;
    const int64_t row = int64_t(blockIdx.x) * blockDim.x + threadIdx.x;
    if (row >= p.rows) return;
    const T* x = p.x + row * p.cols;
    T* y = p.y + row * p.cols;
    const Moments<A> of = thread_moments(x, p.cols, p.eps);
#pragma unroll 1
    for (int64_t c = 0; c < p.cols; ++c)
        y[c] = T((A(x[c]) - of.mean) * of.rstd * A(p.weight[c]) + A(p.bias[c]));
    store_moments(of, row, p.mean, p.rstd);
}

template <class T>
__global__ void dx_naive(Backward<T> p) {
    using A = Acc<T>;
    const int64_t row = int64_t(blockIdx.x) * blockDim.x + threadIdx.x;
    if (row >= p.rows) return;
    const T *g = p.g + row * p.cols, *x = p.x + row * p.cols;
    T* dx = p.dx + row * p.cols;
    const A m = p.mean[row], r = p.rstd[row];
    KahanSum<A> h_sum, h_xhat_sum;
#pragma unroll 1
    for (int64_t c = 0; c < p.cols; ++c) {
        const A h = multiply_rn(A(g[c]), A(p.weight[c])), xhat = (A(x[c]) - m) * r;
        h_sum += h;
        h_xhat_sum += h * xhat;
    }
    const A h_average = h_sum.value / p.cols, h_xhat_average = h_xhat_sum.value / p.cols;
#pragma unroll 1
    for (int64_t c = 0; c < p.cols; ++c) {
        const A h = multiply_rn(A(g[c]), A(p.weight[c])), xhat = (A(x[c]) - m) * r;
        dx[c] = T(r * (h - h_average - xhat * h_xhat_average));
    }
}

// ---- block: one block per row; reads are coalesced, and the block adds up its
// threads' sums. For dweight and dbias a thread takes a column of a slice of the rows, and a second
// pass adds up the slices.
// Flaw: forward reads each row three times, backward twice and once more for the columns.

template <class T>
__global__ void forward_block(Forward<T> p) {
    using A = Acc<T>;
    BlockReduce reduce;
    for (BlockRows rows(p.rows); rows.any(); rows.next()) {
        const int64_t row = rows.row(), cols = rows.is_there() ? p.cols : 0;
        const T* x = p.x + row * p.cols;
        T* y = p.y + row * p.cols;
        const Moments<A> of = block_moments(x, cols, p.cols, p.eps, reduce);
        for (int64_t c = threadIdx.x; c < cols; c += blockDim.x)
            y[c] = T((A(x[c]) - of.mean) * of.rstd * A(p.weight[c]) + A(p.bias[c]));
        if (threadIdx.x == 0 && rows.is_there()) store_moments(of, row, p.mean, p.rstd);
    }
}

template <class T>
__global__ void dx_block(Backward<T> p) {
    using A = Acc<T>;
    BlockReduce reduce;
    for (BlockRows rows(p.rows); rows.any(); rows.next()) {
        const int64_t row = rows.row(), cols = rows.is_there() ? p.cols : 0;
        const T *g = p.g + row * p.cols, *x = p.x + row * p.cols;
        T* dx = p.dx + row * p.cols;
        const A m = p.mean[row], r = p.rstd[row];
        Sums<2, A> sums = {0, 0};  // of h, of h * xhat
        for (int64_t c = threadIdx.x; c < cols; c += blockDim.x) {
            const A h = multiply_rn(A(g[c]), A(p.weight[c]));
            sums.values[0] += h;
            sums.values[1] += h * ((A(x[c]) - m) * r);
        }
        sums = reduce(sums);
        const A h_average = sums[0] / p.cols, h_xhat_average = sums[1] / p.cols;
        for (int64_t c = threadIdx.x; c < cols; c += blockDim.x) {
            const A h = multiply_rn(A(g[c]), A(p.weight[c])), xhat = (A(x[c]) - m) * r;
            dx[c] = T(r * (h - h_average - xhat * h_xhat_average));
        }
    }
}

// ---- vector: a thread keeps its part of the row, N vectors of 16 bytes, in registers, so that
// memory is read once: forward takes the mean and then the deviations from it out of registers.
// Backward also keeps the weights, and the sums of its columns over all rows that the block takes.
// For the next row it has no registers left, so that one is on its way to shared memory meanwhile.
//
// A row that is no multiple of the vector wide has edges, which go one by one (rows.cuh).
// Flaw: a row too wide for one block falls back to block.

// Vectors that forward keeps of a row, in each thread's registers. In the simulator, where barriers
// are expensive, a row stays within one warp.
constexpr int kForwardVectors = kGpuSizes ? 8 : 32;
constexpr int kForwardBlocks = 2;  // of 512 threads that fit: 64 registers each

// Threads with few vectors have registers for the weights, too: all loads are on their way at once.
template <class T, bool kAligned, int N>
__global__ __launch_bounds__(kForwardThreads, kForwardBlocks) void forward_vector(Forward<T> p) {
    constexpr int V = kVec<T>;
    constexpr bool kLoadsFirst = N < kForwardVectors;
    const int cols = p.cols;
    const int64_t row = int64_t(blockIdx.x) * blockDim.y + threadIdx.y;
    const T* x = p.x + row * cols;
    T* y = p.y + row * cols;
    const Interior<T, kAligned> interior(x, row < p.rows ? cols : 0);  // past the last one nothing
    const Columns<T> column(interior.begin);
    Vec<T, V> v[N];
#pragma unroll
    for (int n = 0; n < N; ++n) v[n] = load_once<V>(x + column[n], column[n] < interior.end);
    Vec<T, V> weight[kLoadsFirst ? N : 1], bias[kLoadsFirst ? N : 1];
    if constexpr (kLoadsFirst) {
        read_columns(p.weight, column, interior, weight);
        read_columns(p.bias, column, interior, bias);
    }
    Vec<T, 1> edges[2];
    interior.edges(threadIdx.x, [&](int n, int c) { edges[n] = load<1>(x + c); });
    const auto each = [&](auto visit) {
#pragma unroll
        for (int n = 0; n < N && column[n] < interior.end; ++n) visit(v[n]);
        interior.edges(threadIdx.x, [&](int n, int) { visit(edges[n]); });
    };
    BlockReduce reduce;
    const Moments<Acc<T>> of = two_pass_moments<T>(each, reduce, p.inverse_cols, p.eps);
#pragma unroll
    for (int n = 0; n < N; ++n) {
        const int c = column[n];
        if (c >= interior.end) break;
        if constexpr (kLoadsFirst) {
            interior.store(y + c, shift_and_scale(v[n], of, weight[n], bias[n]));
        } else {
            interior.store(y + c, shift_and_scale(v[n], of, interior.load_unaligned(p.weight, c),
                                                  interior.load_unaligned(p.bias, c)));
        }
    }
    interior.edges(threadIdx.x, [&](int n, int c) {
        store(y + c, shift_and_scale(edges[n], of, load<1>(p.weight + c), load<1>(p.bias + c)));
    });
    if (threadIdx.x == 0 && row < p.rows) store_moments(of, row, p.mean, p.rstd);
}

// The next row of g and x, while the block works on this one.
template <class T>
using NextRow = SharedRows<T, kBackwardVectors<T>, 2, 2>;

template <class T, bool kAligned>
__global__ __launch_bounds__(kBackwardThreads) void backward_vector(Backward<T> p) {
    launch_dependents();
    using A = Acc<T>;
    constexpr int V = kVec<T>, N = kBackwardVectors<T>;
    const int cols = p.cols;
    const GridStride<kAligned> rows;
    const Interior<T, kAligned> interior(p.g + rows.first * cols, cols);
    const Columns<T> column(interior.begin);
    const int edge = interior.edge_column(threadIdx.x);
    A weight_sum[N][V] = {}, bias_sum[N][V] = {}, edge_weight_sum = 0, edge_bias_sum = 0;
    A w[N][V];
    read_columns(p.weight, column, interior, w);
    const A edge_w = edge < 0 ? A(0) : A(p.weight[edge]);
    Prefetched<A> next_m, next_r;
    Prefetched<T> next_u, next_v;
    const auto fetch = [&](int phase, int64_t row) {
        const bool there = row < p.rows;
        next_m.fetch(p.mean + row, there);
        next_r.fetch(p.rstd + row, there);
        next_u.fetch(p.g + row * cols + edge, there && edge >= 0);
        next_v.fetch(p.x + row * cols + edge, there && edge >= 0);
        NextRow<T>::fetch(
            phase, column, there ? interior.end : 0, p.g + row * cols, p.x + row * cols);
    };
    fetch(0, rows.first);
    if constexpr (!kAligned) next_m.wait(), next_r.wait(), next_u.wait(), next_v.wait();
    BlockReduce reduce;
    int phase = 0;
    for (int64_t row = rows.first; row - rows.behind < p.rows; row += rows.stride, phase ^= 1) {
        const int end = row < p.rows ? interior.end : 0;  // past the last row nothing is left
        const A m = next_m.get(), r = next_r.get();
        const T edge_u = next_u.get(), edge_v = next_v.get();
        fetch(phase ^ 1, row + rows.stride);
        const bool has_edge = edge >= 0 && row < p.rows;
        cp_async_wait<1>();  // the next row may still be on its way
        Vec<T, V> v[N];
        A h[N][V];
        Sums<2, A> mine = {0, 0};  // of h, of h * xhat
        const auto add = [&](T u, T v, A w, A& weight_sum, A& bias_sum) {
            const A d = A(u), xhat = (A(v) - m) * r, h = multiply_rn(d, w);
            weight_sum += d * xhat;
            bias_sum += d;
            mine.values[0] += h;
            mine.values[1] += h * xhat;
            return h;
        };
#pragma unroll
        for (int n = 0; n < N; ++n) {
            if (column[n] >= end) break;
            const Vec<T, V> u = NextRow<T>::at(n, 0, phase);
            v[n] = NextRow<T>::at(n, 1, phase);
            for (int k = 0; k < V; ++k)
                h[n][k] = add(u[k], v[n][k], w[n][k], weight_sum[n][k], bias_sum[n][k]);
        }
        A edge_h = 0;
        if (has_edge) edge_h = add(edge_u, edge_v, edge_w, edge_weight_sum, edge_bias_sum);
        const auto sums = reduce(mine);
        // xhat * average of h * xhat is (x - mean) * slope: one multiplication less an element
        const A h_average = sums[0] * p.inverse_cols, slope = sums[1] * p.inverse_cols * r;
        const auto dx_of = [&](A h, T x) { return T(r * (h - h_average - (A(x) - m) * slope)); };
        T* dx = p.dx + row * cols;
#pragma unroll
        for (int n = 0; n < N; ++n) {
            const int c = column[n];
            if (c >= end) break;
            for (int k = 0; k < V; ++k) v[n][k] = dx_of(h[n][k], v[n][k]);
            interior.store(dx + c, v[n]);
        }
        if (has_edge) dx[edge] = dx_of(edge_h, edge_v);
    }
    write_columns(p.dweight, blockIdx.x, column, interior, weight_sum, edge_weight_sum);
    write_columns(p.dbias, blockIdx.x, column, interior, bias_sum, edge_bias_sum);
}

// ---- cluster and stream, for rows too wide for one block; and which kernel takes which rows

#include "layer_norm_wide.cuh"

// ---- launchers. A version that cannot take the rows falls back to the one before.

template <class T>
cudaError_t layer_norm_forward(const T* x, const T* weight, const T* bias, T* y, Acc<T>* mean,
                               Acc<T>* rstd, int64_t rows, int64_t cols, double eps,
                               int64_t version, cudaStream_t stream) {
    if (rows == 0) return cudaSuccess;
    const Forward<T> p = {
        x, weight, bias, y, mean, rstd, rows, cols, Acc<T>(eps), Acc<T>(1) / cols};
    if (version == kNaive) {
        forward_naive<<<ceil_div<int64_t>(rows, 128), 128, 0, stream>>>(p);
    } else if (!launch_forward(p, version, stream)) {
        any_width_launch(rows, cols).start(forward_block<T>, stream, p);
    }
    return cudaGetLastError();
}

// How many rows of partial sums backward needs.
template <class T>
int64_t layer_norm_partials(const T* g, const T* x, const T* weight, int64_t rows, int64_t cols,
                            int64_t version) {
    if (version == kNaive || cols == 0) return 0;
    return plan_of(g, x, weight, rows, cols, version).partials();
}

template <class T>
cudaError_t layer_norm_backward(const T* g, const T* x, const T* weight, const Acc<T>* mean,
                                const Acc<T>* rstd, T* dx, Into<T> dweight, Into<T> dbias,
                                Acc<T>* partial_dweight, Acc<T>* partial_dbias, int64_t rows,
                                int64_t cols, int64_t version, cudaStream_t stream) {
    if (cols == 0) return cudaSuccess;
    Backward<T> p = {
        g,
        x,
        weight,
        mean,
        rstd,
        dx,
        {{partial_dweight}, dweight},
        {{partial_dbias}, dbias},
        rows,
        cols,
        Acc<T>(1) / cols};
    if (rows == 0 || version == kNaive) {
        if (rows > 0) dx_naive<<<ceil_div<int64_t>(rows, 128), 128, 0, stream>>>(p);
        columns_naive<<<ceil_div<int64_t>(cols, 128), 128, 0, stream>>>(
            g, x, mean, rstd, dweight, dbias, rows, cols);
        return cudaGetLastError();
    }
    const BackwardPlan<T> plan = plan_of(g, x, weight, rows, cols, version);
    if (plan.is_whole()) p.dweight.partial = p.dbias.partial = nullptr;
    if (plan.kernel == plan.block) {
        any_width_launch(rows, cols).start(dx_block<T>, stream, p);
        columns_block<<<plan.slices.grid, plan.slices.block, 0, stream>>>(
            g, x, mean, rstd, p.dweight, p.dbias, rows, cols);
    } else {
        launch_backward(plan, p, stream);
    }
    if (!plan.is_whole())
        launch_column_sums(
            partial_dweight, dweight, partial_dbias, dbias, plan.count(), cols, stream);
    return cudaGetLastError();
}

#define INSTANTIATE(T)                                                \
    template decltype(layer_norm_forward<T>) layer_norm_forward<T>;   \
    template decltype(layer_norm_partials<T>) layer_norm_partials<T>; \
    template decltype(layer_norm_backward<T>) layer_norm_backward<T>;
FOR_EACH_TYPE(INSTANTIATE)
