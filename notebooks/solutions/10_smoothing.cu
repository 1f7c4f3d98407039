// The average of x - most is computed beside the powers. most occurs in both terms and cancels.

#include "rows.cuh"

__device__ float warp_most(float value) {
    for (int bit = kWarp / 2; bit > 0; bit /= 2) {
        value = fmaxf(value, __shfl_xor_sync(0xffffffff, value, bit));
    }
    return value;
}

__global__ void forward(const float* x, const int64_t* target, float* loss, int rows, int cols,
                        float smoothing) {
    const int row = blockIdx.x * blockDim.y + threadIdx.y;
    if (row >= rows) return;
    x += int64_t(row) * cols;
    float most = -INFINITY, sum = 0, below = 0;
    for (int c = threadIdx.x; c < cols; c += kWarp) most = fmaxf(most, x[c]);
    most = warp_most(most);
    for (int c = threadIdx.x; c < cols; c += kWarp) {
        sum += expf(x[c] - most);
        below += x[c] - most;
    }
    sum = warp_sum(sum);
    const float average = warp_sum(below) / cols;
    if (threadIdx.x == 0) {
        const float wanted = (1 - smoothing) * (x[target[row]] - most) + smoothing * average;
        loss[row] = logf(sum) - wanted;
    }
}

extern "C" cudaError_t launch(const float* x, const int64_t* target, float* loss, int rows,
                              int cols, float smoothing, cudaStream_t stream) {
    forward<<<ceil_div(rows, 8), dim3(kWarp, 8), 0, stream>>>(
        x, target, loss, rows, cols, smoothing);
    return cudaGetLastError();
}
