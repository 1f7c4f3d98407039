// The averages are those of h, the gradient times the weight, because that is the gradient of the
// normalized row. All three places need it.

#include "rows.cuh"

__global__ void layer_norm_dx(const float* g, const float* x, const float* weight,
                              const float* mean, const float* rstd, float* dx, int rows, int cols) {
    const int row = blockIdx.x * blockDim.y + threadIdx.y;
    if (row >= rows) return;
    const int64_t begin = int64_t(row) * cols;
    const float m = mean[row], r = rstd[row];
    float sum_h = 0, sum_hz = 0;
    for (int c = threadIdx.x; c < cols; c += kWarp) {
        const float h = g[begin + c] * weight[c], z = (x[begin + c] - m) * r;
        sum_h += h;
        sum_hz += h * z;
    }
    const float average_h = warp_sum(sum_h) / cols, average_hz = warp_sum(sum_hz) / cols;
    for (int c = threadIdx.x; c < cols; c += kWarp) {
        const float h = g[begin + c] * weight[c], z = (x[begin + c] - m) * r;
        dx[begin + c] = r * (h - average_h - z * average_hz);
    }
}

extern "C" cudaError_t launch(const float* g, const float* x, const float* weight,
                              const float* mean, const float* rstd, float* dx, int rows, int cols,
                              cudaStream_t stream) {
    const dim3 block(kWarp, 8);
    layer_norm_dx<<<ceil_div(rows, 8), block, 0, stream>>>(
        g, x, weight, mean, rstd, dx, rows, cols);
    return cudaGetLastError();
}
