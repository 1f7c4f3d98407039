// Binding of square: schema, checks, allocation, launch.
#include "binding.h"

constexpr int64_t kVersions = 2;  // as many as VERSIONS of square.py has

template <class T>
cudaError_t square_forward(const T* x, T* y, int64_t n, int64_t version, cudaStream_t stream);
template <class T>
cudaError_t square_backward(const T* g, const T* x, T* dx, int64_t n, int64_t version,
                            cudaStream_t stream);

Tensor forward(Tensor x, int64_t version) {
    check_first(x, "x");
    check_version(version, kVersions);
    OnDeviceOf device(x);
    x = packed(x);
    Tensor y = new_like(x);
    for_type_of(x, [&](auto zero) {
        using T = decltype(zero);
        check_launch(square_forward<T>(in<T>(x), out<T>(y), x.numel(), version, device.stream));
    });
    return y;
}

Tensor backward(Tensor grad, Tensor x, int64_t version) {
    check_first(x, "x");
    check_like(grad, "grad", x, "x");
    check_same_shape(grad, "grad", x, "x");
    check_version(version, kVersions);
    OnDeviceOf device(x);
    grad = packed(grad);
    x = packed(x);
    Tensor dx = new_like(x);
    for_type_of(x, [&](auto zero) {
        using T = decltype(zero);
        check_launch(square_backward<T>(
            in<T>(grad), in<T>(x), out<T>(dx), x.numel(), version, device.stream));
    });
    return dx;
}

STABLE_TORCH_LIBRARY(TORCH_EXTENSION_NAME, m) {
    m.def("forward(Tensor x, int version) -> Tensor");
    m.def("backward(Tensor grad, Tensor x, int version) -> Tensor dx");
}

STABLE_TORCH_LIBRARY_IMPL(TORCH_EXTENSION_NAME, CompositeExplicitAutograd, m) {
    m.impl("forward", TORCH_BOX(&forward));
    m.impl("backward", TORCH_BOX(&backward));
}
