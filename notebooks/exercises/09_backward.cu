// dx of y = dropout(layer_norm(x)), a warp for each row; g arrives at y
//
// Forward has stored the mean and 1 / deviation of each row, and no mask, so this computes the
// gradient as if nothing had been dropped. But seed, offset and `dropped` are the same as in
// forward, and the rule is in 09_forward.
//
// TODO: draw forward's mask again. Budget: 40 lines of code.

#include "philox.cuh"
#include "rows.cuh"

__global__ void backward(const float* g, const float* x, const float* weight, const float* mean,
                         const float* rstd, float* dx, const int64_t* seed, int64_t offset,
                         int dropped, int rows, int cols) {
    const int row = blockIdx.x * blockDim.y + threadIdx.y;
    if (row >= rows) return;
    const int64_t begin = int64_t(row) * cols;
    const float m = mean[row], r = rstd[row];
    float h_sum = 0, h_xhat_sum = 0;
    for (int c = threadIdx.x; c < cols; c += kWarp) {
        const float h = g[begin + c] * weight[c];
        h_sum += h;
        h_xhat_sum += h * (x[begin + c] - m) * r;
    }
    const float h_average = warp_sum(h_sum) / cols, h_xhat_average = warp_sum(h_xhat_sum) / cols;
    for (int c = threadIdx.x; c < cols; c += kWarp) {
        const float h = g[begin + c] * weight[c], xhat = (x[begin + c] - m) * r;
        dx[begin + c] = r * (h - h_average - xhat * h_xhat_average);
    }
}

extern "C" cudaError_t launch(const float* g, const float* x, const float* weight,
                              const float* mean, const float* rstd, float* dx, const int64_t* seed,
                              int64_t offset, int dropped, int rows, int cols,
                              cudaStream_t stream) {
    backward<<<ceil_div(rows, 8), dim3(kWarp, 8), 0, stream>>>(
        g, x, weight, mean, rstd, dx, seed, offset, dropped, rows, cols);
    return cudaGetLastError();
}
