// The sums of the columns of a matrix by two warps, to be stepped through: each warp has a slice of
// the rows, and a thread has a column of it.
//
//   g [8, 32] float     total [32] float

#include "rows.cuh"

constexpr int kRows = 8, kSlices = 2;

__global__ void add_slices(const float* g, float* total) {
    __shared__ float partial[kSlices][kWarp];
    const int c = threadIdx.x, slice = threadIdx.y;
    float sum = 0;
    for (int row = slice; row < kRows; row += kSlices) sum += g[row * kWarp + c];
    partial[slice][c] = sum;
    __syncthreads();
    if (slice == 0) total[c] = partial[0][c] + partial[1][c];  // always in this order
}

extern "C" cudaError_t columns(const float* g, float* total, cudaStream_t stream) {
    add_slices<<<1, dim3(kWarp, kSlices), 0, stream>>>(g, total);
    return cudaGetLastError();
}
