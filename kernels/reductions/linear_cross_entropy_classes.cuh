// linear_cross_entropy: losses and gradients of logits by class, [classes, apart]. The stride
// `apart` is a multiple of a vector and at least the number of rows.
#pragma once

// A thread has as many neighbouring rows as a vector holds, and a share of the classes, so that
// loads are coalesced. A block has warps for several shares.
constexpr int kSharesOfBlock = 8;
constexpr int kBlocksAtOnce = 3;     // resident per multiprocessor: 80 registers per thread
constexpr int kCombiningWarps = 32;  // of a block

struct ClassShares {
    int64_t rows, apart, classes, count;

    // As many shares as run at once, of at least `least` classes.
    ClassShares(int64_t rows, int64_t apart, int64_t classes, int64_t rows_of_warp, int64_t least)
        : rows(rows), apart(apart), classes(classes) {
        const int64_t down = ceil_div(kBlocksAtOnce * multiprocessors() * rows_of_warp, rows);
        count = smaller(down * kSharesOfBlock, ceil_div(classes, least));
    }
    dim3 grid(int64_t rows_of_warp) const {
        return dim3(ceil_div(rows, rows_of_warp), ceil_div<int64_t>(count, kSharesOfBlock));
    }
    __device__ int64_t first(int64_t share) const { return share * classes / count; }
};

template <class T>
constexpr int kRowsOfWarp = kWarp * kVec<T>;

// The least classes of a share, so that its three statistics per row take at most a sixteenth of
// the memory of the logits.
constexpr int kLeastTaken = 96;

// Calls visit(c, n) for n classes from c on: kAtOnce at a time, then one by one.
template <int kAtOnce, class Visit>
__device__ void for_classes(int64_t c, int64_t end, Visit visit) {
    for (; c + kAtOnce <= end; c += kAtOnce) visit(c, std::integral_constant<int, kAtOnce>());
    for (; c < end; ++c) visit(c, std::integral_constant<int, 1>());
}

// Loads the logits of a thread's rows for N classes.
template <int N, class T, int V>
__device__ void load_classes(Acc<T> (&x)[N][V], const T* logits, int64_t apart) {
    Vec<T, V> v[N];
#pragma unroll
    for (int n = 0; n < N; ++n) v[n] = load<V>(logits + n * apart);
#pragma unroll
    for (int n = 0; n < N; ++n) to_floats(v[n], x[n]);
}

// partials: the statistics of each row over each share of the classes.
template <class T, bool kSmooths>
__global__ __launch_bounds__(kWarp* kSharesOfBlock, kBlocksAtOnce) void take_by_class(
    const T* logits, Statistics<T> partials, ClassShares shares) {
    constexpr int V = kVec<T>;
    const int64_t row = int64_t(blockIdx.x) * kRowsOfWarp<T> + threadIdx.x * V;
    const int64_t share = int64_t(blockIdx.y) * kSharesOfBlock + threadIdx.y;
    if (row >= shares.apart || share >= shares.count) return;
    RunningStatistics<T> running[V];
    constexpr int kAtOnce = kSmooths ? 4 : 8;  // with 80 registers
    for_classes<kAtOnce>(shares.first(share), shares.first(share + 1), [&](int64_t c, auto count) {
        constexpr int N = decltype(count)::value;
        Acc<T> x[N][V];
        load_classes(x, logits + c * shares.apart + row, shares.apart);
#pragma unroll
        for (int k = 0; k < V; ++k) {
            Acc<T> of_row[N];
            for (int n = 0; n < N; ++n) of_row[n] = x[n][k];
            running[k].take(of_row, kSmooths);
        }
    });
    for (int k = 0; k < V; ++k) {
        const int64_t i = share * shares.apart + row + k;
        partials.max[i] = running[k].soft.max;
        partials.sum[i] = running[k].soft.sum;
        partials.below[i] = running[k].below;
    }
}

// Combines the shares. A block has a warp of rows. logits: by class; or null if the hits are known.
template <class T, class Shares>
__global__ __launch_bounds__(kWarp* kCombiningWarps) void combine_shares(
    Statistics<T> partials, const T* logits, const int64_t* target, Statistics<T> known,
    Shares shares) {
    using A = Acc<T>;
    struct OfThread {
        A max, sum, below;
        int64_t read;
    };
    __shared__ OfThread of_threads[kCombiningWarps][kWarp];
    const int64_t row = int64_t(blockIdx.x) * kWarp + threadIdx.x;
    RunningStatistics<T> running;
    if (row < shares.rows) {
#pragma unroll 4
        for (int64_t n = threadIdx.y; n < shares.count; n += kCombiningWarps) {
            const int64_t i = n * shares.apart + row, read = shares.first(n + 1) - shares.first(n);
            running.combine({{partials.max[i], partials.sum[i]}, partials.below[i], read});
        }
    }
    of_threads[threadIdx.y][threadIdx.x] = {
        running.soft.max, running.soft.sum, running.below, running.read};
    __syncthreads();
    if (threadIdx.y > 0 || row >= shares.rows) return;
    for (int n = 1; n < kCombiningWarps; ++n) {
        const OfThread& it = of_threads[n][threadIdx.x];
        running.combine({{it.max, it.sum}, it.below, it.read});
    }
    const int64_t t = target[row];
    known.max[row] = running.soft.max;
    known.sum[row] = running.soft.sum;
    known.below[row] = running.below;
    if (t < 0 || t >= shares.classes) {
        known.hit[row] = A(NAN);
    } else if (logits != nullptr) {
        known.hit[row] = A(logits[t * shares.apart + row]);
    }
}

constexpr int kGradientsAtOnce = 4;  // classes in flight per thread; the least of a share

// Replaces the logits by their gradients. Each gradient is stored `shares.classes` before its
// logit: those of the first classes in `room`, the others where the same thread has read logits.
// Padding behind the rows is arbitrary.
template <class T>
__global__ __launch_bounds__(kWarp* kSharesOfBlock) void gradient_by_class(
    Arriving<T> g, int64_t g_step, T* logits, T* room, const int64_t* target, const Acc<T>* max,
    const Acc<T>* sum, const Acc<T>* weight, ClassShares shares, int64_t classes,
    int64_t ignore_index, Acc<T> smoothing) {
    constexpr int V = kVec<T>;
    const int64_t row = int64_t(blockIdx.x) * kRowsOfWarp<T> + threadIdx.x * V;
    const int64_t share = int64_t(blockIdx.y) * kSharesOfBlock + threadIdx.y;
    if (row >= shares.apart || share >= shares.count) return;
    const Acc<T> by = weight != nullptr ? *weight : Acc<T>(1);
    RowGradient<T> gradient[V];
    for (int k = 0; k < V; ++k) {
        const int64_t r = smaller(row + k, shares.rows - 1);
        const Acc<T> arrives = by * at(g, r * g_step);
        gradient[k] =
            RowGradient<T>(target[r], classes, ignore_index, smoothing, max[r], sum[r], arrives);
    }
    const int64_t first = shares.first(share), end = shares.first(share + 1);
    T* to = room + row;
    for (int64_t before = 0; before < classes; before += shares.classes) {
        T* const from = logits + before * shares.apart + row;
        for_classes<kGradientsAtOnce>(
            first, smaller(end, classes - before), [&](int64_t c, auto count) {
                constexpr int N = decltype(count)::value;
                Acc<T> x[N][V];
                load_classes(x, from + c * shares.apart, shares.apart);
#pragma unroll
                for (int n = 0; n < N; ++n) {
#pragma unroll
                    for (int k = 0; k < V; ++k) x[n][k] = gradient[k](x[n][k], before + c + n);
                    store(to + (c + n) * shares.apart, rounded<T>(x[n]));
                }
            });
        to = from;
    }
}

// ---- launchers

// How many numbers `take_by_class` leaves.
template <class T>
int64_t linear_cross_entropy_by_class_numbers(int64_t rows, int64_t apart, int64_t classes) {
    return 3 * apart * ClassShares(rows, apart, classes, kRowsOfWarp<T>, kLeastTaken).count;
}

template <class T>
cudaError_t linear_cross_entropy_take_by_class(
    const T* logits, const int64_t* target, Acc<T>* numbers, Acc<T>* max, Acc<T>* sum,
    Acc<T>* below, Acc<T>* hit, int64_t rows, int64_t apart, int64_t classes, bool smooths,
    cudaStream_t stream) {
    if constexpr (kHasVectors<T>) {
        const ClassShares shares(rows, apart, classes, kRowsOfWarp<T>, kLeastTaken);
        const int64_t each = shares.count * apart;
        const Statistics<T> parts = {numbers, numbers + each, numbers + 2 * each, nullptr};
        const auto kernel = smooths ? take_by_class<T, true> : take_by_class<T, false>;
        kernel<<<shares.grid(kRowsOfWarp<T>), dim3(kWarp, kSharesOfBlock), 0, stream>>>(
            logits, parts, shares);
        combine_shares<<<ceil_div<int64_t>(rows, kWarp), dim3(kWarp, kCombiningWarps), 0, stream>>>(
            parts, logits, target, Statistics<T>{max, sum, below, hit}, shares);
        return cudaGetLastError();
    }
    return cudaErrorNotSupported;
}

// room: holds the gradients of the first classes_of_room classes. The others are stored that many
// classes before their logits.
template <class T>
cudaError_t linear_cross_entropy_gradient_by_class(
    const Arriving<T>& g, T* logits, T* room, int64_t classes_of_room, const int64_t* target,
    const Acc<T>* max, const Acc<T>* sum, const Acc<T>* weight, int64_t rows, int64_t apart,
    int64_t classes, int64_t reduction, int64_t ignore_index, double smoothing,
    cudaStream_t stream) {
    if constexpr (kHasVectors<T>) {
        const ClassShares shares(rows, apart, classes_of_room, kRowsOfWarp<T>, kGradientsAtOnce);
        gradient_by_class<<<shares.grid(kRowsOfWarp<T>), dim3(kWarp, kSharesOfBlock), 0, stream>>>(
            g, reduction == 0 ? 1 : 0, logits, room, target, max, sum,
            reduction == 1 ? weight : nullptr, shares, classes, ignore_index, Acc<T>(smoothing));
        return cudaGetLastError();
    }
    return cudaErrorNotSupported;
}
