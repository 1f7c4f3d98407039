#include "rows.cuh"

__global__ void rms_norm(const float* x, const float* weight, float* y, int rows, int cols,
                         float eps) {
    const int row = blockIdx.x * blockDim.y + threadIdx.y;
    if (row >= rows) return;
    x += int64_t(row) * cols;
    y += int64_t(row) * cols;
    float squares = 0;
    for (int c = threadIdx.x; c < cols; c += kWarp) squares += x[c] * x[c];
    const float r = 1 / sqrtf(warp_sum(squares) / cols + eps);
    for (int c = threadIdx.x; c < cols; c += kWarp) y[c] = x[c] * r * weight[c];
}

extern "C" cudaError_t launch(const float* x, const float* weight, float* y, int rows, int cols,
                              float eps, cudaStream_t stream) {
    rms_norm<<<ceil_div(rows, 8), dim3(kWarp, 8), 0, stream>>>(x, weight, y, rows, cols, eps);
    return cudaGetLastError();
}
