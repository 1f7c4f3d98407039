// What row kernels share when one block holds a row: block reductions, the columns of a thread,
// rows of any width, and rows kept in shared memory. (cluster.cuh and wide_rows.cuh have the same
// for rows too wide for one block.)
//
// A block is (threads of a row, rows). The threads of a row are whole warps, or 1, 2, 4, 8 or 16
// lanes of a warp.
#pragma once

#include "cp_async.cuh"
#include "vec.cuh"

// Whether a launch has a GPU's sizes. The simulator has its own, because barriers are expensive
// there; lab.check, lab.trace and lab.predict show a GPU's.
#if PLAYGROUND_CUDA || defined(SIMULATOR_GPU_SIZES)
constexpr bool kGpuSizes = true;
#else
constexpr bool kGpuSizes = false;
#endif

// double, which is here for checks of gradients, does without vectors: a warp of doubles fills
// whole lines of memory anyway, and every kernel more takes time to compile.
template <class T>
constexpr bool kHasVectors = sizeof(T) < 8;

constexpr int kWarp = 32;

// Rounds a number of threads up to whole warps.
inline int64_t round_up_to_warps(int64_t threads) {
    return ceil_div<int64_t>(threads, kWarp) * kWarp;
}

// A product that is rounded and never fused, so that it is the same wherever it is computed, even
// in a difference of which most cancels. In dx of a norm, if h = g * weight were fused with the
// subtraction of its average, a row of equal h would get a gradient other than 0: the rounding
// error times an rstd that may be large. In attention, score - largest must be 0 for the largest
// score.
__device__ inline float multiply_rn(float a, float b) { return __fmul_rn(a, b); }
__device__ inline double multiply_rn(double a, double b) { return __dmul_rn(a, b); }

constexpr float kLog2E = 1.442695041f;  // e^x is 2^(x * this)

// The hardware's 2^x and 1 / x, with 22 correct bits; they flush below 2^-126 to 0.
__device__ inline float quick_power_of_2(float x) {
    float y;
    asm("ex2.approx.ftz.f32 %0, %1;" : "=f"(y) : "f"(x));
    return y;
}
__device__ inline float quick_inverse(float x) {
    float y;
    asm("rcp.approx.ftz.f32 %0, %1;" : "=f"(y) : "f"(x));
    return y;
}

// 1 / a, correctly rounded for |a| from 2^-126 to 2^126, without the branch of a division, which
// would serialize the elements of a thread.
__device__ inline float inverse_rn(float a) {
#if PLAYGROUND_CUDA
    const float r = quick_inverse(a);
    return fmaf(fmaf(-a, r, 1.f), r, r);
#else
    return 1 / a;
#endif
}

// ---- sums. Their order is fixed, so the bits are the same on every run.

// A compensated sum. The error of each addition goes into the next (W. Kahan, "Further remarks on
// reducing truncation errors", 1965), so that the total error is that of a few roundings, however
// many terms there are.
template <class A>
struct KahanSum {
    A value = 0, lost = 0;
    __device__ void operator+=(A a) {
        const A more = a - lost;
        const A sum = value + more;
        lost = sum - sum == 0 ? (sum - value) - more : A(0);  // of an infinite sum nothing is lost
        value = sum;
    }
};

// The sum over the warp, or over each group of 1, 2, 4 ... lanes, in every lane (a butterfly of
// shuffles). All five steps are unrolled: without a loop of unknown length, several sums can be
// interleaved.
template <class A>
__device__ A warp_sum(A value, int lanes = kWarp) {
    for (int bit = kWarp / 2; bit > 0; bit /= 2) {
        const A other = __shfl_xor_sync(0xffffffff, value, bit);
        if (bit < lanes) value += other;
    }
    return value;
}

// K sums, K a power of two, for BlockReduce.
template <int K, class A>
struct Sums {
    A values[K];
    __device__ static Sums identity() { return {}; }
    __device__ A operator[](int k) const { return values[k]; }
    __device__ void combine(const Sums& other) {
        for (int k = 0; k < K; ++k) values[k] += other.values[k];
    }
    // lanes: a power of two, at least K. Each lane gives away half of its values and continues with
    // the other half, until it has one to sum. 4 values and 32 lanes take 11 shuffles; one value
    // after the other takes 20.
    __device__ Sums warp_reduce(int lanes) const {
        Sums all = *this;
        int bit = lanes;
#pragma unroll
        for (int half = K / 2; half > 0; half /= 2) {
            bit /= 2;
            const bool upper = threadIdx.x & bit;
#pragma unroll
            for (int k = 0; k < half; ++k) {
                A &low = all.values[k], &high = all.values[k + half];
                const A given = upper ? low : high;
                low = (upper ? high : low) + __shfl_xor_sync(0xffffffff, given, bit);
            }
        }
        all.values[0] = warp_sum(all.values[0], bit);
#pragma unroll
        for (int half = 1; half < K; half *= 2) {  // and back
            const bool upper = threadIdx.x & bit;
#pragma unroll
            for (int k = 0; k < half; ++k) {
                A &low = all.values[k], &high = all.values[k + half];
                const A other = __shfl_xor_sync(0xffffffff, low, bit);
                high = upper ? low : other;
                low = upper ? other : low;
            }
            bit *= 2;
        }
        return all;
    }
};

// Reduces a value over the threads of a row: `sum = reduce(sum)`. Every thread of the block must
// call it, equally often.
//
// A value is plain data P with `void combine(P)`, `static P identity()`, and `P warp_reduce(int
// lanes) const`, which reduces each group of so many lanes of the warp, in every lane. kParts: the
// most warps of a block.
template <int kParts = 16>
class BlockReduce {
  public:
    template <class P>
    __device__ P operator()(const P& mine) {
        return receive(send(mine));
    }

    // The same in two halves, with other work between them, but no other call: `receive` takes what
    // `send` returned.
    template <class P>
    __device__ P send(const P& mine) {
        const int warps = blockDim.x / kWarp;
        const P part = mine.warp_reduce(smaller<int>(blockDim.x, kWarp));
        if (warps > 1 && threadIdx.x % kWarp == 0)
            parts_of<P>(calls_ % 2)[threadIdx.y * warps + threadIdx.x / kWarp] = part;
        return part;
    }

    template <class P>
    __device__ P receive(P part) {
        const P* parts = parts_of<P>(calls_++ % 2);
        const int warps = blockDim.x / kWarp;
        if (warps <= 1) return part;
        __syncthreads();
        const int lanes = 1 << (32 - __clz(warps - 1));  // a power of two, no less than warps
        const int mine = threadIdx.x % kWarp & (lanes - 1);
        part = mine < warps ? parts[threadIdx.y * warps + mine] : P::identity();
        return part.warp_reduce(lanes);
    }

  protected:
    // What each warp has sent, in two buffers for calls of even and odd number. A warp that is a
    // call ahead writes to the other buffer, so one barrier is enough.
    template <class P>
    __device__ static P* parts_of(int phase) {
        alignas(16) __shared__ P parts[2][kParts];
        return parts[phase];
    }

    unsigned calls_ = 0;
};

// ---- a thread's rows

// The rows of a thread, where blocks of (threads of a row, rows) walk down `rows` rows. All threads
// of a block take equally many steps; past the last row a thread has the last one once more, and
// is_there says no.
class BlockRows {
  public:
    __device__ explicit BlockRows(int64_t rows)
        : rows_(rows), first_(int64_t(blockIdx.x) * blockDim.y) {}
    __device__ bool any() const { return first_ < rows_; }
    __device__ void next() { first_ += int64_t(gridDim.x) * blockDim.y; }
    __device__ bool is_there() const { return first_ + threadIdx.y < rows_; }
    __device__ int64_t row() const { return smaller<int64_t>(first_ + threadIdx.y, rows_ - 1); }

  private:
    int64_t rows_, first_;
};

// ---- a thread's columns

// The n-th vector of a thread begins at column [n]. Neighbouring threads have neighbouring vectors
// (coalesced), and the next vectors follow behind those of all threads. If `blocks` blocks share
// the row, this one is number `rank` of them. begin: the first column.
template <class T>
struct Columns {
    int first, step;
    __device__ explicit Columns(int begin = 0, int rank = 0, int blocks = 1)
        : first(begin + (rank * blockDim.x + threadIdx.x) * kVec<T>),
          step(blocks * blockDim.x * kVec<T>) {}
    __device__ int operator[](int n) const { return first + n * step; }
};

// ---- rows of any width and alignment: whole vectors on 16-byte boundaries, the interior, and
// single elements at both edges

// Whether the rows of these tensors may be read in vectors from end to end. Columns of such a row
// are ints.
template <class T, class... P>
bool rows_are_aligned(int64_t cols, const P*... tensors) {
    return kHasVectors<T> && cols % kVec<T> == 0 && cols <= 1 << 30 && is_aligned(tensors...);
}

// Whether all pointers are equally far from a 16-byte boundary, so that their rows have edges in
// the same columns. (A null pointer is like any other.)
template <class P, class... Q>
bool same_alignment(const P* first, const Q*... others) {
    const auto past = [](const void* p) { return reinterpret_cast<uintptr_t>(p) % kVecBytes; };
    return ((others == nullptr || past(others) == past(first)) && ...);
}

// Whether rows of these tensors may have edges. Each has at least one whole vector.
template <class T, class... P>
bool may_have_edges(int64_t cols, const P*... tensors) {
    return kHasVectors<T> && same_alignment(tensors...) && cols >= 2 * kVec<T> && cols <= 1 << 30;
}

// The least threads of a row: then no thread has two elements of an edge.
constexpr int kEdgeThreads = 8;

// The interior of a row. kAligned: the row is known to have no edges.
template <class T, bool kAligned, class I = int>
struct Interior {
    I begin, end, cols;

    __device__ Interior(const T* row, I cols) : begin(0), end(cols), cols(cols) {
        if constexpr (!kAligned) {
            constexpr int V = kVec<T>;
            const int past = reinterpret_cast<uintptr_t>(row) / sizeof(T) % V;
            begin = smaller<I>((V - past) % V, cols);
            end = begin + (cols - begin) / V * V;
        }
    }
    __device__ I width() const { return end - begin; }

    template <int N>
    __device__ void store(T* p, const Vec<T, N>& v) const {
        if constexpr (kAligned) {
            ::store(p, v);
        } else {
            store_at_once(p, v);
        }
    }

    // Loads the elements of a tensor [cols] for the vector at column c; that may be unaligned.
    template <class W>
    __device__ Vec<W, kVec<T>> load_unaligned(const W* columns, I c) const {
        return kAligned ? load<kVec<T>>(columns + c) : ::load_unaligned<kVec<T>>(columns + c);
    }
    template <class W, int N>
    __device__ void store_unaligned(W* columns, I c, const W (&numbers)[N]) const {
        if constexpr (kAligned) {
            ::store(columns + c, numbers);
        } else {
            for (int k = 0; k < N; ++k) columns[c + k] = numbers[k];
        }
    }

    // The edge column of thread i of the row, of at least twice kEdgeThreads; or -1.
    __device__ I edge_column(I i) const {
        if constexpr (kAligned) return -1;
        if (i < begin) return i;
        const I second = end + i - kEdgeThreads;
        return i >= kEdgeThreads && second < cols ? second : -1;
    }

    // Calls visit(n, c) for the edge columns of thread i of the row: n is 0 for the first edge, 1
    // for the second. A row has at least kEdgeThreads.
    template <class Visit>
    __device__ void edges(I i, Visit visit) const {
        if constexpr (!kAligned) {
            if (i < begin) visit(0, i);
            if (i < cols - end) visit(1, end + i);
        }
    }
};

// ---- rows kept in shared memory until their threads use them

extern __shared__ CacheLine shared_rows[];

// N vectors of a row in each of K tensors, which async copies bring to shared memory, in each of D
// slots (a pipeline of D stages). Only the thread itself reads them.
template <class T, int N, int K, int D = 1>
struct SharedRows {
    static constexpr int V = kVec<T>;
    static constexpr int kBytes = D * N * K * kVecBytes;  // of shared memory, for each thread

    // Vector n of tensor k. Neighbours' vectors are neighbours.
    __device__ static Vec<T, V>& at(int n, int k = 0, int slot = 0) {
        const int threads = blockDim.x * blockDim.y;
        const int thread = threadIdx.y * blockDim.x + threadIdx.x;
        const int part = (slot * N + n) * K + k;
        return reinterpret_cast<Vec<T, V>*>(shared_rows)[part * threads + thread];
    }

    // Starts the copy of the columns before `end` of these rows, or parts of rows, as one group.
    template <class... P>
    __device__ __forceinline__ static void fetch(int slot, const Columns<T>& column, int end,
                                                 const P*... rows) {
#pragma unroll
        for (int n = 0; n < N; ++n) {
            const int c = column[n];
            if (c >= end) break;
            int k = 0;
            (cp_async<V>(at(n, k++, slot).at, rows + c), ...);
        }
        cp_async_commit();
    }
};

// Vectors of a thread for rows kept in shared memory, over all tensors: 128 bytes in flight per
// thread, 192 KiB per multiprocessor. In the simulator, where barriers are expensive, a row stays
// within one warp.
constexpr int kSharedVectors = kGpuSizes ? 8 : 64;
constexpr int kSharedBytes = kSharedVectors * kVecBytes;  // for each thread
constexpr int kSharedThreads = 512;                       // of a block, at most
constexpr int kSharedBlocks = 3;                          // resident per multiprocessor

// ---- sums over rows, for the gradients of what all rows share

template <class T>
__device__ void store_column_sum(Into<T> to, int64_t c, Acc<T> sum) {
    if (to.buffer != nullptr) {
        to.buffer[c] += sum;
    } else {
        to.fresh[c] = T(sum);
    }
}
