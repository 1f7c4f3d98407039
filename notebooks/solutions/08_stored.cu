// 1 / 40000 has only eight bits left in float16, and the whole row is wrong by the error of rstd.
// Four bytes a row are little beside the row, so statistics are always float.

#include <cuda_fp16.h>

#include "rows.cuh"

__global__ void forward(const half* x, half* y, float* rstd, int rows, int cols) {
    const int row = blockIdx.x * blockDim.y + threadIdx.y;
    if (row >= rows) return;
    const int64_t begin = int64_t(row) * cols;
    float square = 0;
    for (int c = threadIdx.x; c < cols; c += kWarp) {
        const float v = __half2float(x[begin + c]);
        square += v * v;
    }
    const float r = 1 / sqrtf(warp_sum(square) / cols + 1e-6f);
    for (int c = threadIdx.x; c < cols; c += kWarp)
        y[begin + c] = __float2half(__half2float(x[begin + c]) * r);
    if (threadIdx.x == 0) rstd[row] = r;
}

__global__ void backward(const half* g, const half* x, const float* rstd, half* dx, int rows,
                         int cols) {
    const int row = blockIdx.x * blockDim.y + threadIdx.y;
    if (row >= rows) return;
    const int64_t begin = int64_t(row) * cols;
    const float r = rstd[row];
    float sum = 0;
    for (int c = threadIdx.x; c < cols; c += kWarp)
        sum += __half2float(g[begin + c]) * (__half2float(x[begin + c]) * r);
    const float average = warp_sum(sum) / cols;
    for (int c = threadIdx.x; c < cols; c += kWarp) {
        const float xhat = __half2float(x[begin + c]) * r;
        dx[begin + c] = __float2half(r * (__half2float(g[begin + c]) - xhat * average));
    }
}

// room: for a number of four bytes for each row.
extern "C" cudaError_t launch(const half* x, const half* g, half* y, half* dx, float* room,
                              int rows, int cols, cudaStream_t stream) {
    const dim3 grid(ceil_div(rows, 8)), block(kWarp, 8);
    forward<<<grid, block, 0, stream>>>(x, y, room, rows, cols);
    backward<<<grid, block, 0, stream>>>(g, x, room, dx, rows, cols);
    return cudaGetLastError();
}
