#include <cuda_fp16.h>

#include "rows.cuh"

__global__ void row_dot(const half* a, const half* b, half* y, int rows, int cols) {
    const int row = blockIdx.x * blockDim.y + threadIdx.y;
    if (row >= rows) return;
    float sum = 0;
    for (int c = threadIdx.x; c < cols; c += kWarp) {
        const int64_t i = int64_t(row) * cols + c;
        sum += __half2float(a[i]) * __half2float(b[i]);
    }
    sum = warp_sum(sum);
    if (threadIdx.x == 0) y[row] = __float2half(sum);
}

extern "C" cudaError_t launch(const half* a, const half* b, half* y, int rows, int cols,
                              cudaStream_t stream) {
    row_dot<<<ceil_div(rows, 8), dim3(kWarp, 8), 0, stream>>>(a, b, y, rows, cols);
    return cudaGetLastError();
}
