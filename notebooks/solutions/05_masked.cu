// A thread that has seen nothing but masked numbers computes -infinity - -infinity, which is a NaN,
// and so its sum is one. A masked number adds nothing, so it may as well be passed over.

#include "rows.cuh"

__global__ void softmax(const float* x, float* y, int rows, int cols) {
    const int row = blockIdx.x * blockDim.y + threadIdx.y;
    if (row >= rows) return;
    x += int64_t(row) * cols;
    y += int64_t(row) * cols;
    float most = -INFINITY, sum = 0;
    for (int c = threadIdx.x; c < cols; c += kWarp) {
        if (x[c] == -INFINITY) continue;
        const float larger = fmaxf(most, x[c]);
        sum = sum * expf(most - larger) + expf(x[c] - larger);
        most = larger;
    }
    float all = most;
    for (int bit = kWarp / 2; bit > 0; bit /= 2) {
        all = fmaxf(all, __shfl_xor_sync(0xffffffff, all, bit));
    }
    sum = warp_sum(sum == 0 ? 0 : sum * expf(most - all));
    for (int c = threadIdx.x; c < cols; c += kWarp) y[c] = expf(x[c] - all) / sum;
}

extern "C" cudaError_t launch(const float* x, float* y, int rows, int cols, cudaStream_t stream) {
    softmax<<<ceil_div(rows, 8), dim3(kWarp, 8), 0, stream>>>(x, y, rows, cols);
    return cudaGetLastError();
}
