// Binding of rms_norm: schema, checks, allocation, launch.
#include "quantize_binding.h"

constexpr int64_t kVersions = 5;  // as many as VERSIONS of rms_norm.py has

template <class T>
cudaError_t rms_norm_forward(const T* x, const T* residual, const T* weight, T* y, T* s,
                             Acc<T>* rstd, int64_t rows, int64_t cols, double eps, int64_t version,
                             cudaStream_t stream);
template <class T>
cudaError_t rms_norm_forward_fp8(const T* x, const T* residual, const T* weight, Float8* q,
                                 float* scales, T* s, int64_t rows, int64_t cols, double eps,
                                 int64_t scaling, cudaStream_t stream);
template <class T>
int64_t rms_norm_partials(const T* g, const T* gs, const T* s, const T* weight, int64_t rows,
                          int64_t cols, int64_t version);
template <class T>
cudaError_t rms_norm_backward(const T* g, const T* gs, const T* s, const T* weight,
                              const Acc<T>* rstd, T* dx, Into<T> dweight, Acc<T>* partial_dweight,
                              int64_t rows, int64_t cols, double eps, int64_t version,
                              cudaStream_t stream);

// residual and sum are null, or both are not; x + residual goes to sum. rstd: null, or where 1 /
// the root of the mean square of each row goes.
Tensor run_forward(Tensor x, const Tensor* residual, Tensor weight, const Tensor* sum,
                   const Tensor* rstd, double eps, int64_t version) {
    check_version(version, kVersions);
    OnDeviceOf device(x);
    x = packed(x);
    weight = packed(weight);
    const std::optional<Tensor> more =
        residual ? std::optional<Tensor>(packed(*residual)) : std::nullopt;
    Tensor y = new_like(x);
    const Rows shape(x);
    for_type_of(x, [&](auto zero) {
        using T = decltype(zero);
        check_launch(rms_norm_forward<T>(
            in<T>(x), more ? in<T>(*more) : nullptr, in<T>(weight), out<T>(y), out<T>(sum),
            out<Acc<T>>(rstd), shape.rows, shape.cols, eps, version, device.stream));
    });
    return y;
}

void check_inputs(const Tensor& x, const Tensor& weight) {
    check_first(x, "x");
    check_rank(x, "x");
    check_like(weight, "weight", x, "x");
    check_per_column(weight, "weight", x);
}

void check_inputs(const Tensor& x, const Tensor& weight, const Tensor& residual) {
    check_inputs(x, weight);
    check_like(residual, "residual", x, "x");
    check_same_shape(residual, "residual", x, "x");
}

// y alone, for where no gradient is wanted: to make and to hand out a tensor takes long beside a
// small call.
Tensor infer(Tensor x, Tensor weight, double eps, int64_t version) {
    check_inputs(x, weight);
    return run_forward(x, nullptr, weight, nullptr, nullptr, eps, version);
}

// Besides y: 1 / the root of the mean square of each row, [...] for x [..., cols], for backward.
// dweight: what backward will add to; here it is only checked.
std::tuple<Tensor, Tensor> forward(Tensor x, Tensor weight, double eps, int64_t version,
                                   std::optional<Tensor> dweight) {
    check_inputs(x, weight);
    if (dweight) check_buffer(*dweight, "dweight", x);
    const Tensor rstd = new_sums(x, but_last(x));
    return {run_forward(x, nullptr, weight, nullptr, &rstd, eps, version), rstd};
}

// rms_norm of x + residual. Returns y and the sum.
std::tuple<Tensor, Tensor> add_infer(Tensor x, Tensor weight, Tensor residual, double eps,
                                     int64_t version) {
    check_inputs(x, weight, residual);
    const Tensor sum = new_like(x);
    return {run_forward(x, &residual, weight, &sum, nullptr, eps, version), sum};
}

std::tuple<Tensor, Tensor, Tensor> add_forward(Tensor x, Tensor weight, Tensor residual, double eps,
                                               int64_t version, std::optional<Tensor> dweight) {
    check_inputs(x, weight, residual);
    if (dweight) check_buffer(*dweight, "dweight", x);
    const Tensor sum = new_like(x), rstd = new_sums(x, but_last(x));
    return {run_forward(x, &residual, weight, &sum, &rstd, eps, version), sum, rstd};
}

// y as floats of one byte, scales, and x + residual; of that no elements without a residual.
std::tuple<Tensor, Tensor, Tensor> forward_fp8(
    Tensor x, Tensor weight, std::optional<Tensor> residual, double eps, int64_t scaling) {
    check_inputs(x, weight);
    check_quantizable(x, "x");
    if (residual) check_inputs(x, weight, *residual);
    check_row_scaling(scaling);
    OnDeviceOf device(x);
    x = packed(x);
    weight = packed(weight);
    if (residual) residual = packed(*residual);
    const Tensor q = new_float8(x), scales = new_scales(x, scaling);
    const Tensor sum = residual ? new_like(x) : new_of_shape(x, {0});
    const Rows shape(x);
    for_quantizable_type_of(x, [&](auto zero) {
        using T = decltype(zero);
        check_launch(rms_norm_forward_fp8<T>(
            in<T>(x), residual ? in<T>(*residual) : nullptr, in<T>(weight), out<Float8>(q),
            out<float>(scales), residual ? out<T>(sum) : nullptr, shape.rows, shape.cols, eps,
            scaling, device.stream));
    });
    return {q, scales, sum};
}

// Returns dx. grad_sum: what arrives at x + residual, besides; then x is that sum. adds: dweight is
// added to, not written.
Tensor run_backward(Tensor grad, std::optional<Tensor> grad_sum, Tensor x, Tensor weight,
                    Tensor rstd, const Tensor& dweight, bool adds, double eps, int64_t version) {
    check_like(grad, "grad", x, "x");
    check_same_shape(grad, "grad", x, "x");
    if (grad_sum) {
        check_like(*grad_sum, "grad_sum", x, "x");
        check_same_shape(*grad_sum, "grad_sum", x, "x");
    }
    check_sums(rstd, "rstd", x);
    check_version(version, kVersions);
    OnDeviceOf device(x);
    grad = packed(grad);
    if (grad_sum) grad_sum = packed(*grad_sum);
    x = packed(x);
    weight = packed(weight);
    rstd = packed(rstd);
    Tensor dx = new_like(x);
    const Rows shape(x);
    for_type_of(x, [&](auto zero) {
        using T = decltype(zero);
        const T* gs = grad_sum ? in<T>(*grad_sum) : nullptr;
        const int64_t count = rms_norm_partials<T>(
            in<T>(grad), gs, in<T>(x), in<T>(weight), shape.rows, shape.cols, version);
        const Scratch partial_dweight(x, count * shape.cols);
        check_launch(rms_norm_backward<T>(
            in<T>(grad), gs, in<T>(x), in<T>(weight), in<Acc<T>>(rstd), out<T>(dx),
            into<T>(dweight, adds), partial_dweight.of<T>(), shape.rows, shape.cols, eps, version,
            device.stream));
    });
    return dx;
}

std::tuple<Tensor, Tensor> backward(Tensor grad, std::optional<Tensor> grad_sum, Tensor x,
                                    Tensor weight, Tensor rstd, double eps, int64_t version) {
    check_inputs(x, weight);
    Tensor dweight = new_like(weight);
    Tensor dx = run_backward(grad, grad_sum, x, weight, rstd, dweight, false, eps, version);
    return {dx, dweight};
}

Tensor backward_into(Tensor grad, std::optional<Tensor> grad_sum, Tensor x, Tensor weight,
                     Tensor rstd, Tensor dweight, double eps, int64_t version) {
    check_inputs(x, weight);
    check_buffer(dweight, "dweight", x);
    return run_backward(grad, grad_sum, x, weight, rstd, dweight, true, eps, version);
}

STABLE_TORCH_LIBRARY(TORCH_EXTENSION_NAME, m) {
    m.def("infer(Tensor x, Tensor weight, float eps, int version) -> Tensor");
    m.def(
        "forward(Tensor x, Tensor weight, float eps, int version, Tensor? dweight=None)"
        " -> (Tensor y, Tensor rstd)");
    m.def(
        "add_infer(Tensor x, Tensor weight, Tensor residual, float eps, int version)"
        " -> (Tensor, Tensor)");
    m.def(
        "add_forward(Tensor x, Tensor weight, Tensor residual, float eps, int version,"
        " Tensor? dweight=None) -> (Tensor y, Tensor sum, Tensor rstd)");
    m.def(
        "forward_fp8(Tensor x, Tensor weight, Tensor? residual, float eps, int scaling)"
        " -> (Tensor, Tensor, Tensor)");
    m.def(
        "backward(Tensor grad, Tensor? grad_sum, Tensor x, Tensor weight, Tensor rstd, float eps,"
        " int version) -> (Tensor, Tensor)");
    m.def(
        "backward_into(Tensor grad, Tensor? grad_sum, Tensor x, Tensor weight, Tensor rstd,"
        " Tensor(a!) dweight, float eps, int version) -> Tensor");
}

STABLE_TORCH_LIBRARY_IMPL(TORCH_EXTENSION_NAME, CompositeExplicitAutograd, m) {
    m.impl("infer", TORCH_BOX(&infer));
    m.impl("forward", TORCH_BOX(&forward));
    m.impl("add_infer", TORCH_BOX(&add_infer));
    m.impl("add_forward", TORCH_BOX(&add_forward));
    m.impl("forward_fp8", TORCH_BOX(&forward_fp8));
    m.impl("backward", TORCH_BOX(&backward));
    m.impl("backward_into", TORCH_BOX(&backward_into));
}
