// quantize_nvfp4: q = x / (scale * tensor_scale) in e2m1, with a scale in e4m3 for each 16
// neighbours of a row
//
//   x [rows, cols] T     q [rows, cols / 2] bytes, two e2m1 each, the first in the lower half
//   tensor_scale [] float     scales e4m3, in the layout of block_scales.h
//
// A scale is largest / 6 / tensor_scale, rounded to nearest. quantize_block_scaled.cuh has the
// kernels.

#include "quantize_block_scaled.cuh"

template <class T>
cudaError_t quantize_nvfp4(const T* x, const float* tensor_scale, uint8_t* q, uint8_t* scales,
                           int64_t rows, int64_t cols, int64_t version, cudaStream_t stream) {
    const BlockScales of = {rows, cols / Nvfp4::kBlock};
    return launch_quantize(x, q, scales, of, Nvfp4{tensor_scale}, version, stream);
}

#define INSTANTIATE(T) template decltype(quantize_nvfp4<T>) quantize_nvfp4<T>;
INSTANTIATE(float)
INSTANTIATE(Half)
INSTANTIATE(BFloat16)
