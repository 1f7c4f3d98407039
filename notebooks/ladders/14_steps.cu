// 14_tiles.cu's `tiles` with a block of 8 x 8 threads, to be stepped through.
//
//   x [8, depth], w [8, depth], y [8, 8] float: y = x w^T

#include <cuda_runtime.h>

constexpr int kTile = 8;

__global__ void product_tiles(const float* x, const float* w, float* y, int depth) {
    __shared__ float tile_x[kTile][kTile + 1], tile_w[kTile][kTile + 1];
    const int r = threadIdx.y, c = threadIdx.x;
    float sum = 0;
    for (int first = 0; first < depth; first += kTile) {
        tile_x[r][c] = x[r * depth + first + c];
        tile_w[r][c] = w[r * depth + first + c];
        __syncthreads();  // both tiles are there
        for (int k = 0; k < kTile; ++k) {
            sum += tile_x[r][k] * tile_w[c][k];
        }
        __syncthreads();  // nobody reads them any more
    }
    y[r * kTile + c] = sum;
}

extern "C" cudaError_t tiles(const float* x, const float* w, float* y, int depth,
                             cudaStream_t stream) {
    product_tiles<<<1, dim3(kTile, kTile), 0, stream>>>(x, w, y, depth);
    return cudaGetLastError();
}
