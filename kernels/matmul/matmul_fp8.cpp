// Binding of matmul_fp8: schema, checks, allocation, launch.
#include "matmul_fp8.h"
#include "quantize_binding.h"

constexpr int64_t kVersions = 3;  // as many as VERSIONS of matmul_fp8.py has

template <class T>
cudaError_t matmul_fp8(const Float8Product<T>& p, int64_t version, cudaStream_t stream);

// ---- checks

void check_float8(const Tensor& t, const char* name) {
    if (type_of(t) != ScalarType::Float8_e4m3fn)
        fail(name, " is ", dtype_name(type_of(t)),
             "; wanted is float8_e4m3fn: see kernels.quantize");
}

void check_w(const Tensor& x, const Tensor& w) {
    check_device(w, "w", x, "x");
    check_float8(w, "w");
    if (w.dim() != 2 || w.size(1) != x.size(-1)) {
        fail("w has shape ", shape_name(w), ", but x has shape ", shape_name(x),
             "; wanted is (units, ", x.size(-1), ")");
    }
}

void check_bias(const Tensor& bias, const Tensor& x, int64_t units, ScalarType dtype) {
    check_device(bias, "bias", x, "x");
    if (type_of(bias) != dtype) {
        fail("bias is ", dtype_name(type_of(bias)), "; wanted is ", dtype_name(dtype),
             ", the type of the result");
    }
    if (!has_shape(bias, {units})) {
        fail("bias has shape ", shape_name(bias), "; wanted is (", units,
             ",), an element for each row of w");
    }
}

// ---- scales: what their shapes say

// What shares a scale: everything; a row; a block. By the shape of scales alone a row may be a
// block too.
struct Sharing {
    bool all, row, block;
};

// The shapes of scales of t [..., cols]: for each row, and for each block of `high` rows.
Shape row_shape(const Tensor& t) {
    Shape shape = shape_of(t);
    shape.back() = 1;
    return shape;
}
Shape block_shape(const Tensor& t, int64_t high) {
    Shape shape = shape_of(t);
    shape.back() = scale_blocks(shape.back());
    if (high > 1) shape[0] = scale_blocks(shape[0]);
    return shape;
}

Sharing sharing(const Tensor& scale, const Tensor& t, int64_t high) {
    return {
        scale.dim() == 0, has_shape(scale, row_shape(t)), has_shape(scale, block_shape(t, high))};
}

void check_scale(const Tensor& scale, const char* name, const Tensor& t, const char* of,
                 const Tensor& x, int64_t high) {
    check_device(scale, name, x, "x");
    if (type_of(scale) != ScalarType::Float)
        fail(name, " is ", dtype_name(type_of(scale)), "; wanted is float32");
    const Sharing shared_by = sharing(scale, t, high);
    if (!shared_by.all && !shared_by.row && !shared_by.block) {
        fail(name, " has shape ", shape_name(scale), ", but ", of, " has shape ", shape_name(t),
             "; wanted is () for one scale, ", shape_name(row_shape(t)),
             " for one of each row, or ", shape_name(block_shape(t, high)), " for one of each ",
             high, " x 128");
    }
}

// Whether both have scales of blocks; if not, neither has.
bool is_by_block(const Tensor& x, const Tensor& w, const Tensor& x_scale, const Tensor& w_scale) {
    const Sharing of_x = sharing(x_scale, x, 1), of_w = sharing(w_scale, w, kScaleBlock);
    if ((of_x.all || of_x.row) && (of_w.all || of_w.row)) return false;
    if (of_x.block && of_w.block) return true;
    fail("x_scale has shape ", shape_name(x_scale), " and w_scale ", shape_name(w_scale),
         "; wanted are scales of blocks for both x and w, or for neither");
}

// Those of a matrix may lie in any way, as cuBLASLt wants neighbours of a column; others are copied
// if they are not packed.
Scales scales_of(Tensor& scale, bool by_block, int64_t high) {
    const bool of_matrix = scale.dim() == 2;
    if (!of_matrix) scale = packed(scale);
    const int64_t row = of_matrix ? scale.stride(0) : scale.dim() > 0 ? scale.size(-1) : 0;
    const int64_t block = of_matrix ? scale.stride(1) : 1;
    return {in<float>(scale), row, by_block ? block : 0, by_block && high > 1 ? 7 : 0};
}

// ---- forward

// t [..., cols] as a matrix. Only what has no neighbours in memory along rows is copied.
Operand<Float8> operand(Tensor& t) {
    const bool has_rows =
        t.dim() == 2 && (t.stride(1) == 1 || t.size(1) == 1) && t.stride(0) >= t.size(1);
    if (!has_rows) t = packed(t);
    return {in<Float8>(t), 0, has_rows && t.size(0) > 1 ? t.stride(0) : t.size(-1), 1};
}

Tensor forward(Tensor x, Tensor w, Tensor x_scale, Tensor w_scale, std::optional<Tensor> bias,
               ScalarType dtype, bool use_fast_accum, int64_t version) {
    check_here(x, "x");
    check_float8(x, "x");
    check_rank(x, "x");
    check_w(x, w);
    check_scale(x_scale, "x_scale", x, "x", x, 1);
    check_scale(w_scale, "w_scale", w, "w", x, kScaleBlock);
    const bool by_block = is_by_block(x, w, x_scale, w_scale);
    if (use_fast_accum && by_block) {
        fail(
            "use_fast_accum is True, but scales differ along k: sums that have scales of their own"
            " are added up in float32");
    }
    if (dtype != ScalarType::Half && dtype != ScalarType::BFloat16)
        fail("dtype is ", dtype_name(dtype), "; wanted is float16 or bfloat16");
    const int64_t units = w.size(0);
    if (bias) {
        check_bias(*bias, x, units, dtype);
        bias = packed(*bias);
    }
    check_version(version, kVersions);
    OnDeviceOf device(x);
    const Rows of_x(x);
    Shape shape = shape_of(x);
    shape.back() = units;
    Tensor y = new_tensor(x, {shape.data(), shape.size()}, dtype);
    const Operand<Float8> x_operand = operand(x), w_operand = operand(w);
    const Scales of_x_scale = scales_of(x_scale, by_block, 1);
    const Scales of_w_scale = scales_of(w_scale, by_block, kScaleBlock);
    const auto run = [&](auto zero) {
        using T = decltype(zero);
        const Float8Product<T> product = {
            x_operand,
            w_operand,
            of_x_scale,
            of_w_scale,
            by_block,
            use_fast_accum,
            bias ? in<T>(*bias) : nullptr,
            out<T>(y),
            of_x.rows,
            units,
            of_x.cols};
        check_launch(matmul_fp8<T>(product, version, device.stream));
    };
    if (dtype == ScalarType::Half) {
        run(Half());
    } else {
        run(BFloat16());
    }
    return y;
}

STABLE_TORCH_LIBRARY(TORCH_EXTENSION_NAME, m) {
    m.def(
        "forward(Tensor x, Tensor w, Tensor x_scale, Tensor w_scale, Tensor? bias,"
        " ScalarType dtype, bool use_fast_accum, int version) -> Tensor");
}

STABLE_TORCH_LIBRARY_IMPL(TORCH_EXTENSION_NAME, CompositeExplicitAutograd, m) {
    m.impl("forward", TORCH_BOX(&forward));
}
