// y = dropout(layer_norm(x)), a warp for each row: one kernel, and no mask
//
// So far nothing is dropped. `dropped` of 65536 elements should become 0, and the others should be
// multiplied by 65536 / (65536 - dropped), by the rule of the op. Element i, counted row by row,
// has 16 random bits: from the four words Philox::draw(*seed, offset, i / 8) take word (i % 8) / 2,
// and from that the lower half if i is even, else the upper half. If these bits, as a number, are
// below `dropped`, the element is 0. `dropped` may be any number from 0 to 65536.
//
// TODO: draw, and drop. Try it without dropout.cuh. Budget: 34 lines of code.

#include "philox.cuh"
#include "rows.cuh"

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
        y[begin + c] = (x[begin + c] - m) * r * weight[c] + bias[c];
    if (threadIdx.x == 0) mean[row] = m, rstd[row] = r;
}

extern "C" cudaError_t launch(const float* x, const float* weight, const float* bias, float* y,
                              float* mean, float* rstd, const int64_t* seed, int64_t offset,
                              int dropped, int rows, int cols, cudaStream_t stream) {
    forward<<<ceil_div(rows, 8), dim3(kWarp, 8), 0, stream>>>(
        x, weight, bias, y, mean, rstd, seed, offset, dropped, rows, cols);
    return cudaGetLastError();
}
