// Binding of dropout_layer_norm: schema, checks, allocation, launch.
#include "binding.h"

constexpr int64_t kVersions = 5;  // as many as VERSIONS of dropout_layer_norm.py has

template <class T>
cudaError_t dropout_layer_norm_forward(
    const T* x, const T* residual, const T* weight, const T* bias, T* y, T* s, Acc<T>* mean,
    Acc<T>* rstd, int64_t rows, int64_t cols, const int64_t* seed, int64_t offset, double p,
    double eps, int64_t version, cudaStream_t stream);
template <class T>
int64_t dropout_layer_norm_partials(const T* g, const T* gs, const T* s, const T* weight,
                                    int64_t rows, int64_t cols, int64_t version);
template <class T>
cudaError_t dropout_layer_norm_backward(
    const T* g, const T* gs, const T* s, const T* weight, const Acc<T>* mean, const Acc<T>* rstd,
    T* dresidual, T* dx, Into<T> dweight, Into<T> dbias, Acc<T>* partial_dweight,
    Acc<T>* partial_dbias, int64_t rows, int64_t cols, const int64_t* seed, int64_t offset,
    double p, int64_t version, cudaStream_t stream);

void check_inputs(const Tensor& x, const char* name, const Tensor& weight) {
    check_first(x, name);
    check_rank(x, name);
    check_like(weight, "weight", x, name);
    check_per_column(weight, "weight", x);
}

void check_probability(double p) {
    if (!(p >= 0 && p <= 1)) {
        fail("p is ", std::to_string(p), "; wanted is a probability from 0 to 1");
    }
}

void check_seed(const Tensor& seed, const Tensor& x) {
    check_given(seed, "seed");
    if (seed.device() != x.device() || type_of(seed) != ScalarType::Long || seed.numel() != 1) {
        fail("seed is ", dtype_name(type_of(seed)), " of shape ", shape_name(seed), " on ",
             device_name(seed), "; wanted is an int, or one int64 on ", device_name(x));
    }
}

void check_inputs(const Tensor& x, const Tensor& residual, const Tensor& weight, const Tensor& bias,
                  const Tensor& seed, double p) {
    check_first(x, "x");
    check_rank(x, "x");
    check_like(residual, "residual", x, "x");
    check_same_shape(residual, "residual", x, "x");
    check_inputs(x, "x", weight);
    check_like(bias, "bias", x, "x");
    check_per_column(bias, "bias", x);
    check_seed(seed, x);
    check_probability(p);
}

// Returns y and s = residual + dropout(x). mean, rstd: null, or where the mean and 1 / deviation of
// each row of s go.
std::tuple<Tensor, Tensor> run_forward(Tensor x, Tensor residual, Tensor weight, Tensor bias,
                                       const Tensor& seed, const Tensor* mean, const Tensor* rstd,
                                       int64_t offset, double p, double eps, int64_t version) {
    check_version(version, kVersions);
    OnDeviceOf device(x);
    x = packed(x);
    residual = packed(residual);
    weight = packed(weight);
    bias = packed(bias);
    Tensor y = new_like(x), s = new_like(x);
    const Rows shape(x);
    for_type_of(x, [&](auto zero) {
        using T = decltype(zero);
        check_launch(dropout_layer_norm_forward<T>(
            in<T>(x), in<T>(residual), in<T>(weight), in<T>(bias), out<T>(y), out<T>(s),
            out<Acc<T>>(mean), out<Acc<T>>(rstd), shape.rows, shape.cols, in<int64_t>(seed), offset,
            p, eps, version, device.stream));
    });
    return {y, s};
}

// For where no gradient is wanted: to make and to hand out a tensor takes long beside a small call.
std::tuple<Tensor, Tensor> infer(Tensor x, Tensor residual, Tensor weight, Tensor bias, Tensor seed,
                                 int64_t offset, double p, double eps, int64_t version) {
    check_inputs(x, residual, weight, bias, seed, p);
    return run_forward(x, residual, weight, bias, seed, nullptr, nullptr, offset, p, eps, version);
}

// Besides y and s: the mean and 1 / deviation of each row of s, [...] for x [..., cols].
// dweight, dbias: what backward will add to; here they are only checked.
std::tuple<Tensor, Tensor, Tensor, Tensor> forward(
    Tensor x, Tensor residual, Tensor weight, Tensor bias, Tensor seed, int64_t offset, double p,
    double eps, int64_t version, std::optional<Tensor> dweight, std::optional<Tensor> dbias) {
    check_inputs(x, residual, weight, bias, seed, p);
    if (dweight) check_buffer(*dweight, "dweight", x);
    if (dbias) check_buffer(*dbias, "dbias", x);
    const Tensor mean = new_sums(x, but_last(x)), rstd = new_sums(x, but_last(x));
    const auto [y, s] =
        run_forward(x, residual, weight, bias, seed, &mean, &rstd, offset, p, eps, version);
    return {y, s, mean, rstd};
}

// Returns the gradients of x and residual. grad_sum: what arrives at s. adds: dweight and dbias are
// added to, not written.
std::tuple<Tensor, Tensor> run_backward(Tensor grad, std::optional<Tensor> grad_sum, Tensor s,
                                        Tensor weight, Tensor mean, Tensor rstd, const Tensor& seed,
                                        const Tensor& dweight, const Tensor& dbias, bool adds,
                                        int64_t offset, double p, int64_t version) {
    check_like(grad, "grad", s, "s");
    check_same_shape(grad, "grad", s, "s");
    if (grad_sum) {
        check_like(*grad_sum, "grad_sum", s, "s");
        check_same_shape(*grad_sum, "grad_sum", s, "s");
    }
    check_sums(mean, "mean", s);
    check_sums(rstd, "rstd", s);
    check_seed(seed, s);
    check_probability(p);
    check_version(version, kVersions);
    OnDeviceOf device(s);
    grad = packed(grad);
    if (grad_sum) grad_sum = packed(*grad_sum);
    s = packed(s);
    weight = packed(weight);
    mean = packed(mean);
    rstd = packed(rstd);
    Tensor dx = new_like(s), dresidual = new_like(s);
    const Rows shape(s);
    for_type_of(s, [&](auto zero) {
        using T = decltype(zero);
        const T* gs = grad_sum ? in<T>(*grad_sum) : nullptr;
        const int64_t count = dropout_layer_norm_partials<T>(
            in<T>(grad), gs, in<T>(s), in<T>(weight), shape.rows, shape.cols, version);
        const Scratch partials(s, 2 * count * shape.cols);  // of dweight, and of dbias
        Acc<T>* const partial = partials.of<T>();
        check_launch(dropout_layer_norm_backward<T>(
            in<T>(grad), gs, in<T>(s), in<T>(weight), in<Acc<T>>(mean), in<Acc<T>>(rstd),
            out<T>(dresidual), out<T>(dx), into<T>(dweight, adds), into<T>(dbias, adds), partial,
            partial + count * shape.cols, shape.rows, shape.cols, in<int64_t>(seed), offset, p,
            version, device.stream));
    });
    return {dx, dresidual};
}

std::tuple<Tensor, Tensor, Tensor, Tensor> backward(
    Tensor grad, std::optional<Tensor> grad_sum, Tensor s, Tensor weight, Tensor mean, Tensor rstd,
    Tensor seed, int64_t offset, double p, int64_t version) {
    check_inputs(s, "s", weight);
    Tensor dweight = new_like(weight), dbias = new_like(weight);
    const auto [dx, dresidual] = run_backward(
        grad, grad_sum, s, weight, mean, rstd, seed, dweight, dbias, false, offset, p, version);
    return {dx, dresidual, dweight, dbias};
}

std::tuple<Tensor, Tensor> backward_into(
    Tensor grad, std::optional<Tensor> grad_sum, Tensor s, Tensor weight, Tensor mean, Tensor rstd,
    Tensor seed, Tensor dweight, Tensor dbias, int64_t offset, double p, int64_t version) {
    check_inputs(s, "s", weight);
    check_buffer(dweight, "dweight", s);
    check_buffer(dbias, "dbias", s);
    return run_backward(
        grad, grad_sum, s, weight, mean, rstd, seed, dweight, dbias, true, offset, p, version);
}

STABLE_TORCH_LIBRARY(TORCH_EXTENSION_NAME, m) {
    m.def(
        "infer(Tensor x, Tensor residual, Tensor weight, Tensor bias, Tensor seed, int offset,"
        " float p, float eps, int version) -> (Tensor, Tensor)");
    m.def(
        "forward(Tensor x, Tensor residual, Tensor weight, Tensor bias, Tensor seed, int offset,"
        " float p, float eps, int version, Tensor? dweight=None, Tensor? dbias=None)"
        " -> (Tensor y, Tensor s, Tensor mean, Tensor rstd)");
    m.def(
        "backward(Tensor grad, Tensor? grad_sum, Tensor s, Tensor weight, Tensor mean, Tensor rstd,"
        " Tensor seed, int offset, float p, int version) -> (Tensor, Tensor, Tensor, Tensor)");
    m.def(
        "backward_into(Tensor grad, Tensor? grad_sum, Tensor s, Tensor weight, Tensor mean,"
        " Tensor rstd, Tensor seed, Tensor(a!) dweight, Tensor(b!) dbias, int offset, float p,"
        " int version) -> (Tensor, Tensor)");
}

STABLE_TORCH_LIBRARY_IMPL(TORCH_EXTENSION_NAME, CompositeExplicitAutograd, m) {
    m.impl("infer", TORCH_BOX(&infer));
    m.impl("forward", TORCH_BOX(&forward));
    m.impl("backward", TORCH_BOX(&backward));
    m.impl("backward_into", TORCH_BOX(&backward_into));
}
