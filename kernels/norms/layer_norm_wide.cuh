// layer_norm of rows too wide for one block: versions cluster and stream.
//
// cluster: the blocks of a cluster share a row. They wait for each other's sums, and more has to be
// on its way meanwhile. So a cluster stays and is pipelined: it sends the sums of the next rows
// before it finishes these, which wait in shared memory. Forward takes one row at once, backward
// kRowsTogether. Rows of two-byte elements that fill a block take it in backward too, as clusters
// of one. Needs Hopper; flaw: a row that a cluster cannot keep falls back to block.
//
// stream: such a row is read again where it is needed, but for what there is room for in shared
// memory. Flaw: a row that is no multiple of the vector wide falls back to block.
#pragma once

#include "norms_wide.cuh"

// ---- cluster

// A row that four blocks of a cluster hold in two vectors a thread is left to them.
template <class T>
constexpr int kShortCols = 4 * kWideThreads * 2 * kVec<T>;

// Each thread keeps the weights of its N vectors; D rows wait. blocks: of a cluster.
template <class T, int N, int D>
__global__ __launch_bounds__(kWideThreads, 1) void forward_pipelined(Forward<T> p, int blocks) {
    using A = Acc<T>;
    using Shifted = ShiftedMoments<T>;
    constexpr int V = kVec<T>;
    assume_cluster(blocks);
    const int first = cluster_index(), stride = clusters(), rows = p.rows, cols = p.cols;
    const ClampedColumns<T, N> column(blocks, cols);
    RowReduce<kWideThreads / kWarp, kMostBlocks> reduce(blocks);
    RowQueue<T, N, D> queue(column, first, stride, rows, p.x);
    Vec<T, V> w[N], b[N];
#pragma unroll
    for (int n = 0; n < N; ++n) {
        w[n] = load<V>(p.weight + column[n]);
        b[n] = load<V>(p.bias + column[n]);
    }
    const auto sums_of = [&](auto vector, A shift) {
        Sums<2, A> sums = {0, 0};
#pragma unroll
        for (int n = 0; n < N; ++n) {
            const auto before = sums;
            Shifted::add(sums, vector(n), shift);
            if (!column.is_own(n)) sums = before;
        }
        return sums;
    };
    const auto shift_of = [&](int row) {
        return Shifted::shift_of(load<V>(p.x + int64_t(row < rows ? row : first) * cols));
    };
    A shift = shift_of(first), next_shift = shift_of(first + stride);
    queue.wait();
    auto sent = reduce.send(sums_of([&](int n) { return queue.at(n); }, shift));
    InexactRows inexact;
    for (int row = first; row < rows; row += stride) {
        const auto sums = reduce.receive(sent);
        const Moments<A> of = Shifted::from(sums, shift, p.inverse_cols, p.eps);
        if (!Shifted::suffice(of, shift)) inexact.note(row);
        if (row + stride < rows) {
            queue.template wait<1>();
            sent = reduce.send(sums_of([&](int n) { return queue.template at<1>(n); }, next_shift));
        }
        shift = next_shift;
        next_shift = shift_of(row + 2 * stride);
#pragma unroll
        for (int n = 0; n < N; ++n) {
            store(p.y + int64_t(row) * cols + column[n],
                  Shifted::shift_and_scale(queue.at(n), of, w[n], b[n]));
            queue.replace(n);
        }
        queue.advance();
        if (column.first == 0) store_moments(of, row, p.mean, p.rstd);
    }
    if (inexact.any()) {
        redo_inexact<T, N>(p.x, p.weight, p.bias, p.y, p.mean, p.rstd, inexact, cols, blocks,
                           reduce, p.inverse_cols, p.eps);
    }
}

// (Of four-byte elements, two stages are bytes enough to be on their way.)
template <class T>
using BackwardQueue = RowQueue<T, kBackwardVectors<T>, sizeof(T) == 2 ? 3 : 2, 2, kRowsTogether<T>>;

// There are no registers for R rows: they are finished from shared memory again.
template <class T>
__global__ __launch_bounds__(kBackwardThreads, 1) void backward_pipelined(Backward<T> p,
                                                                          int blocks) {
    launch_dependents();
    using A = Acc<T>;
    constexpr int V = kVec<T>, N = kBackwardVectors<T>, R = kRowsTogether<T>;
    const int slice = cluster_index(), slices = clusters(), rows = p.rows, cols = p.cols;
    const Interior<T, true> interior(p.g, cols);
    const ClampedColumns<T, N> column(blocks, cols);
    RowReduce<kBackwardThreads / kWarp, kMostBlocks> reduce(blocks);
    BackwardQueue<T> queue(column, slice, slices, rows, p.g, p.x);
    A weight_sum[N][V] = {}, bias_sum[N][V] = {};
    Vec<T, V> w[N];
#pragma unroll
    for (int n = 0; n < N; ++n) w[n] = load<V>(p.weight + column[n]);
    const PrefetchedMoments<A, R> moments(p.mean, p.rstd, rows, slices);
    const auto send_sums = [&](auto vector, int first, A fetched) {
        Sums<2 * R, A> mine = {};  // of each row's h, and of its h * xhat
#pragma unroll
        for (int i = 0; i < R; ++i) {
            if (first + i * slices >= rows) break;
#pragma unroll
            for (int n = 0; n < N; ++n) {
                const Vec<T, V> u = vector(n, 0, i), v = vector(n, 1, i);
                const auto before = mine;
                add_gradients(u, v, w[n], moments.of(fetched, i), weight_sum[n], bias_sum[n],
                              mine.values[2 * i], mine.values[2 * i + 1]);
                if (!column.is_own(n)) mine = before;
            }
        }
        return reduce.send(mine);
    };
    A these = moments.fetch(slice), next = moments.fetch(slice + R * slices);
    queue.wait();
    auto sent = send_sums([&](int n, int k, int i) { return queue.at(n, k, i); }, slice, these);
    for (int first = slice; first < rows; first += R * slices) {
        const auto sums = reduce.receive(sent);
        A r[R], slope[R], offset[R];
#pragma unroll
        for (int i = 0; i < R; ++i) {
            const Moments<A> of = moments.of(these, i);
            r[i] = of.rstd;
            slope[i] = sums[2 * i + 1] * p.inverse_cols * r[i];
            offset[i] = sums[2 * i] * p.inverse_cols - of.mean * slope[i];
        }
        these = next;
        next = moments.fetch(first + 2 * R * slices);
        if (first + R * slices < rows) {
            queue.template wait<1>();
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
                    const A h = multiply_rn(A(u[k]), A(w[n][k]));
                    v[k] = T(r[i] * (h - A(v[k]) * slope[i] - offset[i]));
                }
                store(p.dx + int64_t(row) * cols + column[n], v);
                queue.replace(n, i);
            }
        }
        queue.advance();
    }
    write_columns(PartialSums<T>(p.dweight), slice, column, interior, weight_sum);
    write_columns(PartialSums<T>(p.dbias), slice, column, interior, bias_sum);
}

// ---- stream

template <class T>
__global__ __launch_bounds__(kAllThreads) void forward_stream(Forward<T> p, int blocks, int kept) {
    using A = Acc<T>;
    using Shifted = ShiftedMoments<T>;
    constexpr int V = kVec<T>;
    RowStream<T, 1> stream(p.cols, blocks, kept);
    RowReduce<kAllThreads / kWarp> reduce(blocks);
    const int64_t row = cluster_index();
    const T* x = p.x + row * p.cols;
    T* y = p.y + row * p.cols;
    const auto each = [&](auto visit) { stream.read([&](int, const auto& v) { visit(v[0]); }, x); };
    const A shift = Shifted::shift_of(load<V>(x));
    const Moments<A> of = Shifted::of(each, shift, reduce, p.inverse_cols, p.eps);
    const auto write_result = [&](int c, const auto& v) {
        store(y + c, shift_and_scale(v[0], of, load<V>(p.weight + c), load<V>(p.bias + c)));
    };
    stream.read_again(write_result, x);
    if (stream.is_first()) store_moments(of, row, p.mean, p.rstd);
}

// dx of rows whose averages averages_stream has left: a thread takes V neighbouring columns of a
// slice of the rows.
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
    A weight_sum[V] = {}, bias_sum[V] = {};
    for (int first = blockIdx.y; first < rows; first += R * gridDim.y) {
        Vec<T, V> u[R], v[R];
#pragma unroll
        for (int i = 0; i < R; ++i) {
            const int row = first + i * int(gridDim.y);
            u[i] = load_once<V>(p.g + int64_t(row) * cols + c, row < rows);
            v[i] = load_once<V>(p.x + int64_t(row) * cols + c, row < rows);
        }
#pragma unroll
        for (int i = 0; i < R; ++i) {
            const int row = first + i * int(gridDim.y);
            if (row >= rows) break;
            const A m = p.mean[row], r = p.rstd[row];
            const auto [h_average, slope] = load<2>(averages + 2 * row).at;
            for (int k = 0; k < V; ++k) {
                const A d = A(u[i][k]), centred = A(v[i][k]) - m;
                weight_sum[k] += d * (centred * r);
                bias_sum[k] += d;
                v[i][k] = T(r * (multiply_rn(d, A(w[k])) - h_average - centred * slope));
            }
            store(p.dx + int64_t(row) * cols + c, v[i]);
        }
    }
    store(p.dweight.partial + blockIdx.y * cols + c, weight_sum);
    store(p.dbias.partial + blockIdx.y * cols + c, bias_sum);
}

// ---- which kernel takes which rows

template <class T>
bool launch_cluster(const Forward<T>& p, cudaStream_t stream) {
    RowLaunch launch;
    const bool is_short = p.cols <= kShortCols<T>;
    const auto kernel = is_short ? forward_pipelined<T, 2, 3> : forward_pipelined<T, 4, 2>;
    if (is_short) {
        launch = pipelined_launch<T, 2, 3>(kernel, kWideThreads, p.rows, p.cols);
    } else {
        launch =
            pipelined_launch<T, 4, 2>(kernel, kWideThreads / 2, p.rows, p.cols, kClusterBlocks);
        if (launch.blocks == 0)
            launch = pipelined_launch<T, 4, 2>(kernel, kWideThreads, p.rows, p.cols);
    }
    if (launch.blocks > 0) launch.start(kernel, stream, p, launch.blocks);
    return launch.blocks > 0;
}

template <class T>
void launch_stream(const Forward<T>& p, cudaStream_t stream) {
    const auto launch = stream_launch<T, 1>(forward_stream<T>, p.rows, kAllThreads, p.cols);
    launch.start(forward_stream<T>, stream, p, launch.blocks, launch.kept);
}

// Launches the kernel that takes such rows in vectors. False if there is none.
template <class T>
bool launch_forward(const Forward<T>& p, int64_t version, cudaStream_t stream) {
    if constexpr (kHasVectors<T>) {
        const bool aligned = rows_are_aligned<T>(p.cols, p.x, p.weight, p.bias, p.y);
        const bool edges = is_aligned(p.weight, p.bias) && may_have_edges<T>(p.cols, p.x, p.y);
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
        kernels.cluster = backward_pipelined<T>;
        kernels.cluster_bytes = BackwardQueue<T>::kBytes;
        // (Rows of two-byte elements that fill a block, too: as clusters of one.)
        if (sizeof(T) == 2) kernels.most = kBackwardThreads / 2;
    }
    return kernels;
}

template <class T>
BackwardPlan<T> plan_of(const T* g, const T* x, const T* weight, int64_t rows, int64_t cols,
                        int64_t version) {
    return {backward_kernels<T>(), g, is_aligned(g, x, weight), rows, cols, version};
}

template <class T>
void launch_stream(const BackwardPlan<T>& plan, const Backward<T>& p, cudaStream_t stream) {
    Acc<T>* averages = plan.averages(p.dweight.partial);
    const RowLaunch launch = stream_launch(averages_stream<T>, p.rows, kSumThreads);
    launch.start(averages_stream<T>, stream, p.g, p.x, p.weight, p.mean, p.rstd, averages,
                 int(p.cols), launch.blocks, p.inverse_cols);
    dx_slices<<<plan.slices.grid, plan.slices.block, 0, stream>>>(p, averages);
}

template <class T>
void launch_backward(const BackwardPlan<T>& plan, const Backward<T>& p, cudaStream_t stream) {
    plan.start(backward_kernels<T>(), stream, p);
    if constexpr (kHasVectors<T>) {
        if (plan.kernel == plan.stream) launch_stream(plan, p, stream);
    }
}
