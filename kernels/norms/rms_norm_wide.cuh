// rms_norm of rows too wide for one block: versions cluster and stream.
//
// cluster: the blocks of a cluster share a row, and wait for each other's sums. More has to be on
// its way meanwhile: in forward such a row waits in shared memory, which has room for twice the
// columns of vector in one block, and backward takes kRowsTogether at once. Without a residual
// there is half the traffic to hide the wait behind: so forward of very wide rows is pipelined.
// More than one block needs Hopper; flaw: a row that a cluster cannot keep falls back to block.
//
// stream: such a row is read again where it is needed, but for what there is room for in shared
// memory. Flaw: a row that is no multiple of the vector wide falls back to block.
#pragma once

#include "norms_wide.cuh"

// ---- cluster

// The row, where K tensors are read: 2 with a residual.
template <class T, int K>
using WaitingRow = SharedRows<T, kSharedVectors / K, K>;

// blocks: of a cluster, or 1, which have one row.
template <class T, int K>
__global__ __launch_bounds__(kSharedThreads, kSharedBlocks) void forward_cluster(Forward<T> p,
                                                                                 int blocks) {
    using A = Acc<T>;
    using Row = WaitingRow<T, K>;
    constexpr int V = kVec<T>, N = kSharedVectors / K;
    const int cols = p.cols;
    const int64_t row = cluster_index(), begin = row * cols;
    const Columns<T> column(0, cluster_rank(), blocks);
    RowReduce<kSharedThreads / kWarp, kMostBlocks> reduce(blocks);
    if constexpr (K == 2) {
        Row::fetch(0, column, cols, p.x + begin, p.residual + begin);
    } else {
        Row::fetch(0, column, cols, p.x + begin);
    }
    cp_async_wait<0>();
    Sums<1, A> square = {0};
#pragma unroll
    for (int n = 0; n < N; ++n) {
        const int c = column[n];
        if (c >= cols) break;
        Vec<T, V> v = Row::at(n);
        if constexpr (K == 2) {
            const Vec<T, V> more = Row::at(n, 1);
            for (int k = 0; k < V; ++k) v[k] = sum_of(v[k], more[k]);
            store(p.s + begin + c, v);
            Row::at(n) = v;
        }
        for (T value : v.at) square.values[0] += A(value) * A(value);
    }
    const auto sent = reduce.send(square);
    // Weights that come in meanwhile; more would not fit into 40 registers.
    constexpr int kEarly = 4;
    Vec<T, V> early[kEarly];
#pragma unroll
    for (int n = 0; n < kEarly; ++n) {
        if (column[n] < cols) early[n] = load<V>(p.weight + column[n]);
    }
    const A r = rsqrt_rn(reduce.receive(sent)[0] * p.inverse_cols + p.eps);
#pragma unroll
    for (int n = 0; n < N; ++n) {
        const int c = column[n];
        if (c >= cols) break;
        const Vec<T, V> w = n < kEarly ? early[n] : load<V>(p.weight + c);
        Vec<T, V> v = Row::at(n);
        for (int k = 0; k < V; ++k) v[k] = T(A(v[k]) * r * A(w[k]));
        store(p.y + begin + c, v);
    }
    if (column.first == 0 && p.rstd != nullptr) p.rstd[row] = r;
}

// Without a residual: a cluster stays, and each thread keeps the weights of its columns; while what
// the blocks have summed of the next row is on its way to all of them, they finish this one.
constexpr int kQueueVectors = 4, kQueueDepth = 2;  // of a thread in a row; rows that wait

template <class T>
__global__ __launch_bounds__(kWideThreads, 1) void forward_pipelined(Forward<T> p, int blocks) {
    using A = Acc<T>;
    constexpr int V = kVec<T>, N = kQueueVectors;
    assume_cluster(blocks);
    const int first = cluster_index(), stride = clusters(), rows = p.rows, cols = p.cols;
    const ClampedColumns<T, N> column(blocks, cols);
    RowReduce<kWideThreads / kWarp, kMostBlocks> reduce(blocks);
    RowQueue<T, N, kQueueDepth> queue(column, first, stride, rows, p.x);
    Vec<T, V> w[N];
#pragma unroll
    for (int n = 0; n < N; ++n) w[n] = load<V>(p.weight + column[n]);
    const auto send_squares = [&](auto vector) {
        Sums<2, A> squares = {0, 0};  // two, both sent: quicker (docs/rms_norm.md)
#pragma unroll
        for (int n = 0; n < N; ++n) {
            const auto before = squares;
            for (T value : vector(n).at) squares.values[n % 2] += A(value) * A(value);
            if (!column.is_own(n)) squares = before;
        }
        return reduce.send(squares);
    };
    queue.wait();
    auto sent = send_squares([&](int n) { return queue.at(n); });
    for (int row = first; row < rows; row += stride) {
        const auto squares = reduce.receive(sent);
        const A r = rsqrt_rn((squares[0] + squares[1]) * p.inverse_cols + p.eps);
        if (row + stride < rows) {
            queue.template wait<1>();
            sent = send_squares([&](int n) { return queue.template at<1>(n); });
        }
#pragma unroll
        for (int n = 0; n < N; ++n) {
            Vec<T, V> v = queue.at(n);
            for (int k = 0; k < V; ++k) v[k] = T(A(v[k]) * r * A(w[n][k]));
            store(p.y + int64_t(row) * cols + column[n], v);
            queue.replace(n);
        }
        queue.advance();
        if (column.first == 0 && p.rstd != nullptr) p.rstd[row] = r;
    }
}

// The next rows of g and s, while a cluster works on these.
template <class T>
using NextRows = SharedRows<T, kBackwardVectors<T>, 2, 2 * kRowsTogether<T>>;

// blocks: of a cluster, or 1. There are no registers for R rows: the second half of each takes it
// from shared memory again.
template <class T>
__global__ __launch_bounds__(kBackwardThreads) void backward_cluster(Backward<T> p, int blocks) {
    launch_dependents();
    using A = Acc<T>;
    using Next = NextRows<T>;
    constexpr int V = kVec<T>, N = kBackwardVectors<T>, R = kRowsTogether<T>;
    const int cols = p.cols;
    const Interior<T, true> interior(p.g, cols);
    const Columns<T> column(0, cluster_rank(), blocks);
    RowReduce<kBackwardThreads / kWarp, kMostBlocks> reduce(blocks);
    const int64_t slice = cluster_index(), slices = clusters();
    A weight_sum[N][V] = {};
    A w[N][V];
    read_columns(p.weight, column, interior, w);
    A next_r[R];
    const auto fetch = [&](int phase, int64_t row) {
#pragma unroll
        for (int i = 0; i < R; ++i, row += slices) {
            const bool there = row < p.rows;
            next_r[i] = there ? p.rstd[row] : A(0);
            Next::fetch(
                phase * R + i, column, there ? cols : 0, p.g + row * cols, p.s + row * cols);
        }
    };
    fetch(0, slice);
    int phase = 0;
    for (int64_t first = slice; first < p.rows; first += R * slices, phase ^= 1) {
        A r[R];
#pragma unroll
        for (int i = 0; i < R; ++i) r[i] = next_r[i];
        fetch(phase ^ 1, first + R * slices);
        Vec<T, V> more[R][N];
        if (p.gs != nullptr) {
#pragma unroll
            for (int i = 0; i < R; ++i) {
                const int64_t row = first + i * slices;
#pragma unroll
                for (int n = 0; n < N; ++n) {
                    const int c = column[n];
                    more[i][n] = load_once<V>(p.gs + row * cols + c, row < p.rows && c < cols);
                }
            }
        }
        cp_async_wait<R>();        // the next rows may still be on their way
        Sums<2 * R, A> mine = {};  // of each row's h * xhat, and of its xhat * xhat
#pragma unroll
        for (int i = 0; i < R; ++i) {
            if (first + i * slices >= p.rows) break;
#pragma unroll
            for (int n = 0; n < N; ++n) {
                if (column[n] >= cols) break;
                const Vec<T, V> u = Next::at(n, 0, phase * R + i),
                                v = Next::at(n, 1, phase * R + i);
                for (int k = 0; k < V; ++k) {
                    const A xhat = multiply_rn(A(v[k]), r[i]);
                    weight_sum[n][k] += A(u[k]) * xhat;
                    mine.values[2 * i] += multiply_rn(A(u[k]), w[n][k]) * xhat;
                    mine.values[2 * i + 1] += xhat * xhat;
                }
            }
        }
        const auto sums = reduce(mine);
#pragma unroll
        for (int i = 0; i < R; ++i) {
            const int64_t row = first + i * slices;
            if (row >= p.rows) break;
            const A average = average_of(sums[2 * i], sums[2 * i + 1], r[i], p.cols_eps);
#pragma unroll
            for (int n = 0; n < N; ++n) {
                const int c = column[n];
                if (c >= cols) break;
                const Vec<T, V> u = Next::at(n, 0, phase * R + i);
                Vec<T, V> v = Next::at(n, 1, phase * R + i);
                for (int k = 0; k < V; ++k) {
                    const A h = multiply_rn(A(u[k]), w[n][k]), xhat = multiply_rn(A(v[k]), r[i]);
                    const A d = r[i] * (h - xhat * average);
                    v[k] = T(p.gs == nullptr ? d : d + A(more[i][n][k]));
                }
                store(p.dx + row * cols + c, v);
            }
        }
    }
    write_columns(PartialSums<T>(p.dweight), slice, column, interior, weight_sum);
}

// ---- stream

// K: of tensors to read, 2 with a residual.
template <class T, int K>
__global__ __launch_bounds__(kAllThreads) void forward_stream(Forward<T> p, int blocks, int kept) {
    using A = Acc<T>;
    constexpr int V = kVec<T>;
    RowStream<T, 1> stream(p.cols, blocks, kept);
    RowReduce<kAllThreads / kWarp> reduce(blocks);
    const int64_t row = cluster_index(), begin = row * p.cols;
    const T *x = p.x + begin, *residual = p.residual + begin;
    T *s = p.s + begin, *y = p.y + begin;
    Sums<1, A> square = {0};
    const auto add = [&](int c, auto& v) {
        if constexpr (K == 2) {
            for (int k = 0; k < V; ++k) v[0][k] = sum_of(v[0][k], v[1][k]);
            store(s + c, v[0]);
        }
        for (T value : v[0].at) square.values[0] += A(value) * A(value);
    };
    if constexpr (K == 2) {
        stream.read_and_change(add, x, residual);
    } else {
        stream.read(add, x);
    }
    const A r = rsqrt_rn(reduce(square)[0] * p.inverse_cols + p.eps);
    const auto write_result = [&](int c, const auto& v) {
        const Vec<T, V> w = load<V>(p.weight + c);
        Vec<T, V> scaled;
        for (int k = 0; k < V; ++k) scaled[k] = T(A(v[0][k]) * r * A(w[k]));
        store(y + c, scaled);
    };
    stream.read_again(write_result, K == 2 ? s : x);  // a thread reads what it has written itself
    if (stream.is_first() && p.rstd != nullptr) p.rstd[row] = r;
}

// What dx takes of a row that no cluster can keep: its average. averages: [rows]
template <class T>
__global__ __launch_bounds__(kSumThreads, 2) void average_stream(Backward<T> p, Acc<T>* averages,
                                                                 int blocks) {
    using A = Acc<T>;
    RowStream<T, 2> stream(p.cols, blocks, 0);
    RowReduce reduce(blocks);
    const int64_t row = cluster_index();
    const A r = p.rstd[row];
    Sums<2, A> mine = {0, 0};  // of h * xhat, of xhat * xhat
    const auto add = [&](int c, const auto& v) {
        const Vec<T, kVec<T>> w = load<kVec<T>>(p.weight + c);
        for (int k = 0; k < kVec<T>; ++k) {
            const A xhat = multiply_rn(A(v[1][k]), r);
            mine.values[0] += multiply_rn(A(v[0][k]), A(w[k])) * xhat;
            mine.values[1] += xhat * xhat;
        }
    };
    stream.read(add, p.g + row * p.cols, p.s + row * p.cols);
    const auto sums = reduce(mine);
    if (stream.is_first()) averages[row] = average_of(sums[0], sums[1], r, p.cols_eps);
}

// dx of such rows: a thread takes V neighbouring columns of a slice of them.
template <class T>
__global__ __launch_bounds__(kSliceThreads, kSliceBlocks) void dx_slices(Backward<T> p,
                                                                         const Acc<T>* averages) {
    launch_dependents();
    using A = Acc<T>;
    constexpr int V = kVec<T>, R = kRowsAhead;
    const int rows = p.rows;
    const int64_t cols = p.cols, c = (int64_t(blockIdx.x) * blockDim.x + threadIdx.x) * V;
    if (c >= cols) return;
    const Vec<T, V> w = load<V>(p.weight + c);
    A weight_sum[V] = {};
    for (int first = blockIdx.y; first < rows; first += R * gridDim.y) {
        Vec<T, V> u[R], v[R], more[R];
#pragma unroll
        for (int i = 0; i < R; ++i) {
            const int row = first + i * int(gridDim.y);
            u[i] = load_once<V>(p.g + int64_t(row) * cols + c, row < rows);
            v[i] = load_once<V>(p.s + int64_t(row) * cols + c, row < rows);
            more[i] = load_once<V>(p.gs + int64_t(row) * cols + c, row < rows && p.gs != nullptr);
        }
#pragma unroll
        for (int i = 0; i < R; ++i) {
            const int row = first + i * int(gridDim.y);
            if (row >= rows) break;
            const A r = p.rstd[row], average = averages[row];
            for (int k = 0; k < V; ++k) {
                const A h = multiply_rn(A(u[i][k]), A(w[k])), xhat = multiply_rn(A(v[i][k]), r);
                weight_sum[k] += A(u[i][k]) * xhat;
                const A d = r * (h - xhat * average);
                v[i][k] = T(p.gs == nullptr ? d : d + A(more[i][k]));
            }
            store(p.dx + int64_t(row) * cols + c, v[i]);
        }
    }
    store(p.dweight.partial + blockIdx.y * cols + c, weight_sum);
}

// ---- which kernel takes which rows

// Without a residual, a row that eight blocks of half kSharedThreads can hold is left to
// forward_cluster, and wider ones to forward_pipelined.
template <class T>
constexpr int kWaitingCols = kClusterBlocks * kSharedThreads / 2 * kSharedVectors * kVec<T>;

template <class T>
bool launch_cluster(const Forward<T>& p, cudaStream_t stream) {
    const bool adds = p.residual != nullptr;
    if (!adds && p.cols > kWaitingCols<T>) {
        const RowLaunch launch = pipelined_launch<T, kQueueVectors, kQueueDepth>(
            forward_pipelined<T>, kWideThreads, p.rows, p.cols);
        if (launch.blocks > 0) {
            launch.start(forward_pipelined<T>, stream, p, launch.blocks);
            return true;
        }
    }
    const auto kernel = adds ? forward_cluster<T, 2> : forward_cluster<T, 1>;
    const RowLaunch launch = forward_launch<T>(
        kForwardShapes, kernel, p.rows, p.cols, adds ? kSharedVectors / 2 : kSharedVectors,
        kNarrowVectors, kSharedBytes, kMostBlocks);
    if (launch.blocks > 0) launch.start(kernel, stream, p, launch.blocks);
    return launch.blocks > 0;
}

template <class T>
void launch_stream(const Forward<T>& p, cudaStream_t stream) {
    const auto kernel = p.residual != nullptr ? forward_stream<T, 2> : forward_stream<T, 1>;
    const auto launch = stream_launch<T, 1>(kernel, p.rows, kAllThreads, p.cols);
    launch.start(kernel, stream, p, launch.blocks, launch.kept);
}

// Launches the kernel that takes such rows in vectors. False if there is none.
template <class T>
bool launch_forward(const Forward<T>& p, int64_t version, cudaStream_t stream) {
    if constexpr (kHasVectors<T>) {
        const bool aligned = rows_are_aligned<T>(p.cols, p.x, p.residual, p.weight, p.y, p.s);
        const bool edges =
            is_aligned(p.weight) && may_have_edges<T>(p.cols, p.x, p.residual, p.y, p.s);
        if (version < kVector || !(aligned || edges)) return false;
        constexpr int N = kForwardVectors, kFew = kFewestVectors;
        const auto kernel = aligned ? forward_vector<T, true, N> : forward_vector<T, false, N>;
        const RowLaunch launch = forward_launch<T>(
            kForwardShapes, kernel, p.rows, p.cols, kForwardVectors, kNarrowVectors, 0, 1);
        if (launch.blocks > 0) {
            const bool few = aligned && p.cols <= kFew * kVec<T> * int64_t(launch.block.x);
            launch.start(few ? forward_vector<T, true, kFew> : kernel, stream, p);
            return true;
        }
        if (!aligned) return false;
        if (version >= kCluster && launch_cluster(p, stream)) return true;
        if (version < kStream) return false;
        launch_stream(p, stream);
        return true;
    }
    return false;
}

template <class T>
BackwardKernels<Backward<T>> backward_kernels() {
    BackwardKernels<Backward<T>> kernels;
    if constexpr (kHasVectors<T>) {
        kernels.vector = backward_vector<T, true>;
        kernels.edges = backward_vector<T, false>;
        kernels.bytes = NextRow<T>::kBytes;
        kernels.cluster = backward_cluster<T>;
        kernels.cluster_bytes = NextRows<T>::kBytes;
        // (Rows of two-byte elements that fill a block, too: as clusters of one.)
        if (sizeof(T) == 2) kernels.most = kBackwardThreads / 2;
    }
    return kernels;
}

template <class T>
BackwardPlan<T> plan_of(const T* g, const T* gs, const T* s, const T* weight, int64_t rows,
                        int64_t cols, int64_t version) {
    return {backward_kernels<T>(), g, is_aligned(g, gs, s, weight), rows, cols, version};
}

template <class T>
void launch_stream(const BackwardPlan<T>& plan, const Backward<T>& p, cudaStream_t stream) {
    Acc<T>* averages = plan.averages(p.dweight.partial);
    const RowLaunch launch = stream_launch(average_stream<T>, p.rows, kSumThreads);
    launch.start(average_stream<T>, stream, p, averages, launch.blocks);
    dx_slices<<<plan.slices.grid, plan.slices.block, 0, stream>>>(p, averages);
}

template <class T>
void launch_backward(const BackwardPlan<T>& plan, const Backward<T>& p, cudaStream_t stream) {
    plan.start(backward_kernels<T>(), stream, p);
    if constexpr (kHasVectors<T>) {
        if (plan.kernel == plan.stream) launch_stream(plan, p, stream);
    }
}
