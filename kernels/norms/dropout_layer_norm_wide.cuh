// dropout_layer_norm of rows too wide for one block: versions cluster and stream.
//
// cluster: the blocks of a cluster share a row; forward does so with forward_vector. Where they
// wait long for each other's sums, more has to be on its way meanwhile: in backward, and in forward
// of rows of four-byte elements that take the most threads a cluster has. There a cluster stays and
// is pipelined: it sends the sums of the next row before it finishes this one. Needs Hopper; flaw:
// a row that a cluster cannot keep falls back to block.
//
// stream: such a row is read again where it is needed, but for what there is room for in shared
// memory. Flaw: a row that is no multiple of the vector wide falls back to block.
#pragma once

#include "norms_wide.cuh"

// ---- cluster

constexpr int kQueueVectors = 2, kQueueDepth = 3;  // of a thread in a row; rows that wait

// Each thread keeps the weights of its columns. blocks: of a cluster.
template <class T>
__global__ __launch_bounds__(kWideThreads, 1) void forward_pipelined(Forward<T> p, int blocks) {
    using A = Acc<T>;
    using Shifted = ShiftedMoments<T>;
    constexpr int V = kVec<T>, N = kQueueVectors;
    assume_cluster(blocks);
    const int first = cluster_index(), stride = clusters(), rows = p.rows, cols = p.cols;
    const ClampedColumns<T, N> column(blocks, cols);
    RowReduce<kWideThreads / kWarp> reduce(blocks);
    const uint64_t seed = *p.dropout.seed;
    RowQueue<T, N, kQueueDepth, 2> queue(column, first, stride, rows, p.x, p.residual);
    Vec<T, V> w[N], b[N];
#pragma unroll
    for (int n = 0; n < N; ++n) {
        w[n] = load<V>(p.weight + column[n]);
        b[n] = load<V>(p.bias + column[n]);
    }
    const auto send_sums = [&](auto vector, int row, A shift) {
        Sums<2, A> sums = {0, 0};
#pragma unroll
        for (int n = 0; n < N; ++n) {
            const int64_t i = int64_t(row) * cols + column[n];
            const Draw<V> draw(p.dropout, seed, i);
            const Vec<T, V> more = *vector(n, 1);
            Vec<T, V> v = *vector(n, 0);
            for (int k = 0; k < V; ++k) v[k] = sum_of(more[k], v[k], draw.factor(p.dropout, k));
            store(p.s + i, v);
            *vector(n, 0) = v;  // its place in the queue
            const auto before = sums;
            Shifted::add(sums, v, shift);
            if (!column.is_own(n)) sums = before;
        }
        return reduce.send(sums);
    };
    const auto shift_of = [&](int row) {
        const int64_t i = int64_t(row < rows ? row : first) * cols;
        return Shifted::shift_of(load<V>(p.x + i)) + Shifted::shift_of(load<V>(p.residual + i));
    };
    A shift = shift_of(first), next_shift = shift_of(first + stride);
    queue.wait();
    auto sent = send_sums([&](int n, int k) { return &queue.at(n, k); }, first, shift);
    InexactRows inexact;
    for (int row = first; row < rows; row += stride) {
        const auto sums = reduce.receive(sent);
        const Moments<A> of = Shifted::from(sums, shift, p.inverse_cols, p.eps);
        if (!Shifted::suffice(of, shift)) inexact.note(row);
        if (row + stride < rows) {
            queue.template wait<1>();
            sent = send_sums([&](int n, int k) { return &queue.template at<1>(n, k); },
                             row + stride, next_shift);
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
        redo_inexact<T, N>(p.s, p.weight, p.bias, p.y, p.mean, p.rstd, inexact, cols, blocks,
                           reduce, p.inverse_cols, p.eps);
    }
}

template <class T>
using BackwardQueue = RowQueue<T, kBackwardVectors<T>, sizeof(T) == 2 ? 3 : 2, 3>;

// blocks: of a cluster. It draws for a row when it finishes it. There are no registers for both
// rows: this one is taken from shared memory again.
template <class T>
__global__ __launch_bounds__(kBackwardThreads, 1) void backward_pipelined(Backward<T> p,
                                                                          int blocks) {
    launch_dependents();
    using A = Acc<T>;
    constexpr int V = kVec<T>, N = kBackwardVectors<T>;
    const int slice = cluster_index(), slices = clusters(), rows = p.rows, cols = p.cols;
    const Interior<T, true> interior(p.g, cols);
    const ClampedColumns<T, N> column(blocks, cols);
    RowReduce<kBackwardThreads / kWarp, kMostBlocks> reduce(blocks);
    const uint64_t seed = *p.dropout.seed;
    BackwardQueue<T> queue(column, slice, slices, rows, p.g, p.s, p.gs);
    A weight_sum[N][V] = {}, bias_sum[N][V] = {};
    Vec<T, V> w[N];
#pragma unroll
    for (int n = 0; n < N; ++n) w[n] = load<V>(p.weight + column[n]);
    const PrefetchedMoments<A, 1> moments(p.mean, p.rstd, rows, slices);
    const auto send_sums = [&](auto vector, A fetched) {
        const Moments<A> of = moments.of(fetched);
        Sums<2, A> mine = {0, 0};  // of h, of h * xhat
#pragma unroll
        for (int n = 0; n < N; ++n) {
            const Vec<T, V> u = vector(n, 0), v = vector(n, 1);
            const auto before = mine;
            add_gradients(
                u, v, w[n], of, weight_sum[n], bias_sum[n], mine.values[0], mine.values[1]);
            if (!column.is_own(n)) mine = before;
        }
        return reduce.send(mine);
    };
    A this_one = moments.fetch(slice), next = moments.fetch(slice + slices);
    queue.wait();
    auto sent = send_sums([&](int n, int k) { return queue.at(n, k); }, this_one);
    for (int row = slice; row < rows; row += slices) {
        const auto sums = reduce.receive(sent);
        const auto [m, r] = moments.of(this_one);
        const A h_average = sums[0] * p.inverse_cols, slope = sums[1] * p.inverse_cols * r;
        this_one = next;
        next = moments.fetch(row + 2 * slices);
        if (row + slices < rows) {
            queue.template wait<1>();
            sent = send_sums([&](int n, int k) { return queue.template at<1>(n, k); }, this_one);
        }
#pragma unroll
        for (int n = 0; n < N; ++n) {
            const int64_t i = int64_t(row) * cols + column[n];
            const Draw<V> draw(p.dropout, seed, i);
            Vec<T, V> u = queue.at(n, 0), v = queue.at(n, 1), more;
            if (p.gs != nullptr) more = queue.at(n, 2);
            for (int k = 0; k < V; ++k) {
                const A h = multiply_rn(A(u[k]), A(w[n][k]));
                A d = r * (h - h_average - (A(v[k]) - m) * slope);
                if (p.gs != nullptr) d += A(more[k]);
                u[k] = T(d);
                v[k] = T(d * draw.factor(p.dropout, k));
            }
            store(p.dresidual + i, u);
            store(p.dx + i, v);
            queue.replace(n);
        }
        queue.advance();
    }
    write_columns(p.partial_dweight + int64_t(slice) * cols, column, interior, weight_sum);
    write_columns(p.partial_dbias + int64_t(slice) * cols, column, interior, bias_sum);
}

// ---- stream

template <class T>
__global__ __launch_bounds__(kHalfThreads, 2) void forward_stream(Forward<T> p, int blocks,
                                                                  int kept) {
    using A = Acc<T>;
    using Shifted = ShiftedMoments<T>;
    constexpr int V = kVec<T>;
    RowStream<T, 1> stream(p.cols, blocks, kept);
    RowReduce<kHalfThreads / kWarp> reduce(blocks);
    const uint64_t seed = *p.dropout.seed;
    const int64_t row = cluster_index(), begin = row * p.cols;
    const T *x = p.x + begin, *residual = p.residual + begin;
    T *s = p.s + begin, *y = p.y + begin;
    const auto add = [&](int c, auto& v) {
        const Draw<V> draw(p.dropout, seed, begin + c);
        for (int k = 0; k < V; ++k) v[0][k] = sum_of(v[1][k], v[0][k], draw.factor(p.dropout, k));
        store(s + c, v[0]);
    };
    stream.read_and_change(add, x, residual);
    const auto each = [&](auto visit) {  // a thread reads what it has written itself
        stream.read_again([&](int, const auto& v) { visit(v[0]); }, s);
    };
    const A shift = Shifted::shift_of(load<V>(x)) + Shifted::shift_of(load<V>(residual));
    const Moments<A> of = Shifted::of(each, shift, reduce, p.inverse_cols, p.eps);
    const auto write_result = [&](int c, const auto& v) {
        store(y + c, shift_and_scale(v[0], of, load<V>(p.weight + c), load<V>(p.bias + c)));
    };
    stream.read_again(write_result, s);
    if (stream.is_first()) store_moments(of, row, p.mean, p.rstd);
}

// dx of rows whose averages averages_stream has left: a thread takes V neighbouring columns of a
// slice of the rows.
template <class T>
__global__ __launch_bounds__(kSliceThreads, kSliceBlocks) void dx_slices(Backward<T> p,
                                                                         const Acc<T>* averages) {
    launch_dependents();
    using A = Acc<T>;
    constexpr int V = kVec<T>;
    const int rows = p.rows;
    const int64_t cols = p.cols, c = (int64_t(blockIdx.x) * blockDim.x + threadIdx.x) * V;
    if (c >= cols) return;
    const uint64_t seed = *p.dropout.seed;
    const Vec<T, V> w = load<V>(p.weight + c);
    A weight_sum[V] = {}, bias_sum[V] = {};
#pragma unroll 2
    for (int row = blockIdx.y; row < rows; row += gridDim.y) {
        const int64_t i = int64_t(row) * cols + c;
        Vec<T, V> u = load_once<V>(p.g + i), v = load_once<V>(p.s + i);
        const Vec<T, V> more = load_once<V>(p.gs + i, p.gs != nullptr);
        const Draw<V> draw(p.dropout, seed, i);
        const A m = p.mean[row], r = p.rstd[row];
        const auto [h_average, slope] = load<2>(averages + 2 * row).at;
        for (int k = 0; k < V; ++k) {
            const A from = A(u[k]), centred = A(v[k]) - m;
            weight_sum[k] += from * (centred * r);
            bias_sum[k] += from;
            A d = r * (multiply_rn(from, A(w[k])) - h_average - centred * slope);
            if (p.gs != nullptr) d += A(more[k]);
            u[k] = T(d);
            v[k] = T(d * draw.factor(p.dropout, k));
        }
        store(p.dresidual + i, u);
        store(p.dx + i, v);
    }
    store(p.partial_dweight + blockIdx.y * cols + c, weight_sum);
    store(p.partial_dbias + blockIdx.y * cols + c, bias_sum);
}

// ---- which kernel takes which rows

// Where forward_vector's launch would take the most threads that a cluster has.
template <class T>
bool launch_pipelined(const Forward<T>& p, const RowLaunch& of_vector, cudaStream_t stream) {
    if constexpr (sizeof(T) == 4) {
        if (of_vector.blocks * of_vector.block.x != kClusterBlocks * kSharedThreads) return false;
        const RowLaunch launch = pipelined_launch<T, kQueueVectors, kQueueDepth, 2>(
            forward_pipelined<T>, kWideThreads, p.rows, p.cols);
        if (launch.blocks > 0) launch.start(forward_pipelined<T>, stream, p, launch.blocks);
        return launch.blocks > 0;
    }
    return false;
}

template <class T>
void launch_stream(const Forward<T>& p, cudaStream_t stream) {
    const auto launch = stream_launch<T, 1>(forward_stream<T>, p.rows, kHalfThreads, p.cols);
    launch.start(forward_stream<T>, stream, p, launch.blocks, launch.kept);
}

// Launches the kernel that takes such rows in vectors. False if there is none.
template <class T>
bool launch_forward(const Forward<T>& p, int64_t version, cudaStream_t stream) {
    if constexpr (kHasVectors<T>) {
        // (Of rows on no boundary, a vector would need the bits of two draws.)
        if (version < kVector || !is_aligned(p.x, p.residual, p.weight, p.bias, p.y, p.s))
            return false;
        const bool aligned = rows_are_aligned<T>(p.cols, p.x);
        if (!aligned && !may_have_edges<T>(p.cols, p.x)) return false;
        const auto kernel = aligned ? forward_vector<T, true> : forward_vector<T, false>;
        const RowLaunch launch = forward_launch<T>(
            kForwardShapes, kernel, p.rows, p.cols, kSharedVectors / 2, kNarrowVectors,
            kSharedBytes, version >= kCluster ? kClusterBlocks : 1);
        if (aligned && launch_pipelined(p, launch, stream)) return true;
        if (launch.blocks > 0) {
            launch.start(kernel, stream, p, launch.blocks);
            return true;
        }
        if (!aligned || version < kStream) return false;
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
    Acc<T>* averages = plan.averages(p.partial_dweight);
    const RowLaunch launch = stream_launch(averages_stream<T>, p.rows, kSumThreads);
    launch.start(averages_stream<T>, stream, p.g, p.s, p.weight, p.mean, p.rstd, averages,
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
