// rms_norm: y = s * rstd * weight, with s = x or x + residual, and rstd = 1 / sqrt(mean of s * s)
//
//   x, residual, s, y, g, gs, dx [rows, cols] T     weight, dweight [cols] T
//   rstd [rows] float                     partials [count, cols] float    (double for double)
//   forward: rstd is null where there will be no backward
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
// The average is taken as a sum over sum of xhat^2 + cols * eps * rstd^2, which is cols but for the
// rounding of rstd. So that cancels; else it would stay in dx, of which h and the rest may cancel.

#include "rows.cuh"
#include "waiting.cuh"

// Vectors that forward keeps of a row, in each thread's registers. The simulator, to which a
// barrier is dear, keeps a row within one warp.
constexpr int kForwardVectors = PLAYGROUND_CUDA ? 4 : 32;
constexpr int kForwardBlocks = 3;  // of 512 threads that fit: 40 registers each

// Without a residual, a row that eight blocks of half kMostThreads can hold is left to
// forward_wide, and wider ones to forward_queue.
template <class T>
constexpr int kWaitingCols = kClusterBlocks * kMostThreads / 2 * kVectors<1> * kVec<T>;

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
// Flaw: neighbouring threads read cols apart, and rows or cols threads cannot fill a GPU.
// (unroll 1: loops left rolled compile faster, and nothing here is about speed.)

template <class T>
__global__ void forward_naive(const T* x, const T* residual, const T* weight, T* y, T* s,
                              Acc<T>* rstd, int64_t rows, int64_t cols, Acc<T> eps) {
    using A = Acc<T>;
    const int64_t row = int64_t(blockIdx.x) * blockDim.x + threadIdx.x;
    if (row >= rows) return;
    LongSum<A> square;
#pragma unroll 1
    for (int64_t i = row * cols; i < (row + 1) * cols; ++i) {
        T value = x[i];
        if (residual != nullptr) s[i] = value = sum_of(value, residual[i]);
        square += A(value) * A(value);
    }
    const A r = inverse_root(square.value / cols + eps);
    const T* kept = residual != nullptr ? s : x;
#pragma unroll 1
    for (int64_t c = 0; c < cols; ++c)
        y[row * cols + c] = T(A(kept[row * cols + c]) * r * A(weight[c]));
    if (rstd != nullptr) rstd[row] = r;
}

template <class T>
__global__ void dx_naive(const T* g, const T* gs, const T* s, const T* weight, const Acc<T>* rstd,
                         T* dx, int64_t rows, int64_t cols, Acc<T> cols_eps) {
    using A = Acc<T>;
    const int64_t row = int64_t(blockIdx.x) * blockDim.x + threadIdx.x;
    if (row >= rows) return;
    const A r = rstd[row];
    LongSum<A> h_xhat, square;
#pragma unroll 1
    for (int64_t c = 0, i = row * cols; c < cols; ++c, ++i) {
        const A xhat = product(A(s[i]), r);
        h_xhat += product(A(g[i]), A(weight[c])) * xhat;
        square += xhat * xhat;
    }
    const A average = average_of(h_xhat.value, square.value, r, cols_eps);
#pragma unroll 1
    for (int64_t c = 0, i = row * cols; c < cols; ++c, ++i) {
        const A h = product(A(g[i]), A(weight[c])), xhat = product(A(s[i]), r);
        const A d = r * (h - xhat * average);
        dx[i] = T(gs == nullptr ? d : d + A(gs[i]));
    }
}

template <class T>
__global__ void columns_naive(const T* g, const T* s, const Acc<T>* rstd, Into<T> dweight,
                              int64_t rows, int64_t cols) {
    using A = Acc<T>;
    const int64_t c = int64_t(blockIdx.x) * blockDim.x + threadIdx.x;
    if (c >= cols) return;
    LongSum<A> sum;
#pragma unroll 1
    for (int64_t row = 0; row < rows; ++row)
        sum += A(g[row * cols + c]) * (A(s[row * cols + c]) * rstd[row]);
    put(dweight, c, sum.value);
}

// ---- block: one block per row; neighbouring threads read neighbours, and the block adds up its
// threads' sums. For dweight a thread takes a column of a slice of the rows, and a second pass adds
// up the slices.
// Flaw: both directions read each row twice, backward once more for the columns.

template <class T>
__global__ void forward_block(const T* x, const T* residual, const T* weight, T* y, T* s,
                              Acc<T>* rstd, int64_t rows, int64_t cols, Acc<T> eps) {
    using A = Acc<T>;
    int turn = 0;
    for (int64_t row = blockIdx.x; row < rows; row += gridDim.x, turn ^= 1) {
        A square[1] = {0};
        for (int64_t c = threadIdx.x, i = row * cols + c; c < cols;
             c += blockDim.x, i += blockDim.x) {
            T value = x[i];
            if (residual != nullptr) s[i] = value = sum_of(value, residual[i]);
            square[0] += A(value) * A(value);
        }
        row_sum(square, turn);
        const A r = inverse_root(square[0] / cols + eps);
        const T* kept = residual != nullptr ? s : x;  // a thread reads what it has written itself
        for (int64_t c = threadIdx.x, i = row * cols + c; c < cols;
             c += blockDim.x, i += blockDim.x)
            y[i] = T(A(kept[i]) * r * A(weight[c]));
        if (threadIdx.x == 0 && rstd != nullptr) rstd[row] = r;
    }
}

template <class T>
__global__ void dx_block(const T* g, const T* gs, const T* s, const T* weight, const Acc<T>* rstd,
                         T* dx, int64_t rows, int64_t cols, Acc<T> cols_eps) {
    using A = Acc<T>;
    int turn = 0;
    for (int64_t row = blockIdx.x; row < rows; row += gridDim.x, turn ^= 1) {
        const A r = rstd[row];
        A sums[2] = {0, 0};  // of h * xhat, of xhat * xhat
        for (int64_t c = threadIdx.x, i = row * cols + c; c < cols;
             c += blockDim.x, i += blockDim.x) {
            const A xhat = product(A(s[i]), r);
            sums[0] += product(A(g[i]), A(weight[c])) * xhat;
            sums[1] += xhat * xhat;
        }
        row_sum(sums, turn);
        const A average = average_of(sums[0], sums[1], r, cols_eps);
        for (int64_t c = threadIdx.x, i = row * cols + c; c < cols;
             c += blockDim.x, i += blockDim.x) {
            const A h = product(A(g[i]), A(weight[c])), xhat = product(A(s[i]), r);
            const A d = r * (h - xhat * average);
            dx[i] = T(gs == nullptr ? d : d + A(gs[i]));
        }
    }
}

// V: neighbouring columns of a thread.
template <class T, int V>
__global__ void columns_block(const T* g, const T* s, const Acc<T>* rstd, Acc<T>* partial_dweight,
                              int64_t rows, int64_t cols) {
    using A = Acc<T>;
    const int64_t c = (int64_t(blockIdx.x) * blockDim.x + threadIdx.x) * V;
    if (c >= cols) return;
    const int64_t slice = int64_t(blockIdx.y) * blockDim.y + threadIdx.y;
    const int64_t slices = int64_t(gridDim.y) * blockDim.y;
    A sum[V] = {};
#pragma unroll 4
    for (int64_t row = slice; row < rows; row += slices) {
        const Vec<T, V> u = load<V>(g + row * cols + c), v = load<V>(s + row * cols + c);
        for (int k = 0; k < V; ++k) sum[k] += A(u[k]) * (A(v[k]) * rstd[row]);
    }
    store(partial_dweight + slice * cols + c, sum);
}

// ---- vector: a thread keeps its part of the row, N vectors of 16 bytes, in registers, so that
// memory is read once. Backward also keeps the weights, and the sums of its columns over all rows
// that the block takes; the next row is on its way to shared memory meanwhile.
//
// A row too wide for one block is shared out among the blocks of a cluster. Those wait for each
// other, and more has to be on its way meanwhile: in forward such a row waits in shared memory, and
// backward takes two of them at once. A row that does not fit into that either is read again where
// it is needed.
//
// A row that is no multiple of the vector wide has edges, which go one by one (edges.cuh).
// Flaw: such a row too wide for one block goes back to block.

// one_nth: 1 / cols, so that no thread divides. (Edges take registers, and so a block's place.)
template <class T, bool kWhole>
__global__ __launch_bounds__(kForwardThreads, kWhole ? kForwardBlocks : 2) void forward_vector(
    const T* x, const T* residual, const T* weight, T* y, T* s, Acc<T>* rstd, int64_t rows,
    int cols, Acc<T> one_nth, Acc<T> eps) {
    using A = Acc<T>;
    constexpr int V = kVec<T>, N = kForwardVectors;
    const int64_t row = int64_t(blockIdx.x) * blockDim.y + threadIdx.y, begin = row * cols;
    const Inner<T, kWhole> inner(x + begin, row < rows ? cols : 0);  // past the last one nothing
    const Columns<T, N> column(0, inner.begin);
    RowMerge merge(1);
    Vec<T, V> v[N];
#pragma unroll
    for (int n = 0; n < N; ++n) {
        v[n] = load_once<V>(x + begin + column[n], column[n] < inner.end);
    }
    T edges[2];
    inner.edges(threadIdx.x, [&](int n, int c) { edges[n] = x[begin + c]; });
    if (residual != nullptr) {
#pragma unroll
        for (int n = 0; n < N; ++n) {
            const int c = column[n];
            if (c >= inner.end) break;
            const Vec<T, V> more = load_once<V>(residual + begin + c);
            for (int k = 0; k < V; ++k) v[n][k] = sum_of(v[n][k], more[k]);
            inner.put(s + begin + c, v[n]);
        }
        inner.edges(threadIdx.x, [&](int n, int c) {
            edges[n] = sum_of(edges[n], residual[begin + c]);
            s[begin + c] = edges[n];
        });
    }
    Total<A> square = {0};
#pragma unroll
    for (int n = 0; n < N; ++n) {
        if (column[n] >= inner.end) break;
        for (int k = 0; k < V; ++k) square.value += A(v[n][k]) * A(v[n][k]);
    }
    inner.edges(threadIdx.x, [&](int n, int) { square.value += A(edges[n]) * A(edges[n]); });
    const A r = inverse_root(merge(square).value * one_nth + eps);
#pragma unroll
    for (int n = 0; n < N; ++n) {
        const int c = column[n];
        if (c >= inner.end) break;
        const Vec<T, V> w = inner.beside(weight, c);
        for (int k = 0; k < V; ++k) v[n][k] = T(A(v[n][k]) * r * A(w[k]));
        inner.put(y + begin + c, v[n]);
    }
    inner.edges(
        threadIdx.x, [&](int n, int c) { y[begin + c] = T(A(edges[n]) * r * A(weight[c])); });
    if (threadIdx.x == 0 && row < rows && rstd != nullptr) rstd[row] = r;
}

// blocks: of a cluster, which has one row. K: of tensors to read, 2 with a residual.
template <class T, int K>
__global__ __launch_bounds__(kMostThreads, kWaitingBlocks) void forward_wide(
    const T* x, const T* residual, const T* weight, T* y, T* s, Acc<T>* rstd, int cols, int blocks,
    Acc<T> one_nth, Acc<T> eps) {
    using A = Acc<T>;
    constexpr int V = kVec<T>, N = kVectors<K>;
    const int64_t row = cluster_index(), begin = row * cols;
    Part<T, K> part(blocks);
    RowMerge<kMostThreads / kWarp, kMostBlocks> merge(blocks);
    if constexpr (K == 2) {
        part.fetch(cols, x + begin, residual + begin);
    } else {
        part.fetch(cols, x + begin);
    }
    part.await();
    Total<A> square = {0};
#pragma unroll
    for (int n = 0; n < N; ++n) {
        const int c = part.column(n);
        if (c >= cols) break;
        Vec<T, V> v = part.at(n, 0);
        if constexpr (K == 2) {
            const Vec<T, V> more = part.at(n, 1);
            for (int k = 0; k < V; ++k) v[k] = sum_of(v[k], more[k]);
            store(s + begin + c, v);
            part.at(n, 0) = v;
        }
        for (int k = 0; k < V; ++k) square.value += A(v[k]) * A(v[k]);
    }
    const auto sent = merge.send(square);
    // Weights that come in meanwhile; more would not fit into 40 registers.
    constexpr int kEarly = 4;
    Vec<T, V> early[kEarly];
#pragma unroll
    for (int n = 0; n < kEarly; ++n) {
        if (part.column(n) < cols) early[n] = load<V>(weight + part.column(n));
    }
    const A r = inverse_root(merge.receive(sent).value * one_nth + eps);
#pragma unroll
    for (int n = 0; n < N; ++n) {
        const int c = part.column(n);
        if (c >= cols) break;
        const Vec<T, V> w = n < kEarly ? early[n] : load<V>(weight + c);
        Vec<T, V> v = part.at(n, 0);
        for (int k = 0; k < V; ++k) v[k] = T(A(v[k]) * r * A(w[k]));
        store(y + begin + c, v);
    }
    if (part.column(0) == 0 && rstd != nullptr) rstd[row] = r;
}

// Without a residual there is half the traffic to hide the meetings behind. So a cluster stays, and
// each thread keeps the weights of its columns; while what the blocks have summed of the next row
// is on its way to all of them, they finish this one.
constexpr int kQueueVectors = 4, kQueueDepth = 2;  // of a thread in a row; rows that wait

template <class T>
__global__ __launch_bounds__(kWideThreads, 1) void forward_queue(
    const T* x, const T* weight, T* y, Acc<T>* rstd, int rows, int cols, int blocks, Acc<T> one_nth,
    Acc<T> eps) {
    using A = Acc<T>;
    constexpr int V = kVec<T>, N = kQueueVectors;
    const int first = cluster_index(), stride = clusters();
    const FullColumns<T, N> column(blocks, cols);
    RowMerge<kWideThreads / kWarp, kMostBlocks> merge(blocks);
    RowQueue<T, N, kQueueDepth> queue(column, first, stride, rows, x);
    Vec<T, V> w[N];
#pragma unroll
    for (int n = 0; n < N; ++n) w[n] = load<V>(weight + column[n]);
    const auto send_squares = [&](auto vector) {
        Totals<2, A> squares = {0, 0};  // two, both sent: quicker (docs/rms_norm.md)
#pragma unroll
        for (int n = 0; n < N; ++n) {
            const auto before = squares;
            for (T value : vector(n).at) squares.values[n % 2] += A(value) * A(value);
            if (!column.there(n)) squares = before;
        }
        return merge.send(squares);
    };
    queue.await();
    auto sent = send_squares([&](int n) { return queue.at(n); });
    for (int row = first; row < rows; row += stride) {
        const auto squares = merge.receive(sent);
        const A r = inverse_root((squares[0] + squares[1]) * one_nth + eps);
        if (row + stride < rows) {
            queue.template await<1>();
            sent = send_squares([&](int n) { return queue.template at<1>(n); });
        }
#pragma unroll
        for (int n = 0; n < N; ++n) {
            Vec<T, V> v = queue.at(n);
            for (int k = 0; k < V; ++k) v[k] = T(A(v[k]) * r * A(w[n][k]));
            store(y + int64_t(row) * cols + column[n], v);
            queue.replace(n);
        }
        queue.advance();
        if (column.first == 0 && rstd != nullptr) rstd[row] = r;
    }
}

// A row that no cluster can keep, whatever its width. K: of tensors to read, 2 with a residual.
template <class T, int K>
__global__ __launch_bounds__(kAllThreads) void forward_long(
    const T* x, const T* residual, const T* weight, T* y, T* s, Acc<T>* rstd, int cols, int blocks,
    int kept, Acc<T> one_nth, Acc<T> eps) {
    using A = Acc<T>;
    constexpr int V = kVec<T>;
    Walk<T, 1> walk(cols, blocks, kept);
    RowMerge<kAllThreads / kWarp> merge(blocks);
    const int64_t row = cluster_index();
    const int64_t begin = row * cols;
    const T *x_row = x + begin, *residual_row = residual + begin;
    T *s_row = s + begin, *out = y + begin;
    Total<A> square = {0};
    const auto add = [&](int c, auto& v) {
        if constexpr (K == 2) {
            for (int k = 0; k < V; ++k) v[0][k] = sum_of(v[0][k], v[1][k]);
            store(s_row + c, v[0]);
        }
        for (T value : v[0].at) square.value += A(value) * A(value);
    };
    if constexpr (K == 2) {
        walk.read_and_change(add, x_row, residual_row);
    } else {
        walk.read(add, x_row);
    }
    const A r = inverse_root(merge(square).value * one_nth + eps);
    const auto finish = [&](int c, const auto& v) {
        const Vec<T, V> w = load<V>(weight + c);
        Vec<T, V> scaled;
        for (int k = 0; k < V; ++k) scaled[k] = T(A(v[0][k]) * r * A(w[k]));
        store(out + c, scaled);
    };
    walk.read_again(finish, K == 2 ? s_row : x_row);  // a thread reads what it has written itself
    if (walk.is_first() && rstd != nullptr) rstd[row] = r;
}

template <class T, bool kWhole>
__global__ __launch_bounds__(kBackwardThreads) void backward_vector(
    const T* g, const T* gs, const T* s, const T* weight, const Acc<T>* rstd, T* dx,
    Acc<T>* partial_dweight, int64_t rows, int cols, Acc<T> cols_eps) {
    using A = Acc<T>;
    constexpr int V = kVec<T>, N = kBackwardVectors<T>;
    const Turns<kWhole> turns;
    const Inner<T, kWhole> inner(g + turns.first * cols, cols);
    const Columns<T, N> column(0, inner.begin);
    RowMerge merge(1);
    const NextRows<T, 2> ahead;
    const int lone = inner.lone(threadIdx.x);
    A weight_sum[N][V] = {}, lone_sum = 0;
    A w[N][V];
    read_columns(weight, column, inner, w);
    const A lone_w = lone < 0 ? A(0) : A(weight[lone]);
    NextNumber<A> next_r;
    NextNumber<T> next_u, next_v;
    const auto ask = [&](int turn, int64_t row) {
        const bool there = row < rows;
        next_r.ask(rstd + row, there);
        next_u.ask(g + row * cols + lone, there && lone >= 0);
        next_v.ask(s + row * cols + lone, there && lone >= 0);
        ahead.fetch(turn, 0, column, there ? inner.end : 0, row * cols, g, s);
    };
    ask(0, turns.first);
    if constexpr (!kWhole) next_r.await(), next_u.await(), next_v.await();
    int turn = 0;
    for (int64_t row = turns.first; row - turns.behind < rows; row += turns.stride, turn ^= 1) {
        const int end = row < rows ? inner.end : 0;  // past the last row there is nothing to do
        const A r = next_r.get();
        const T lone_u = next_u.get(), lone_v = next_v.get();
        ask(turn ^ 1, row + turns.stride);
        const bool has_lone = lone >= 0 && row < rows;
        Vec<T, V> u[N], v[N], more[N];
        if (gs != nullptr) {  // for these there are registers
#pragma unroll
            for (int n = 0; n < N; ++n) {
                const int c = column[n];
                more[n] = load_once<V>(gs + row * cols + c, c < end);
            }
        }
        await_batches<1>();          // the next row may still be on its way
        Totals<2, A> mine = {0, 0};  // of h * xhat, of xhat * xhat
        const auto add = [&](T u, T v, A w, A& weight_sum) {
            const A xhat = product(A(v), r);
            weight_sum += A(u) * xhat;
            mine.values[0] += product(A(u), w) * xhat;
            mine.values[1] += xhat * xhat;
        };
#pragma unroll
        for (int n = 0; n < N; ++n) {
            if (column[n] >= end) break;
            u[n] = ahead.at(turn, n, 0);
            v[n] = ahead.at(turn, n, 1);
            for (int k = 0; k < V; ++k) add(u[n][k], v[n][k], w[n][k], weight_sum[n][k]);
        }
        if (has_lone) add(lone_u, lone_v, lone_w, lone_sum);
        const auto sums = merge(mine);
        const A average = average_of(sums[0], sums[1], r, cols_eps);
        const auto dx_of = [&](T u, T v, A w) {
            const A h = product(A(u), w), xhat = product(A(v), r);
            return r * (h - xhat * average);
        };
#pragma unroll
        for (int n = 0; n < N; ++n) {
            const int c = column[n];
            if (c >= end) break;
            for (int k = 0; k < V; ++k) {
                const A d = dx_of(u[n][k], v[n][k], w[n][k]);
                v[n][k] = T(gs == nullptr ? d : d + A(more[n][k]));
            }
            inner.put(dx + row * cols + c, v[n]);
        }
        if (has_lone) {
            const A d = dx_of(lone_u, lone_v, lone_w);
            const int64_t i = row * cols + lone;
            dx[i] = T(gs == nullptr ? d : d + A(gs[i]));
        }
    }
    write_columns(
        partial_dweight + blockIdx.x * int64_t(cols), column, inner, weight_sum, lone_sum);
}

// blocks: of a cluster, or 1. It takes two rows of two-byte elements at once, for which there are
// no registers: the second half of each takes it from shared memory again.
template <class T>
__global__ __launch_bounds__(kBackwardThreads) void backward_wide(
    const T* g, const T* gs, const T* s, const T* weight, const Acc<T>* rstd, T* dx,
    Acc<T>* partial_dweight, int64_t rows, int cols, int blocks, Acc<T> cols_eps) {
    using A = Acc<T>;
    constexpr int V = kVec<T>, N = kBackwardVectors<T>, R = kWideRows<T>;
    const Inner<T, true> inner(g, cols);
    const Columns<T, N> column(cluster_rank());
    RowMerge<kBackwardThreads / kWarp, kMostBlocks> merge(blocks);
    const NextRows<T, 2, R> ahead;
    const int64_t slice = cluster_index(), slices = clusters();
    A weight_sum[N][V] = {};
    A w[N][V];
    read_columns(weight, column, inner, w);
    A next_r[R];
    const auto fetch = [&](int turn, int64_t row) {
#pragma unroll
        for (int i = 0; i < R; ++i, row += slices) {
            const bool there = row < rows;
            next_r[i] = there ? rstd[row] : A(0);
            ahead.fetch(turn, i, column, there ? cols : 0, row * cols, g, s);
        }
    };
    fetch(0, slice);
    int turn = 0;
    for (int64_t first = slice; first < rows; first += R * slices, turn ^= 1) {
        A r[R];
#pragma unroll
        for (int i = 0; i < R; ++i) r[i] = next_r[i];
        fetch(turn ^ 1, first + R * slices);
        Vec<T, V> more[R][N];
        if (gs != nullptr) {
#pragma unroll
            for (int i = 0; i < R; ++i) {
                const int64_t row = first + i * slices;
#pragma unroll
                for (int n = 0; n < N; ++n) {
                    const int c = column[n];
                    more[i][n] = load_once<V>(gs + row * cols + c, row < rows && c < cols);
                }
            }
        }
        await_batches<R>();          // the next rows may still be on their way
        Totals<2 * R, A> mine = {};  // of each row's h * xhat, and of its xhat * xhat
#pragma unroll
        for (int i = 0; i < R; ++i) {
            if (first + i * slices >= rows) break;
#pragma unroll
            for (int n = 0; n < N; ++n) {
                if (column[n] >= cols) break;
                const Vec<T, V> u = ahead.at(turn, n, 0, i), v = ahead.at(turn, n, 1, i);
                for (int k = 0; k < V; ++k) {
                    const A xhat = product(A(v[k]), r[i]);
                    weight_sum[n][k] += A(u[k]) * xhat;
                    mine.values[2 * i] += product(A(u[k]), w[n][k]) * xhat;
                    mine.values[2 * i + 1] += xhat * xhat;
                }
            }
        }
        const auto sums = merge(mine);
#pragma unroll
        for (int i = 0; i < R; ++i) {
            const int64_t row = first + i * slices;
            if (row >= rows) break;
            const A average = average_of(sums[2 * i], sums[2 * i + 1], r[i], cols_eps);
#pragma unroll
            for (int n = 0; n < N; ++n) {
                const int c = column[n];
                if (c >= cols) break;
                const Vec<T, V> u = ahead.at(turn, n, 0, i);
                Vec<T, V> v = ahead.at(turn, n, 1, i);
                for (int k = 0; k < V; ++k) {
                    const A h = product(A(u[k]), w[n][k]), xhat = product(A(v[k]), r[i]);
                    const A d = r[i] * (h - xhat * average);
                    v[k] = T(gs == nullptr ? d : d + A(more[i][n][k]));
                }
                store(dx + row * cols + c, v);
            }
        }
    }
    write_columns(partial_dweight + slice * cols, column, inner, weight_sum);
}

// What dx takes of a row that no cluster can keep: its average. averages: [rows]
template <class T>
__global__ __launch_bounds__(kSumThreads, 2) void averages_long(
    const T* g, const T* s, const T* weight, const Acc<T>* rstd, Acc<T>* averages, int cols,
    int blocks, Acc<T> cols_eps) {
    using A = Acc<T>;
    Walk<T, 2> walk(cols, blocks, 0);
    RowMerge merge(blocks);
    const int64_t row = cluster_index();
    const A r = rstd[row];
    Totals<2, A> mine = {0, 0};  // of h * xhat, of xhat * xhat
    const auto add = [&](int c, const auto& v) {
        const Vec<T, kVec<T>> w = load<kVec<T>>(weight + c);
        for (int k = 0; k < kVec<T>; ++k) {
            const A xhat = product(A(v[1][k]), r);
            mine.values[0] += product(A(v[0][k]), A(w[k])) * xhat;
            mine.values[1] += xhat * xhat;
        }
    };
    walk.read(add, g + row * cols, s + row * cols);
    const auto sums = merge(mine);
    if (walk.is_first()) averages[row] = average_of(sums[0], sums[1], r, cols_eps);
}

// Of such rows: a thread takes V neighbouring columns of a slice of them.
template <class T>
__global__ __launch_bounds__(kSliceThreads, kSliceBlocks) void dx_slices(
    const T* g, const T* gs, const T* s, const T* weight, const Acc<T>* rstd,
    const Acc<T>* averages, T* dx, Acc<T>* partial_dweight, int rows, int64_t cols) {
    using A = Acc<T>;
    constexpr int V = kVec<T>, R = kRowsAhead;
    const int64_t c = (int64_t(blockIdx.x) * blockDim.x + threadIdx.x) * V;
    if (c >= cols) return;
    const Vec<T, V> w = load<V>(weight + c);
    A weight_sum[V] = {};
    for (int first = blockIdx.y; first < rows; first += R * gridDim.y) {
        Vec<T, V> u[R], v[R], more[R];
#pragma unroll
        for (int i = 0; i < R; ++i) {
            const int row = first + i * int(gridDim.y);
            u[i] = load_once<V>(g + int64_t(row) * cols + c, row < rows);
            v[i] = load_once<V>(s + int64_t(row) * cols + c, row < rows);
            more[i] = load_once<V>(gs + int64_t(row) * cols + c, row < rows && gs != nullptr);
        }
#pragma unroll
        for (int i = 0; i < R; ++i) {
            const int row = first + i * int(gridDim.y);
            if (row >= rows) break;
            const A r = rstd[row], average = averages[row];
            for (int k = 0; k < V; ++k) {
                const A h = product(A(u[i][k]), A(w[k])), xhat = product(A(v[i][k]), r);
                weight_sum[k] += A(u[i][k]) * xhat;
                const A d = r * (h - xhat * average);
                v[i][k] = T(gs == nullptr ? d : d + A(more[i][k]));
            }
            store(dx + int64_t(row) * cols + c, v[i]);
        }
    }
    store(partial_dweight + blockIdx.y * cols + c, weight_sum);
}

// ---- launchers. version: 0 naive, 1 block, 2 vector

template <class T>
BackwardPlan<T> plan_of(const T* g, const T* gs, const T* s, const T* weight, int64_t rows,
                        int64_t cols, int64_t version) {
    BackwardPlan<T> plan(version == 2 && is_whole<T>(cols, g, gs, s, weight), rows, cols);
    if constexpr (kHasVectors<T>) {
        constexpr int kBytes = NextRows<T, 2>::kBytes;
        if (plan.whole) {
            plan.launch = backward_launch<T>(backward_vector<T, true>, rows, cols, kBytes);
        } else if (version == 2 && is_aligned(g, gs, s, weight) && may_have_edges<T>(cols, g)) {
            plan.take_edges(backward_launch<T>(backward_vector<T, false>, rows, cols, kBytes));
        }
        if constexpr (kMayHaveClusters) {
            if (plan.whole && plan.wants_wide(sizeof(T) == 2)) {
                plan.take_wide(backward_launch<T>(
                    backward_wide<T>, rows, cols, NextRows<T, 2, kWideRows<T>>::kBytes));
            }
        }
    }
    return plan;
}

// residual and s are null, or both are not.
template <class T>
cudaError_t rms_norm_forward(const T* x, const T* residual, const T* weight, T* y, T* s,
                             Acc<T>* rstd, int64_t rows, int64_t cols, double eps, int64_t version,
                             cudaStream_t stream) {
    if (rows == 0) return cudaSuccess;
    if (version == 0) {
        forward_naive<<<ceil_div<int64_t>(rows, 128), 128, 0, stream>>>(
            x, residual, weight, y, s, rstd, rows, cols, Acc<T>(eps));
        return cudaGetLastError();
    }
    if constexpr (kHasVectors<T>) {
        const Acc<T> one_nth = Acc<T>(1) / cols;
        const bool whole = is_whole<T>(cols, x, residual, weight, y, s);
        const bool edges = is_aligned(weight) && may_have_edges<T>(cols, x, residual, y, s);
        if (version == 2 && (whole || edges)) {
            const auto kernel = whole ? forward_vector<T, true> : forward_vector<T, false>;
            const RowLaunch launch = forward_launch<T>(kernel, rows, cols, kForwardVectors);
            if (launch.blocks == 1) {
                launch.start(kernel, stream, x, residual, weight, y, s, rstd, rows, int(cols),
                             one_nth, Acc<T>(eps));
                return cudaGetLastError();
            }
        }
        if (version == 2 && whole) {
            RowLaunch launch;
            const bool adds = residual != nullptr;
            if (!adds && cols > kWaitingCols<T>) {
                launch = wide_launch<T, kQueueVectors, kQueueDepth>(
                    forward_queue<T>, kWideThreads, rows, cols);
                if (launch.blocks > 0) {
                    launch.start(forward_queue<T>, stream, x, weight, y, rstd, int(rows), int(cols),
                                 launch.blocks, one_nth, Acc<T>(eps));
                    return cudaGetLastError();
                }
            }
            const auto wide = adds ? forward_wide<T, 2> : forward_wide<T, 1>;
            launch = forward_launch<T>(
                wide, rows, cols, adds ? kVectors<2> : kVectors<1>, waiting_bytes(1), kMostBlocks);
            if (launch.blocks > 0) {
                launch.start(wide, stream, x, residual, weight, y, s, rstd, int(cols),
                             launch.blocks, one_nth, Acc<T>(eps));
                return cudaGetLastError();
            }
            const auto kernel = residual != nullptr ? forward_long<T, 2> : forward_long<T, 1>;
            const LongLaunch walk = long_launch<T, 1>(kernel, kAllThreads, rows, cols);
            walk.start(kernel, stream, x, residual, weight, y, s, rstd, int(cols), walk.blocks,
                       walk.kept, one_nth, Acc<T>(eps));
            return cudaGetLastError();
        }
    }
    forward_block<<<grid_of(rows), block_threads(cols), 0, stream>>>(
        x, residual, weight, y, s, rstd, rows, cols, Acc<T>(eps));
    return cudaGetLastError();
}

// How many rows of partial sums backward needs.
template <class T>
int64_t rms_norm_partials(const T* g, const T* gs, const T* s, const T* weight, int64_t rows,
                          int64_t cols, int64_t version) {
    if (version == 0 || cols == 0) return 0;
    return plan_of(g, gs, s, weight, rows, cols, version).partials();
}

// gs: null if nothing arrives at s.
template <class T>
cudaError_t rms_norm_backward(const T* g, const T* gs, const T* s, const T* weight,
                              const Acc<T>* rstd, T* dx, Into<T> dweight, Acc<T>* partial_dweight,
                              int64_t rows, int64_t cols, double eps, int64_t version,
                              cudaStream_t stream) {
    if (cols == 0) return cudaSuccess;
    const Acc<T> cols_eps = cols * eps;
    if (rows == 0 || version == 0) {
        if (rows > 0) {
            dx_naive<<<ceil_div<int64_t>(rows, 128), 128, 0, stream>>>(
                g, gs, s, weight, rstd, dx, rows, cols, cols_eps);
        }
        columns_naive<<<ceil_div<int64_t>(cols, 128), 128, 0, stream>>>(
            g, s, rstd, dweight, rows, cols);
        return cudaGetLastError();
    }
    const BackwardPlan<T> plan = plan_of(g, gs, s, weight, rows, cols, version);
    const Slices& slices = plan.slices;
    if (!plan.whole && plan.launch.blocks == 0) {
        dx_block<<<grid_of(rows), block_threads(cols), 0, stream>>>(
            g, gs, s, weight, rstd, dx, rows, cols, cols_eps);
        columns_block<T, 1>
            <<<slices.grid, slices.block, 0, stream>>>(g, s, rstd, partial_dweight, rows, cols);
    } else if constexpr (kHasVectors<T>) {
        if (plan.launch.blocks == 0) {
            Acc<T>* averages = plan.averages(partial_dweight);
            const RowLaunch launch = cluster_launch(averages_long<T>, rows, kSumThreads);
            launch.start(averages_long<T>, stream, g, s, weight, rstd, averages, int(cols),
                         launch.blocks, cols_eps);
            dx_slices<<<slices.grid, slices.block, 0, stream>>>(
                g, gs, s, weight, rstd, averages, dx, partial_dweight, int(rows), cols);
        } else if (!plan.is_wide) {
            const auto kernel = plan.whole ? backward_vector<T, true> : backward_vector<T, false>;
            plan.launch.start(kernel, stream, g, gs, s, weight, rstd, dx, partial_dweight, rows,
                              int(cols), cols_eps);
        } else if constexpr (kMayHaveClusters) {
            plan.launch.start(backward_wide<T>, stream, g, gs, s, weight, rstd, dx, partial_dweight,
                              rows, int(cols), plan.launch.blocks, cols_eps);
        }
    }
    launch_column_sums<T>(partial_dweight, dweight, nullptr, {}, plan.count(), cols, stream);
    return cudaGetLastError();
}

#define INSTANTIATE(T)                                                                         \
    template cudaError_t rms_norm_forward<T>(const T*, const T*, const T*, T*, T*, Acc<T>*,    \
                                             int64_t, int64_t, double, int64_t, cudaStream_t); \
    template int64_t rms_norm_partials<T>(                                                     \
        const T*, const T*, const T*, const T*, int64_t, int64_t, int64_t);                    \
    template cudaError_t rms_norm_backward<T>(                                                 \
        const T*, const T*, const T*, const T*, const Acc<T>*, T*, Into<T>, Acc<T>*, int64_t,  \
        int64_t, double, int64_t, cudaStream_t);
FOR_EACH_TYPE(INSTANTIATE)
