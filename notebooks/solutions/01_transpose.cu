#include "vec.cuh"

constexpr int kTile = 32;

__global__ void transpose(const float* x, float* y, int rows, int cols) {
    __shared__ float tile[kTile][kTile + 1];
    const int col = blockIdx.x * kTile, row = blockIdx.y * kTile;  // where the tile begins in x
    for (int r = threadIdx.y; r < kTile; r += blockDim.y) {
        const int c = threadIdx.x;
        if (row + r < rows && col + c < cols) tile[r][c] = x[int64_t(row + r) * cols + col + c];
    }
    __syncthreads();
    for (int c = threadIdx.y; c < kTile; c += blockDim.y) {
        const int r = threadIdx.x;
        if (row + r < rows && col + c < cols) y[int64_t(col + c) * rows + row + r] = tile[r][c];
    }
}

extern "C" cudaError_t launch(const float* x, float* y, int rows, int cols, cudaStream_t stream) {
    const dim3 grid(ceil_div(cols, kTile), ceil_div(rows, kTile)), block(kTile, 8);
    transpose<<<grid, block, 0, stream>>>(x, y, rows, cols);
    return cudaGetLastError();
}
