// quantize: q = x / scale, rounded to floats of one byte, and the scales that make use of these
//
//   x [rows, cols] T     q [rows, cols] e4m3     scale float: what x / q is about
//
// A scale is of everything, and then given; or it is largest / 448, where largest is that of
// |x| in a row, in 128 neighbours of a row, or in 128 x 128 elements: scale [rows], [rows,
// ceil(cols / 128)] or [ceil(rows / 128), ceil(cols / 128)]. 448 is the largest e4m3.
//
// Traffic, the least a kernel can move: x is read and q written once, sizeof(T) + 1 bytes for each
// element; scales are few beside them.

#include "launches.cuh"
#include "quantize.cuh"

enum Version : int64_t { kNaive, kVector };  // as in quantize.py

// What a scale is of: `high` rows of `wide` columns, of which there are `across` side by side.
struct Groups {
    int64_t rows, cols, high, wide, across;

    __host__ __device__ int64_t count() const { return ceil_div(rows, high) * across; }
};

// ---- naive: one thread for each scale, which reads all that has it twice.
// Flaw: neighbouring threads read whole groups apart, and where groups are large there are few.

template <class T>
__global__ void quantize_naive(const T* x, Float8* q, float* scales, Groups of, bool given) {
    const int64_t group = int64_t(blockIdx.x) * blockDim.x + threadIdx.x;
    if (group >= of.count()) return;
    const int64_t row = group / of.across * of.high, col = group % of.across * of.wide;
    const int64_t end_row = smaller(row + of.high, of.rows);
    const int64_t end_col = smaller(col + of.wide, of.cols);
    float scale;
    if (given) {
        scale = *scales;
    } else {
        Largest largest = Largest::identity();
        for (int64_t r = row; r < end_row; ++r)
            for (int64_t c = col; c < end_col; ++c) largest.add(float(x[r * of.cols + c]));
        scales[group] = scale = largest.scale();
    }
    for (int64_t r = row; r < end_row; ++r)
        for (int64_t c = col; c < end_col; ++c)
            q[r * of.cols + c] = to_float8(quotient(x[r * of.cols + c], scale));
}

// ---- vector: threads read and write neighbours, 16 bytes of x at a time. A row, or any group of
// the naive kernel's, has a block; of 1 x 128 elements as many threads as have a vector of them.
// Flaw: of a row x is read twice, the second time from the caches.

template <class T>
__global__ void quantize_given(const T* x, Float8* q, const float* scale, int64_t n, bool vectors) {
    const int64_t i = (int64_t(blockIdx.x) * blockDim.x + threadIdx.x) * kVec<T>;
    if (i >= n) return;
    const Few<T> few(n - i, vectors);
    float all[kVec<T>];
    few.read(all, x + i);
    few.write(q + i, all, *scale);
}

template <class T>
__global__ void quantize_rows(const T* x, Float8* q, float* scales, int64_t rows, int64_t cols,
                              bool vectors) {
    BlockReduce reduce;
    for (int64_t row = blockIdx.x; row < rows; row += gridDim.x) {
        const auto values = [&](float (&to)[kVec<T>], const Few<T>& few, int64_t c) {
            few.read(to, x + row * cols + c);
        };
        quantize_row<T>(values, q + row * cols, scales + row, cols, kPerRow, vectors, reduce);
    }
}

constexpr int kBlockThreads = 256;

// Each row of 128 elements has kAcross threads, a block so many rows at once; of 128 x 128 a thread
// keeps all that it has read in registers.
template <class T, int high>
__global__ void __launch_bounds__(kBlockThreads) quantize_blocks(
    const T* x, Float8* q, float* scales, Groups of, bool vectors) {
    constexpr int V = kVec<T>, kAtOnce = kBlockThreads / kAcross<T>;
    constexpr int kEach = high > kAtOnce ? high / kAtOnce : 1;  // rows of a thread
    BlockReduce reduce;
    const int64_t block_row = blockIdx.x / of.across, across = blockIdx.x % of.across;
    const int64_t row = block_row * (kEach * kAtOnce) + threadIdx.x / kAcross<T>;
    const int64_t c = across * kScaleBlock + threadIdx.x % kAcross<T> * V;
    const Few<T> few(c < of.cols ? of.cols - c : 0, vectors);
    float all[kEach][V];
    Largest largest = Largest::identity();
#pragma unroll
    for (int n = 0; n < kEach; ++n) {
        const int64_t r = row + n * kAtOnce;
        if (r < of.rows && few.there > 0) {
            few.read(all[n], x + r * of.cols + c);
            for (float each : all[n]) largest.add(each);
        }
    }
    largest = high == 1 ? largest.warp_reduce(kAcross<T>) : reduce(largest);
    const float scale = largest.scale();
    if (high == 1 ? threadIdx.x % kAcross<T> == 0 && row < of.rows : threadIdx.x == 0)
        scales[(high == 1 ? row : block_row) * of.across + across] = scale;
#pragma unroll
    for (int n = 0; n < kEach; ++n) {
        const int64_t r = row + n * kAtOnce;
        if (r < of.rows && few.there > 0) few.write(q + r * of.cols + c, all[n], scale);
    }
}

// ---- launchers

Groups groups_of(int64_t rows, int64_t cols, Scaling scaling) {
    const int64_t blocks = ceil_div<int64_t>(cols, kScaleBlock);
    switch (scaling) {
        case kPerRow:
            return {rows, cols, 1, cols, 1};
        case kPer128x128:
            return {rows, cols, kScaleBlock, kScaleBlock, blocks};
        default:  // where the scale is given, any groups will do
            return {rows, cols, 1, kScaleBlock, blocks};
    }
}

template <class T>
cudaError_t quantize(const T* x, Float8* q, float* scales, int64_t rows, int64_t cols,
                     int64_t scaling, int64_t version, cudaStream_t stream) {
    const Groups groups = groups_of(rows, cols, Scaling(scaling));
    if (groups.count() == 0) return cudaSuccess;
    const bool vectors = cols % kVec<T> == 0 && is_aligned(x, q);
    if (version == kNaive) {
        quantize_naive<<<ceil_div<int64_t>(groups.count(), kWarp), kWarp, 0, stream>>>(
            x, q, scales, groups, scaling == kPerTensor);
    } else if (scaling == kPerTensor) {
        const int64_t blocks = ceil_div<int64_t>(rows * cols, kBlockThreads * kVec<T>);
        quantize_given<<<blocks, kBlockThreads, 0, stream>>>(
            x, q, scales, rows * cols, is_aligned(x, q));
    } else if (scaling == kPerRow) {
        const int threads = block_threads(ceil_div<int64_t>(cols, kVec<T>));
        quantize_rows<<<grid_of(rows), threads, 0, stream>>>(x, q, scales, rows, cols, vectors);
    } else if (scaling == kPer1x128) {
        const int64_t high = ceil_div<int64_t>(rows, kBlockThreads / kAcross<T>);
        quantize_blocks<T, 1>
            <<<high * groups.across, kBlockThreads, 0, stream>>>(x, q, scales, groups, vectors);
    } else {
        quantize_blocks<T, kScaleBlock>
            <<<groups.count(), kBlockThreads, 0, stream>>>(x, q, scales, groups, vectors);
    }
    return cudaGetLastError();
}

#define INSTANTIATE(T) template decltype(quantize<T>) quantize<T>;
INSTANTIATE(float)
INSTANTIATE(Half)
INSTANTIATE(BFloat16)
