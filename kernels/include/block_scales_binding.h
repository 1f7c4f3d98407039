// What the bindings of MXFP8 and NVFP4 share.
#pragma once

#include "block_scales.h"
#include "quantize_binding.h"

// A format, as PyTorch knows it.
struct BlockFormat {
    const char* name;
    ScalarType elements, scales;
    int64_t block, per_byte;
};
constexpr BlockFormat kMxfp8 = {
    "MXFP8", ScalarType::Float8_e4m3fn, ScalarType::Float8_e8m0fnu, 32, 1};
constexpr BlockFormat kNvfp4 = {
    "NVFP4", ScalarType::Float4_e2m1fn_x2, ScalarType::Float8_e4m3fn, 16, 2};

inline void check_whole_blocks(const char* name, int64_t cols, const BlockFormat& format) {
    if (cols % format.block != 0) {
        fail(name, " has ", cols, " columns; wanted is a multiple of ", format.block, ", for ",
             format.name, " has a scale for each ", format.block);
    }
}

// x [..., cols] of numbers that are to be quantized.
inline void check_block_scalable(const Tensor& x, const BlockFormat& format) {
    check_quantizable(x, "x");
    check_rank(x, "x");
    check_whole_blocks("x", x.size(-1), format);
}

// The scale of a whole tensor.
inline void check_tensor_scale(const Tensor& scale, const char* name, const Tensor& x) {
    check_device(scale, name, x, "x");
    if (type_of(scale) != ScalarType::Float)
        fail(name, " is ", dtype_name(type_of(scale)), "; wanted is float32");
    if (scale.numel() != 1)
        fail(name, " has shape ", shape_name(scale), "; wanted is (), one number for the tensor");
}

// The scales of a matrix with cols columns.
inline BlockScales block_scales(int64_t rows, int64_t cols, const BlockFormat& format) {
    return {rows, cols / format.block};
}

// Uninitialised, for x [..., cols].
inline Tensor new_elements(const Tensor& x, const BlockFormat& format) {
    Shape shape = shape_of(x);
    shape.back() /= format.per_byte;
    return new_tensor(x, {shape.data(), shape.size()}, format.elements);
}
inline Tensor new_block_scales(const Tensor& x, const BlockFormat& format) {
    const Rows of(x);
    const int64_t bytes = block_scales(of.rows, of.cols, format).bytes();
    return new_tensor(x, {&bytes, 1}, format.scales);
}
