// Binding of softmax: schema, checks, allocation, launch.
#include "binding.h"

constexpr int64_t kVersions = 5;  // as many as VERSIONS of softmax.py has

template <class T>
cudaError_t softmax_forward(const T* x, T* y, int64_t rows, int64_t cols, int64_t version,
                            cudaStream_t stream);
template <class T>
cudaError_t softmax_backward(const T* g, const T* y, T* dx, int64_t rows, int64_t cols,
                             int64_t version, cudaStream_t stream);

Tensor forward(Tensor x, int64_t version) {
    check_first(x, "x");
    check_rank(x, "x");
    check_version(version, kVersions);
    OnDeviceOf device(x);
    x = packed(x);
    Tensor y = new_like(x);
    const Rows shape(x);
    for_type_of(x, [&](auto zero) {
        using T = decltype(zero);
        check_launch(softmax_forward<T>(
            in<T>(x), out<T>(y), shape.rows, shape.cols, version, device.stream));
    });
    return y;
}

Tensor backward(Tensor grad, Tensor y, int64_t version) {
    check_first(y, "y");
    check_rank(y, "y");
    check_like(grad, "grad", y, "y");
    check_same_shape(grad, "grad", y, "y");
    check_version(version, kVersions);
    OnDeviceOf device(y);
    grad = packed(grad);
    y = packed(y);
    Tensor dx = new_like(y);
    const Rows shape(y);
    for_type_of(y, [&](auto zero) {
        using T = decltype(zero);
        check_launch(softmax_backward<T>(
            in<T>(grad), in<T>(y), out<T>(dx), shape.rows, shape.cols, version, device.stream));
    });
    return dx;
}

STABLE_TORCH_LIBRARY(TORCH_EXTENSION_NAME, m) {
    m.def("forward(Tensor x, int version) -> Tensor");
    m.def("backward(Tensor grad, Tensor y, int version) -> Tensor");
}

STABLE_TORCH_LIBRARY_IMPL(TORCH_EXTENSION_NAME, CompositeExplicitAutograd, m) {
    m.impl("forward", TORCH_BOX(&forward));
    m.impl("backward", TORCH_BOX(&backward));
}
