// cross_entropy of rows that up to a warp of threads holds in registers: version warp. Their max is
// known before the first power. And which threads take which rows, for all versions but naive.
#pragma once

// kFull: of rows that leave no vector of a thread empty.
constexpr int kWarpThreads = 128;  // of a block

template <class T, bool kFull>
__global__ __launch_bounds__(kWarpThreads, 8) void forward_warp(
    const T* x, const int64_t* target, LossInto<T> loss, Losses<T>* partial, Acc<T>* max,
    Acc<T>* sum, int64_t rows, int64_t cols, int64_t ignore_index, Acc<T> smoothing, int) {
    constexpr int V = kVec<T>;
    launch_dependents();
    const int lanes = blockDim.x, step = lanes * V, first = threadIdx.x * V;
    const int64_t row = int64_t(blockIdx.x) * blockDim.y + threadIdx.y;
    const int end = row < rows ? int(cols) : 0;
    const T* in = x + (kFull ? smaller(row, rows - 1) : row) * cols;
    Vec<T, V> v[kForwardAhead];
#pragma unroll
    for (int n = 0; n < kForwardAhead; ++n) {
        const int c = first + n * step;
        v[n] =
            kFull ? load_once<V>(in + c) : load_once<V>(in + c, c < end, minus_infinities<T, V>());
    }
    RowLoss<T> row_loss(ignore_index, smoothing);
    if (row < rows) row_loss.fetch(target + row);
    // Not with two-byte types: those have more such rows in a warp, and are slower by it.
    if (sizeof(T) > 2 && threadIdx.x == 0) row_loss.look_up(in, cols);
    OnlineSoftmax<T> soft = {warp_max(largest(v), lanes), 0};
    soft.add(v);
    soft.sum = warp_sum(soft.sum, lanes);
    if constexpr (kFull) {
        row_loss.add(v, soft.shift(), 0, 0, 1);  // all of them are there
    } else {
        row_loss.add(v, soft.shift(), first, step, end);
    }
    row_loss.reduce(soft.shift(), [&](Sums<1, Acc<T>> mine) { return mine.warp_reduce(lanes); });
    Losses<T> losses = {0, 0};
    if (threadIdx.x == 0 && row < rows)
        store_row(soft, row_loss, in, cols, row, loss, losses, max, sum);
    if (partial != nullptr) leave(losses, partial);
}

// ---- launch choices

struct LoopShape {
    int ahead;  // vectors in flight per thread
    int iterations,
        more;         // of a thread, at least, so that few meet; and how many more there may be
    int least, most;  // threads of a block
};
constexpr LoopShape kForward = {kForwardAhead, 2, 3, 128, kForwardThreads};
constexpr LoopShape kWarpShape = {kForwardAhead, 1, 0, kWarpThreads, kWarp};
constexpr LoopShape kBackward = {kAhead, 2, 1, 128, 512};

template <class T>
struct Plan {
    bool vectors;  // may the kernel use them?
    bool aligned;  // and has a row no edges?
    dim3 block;    // threads of a row, rows
    int64_t room =
        0;  // vectors that its threads hold in so many iterations: no fewer than the row has
    int64_t rows;

    int blocks = 1;  // of a cluster, which share a row

    // tensors: that are read and written in vectors.
    template <class... P>
    Plan(int64_t rows, int64_t cols, int64_t version, LoopShape shape, const P*... tensors)
        : rows(rows) {
        constexpr int V = kVec<T>;
        aligned = rows_are_aligned<T>(cols, tensors...);
        vectors =
            version >= kVector && cols > 0 && (aligned || may_have_edges<T>(cols, tensors...));
        int64_t threads = kWarp;
        if (vectors) {
            threads = fullest(cols / V, shape);
        } else {
            while (threads < shape.most && threads * shape.iterations * shape.ahead < cols)
                threads *= 2;
        }
        block = dim3(threads, threads < shape.least ? shape.least / threads : 1);
    }
    unsigned grid() const { return grid_of(ceil_div<int64_t>(rows, block.y)) * blocks; }

    // Spreads few rows of so many columns over clusters of up to `most` blocks, as far as these
    // have room and each of their threads has half of its vectors.
    void spread(int64_t cols, LoopShape shape, int most) {
        const int64_t vectors = cols / kVec<T>, room = multiprocessors() / grid();
        const int64_t wanted = ceil_div<int64_t>(vectors, shape.most * shape.ahead / 2);
        if (block.y > 1 || rows != grid() || smaller<int64_t>(room, wanted) < 2) return;
        blocks = int(smaller<int64_t>(smaller<int64_t>(room, wanted), most));
        block.x = fullest(ceil_div<int64_t>(vectors, blocks), shape);
        if (block.x < kWarp) block.x = kWarp;
    }

  private:
    // The number of threads with which the last of a row's iterations is fullest.
    int64_t fullest(int64_t vectors, LoopShape shape) {
        int64_t best = 0;
        int64_t iterations = ceil_div<int64_t>(vectors, shape.most * shape.ahead);
        if (iterations < shape.iterations) iterations = shape.iterations;
        for (const int64_t last = iterations + shape.more; iterations <= last; ++iterations) {
            const int64_t needed = ceil_div(vectors, iterations * shape.ahead);
            int64_t threads = vectors > kWarp || !aligned ? kEdgeThreads : 4;
            while (threads < smaller<int64_t>(needed, kWarp)) threads *= 2;
            if (needed > kWarp) threads = round_up_to_warps(needed);
            const int64_t asked = threads * shape.ahead;
            const int64_t all = ceil_div(vectors, asked) * asked;
            if (best == 0 || all < room) best = threads, room = all;
        }
        return best;
    }
};

// A plan of forward, with its kernel. adds: are the losses added up?
template <class T>
struct ForwardPlan : Plan<T> {
    decltype(&forward_online<T>) kernel = forward_online<T>;

    ForwardPlan(const T* x, int64_t rows, int64_t cols, int64_t version, bool adds)
        : Plan<T>(rows, cols, version, kForward, x) {
        if constexpr (kHasVectors<T>) {
            if (!this->vectors) return;
            const auto spread =
                this->aligned ? forward_vector<T, true, true> : forward_vector<T, false, true>;
            kernel =
                this->aligned ? forward_vector<T, true, false> : forward_vector<T, false, false>;
            if (has_clusters(spread)) this->spread(cols, kForward, kClusterBlocks);
            if (this->blocks > 1) kernel = spread;
            if (version < kOneWarp || !this->aligned || cols > kWarp * kForwardAhead * kVec<T>)
                return;
            // A block has few rows there, and to add up their losses they wait for each other.
            if (adds && sizeof(T) > 2) return;
            const Plan<T> of_warp(rows, cols, version, kWarpShape, x);
            if (of_warp.room > this->room) return;
            Plan<T>::operator=(of_warp);
            const bool is_full = of_warp.room * kVec<T> == cols;
            kernel = is_full ? forward_warp<T, true> : forward_warp<T, false>;
        }
    }
};
