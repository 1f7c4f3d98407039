// relu(x * scale + bias) for rows of float, in two steps.
//
//   x, y [rows, cols] float        scale, bias [cols] float
//
// Traffic: x is read and y is written, 8 bytes per element; scale and bias stay in the caches.

#include "vec.cuh"

constexpr int kThreads = 256;
constexpr int kRows = 4;  // of a block

// The result for one element. A NaN stays one, as in PyTorch.
__device__ float fused(float x, float scale, float bias) {
    const float z = fmaf(x, scale, bias);
    return z < 0 ? 0 : z;
}

// ---- grid: one thread per element. Grid and blocks have two dimensions, as the matrix has: so a
// thread gets its row and its column without a division.
// Flaw: 4 bytes per access.

__global__ void fused_grid(const float* x, const float* scale, const float* bias, float* y,
                           int rows, int cols) {
    const int row = blockIdx.y * blockDim.y + threadIdx.y;
    const int col = blockIdx.x * blockDim.x + threadIdx.x;
    if (row >= rows || col >= cols) return;
    const int64_t i = int64_t(row) * cols + col;
    y[i] = fused(x[i], scale[col], bias[col]);
}

// ---- aligned: a thread owns four neighbouring columns. It keeps their scale and bias in registers
// while it walks down kRows rows, 16 bytes per access.
// Flaw: cols must be a multiple of 4, and every tensor must begin on a 16-byte boundary.

__global__ void fused_aligned(const float* x, const float* scale, const float* bias, float* y,
                              int rows, int cols) {
    const int col = 4 * (blockIdx.x * blockDim.x + threadIdx.x);
    if (col >= cols) return;
    const Vec<float, 4> s = load<4>(scale + col), b = load<4>(bias + col);
    const int first = blockIdx.y * kRows, end = smaller(first + kRows, rows);
    for (int row = first; row < end; ++row) {
        const int64_t i = int64_t(row) * cols + col;
        Vec<float, 4> v = load<4>(x + i);
        for (int k = 0; k < 4; ++k) v[k] = fused(v[k], s[k], b[k]);
        store(y + i, v);
    }
}

// ---- launchers

extern "C" cudaError_t grid(const float* x, const float* scale, const float* bias, float* y,
                            int rows, int cols, cudaStream_t stream) {
    const dim3 block(kThreads / kRows, kRows);
    const dim3 blocks(ceil_div(cols, kThreads / kRows), ceil_div(rows, kRows));
    fused_grid<<<blocks, block, 0, stream>>>(x, scale, bias, y, rows, cols);
    return cudaGetLastError();
}

extern "C" cudaError_t aligned(const float* x, const float* scale, const float* bias, float* y,
                               int rows, int cols, cudaStream_t stream) {
    if (cols % 4 != 0 || !is_aligned(x, scale, bias, y)) return cudaErrorInvalidValue;
    const dim3 blocks(ceil_div(cols, 4 * kThreads), ceil_div(rows, kRows));
    fused_aligned<<<blocks, kThreads, 0, stream>>>(x, scale, bias, y, rows, cols);
    return cudaGetLastError();
}
