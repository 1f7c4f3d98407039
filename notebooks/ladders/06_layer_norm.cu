// The layer norm of rows of float that stay in registers.
//
//   x, y [rows, cols] float     weight, bias [cols] float
//   cols is 32 * the number of threads of a block, which is a multiple of 32, up to 512
//
// Traffic: x is read and y is written once, 8 bytes per element.

#include "rows.cuh"

// ---- aligned: a block for each row, in vectors of 16 bytes. A thread keeps its eight vectors in
// registers: from them it takes the mean, then the deviations from it, then the result.
// Flaw: other widths and other types do not fit.

constexpr int kVectors = 8;  // of a thread

__global__ void norm_aligned(const float* x, const float* weight, const float* bias, float* y,
                             int cols, float eps) {
    const int64_t begin = int64_t(blockIdx.x) * cols;
    const auto column = [](int n) { return 4 * (n * blockDim.x + threadIdx.x); };
    Vec<float, 4> v[kVectors];
    float sum = 0, squares = 0;
    BlockReduce reduce;  // over the threads of the block
    for (int n = 0; n < kVectors; ++n) v[n] = load<4>(x + begin + column(n));
    for (int i = 0; i < 4 * kVectors; ++i) sum += v[i / 4][i % 4];
    const float mean = reduce(Sums<1, float>{sum})[0] / cols;
    for (int i = 0; i < 4 * kVectors; ++i) {
        v[i / 4][i % 4] -= mean;
        squares += v[i / 4][i % 4] * v[i / 4][i % 4];
    }
    const float r = 1 / sqrtf(reduce(Sums<1, float>{squares})[0] / cols + eps);
    for (int n = 0; n < kVectors; ++n) {
        const Vec<float, 4> w = load<4>(weight + column(n)), b = load<4>(bias + column(n));
        for (int k = 0; k < 4; ++k) v[n][k] = v[n][k] * r * w[k] + b[k];
        store(y + begin + column(n), v[n]);
    }
}

// ---- launcher

extern "C" cudaError_t aligned(const float* x, const float* weight, const float* bias, float* y,
                               int rows, int cols, float eps, cudaStream_t stream) {
    const int threads = cols / (4 * kVectors);
    const bool fits = cols == threads * 4 * kVectors && threads % kWarp == 0;
    if (!fits || threads == 0 || threads > 512) return cudaErrorInvalidValue;
    norm_aligned<<<rows, threads, 0, stream>>>(x, weight, bias, y, cols, eps);
    return cudaGetLastError();
}
