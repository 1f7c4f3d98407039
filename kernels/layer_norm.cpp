// Binding of layer_norm: schema, checks, allocation, launch.
#include "binding.h"

template <class T>
cudaError_t layer_norm_forward(const T* x, const T* weight, const T* bias, T* y, Acc<T>* mean,
                               Acc<T>* rstd, int64_t rows, int64_t cols, double eps,
                               int64_t version, cudaStream_t stream);
template <class T>
int64_t layer_norm_partials(const T* g, const T* x, const T* weight, int64_t rows, int64_t cols,
                            int64_t version);
template <class T>
cudaError_t layer_norm_backward(const T* g, const T* x, const T* weight, const Acc<T>* mean,
                                const Acc<T>* rstd, T* dx, T* dweight, T* dbias,
                                Acc<T>* partial_dweight, Acc<T>* partial_dbias, int64_t rows,
                                int64_t cols, int64_t version, cudaStream_t stream);

// Besides y: the mean and 1 / deviation of each row, [...] for x [..., cols], for backward.
std::tuple<Tensor, Tensor, Tensor> forward(Tensor x, Tensor weight, Tensor bias, double eps,
                                           int64_t version) {
    check_first(x, "x");
    check_rank(x, "x");
    check_like(weight, "weight", x, "x");
    check_per_column(weight, "weight", x);
    check_like(bias, "bias", x, "x");
    check_per_column(bias, "bias", x);
    OnDeviceOf device(x);
    x = packed(x);
    weight = packed(weight);
    bias = packed(bias);
    Tensor y = new_like(x), mean = new_sums(x, but_last(x)), rstd = new_sums(x, but_last(x));
    const Rows shape(x);
    for_type_of(x, [&](auto zero) {
        using T = decltype(zero);
        check_launch(layer_norm_forward<T>(in<T>(x), in<T>(weight), in<T>(bias), out<T>(y),
                                           out<Acc<T>>(mean), out<Acc<T>>(rstd), shape.rows,
                                           shape.cols, eps, version, device.stream));
    });
    return {y, mean, rstd};
}

std::tuple<Tensor, Tensor, Tensor> backward(Tensor grad, Tensor x, Tensor weight, Tensor mean,
                                            Tensor rstd, int64_t version) {
    check_first(x, "x");
    check_rank(x, "x");
    check_like(grad, "grad", x, "x");
    check_same_shape(grad, "grad", x, "x");
    check_like(weight, "weight", x, "x");
    check_per_column(weight, "weight", x);
    check_sums(mean, "mean", x);
    check_sums(rstd, "rstd", x);
    OnDeviceOf device(x);
    grad = packed(grad);
    x = packed(x);
    weight = packed(weight);
    mean = packed(mean);
    rstd = packed(rstd);
    Tensor dx = new_like(x), dweight = new_like(weight), dbias = new_like(weight);
    const Rows shape(x);
    for_type_of(x, [&](auto zero) {
        using T = decltype(zero);
        const int64_t count = layer_norm_partials<T>(in<T>(grad), in<T>(x), in<T>(weight),
                                                     shape.rows, shape.cols, version);
        Tensor partial_dweight = new_sums(x, {count, shape.cols});
        Tensor partial_dbias = new_sums(x, {count, shape.cols});
        check_launch(layer_norm_backward<T>(
            in<T>(grad), in<T>(x), in<T>(weight), in<Acc<T>>(mean), in<Acc<T>>(rstd), out<T>(dx),
            out<T>(dweight), out<T>(dbias), out<Acc<T>>(partial_dweight),
            out<Acc<T>>(partial_dbias), shape.rows, shape.cols, version, device.stream));
    });
    return {dx, dweight, dbias};
}

STABLE_TORCH_LIBRARY(TORCH_EXTENSION_NAME, m) {
    m.def(
        "forward(Tensor x, Tensor weight, Tensor bias, float eps, int version)"
        " -> (Tensor, Tensor, Tensor)");
    m.def(
        "backward(Tensor grad, Tensor x, Tensor weight, Tensor mean, Tensor rstd, int version)"
        " -> (Tensor, Tensor, Tensor)");
}

STABLE_TORCH_LIBRARY_IMPL(TORCH_EXTENSION_NAME, CompositeExplicitAutograd, m) {
    m.impl("forward", TORCH_BOX(&forward));
    m.impl("backward", TORCH_BOX(&backward));
}
