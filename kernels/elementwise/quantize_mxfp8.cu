// quantize_mxfp8: q = x / scale in e4m3, with a scale in e8m0 for each 32 neighbours of a row
//
//   x [rows, cols] T     q [rows, cols] e4m3     scales e8m0, in the layout of block_scales.h
//
// A scale is largest / 448, rounded up to a power of two: the division by it is exact.
// quantize_block_scaled.cuh has the kernels.

#include "quantize_block_scaled.cuh"

template <class T>
cudaError_t quantize_mxfp8(const T* x, uint8_t* q, uint8_t* scales, int64_t rows, int64_t cols,
                           int64_t version, cudaStream_t stream) {
    const BlockScales of = {rows, cols / Mxfp8::kBlock};
    return launch_quantize(x, q, scales, of, Mxfp8(), version, stream);
}

#define INSTANTIATE(T) template decltype(quantize_mxfp8<T>) quantize_mxfp8<T>;
INSTANTIATE(float)
INSTANTIATE(Half)
INSTANTIATE(BFloat16)
