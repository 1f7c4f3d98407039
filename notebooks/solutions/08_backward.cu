#include "rows.cuh"

__global__ void backward(const float* g, const float* gs, const float* s, const float* weight,
                         const float* rstd, float* dx, int rows, int cols) {
    const int row = blockIdx.x * blockDim.y + threadIdx.y;
    if (row >= rows) return;
    const int64_t begin = int64_t(row) * cols;
    const float r = rstd[row];
    float sum = 0;
    for (int c = threadIdx.x; c < cols; c += kWarp)
        sum += g[begin + c] * weight[c] * (s[begin + c] * r);
    const float average = warp_sum(sum) / cols;
    for (int c = threadIdx.x; c < cols; c += kWarp) {
        const float h = g[begin + c] * weight[c], xhat = s[begin + c] * r;
        dx[begin + c] = r * (h - xhat * average) + gs[begin + c];
    }
}

extern "C" cudaError_t launch(const float* g, const float* gs, const float* s, const float* weight,
                              const float* rstd, float* dx, int rows, int cols,
                              cudaStream_t stream) {
    backward<<<ceil_div(rows, 8), dim3(kWarp, 8), 0, stream>>>(
        g, gs, s, weight, rstd, dx, rows, cols);
    return cudaGetLastError();
}
