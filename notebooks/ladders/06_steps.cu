// The means of 32 rows of 32 numbers in two ways, to be stepped through: which elements does a warp
// read in one step?
//
//   x [32, 32] float     mean [32] float

#include "rows.cuh"

constexpr int kCols = kWarp;

// A thread for each row: in a step, the lanes of the warp read elements of 32 rows.
__global__ void mean_by_thread(const float* x, float* mean) {
    const int row = threadIdx.x;
    float sum = 0;
    for (int c = 0; c < kCols; ++c) sum += x[row * kCols + c];
    mean[row] = sum / kCols;
}

// A warp for each row: in a step, its lanes read neighbouring elements.
__global__ void mean_by_warp(const float* x, float* mean) {
    const int row = blockIdx.x;
    const float sum = warp_sum(x[row * kCols + threadIdx.x]);
    if (threadIdx.x == 0) mean[row] = sum / kCols;
}

extern "C" cudaError_t by_thread(const float* x, float* mean, cudaStream_t stream) {
    mean_by_thread<<<1, 32, 0, stream>>>(x, mean);
    return cudaGetLastError();
}

extern "C" cudaError_t by_warp(const float* x, float* mean, cudaStream_t stream) {
    mean_by_warp<<<32, kWarp, 0, stream>>>(x, mean);
    return cudaGetLastError();
}
