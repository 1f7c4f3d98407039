// Binding of cross_entropy: schema, checks, allocation, launch.
#include "cross_entropy_checks.h"

constexpr int64_t kVersions = 4;  // as many as VERSIONS of cross_entropy.py has

template <class T>
int64_t cross_entropy_partials(const T* x, int64_t rows, int64_t cols, int64_t version);
template <class T>
cudaError_t cross_entropy_forward(
    const T* x, const int64_t* target, LossInto<T> loss, Acc<T>* partial, Acc<T>* max, Acc<T>* sum,
    Acc<T>* weight, int64_t rows, int64_t cols, int64_t reduction, int64_t ignore_index,
    double smoothing, int64_t version, cudaStream_t stream);
template <class T>
cudaError_t cross_entropy_backward(
    Arriving<T> g, const T* x, const int64_t* target, const Acc<T>* max, const Acc<T>* sum,
    const Acc<T>* weight, T* dx, int64_t rows, int64_t cols, int64_t reduction,
    int64_t ignore_index, double smoothing, int64_t version, cudaStream_t stream);

// Returns the loss: [...] for x [..., cols], or [] for a mean or a sum. max, sum, weight: null, or
// where goes what backward needs.
Tensor run_forward(Tensor x, Tensor target, const Tensor* max, const Tensor* sum,
                   const Tensor* weight, int64_t reduction, int64_t ignore_index,
                   double label_smoothing, bool check, bool float_loss, int64_t version) {
    check_version(version, kVersions);
    OnDeviceOf device(x);
    x = packed(x);
    target = packed(target);
    const Rows shape(x);
    Check targets(target, shape.cols, ignore_index, check, device.stream);
    const Tensor loss = new_loss(x, target, reduction, float_loss);
    for_type_of(x, [&](auto zero) {
        using T = decltype(zero);
        const int64_t count =
            reduction == kUnreduced
                ? 0
                : cross_entropy_partials<T>(in<T>(x), shape.rows, shape.cols, version);
        const Scratch partial(x, 2 * count);
        check_launch(cross_entropy_forward<T>(
            in<T>(x), in<int64_t>(target), loss_into<T>(loss, x), partial.of<T>(), out<Acc<T>>(max),
            out<Acc<T>>(sum), out<Acc<T>>(weight), shape.rows, shape.cols, reduction, ignore_index,
            label_smoothing, version, device.stream));
    });
    if (targets.failed()) report(target, shape.cols, ignore_index);
    return loss;
}

void check_inputs(const Tensor& x, const Tensor& target, int64_t reduction,
                  double label_smoothing) {
    check_first(x, "x");
    check_rank(x, "x");
    check_target(target, x);
    check_options(reduction, label_smoothing);
}

// The loss alone, for where no gradient is wanted.
Tensor infer(Tensor x, Tensor target, int64_t reduction, int64_t ignore_index,
             double label_smoothing, bool check, bool float_loss, int64_t version) {
    check_inputs(x, target, reduction, label_smoothing);
    return run_forward(x, target, nullptr, nullptr, nullptr, reduction, ignore_index,
                       label_smoothing, check, float_loss, version);
}

// Besides the loss, for backward: the max and the sum of e^(x - max) of each row, [...], and for a
// mean 1 / (rows that count), [1], else [0].
std::tuple<Tensor, Tensor, Tensor, Tensor> forward(Tensor x, Tensor target, int64_t reduction,
                                                   int64_t ignore_index, double label_smoothing,
                                                   bool check, bool float_loss, int64_t version) {
    check_inputs(x, target, reduction, label_smoothing);
    const Tensor max = new_sums(x, target.sizes()), sum = new_sums(x, target.sizes());
    const Tensor weight = new_sums(x, {weights(reduction)});
    return {run_forward(x, target, &max, &sum, &weight, reduction, ignore_index, label_smoothing,
                        check, float_loss, version),
            max, sum, weight};
}

Tensor backward(Tensor grad, Tensor x, Tensor target, Tensor max, Tensor sum, Tensor weight,
                int64_t reduction, int64_t ignore_index, double label_smoothing, int64_t version) {
    check_inputs(x, target, reduction, label_smoothing);
    check_grad(grad, x, target, reduction);
    check_sums(max, "max", x);
    check_sums(sum, "sum", x);
    check_weight(weight, x, reduction);
    check_version(version, kVersions);
    OnDeviceOf device(x);
    grad = packed(grad);
    x = packed(x);
    target = packed(target);
    max = packed(max);
    sum = packed(sum);
    Tensor dx = new_like(x);
    const Rows shape(x);
    for_type_of(x, [&](auto zero) {
        using T = decltype(zero);
        check_launch(cross_entropy_backward<T>(
            arriving<T>(grad, x), in<T>(x), in<int64_t>(target), in<Acc<T>>(max), in<Acc<T>>(sum),
            in<Acc<T>>(weight), out<T>(dx), shape.rows, shape.cols, reduction, ignore_index,
            label_smoothing, version, device.stream));
    });
    return dx;
}

STABLE_TORCH_LIBRARY(TORCH_EXTENSION_NAME, m) {
    m.def(
        "infer(Tensor x, Tensor target, int reduction, int ignore_index, float label_smoothing,"
        " bool check, bool float_loss, int version) -> Tensor");
    m.def(
        "forward(Tensor x, Tensor target, int reduction, int ignore_index, float label_smoothing,"
        " bool check, bool float_loss, int version) -> (Tensor loss, Tensor max, Tensor sum, "
        "Tensor weight)");
    m.def(
        "backward(Tensor grad, Tensor x, Tensor target, Tensor max, Tensor sum, Tensor weight,"
        " int reduction, int ignore_index, float label_smoothing, int version) -> Tensor");
}

STABLE_TORCH_LIBRARY_IMPL(TORCH_EXTENSION_NAME, CompositeExplicitAutograd, m) {
    m.impl("infer", TORCH_BOX(&infer));
    m.impl("forward", TORCH_BOX(&forward));
    m.impl("backward", TORCH_BOX(&backward));
}
