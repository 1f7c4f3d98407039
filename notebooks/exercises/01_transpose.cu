// y[c, r] = x[r, c], through a tile in shared memory
//
// Read straight from x and written straight to y, one of the two is a whole row apart from thread
// to thread. So a block of 32 x 8 threads brings a tile of 32 x 32 into shared memory, where no
// access is far, and takes it out again turned.
//
// TODO: write the tile out. Neighbouring threads (threadIdx.x) must write neighbours of y. The 33rd
// column is not a mistake: shared memory has 32 banks, and so a column of the tile lies in all of
// them. Budget: 20 lines of code.

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
