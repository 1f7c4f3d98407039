// Binding of matmul_block_scaled: schema, checks, allocation, launch.
#include "matmul_block_scaled.h"

#include "block_scales_binding.h"

constexpr int64_t kVersions = 2;  // as many as VERSIONS of matmul_block_scaled.py has

cudaError_t dequantize(const ScaledOperand& of, BFloat16* y, int64_t version, cudaStream_t stream);

// ---- checks

const BlockFormat& format_of(const Tensor& x) {
    for (const BlockFormat* format : {&kMxfp8, &kNvfp4})
        if (type_of(x) == format->elements) return *format;
    fail("x is ", dtype_name(type_of(x)),
         "; wanted is float8_e4m3fn or float4_e2m1fn_x2: see kernels.quantize_mxfp8 and "
         "quantize_nvfp4");
}

// t [..., bytes] as a matrix of `cols` columns.
Rows rows_of(const Tensor& t, const BlockFormat& format) {
    return Rows(Rows(t).rows, t.size(-1) * format.per_byte);
}

void check_operand(const Tensor& t, const char* name, const Tensor& scales, const char* scales_name,
                   const BlockFormat& format, const Tensor& x) {
    const Rows of = rows_of(t, format);
    check_whole_blocks(name, of.cols, format);
    check_device(scales, scales_name, x, "x");
    if (type_of(scales) != format.scales) {
        fail(scales_name, " is ", dtype_name(type_of(scales)), "; wanted is ",
             dtype_name(format.scales), ", as ", format.name, " has it");
    }
    const int64_t bytes = block_scales(of.rows, of.cols, format).bytes();
    if (scales.numel() != bytes) {
        fail(scales_name, " has shape ", shape_name(scales), ", but ", name, " has shape ",
             shape_name(t), "; wanted is (", bytes, ",): tiles of 512 for 128 rows and 4 blocks");
    }
}

// ---- forward

// Its elements may lie in rows apart: what has other strides is copied, which PyTorch does not do
// for numbers of four bits.
ScaledOperand operand(Tensor& t, const char* name, Tensor& scales, const BlockFormat& format) {
    const Rows of = rows_of(t, format);
    const bool has_rows =
        t.dim() == 2 && (t.stride(1) == 1 || t.size(1) == 1) && t.stride(0) >= t.size(1);
    if (!has_rows && !t.is_contiguous() && format.per_byte > 1)
        fail(name, " has no rows of neighbouring bytes; wanted is a contiguous tensor");
    if (!has_rows) t = packed(t);
    scales = packed(scales);
    return {in<uint8_t>(t),
            has_rows && t.size(0) > 1 ? t.stride(0) : t.size(-1),
            in<uint8_t>(scales),
            nullptr,
            nullptr,
            of.rows,
            of.cols,
            format.per_byte > 1};
}

Tensor new_bfloat16(const Tensor& t, const BlockFormat& format) {
    Shape shape = shape_of(t);
    shape.back() *= format.per_byte;
    return new_tensor(t, {shape.data(), shape.size()}, ScalarType::BFloat16);
}

// x, multiplied by the scales of both tensors, and w.
std::tuple<Tensor, Tensor> forward(Tensor x, Tensor w, Tensor x_scales, Tensor w_scales,
                                   std::optional<Tensor> x_scale, std::optional<Tensor> w_scale,
                                   int64_t version) {
    check_here(x, "x");
    const BlockFormat& format = format_of(x);
    check_rank(x, "x");
    check_like(w, "w", x, "x");
    if (w.dim() != 2 || w.size(1) != x.size(-1)) {
        fail("w has shape ", shape_name(w), ", but x has shape ", shape_name(x),
             "; wanted is (units, ", x.size(-1), ")");
    }
    check_operand(x, "x", x_scales, "x_scales", format, x);
    check_operand(w, "w", w_scales, "w_scales", format, x);
    if (x_scale) check_tensor_scale(*x_scale, "x_scale", x);
    if (w_scale) check_tensor_scale(*w_scale, "w_scale", x);
    check_version(version, kVersions);
    OnDeviceOf device(x);
    const Tensor x_numbers = new_bfloat16(x, format), w_numbers = new_bfloat16(w, format);
    ScaledOperand of_x = operand(x, "x", x_scales, format);
    of_x.x_scale = x_scale ? in<float>(*x_scale) : nullptr;
    of_x.w_scale = w_scale ? in<float>(*w_scale) : nullptr;
    check_launch(dequantize(of_x, out<BFloat16>(x_numbers), version, device.stream));
    const ScaledOperand of_w = operand(w, "w", w_scales, format);
    check_launch(dequantize(of_w, out<BFloat16>(w_numbers), version, device.stream));
    return {x_numbers, w_numbers};
}

STABLE_TORCH_LIBRARY(TORCH_EXTENSION_NAME, m) {
    m.def(
        "forward(Tensor x, Tensor w, Tensor x_scales, Tensor w_scales, Tensor? x_scale,"
        " Tensor? w_scale, int version) -> (Tensor, Tensor)");
}

STABLE_TORCH_LIBRARY_IMPL(TORCH_EXTENSION_NAME, CompositeExplicitAutograd, m) {
    m.impl("forward", TORCH_BOX(&forward));
}
