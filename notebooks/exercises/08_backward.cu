// dx of y = s * rstd * weight, a warp for each row. g arrives at y, and gs at the sum s
//
// So far it computes rstd * g * weight, as if rstd were a constant. But rstd depends on the row.
//
// TODO: subtract the projection on the row, and add the gradient that arrives at the sum. Budget:
// 25 lines.

#include "rows.cuh"

__global__ void backward(const float* g, const float* gs, const float* s, const float* weight,
                         const float* rstd, float* dx, int rows, int cols) {
    const int row = blockIdx.x * blockDim.y + threadIdx.y;
    if (row >= rows) return;
    const int64_t begin = int64_t(row) * cols;
    const float r = rstd[row];
    for (int c = threadIdx.x; c < cols; c += kWarp) dx[begin + c] = r * g[begin + c] * weight[c];
}

extern "C" cudaError_t launch(const float* g, const float* gs, const float* s, const float* weight,
                              const float* rstd, float* dx, int rows, int cols,
                              cudaStream_t stream) {
    backward<<<ceil_div(rows, 8), dim3(kWarp, 8), 0, stream>>>(
        g, gs, s, weight, rstd, dx, rows, cols);
    return cudaGetLastError();
}
