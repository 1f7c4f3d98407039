// matmul_block_scaled: MXFP8 and NVFP4 operands as bfloat16, which matmul then multiplies
//
//   q [rows, cols / kPerByte] bytes     scales: block_scales.h     y [rows, cols] bfloat16
//
// Without scales of whole tensors y is exact: a product of q and a scale of a block has at most 6
// digits, bfloat16 has 8, and as many bits of exponent as a float.
//
// Traffic, the least a kernel can move: in bytes for each element 1 / kPerByte + 1 / kBlock + 2.

#include "matmul_block_scaled.h"

#include "block_scales.cuh"
#include "launches.cuh"

enum Version : int64_t { kNaive, kVector };  // as in matmul_block_scaled.py

__device__ float tensor_scale(const ScaledOperand& of) {
    return (of.x_scale ? *of.x_scale : 1) * (of.w_scale ? *of.w_scale : 1);
}

// ---- naive: one thread for each element. Flaw: each reads single bytes, and writes two.

template <class Format>
__global__ void dequantize_naive(ScaledOperand of, BFloat16* y) {
    const int64_t i = int64_t(blockIdx.x) * blockDim.x + threadIdx.x;
    if (i >= of.rows * of.cols) return;
    const int64_t row = i / of.cols, col = i % of.cols;
    const BlockScales scales = {of.rows, of.cols / Format::kBlock};
    const float scale = Format::scale(of.scales[scales.offset(row, col / Format::kBlock)]);
    const uint8_t* const bytes = of.q + row * of.row_bytes;
    y[i] = BFloat16(Format::decode(bytes, int(col)) * (scale * tensor_scale(of)));
}

// ---- vector: 8 neighbours for each thread, which are 4 or 8 bytes of q and 16 of y.

constexpr int kDequantizeThreads = 256;

template <class Format>
__global__ void __launch_bounds__(kDequantizeThreads) dequantize_vector(ScaledOperand of,
                                                                        BFloat16* y) {
    constexpr int V = kVec<BFloat16>, kBytes = V / Format::kPerByte;
    const int64_t i = (int64_t(blockIdx.x) * blockDim.x + threadIdx.x) * V;
    if (i >= of.rows * of.cols) return;
    const int64_t row = i / of.cols, col = i % of.cols;
    const BlockScales scales = {of.rows, of.cols / Format::kBlock};
    const Vec<uint8_t, kBytes> bytes =
        load<kBytes>(of.q + row * of.row_bytes + col / Format::kPerByte);
    const float scale =
        Format::scale(of.scales[scales.offset(row, col / Format::kBlock)]) * tensor_scale(of);
    float numbers[V];
#pragma unroll
    for (int k = 0; k < V; ++k) numbers[k] = Format::decode(bytes.at, k) * scale;
    store(y + i, rounded<BFloat16>(numbers));
}

// ---- launcher

template <class Format>
void launch(const ScaledOperand& of, BFloat16* y, int64_t version, cudaStream_t stream) {
    const int64_t count = of.rows * of.cols;
    const bool in_vectors = is_aligned(of.q, y) && of.row_bytes % kVec<BFloat16> == 0;
    if (version == kNaive || !in_vectors) {
        dequantize_naive<Format>
            <<<ceil_div<int64_t>(count, kDequantizeThreads), kDequantizeThreads, 0, stream>>>(
                of, y);
    } else {
        const int64_t vectors = count / kVec<BFloat16>;
        dequantize_vector<Format>
            <<<ceil_div<int64_t>(vectors, kDequantizeThreads), kDequantizeThreads, 0, stream>>>(
                of, y);
    }
}

cudaError_t dequantize(const ScaledOperand& of, BFloat16* y, int64_t version, cudaStream_t stream) {
    if (of.rows * of.cols == 0) return cudaSuccess;
    if (of.is_nvfp4) {
        launch<Nvfp4>(of, y, version, stream);
    } else {
        launch<Mxfp8>(of, y, version, stream);
    }
    return cudaGetLastError();
}
