// Floats of one byte: how they are made, and their products
//
//   quantize: x [groups, each] float -> q [groups, each] e4m3, scales [groups] float
//   norm_quantize: x [rows, cols] bfloat16, weight [cols] bfloat16 -> q [rows, cols] e4m3, scales
//   [rows] products: y = x w^T of x [rows, depth] and w [units, depth] e4m3; y [rows, units] float
//
// A pointer to e4m3 is a uint8_t* here. rows is a multiple of 64, units and depth of 128; the
// launchers refuse others. The ops' own versions, which take all shapes and have scales, are in
// kernels/elementwise/quantize.cu and kernels/matmul/matmul_fp8.cu.

#include <cuda_bf16.h>

#include "float8.cuh"
#include "mma.cuh"
#include "wgmma_float8.cuh"

// ---- quantize: a group of numbers has a scale. A warp reads its group twice: for the largest
// number, and to divide.
// Flaw: lanes read 4 bytes and write one at a time, and of a large group one warp is too few.

__global__ void quantize_groups(const float* x, uint8_t* q, float* scales, int64_t each) {
    const int64_t first = blockIdx.x * each;
    Largest largest = Largest::identity();
    for (int64_t i = threadIdx.x; i < each; i += kWarp) largest.add(x[first + i]);
    const float scale = largest.warp_reduce(kWarp).scale();
    if (threadIdx.x == 0) scales[blockIdx.x] = scale;
    for (int64_t i = threadIdx.x; i < each; i += kWarp) {
        q[first + i] = to_float8(x[first + i] / scale).bits;
    }
}

// ---- norm: rms_norm and quantize in one kernel. A block has a row, and a thread eight neighbours
// of it, 16 bytes, which stay in registers. Flaw: rows must be a multiple of 256 wide, up to 8192.

__global__ void norm_groups(const nv_bfloat16* x, const nv_bfloat16* weight, uint8_t* q,
                            float* scales, int cols, float eps) {
    const int64_t first = int64_t(blockIdx.x) * cols + threadIdx.x * 8;
    const Vec<nv_bfloat16, 8> v = load<8>(x + first), w = load<8>(weight + threadIdx.x * 8);
    BlockReduce<32> reduce;  // over the threads of the block, up to 32 warps
    float y[8], square = 0;
    for (int k = 0; k < 8; ++k) square += float(v[k]) * float(v[k]);
    const float r = 1 / sqrtf(reduce(Sums<1, float>{square})[0] / cols + eps);
    Largest largest = Largest::identity();
    for (int k = 0; k < 8; ++k) {
        y[k] = float(nv_bfloat16(float(v[k]) * r * float(w[k])));  // rounded, as rms_norm's result
        largest.add(y[k]);
    }
    const float scale = reduce(largest).scale();
    for (float& each : y) each /= scale;
    store(reinterpret_cast<Float8*>(q) + first, to_float8(y));
    if (threadIdx.x == 0) scales[blockIdx.x] = scale;
}

// ---- naive: a thread for each element of y, which turns bytes into floats and adds in float.
// Flaw: it does what tensor cores do, one product at a time.

__global__ void product_naive(const uint8_t* x, const uint8_t* w, float* y, int units, int depth) {
    const int64_t unit = blockIdx.x * blockDim.x + threadIdx.x, row = blockIdx.y;
    x += row * depth;
    w += unit * depth;
    float sum = 0;
    for (int k = 0; k < depth; ++k) sum += to_float({x[k]}) * to_float({w[k]});
    y[row * units + unit] = sum;
}

// ---- mma: a warp has 16 x 8 elements of y. A register holds four neighbours, where chapter 15's
// held two, so an instruction has 32 of k; the rest is chapter 15's `direct`, by the byte.
// Flaw: that kernel's; and an H100 carries the instruction out as one of 16-bit floats.

constexpr int kWarps = 4;  // of a block, side by side

__device__ uint32_t four_at(const uint8_t* four) {
    return *reinterpret_cast<const uint32_t*>(four);
}

__global__ void product_mma(const uint8_t* x, const uint8_t* w, float* y, int units, int depth) {
#if !defined(__CUDA_ARCH__) || __CUDA_ARCH__ >= 890
    const int lane = threadIdx.x, down = lane / 4, right = lane % 4 * 4;
    const int64_t row = blockIdx.y * 16, unit = (blockIdx.x * kWarps + threadIdx.y) * 8;
    x += (row + down) * depth + right;
    w += (unit + down) * depth + right;
    float sums[4] = {};
    for (int k = 0; k < depth; k += 32) {
        const uint8_t* const below = x + 8 * depth;
        const uint32_t a[4] = {
            four_at(x + k), four_at(below + k), four_at(x + k + 16), four_at(below + k + 16)};
        const uint32_t b[2] = {four_at(w + k), four_at(w + k + 16)};
        mma<Float8>(sums, a, b);
    }
    for (int i = 0; i < 4; ++i)
        y[(row + down + i / 2 * 8) * units + unit + lane % 4 * 2 + i % 2] = sums[i];
#endif
}

// ---- wgmma: a warpgroup has 64 x 128 elements of y, and tiles of 128 of k in shared memory.
// Tensor cores add up the products of `together` tiles; then the threads add these sums to their
// totals, in float. With as many tiles as there are, tensor cores add up everything.
// Flaw: nothing is fetched while something is multiplied, which chapter 16 mends.

constexpr int kHigh = 64, kWide = 128;

// Rows of 128 bytes, each of which eight threads copy.
template <int rows>
__device__ void fill(char* tile, const uint8_t* from, int depth) {
    for (int i = threadIdx.x; i < rows * 8; i += kWarpgroup) {
        const int row = i / 8, piece = i % 8 * 16;
        store(reinterpret_cast<uint8_t*>(tile + swizzled(row, piece)),
              load<16>(from + int64_t(row) * depth + piece));
    }
}

__global__ void WGMMA_KERNEL(kWarpgroup) product_wgmma(const uint8_t* x, const uint8_t* w, float* y,
                                                       int units, int depth, int together) {
#if HAS_WGMMA
    __shared__ __align__(kTileAlign) char tile_x[kHigh * kTileRow], tile_w[kWide * kTileRow];
    const int64_t row = blockIdx.y * kHigh, unit = blockIdx.x * kWide;
    const uint64_t of_x = wgmma_descriptor(tile_x), of_w = wgmma_descriptor(tile_w);
    const int steps = depth / kTileRow;
    float totals[64] = {}, sums[64] = {};
    for (int step = 0; step < steps; ++step) {
        fill<kHigh>(tile_x, x + row * depth + step * kTileRow, depth);
        fill<kWide>(tile_w, w + unit * depth + step * kTileRow, depth);
        tma_writes_done();  // wgmma, too, reads shared memory otherwise than threads do
        __syncthreads();
        wgmma_fence();
#pragma unroll
        for (int k = 0; k < 4; ++k)  // 32 of k are 2 units of 16 bytes
            wgmma_float8(sums, of_x + k * 2, of_w + k * 2, k > 0 || step % together > 0);
        wgmma_commit();
        wgmma_wait<0>();
        __syncthreads();  // all have read the tiles
        if ((step + 1) % together == 0 || step + 1 == steps) {
            for (int i = 0; i < 64; ++i) totals[i] += sums[i];
        }
    }
    const int thread = threadIdx.x, down = thread / 32 * 16 + thread % 32 / 4;
    for (int i = 0; i < 64; ++i)
        y[(row + down + i / 2 % 2 * 8) * units + unit + i / 4 * 8 + thread % 4 * 2 + i % 2] =
            totals[i];
#endif
}

// ---- launchers

extern "C" cudaError_t quantize(const float* x, uint8_t* q, float* scales, int64_t groups,
                                int64_t each, cudaStream_t stream) {
    if (groups == 0) return cudaSuccess;
    quantize_groups<<<groups, kWarp, 0, stream>>>(x, q, scales, each);
    return cudaGetLastError();
}

extern "C" cudaError_t norm_quantize(const nv_bfloat16* x, const nv_bfloat16* weight, uint8_t* q,
                                     float* scales, int rows, int cols, float eps,
                                     cudaStream_t stream) {
    if (cols % 256 != 0 || cols > 8192) return cudaErrorInvalidValue;
    if (rows == 0) return cudaSuccess;
    norm_groups<<<rows, cols / 8, 0, stream>>>(x, weight, q, scales, cols, eps);
    return cudaGetLastError();
}

bool fits(int rows, int units, int depth) {
    return rows % kHigh == 0 && units % kWide == 0 && depth % kTileRow == 0;
}

extern "C" cudaError_t naive(const uint8_t* x, const uint8_t* w, float* y, int rows, int units,
                             int depth, cudaStream_t stream) {
    if (!fits(rows, units, depth)) return cudaErrorInvalidValue;
    product_naive<<<dim3(units / kWide, rows), kWide, 0, stream>>>(x, w, y, units, depth);
    return cudaGetLastError();
}

extern "C" cudaError_t mma_sync(const uint8_t* x, const uint8_t* w, float* y, int rows, int units,
                                int depth, cudaStream_t stream) {
    if (!fits(rows, units, depth)) return cudaErrorInvalidValue;
    cudaFuncAttributes compiled = {};
    if (cudaFuncGetAttributes(&compiled, product_mma) != cudaSuccess || compiled.ptxVersion < 89)
        return cudaErrorNotSupported;
    const dim3 grid(units / 8 / kWarps, rows / 16), block(kWarp, kWarps);
    product_mma<<<grid, block, 0, stream>>>(x, w, y, units, depth);
    return cudaGetLastError();
}

extern "C" cudaError_t wgmma_sums(const uint8_t* x, const uint8_t* w, float* y, int rows, int units,
                                  int depth, int together, cudaStream_t stream) {
    if (!fits(rows, units, depth) || together < 1) return cudaErrorInvalidValue;
    if (!has_wgmma(product_wgmma, kWarpgroup)) return cudaErrorNotSupported;
    const dim3 grid(units / kWide, rows / kHigh);
    product_wgmma<<<grid, kWarpgroup, 0, stream>>>(x, w, y, units, depth, together);
    return cudaGetLastError();
}
