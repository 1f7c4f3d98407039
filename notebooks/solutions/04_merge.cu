// Chan, Golub and LeVeque, 1979. With other.count = 1 it is Welford's step of 1962.

#include "rows.cuh"

struct Moments {
    float count, mean, squares;

    __device__ void take(float v) {
        const float distance = v - mean;
        count += 1;
        mean += distance / count;
        squares += distance * (v - mean);
    }

    __device__ void combine(const Moments& other) {
        if (other.count == 0) return;
        const float distance = other.mean - mean, all = count + other.count;
        mean += distance * other.count / all;
        squares += other.squares + distance * distance * count * other.count / all;
        count = all;
    }
};

__global__ void row_moments(const float* x, float* mean, float* var, int rows, int cols) {
    const int row = blockIdx.x * blockDim.y + threadIdx.y;
    if (row >= rows) return;
    Moments mine = {0, 0, 0};
    for (int c = threadIdx.x; c < cols; c += kWarp) mine.take(x[int64_t(row) * cols + c]);
    for (int bit = kWarp / 2; bit > 0; bit /= 2) {
        mine.combine(Moments{__shfl_xor_sync(0xffffffff, mine.count, bit),
                             __shfl_xor_sync(0xffffffff, mine.mean, bit),
                             __shfl_xor_sync(0xffffffff, mine.squares, bit)});
    }
    if (threadIdx.x == 0) mean[row] = mine.mean, var[row] = mine.squares / cols;
}

extern "C" cudaError_t launch(const float* x, float* mean, float* var, int rows, int cols,
                              cudaStream_t stream) {
    row_moments<<<ceil_div(rows, 8), dim3(kWarp, 8), 0, stream>>>(x, mean, var, rows, cols);
    return cudaGetLastError();
}
