// The fused backward pass of add and norm, for rows of 64 columns: a warp takes one row after the
// other. dx is the gradient of x and of the residual at once.
//
//   g, gs, s, dx [rows, 64] float   weight [64]   rstd [rows]   partial [blocks, 64]

#include "rows.cuh"

constexpr int kEach = 2, kCols = kEach * kWarp;  // columns of a thread, of a row

// gs: the gradient that arrives at the sum itself. rstd: 1 / the root of each row's mean square.
__global__ void add_norm_backward(const float* g, const float* gs, const float* s,
                                  const float* weight, const float* rstd, float* dx, float* partial,
                                  int rows) {
    float dweight[kEach] = {};  // of this thread's columns, over all rows of this block
    for (int row = blockIdx.x; row < rows; row += gridDim.x) {
        const float r = rstd[row];
        float h[kEach], s_hat[kEach], along = 0;
        for (int i = 0; i < kEach; ++i) {
            const int c = threadIdx.x + kWarp * i;
            s_hat[i] = s[row * kCols + c] * r;
            h[i] = g[row * kCols + c];
            dweight[i] += h[i] * s_hat[i];
            h[i] *= weight[c];
            along += h[i] * s_hat[i];
        }
        const float average = warp_sum(along) / kCols;
        for (int i = 0; i < kEach; ++i) {
            const int at = row * kCols + threadIdx.x + kWarp * i;
            dx[at] = r * (h[i] - s_hat[i] * average) + gs[at];
        }
    }
    for (int i = 0; i < kEach; ++i)
        partial[blockIdx.x * kCols + threadIdx.x + kWarp * i] = dweight[i];
}

extern "C" cudaError_t fused(const float* g, const float* gs, const float* s, const float* weight,
                             const float* rstd, float* dx, float* partial, int rows, int blocks,
                             cudaStream_t stream) {
    add_norm_backward<<<blocks, kWarp, 0, stream>>>(g, gs, s, weight, rstd, dx, partial, rows);
    return cudaGetLastError();
}
