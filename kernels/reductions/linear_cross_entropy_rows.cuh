// linear_cross_entropy: losses and gradients of whole rows of logits, each read once.
#pragma once

#include "launches.cuh"

// A row is kept in shared memory, as in softmax: that of one block or, if it is wide, of the blocks
// of a cluster. Each logit is read once, and replaced by its gradient.
template <class T>
__global__ __launch_bounds__(kSharedThreads, kSharedBlocks) void losses_and_gradients(
    T* logits, const int64_t* target, Acc<T>* max, Acc<T>* sum, Losses<T>* partial,
    const Acc<T>* weight, int64_t rows, int cols, int64_t ignore_index, Acc<T> smoothing,
    int blocks) {
    using A = Acc<T>;
    using Row = SharedRows<T, kSharedVectors, 1>;
    constexpr int V = kVec<T>, N = kSharedVectors;
    const Columns<T> column(0, cluster_rank(), blocks);
    RowReduce reduce(blocks);
    const int64_t stride = int64_t(clusters()) * blockDim.y;
    for (int64_t top = int64_t(cluster_index(blocks)) * blockDim.y; top < rows; top += stride) {
        const int64_t row = top + threadIdx.y;
        const int end = row < rows ? cols : 0;  // past the last row there is nothing to do
        T* x = logits + row * cols;
        RowLoss<T> row_loss(ignore_index, smoothing);
        if (end > 0) {
            Row::fetch(0, column, end, x);
            row_loss.fetch(target + row);
            row_loss.look_up(x, cols);  // before its gradient takes its place
        }
        cp_async_wait<0>();
        OnlineSoftmax<T> soft = OnlineSoftmax<T>::identity();
#pragma unroll
        for (int n = 0; n < N; ++n) {
            if (column[n] >= end) break;
            const Vec<T, V> some[1] = {Row::at(n)};
            soft.max = larger(soft.max, largest(some));
        }
#pragma unroll
        for (int n = 0; n < N; ++n) {
            if (column[n] >= end) break;
            const Vec<T, V> some[1] = {Row::at(n)};
            soft.add(some);
            row_loss.add(some, soft.shift(), column[n], 0, end);
        }
        soft = reduce(soft);
        row_loss.reduce(soft.shift(), [&](const Sums<1, A>& sums) { return reduce(sums); });
        if (column.first == 0 && end > 0) {
            Losses<T> losses = {0, 0};
            store_row(soft, row_loss, x, cols, row, LossInto<T>(), losses, max, sum);
            partial[row] = losses;
        }
        const A everywhere = smoothing / A(cols), at_target = 1 - smoothing + everywhere;
        const int64_t t = row_loss.target();
        const bool is_class = t >= 0 && t < cols;
        const A arrives = is_class ? (weight != nullptr ? *weight : A(1)) : A(NAN);
        const A scale = row_loss.counts() ? arrives : A(0);  // which leaves a NaN what it is
        const Ratio<T> share(1, soft.max == -A(INFINITY) ? A(NAN) : soft.sum);
        const auto gradient = [&](A logit, A wanted) {
            return scale * share.times_less(exponential<T>(logit - soft.max), wanted);
        };
#pragma unroll
        for (int n = 0; n < N; ++n) {
            const int c = column[n];
            if (c >= end) break;
            const Vec<T, V> v = Row::at(n);
            A g[V];
            to_floats(v, g);
            if (t >= c && t < c + V) {
                for (int k = 0; k < V; ++k)
                    g[k] = gradient(g[k], c + k == t ? at_target : everywhere);
            } else {
                for (int k = 0; k < V; ++k) g[k] = gradient(g[k], everywhere);
            }
            store_at_once(x + c, rounded<T>(g));
        }
    }
}

// The launch by width: threads and rows of a block, blocks of a cluster.
constexpr RowShape kWholeRows[] = {
    // columns of a 2-byte type
    {128, 1, 1},  //   8192
    {256, 1, 1},  //  16384
    {512, 1, 1},  //  32768
    {256, 1, 4},  //  65536
    {256, 1, 8},  // 131072
    {512, 1, 8},  // 262144
};

// False if there is no launch for this width.
template <class T>
bool launch_losses_and_gradients(T* logits, const int64_t* target, Acc<T>* max, Acc<T>* sum,
                                 Losses<T>* partial, const Acc<T>* weight, int64_t rows,
                                 int64_t cols, int64_t ignore_index, Acc<T> smoothing,
                                 cudaStream_t stream) {
    if constexpr (kHasVectors<T>) {
        if (cols == 0 || !rows_are_aligned<T>(cols, logits)) return false;
        const auto kernel = losses_and_gradients<T>;
        const RowLaunch launch = forward_launch<T>(kWholeRows, kernel, rows, cols, kSharedVectors,
                                                   kSharedVectors, kSharedBytes, kClusterBlocks);
        if (launch.blocks == 0) return false;
        launch.start(kernel, stream, logits, target, max, sum, partial, weight, rows, int(cols),
                     ignore_index, smoothing, launch.blocks);
        return true;
    }
    return false;
}
