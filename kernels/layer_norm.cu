// layer_norm: y = (x - mean) * rstd * weight + bias, with the mean and 1 / deviation of each row
//
//   x, y, g, dx [rows, cols] T          weight, bias, dweight, dbias [cols] T
//   mean, rstd [rows] float             partials [count, cols] float    (double for double)
//   forward: mean and rstd are null where there will be no backward
//   g: the gradient that arrives; dx, dweight, dbias: the gradients that leave
//
// Traffic, the least a kernel can move: forward reads x and writes y, 2 * sizeof(T) bytes per
// element; backward reads g and x and writes dx, 3 * sizeof(T). What is per row or per column is
// small beside it.
//
// With xhat = (x - mean) * rstd and h = g * weight, backward is
//   dx = rstd * (h - average of h - xhat * average of h * xhat)      averages over the row
//   dweight = sum of g * xhat, dbias = sum of g                      sums over the rows
// The statistics of a row, and the kernels that sum over the rows alone, are in moments.cuh.

#include "moments.cuh"

// Vectors that forward keeps of a row, in each thread's registers. The simulator, to which a
// barrier is dear, keeps a row within one warp.
constexpr int kForwardVectors = PLAYGROUND_CUDA ? 8 : 32;
constexpr int kForwardBlocks = 2;  // of 512 threads that fit: 64 registers each

// A row that four blocks of a cluster hold in two vectors a thread is left to them.
template <class T>
constexpr int kShortCols = 4 * kWideThreads * 2 * kVec<T>;

// ---- naive: one thread per row, and for dweight and dbias one thread per column.
// Flaw: neighbouring threads read cols apart, and rows or cols threads cannot fill a GPU.
// (unroll 1: loops left rolled compile faster, and nothing here is about speed.)

template <class T>
__global__ void forward_naive(const T* x, const T* weight, const T* bias, T* y, Acc<T>* mean,
                              Acc<T>* rstd, int64_t rows, int64_t cols, Acc<T> eps) {
    using A = Acc<T>;
    const int64_t row = int64_t(blockIdx.x) * blockDim.x + threadIdx.x;
    if (row >= rows) return;
    x += row * cols;
    y += row * cols;
    const auto [m, r] = thread_moments(x, cols, eps);
#pragma unroll 1
    for (int64_t c = 0; c < cols; ++c) y[c] = T((A(x[c]) - m) * r * A(weight[c]) + A(bias[c]));
    if (mean != nullptr) mean[row] = m, rstd[row] = r;
}

template <class T>
__global__ void dx_naive(const T* g, const T* x, const T* weight, const Acc<T>* mean,
                         const Acc<T>* rstd, T* dx, int64_t rows, int64_t cols) {
    using A = Acc<T>;
    const int64_t row = int64_t(blockIdx.x) * blockDim.x + threadIdx.x;
    if (row >= rows) return;
    g += row * cols;
    x += row * cols;
    dx += row * cols;
    const A m = mean[row], r = rstd[row];
    LongSum<A> h_sum, h_xhat_sum;
#pragma unroll 1
    for (int64_t c = 0; c < cols; ++c) {
        const A h = product(A(g[c]), A(weight[c])), xhat = (A(x[c]) - m) * r;
        h_sum += h;
        h_xhat_sum += h * xhat;
    }
    const A h_average = h_sum.value / cols, h_xhat_average = h_xhat_sum.value / cols;
#pragma unroll 1
    for (int64_t c = 0; c < cols; ++c) {
        const A h = product(A(g[c]), A(weight[c])), xhat = (A(x[c]) - m) * r;
        dx[c] = T(r * (h - h_average - xhat * h_xhat_average));
    }
}

// ---- block: one block per row; neighbouring threads read neighbours, and the block adds up its
// threads' sums. For dweight and dbias a thread takes a column of a slice of the rows, and a second
// pass adds up the slices.
// Flaw: forward reads each row three times, backward twice and once more for the columns.

template <class T>
__global__ void forward_block(const T* x, const T* weight, const T* bias, T* y, Acc<T>* mean,
                              Acc<T>* rstd, int64_t rows, int64_t cols, Acc<T> eps) {
    using A = Acc<T>;
    int turn = 0;
    for (int64_t row = blockIdx.x; row < rows; row += gridDim.x, turn ^= 1) {
        const T* in = x + row * cols;
        T* out = y + row * cols;
        const auto [m, r] = block_moments(in, cols, eps, turn);
        for (int64_t c = threadIdx.x; c < cols; c += blockDim.x)
            out[c] = T((A(in[c]) - m) * r * A(weight[c]) + A(bias[c]));
        if (threadIdx.x == 0 && mean != nullptr) mean[row] = m, rstd[row] = r;
    }
}

template <class T>
__global__ void dx_block(const T* g, const T* x, const T* weight, const Acc<T>* mean,
                         const Acc<T>* rstd, T* dx, int64_t rows, int64_t cols) {
    using A = Acc<T>;
    int turn = 0;
    for (int64_t row = blockIdx.x; row < rows; row += gridDim.x, turn ^= 1) {
        const T *g_row = g + row * cols, *x_row = x + row * cols;
        const A m = mean[row], r = rstd[row];
        A sums[2] = {0, 0};  // of h, of h * xhat
        for (int64_t c = threadIdx.x; c < cols; c += blockDim.x) {
            const A h = product(A(g_row[c]), A(weight[c]));
            sums[0] += h;
            sums[1] += h * ((A(x_row[c]) - m) * r);
        }
        row_sum(sums, turn);
        const A h_average = sums[0] / cols, h_xhat_average = sums[1] / cols;
        for (int64_t c = threadIdx.x; c < cols; c += blockDim.x) {
            const A h = product(A(g_row[c]), A(weight[c])), xhat = (A(x_row[c]) - m) * r;
            dx[row * cols + c] = T(r * (h - h_average - xhat * h_xhat_average));
        }
    }
}

// ---- vector: a thread keeps its part of the row, N vectors of 16 bytes, in registers, so that
// memory is read once: forward takes the mean and then the deviations from it out of registers.
// Backward also keeps the weights, and the sums of its columns over all rows that the block takes.
// For the next row it has no registers left, so that one is on its way to shared memory meanwhile.
//
// A row too wide for one block is shared out among the blocks of a cluster. Those wait for each
// other, and more has to be on its way meanwhile: in forward the next row, and backward takes two
// rows at once. A row that does not fit into that either is read again where it is needed.
//
// A row that is no multiple of the vector wide has edges, which go one by one (edges.cuh).
// Flaw: such a row too wide for one block goes back to block.

// one_nth: 1 / cols, so that no thread divides.
template <class T, bool kWhole>
__global__ __launch_bounds__(kForwardThreads, kForwardBlocks) void forward_vector(
    const T* x, const T* weight, const T* bias, T* y, Acc<T>* mean, Acc<T>* rstd, int64_t rows,
    int cols, Acc<T> one_nth, Acc<T> eps) {
    using A = Acc<T>;
    constexpr int V = kVec<T>, N = kForwardVectors;
    const int64_t row = int64_t(blockIdx.x) * blockDim.y + threadIdx.y;
    x += row * cols;
    y += row * cols;
    const Inner<T, kWhole> inner(x, row < rows ? cols : 0);  // past the last one nothing
    const Columns<T, N> column(0, inner.begin);
    RowMerge merge(1);
    Vec<T, V> v[N];
#pragma unroll
    for (int n = 0; n < N; ++n) v[n] = load_once<V>(x + column[n], column[n] < inner.end);
    Vec<T, 1> edges[2];
    inner.edges(threadIdx.x, [&](int n, int c) { edges[n] = load<1>(x + c); });
    const auto each = [&](auto visit) {
#pragma unroll
        for (int n = 0; n < N && column[n] < inner.end; ++n) visit(v[n]);
        inner.edges(threadIdx.x, [&](int n, int) { visit(edges[n]); });
    };
    const Moments<A> of = spread_moments<T>(each, merge, one_nth, eps);
#pragma unroll
    for (int n = 0; n < N; ++n) {
        const int c = column[n];
        if (c >= inner.end) break;
        inner.put(y + c, shift_and_scale(v[n], of, inner.beside(weight, c), inner.beside(bias, c)));
    }
    inner.edges(threadIdx.x, [&](int n, int c) {
        store(y + c, shift_and_scale(edges[n], of, load<1>(weight + c), load<1>(bias + c)));
    });
    if (threadIdx.x == 0 && row < rows) put(of, row, mean, rstd);
}

// blocks: of a cluster. It stays, so that each thread keeps the weights of its columns; and while
// what its blocks have summed of the next row is on its way to all of them, they finish this one.
template <class T, int N, int D>
__global__ __launch_bounds__(kWideThreads, 1) void forward_wide(
    const T* x, const T* weight, const T* bias, T* y, Acc<T>* mean, Acc<T>* rstd, int rows,
    int cols, int blocks, Acc<T> one_nth, Acc<T> eps) {
    using A = Acc<T>;
    using Quick = QuickMoments<T>;
    constexpr int V = kVec<T>;
    assume_cluster(blocks);
    const int first = cluster_index(), stride = clusters();
    const FullColumns<T, N> column(blocks, cols);
    RowMerge<kWideThreads / kWarp, kMostBlocks> merge(blocks);
    RowQueue<T, N, D> queue(column, first, stride, rows, x);
    Vec<T, V> w[N], b[N];
#pragma unroll
    for (int n = 0; n < N; ++n) {
        w[n] = load<V>(weight + column[n]);
        b[n] = load<V>(bias + column[n]);
    }
    const auto finish = [&](int row, int n, const Vec<T, V>& v, Moments<A> of) {
        store(y + int64_t(row) * cols + column[n], Quick::shift_and_scale(v, of, w[n], b[n]));
    };
    const auto sums_of = [&](auto vector, A shift) {
        typename Quick::Sums sums = {0, 0};
#pragma unroll
        for (int n = 0; n < N; ++n) {
            const auto before = sums;
            Quick::add(sums, vector(n), shift);
            if (!column.there(n)) sums = before;
        }
        return sums;
    };
    const auto shift_of = [&](int row) {
        return Quick::shift_of(load<V>(x + int64_t(row < rows ? row : first) * cols));
    };
    A shift = shift_of(first), next_shift = shift_of(first + stride);
    queue.await();
    auto sent = merge.send(sums_of([&](int n) { return queue.at(n); }, shift));
    Again again;
    for (int row = first; row < rows; row += stride) {
        const auto sums = merge.receive(sent);
        const Moments<A> of = Quick::from(sums, shift, one_nth, eps);
        if (!Quick::suffice(of, shift)) again.note(row);
        if (row + stride < rows) {
            queue.template await<1>();
            sent = merge.send(sums_of([&](int n) { return queue.template at<1>(n); }, next_shift));
        }
        shift = next_shift;
        next_shift = shift_of(row + 2 * stride);
#pragma unroll
        for (int n = 0; n < N; ++n) {
            finish(row, n, queue.at(n), of);
            queue.replace(n);
        }
        queue.advance();
        if (column.first == 0) put(of, row, mean, rstd);
    }
    if (again.any()) {
        finish_again<T, N>(
            x, weight, bias, y, mean, rstd, again, cols, blocks, merge, one_nth, eps);
    }
}

// A row that no cluster can keep, whatever its width.
template <class T>
__global__ __launch_bounds__(kAllThreads) void forward_long(
    const T* x, const T* weight, const T* bias, T* y, Acc<T>* mean, Acc<T>* rstd, int cols,
    int blocks, int kept, Acc<T> one_nth, Acc<T> eps) {
    constexpr int V = kVec<T>;
    Walk<T, 1> walk(cols, blocks, kept);
    RowMerge<kAllThreads / kWarp> merge(blocks);
    const int64_t row = cluster_index();
    const T* in = x + row * cols;
    T* out = y + row * cols;
    const auto each = [&](auto visit) { walk.read([&](int, const auto& v) { visit(v[0]); }, in); };
    using Quick = QuickMoments<T>;
    const Moments<Acc<T>> of = Quick::of(each, Quick::shift_of(load<V>(in)), merge, one_nth, eps);
    const auto finish = [&](int c, const auto& v) {
        store(out + c, shift_and_scale(v[0], of, load<V>(weight + c), load<V>(bias + c)));
    };
    walk.read_again(finish, in);
    if (walk.is_first()) put(of, row, mean, rstd);
}

template <class T, bool kWhole>
__global__ __launch_bounds__(kBackwardThreads) void backward_vector(
    const T* g, const T* x, const T* weight, const Acc<T>* mean, const Acc<T>* rstd, T* dx,
    Acc<T>* partial_dweight, Acc<T>* partial_dbias, int64_t rows, int cols, Acc<T> one_nth) {
    using A = Acc<T>;
    constexpr int V = kVec<T>, N = kBackwardVectors<T>;
    const Turns<kWhole> turns;
    const Inner<T, kWhole> inner(g + turns.first * cols, cols);
    const Columns<T, N> column(0, inner.begin);
    RowMerge merge(1);
    const NextRows<T, 2> ahead;
    const int lone = inner.lone(threadIdx.x);
    A weight_sum[N][V] = {}, bias_sum[N][V] = {}, lone_weight_sum = 0, lone_bias_sum = 0;
    A w[N][V];
    read_columns(weight, column, inner, w);
    const A lone_w = lone < 0 ? A(0) : A(weight[lone]);
    NextNumber<A> next_m, next_r;
    NextNumber<T> next_u, next_v;
    const auto ask = [&](int turn, int64_t row) {
        const bool there = row < rows;
        next_m.ask(mean + row, there);
        next_r.ask(rstd + row, there);
        next_u.ask(g + row * cols + lone, there && lone >= 0);
        next_v.ask(x + row * cols + lone, there && lone >= 0);
        ahead.fetch(turn, 0, column, there ? inner.end : 0, row * cols, g, x);
    };
    ask(0, turns.first);
    if constexpr (!kWhole) next_m.await(), next_r.await(), next_u.await(), next_v.await();
    int turn = 0;
    for (int64_t row = turns.first; row - turns.behind < rows; row += turns.stride, turn ^= 1) {
        const int end = row < rows ? inner.end : 0;  // past the last row there is nothing to do
        const A m = next_m.get(), r = next_r.get();
        const T lone_u = next_u.get(), lone_v = next_v.get();
        ask(turn ^ 1, row + turns.stride);
        const bool has_lone = lone >= 0 && row < rows;
        await_batches<1>();  // the next row may still be on its way
        Vec<T, V> v[N];
        A h[N][V];
        Totals<2, A> mine = {0, 0};  // of h, of h * xhat
        const auto add = [&](T u, T v, A w, A& weight_sum, A& bias_sum) {
            const A d = A(u), xhat = (A(v) - m) * r, h = product(d, w);
            weight_sum += d * xhat;
            bias_sum += d;
            mine.values[0] += h;
            mine.values[1] += h * xhat;
            return h;
        };
#pragma unroll
        for (int n = 0; n < N; ++n) {
            if (column[n] >= end) break;
            const Vec<T, V> u = ahead.at(turn, n, 0);
            v[n] = ahead.at(turn, n, 1);
            for (int k = 0; k < V; ++k)
                h[n][k] = add(u[k], v[n][k], w[n][k], weight_sum[n][k], bias_sum[n][k]);
        }
        A lone_h = 0;
        if (has_lone) lone_h = add(lone_u, lone_v, lone_w, lone_weight_sum, lone_bias_sum);
        const auto sums = merge(mine);
        // xhat * average of h * xhat is (x - mean) * slope: one multiplication less an element
        const A h_average = sums[0] * one_nth, slope = sums[1] * one_nth * r;
        const auto dx_of = [&](A h, T x) { return T(r * (h - h_average - (A(x) - m) * slope)); };
#pragma unroll
        for (int n = 0; n < N; ++n) {
            const int c = column[n];
            if (c >= end) break;
            for (int k = 0; k < V; ++k) v[n][k] = dx_of(h[n][k], v[n][k]);
            inner.put(dx + row * cols + c, v[n]);
        }
        if (has_lone) dx[row * cols + lone] = dx_of(lone_h, lone_v);
    }
    const int64_t partial = blockIdx.x * int64_t(cols);
    write_columns(partial_dweight + partial, column, inner, weight_sum, lone_weight_sum);
    write_columns(partial_dbias + partial, column, inner, bias_sum, lone_bias_sum);
}

// (Of four-byte elements, two turns are bytes enough to be on their way.)
template <class T>
using WideQueue = RowQueue<T, kBackwardVectors<T>, sizeof(T) == 2 ? 3 : 2, 2, kWideRows<T>>;

// blocks: of a cluster, or 1. It takes R rows at once; while what its blocks have summed of the
// next ones is on its way to all of them, they finish these. There are no registers for that many:
// the second half takes its rows from shared memory again.
template <class T>
__global__ __launch_bounds__(kBackwardThreads, 1) void backward_wide(
    const T* g, const T* x, const T* weight, const Acc<T>* mean, const Acc<T>* rstd, T* dx,
    Acc<T>* partial_dweight, Acc<T>* partial_dbias, int rows, int cols, int blocks,
    Acc<T> one_nth) {
    using A = Acc<T>;
    constexpr int V = kVec<T>, N = kBackwardVectors<T>, R = kWideRows<T>;
    const int slice = cluster_index(), slices = clusters();
    const Inner<T, true> inner(g, cols);
    const FullColumns<T, N> column(blocks, cols);
    RowMerge<kBackwardThreads / kWarp, kMostBlocks> merge(blocks);
    WideQueue<T> queue(column, slice, slices, rows, g, x);
    A weight_sum[N][V] = {}, bias_sum[N][V] = {};
    Vec<T, V> w[N];
#pragma unroll
    for (int n = 0; n < N; ++n) w[n] = load<V>(weight + column[n]);
    const NextMoments<A, R> moments(mean, rstd, rows, slices);
    const auto send_sums = [&](auto vector, int first, A asked) {
        Totals<2 * R, A> mine = {};  // of each row's h, and of its h * xhat
#pragma unroll
        for (int i = 0; i < R; ++i) {
            if (first + i * slices >= rows) break;
#pragma unroll
            for (int n = 0; n < N; ++n) {
                const Vec<T, V> u = vector(n, 0, i), v = vector(n, 1, i);
                const auto before = mine;
                add_gradients(u, v, w[n], moments.of(asked, i), weight_sum[n], bias_sum[n],
                              mine.values[2 * i], mine.values[2 * i + 1]);
                if (!column.there(n)) mine = before;
            }
        }
        return merge.send(mine);
    };
    A these = moments.ask(slice), next = moments.ask(slice + R * slices);
    queue.await();
    auto sent = send_sums([&](int n, int k, int i) { return queue.at(n, k, i); }, slice, these);
    for (int first = slice; first < rows; first += R * slices) {
        const auto sums = merge.receive(sent);
        A r[R], slope[R], offset[R];
#pragma unroll
        for (int i = 0; i < R; ++i) {
            const Moments<A> of = moments.of(these, i);
            r[i] = of.rstd;
            slope[i] = sums[2 * i + 1] * one_nth * r[i];
            offset[i] = sums[2 * i] * one_nth - of.mean * slope[i];
        }
        these = next;
        next = moments.ask(first + 2 * R * slices);
        if (first + R * slices < rows) {
            queue.template await<1>();
            sent = send_sums([&](int n, int k, int i) { return queue.template at<1>(n, k, i); },
                             first + R * slices, these);
        }
#pragma unroll
        for (int i = 0; i < R; ++i) {
            const int row = first + i * slices;
            if (row >= rows) break;
#pragma unroll
            for (int n = 0; n < N; ++n) {
                const Vec<T, V> u = queue.at(n, 0, i);
                Vec<T, V> v = queue.at(n, 1, i);
                for (int k = 0; k < V; ++k) {
                    const A h = product(A(u[k]), A(w[n][k]));
                    v[k] = T(r[i] * (h - A(v[k]) * slope[i] - offset[i]));
                }
                store(dx + int64_t(row) * cols + column[n], v);
                queue.replace(n, i);
            }
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
    const T* g, const T* x, const T* weight, const Acc<T>* mean, const Acc<T>* rstd,
    const Acc<T>* averages, T* dx, Acc<T>* partial_dweight, Acc<T>* partial_dbias, int rows,
    int64_t cols) {
    using A = Acc<T>;
    constexpr int V = kVec<T>, R = kRowsAhead;
    const int64_t c = (int64_t(blockIdx.x) * blockDim.x + threadIdx.x) * V;
    if (c >= cols) return;
    const Vec<T, V> w = load<V>(weight + c);
    A weight_sum[V] = {}, bias_sum[V] = {};
    for (int first = blockIdx.y; first < rows; first += R * gridDim.y) {
        Vec<T, V> u[R], v[R];
#pragma unroll
        for (int i = 0; i < R; ++i) {
            const int row = first + i * int(gridDim.y);
            u[i] = load_once<V>(g + int64_t(row) * cols + c, row < rows);
            v[i] = load_once<V>(x + int64_t(row) * cols + c, row < rows);
        }
#pragma unroll
        for (int i = 0; i < R; ++i) {
            const int row = first + i * int(gridDim.y);
            if (row >= rows) break;
            const A m = mean[row], r = rstd[row];
            const auto [h_average, slope] = load<2>(averages + 2 * row).at;
            for (int k = 0; k < V; ++k) {
                const A d = A(u[i][k]), centred = A(v[i][k]) - m;
                weight_sum[k] += d * (centred * r);
                bias_sum[k] += d;
                v[i][k] = T(r * (product(d, A(w[k])) - h_average - centred * slope));
            }
            store(dx + int64_t(row) * cols + c, v[i]);
        }
    }
    store(partial_dweight + blockIdx.y * cols + c, weight_sum);
    store(partial_dbias + blockIdx.y * cols + c, bias_sum);
}

// ---- launchers. version: 0 naive, 1 block, 2 vector

template <class T>
BackwardPlan<T> plan_of(const T* g, const T* x, const T* weight, int64_t rows, int64_t cols,
                        int64_t version) {
    BackwardPlan<T> plan(version == 2 && is_whole<T>(cols, g, x, weight), rows, cols);
    if constexpr (kHasVectors<T>) {
        constexpr int kBytes = NextRows<T, 2>::kBytes;
        if (plan.whole) {
            plan.launch = backward_launch<T>(backward_vector<T, true>, rows, cols, kBytes);
        } else if (version == 2 && is_aligned(g, x, weight) && may_have_edges<T>(cols, g, x)) {
            plan.take_edges(backward_launch<T>(backward_vector<T, false>, rows, cols, kBytes));
        }
        if constexpr (kMayHaveClusters) {
            if (plan.whole && plan.wants_wide(sizeof(T) == 2)) {
                plan.take_wide(
                    backward_launch<T>(backward_wide<T>, rows, cols, WideQueue<T>::kBytes));
            }
        }
    }
    return plan;
}

template <class T>
cudaError_t layer_norm_forward(const T* x, const T* weight, const T* bias, T* y, Acc<T>* mean,
                               Acc<T>* rstd, int64_t rows, int64_t cols, double eps,
                               int64_t version, cudaStream_t stream) {
    if (rows == 0) return cudaSuccess;
    if (version == 0) {
        forward_naive<<<ceil_div<int64_t>(rows, 128), 128, 0, stream>>>(
            x, weight, bias, y, mean, rstd, rows, cols, Acc<T>(eps));
        return cudaGetLastError();
    }
    if constexpr (kHasVectors<T>) {
        const Acc<T> one_nth = Acc<T>(1) / cols;
        const bool whole = is_whole<T>(cols, x, weight, bias, y);
        const bool edges = is_aligned(weight, bias) && may_have_edges<T>(cols, x, y);
        if (version == 2 && (whole || edges)) {
            const auto kernel = whole ? forward_vector<T, true> : forward_vector<T, false>;
            const RowLaunch launch = forward_launch<T>(kernel, rows, cols, kForwardVectors);
            if (launch.blocks == 1) {
                launch.start(kernel, stream, x, weight, bias, y, mean, rstd, rows, int(cols),
                             one_nth, Acc<T>(eps));
                return cudaGetLastError();
            }
        }
        if (version == 2 && whole) {
            RowLaunch launch;
            const bool is_short = cols <= kShortCols<T>;
            const auto wide = is_short ? forward_wide<T, 2, 3> : forward_wide<T, 4, 2>;
            if (is_short) {
                launch = wide_launch<T, 2, 3>(wide, kWideThreads, rows, cols);
            } else {
                launch = wide_launch<T, 4, 2>(wide, kWideThreads / 2, rows, cols, kClusterBlocks);
                if (launch.blocks == 0)
                    launch = wide_launch<T, 4, 2>(wide, kWideThreads, rows, cols);
            }
            if (launch.blocks > 0) {
                launch.start(wide, stream, x, weight, bias, y, mean, rstd, int(rows), int(cols),
                             launch.blocks, one_nth, Acc<T>(eps));
                return cudaGetLastError();
            }
            const LongLaunch walk = long_launch<T, 1>(forward_long<T>, kAllThreads, rows, cols);
            walk.start(forward_long<T>, stream, x, weight, bias, y, mean, rstd, int(cols),
                       walk.blocks, walk.kept, one_nth, Acc<T>(eps));
            return cudaGetLastError();
        }
    }
    forward_block<<<grid_of(rows), block_threads(cols), 0, stream>>>(
        x, weight, bias, y, mean, rstd, rows, cols, Acc<T>(eps));
    return cudaGetLastError();
}

// How many rows of partial sums backward needs.
template <class T>
int64_t layer_norm_partials(const T* g, const T* x, const T* weight, int64_t rows, int64_t cols,
                            int64_t version) {
    if (version == 0 || cols == 0) return 0;
    return plan_of(g, x, weight, rows, cols, version).partials();
}

template <class T>
cudaError_t layer_norm_backward(const T* g, const T* x, const T* weight, const Acc<T>* mean,
                                const Acc<T>* rstd, T* dx, Into<T> dweight, Into<T> dbias,
                                Acc<T>* partial_dweight, Acc<T>* partial_dbias, int64_t rows,
                                int64_t cols, int64_t version, cudaStream_t stream) {
    if (cols == 0) return cudaSuccess;
    if (rows == 0 || version == 0) {
        if (rows > 0) {
            dx_naive<<<ceil_div<int64_t>(rows, 128), 128, 0, stream>>>(
                g, x, weight, mean, rstd, dx, rows, cols);
        }
        columns_naive<<<ceil_div<int64_t>(cols, 128), 128, 0, stream>>>(
            g, x, mean, rstd, dweight, dbias, rows, cols);
        return cudaGetLastError();
    }
    const BackwardPlan<T> plan = plan_of(g, x, weight, rows, cols, version);
    const Slices& slices = plan.slices;
    if (!plan.whole && plan.launch.blocks == 0) {
        dx_block<<<grid_of(rows), block_threads(cols), 0, stream>>>(
            g, x, weight, mean, rstd, dx, rows, cols);
        columns_block<T, 1><<<slices.grid, slices.block, 0, stream>>>(
            g, x, mean, rstd, partial_dweight, partial_dbias, rows, cols);
    } else if constexpr (kHasVectors<T>) {
        const Acc<T> one_nth = Acc<T>(1) / cols;
        if (plan.launch.blocks == 0) {
            Acc<T>* averages = plan.averages(partial_dweight);
            const RowLaunch launch = cluster_launch(averages_long<T>, rows, kSumThreads);
            launch.start(averages_long<T>, stream, g, x, weight, mean, rstd, averages, int(cols),
                         launch.blocks, one_nth);
            dx_slices<<<slices.grid, slices.block, 0, stream>>>(
                g, x, weight, mean, rstd, averages, dx, partial_dweight, partial_dbias, int(rows),
                cols);
        } else if (!plan.is_wide) {
            const auto kernel = plan.whole ? backward_vector<T, true> : backward_vector<T, false>;
            plan.launch.start(kernel, stream, g, x, weight, mean, rstd, dx, partial_dweight,
                              partial_dbias, rows, int(cols), one_nth);
        } else if constexpr (kMayHaveClusters) {
            plan.launch.start(
                backward_wide<T>, stream, g, x, weight, mean, rstd, dx, partial_dweight,
                partial_dbias, int(rows), int(cols), plan.launch.blocks, one_nth);
        }
    }
    launch_column_sums(partial_dweight, dweight, partial_dbias, dbias, plan.count(), cols, stream);
    return cudaGetLastError();
}

#define INSTANTIATE(T)                                                                             \
    template cudaError_t layer_norm_forward<T>(const T*, const T*, const T*, T*, Acc<T>*, Acc<T>*, \
                                               int64_t, int64_t, double, int64_t, cudaStream_t);   \
    template int64_t layer_norm_partials<T>(                                                       \
        const T*, const T*, const T*, int64_t, int64_t, int64_t);                                  \
    template cudaError_t layer_norm_backward<T>(                                                   \
        const T*, const T*, const T*, const Acc<T>*, const Acc<T>*, T*, Into<T>, Into<T>, Acc<T>*, \
        Acc<T>*, int64_t, int64_t, int64_t, cudaStream_t);
FOR_EACH_TYPE(INSTANTIATE)
