// Binding of matmul_w8a16: schema, checks, allocation, launch.
#include "matmul_w8a16.h"
#include "calls.h"
#include "quantize_binding.h"

template <class T>
cudaError_t matmul_w8a16(const Int8Product<T>& p, int64_t version, cudaStream_t stream);
template <class T>
bool multiplies_bytes(const Int8Product<T>& p);
template <class T>
cudaError_t matmul_w8a16_widened(const Int8Product<T>& p, T* wide, int64_t stride,
                                 cudaStream_t stream);
cudaError_t matmul_w8a16_align_rows(const RowsToAlign& of, cudaStream_t stream);

void check_inputs(const Tensor& x, const Tensor& w, const Tensor& w_scale,
                  const std::optional<Tensor>& bias) {
    check_here(x, "x");
    check_rank(x, "x");
    if (type_of(x) != ScalarType::Half && type_of(x) != ScalarType::BFloat16)
        fail("x is ", dtype_name(type_of(x)), "; wanted is float16 or bfloat16");
    check_device(w, "w", x, "x");
    if (type_of(w) != ScalarType::Char) fail("w is ", dtype_name(type_of(w)), "; wanted is int8");
    if (w.dim() != 2 || w.size(1) != x.size(-1)) {
        fail("w has shape ", shape_name(w), ", but x has shape ", shape_name(x),
             "; wanted is (units, ", x.size(-1), ")");
    }
    check_device(w_scale, "w_scale", x, "x");
    if (type_of(w_scale) != ScalarType::Float)
        fail("w_scale is ", dtype_name(type_of(w_scale)), "; wanted is float32");
    const Shape of_rows = {w.size(0), 1}, of_blocks = {w.size(0), scale_blocks(w.size(1))};
    if (!has_shape(w_scale, of_rows) && !has_shape(w_scale, of_blocks)) {
        fail("w_scale has shape ", shape_name(w_scale), ", but w has shape ", shape_name(w),
             "; wanted is ", shape_name(of_rows), " for one of each row, or ",
             shape_name(of_blocks), " for one of each 128 neighbours");
    }
    if (!bias) return;
    check_like(*bias, "bias", x, "x");
    if (!has_shape(*bias, {w.size(0)})) {
        fail("bias has shape ", shape_name(*bias), "; wanted is (", w.size(0),
             ",), an element for each row of w");
    }
}

template <class T>
Int8Product<T> product_of(const Tensor& x, const Tensor& w, const Tensor& w_scale,
                          const std::optional<Tensor>& bias) {
    const Rows of_x(x);
    const int64_t blocks = w_scale.size(1);
    return {{in<T>(x), 0, of_x.cols, 1},
            {in<int8_t>(w), 0, of_x.cols, 1},
            {in<float>(w_scale), blocks, 1, 0},
            blocks != 1,  // 0 where k is 0
            bias ? in<T>(*bias) : nullptr,
            nullptr,
            of_x.rows,
            w.size(0),
            of_x.cols};
}

// Calls f(T()) with the C++ type of x's elements.
template <class F>
void for_type_of_16_bits(const Tensor& x, F f) {
    if (type_of(x) == ScalarType::Half) return f(Half());
    f(BFloat16());
}

int64_t in_vectors(int64_t bytes) { return (bytes + 15) / 16 * 16; }

// Whether the kernels that multiply bytes read it as it is.
bool begins_on_vectors(const Tensor& x, const Tensor& w) {
    const auto begins = [](const Tensor& t) {
        return reinterpret_cast<uintptr_t>(t.data_ptr()) % 16 == 0;
    };
    return w.size(1) % 16 == 0 && begins(x) && begins(w);
}

// A copy [rows, cols] whose rows begin on multiples of 16 bytes, with zeros behind each up to
// `cols`.
Tensor aligned_rows(const Tensor& t, int64_t cols, cudaStream_t stream) {
    const int64_t rows = Rows(t).rows, size = t.element_size(), bytes = t.size(-1) * size;
    Tensor copy = new_of_shape(t, {rows, cols});
    check_launch(matmul_w8a16_align_rows(
        {in<uint8_t>(t), out<uint8_t>(copy), 1, rows, bytes, 0, bytes, cols * size}, stream));
    return copy;
}

Tensor forward(Tensor x, Tensor w, Tensor w_scale, std::optional<Tensor> bias, int64_t version) {
    check_inputs(x, w, w_scale, bias);
    check_version(version, Int8Version::kCount);
    OnDeviceOf device(x);
    x = packed(x);
    w = packed(w);
    w_scale = packed(w_scale);
    if (bias) bias = packed(*bias);
    Shape shape = shape_of(x);
    shape.back() = w.size(0);
    std::optional<Tensor> y, wide;
    Tensor aligned_x, aligned_w;
    const bool is_best = version >= Int8Version::kWgmma && x.numel() > 0 && w.numel() > 0;
    for_type_of_16_bits(x, [&](auto zero) {
        using T = decltype(zero);
        auto product = product_of<T>(x, w, w_scale, bias);
        if (is_best && !multiplies_bytes(product)) {
            const int64_t stride = in_vectors(product.depth);
            wide = new_of_shape(x, {product.units, stride});
            check_launch(matmul_w8a16_widened<T>(product, out<T>(*wide), stride, device.stream));
            wide = torch::stable::narrow(*wide, -1, 0, product.depth);
        } else {
            if (is_best && !begins_on_vectors(x, w)) {
                const int64_t cols = in_vectors(product.depth);
                aligned_x = aligned_rows(x, cols, device.stream);
                aligned_w = aligned_rows(w, cols, device.stream);
                product.x = {in<T>(aligned_x), 0, cols, 1};
                product.w = {in<int8_t>(aligned_w), 0, cols, 1};
                product.depth = cols;
            }
            y = new_of_shape(x, shape);
            product.y = out<T>(*y);
            check_launch(matmul_w8a16<T>(product, version, device.stream));
        }
    });
    return wide ? call<1>("matmul_w8a16::product", x, *wide, bias)[0] : *y;
}

STABLE_TORCH_LIBRARY(TORCH_EXTENSION_NAME, m) {
    m.def("forward(Tensor x, Tensor w, Tensor w_scale, Tensor? bias, int version) -> Tensor");
}

STABLE_TORCH_LIBRARY_IMPL(TORCH_EXTENSION_NAME, CompositeExplicitAutograd, m) {
    m.impl("forward", TORCH_BOX(&forward));
}
