// y[c, r] = x[r, c], through a tile in shared memory
//
// If a kernel read x and wrote y directly, the lanes of a warp would either read or write floats
// that lie a whole row apart. So each block of 32 x 8 threads brings a tile of 32 x 32 floats into
// shared memory, reading x by neighbours, waits at a barrier, and writes the tile to y by
// neighbours too.
//
// TODO: write the tile out. Neighbouring threads (threadIdx.x) must write neighbours of y. Leave
// the tile its 33rd column: with it the 32 floats of a column lie in 32 different banks of shared
// memory (see "bank conflict" in glossary.md). Budget: 20 lines of code.

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
}

extern "C" cudaError_t launch(const float* x, float* y, int rows, int cols, cudaStream_t stream) {
    const dim3 grid(ceil_div(cols, kTile), ceil_div(rows, kTile)), block(kTile, 8);
    transpose<<<grid, block, 0, stream>>>(x, y, rows, cols);
    return cudaGetLastError();
}
