#include "rows.cuh"

__global__ void log_softmax(const float* x, float* y, int rows, int cols) {
    const int row = blockIdx.x * blockDim.y + threadIdx.y;
    if (row >= rows) return;
    x += int64_t(row) * cols;
    y += int64_t(row) * cols;
    float most = -INFINITY, sum = 0;
    for (int c = threadIdx.x; c < cols; c += kWarp) most = fmaxf(most, x[c]);
    for (int bit = kWarp / 2; bit > 0; bit /= 2) {
        most = fmaxf(most, __shfl_xor_sync(0xffffffff, most, bit));
    }
    for (int c = threadIdx.x; c < cols; c += kWarp) sum += expf(x[c] - most);
    sum = warp_sum(sum);
    for (int c = threadIdx.x; c < cols; c += kWarp) y[c] = x[c] - most - logf(sum);
}

extern "C" cudaError_t launch(const float* x, float* y, int rows, int cols, cudaStream_t stream) {
    log_softmax<<<ceil_div(rows, 8), dim3(kWarp, 8), 0, stream>>>(x, y, rows, cols);
    return cudaGetLastError();
}
