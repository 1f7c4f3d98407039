// rms_norm of float16, forward and backward, a warp for each row; rstd is kept in between
//
// It is right in all its tests, whose rows hold numbers of about 1. Then a model's residual stream
// grew from layer to layer, and the gradients of the last layers differed from PyTorch's.
//
// TODO: find the mistake. Budget: 45 lines of code.

#include <cuda_fp16.h>

#include "rows.cuh"

__global__ void forward(const half* x, half* y, half* rstd, int rows, int cols) {
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
    if (threadIdx.x == 0) rstd[row] = __float2half(r);
}

__global__ void backward(const half* g, const half* x, const half* rstd, half* dx, int rows,
                         int cols) {
    const int row = blockIdx.x * blockDim.y + threadIdx.y;
    if (row >= rows) return;
    const int64_t begin = int64_t(row) * cols;
    const float r = __half2float(rstd[row]);
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
    half* rstd = reinterpret_cast<half*>(room);
    forward<<<grid, block, 0, stream>>>(x, y, rstd, rows, cols);
    backward<<<grid, block, 0, stream>>>(g, x, rstd, dx, rows, cols);
    return cudaGetLastError();
}
