// y[r, c] = x[r, c] / sqrt(average over c of x[r, c]^2 + eps) * weight[c], a warp for each row
//
// RMSNorm is a layer norm without the mean, and so without a subtraction that could cancel: one
// reading is enough for its statistic.
//
// TODO: the statistic, and the weight. Budget: 22 lines of code.

#include "rows.cuh"

__global__ void rms_norm(const float* x, const float* weight, float* y, int rows, int cols,
                         float eps) {
    const int row = blockIdx.x * blockDim.y + threadIdx.y;
    if (row >= rows) return;
    x += int64_t(row) * cols;
    y += int64_t(row) * cols;
    const float r = 1;
    for (int c = threadIdx.x; c < cols; c += kWarp) y[c] = x[c] * r;
}

extern "C" cudaError_t launch(const float* x, const float* weight, float* y, int rows, int cols,
                              float eps, cudaStream_t stream) {
    rms_norm<<<ceil_div(rows, 8), dim3(kWarp, 8), 0, stream>>>(x, weight, y, rows, cols, eps);
    return cudaGetLastError();
}
