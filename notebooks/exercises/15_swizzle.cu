// y = x w^T for x and w [64, 64], by tensor cores
//
// Right, and each ldmatrix takes eight times as many passes through shared memory as it must.
//
// TODO: let the pieces of a column stand in different banks. Budget: 41 lines of code.

#include <cuda_bf16.h>
#include "mma.cuh"

using T = nv_bfloat16;
constexpr int kSide = 64;  // rows of both tiles, of 64 elements: 128 bytes

// Where byte `column` of row `row` stands in a tile.
__device__ int place(int row, int column) { return row * 128 + column; }

__device__ void fill(char* tile, const T* from) {
    for (int i = threadIdx.x; i < kSide * 8; i += blockDim.x) {
        T* const to = reinterpret_cast<T*>(tile + place(i / 8, i % 8 * 16));
        store(to, load<8>(from + i * 8));
    }
}

// Each of four warps has 16 rows of y.
__global__ void product(const T* x, const T* w, float* y) {
    __shared__ __align__(1024) char tile_x[kSide * 128], tile_w[kSide * 128];
    fill(tile_x, x);
    fill(tile_w, w);
    __syncthreads();
    const int lane = threadIdx.x % 32, down = threadIdx.x / 32 * 16;
    float sums[8][4] = {};
    for (int k = 0; k < 64; k += 16) {
        uint32_t a[4], b[4];
        ldmatrix(a, tile_x + place(down + lane % 16, (k + lane / 16 * 8) * 2), false);
        for (int n = 0; n < 8; n += 2) {
            const int row = n * 8 + lane / 16 * 8 + lane % 8;
            ldmatrix(b, tile_w + place(row, (k + lane / 8 % 2 * 8) * 2), false);
            mma<T>(sums[n], a, b);
            mma<T>(sums[n + 1], a, b + 2);
        }
    }
    for (int n = 0; n < 8; ++n)
        for (int i = 0; i < 4; ++i)
            y[(down + lane / 4 + i / 2 * 8) * 64 + n * 8 + lane % 4 * 2 + i % 2] = sums[n][i];
}

extern "C" cudaError_t launch(const nv_bfloat16* x, const nv_bfloat16* w, float* y,
                              cudaStream_t stream) {
    product<<<1, 128, 0, stream>>>(x, w, y);
    return cudaGetLastError();
}
