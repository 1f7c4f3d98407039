// dropout_layer_norm: s = residual + x * f, with f = 0 where x is dropped and 1 / (1 - p)
// elsewhere; y = (s - mean) * rstd * weight + bias, with the mean and 1 / deviation of each row of
// s
//
//   x, residual, s, y, g, gs, dresidual, dx [rows, cols] T    weight, bias, dweight, dbias [cols] T
//   mean, rstd [rows] float               partials [count, cols] float    (double for double)
//   forward: mean and rstd are null where there will be no backward
//   g, gs: the gradients that arrive at y and at s
//
// f comes out of dropout.cuh by the number of the element: backward draws it again. s is rounded to
// T before it goes on, so that backward, which reads it, sees the same numbers.
//
// Traffic, the least a kernel can move, in elements: forward reads x and residual and writes s and
// y, 4 * sizeof(T) bytes; backward reads g, gs and s and writes dresidual and dx, 5 * sizeof(T).
//
// With xhat = (s - mean) * rstd and h = g * weight, backward is
//   dresidual = rstd * (h - average of h - xhat * average of h * xhat) + gs   averages over the row
//   dx = dresidual * f
//   dweight = sum of g * xhat, dbias = sum of g                               sums over the rows
// The statistics of a row, and the kernels that sum over the rows alone, are in moments.cuh.

#include "dropout.cuh"
#include "moments.cuh"
#include "waiting.cuh"

// Rounded as it is kept. A wide type also rounds the product, and so has the bits that PyTorch's
// sum has: where a row is nearly constant, each decides much of y.
template <class T>
__device__ T sum_of(T residual, T x, Acc<T> factor) {
    using A = Acc<T>;
    if constexpr (sizeof(T) == 2) return T(fma(A(x), factor, A(residual)));
    return T(product(A(x), factor) + A(residual));
}

// ---- naive: one thread per row, and for dweight and dbias one thread per column.
// Flaw: neighbouring threads read cols apart, and rows or cols threads cannot fill a GPU. Each
// element makes a draw for eight.
// (unroll 1: loops left rolled compile faster, and nothing here is about speed.)

template <class T>
__global__ void forward_naive(const T* x, const T* residual, const T* weight, const T* bias, T* y,
                              T* s, Acc<T>* mean, Acc<T>* rstd, int64_t rows, int64_t cols,
                              Dropout<Acc<T>> dropout, Acc<T> eps) {
    using A = Acc<T>;
    const int64_t row = int64_t(blockIdx.x) * blockDim.x + threadIdx.x;
    if (row >= rows) return;
    const uint64_t seed = *dropout.seed;
#pragma unroll 1
    for (int64_t i = row * cols; i < (row + 1) * cols; ++i)
        s[i] = sum_of(residual[i], x[i], Draw<1>(dropout, seed, i).factor(dropout, 0));
    s += row * cols;
    y += row * cols;
    const auto [m, r] = thread_moments(s, cols, eps);
#pragma unroll 1
    for (int64_t c = 0; c < cols; ++c) y[c] = T((A(s[c]) - m) * r * A(weight[c]) + A(bias[c]));
    if (mean != nullptr) mean[row] = m, rstd[row] = r;
}

template <class T>
__global__ void dx_naive(const T* g, const T* gs, const T* s, const T* weight, const Acc<T>* mean,
                         const Acc<T>* rstd, T* dresidual, T* dx, int64_t rows, int64_t cols,
                         Dropout<Acc<T>> dropout) {
    using A = Acc<T>;
    const int64_t row = int64_t(blockIdx.x) * blockDim.x + threadIdx.x;
    if (row >= rows) return;
    const uint64_t seed = *dropout.seed;
    const A m = mean[row], r = rstd[row];
    LongSum<A> h_sum, h_xhat_sum;
#pragma unroll 1
    for (int64_t c = 0, i = row * cols; c < cols; ++c, ++i) {
        const A h = product(A(g[i]), A(weight[c])), xhat = (A(s[i]) - m) * r;
        h_sum += h;
        h_xhat_sum += h * xhat;
    }
    const A h_average = h_sum.value / cols, h_xhat_average = h_xhat_sum.value / cols;
#pragma unroll 1
    for (int64_t c = 0, i = row * cols; c < cols; ++c, ++i) {
        const A h = product(A(g[i]), A(weight[c])), xhat = (A(s[i]) - m) * r;
        A d = r * (h - h_average - xhat * h_xhat_average);
        if (gs != nullptr) d += A(gs[i]);
        dresidual[i] = T(d);
        dx[i] = T(d * Draw<1>(dropout, seed, i).factor(dropout, 0));
    }
}

// ---- block: one block per row; neighbouring threads read neighbours, and the block adds up its
// threads' sums. For dweight and dbias a thread takes a column of a slice of the rows, and a second
// pass adds up the slices.
// Flaw: forward reads s three times, backward g and s twice and once more for the columns. Each
// element makes a draw for eight.

template <class T>
__global__ void forward_block(const T* x, const T* residual, const T* weight, const T* bias, T* y,
                              T* s, Acc<T>* mean, Acc<T>* rstd, int64_t rows, int64_t cols,
                              Dropout<Acc<T>> dropout, Acc<T> eps) {
    using A = Acc<T>;
    const uint64_t seed = *dropout.seed;
    int turn = 0;
    for (int64_t row = blockIdx.x; row < rows; row += gridDim.x, turn ^= 1) {
        T *s_row = s + row * cols, *y_row = y + row * cols;
        for (int64_t c = threadIdx.x, i = row * cols + c; c < cols;
             c += blockDim.x, i += blockDim.x)
            s[i] = sum_of(residual[i], x[i], Draw<1>(dropout, seed, i).factor(dropout, 0));
        const auto [m, r] = block_moments(s_row, cols, eps, turn);  // reads what it wrote itself
        for (int64_t c = threadIdx.x; c < cols; c += blockDim.x)
            y_row[c] = T((A(s_row[c]) - m) * r * A(weight[c]) + A(bias[c]));
        if (threadIdx.x == 0 && mean != nullptr) mean[row] = m, rstd[row] = r;
    }
}

template <class T>
__global__ void dx_block(const T* g, const T* gs, const T* s, const T* weight, const Acc<T>* mean,
                         const Acc<T>* rstd, T* dresidual, T* dx, int64_t rows, int64_t cols,
                         Dropout<Acc<T>> dropout) {
    using A = Acc<T>;
    const uint64_t seed = *dropout.seed;
    int turn = 0;
    for (int64_t row = blockIdx.x; row < rows; row += gridDim.x, turn ^= 1) {
        const A m = mean[row], r = rstd[row];
        A sums[2] = {0, 0};  // of h, of h * xhat
        for (int64_t c = threadIdx.x, i = row * cols + c; c < cols;
             c += blockDim.x, i += blockDim.x) {
            const A h = product(A(g[i]), A(weight[c]));
            sums[0] += h;
            sums[1] += h * ((A(s[i]) - m) * r);
        }
        row_sum(sums, turn);
        const A h_average = sums[0] / cols, h_xhat_average = sums[1] / cols;
        for (int64_t c = threadIdx.x, i = row * cols + c; c < cols;
             c += blockDim.x, i += blockDim.x) {
            const A h = product(A(g[i]), A(weight[c])), xhat = (A(s[i]) - m) * r;
            A d = r * (h - h_average - xhat * h_xhat_average);
            if (gs != nullptr) d += A(gs[i]);
            dresidual[i] = T(d);
            dx[i] = T(d * Draw<1>(dropout, seed, i).factor(dropout, 0));
        }
    }
}

// ---- vector: memory is read once, in vectors of 16 bytes, and one draw serves the eight elements
// of a vector (four of float). A row too wide for one block is shared out among the blocks of a
// cluster. In forward it waits in shared memory, and draws are made while it is on its way there:
// of each element a bit is kept. Backward has its part of the row, the weights and the sums of its
// columns in registers; it draws while the sums over the row are on their way, and the next row is
// on its way to shared memory. A row that does not fit into that is read again where it is needed.
//
// A row that is no multiple of the vector wide has edges, which go one by one (edges.cuh).
// Flaw: such a row goes back to block where it is too wide, in backward for one block.

// one_nth: 1 / cols, so that no thread divides. blocks: of a cluster. (Edges take registers, and so
// a block's place.)
template <class T, bool kWhole>
__global__ __launch_bounds__(kMostThreads, kWhole ? kWaitingBlocks : 2) void forward_vector(
    const T* x, const T* residual, const T* weight, const T* bias, T* y, T* s, Acc<T>* mean,
    Acc<T>* rstd, int64_t rows, int cols, int blocks, Dropout<Acc<T>> dropout, Acc<T> one_nth,
    Acc<T> eps) {
    using A = Acc<T>;
    constexpr int V = kVec<T>, N = kVectors<2>;
    Part<T, 2> part(blocks);
    RowMerge merge(blocks);
    const int64_t row = int64_t(cluster_index(blocks)) * blockDim.y + threadIdx.y;
    const Inner<T, kWhole> inner(x + row * cols, row < rows ? cols : 0);  // past the last nothing
    const int64_t begin = row * cols + inner.begin;
    const auto there = [&](int n) { return part.column(n) < inner.width(); };
    const uint64_t seed = *dropout.seed;
    if (row < rows) part.fetch(inner.width(), x + begin, residual + begin);
    Vec<T, 1> edges[2], more_edges[2];
    inner.edges(part.thread(), [&](int n, int c) {
        edges[n] = load<1>(x + row * cols + c);
        more_edges[n] = load<1>(residual + row * cols + c);
    });
    Kept<N, V> kept;
#pragma unroll 1  // four draws side by side would not fit into 40 registers
    for (int n = 0; n < N; ++n) {
        if (!there(n)) break;
        kept.note(n, Draw<V>(dropout, seed, begin + part.column(n)), dropout);
    }
    inner.edges(part.thread(), [&](int n, int c) {
        const int64_t i = row * cols + c;
        const A factor = Draw<1>(dropout, seed, i).factor(dropout, 0);
        edges[n][0] = sum_of(more_edges[n][0], edges[n][0], factor);
        store(s + i, edges[n]);
    });
    part.await();
#pragma unroll 1
    for (int n = 0; n < N; ++n) {
        if (!there(n)) break;
        const Vec<T, V> more = part.at(n, 1);
        Vec<T, V> v = part.at(n, 0);
        const uint32_t bits = kept[n];
        for (int k = 0; k < V; ++k)
            v[k] = sum_of(more[k], v[k], bits >> k & 1 ? dropout.scale : A(0));
        inner.put(s + begin + part.column(n), v);
        part.at(n, 0) = v;
    }
    const auto each = [&](auto visit) {
#pragma unroll
        for (int n = 0; n < N && there(n); ++n) visit(part.at(n, 0));
        inner.edges(part.thread(), [&](int n, int) { visit(edges[n]); });
    };
    const bool once = kMeanIsExact<T> && blockDim.y == 1;
    const Moments<A> of = once ? QuickMoments<T>::of(each, A(0), merge, one_nth, eps)
                               : spread_moments<T>(each, merge, one_nth, eps);
#pragma unroll 4
    for (int n = 0; n < N; ++n) {
        if (!there(n)) break;
        const int c = inner.begin + part.column(n);
        inner.put(
            y + row * cols + c,
            shift_and_scale(part.at(n, 0), of, inner.beside(weight, c), inner.beside(bias, c)));
    }
    inner.edges(part.thread(), [&](int n, int c) {
        store(y + row * cols + c,
              shift_and_scale(edges[n], of, load<1>(weight + c), load<1>(bias + c)));
    });
    if (part.thread() == 0 && row < rows) put(of, row, mean, rstd);
}

constexpr int kWideVectors = 2, kWideDepth = 3;  // of a thread in a row; rows that wait

// The same for rows of four-byte elements that take the most threads a cluster has. It stays, so
// that each thread keeps the weights of its columns; and while what its blocks have summed of the
// next row is on its way to all of them, they finish this one.
template <class T>
__global__ __launch_bounds__(kWideThreads, 1) void forward_wide(
    const T* x, const T* residual, const T* weight, const T* bias, T* y, T* s, Acc<T>* mean,
    Acc<T>* rstd, int rows, int cols, int blocks, Dropout<Acc<T>> dropout, Acc<T> one_nth,
    Acc<T> eps) {
    using A = Acc<T>;
    using Quick = QuickMoments<T>;
    constexpr int V = kVec<T>, N = kWideVectors;
    const int first = cluster_index(), stride = clusters();
    const FullColumns<T, N> column(blocks, cols);
    RowMerge<kWideThreads / kWarp> merge(blocks);
    const uint64_t seed = *dropout.seed;
    RowQueue<T, N, kWideDepth, 2> queue(column, first, stride, rows, x, residual);
    Vec<T, V> w[N], b[N];
#pragma unroll
    for (int n = 0; n < N; ++n) {
        w[n] = load<V>(weight + column[n]);
        b[n] = load<V>(bias + column[n]);
    }
    const auto send_sums = [&](auto vector, int row, A shift) {
        typename Quick::Sums sums = {0, 0};
#pragma unroll
        for (int n = 0; n < N; ++n) {
            const int64_t i = int64_t(row) * cols + column[n];
            const Draw<V> draw(dropout, seed, i);
            const Vec<T, V> more = *vector(n, 1);
            Vec<T, V> v = *vector(n, 0);
            for (int k = 0; k < V; ++k) v[k] = sum_of(more[k], v[k], draw.factor(dropout, k));
            store(s + i, v);
            *vector(n, 0) = v;  // its place in the queue
            const auto before = sums;
            Quick::add(sums, v, shift);
            if (!column.there(n)) sums = before;
        }
        return merge.send(sums);
    };
    const auto shift_of = [&](int row) {
        const int64_t i = int64_t(row < rows ? row : first) * cols;
        return Quick::shift_of(load<V>(x + i)) + Quick::shift_of(load<V>(residual + i));
    };
    A shift = shift_of(first), next_shift = shift_of(first + stride);
    queue.await();
    auto sent = send_sums([&](int n, int k) { return &queue.at(n, k); }, first, shift);
    Again again;
    for (int row = first; row < rows; row += stride) {
        const auto sums = merge.receive(sent);
        const Moments<A> of = Quick::from(sums, shift, one_nth, eps);
        if (!Quick::suffice(of, shift)) again.note(row);
        if (row + stride < rows) {
            queue.template await<1>();
            sent = send_sums([&](int n, int k) { return &queue.template at<1>(n, k); },
                             row + stride, next_shift);
        }
        shift = next_shift;
        next_shift = shift_of(row + 2 * stride);
#pragma unroll
        for (int n = 0; n < N; ++n) {
            store(y + int64_t(row) * cols + column[n],
                  Quick::shift_and_scale(queue.at(n, 0), of, w[n], b[n]));
            queue.replace(n);
        }
        queue.advance();
        if (column.first == 0) put(of, row, mean, rstd);
    }
    if (again.any()) {
        finish_again<T, N>(
            s, weight, bias, y, mean, rstd, again, cols, blocks, merge, one_nth, eps);
    }
}

// A row that no cluster can keep, whatever its width.
template <class T>
__global__ __launch_bounds__(kHalfThreads, 2) void forward_long(
    const T* x, const T* residual, const T* weight, const T* bias, T* y, T* s, Acc<T>* mean,
    Acc<T>* rstd, int cols, int blocks, int kept, Dropout<Acc<T>> dropout, Acc<T> one_nth,
    Acc<T> eps) {
    constexpr int V = kVec<T>;
    Walk<T, 1> walk(cols, blocks, kept);
    RowMerge<kHalfThreads / kWarp> merge(blocks);
    const uint64_t seed = *dropout.seed;
    const int64_t row = cluster_index();
    const int64_t begin = row * cols;
    const T *x_row = x + begin, *residual_row = residual + begin;
    T *s_row = s + begin, *out = y + begin;
    const auto add = [&](int c, auto& v) {
        const Draw<V> draw(dropout, seed, begin + c);
        for (int k = 0; k < V; ++k) v[0][k] = sum_of(v[1][k], v[0][k], draw.factor(dropout, k));
        store(s_row + c, v[0]);
    };
    walk.read_and_change(add, x_row, residual_row);
    const auto each = [&](auto visit) {  // a thread reads what it has written itself
        walk.read_again([&](int, const auto& v) { visit(v[0]); }, s_row);
    };
    using Quick = QuickMoments<T>;
    const Acc<T> shift = Quick::shift_of(load<V>(x_row)) + Quick::shift_of(load<V>(residual_row));
    const Moments<Acc<T>> of = Quick::of(each, shift, merge, one_nth, eps);
    const auto finish = [&](int c, const auto& v) {
        store(out + c, shift_and_scale(v[0], of, load<V>(weight + c), load<V>(bias + c)));
    };
    walk.read_again(finish, s_row);
    if (walk.is_first()) put(of, row, mean, rstd);
}

template <class T, bool kWhole>
__global__ __launch_bounds__(kBackwardThreads) void backward_vector(
    const T* g, const T* gs, const T* s, const T* weight, const Acc<T>* mean, const Acc<T>* rstd,
    T* dresidual, T* dx, Acc<T>* partial_dweight, Acc<T>* partial_dbias, int64_t rows, int cols,
    Dropout<Acc<T>> dropout, Acc<T> one_nth) {
    using A = Acc<T>;
    constexpr int V = kVec<T>, N = kBackwardVectors<T>;
    const Turns<kWhole> turns;
    const Inner<T, kWhole> inner(g + turns.first * cols, cols);
    const Columns<T, N> column(0, inner.begin);
    RowMerge merge(1);
    const NextRows<T, 3> ahead;
    const int lone = inner.lone(threadIdx.x);
    const uint64_t seed = *dropout.seed;
    A weight_sum[N][V] = {}, bias_sum[N][V] = {}, lone_weight_sum[1] = {}, lone_bias_sum[1] = {};
    Vec<T, V> w[N];
#pragma unroll
    for (int n = 0; n < N; ++n) {
        const int c = column[n];
        if (c < inner.end) w[n] = inner.beside(weight, c);
    }
    const Vec<T, 1> lone_w = {lone < 0 ? T(0) : weight[lone]};
    NextNumber<A> next_m, next_r;
    NextNumber<T> next_u, next_v;
    const auto ask = [&](int turn, int64_t row) {
        const bool there = row < rows;
        const int end = there ? inner.end : 0;  // past the last row there is nothing to do
        next_m.ask(mean + row, there);
        next_r.ask(rstd + row, there);
        next_u.ask(g + row * cols + lone, there && lone >= 0);
        next_v.ask(s + row * cols + lone, there && lone >= 0);
        if (gs != nullptr) {
            ahead.fetch(turn, 0, column, end, row * cols, g, s, gs);
        } else {
            ahead.fetch(turn, 0, column, end, row * cols, g, s);
        }
    };
    ask(0, turns.first);
    if constexpr (!kWhole) next_m.await(), next_r.await(), next_u.await(), next_v.await();
    int turn = 0;
    for (int64_t row = turns.first; row - turns.behind < rows; row += turns.stride, turn ^= 1) {
        const int end = row < rows ? inner.end : 0;
        const int64_t begin = row * cols;
        const A m = next_m.get(), r = next_r.get();
        const Vec<T, 1> lone_u = {next_u.get()}, lone_v = {next_v.get()};
        ask(turn ^ 1, row + turns.stride);
        const bool has_lone = lone >= 0 && row < rows;
        await_batches<1>();  // the next row may still be on its way
        Vec<T, V> u[N], v[N];
        Totals<2, A> mine = {0, 0};  // of h, of h * xhat
#pragma unroll
        for (int n = 0; n < N; ++n) {
            if (column[n] >= end) break;
            u[n] = ahead.at(turn, n, 0);
            v[n] = ahead.at(turn, n, 1);
            add_gradients(u[n], v[n], w[n], Moments<A>{m, r}, weight_sum[n], bias_sum[n],
                          mine.values[0], mine.values[1]);
        }
        if (has_lone) {
            add_gradients(lone_u, lone_v, lone_w, Moments<A>{m, r}, lone_weight_sum, lone_bias_sum,
                          mine.values[0], mine.values[1]);
        }
        const auto sent = merge.send(mine);
        Draw<V> draw[N];  // while other warps' sums are on their way
#pragma unroll
        for (int n = 0; n < N; ++n) draw[n] = Draw<V>(dropout, seed, begin + column[n]);
        const auto sums = merge.receive(sent);
        // xhat * average of h * xhat is (s - mean) * slope
        const A h_average = sums[0] * one_nth, slope = sums[1] * one_nth * r;
        const auto dresidual_of = [&](T u, T v, T w, T more) {
            const A h = product(A(u), A(w));
            const A d = r * (h - h_average - (A(v) - m) * slope);
            return gs == nullptr ? d : d + A(more);
        };
#pragma unroll
        for (int n = 0; n < N; ++n) {
            const int c = column[n];
            if (c >= end) break;
            Vec<T, V> more;
            if (gs != nullptr) more = ahead.at(turn, n, 2);
            if constexpr (sizeof(T) == 4) u[n] = ahead.at(turn, n, 0);  // no registers to keep it
            for (int k = 0; k < V; ++k) {
                const A d = dresidual_of(u[n][k], v[n][k], w[n][k], more[k]);
                u[n][k] = T(d);
                v[n][k] = T(d * draw[n].factor(dropout, k));
            }
            inner.put(dresidual + begin + c, u[n]);
            inner.put(dx + begin + c, v[n]);
        }
        if (has_lone) {
            const int64_t i = begin + lone;
            const A d = dresidual_of(lone_u[0], lone_v[0], lone_w[0], gs == nullptr ? T(0) : gs[i]);
            dresidual[i] = T(d);
            dx[i] = T(d * Draw<1>(dropout, seed, i).factor(dropout, 0));
        }
    }
    const int64_t partial = blockIdx.x * int64_t(cols);
    write_columns(partial_dweight + partial, column, inner, weight_sum, lone_weight_sum[0]);
    write_columns(partial_dbias + partial, column, inner, bias_sum, lone_bias_sum[0]);
}

template <class T>
using WideQueue = RowQueue<T, kBackwardVectors<T>, sizeof(T) == 2 ? 3 : 2, 3>;

// blocks: of a cluster. While what its blocks have summed of the next row is on its way to all of
// them, they draw for this one and finish it. There are no registers for both: the second half
// takes its row from shared memory again.
template <class T>
__global__ __launch_bounds__(kBackwardThreads, 1) void backward_wide(
    const T* g, const T* gs, const T* s, const T* weight, const Acc<T>* mean, const Acc<T>* rstd,
    T* dresidual, T* dx, Acc<T>* partial_dweight, Acc<T>* partial_dbias, int rows, int cols,
    int blocks, Dropout<Acc<T>> dropout, Acc<T> one_nth) {
    using A = Acc<T>;
    constexpr int V = kVec<T>, N = kBackwardVectors<T>;
    const int slice = cluster_index(), slices = clusters();
    const Inner<T, true> inner(g, cols);
    const FullColumns<T, N> column(blocks, cols);
    RowMerge<kBackwardThreads / kWarp, kMostBlocks> merge(blocks);
    const uint64_t seed = *dropout.seed;
    WideQueue<T> queue(column, slice, slices, rows, g, s, gs);
    A weight_sum[N][V] = {}, bias_sum[N][V] = {};
    Vec<T, V> w[N];
#pragma unroll
    for (int n = 0; n < N; ++n) w[n] = load<V>(weight + column[n]);
    const NextMoments<A, 1> moments(mean, rstd, rows, slices);
    const auto send_sums = [&](auto vector, A asked) {
        const Moments<A> of = moments.of(asked);
        Totals<2, A> mine = {0, 0};  // of h, of h * xhat
#pragma unroll
        for (int n = 0; n < N; ++n) {
            const Vec<T, V> u = vector(n, 0), v = vector(n, 1);
            const auto before = mine;
            add_gradients(
                u, v, w[n], of, weight_sum[n], bias_sum[n], mine.values[0], mine.values[1]);
            if (!column.there(n)) mine = before;
        }
        return merge.send(mine);
    };
    A this_one = moments.ask(slice), next = moments.ask(slice + slices);
    queue.await();
    auto sent = send_sums([&](int n, int k) { return queue.at(n, k); }, this_one);
    for (int row = slice; row < rows; row += slices) {
        const auto sums = merge.receive(sent);
        const auto [m, r] = moments.of(this_one);
        const A h_average = sums[0] * one_nth, slope = sums[1] * one_nth * r;
        this_one = next;
        next = moments.ask(row + 2 * slices);
        if (row + slices < rows) {
            queue.template await<1>();
            sent = send_sums([&](int n, int k) { return queue.template at<1>(n, k); }, this_one);
        }
#pragma unroll
        for (int n = 0; n < N; ++n) {
            const int64_t i = int64_t(row) * cols + column[n];
            const Draw<V> draw(dropout, seed, i);
            Vec<T, V> u = queue.at(n, 0), v = queue.at(n, 1), more;
            if (gs != nullptr) more = queue.at(n, 2);
            for (int k = 0; k < V; ++k) {
                const A h = product(A(u[k]), A(w[n][k]));
                A d = r * (h - h_average - (A(v[k]) - m) * slope);
                if (gs != nullptr) d += A(more[k]);
                u[k] = T(d);
                v[k] = T(d * draw.factor(dropout, k));
            }
            store(dresidual + i, u);
            store(dx + i, v);
            queue.replace(n);
        }
        queue.advance();
    }
    write_columns(partial_dweight + int64_t(slice) * cols, column, inner, weight_sum);
    write_columns(partial_dbias + int64_t(slice) * cols, column, inner, bias_sum);
}

// Of rows that no cluster can keep, and of which averages_long has left the averages: a thread
// takes V neighbouring columns of a slice of the rows.
template <class T>
__global__ __launch_bounds__(kSliceThreads, kSliceBlocks) void dx_slices(
    const T* g, const T* gs, const T* s, const T* weight, const Acc<T>* mean, const Acc<T>* rstd,
    const Acc<T>* averages, T* dresidual, T* dx, Acc<T>* partial_dweight, Acc<T>* partial_dbias,
    int rows, int64_t cols, Dropout<Acc<T>> dropout) {
    using A = Acc<T>;
    constexpr int V = kVec<T>;
    const int64_t c = (int64_t(blockIdx.x) * blockDim.x + threadIdx.x) * V;
    if (c >= cols) return;
    const uint64_t seed = *dropout.seed;
    const Vec<T, V> w = load<V>(weight + c);
    A weight_sum[V] = {}, bias_sum[V] = {};
#pragma unroll 2
    for (int row = blockIdx.y; row < rows; row += gridDim.y) {
        const int64_t i = int64_t(row) * cols + c;
        Vec<T, V> u = load_once<V>(g + i), v = load_once<V>(s + i);
        const Vec<T, V> more = load_once<V>(gs + i, gs != nullptr);
        const Draw<V> draw(dropout, seed, i);
        const A m = mean[row], r = rstd[row];
        const auto [h_average, slope] = load<2>(averages + 2 * row).at;
        for (int k = 0; k < V; ++k) {
            const A from = A(u[k]), centred = A(v[k]) - m;
            weight_sum[k] += from * (centred * r);
            bias_sum[k] += from;
            A d = r * (product(from, A(w[k])) - h_average - centred * slope);
            if (gs != nullptr) d += A(more[k]);
            u[k] = T(d);
            v[k] = T(d * draw.factor(dropout, k));
        }
        store(dresidual + i, u);
        store(dx + i, v);
    }
    store(partial_dweight + blockIdx.y * cols + c, weight_sum);
    store(partial_dbias + blockIdx.y * cols + c, bias_sum);
}

// ---- launchers. version: 0 naive, 1 block, 2 vector

template <class T>
BackwardPlan<T> plan_of(const T* g, const T* gs, const T* s, const T* weight, int64_t rows,
                        int64_t cols, int64_t version) {
    BackwardPlan<T> plan(version == 2 && is_whole<T>(cols, g, gs, s, weight), rows, cols);
    if constexpr (kHasVectors<T>) {
        constexpr int kBytes = NextRows<T, 3>::kBytes;
        if (plan.whole) {
            plan.launch = backward_launch<T>(backward_vector<T, true>, rows, cols, kBytes);
        } else if (version == 2 && is_aligned(g, gs, s, weight) && may_have_edges<T>(cols, g)) {
            plan.take_edges(backward_launch<T>(backward_vector<T, false>, rows, cols, kBytes));
        }
        if constexpr (kMayHaveClusters) {
            if (plan.whole && plan.wants_wide()) {
                plan.take_wide(
                    backward_launch<T>(backward_wide<T>, rows, cols, WideQueue<T>::kBytes));
            }
        }
    }
    return plan;
}

template <class T>
cudaError_t dropout_layer_norm_forward(
    const T* x, const T* residual, const T* weight, const T* bias, T* y, T* s, Acc<T>* mean,
    Acc<T>* rstd, int64_t rows, int64_t cols, const int64_t* seed, int64_t offset, double p,
    double eps, int64_t version, cudaStream_t stream) {
    if (rows == 0) return cudaSuccess;
    const Dropout<Acc<T>> dropout(seed, offset, p);
    if (version == 0) {
        forward_naive<<<ceil_div<int64_t>(rows, 128), 128, 0, stream>>>(
            x, residual, weight, bias, y, s, mean, rstd, rows, cols, dropout, Acc<T>(eps));
        return cudaGetLastError();
    }
    if constexpr (kHasVectors<T>) {
        const Acc<T> one_nth = Acc<T>(1) / cols;
        // (Of rows on no boundary, a vector would need the bits of two draws.)
        const bool edges =
            is_aligned(x, residual, weight, bias, y, s) && may_have_edges<T>(cols, x);
        const bool whole = is_whole<T>(cols, x, residual, weight, bias, y, s);
        if (version == 2 && (whole || edges)) {
            const auto kernel = whole ? forward_vector<T, true> : forward_vector<T, false>;
            RowLaunch launch = forward_launch<T>(kernel, rows, cols, kVectors<2>, waiting_bytes(1));
            if constexpr (kMayHaveClusters && sizeof(T) == 4) {
                RowLaunch wide;
                if (whole && launch.blocks * launch.block.x == kClusterBlocks * kMostThreads) {
                    wide = wide_launch<T, kWideVectors, kWideDepth, 2>(
                        forward_wide<T>, kWideThreads, rows, cols);
                }
                if (wide.blocks > 0) {
                    wide.start(forward_wide<T>, stream, x, residual, weight, bias, y, s, mean, rstd,
                               int(rows), int(cols), wide.blocks, dropout, one_nth, Acc<T>(eps));
                    return cudaGetLastError();
                }
            }
            if (launch.blocks > 0) {
                launch.start(kernel, stream, x, residual, weight, bias, y, s, mean, rstd, rows,
                             int(cols), launch.blocks, dropout, one_nth, Acc<T>(eps));
                return cudaGetLastError();
            }
        }
        if (version == 2 && whole) {
            const LongLaunch walk = long_launch<T, 1>(forward_long<T>, kHalfThreads, rows, cols);
            walk.start(forward_long<T>, stream, x, residual, weight, bias, y, s, mean, rstd,
                       int(cols), walk.blocks, walk.kept, dropout, one_nth, Acc<T>(eps));
            return cudaGetLastError();
        }
    }
    forward_block<<<grid_of(rows), block_threads(cols), 0, stream>>>(
        x, residual, weight, bias, y, s, mean, rstd, rows, cols, dropout, Acc<T>(eps));
    return cudaGetLastError();
}

// How many rows of partial sums backward needs.
template <class T>
int64_t dropout_layer_norm_partials(const T* g, const T* gs, const T* s, const T* weight,
                                    int64_t rows, int64_t cols, int64_t version) {
    if (version == 0 || cols == 0) return 0;
    return plan_of(g, gs, s, weight, rows, cols, version).partials();
}

// gs: null if nothing arrives at s.
template <class T>
cudaError_t dropout_layer_norm_backward(
    const T* g, const T* gs, const T* s, const T* weight, const Acc<T>* mean, const Acc<T>* rstd,
    T* dresidual, T* dx, Into<T> dweight, Into<T> dbias, Acc<T>* partial_dweight,
    Acc<T>* partial_dbias, int64_t rows, int64_t cols, const int64_t* seed, int64_t offset,
    double p, int64_t version, cudaStream_t stream) {
    if (cols == 0) return cudaSuccess;
    const Dropout<Acc<T>> dropout(seed, offset, p);
    if (rows == 0 || version == 0) {
        if (rows > 0) {
            dx_naive<<<ceil_div<int64_t>(rows, 128), 128, 0, stream>>>(
                g, gs, s, weight, mean, rstd, dresidual, dx, rows, cols, dropout);
        }
        columns_naive<<<ceil_div<int64_t>(cols, 128), 128, 0, stream>>>(
            g, s, mean, rstd, dweight, dbias, rows, cols);
        return cudaGetLastError();
    }
    const BackwardPlan<T> plan = plan_of(g, gs, s, weight, rows, cols, version);
    const Slices& slices = plan.slices;
    if (!plan.whole && plan.launch.blocks == 0) {
        dx_block<<<grid_of(rows), block_threads(cols), 0, stream>>>(
            g, gs, s, weight, mean, rstd, dresidual, dx, rows, cols, dropout);
        columns_block<T, 1><<<slices.grid, slices.block, 0, stream>>>(
            g, s, mean, rstd, partial_dweight, partial_dbias, rows, cols);
    } else if constexpr (kHasVectors<T>) {
        const Acc<T> one_nth = Acc<T>(1) / cols;
        if (plan.launch.blocks == 0) {
            Acc<T>* averages = plan.averages(partial_dweight);
            const RowLaunch launch = cluster_launch(averages_long<T>, rows, kSumThreads);
            launch.start(averages_long<T>, stream, g, s, weight, mean, rstd, averages, int(cols),
                         launch.blocks, one_nth);
            dx_slices<<<slices.grid, slices.block, 0, stream>>>(
                g, gs, s, weight, mean, rstd, averages, dresidual, dx, partial_dweight,
                partial_dbias, int(rows), cols, dropout);
        } else if (!plan.is_wide) {
            const auto kernel = plan.whole ? backward_vector<T, true> : backward_vector<T, false>;
            plan.launch.start(kernel, stream, g, gs, s, weight, mean, rstd, dresidual, dx,
                              partial_dweight, partial_dbias, rows, int(cols), dropout, one_nth);
        } else if constexpr (kMayHaveClusters) {
            plan.launch.start(backward_wide<T>, stream, g, gs, s, weight, mean, rstd, dresidual, dx,
                              partial_dweight, partial_dbias, int(rows), int(cols),
                              plan.launch.blocks, dropout, one_nth);
        }
    }
    launch_column_sums<T>(
        partial_dweight, dweight, partial_dbias, dbias, plan.count(), cols, stream);
    return cudaGetLastError();
}

#define INSTANTIATE(T)                                                                         \
    template cudaError_t dropout_layer_norm_forward<T>(                                        \
        const T*, const T*, const T*, const T*, T*, T*, Acc<T>*, Acc<T>*, int64_t, int64_t,    \
        const int64_t*, int64_t, double, double, int64_t, cudaStream_t);                       \
    template int64_t dropout_layer_norm_partials<T>(                                           \
        const T*, const T*, const T*, const T*, int64_t, int64_t, int64_t);                    \
    template cudaError_t dropout_layer_norm_backward<T>(                                       \
        const T*, const T*, const T*, const T*, const Acc<T>*, const Acc<T>*, T*, T*, Into<T>, \
        Into<T>, Acc<T>*, Acc<T>*, int64_t, int64_t, const int64_t*, int64_t, double, int64_t, \
        cudaStream_t);
FOR_EACH_TYPE(INSTANTIATE)
