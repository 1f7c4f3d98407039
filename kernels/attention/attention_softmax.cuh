// The online softmax of scores in accumulator registers, shared by the mma and wgmma versions.
//
// A thread has two of 16 rows of a product: row lane / 4 and the one 8 below, and of each two
// columns of every eight. Element i is in row i / 2 % 2 of the two, and in this column:
#pragma once

#include "attention_call.cuh"
#include "dependent_launch.cuh"
#include "softmax.cuh"
#include "swizzle.cuh"

__device__ inline int column_of(int i) { return i / 4 * 8 + threadIdx.x % 4 * 2 + i % 2; }

// Over the four lanes that share a row.
__device__ inline float max_of_row(float x) {
    x = larger(x, __shfl_xor_sync(0xffffffff, x, 1));
    return larger(x, __shfl_xor_sync(0xffffffff, x, 2));
}
__device__ inline float sum_of_row(float x) {
    x += __shfl_xor_sync(0xffffffff, x, 1);
    return x + __shfl_xor_sync(0xffffffff, x, 2);
}

// Online softmax of this thread's two rows.
struct RowsSoftmax {
    float max[2] = {-INFINITY, -INFINITY};  // of the products, not yet scaled
    float sum[2] = {0, 0};                  // over this thread's columns

    // Replaces the products s by 2^((s - max) * scale). Earlier accumulators are to be multiplied
    // by factor. scale: in powers of 2. The max of a row that has seen nothing is -infinity.
    // chains: independent chains of comparisons, which shorten the dependency.
    //
    // The exponentials of both rows come together, after their common dependencies.
    template <int chains = 1, int N>
    __device__ void take(float (&s)[N], float scale, float (&factor)[2]) {
        float shift[2];
#pragma unroll
        for (int half = 0; half < 2; ++half) {
            const float most = max_of_row(largest_of<chains>(s, half));
            factor[half] =
                max[half] == -INFINITY ? 0 : quick_power_of_2((max[half] - most) * scale);
            max[half] = most;
            shift[half] = most == -INFINITY ? 0 : most * scale;
        }
        const float larger_shift = larger(fabsf(shift[0]), fabsf(shift[1]));
        if (__any_sync(0xffffffff, larger_shift >= kLargeShift)) {
#pragma unroll
            for (int i = 0; i < N; ++i) s[i] -= shift[i / 2 % 2] == 0 ? 0 : max[i / 2 % 2];
            shift[0] = shift[1] = 0;
        }
#pragma unroll
        for (int half = 0; half < 2; ++half) {
            float total = sum[half] * factor[half];
#pragma unroll
            for (int i = 2 * half; i < N; i += 4) {
                s[i] = quick_power_of_2(fmaf(s[i], scale, -shift[half]));
                s[i + 1] = quick_power_of_2(fmaf(s[i + 1], scale, -shift[half]));
                total += s[i] + s[i + 1];
            }
            sum[half] = total;
        }
    }

  private:
    // The largest element of a row in this thread so far.
    template <int chains, int N>
    __device__ float largest_of(const float (&s)[N], int half) const {
        float mosts[chains];
#pragma unroll
        for (float& most : mosts) most = -INFINITY;
        mosts[0] = max[half];
#pragma unroll
        for (int i = 2 * half; i < N; i += 4) {
            float& most = mosts[i / 4 % chains];
            most = larger(most, larger(s[i], s[i + 1]));
        }
#pragma unroll
        for (int n = chains / 2; n > 0; n /= 2) {
#pragma unroll
            for (int i = 0; i < n; ++i) mosts[i] = larger(mosts[i], mosts[i + n]);
        }
        return mosts[0];
    }
};

// Finalizes the softmax of one of a thread's two rows: saves its stats if they are wanted, and
// returns the factor for its accumulators. That is NaN where all scores were -infinity, as in
// PyTorch, and 0 where the row saw nothing.
template <class Call>
__device__ float finalize_row(const Call& a, const RowsSoftmax& soft, int half, Place place,
                              float* stats) {
    const float sum = sum_of_row(soft.sum[half]);
    if (stats && place.row < a.rows && threadIdx.x % 4 == 0)
        store(stats + 2 * a.line(place), Vec<float, 2>{{soft.max[half] * float(a.scale), sum}});
    return a.first_key(place.row) < a.end_key(place.row) ? 1 / sum : 0;
}

template <int N>
__device__ void scale_rows(float (&accum)[N], const float (&factor)[2]) {
#pragma unroll
    for (int i = 0; i < N; ++i) accum[i] *= factor[i / 2 % 2];
}

// A bit mask of this thread's elements of a row, two for every eight columns: those in columns from
// begin on and before end. Eight bits at a time become predicates in one instruction, instead of a
// comparison for each element.
__device__ inline uint32_t bits_of_columns(int begin, int end) {
    const auto before = [](int column) {
        const int from = column - threadIdx.x % 4 * 2;  // this thread's first
        const int count = from <= 0 ? 0 : from / 8 * 2 + smaller(from % 8, 2);
        return count < 32 ? (1u << count) - 1 : 0xffffffff;
    };
    return before(end) & ~before(begin);
}

// Sets elements outside the columns from begin on and before end to `other`.
template <int N>
__device__ void keep_columns(float (&s)[N], const int (&begin)[2], const int (&end)[2],
                             float other) {
    static_assert(N <= 64, "a bit for each number of a row");
    const uint32_t bits[2] = {bits_of_columns(begin[0], end[0]), bits_of_columns(begin[1], end[1])};
#pragma unroll
    for (int i = 0; i < N; ++i) s[i] = bits[i / 2 % 2] & (1u << (i / 4 * 2 + i % 2)) ? s[i] : other;
}

// Rounds accumulators to the A operand of the next product: words[4 * j ..] for columns 16 * j to
// 16 * j + 15.
template <class T, int N>
__device__ void as_factor(uint32_t (&words)[N / 2], const float (&s)[N]) {
#pragma unroll
    for (int i = 0; i < N / 2; ++i) words[i] = rounded_pair<T>(s[2 * i], s[2 * i + 1]);
}

// ---- for backward

// For a row of q: lse_log2, the log-sum-exp of its scores in powers of 2, so that p = 2^(product *
// scale - lse_log2); and delta.
struct alignas(8) RowInfo {
    float lse_log2, delta;
};

// The infos of a slice of q, and of a sequence, begin on a multiple of 64, so that bulk copies can
// load them. Past the last row p is 0.
template <class Call>
__host__ __device__ int64_t infos_of_slice(const Call& a) {
    return a.row_tiles(64) * 64;
}
template <class Call>
__device__ int64_t info_at(const Call& a, Place p) {
    return (p.batch * a.heads + p.head) * infos_of_slice(a) + a.padded_row(p.row);
}

constexpr int kInfoThreads = 256;

// From this log-sum-exp on, the rounding of the scores, which the backward pass sums in another
// order, may make the largest p more than 1: up to 2^70 at 2^30. So it is raised by more than that
// rounding, and p becomes almost 0.
constexpr float kUncertainLse = 1 << 24, kRaise = 1.0f / (1 << 20);

// Counters that have to be 0 before the next kernel: one, and `each` for every 64 rows of a slice.
struct Counters {
    int* values = nullptr;
    int each = 0;
};

// Computes the infos, and zeroes the counters. A block has 64 rows of a slice, and as many lanes
// per row as 8-column vectors. Neighbouring blocks have neighbouring heads, whose rows may be
// contiguous.
template <int lanes, class T, class Call>
__global__ __launch_bounds__(kInfoThreads) void row_infos(
    Call whole, const T* g, const T* y, const float* stats, RowInfo* infos, Counters counters) {
    launch_dependents();
    constexpr int kAtOnce = kInfoThreads / lanes, kEach = 64 / kAtOnce;  // rows
    if (int(threadIdx.x) < counters.each)
        counters.values[1 + int64_t(blockIdx.x) * counters.each + threadIdx.x] = 0;
    if (counters.each > 0 && blockIdx.x == 0 && threadIdx.x == 0) counters.values[0] = 0;
    const int64_t slice = blockIdx.x % whole.slices();
    int64_t tile = blockIdx.x / whole.slices();
    infos += slice * infos_of_slice(whole) + tile * 64;
    const auto& a = whole.of_rows(tile, 64);
    const int lane = threadIdx.x % lanes, first = threadIdx.x / lanes;
    Place place = a.place(slice);
    float delta[kEach] = {};
#pragma unroll
    for (int n = 0; n < kEach; ++n) {  // all loads are in flight before the first store
        place.row = tile * 64 + n * kAtOnce + first;
        if (place.row < a.rows && lane * 8 < a.cols) {
            const Vec<T, 8> u = load<8>(g + a.at(a.g, place) + lane * 8);
            const Vec<T, 8> w = load<8>(y + a.at(a.y, place) + lane * 8);
            for (int i = 0; i < 8; ++i) delta[n] += float(u[i]) * float(w[i]);
        }
    }
#pragma unroll
    for (int n = 0; n < kEach; ++n) {
        const float sum = warp_sum(delta[n], lanes);
        if (lane != 0) continue;
        place.row = tile * 64 + n * kAtOnce + first;
        RowInfo info = {INFINITY, 0};
        if (place.row < a.rows) {
            const Vec<float, 2> max_sum = load<2>(stats + 2 * a.line(place));
            info = {max_sum[0] * kLog2E + log2f(max_sum[1]), sum};
            const float size = fabsf(info.lse_log2);
            if (size >= kUncertainLse && size < INFINITY) info.lse_log2 += size * kRaise;
        }
        infos[n * kAtOnce + first] = info;
    }
}

template <class T, class Call>
void launch_row_infos(const Call& a, const T* g, const T* y, const float* stats, RowInfo* infos,
                      cudaStream_t stream, Counters counters = {}) {
    const auto kernel = a.cols <= 64    ? row_infos<8, T, Call>
                        : a.cols <= 128 ? row_infos<16, T, Call>
                                        : row_infos<32, T, Call>;
    const int64_t blocks = a.slices() * a.row_tiles(64);
    if (blocks) kernel<<<blocks, kInfoThreads, 0, stream>>>(a, g, y, stats, infos, counters);
}
