// y[r, c] = (x[r, c] - mean[r]) / sqrt(var[r] + eps), a warp for each row
//
// A checkpoint that was trained with PyTorch gave almost the same results here. Almost: the
// narrower a layer, the further off it was.
//
// TODO: find the mistake. Budget: 25 lines of code.

#include "rows.cuh"

__global__ void normalize(const float* x, float* y, int rows, int cols, float eps) {
    const int row = blockIdx.x * blockDim.y + threadIdx.y;
    if (row >= rows) return;
    x += int64_t(row) * cols;
    y += int64_t(row) * cols;
    float sum = 0, squares = 0;
    for (int c = threadIdx.x; c < cols; c += kWarp) sum += x[c];
    const float mean = warp_sum(sum) / cols;
    for (int c = threadIdx.x; c < cols; c += kWarp) squares += (x[c] - mean) * (x[c] - mean);
    const float r = 1 / sqrtf(warp_sum(squares) / (cols - 1) + eps);
    for (int c = threadIdx.x; c < cols; c += kWarp) y[c] = (x[c] - mean) * r;
}

extern "C" cudaError_t launch(const float* x, float* y, int rows, int cols, float eps,
                              cudaStream_t stream) {
    normalize<<<ceil_div(rows, 8), dim3(kWarp, 8), 0, stream>>>(x, y, rows, cols, eps);
    return cudaGetLastError();
}
