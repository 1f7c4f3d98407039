// dropout_layer_norm: s = residual + x * f, with f = 0 where x is dropped and else 1 / (1 - p);
// y = (s - mean) * rstd * weight + bias, with the mean and 1 / deviation of each row of s
//
//   x, residual, s, y, g, gs, dresidual, dx [rows, cols] T    weight, bias, dweight, dbias [cols] T
//   mean, rstd [rows] float               partials [count, cols] float    (double for double)
//   g, gs: the gradients that arrive at y and at s
//
// f depends on the seed and the index of the element (dropout.cuh), so backward draws it again.
// s is rounded to T at once, so that backward reads the same numbers.
//
// Traffic, the least a kernel can move, in elements: forward reads x and residual and writes s and
// y, 4 * sizeof(T) bytes; backward reads g, gs and s and writes dresidual and dx, 5 * sizeof(T).
//
// With xhat = (s - mean) * rstd and h = g * weight, backward is
//   dresidual = rstd * (h - average of h - xhat * average of h * xhat) + gs   averages over the row
//   dx = dresidual * f
//   dweight = sum of g * xhat, dbias = sum of g                               sums over the rows
// norms.cuh has what the norms share, rows.cuh the sums over a row's threads and their columns.

#include "cluster.cuh"
#include "dropout.cuh"
#include "norms.cuh"

template <class T>
struct Forward {
    const T *x, *residual, *weight, *bias;
    T *y, *s;
    Acc<T>*mean, *rstd;  // null where there will be no backward
    int64_t rows, cols;
    Dropout<Acc<T>> dropout;
    Acc<T> eps, inverse_cols;  // 1 / cols, so that no thread divides
};

// What backward takes. Partial sums over rows are left for a second pass.
template <class T>
struct Backward {
    const T *g, *gs, *s, *weight;  // gs: null if nothing arrives at s
    const Acc<T>*mean, *rstd;
    T *dresidual, *dx;
    Acc<T>*partial_dweight, *partial_dbias;
    int64_t rows, cols;
    Dropout<Acc<T>> dropout;
    Acc<T> inverse_cols;
};

// Rounded as it is kept. A wide type also rounds the product, and so has the bits that PyTorch's
// sum has: where a row is nearly constant, each decides much of y.
template <class T>
__device__ T sum_of(T residual, T x, Acc<T> factor) {
    using A = Acc<T>;
    if constexpr (sizeof(T) == 2) return T(fma(A(x), factor, A(residual)));
    return T(multiply_rn(A(x), factor) + A(residual));
}

// ---- naive: one thread per row, and for dweight and dbias one thread per column.
// Flaw: reads are not coalesced, rows or cols threads cannot fill a GPU, and each element draws
// random bits for eight.

template <class T>
__global__ void forward_naive(Forward<T> p) {
    using A = Acc<T>;
    const int64_t row = int64_t(blockIdx.x) * blockDim.x + threadIdx.x;
    if (row >= p.rows) return;
    const uint64_t seed = *p.dropout.seed;
#pragma unroll 1
    for (int64_t i = row * p.cols; i < (row + 1) * p.cols; ++i)
        p.s[i] = sum_of(p.residual[i], p.x[i], factor_of(p.dropout, seed, i));
    const T* s = p.s + row * p.cols;
    T* y = p.y + row * p.cols;
    const Moments<A> of = thread_moments(s, p.cols, p.eps);
#pragma unroll 1
    for (int64_t c = 0; c < p.cols; ++c)
        y[c] = T((A(s[c]) - of.mean) * of.rstd * A(p.weight[c]) + A(p.bias[c]));
    store_moments(of, row, p.mean, p.rstd);
}

template <class T>
__global__ void dx_naive(Backward<T> p) {
    using A = Acc<T>;
    const int64_t row = int64_t(blockIdx.x) * blockDim.x + threadIdx.x;
    if (row >= p.rows) return;
    const uint64_t seed = *p.dropout.seed;
    const A m = p.mean[row], r = p.rstd[row];
    KahanSum<A> h_sum, h_xhat_sum;
#pragma unroll 1
    for (int64_t c = 0, i = row * p.cols; c < p.cols; ++c, ++i) {
        const A h = multiply_rn(A(p.g[i]), A(p.weight[c])), xhat = (A(p.s[i]) - m) * r;
        h_sum += h;
        h_xhat_sum += h * xhat;
    }
    const A h_average = h_sum.value / p.cols, h_xhat_average = h_xhat_sum.value / p.cols;
#pragma unroll 1
    for (int64_t c = 0, i = row * p.cols; c < p.cols; ++c, ++i) {
        const A h = multiply_rn(A(p.g[i]), A(p.weight[c])), xhat = (A(p.s[i]) - m) * r;
        A d = r * (h - h_average - xhat * h_xhat_average);
        if (p.gs != nullptr) d += A(p.gs[i]);
        p.dresidual[i] = T(d);
        p.dx[i] = T(d * factor_of(p.dropout, seed, i));
    }
}

// ---- block: one block per row; reads are coalesced, and the block adds up its threads' sums. For
// dweight and dbias a thread takes a column of a slice of the rows; a second pass adds the slices.
// Flaw: forward reads s three times, backward g and s twice and once more for the columns. Each
// element draws random bits for eight.

template <class T>
__global__ void forward_block(Forward<T> p) {
    using A = Acc<T>;
    const uint64_t seed = *p.dropout.seed;
    BlockReduce reduce;
    for (BlockRows rows(p.rows); rows.any(); rows.next()) {
        const int64_t row = rows.row(), cols = rows.is_there() ? p.cols : 0;
        T *s = p.s + row * p.cols, *y = p.y + row * p.cols;
        for (int64_t c = threadIdx.x, i = row * p.cols + c; c < cols;
             c += blockDim.x, i += blockDim.x)
            s[c] = sum_of(p.residual[i], p.x[i], factor_of(p.dropout, seed, i));
        const Moments<A> of =
            block_moments(s, cols, p.cols, p.eps, reduce);  // of what it wrote itself
        for (int64_t c = threadIdx.x; c < cols; c += blockDim.x)
            y[c] = T((A(s[c]) - of.mean) * of.rstd * A(p.weight[c]) + A(p.bias[c]));
        if (threadIdx.x == 0 && rows.is_there()) store_moments(of, row, p.mean, p.rstd);
    }
}

template <class T>
__global__ void dx_block(Backward<T> p) {
    using A = Acc<T>;
    const uint64_t seed = *p.dropout.seed;
    BlockReduce reduce;
    for (BlockRows rows(p.rows); rows.any(); rows.next()) {
        const int64_t row = rows.row(), cols = rows.is_there() ? p.cols : 0;
        const A m = p.mean[row], r = p.rstd[row];
        Sums<2, A> sums = {0, 0};  // of h, of h * xhat
        for (int64_t c = threadIdx.x, i = row * p.cols + c; c < cols;
             c += blockDim.x, i += blockDim.x) {
            const A h = multiply_rn(A(p.g[i]), A(p.weight[c]));
            sums.values[0] += h;
            sums.values[1] += h * ((A(p.s[i]) - m) * r);
        }
        sums = reduce(sums);
        const A h_average = sums[0] / p.cols, h_xhat_average = sums[1] / p.cols;
        for (int64_t c = threadIdx.x, i = row * p.cols + c; c < cols;
             c += blockDim.x, i += blockDim.x) {
            const A h = multiply_rn(A(p.g[i]), A(p.weight[c])), xhat = (A(p.s[i]) - m) * r;
            A d = r * (h - h_average - xhat * h_xhat_average);
            if (p.gs != nullptr) d += A(p.gs[i]);
            p.dresidual[i] = T(d);
            p.dx[i] = T(d * factor_of(p.dropout, seed, i));
        }
    }
}

// ---- vector: memory is read once, in vectors of 16 bytes, and one draw serves the eight elements
// of a vector (four of float). Forward copies the row to shared memory, draws during the copy and
// keeps a bit per element. Backward keeps its part of the row, the weights and the sums of its
// columns in registers. It draws during the reduction over the row and the copy of the next row.
// The edges of a row whose width is no multiple of a vector go one by one (rows.cuh).
// Flaw: a row too wide for one block falls back to block.
// ---- cluster: in forward the same kernel with several blocks for a row, which reduce together.

template <class T>
using WaitingRow = SharedRows<T, kSharedVectors / 2, 2>;  // of x and residual

// blocks: that have a row. (Edges take registers, and so a block's place.)
template <class T, bool kAligned>
__global__ __launch_bounds__(kSharedThreads, kAligned ? kSharedBlocks : 2) void forward_vector(
    Forward<T> p, int blocks) {
    using A = Acc<T>;
    using Row = WaitingRow<T>;
    constexpr int V = kVec<T>, N = kSharedVectors / 2;
    const int cols = p.cols;
    const Columns<T> column(0, cluster_rank(), blocks);
    const int thread = column.first / V;
    RowReduce reduce(blocks);
    const int64_t row = int64_t(cluster_index(blocks)) * blockDim.y + threadIdx.y;
    const int64_t row_begin = row * cols;
    const Interior<T, kAligned> interior(p.x + row_begin, row < p.rows ? cols : 0);  // else none
    const int64_t begin = row_begin + interior.begin;
    const auto there = [&](int n) { return column[n] < interior.width(); };
    const uint64_t seed = *p.dropout.seed;
    if (row < p.rows) Row::fetch(0, column, interior.width(), p.x + begin, p.residual + begin);
    Vec<T, 1> edges[2], more_edges[2];
    interior.edges(thread, [&](int n, int c) {
        edges[n] = load<1>(p.x + row_begin + c);
        more_edges[n] = load<1>(p.residual + row_begin + c);
    });
    Kept<N, V> kept;
#pragma unroll 1  // four draws side by side would not fit into 40 registers
    for (int n = 0; n < N; ++n) {
        if (!there(n)) break;
        kept.note(n, Draw<V>(p.dropout, seed, begin + column[n]), p.dropout);
    }
    interior.edges(thread, [&](int n, int c) {
        const int64_t i = row_begin + c;
        edges[n][0] = sum_of(more_edges[n][0], edges[n][0], factor_of(p.dropout, seed, i));
        store(p.s + i, edges[n]);
    });
    cp_async_wait<0>();
#pragma unroll 1
    for (int n = 0; n < N; ++n) {
        if (!there(n)) break;
        const Vec<T, V> more = Row::at(n, 1);
        Vec<T, V> v = Row::at(n);
        const uint32_t bits = kept[n];
        for (int k = 0; k < V; ++k)
            v[k] = sum_of(more[k], v[k], bits >> k & 1 ? p.dropout.scale : A(0));
        interior.store(p.s + begin + column[n], v);
        Row::at(n) = v;
    }
    const auto each = [&](auto visit) {
#pragma unroll
        for (int n = 0; n < N && there(n); ++n) visit(Row::at(n));
        interior.edges(thread, [&](int n, int) { visit(edges[n]); });
    };
    const bool once = kMeanIsExact<T> && blockDim.y == 1;
    const Moments<A> of = once ? ShiftedMoments<T>::of(each, A(0), reduce, p.inverse_cols, p.eps)
                               : two_pass_moments<T>(each, reduce, p.inverse_cols, p.eps);
    T* y = p.y + row_begin;
#pragma unroll 4
    for (int n = 0; n < N; ++n) {
        if (!there(n)) break;
        const int c = interior.begin + column[n];
        interior.store(y + c, shift_and_scale(Row::at(n), of, interior.load_unaligned(p.weight, c),
                                              interior.load_unaligned(p.bias, c)));
    }
    interior.edges(thread, [&](int n, int c) {
        store(y + c, shift_and_scale(edges[n], of, load<1>(p.weight + c), load<1>(p.bias + c)));
    });
    if (thread == 0 && row < p.rows) store_moments(of, row, p.mean, p.rstd);
}

// The next row of g, s and gs, while the block works on this one.
template <class T>
using NextRow = SharedRows<T, kBackwardVectors<T>, 3, 2>;

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
    const uint64_t seed = *p.dropout.seed;
    A weight_sum[N][V] = {}, bias_sum[N][V] = {}, edge_weight_sum[1] = {}, edge_bias_sum[1] = {};
    Vec<T, V> w[N];
    read_columns(p.weight, column, interior, w);
    const Vec<T, 1> edge_w = {edge < 0 ? T(0) : p.weight[edge]};
    Prefetched<A> next_m, next_r;
    Prefetched<T> next_u, next_v;
    const auto fetch = [&](int phase, int64_t row) {
        const bool there = row < p.rows;
        const int end = there ? interior.end : 0;  // past the last row there is nothing to do
        const int64_t begin = row * cols;
        next_m.fetch(p.mean + row, there);
        next_r.fetch(p.rstd + row, there);
        next_u.fetch(p.g + begin + edge, there && edge >= 0);
        next_v.fetch(p.s + begin + edge, there && edge >= 0);
        if (p.gs != nullptr) {
            NextRow<T>::fetch(phase, column, end, p.g + begin, p.s + begin, p.gs + begin);
        } else {
            NextRow<T>::fetch(phase, column, end, p.g + begin, p.s + begin);
        }
    };
    fetch(0, rows.first);
    if constexpr (!kAligned) next_m.wait(), next_r.wait(), next_u.wait(), next_v.wait();
    BlockReduce reduce;
    int phase = 0;
    for (int64_t row = rows.first; row - rows.behind < p.rows; row += rows.stride, phase ^= 1) {
        const int end = row < p.rows ? interior.end : 0;
        const int64_t begin = row * cols;
        const Moments<A> of = {next_m.get(), next_r.get()};
        const Vec<T, 1> edge_u = {next_u.get()}, edge_v = {next_v.get()};
        fetch(phase ^ 1, row + rows.stride);
        const bool has_edge = edge >= 0 && row < p.rows;
        cp_async_wait<1>();  // the next row may still be on its way
        Vec<T, V> u[N], v[N];
        Sums<2, A> mine = {0, 0};  // of h, of h * xhat
#pragma unroll
        for (int n = 0; n < N; ++n) {
            if (column[n] >= end) break;
            u[n] = NextRow<T>::at(n, 0, phase);
            v[n] = NextRow<T>::at(n, 1, phase);
            add_gradients(
                u[n], v[n], w[n], of, weight_sum[n], bias_sum[n], mine.values[0], mine.values[1]);
        }
        if (has_edge) {
            add_gradients(edge_u, edge_v, edge_w, of, edge_weight_sum, edge_bias_sum,
                          mine.values[0], mine.values[1]);
        }
        const auto sent = reduce.send(mine);
        Draw<V> draw[N];  // while other warps' sums are on their way
#pragma unroll
        for (int n = 0; n < N; ++n) draw[n] = Draw<V>(p.dropout, seed, begin + column[n]);
        const auto sums = reduce.receive(sent);
        // xhat * average of h * xhat is (s - mean) * slope
        const A h_average = sums[0] * p.inverse_cols, slope = sums[1] * p.inverse_cols * of.rstd;
        const auto dresidual_of = [&](T u, T v, T w, T more) {
            const A h = multiply_rn(A(u), A(w));
            const A d = of.rstd * (h - h_average - (A(v) - of.mean) * slope);
            return p.gs == nullptr ? d : d + A(more);
        };
#pragma unroll
        for (int n = 0; n < N; ++n) {
            const int c = column[n];
            if (c >= end) break;
            Vec<T, V> more;
            if (p.gs != nullptr) more = NextRow<T>::at(n, 2, phase);
            if constexpr (sizeof(T) == 4)
                u[n] = NextRow<T>::at(n, 0, phase);  // no registers for it
            for (int k = 0; k < V; ++k) {
                const A d = dresidual_of(u[n][k], v[n][k], w[n][k], more[k]);
                u[n][k] = T(d);
                v[n][k] = T(d * draw[n].factor(p.dropout, k));
            }
            interior.store(p.dresidual + begin + c, u[n]);
            interior.store(p.dx + begin + c, v[n]);
        }
        if (has_edge) {
            const int64_t i = begin + edge;
            const T more = p.gs == nullptr ? T(0) : p.gs[i];
            const A d = dresidual_of(edge_u[0], edge_v[0], edge_w[0], more);
            p.dresidual[i] = T(d);
            p.dx[i] = T(d * factor_of(p.dropout, seed, i));
        }
    }
    const int64_t partial = blockIdx.x * int64_t(cols);
    write_columns(p.partial_dweight + partial, column, interior, weight_sum, edge_weight_sum[0]);
    write_columns(p.partial_dbias + partial, column, interior, bias_sum, edge_bias_sum[0]);
}

// ---- the rest of cluster, and stream; and which kernel takes which rows

#include "dropout_layer_norm_wide.cuh"

// ---- launchers. A version that cannot take the rows falls back to the one before.

template <class T>
cudaError_t dropout_layer_norm_forward(
    const T* x, const T* residual, const T* weight, const T* bias, T* y, T* s, Acc<T>* mean,
    Acc<T>* rstd, int64_t rows, int64_t cols, const int64_t* seed, int64_t offset, double p_drop,
    double eps, int64_t version, cudaStream_t stream) {
    if (rows == 0) return cudaSuccess;
    const Dropout<Acc<T>> dropout(seed, offset, p_drop);
    const Forward<T> p = {x,       residual,    weight,          bias, y, s, mean, rstd, rows, cols,
                          dropout, Acc<T>(eps), Acc<T>(1) / cols};
    if (version == kNaive) {
        forward_naive<<<ceil_div<int64_t>(rows, 128), 128, 0, stream>>>(p);
    } else if (!launch_forward(p, version, stream)) {
        any_width_launch(rows, cols).start(forward_block<T>, stream, p);
    }
    return cudaGetLastError();
}

// How many rows of partial sums backward needs.
template <class T>
int64_t dropout_layer_norm_partials(const T* g, const T* gs, const T* s, const T* weight,
                                    int64_t rows, int64_t cols, int64_t version) {
    if (version == kNaive || cols == 0) return 0;
    return plan_of(g, gs, s, weight, rows, cols, version).partials();
}

template <class T>
cudaError_t dropout_layer_norm_backward(
    const T* g, const T* gs, const T* s, const T* weight, const Acc<T>* mean, const Acc<T>* rstd,
    T* dresidual, T* dx, Into<T> dweight, Into<T> dbias, Acc<T>* partial_dweight,
    Acc<T>* partial_dbias, int64_t rows, int64_t cols, const int64_t* seed, int64_t offset,
    double p_drop, int64_t version, cudaStream_t stream) {
    if (cols == 0) return cudaSuccess;
    const Dropout<Acc<T>> dropout(seed, offset, p_drop);
    const Backward<T> p = {g,    gs,        s,       weight,          mean,
                           rstd, dresidual, dx,      partial_dweight, partial_dbias,
                           rows, cols,      dropout, Acc<T>(1) / cols};
    if (rows == 0 || version == kNaive) {
        if (rows > 0) dx_naive<<<ceil_div<int64_t>(rows, 128), 128, 0, stream>>>(p);
        columns_naive<<<ceil_div<int64_t>(cols, 128), 128, 0, stream>>>(
            g, s, mean, rstd, dweight, dbias, rows, cols);
        return cudaGetLastError();
    }
    const BackwardPlan<T> plan = plan_of(g, gs, s, weight, rows, cols, version);
    if (plan.kernel == plan.block) {
        any_width_launch(rows, cols).start(dx_block<T>, stream, p);
        columns_block<<<plan.slices.grid, plan.slices.block, 0, stream>>>(
            g, s, mean, rstd, ColumnSums<T>{{partial_dweight}, {}},
            ColumnSums<T>{{partial_dbias}, {}}, rows, cols);
    } else {
        launch_backward(plan, p, stream);
    }
    launch_column_sums(partial_dweight, dweight, partial_dbias, dbias, plan.count(), cols, stream);
    return cudaGetLastError();
}

#define INSTANTIATE(T)                                                                \
    template decltype(dropout_layer_norm_forward<T>) dropout_layer_norm_forward<T>;   \
    template decltype(dropout_layer_norm_partials<T>) dropout_layer_norm_partials<T>; \
    template decltype(dropout_layer_norm_backward<T>) dropout_layer_norm_backward<T>;
FOR_EACH_TYPE(INSTANTIATE)
