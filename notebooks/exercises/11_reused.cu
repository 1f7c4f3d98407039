// The softmax of each row, a block for each row
//
// On a GPU all tests pass, and once in a long while a row comes out wrong, never twice the same.
//
// TODO: find the mistake. Budget: 41 lines of code.

#include "rows.cuh"

constexpr int kThreads = 256, kWarps = kThreads / kWarp;

__device__ float warp_most(float value) {
    for (int bit = kWarp / 2; bit > 0; bit /= 2) {
        value = fmaxf(value, __shfl_xor_sync(0xffffffff, value, bit));
    }
    return value;
}

// Over all threads of the block, in each of them. scratch: room for a number of each warp.
__device__ float block_most(float value, float* scratch) {
    const int lane = threadIdx.x % kWarp, warp = threadIdx.x / kWarp;
    value = warp_most(value);
    if (lane == 0) scratch[warp] = value;
    __syncthreads();
    return warp_most(scratch[lane % kWarps]);
}

__device__ float block_sum(float value, float* scratch) {
    const int lane = threadIdx.x % kWarp, warp = threadIdx.x / kWarp;
    value = warp_sum(value);
    if (lane == 0) scratch[warp] = value;
    __syncthreads();
    return warp_sum(scratch[lane % kWarps], kWarps);
}

__global__ void softmax(const float* x, float* y, int cols) {
    __shared__ float scratch[kWarps];
    x += int64_t(blockIdx.x) * cols;
    y += int64_t(blockIdx.x) * cols;
    float most = -INFINITY, sum = 0;
    for (int c = threadIdx.x; c < cols; c += kThreads) most = fmaxf(most, x[c]);
    most = block_most(most, scratch);
    for (int c = threadIdx.x; c < cols; c += kThreads) sum += expf(x[c] - most);
    sum = block_sum(sum, scratch);
    for (int c = threadIdx.x; c < cols; c += kThreads) y[c] = expf(x[c] - most) / sum;
}

extern "C" cudaError_t launch(const float* x, float* y, int rows, int cols, cudaStream_t stream) {
    softmax<<<rows, kThreads, 0, stream>>>(x, y, cols);
    return cudaGetLastError();
}
