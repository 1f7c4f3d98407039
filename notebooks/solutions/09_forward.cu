// If all elements are dropped, nothing divides by 0, because all bits are below 65536. Here eight
// elements compute the same draw; in the op they belong to one thread, which computes it once.

#include "philox.cuh"
#include "rows.cuh"

__device__ float factor(uint64_t seed, uint64_t offset, int64_t i, int dropped) {
    const uint4 draw = Philox::draw(seed, offset, i / 8);
    const uint32_t words[4] = {draw.x, draw.y, draw.z, draw.w};
    const int bits = words[i % 8 / 2] >> 16 * (i % 2) & 0xffff;
    return bits < dropped ? 0 : 65536.0f / (65536 - dropped);
}

__global__ void forward(const float* x, const float* weight, const float* bias, float* y,
                        float* mean, float* rstd, const int64_t* seed, int64_t offset, int dropped,
                        int rows, int cols) {
    const int row = blockIdx.x * blockDim.y + threadIdx.y;
    if (row >= rows) return;
    const int64_t begin = int64_t(row) * cols;
    float sum = 0, square = 0;
    for (int c = threadIdx.x; c < cols; c += kWarp) sum += x[begin + c];
    const float m = warp_sum(sum) / cols;
    for (int c = threadIdx.x; c < cols; c += kWarp)
        square += (x[begin + c] - m) * (x[begin + c] - m);
    const float r = 1 / sqrtf(warp_sum(square) / cols + 1e-5f);
    for (int c = threadIdx.x; c < cols; c += kWarp)
        y[begin + c] = ((x[begin + c] - m) * r * weight[c] + bias[c]) *
                       factor(*seed, offset, begin + c, dropped);
    if (threadIdx.x == 0) mean[row] = m, rstd[row] = r;
}

extern "C" cudaError_t launch(const float* x, const float* weight, const float* bias, float* y,
                              float* mean, float* rstd, const int64_t* seed, int64_t offset,
                              int dropped, int rows, int cols, cudaStream_t stream) {
    forward<<<ceil_div(rows, 8), dim3(kWarp, 8), 0, stream>>>(
        x, weight, bias, y, mean, rstd, seed, offset, dropped, rows, cols);
    return cudaGetLastError();
}
