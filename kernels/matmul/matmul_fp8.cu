// matmul_fp8: y = (x * x_scale) (w * w_scale)^T + bias, of floats of one byte
//
//   x [rows, depth] e4m3     w [units, depth] e4m3     bias [units] T, or none     y [rows, units]
//   T x_scale float: one, [rows, 1] or [rows, blocks]    where blocks = ceil(depth / 128) w_scale
//   float: one, [units, 1] or [ceil(units / 128), blocks]
//
// Work: 2 * rows * units * depth operations, of which tensor cores do twice as many as of 16 bits,
// with half the bytes of x and w to read. Traffic, the least a kernel can move: x, w and scales
// once, y once.
//
// A product of two e4m3 is exact in float. Where scales are of blocks, the sums over each 128 of k
// have a scale of their own.

#include "matmul_fp8_few_rows.cuh"
#include "matmul_fp8_mma.cuh"
#include "matmul_fp8_ping_pong.cuh"

enum Version : int64_t { kNaive, kMma, kWgmma };  // as in matmul_fp8.py

// ---- naive: one thread for each element of y, which reads a row of x and a row of w.
// Flaw: one operation for each byte read.

template <class T>
__global__ void matmul_fp8_naive(Float8Product<T> p) {
    const int64_t i = int64_t(blockIdx.x) * blockDim.x + threadIdx.x;
    if (i >= p.rows * p.units) return;
    const int64_t row = i / p.units, unit = i % p.units;
    const Float8 *const x = at(p.x, 0, row, 0), *const w = at(p.w, 0, unit, 0);
    KahanSum<float> total;
    for (int64_t first = 0; first < p.depth; first += kScaleBlock) {
        float sum = 0;
        for (int64_t k = first; k < smaller(first + kScaleBlock, p.depth); ++k)
            sum += to_float(x[k]) * to_float(w[k]);
        total += sum * block_scale(p, row, unit, first / kScaleBlock);
    }
    epilogue_element(p, row, unit, total.value);
}

// ---- launcher

template <class T>
cudaError_t matmul_fp8(const Float8Product<T>& p, int64_t version, cudaStream_t stream) {
    if (p.rows * p.units == 0) return cudaSuccess;
    const bool done = (version >= kWgmma && launch_fp8_few_rows(p, stream)) ||
                      (version >= kWgmma && launch_fp8_wgmma(p, stream)) ||
                      (version >= kMma && launch_fp8_mma(p, stream));
    if (!done) matmul_fp8_naive<<<ceil_div<int64_t>(p.rows * p.units, 256), 256, 0, stream>>>(p);
    return cudaGetLastError();
}

#define INSTANTIATE(T) template decltype(matmul_fp8<T>) matmul_fp8<T>;
INSTANTIATE(Half)
INSTANTIATE(BFloat16)
