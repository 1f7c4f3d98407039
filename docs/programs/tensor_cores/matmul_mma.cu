// c = a @ b.T by mma.sync: tiles wait in shared memory, three steps of k ahead by cp.async.
// a [m, k], b [n, k] bfloat16, c [m, n] float32; m and n are multiples of 128, k of 32.
#include <cuda_bf16.h>
#include <stdint.h>

namespace {

constexpr int kTile = 128, kStep = 32, kStages = 3, kThreads = 256;
constexpr int kChunks = kStep / 8;  // of 16 bytes in a row of a tile

using Tile = __nv_bfloat16[kTile * kStep];

// Chunk c of row r lies at c ^ (r / 2 % 4): the eight rows that ldmatrix reads are in eight banks.
__device__ uint32_t address(const Tile& tile, int row, int chunk) {
    const int at = row * kStep + (chunk ^ (row / 2 % kChunks)) * 8;
    return uint32_t(__cvta_generic_to_shared(&tile[at]));
}

__device__ void copy(const Tile& tile, const __nv_bfloat16* from, int stride) {
    for (int i = threadIdx.x; i < kTile * kChunks; i += kThreads) {
        const int row = i / kChunks, chunk = i % kChunks;
        asm volatile("cp.async.cg.shared.global [%0], [%1], 16;" ::"r"(address(tile, row, chunk)),
                     "l"(from + row * stride + chunk * 8)
                     : "memory");
    }
}

// Four matrices of 8 x 8, of 16 rows and 16 columns.
__device__ void load_matrices(uint32_t (&to)[4], const Tile& tile, int row, int chunk) {
    const int lane = threadIdx.x % 32;
    asm volatile("ldmatrix.sync.aligned.m8n8.x4.shared.b16 {%0, %1, %2, %3}, [%4];"
                 : "=r"(to[0]), "=r"(to[1]), "=r"(to[2]), "=r"(to[3])
                 : "r"(address(tile, row + lane % 16, chunk + lane / 16))
                 : "memory");
}

__device__ void multiply(float (&c)[4], const uint32_t (&a)[4], uint32_t b0, uint32_t b1) {
    asm volatile(
        "mma.sync.aligned.m16n8k16.row.col.f32.bf16.bf16.f32 {%0, %1, %2, %3}, {%4, %5, %6, %7}, "
        "{%8, %9}, {%0, %1, %2, %3};"
        : "+f"(c[0]), "+f"(c[1]), "+f"(c[2]), "+f"(c[3])
        : "r"(a[0]), "r"(a[1]), "r"(a[2]), "r"(a[3]), "r"(b0), "r"(b1));
}

// Eight warps, each with 64 rows and 32 columns of the block's tile.
__global__ void __launch_bounds__(kThreads) matmul_mma_kernel(
    const __nv_bfloat16* a, const __nv_bfloat16* b, float* c, int n, int k) {
    __shared__ __align__(16) Tile tiles[kStages][2];
    const int warp = threadIdx.x / 32, lane = threadIdx.x % 32;
    const int row = warp % 2 * 64, column = warp / 2 * 32;
    a += blockIdx.y * kTile * k;
    b += blockIdx.x * kTile * k;
    float sums[4][4][4] = {};

    auto fetch = [&](int step) {
        if (step * kStep < k) {
            copy(tiles[step % kStages][0], a + step * kStep, k);
            copy(tiles[step % kStages][1], b + step * kStep, k);
        }
        asm volatile("cp.async.commit_group;" ::: "memory");
    };
    for (int step = 0; step < kStages - 1; step++) fetch(step);
    for (int step = 0; step * kStep < k; step++) {
        asm volatile("cp.async.wait_group %0;" ::"n"(kStages - 2) : "memory");
        __syncthreads();
        fetch(step + kStages - 1);
        const Tile &of_a = tiles[step % kStages][0], &of_b = tiles[step % kStages][1];
        for (int chunk = 0; chunk < kChunks; chunk += 2) {
            uint32_t x[4][4], w[2][4];
            for (int i = 0; i < 4; i++) load_matrices(x[i], of_a, row + 16 * i, chunk);
            for (int j = 0; j < 2; j++) load_matrices(w[j], of_b, column + 16 * j, chunk);
            for (int i = 0; i < 4; i++)
                for (int j = 0; j < 4; j++)
                    multiply(sums[i][j], x[i], w[j / 2][j % 2], w[j / 2][j % 2 + 2]);
        }
    }

    c += (blockIdx.y * kTile + row + lane / 4) * n + blockIdx.x * kTile + column + lane % 4 * 2;
    for (int i = 0; i < 4; i++)
        for (int j = 0; j < 4; j++)
            for (int half = 0; half < 2; half++)
                *reinterpret_cast<float2*>(&c[(16 * i + 8 * half) * n + 8 * j]) =
                    make_float2(sums[i][j][2 * half], sums[i][j][2 * half + 1]);
}

}  // namespace

extern "C" cudaError_t matmul_mma(const __nv_bfloat16* a, const __nv_bfloat16* b, float* c, int m,
                                  int n, int k) {
    matmul_mma_kernel<<<dim3(n / kTile, m / kTile), kThreads>>>(a, b, c, n, k);
    return cudaGetLastError();
}
