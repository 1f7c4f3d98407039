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
            q[r * of.cols + c] = to_float8(float(x[r * of.cols + c]) / scale);
}

// ---- vector: threads read and write neighbours, 16 bytes of x at a time. A row, or any group of
// the naive kernel's, has a block; of 1 x 128 elements as many threads as have a vector of them.
// Flaw: where a row is too long for the registers of 512 threads, x is read twice.

template <class T, bool kVectors>
__global__ void quantize_given(const T* x, Float8* q, const float* scale, int64_t n) {
    const int64_t i = (int64_t(blockIdx.x) * blockDim.x + threadIdx.x) * kVec<T>;
    const PartialVector<T, kVectors> vec(n - i);
    vec.write(q + i, vec.read_once(x + i), Divisor(*scale, false));
}

template <class T, RowKind kind>
__global__ void __launch_bounds__(kMostRowThreads, kHeldBlocks<kind>) quantize_rows(
    const T* x, Float8* q, float* scales, int64_t rows, int64_t cols) {
    BlockReduce reduce;
    for (int64_t row = blockIdx.x; row < rows; row += gridDim.x) {
        const auto read = [&](const Piece<T>& piece, auto& all) {
            for_each_vector<T, kind>(piece, [&](int n, int c, const auto& vec) {
                all[n] = vec.read_once(x + row * cols + piece.start + c);
            });
        };
        quantize_row<T, kind, kPerRow>(read, q + row * cols, scales + row, cols, reduce);
    }
}

constexpr int kBlockThreads = 256;

// Each row of 128 elements has kAcross threads, a block so many rows at once; of 128 x 128 a thread
// keeps all that it has read in registers.
template <class T, bool kVectors, int high>
__global__ void __launch_bounds__(kBlockThreads) quantize_blocks(const T* x, Float8* q,
                                                                 float* scales, Groups of) {
    constexpr int V = kVec<T>, kAtOnce = kBlockThreads / kAcross<T>;
    constexpr int kEach = high > kAtOnce ? high / kAtOnce : 1;  // rows of a thread
    BlockReduce reduce;
    const int64_t block_row = blockIdx.x / of.across, across = blockIdx.x % of.across;
    const int64_t row = block_row * (kEach * kAtOnce) + threadIdx.x / kAcross<T>;
    const int64_t c = across * kScaleBlock + threadIdx.x % kAcross<T> * V;
    const auto vec_of = [&](int64_t r) {
        return PartialVector<T, kVectors>(r < of.rows ? of.cols - c : 0);
    };
    Vec<T, V> all[kEach];
#pragma unroll
    for (int n = 0; n < kEach; ++n) {
        const int64_t r = row + n * kAtOnce;
        all[n] = vec_of(r).read_once(x + r * of.cols + c);
    }
    Largest largest = Largest::identity();
    for (const auto& vector : all) largest.add(vector);
    largest = high == 1 ? largest.warp_reduce(kAcross<T>) : reduce(largest);
    const float scale = largest.scale();
    if (high == 1 ? threadIdx.x % kAcross<T> == 0 && row < of.rows : threadIdx.x == 0)
        scales[(high == 1 ? row : block_row) * of.across + across] = scale;
    const Divisor by(scale, true);
#pragma unroll
    for (int n = 0; n < kEach; ++n) {
        const int64_t r = row + n * kAtOnce;
        vec_of(r).write(q + r * of.cols + c, all[n], by);
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

template <class T, bool kVectors>
void launch_vector(const T* x, Float8* q, float* scales, const Groups& groups, Scaling scaling,
                   cudaStream_t stream) {
    const int64_t rows = groups.rows, cols = groups.cols;
    if (scaling == kPerTensor) {
        const int64_t blocks = ceil_div<int64_t>(rows * cols, kBlockThreads * kVec<T>);
        quantize_given<T, kVectors>
            <<<blocks, kBlockThreads, 0, stream>>>(x, q, scales, rows * cols);
    } else if (scaling == kPerRow) {
        constexpr RowKind held = kVectors ? kHeldRow : kAnyRow;
        constexpr RowKind longer = kVectors ? kVectorRow : kAnyRow;
        const auto kernel = row_kind<T>(kVectors, cols) == kHeldRow ? quantize_rows<T, held>
                                                                    : quantize_rows<T, longer>;
        kernel<<<grid_of(rows), quantize_threads<T>(cols), 0, stream>>>(x, q, scales, rows, cols);
    } else if (scaling == kPer1x128) {
        const int64_t high = ceil_div<int64_t>(rows, kBlockThreads / kAcross<T>);
        quantize_blocks<T, kVectors, 1>
            <<<high * groups.across, kBlockThreads, 0, stream>>>(x, q, scales, groups);
    } else {
        quantize_blocks<T, kVectors, kScaleBlock>
            <<<groups.count(), kBlockThreads, 0, stream>>>(x, q, scales, groups);
    }
}

template <class T>
cudaError_t quantize(const T* x, Float8* q, float* scales, int64_t rows, int64_t cols,
                     int64_t scaling, int64_t version, cudaStream_t stream) {
    const Groups groups = groups_of(rows, cols, Scaling(scaling));
    if (groups.count() == 0) return cudaSuccess;
    const int64_t side_by_side = scaling == kPerTensor ? rows * cols : cols;
    if (version == kNaive) {
        quantize_naive<<<ceil_div<int64_t>(groups.count(), kWarp), kWarp, 0, stream>>>(
            x, q, scales, groups, scaling == kPerTensor);
    } else if (side_by_side % kVec<T> == 0 && is_aligned(x, q)) {
        launch_vector<T, true>(x, q, scales, groups, Scaling(scaling), stream);
    } else {
        launch_vector<T, false>(x, q, scales, groups, Scaling(scaling), stream);
    }
    return cudaGetLastError();
}

#define INSTANTIATE(T) template decltype(quantize<T>) quantize<T>;
INSTANTIATE(float)
INSTANTIATE(Half)
INSTANTIATE(BFloat16)
