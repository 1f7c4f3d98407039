// x[-100] of the first row lies before the tensor; of any other row it lies in the row before. The
// weight 0 makes it 0, unless it is infinite or NaN, or cannot be read at all.

#include "rows.cuh"

__device__ float warp_most(float value) {
    for (int bit = kWarp / 2; bit > 0; bit /= 2) {
        value = fmaxf(value, __shfl_xor_sync(0xffffffff, value, bit));
    }
    return value;
}

__global__ void sum_losses(const float* x, const int64_t* target, float* total, int64_t ignore,
                           int rows, int cols) {
    const int row = blockIdx.x * blockDim.y + threadIdx.y;
    if (row >= rows) return;
    x += int64_t(row) * cols;
    float most = -INFINITY, sum = 0;
    for (int c = threadIdx.x; c < cols; c += kWarp) most = fmaxf(most, x[c]);
    most = warp_most(most);
    for (int c = threadIdx.x; c < cols; c += kWarp) sum += expf(x[c] - most);
    sum = warp_sum(sum);
    if (target[row] == ignore) return;
    const float loss = logf(sum) - (x[target[row]] - most);
    if (threadIdx.x == 0) atomicAdd(total, loss);
}

extern "C" cudaError_t launch(const float* x, const int64_t* target, float* total, int64_t ignore,
                              int rows, int cols, cudaStream_t stream) {
    sum_losses<<<ceil_div(rows, 8), dim3(kWarp, 8), 0, stream>>>(
        x, target, total, ignore, rows, cols);
    return cudaGetLastError();
}
