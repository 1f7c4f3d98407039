// rms_norm: y = s * rstd * weight, with s = x or x + residual, and rstd = 1 / sqrt(mean of s * s)
//
//   x, residual, s, y, g, gs, dx [rows, cols] T     weight, dweight [cols] T
//   rstd [rows] float                     partials [count, cols] float    (double for double)
//   g, gs: the gradients that arrive at y and at s; dx is x's, and residual's too
//
// Without a residual s is x, and is not written. s is rounded to T before it goes on, so that
// backward, which reads it, sees the same numbers.
//
// Traffic, the least a kernel can move, in elements: forward reads x and writes y, 2 * sizeof(T)
// bytes; with a residual it reads that too and writes s, 4 * sizeof(T). Backward reads g and s and
// writes dx, 3 * sizeof(T); with gs 4 * sizeof(T).
//
// With xhat = s * rstd and h = g * weight, backward is
//   dx = rstd * (h - xhat * average of h * xhat) + gs       average over the row
//   dweight = sum of g * xhat                               sum over the rows
// The average is the sum over (sum of xhat^2 + cols * eps * rstd^2), which is cols but for the
// rounding of rstd. So that rounding cancels. Otherwise it would stay in dx, where h may cancel.
// norms.cuh has what the norms share, rows.cuh the sums over a row's threads and their columns.

#include "norms.cuh"

// What forward takes. residual and s are null, or both are not.
template <class T>
struct Forward {
    const T *x, *residual, *weight;
    T *y, *s;
    Acc<T>* rstd;  // null where there will be no backward
    int64_t rows, cols;
    Acc<T> eps, inverse_cols;  // 1 / cols, so that no thread divides
};

// What backward takes. Partial sums over rows are left for a second pass.
template <class T>
struct Backward {
    const T *g, *gs, *s, *weight;  // gs: null if nothing arrives at s
    const Acc<T>* rstd;
    T* dx;
    ColumnSums<T> dweight;
    int64_t rows, cols;
    Acc<T> cols_eps;  // cols * eps
};

// x + residual, rounded as it is kept.
template <class T>
__device__ T sum_of(T x, T residual) {
    return T(Acc<T>(x) + Acc<T>(residual));
}

template <class A>
__device__ A average_of(A h_xhat, A xhat_square, A r, A cols_eps) {
    return h_xhat / (xhat_square + cols_eps * r * r);
}

// ---- naive: one thread per row, and for dweight one thread per column.
// Flaw: reads are not coalesced, and rows or cols threads cannot fill a GPU.
// (unroll 1: rolled loops compile faster, and speed does not matter here.)

template <class T>
__global__ void forward_naive(Forward<T> p) {
    using A = Acc<T>;
    const int64_t row = int64_t(blockIdx.x) * blockDim.x + threadIdx.x;
    if (row >= p.rows) return;
    KahanSum<A> square;
#pragma unroll 1
    for (int64_t i = row * p.cols; i < (row + 1) * p.cols; ++i) {
        T value = p.x[i];
        if (p.residual != nullptr) p.s[i] = value = sum_of(value, p.residual[i]);
        square += A(value) * A(value);
    }
    const A r = rsqrt_rn(square.value / p.cols + p.eps);
    const T* kept = p.residual != nullptr ? p.s : p.x;
#pragma unroll 1
    for (int64_t c = 0, i = row * p.cols; c < p.cols; ++c, ++i)
        p.y[i] = T(A(kept[i]) * r * A(p.weight[c]));
    if (p.rstd != nullptr) p.rstd[row] = r;
}

template <class T>
__global__ void dx_naive(Backward<T> p) {
    using A = Acc<T>;
    const int64_t row = int64_t(blockIdx.x) * blockDim.x + threadIdx.x;
    if (row >= p.rows) return;
    const A r = p.rstd[row];
    KahanSum<A> h_xhat, square;
#pragma unroll 1
    for (int64_t c = 0, i = row * p.cols; c < p.cols; ++c, ++i) {
        const A xhat = multiply_rn(A(p.s[i]), r);
        h_xhat += multiply_rn(A(p.g[i]), A(p.weight[c])) * xhat;
        square += xhat * xhat;
    }
    const A average = average_of(h_xhat.value, square.value, r, p.cols_eps);
#pragma unroll 1
    for (int64_t c = 0, i = row * p.cols; c < p.cols; ++c, ++i) {
        const A h = multiply_rn(A(p.g[i]), A(p.weight[c])), xhat = multiply_rn(A(p.s[i]), r);
        const A d = r * (h - xhat * average);
        p.dx[i] = T(p.gs == nullptr ? d : d + A(p.gs[i]));
    }
}

template <class T>
__global__ void dweight_naive(Backward<T> p, Into<T> dweight) {
    using A = Acc<T>;
    const int64_t c = int64_t(blockIdx.x) * blockDim.x + threadIdx.x;
    if (c >= p.cols) return;
    KahanSum<A> sum;
#pragma unroll 1
    for (int64_t row = 0; row < p.rows; ++row)
        sum += A(p.g[row * p.cols + c]) * (A(p.s[row * p.cols + c]) * p.rstd[row]);
    store_column_sum(dweight, c, sum.value);
}

// ---- block: one block per row; reads are coalesced, and the block adds up its
// threads' sums. For dweight a thread takes a column of a slice of the rows, and a second pass adds
// up the slices.
// Flaw: both directions read each row twice, backward once more for the columns.

template <class T>
__global__ void forward_block(Forward<T> p) {
    using A = Acc<T>;
    BlockReduce reduce;
    for (BlockRows rows(p.rows); rows.any(); rows.next()) {
        const int64_t row = rows.row(), cols = rows.is_there() ? p.cols : 0;
        Sums<1, A> square = {0};
        for (int64_t c = threadIdx.x, i = row * p.cols + c; c < cols;
             c += blockDim.x, i += blockDim.x) {
            T value = p.x[i];
            if (p.residual != nullptr) p.s[i] = value = sum_of(value, p.residual[i]);
            square.values[0] += A(value) * A(value);
        }
        const A r = rsqrt_rn(reduce(square)[0] / p.cols + p.eps);
        const T* kept = p.residual != nullptr ? p.s : p.x;  // a thread reads what it wrote itself
        for (int64_t c = threadIdx.x, i = row * p.cols + c; c < cols;
             c += blockDim.x, i += blockDim.x)
            p.y[i] = T(A(kept[i]) * r * A(p.weight[c]));
        if (threadIdx.x == 0 && rows.is_there() && p.rstd != nullptr) p.rstd[row] = r;
    }
}

template <class T>
__global__ void dx_block(Backward<T> p) {
    using A = Acc<T>;
    BlockReduce reduce;
    for (BlockRows rows(p.rows); rows.any(); rows.next()) {
        const int64_t row = rows.row(), cols = rows.is_there() ? p.cols : 0;
        const A r = p.rstd[row];
        Sums<2, A> sums = {0, 0};  // of h * xhat, of xhat * xhat
        for (int64_t c = threadIdx.x, i = row * p.cols + c; c < cols;
             c += blockDim.x, i += blockDim.x) {
            const A xhat = multiply_rn(A(p.s[i]), r);
            sums.values[0] += multiply_rn(A(p.g[i]), A(p.weight[c])) * xhat;
            sums.values[1] += xhat * xhat;
        }
        sums = reduce(sums);
        const A average = average_of(sums[0], sums[1], r, p.cols_eps);
        for (int64_t c = threadIdx.x, i = row * p.cols + c; c < cols;
             c += blockDim.x, i += blockDim.x) {
            const A h = multiply_rn(A(p.g[i]), A(p.weight[c])), xhat = multiply_rn(A(p.s[i]), r);
            const A d = r * (h - xhat * average);
            p.dx[i] = T(p.gs == nullptr ? d : d + A(p.gs[i]));
        }
    }
}

template <class T>
__global__ void dweight_block(Backward<T> p) {
    launch_dependents();
    using A = Acc<T>;
    __shared__ A sums[kSliceThreads];
    const int64_t c = int64_t(blockIdx.x) * blockDim.x + threadIdx.x;
    const int64_t slice = int64_t(blockIdx.y) * blockDim.y + threadIdx.y;
    const int64_t slices = int64_t(gridDim.y) * blockDim.y, end = c < p.cols ? p.rows : 0;
    A sum = 0;
#pragma unroll 4
    for (int64_t row = slice; row < end; row += slices)
        sum += A(p.g[row * p.cols + c]) * (A(p.s[row * p.cols + c]) * p.rstd[row]);
    sums[threadIdx.y * blockDim.x + threadIdx.x] = sum;
    add_rows_together(blockDim.y, blockDim.x, sums);
    if (threadIdx.y > 0 || c >= p.cols) return;
    p.dweight.store(blockIdx.y * p.cols, c, sums[threadIdx.x]);
}

// ---- vector: a thread keeps its part of the row, N vectors of 16 bytes, in registers, so that
// memory is read once. Backward also keeps the weights, and the sums of its columns over all rows
// that the block takes; the next row is on its way to shared memory meanwhile.
//
// A row that is no multiple of the vector wide has edges, which go one by one (rows.cuh).
// Flaw: a row too wide for one block falls back to block.

// Vectors that forward keeps of a row, in each thread's registers. In the simulator, where barriers
// are expensive, a row stays within one warp.
constexpr int kForwardVectors = kGpuSizes ? 4 : 32;
constexpr int kForwardBlocks = 3;  // of 512 threads that fit: 40 registers each

// (Edges take registers, and so a block's place.) Threads with few vectors have registers for the
// weights, too: all loads are on their way at once.
template <class T, bool kAligned, int N>
__global__ __launch_bounds__(kForwardThreads, kAligned ? kForwardBlocks : 2) void forward_vector(
    Forward<T> p) {
    using A = Acc<T>;
    constexpr int V = kVec<T>;
    constexpr bool kLoadsFirst = N < kForwardVectors;
    const int cols = p.cols;
    const int64_t row = int64_t(blockIdx.x) * blockDim.y + threadIdx.y, begin = row * cols;
    // Past the last row there is nothing to do.
    const Interior<T, kAligned> interior(p.x + begin, row < p.rows ? cols : 0);
    const Columns<T> column(interior.begin);
    Vec<T, V> v[N];
#pragma unroll
    for (int n = 0; n < N; ++n)
        v[n] = load_once<V>(p.x + begin + column[n], column[n] < interior.end);
    Vec<T, V> weight[kLoadsFirst ? N : 1];
    if constexpr (kLoadsFirst) read_columns(p.weight, column, interior, weight);
    T edges[2];
    interior.edges(threadIdx.x, [&](int n, int c) { edges[n] = p.x[begin + c]; });
    if (p.residual != nullptr) {
#pragma unroll
        for (int n = 0; n < N; ++n) {
            const int c = column[n];
            if (c >= interior.end) break;
            const Vec<T, V> more = load_once<V>(p.residual + begin + c);
            for (int k = 0; k < V; ++k) v[n][k] = sum_of(v[n][k], more[k]);
            interior.store(p.s + begin + c, v[n]);
        }
        interior.edges(threadIdx.x, [&](int n, int c) {
            edges[n] = sum_of(edges[n], p.residual[begin + c]);
            p.s[begin + c] = edges[n];
        });
    }
    Sums<1, A> square = {0};
#pragma unroll
    for (int n = 0; n < N; ++n) {
        if (column[n] >= interior.end) break;
        for (T value : v[n].at) square.values[0] += A(value) * A(value);
    }
    interior.edges(threadIdx.x, [&](int n, int) { square.values[0] += A(edges[n]) * A(edges[n]); });
    BlockReduce reduce;
    const A r = rsqrt_rn(reduce(square)[0] * p.inverse_cols + p.eps);
#pragma unroll
    for (int n = 0; n < N; ++n) {
        const int c = column[n];
        if (c >= interior.end) break;
        const Vec<T, V> w =
            kLoadsFirst ? weight[kLoadsFirst ? n : 0] : interior.load_unaligned(p.weight, c);
        for (int k = 0; k < V; ++k) v[n][k] = T(A(v[n][k]) * r * A(w[k]));
        interior.store(p.y + begin + c, v[n]);
    }
    interior.edges(
        threadIdx.x, [&](int n, int c) { p.y[begin + c] = T(A(edges[n]) * r * A(p.weight[c])); });
    if (threadIdx.x == 0 && row < p.rows && p.rstd != nullptr) p.rstd[row] = r;
}

// The next row of g and s, while the block works on this one.
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
    A weight_sum[N][V] = {}, edge_sum = 0;
    A w[N][V];
    read_columns(p.weight, column, interior, w);
    const A edge_w = edge < 0 ? A(0) : A(p.weight[edge]);
    Prefetched<A> next_r;
    Prefetched<T> next_u, next_v;
    const auto fetch = [&](int phase, int64_t row) {
        const bool there = row < p.rows;
        next_r.fetch(p.rstd + row, there);
        next_u.fetch(p.g + row * cols + edge, there && edge >= 0);
        next_v.fetch(p.s + row * cols + edge, there && edge >= 0);
        NextRow<T>::fetch(
            phase, column, there ? interior.end : 0, p.g + row * cols, p.s + row * cols);
    };
    fetch(0, rows.first);
    if constexpr (!kAligned) next_r.wait(), next_u.wait(), next_v.wait();
    BlockReduce reduce;
    int phase = 0;
    for (int64_t row = rows.first; row - rows.behind < p.rows; row += rows.stride, phase ^= 1) {
        const int end = row < p.rows ? interior.end : 0;  // past the last row nothing is left
        const A r = next_r.get();
        const T edge_u = next_u.get(), edge_v = next_v.get();
        fetch(phase ^ 1, row + rows.stride);
        const bool has_edge = edge >= 0 && row < p.rows;
        Vec<T, V> u[N], v[N], more[N];
        if (p.gs != nullptr) {  // for these there are registers
#pragma unroll
            for (int n = 0; n < N; ++n) {
                const int c = column[n];
                more[n] = load_once<V>(p.gs + row * cols + c, c < end);
            }
        }
        cp_async_wait<1>();        // the next row may still be on its way
        Sums<2, A> mine = {0, 0};  // of h * xhat, of xhat * xhat
        const auto add = [&](T u, T v, A w, A& weight_sum) {
            const A xhat = multiply_rn(A(v), r);
            weight_sum += A(u) * xhat;
            mine.values[0] += multiply_rn(A(u), w) * xhat;
            mine.values[1] += xhat * xhat;
        };
#pragma unroll
        for (int n = 0; n < N; ++n) {
            if (column[n] >= end) break;
            u[n] = NextRow<T>::at(n, 0, phase);
            v[n] = NextRow<T>::at(n, 1, phase);
            for (int k = 0; k < V; ++k) add(u[n][k], v[n][k], w[n][k], weight_sum[n][k]);
        }
        if (has_edge) add(edge_u, edge_v, edge_w, edge_sum);
        const auto sums = reduce(mine);
        const A average = average_of(sums[0], sums[1], r, p.cols_eps);
        const auto dx_of = [&](T u, T v, A w) {
            const A h = multiply_rn(A(u), w), xhat = multiply_rn(A(v), r);
            return r * (h - xhat * average);
        };
        T* dx = p.dx + row * cols;
#pragma unroll
        for (int n = 0; n < N; ++n) {
            const int c = column[n];
            if (c >= end) break;
            for (int k = 0; k < V; ++k) {
                const A d = dx_of(u[n][k], v[n][k], w[n][k]);
                v[n][k] = T(p.gs == nullptr ? d : d + A(more[n][k]));
            }
            interior.store(dx + c, v[n]);
        }
        if (has_edge) {
            const A d = dx_of(edge_u, edge_v, edge_w);
            dx[edge] = T(p.gs == nullptr ? d : d + A(p.gs[row * cols + edge]));
        }
    }
    write_columns(p.dweight, blockIdx.x, column, interior, weight_sum, edge_sum);
}

// ---- fp8; cluster and stream, for rows too wide for one block; and which kernel takes which rows

#include "rms_norm_fp8.cuh"
#include "rms_norm_wide.cuh"

// ---- launchers. A version that cannot take the rows falls back to the one before.

template <class T>
cudaError_t rms_norm_forward(const T* x, const T* residual, const T* weight, T* y, T* s,
                             Acc<T>* rstd, int64_t rows, int64_t cols, double eps, int64_t version,
                             cudaStream_t stream) {
    if (rows == 0) return cudaSuccess;
    const Forward<T> p = {
        x, residual, weight, y, s, rstd, rows, cols, Acc<T>(eps), Acc<T>(1) / cols};
    if (version == kNaive) {
        forward_naive<<<ceil_div<int64_t>(rows, 128), 128, 0, stream>>>(p);
    } else if (!launch_forward(p, version, stream)) {
        any_width_launch(rows, cols).start(forward_block<T>, stream, p);
    }
    return cudaGetLastError();
}

// How many rows of partial sums backward needs.
template <class T>
int64_t rms_norm_partials(const T* g, const T* gs, const T* s, const T* weight, int64_t rows,
                          int64_t cols, int64_t version) {
    if (version == kNaive || cols == 0) return 0;
    return plan_of(g, gs, s, weight, rows, cols, version).partials();
}

template <class T>
cudaError_t rms_norm_backward(const T* g, const T* gs, const T* s, const T* weight,
                              const Acc<T>* rstd, T* dx, Into<T> dweight, Acc<T>* partial_dweight,
                              int64_t rows, int64_t cols, double eps, int64_t version,
                              cudaStream_t stream) {
    if (cols == 0) return cudaSuccess;
    Backward<T> p = {
        g, gs, s, weight, rstd, dx, {{partial_dweight}, dweight}, rows, cols, Acc<T>(cols * eps)};
    if (rows == 0 || version == kNaive) {
        if (rows > 0) dx_naive<<<ceil_div<int64_t>(rows, 128), 128, 0, stream>>>(p);
        dweight_naive<<<ceil_div<int64_t>(cols, 128), 128, 0, stream>>>(p, dweight);
        return cudaGetLastError();
    }
    const BackwardPlan<T> plan = plan_of(g, gs, s, weight, rows, cols, version);
    if (plan.is_whole()) p.dweight.partial = nullptr;
    if (plan.kernel == plan.block) {
        any_width_launch(rows, cols).start(dx_block<T>, stream, p);
        dweight_block<<<plan.slices.grid, plan.slices.block, 0, stream>>>(p);
    } else {
        launch_backward(plan, p, stream);
    }
    if (!plan.is_whole())
        launch_column_sums<T>(partial_dweight, dweight, nullptr, {}, plan.count(), cols, stream);
    return cudaGetLastError();
}

#define INSTANTIATE(T)                                            \
    template decltype(rms_norm_forward<T>) rms_norm_forward<T>;   \
    template decltype(rms_norm_partials<T>) rms_norm_partials<T>; \
    template decltype(rms_norm_backward<T>) rms_norm_backward<T>;
FOR_EACH_TYPE(INSTANTIATE)
