// The gradient of the norm's result is g * f; the rest is the norm's backward pass. The sums over
// the row need the mask, and so do its elements, so it is drawn three times in all.

#include "philox.cuh"
#include "rows.cuh"

__device__ float factor(uint64_t seed, uint64_t offset, int64_t i, int dropped) {
    const uint4 draw = Philox::draw(seed, offset, i / 8);
    const uint32_t words[4] = {draw.x, draw.y, draw.z, draw.w};
    const int bits = words[i % 8 / 2] >> 16 * (i % 2) & 0xffff;
    return bits < dropped ? 0 : 65536.0f / (65536 - dropped);
}

__global__ void backward(const float* g, const float* x, const float* weight, const float* mean,
                         const float* rstd, float* dx, const int64_t* seed, int64_t offset,
                         int dropped, int rows, int cols) {
    const int row = blockIdx.x * blockDim.y + threadIdx.y;
    if (row >= rows) return;
    const int64_t begin = int64_t(row) * cols;
    const float m = mean[row], r = rstd[row];
    float h_sum = 0, h_xhat_sum = 0;
    for (int c = threadIdx.x; c < cols; c += kWarp) {
        const float f = factor(*seed, offset, begin + c, dropped);
        const float h = g[begin + c] * f * weight[c];
        h_sum += h;
        h_xhat_sum += h * (x[begin + c] - m) * r;
    }
    const float h_average = warp_sum(h_sum) / cols, h_xhat_average = warp_sum(h_xhat_sum) / cols;
    for (int c = threadIdx.x; c < cols; c += kWarp) {
        const float f = factor(*seed, offset, begin + c, dropped);
        const float h = g[begin + c] * f * weight[c], xhat = (x[begin + c] - m) * r;
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
