// Binding of scale_bias_relu: schema, checks, allocation, launch.
#include "binding.h"

constexpr int64_t kVersions = 2;  // as many as VERSIONS of scale_bias_relu.py has

template <class T>
cudaError_t scale_bias_relu_forward(const T* x, const T* scale, double factor, const T* bias, T* y,
                                    int64_t rows, int64_t cols, int64_t version,
                                    cudaStream_t stream);
template <class T>
int64_t scale_bias_relu_partials(const T* g, const T* x, const T* scale, const T* bias,
                                 int64_t rows, int64_t cols, int64_t version);
template <class T>
cudaError_t scale_bias_relu_backward(const T* g, const T* x, const T* scale, double factor,
                                     const T* bias, T* dx, T* dscale, T* dbias,
                                     Acc<T>* partial_dscale, Acc<T>* partial_dbias, int64_t rows,
                                     int64_t cols, int64_t version, cudaStream_t stream);

void check_inputs(const Tensor& x, const std::optional<Tensor>& scale, const Tensor& bias) {
    check_first(x, "x");
    check_rank(x, "x");
    if (scale) {
        check_like(*scale, "scale", x, "x");
        check_per_column(*scale, "scale", x);
    }
    check_like(bias, "bias", x, "x");
    check_per_column(bias, "bias", x);
}

// Either scale or, where there is none, factor for every column.
Tensor forward(Tensor x, std::optional<Tensor> scale, double factor, Tensor bias, int64_t version) {
    check_inputs(x, scale, bias);
    check_version(version, kVersions);
    OnDeviceOf device(x);
    x = packed(x);
    if (scale) scale = packed(*scale);
    bias = packed(bias);
    Tensor y = new_like(x);
    const Rows shape(x);
    for_type_of(x, [&](auto zero) {
        using T = decltype(zero);
        check_launch(scale_bias_relu_forward<T>(
            in<T>(x), scale ? in<T>(*scale) : nullptr, factor, in<T>(bias), out<T>(y), shape.rows,
            shape.cols, version, device.stream));
    });
    return y;
}

std::tuple<Tensor, Tensor, Tensor> backward(Tensor grad, Tensor x, std::optional<Tensor> scale,
                                            double factor, Tensor bias, int64_t version) {
    check_inputs(x, scale, bias);
    check_like(grad, "grad", x, "x");
    check_same_shape(grad, "grad", x, "x");
    check_version(version, kVersions);
    OnDeviceOf device(x);
    grad = packed(grad);
    x = packed(x);
    if (scale) scale = packed(*scale);
    bias = packed(bias);
    Tensor dx = new_like(x), dscale = new_like(bias), dbias = new_like(bias);
    const Rows shape(x);
    for_type_of(x, [&](auto zero) {
        using T = decltype(zero);
        const T* s = scale ? in<T>(*scale) : nullptr;
        const int64_t count = scale_bias_relu_partials<T>(
            in<T>(grad), in<T>(x), s, in<T>(bias), shape.rows, shape.cols, version);
        const Scratch partials(x, 2 * count * shape.cols);  // of dscale, and of dbias
        Acc<T>* const partial = partials.of<T>();
        check_launch(scale_bias_relu_backward<T>(
            in<T>(grad), in<T>(x), s, factor, in<T>(bias), out<T>(dx), out<T>(dscale),
            out<T>(dbias), partial, partial + count * shape.cols, shape.rows, shape.cols, version,
            device.stream));
    });
    return {dx, dscale, dbias};
}

STABLE_TORCH_LIBRARY(TORCH_EXTENSION_NAME, m) {
    m.def("forward(Tensor x, Tensor? scale, float factor, Tensor bias, int version) -> Tensor");
    m.def(
        "backward(Tensor grad, Tensor x, Tensor? scale, float factor, Tensor bias, int version)"
        " -> (Tensor, Tensor, Tensor)");
}

STABLE_TORCH_LIBRARY_IMPL(TORCH_EXTENSION_NAME, CompositeExplicitAutograd, m) {
    m.impl("forward", TORCH_BOX(&forward));
    m.impl("backward", TORCH_BOX(&backward));
}
