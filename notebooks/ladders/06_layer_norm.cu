// Four ways to compute the layer norm of rows of float.
//
//   x, y [rows, cols] float     weight, bias [cols] float
//   all but naive: cols is 32 * the threads of a block, which are whole warps, 16 at most
//
// Traffic: x is read and y is written once, 8 bytes per element; weight and bias stay in the
// caches.

#include "rows.cuh"

constexpr int kEach = 32;  // elements of a thread

// ---- naive: a thread for each row.
// Flaw: the lanes of a warp read elements that lie a whole row apart.

__global__ void norm_naive(const float* x, const float* weight, const float* bias, float* y,
                           int rows, int cols, float eps) {
    const int row = blockIdx.x * blockDim.x + threadIdx.x;
    if (row >= rows) return;
    x += int64_t(row) * cols;
    y += int64_t(row) * cols;
    float sum = 0, squares = 0;
    for (int c = 0; c < cols; ++c) sum += x[c];
    const float mean = sum / cols;
    for (int c = 0; c < cols; ++c) squares += (x[c] - mean) * (x[c] - mean);
    const float r = 1 / sqrtf(squares / cols + eps);
    for (int c = 0; c < cols; ++c) y[c] = (x[c] - mean) * r * weight[c] + bias[c];
}

// ---- block: a block for each row. Neighbouring threads read neighbouring elements.
// Flaw: 4 bytes per access, and three readings of the row.

// The sum over the threads of the block, in every thread. room: shared memory that no other call
// uses.
__device__ float block_sum(float mine, float* room) {
    const int lane = threadIdx.x % kWarp, warp = threadIdx.x / kWarp;
    mine = warp_sum(mine);
    if (lane == 0) room[warp] = mine;
    __syncthreads();
    return warp_sum(lane < blockDim.x / kWarp ? room[lane] : 0);
}

__global__ void norm_block(const float* x, const float* weight, const float* bias, float* y,
                           int cols, float eps) {
    __shared__ float room[2][kWarp];
    x += int64_t(blockIdx.x) * cols;
    y += int64_t(blockIdx.x) * cols;
    float sum = 0, squares = 0;
    for (int c = threadIdx.x; c < cols; c += blockDim.x) sum += x[c];
    const float mean = block_sum(sum, room[0]) / cols;
    for (int c = threadIdx.x; c < cols; c += blockDim.x) squares += (x[c] - mean) * (x[c] - mean);
    const float r = 1 / sqrtf(block_sum(squares, room[1]) / cols + eps);
    for (int c = threadIdx.x; c < cols; c += blockDim.x)
        y[c] = (x[c] - mean) * r * weight[c] + bias[c];
}

// ---- wide: the same in vectors, 16 bytes per access.
// Flaw: three readings of the row.

__global__ void norm_wide(const float* x, const float* weight, const float* bias, float* y,
                          int cols, float eps) {
    __shared__ float room[2][kWarp];
    x += int64_t(blockIdx.x) * cols;
    y += int64_t(blockIdx.x) * cols;
    const int first = 4 * threadIdx.x, step = 4 * blockDim.x;
    float sum = 0, squares = 0;
    for (int c = first; c < cols; c += step) {
        const Vec<float, 4> v = load<4>(x + c);
        for (int k = 0; k < 4; ++k) sum += v[k];
    }
    const float mean = block_sum(sum, room[0]) / cols;
    for (int c = first; c < cols; c += step) {
        const Vec<float, 4> v = load<4>(x + c);
        for (int k = 0; k < 4; ++k) squares += (v[k] - mean) * (v[k] - mean);
    }
    const float r = 1 / sqrtf(block_sum(squares, room[1]) / cols + eps);
    for (int c = first; c < cols; c += step) {
        Vec<float, 4> v = load<4>(x + c), w = load<4>(weight + c), b = load<4>(bias + c);
        for (int k = 0; k < 4; ++k) v[k] = (v[k] - mean) * r * w[k] + b[k];
        store(y + c, v);
    }
}

// ---- aligned: one reading. A thread keeps its eight vectors in registers: from them it takes the
// mean, then the deviations from it, then the result.
// Flaw: other widths and other types do not fit.

constexpr int kVectors = kEach / 4;  // of a thread

__global__ void norm_aligned(const float* x, const float* weight, const float* bias, float* y,
                             int cols, float eps) {
    __shared__ float room[2][kWarp];
    const int64_t begin = int64_t(blockIdx.x) * cols;
    const auto column = [](int n) { return 4 * (n * blockDim.x + threadIdx.x); };
    Vec<float, 4> v[kVectors];
    float sum = 0, squares = 0;
    for (int n = 0; n < kVectors; ++n) v[n] = load<4>(x + begin + column(n));
    for (int i = 0; i < kEach; ++i) sum += v[i / 4][i % 4];
    const float mean = block_sum(sum, room[0]) / cols;
    for (int i = 0; i < kEach; ++i) {
        v[i / 4][i % 4] -= mean;
        squares += v[i / 4][i % 4] * v[i / 4][i % 4];
    }
    const float r = 1 / sqrtf(block_sum(squares, room[1]) / cols + eps);
    for (int n = 0; n < kVectors; ++n) {
        const Vec<float, 4> w = load<4>(weight + column(n)), b = load<4>(bias + column(n));
        for (int k = 0; k < 4; ++k) v[n][k] = v[n][k] * r * w[k] + b[k];
        store(y + begin + column(n), v[n]);
    }
}

// ---- launchers

bool fits(int cols) {
    return cols > 0 && cols % (kEach * kWarp) == 0 && cols <= kEach * 16 * kWarp;
}

extern "C" cudaError_t naive(const float* x, const float* weight, const float* bias, float* y,
                             int rows, int cols, float eps, cudaStream_t stream) {
    norm_naive<<<ceil_div(rows, 128), 128, 0, stream>>>(x, weight, bias, y, rows, cols, eps);
    return cudaGetLastError();
}

extern "C" cudaError_t block(const float* x, const float* weight, const float* bias, float* y,
                             int rows, int cols, float eps, cudaStream_t stream) {
    if (!fits(cols)) return cudaErrorInvalidValue;
    norm_block<<<rows, cols / kEach, 0, stream>>>(x, weight, bias, y, cols, eps);
    return cudaGetLastError();
}

extern "C" cudaError_t wide(const float* x, const float* weight, const float* bias, float* y,
                            int rows, int cols, float eps, cudaStream_t stream) {
    if (!fits(cols)) return cudaErrorInvalidValue;
    norm_wide<<<rows, cols / kEach, 0, stream>>>(x, weight, bias, y, cols, eps);
    return cudaGetLastError();
}

extern "C" cudaError_t aligned(const float* x, const float* weight, const float* bias, float* y,
                               int rows, int cols, float eps, cudaStream_t stream) {
    if (!fits(cols)) return cudaErrorInvalidValue;
    norm_aligned<<<rows, cols / kEach, 0, stream>>>(x, weight, bias, y, cols, eps);
    return cudaGetLastError();
}
