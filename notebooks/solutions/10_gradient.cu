#include "rows.cuh"

__global__ void backward(float* x, const int64_t* target, const float* most, const float* sum,
                         float scale, int64_t ignore, int rows, int cols) {
    const int row = blockIdx.x * blockDim.y + threadIdx.y;
    if (row >= rows) return;
    x += int64_t(row) * cols;
    const int64_t t = target[row];
    for (int c = threadIdx.x; c < cols; c += kWarp) {
        const float p = expf(x[c] - most[row]) / sum[row];
        x[c] = t == ignore ? 0 : scale * (p - (c == t));
    }
}

extern "C" cudaError_t launch(float* x, const int64_t* target, const float* most, const float* sum,
                              float scale, int64_t ignore, int rows, int cols,
                              cudaStream_t stream) {
    backward<<<ceil_div(rows, 8), dim3(kWarp, 8), 0, stream>>>(
        x, target, most, sum, scale, ignore, rows, cols);
    return cudaGetLastError();
}
