// Binding of layer_norm: schema, checks, allocation, launch.
#include "binding.h"

constexpr int64_t kVersions = 5;  // as many as VERSIONS of layer_norm.py has

template <class T>
cudaError_t layer_norm_forward(const T* x, const T* weight, const T* bias, T* y, Acc<T>* mean,
                               Acc<T>* rstd, int64_t rows, int64_t cols, double eps,
                               int64_t version, cudaStream_t stream);
template <class T>
int64_t layer_norm_partials(const T* g, const T* x, const T* weight, int64_t rows, int64_t cols,
                            int64_t version);
template <class T>
cudaError_t layer_norm_backward(const T* g, const T* x, const T* weight, const Acc<T>* mean,
                                const Acc<T>* rstd, T* dx, Into<T> dweight, Into<T> dbias,
                                Acc<T>* partial_dweight, Acc<T>* partial_dbias, int64_t rows,
                                int64_t cols, int64_t version, cudaStream_t stream);

void check_inputs(const Tensor& x, const Tensor& weight) {
    check_first(x, "x");
    check_rank(x, "x");
    check_like(weight, "weight", x, "x");
    check_per_column(weight, "weight", x);
}

void check_inputs(const Tensor& x, const Tensor& weight, const Tensor& bias) {
    check_inputs(x, weight);
    check_like(bias, "bias", x, "x");
    check_per_column(bias, "bias", x);
}

// mean, rstd: null, or where the mean and 1 / deviation of each row go.
Tensor run_forward(Tensor x, Tensor weight, Tensor bias, const Tensor* mean, const Tensor* rstd,
                   double eps, int64_t version) {
    check_version(version, kVersions);
    OnDeviceOf device(x);
    x = packed(x);
    weight = packed(weight);
    bias = packed(bias);
    Tensor y = new_like(x);
    const Rows shape(x);
    for_type_of(x, [&](auto zero) {
        using T = decltype(zero);
        check_launch(layer_norm_forward<T>(
            in<T>(x), in<T>(weight), in<T>(bias), out<T>(y), out<Acc<T>>(mean), out<Acc<T>>(rstd),
            shape.rows, shape.cols, eps, version, device.stream));
    });
    return y;
}

// y alone, for where no gradient is wanted: to make and to hand out a tensor takes long beside a
// small call.
Tensor infer(Tensor x, Tensor weight, Tensor bias, double eps, int64_t version) {
    check_inputs(x, weight, bias);
    return run_forward(x, weight, bias, nullptr, nullptr, eps, version);
}

// Besides y: the mean and 1 / deviation of each row, [...] for x [..., cols], for backward.
// dweight, dbias: what backward will add to; here they are only checked.
std::tuple<Tensor, Tensor, Tensor> forward(Tensor x, Tensor weight, Tensor bias, double eps,
                                           int64_t version, std::optional<Tensor> dweight,
                                           std::optional<Tensor> dbias) {
    check_inputs(x, weight, bias);
    if (dweight) check_buffer(*dweight, "dweight", x);
    if (dbias) check_buffer(*dbias, "dbias", x);
    const Tensor mean = new_sums(x, but_last(x)), rstd = new_sums(x, but_last(x));
    return {run_forward(x, weight, bias, &mean, &rstd, eps, version), mean, rstd};
}

// Returns dx. adds: dweight and dbias are added to, not written.
Tensor run_backward(Tensor grad, Tensor x, Tensor weight, Tensor mean, Tensor rstd,
                    const Tensor& dweight, const Tensor& dbias, bool adds, int64_t version) {
    check_like(grad, "grad", x, "x");
    check_same_shape(grad, "grad", x, "x");
    check_sums(mean, "mean", x);
    check_sums(rstd, "rstd", x);
    check_version(version, kVersions);
    OnDeviceOf device(x);
    grad = packed(grad);
    x = packed(x);
    weight = packed(weight);
    mean = packed(mean);
    rstd = packed(rstd);
    Tensor dx = new_like(x);
    const Rows shape(x);
    for_type_of(x, [&](auto zero) {
        using T = decltype(zero);
        const int64_t count = layer_norm_partials<T>(
            in<T>(grad), in<T>(x), in<T>(weight), shape.rows, shape.cols, version);
        const Scratch partials(x, 2 * count * shape.cols);  // of dweight, and of dbias
        Acc<T>* const partial = partials.of<T>();
        check_launch(layer_norm_backward<T>(
            in<T>(grad), in<T>(x), in<T>(weight), in<Acc<T>>(mean), in<Acc<T>>(rstd), out<T>(dx),
            into<T>(dweight, adds), into<T>(dbias, adds), partial, partial + count * shape.cols,
            shape.rows, shape.cols, version, device.stream));
    });
    return dx;
}

std::tuple<Tensor, Tensor, Tensor> backward(Tensor grad, Tensor x, Tensor weight, Tensor mean,
                                            Tensor rstd, int64_t version) {
    check_inputs(x, weight);
    Tensor dweight = new_like(weight), dbias = new_like(weight);
    Tensor dx = run_backward(grad, x, weight, mean, rstd, dweight, dbias, false, version);
    return {dx, dweight, dbias};
}

Tensor backward_into(Tensor grad, Tensor x, Tensor weight, Tensor mean, Tensor rstd, Tensor dweight,
                     Tensor dbias, int64_t version) {
    check_inputs(x, weight);
    check_buffer(dweight, "dweight", x);
    check_buffer(dbias, "dbias", x);
    return run_backward(grad, x, weight, mean, rstd, dweight, dbias, true, version);
}

STABLE_TORCH_LIBRARY(TORCH_EXTENSION_NAME, m) {
    m.def("infer(Tensor x, Tensor weight, Tensor bias, float eps, int version) -> Tensor");
    m.def(
        "forward(Tensor x, Tensor weight, Tensor bias, float eps, int version,"
        " Tensor? dweight=None, Tensor? dbias=None) -> (Tensor y, Tensor mean, Tensor rstd)");
    m.def(
        "backward(Tensor grad, Tensor x, Tensor weight, Tensor mean, Tensor rstd, int version)"
        " -> (Tensor, Tensor, Tensor)");
    m.def(
        "backward_into(Tensor grad, Tensor x, Tensor weight, Tensor mean, Tensor rstd,"
        " Tensor(a!) dweight, Tensor(b!) dbias, int version) -> Tensor");
}

STABLE_TORCH_LIBRARY_IMPL(TORCH_EXTENSION_NAME, CompositeExplicitAutograd, m) {
    m.impl("infer", TORCH_BOX(&infer));
    m.impl("forward", TORCH_BOX(&forward));
    m.impl("backward", TORCH_BOX(&backward));
    m.impl("backward_into", TORCH_BOX(&backward_into));
}
