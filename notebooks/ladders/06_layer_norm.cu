// The layer norm of rows of float that stay in registers.
//
//   x, y [rows, cols] float     weight, bias [cols] float
//   cols is 32 * the number of threads of a block, which is a power of two
//
// Traffic: x is read and y is written once, 8 bytes per element.

#include "reduce.cuh"

// ---- aligned: a block for each row, in vectors of 16 bytes. A thread keeps its eight vectors in
// registers: from them it takes the mean, then the deviations from it, then the result.
// Flaw: other widths and other types do not fit.

constexpr int kVectors = 8;  // of a thread

__global__ void norm_aligned(const float* x, const float* weight, const float* bias, float* y,
                             int cols, float eps) {
    const int64_t begin = int64_t(blockIdx.x) * cols;
    const auto column = [](int n) { return 4 * (n * blockDim.x + threadIdx.x); };
    Vec<float, 4> v[kVectors];
    float sum[1] = {0}, squares[1] = {0};
    for (int n = 0; n < kVectors; ++n) v[n] = load<4>(x + begin + column(n));
    for (int i = 0; i < 4 * kVectors; ++i) sum[0] += v[i / 4][i % 4];
    row_sum(sum, 0);  // over the threads of the block
    const float mean = sum[0] / cols;
    for (int i = 0; i < 4 * kVectors; ++i) {
        v[i / 4][i % 4] -= mean;
        squares[0] += v[i / 4][i % 4] * v[i / 4][i % 4];
    }
    row_sum(squares, 1);
    const float r = 1 / sqrtf(squares[0] / cols + eps);
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
    const bool fits = cols == threads * 4 * kVectors && threads >= kWarp && threads <= 1024;
    if (!fits || (threads & (threads - 1)) != 0) return cudaErrorInvalidValue;
    norm_aligned<<<rows, threads, 0, stream>>>(x, weight, bias, y, cols, eps);
    return cudaGetLastError();
}
