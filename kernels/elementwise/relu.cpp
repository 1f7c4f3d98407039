// Binding of relu: schema, checks, allocation, launch.
#include "binding.h"

constexpr int64_t kVersions = 3;  // as many as VERSIONS of relu.py has

template <class T>
cudaError_t relu_forward(const T* x, T* y, int64_t n, int64_t version, cudaStream_t stream);
template <class T>
cudaError_t relu_backward(const T* g, const T* y, T* dx, int64_t n, int64_t version,
                          cudaStream_t stream);
template <class T>
cudaError_t relu_forward_mask(const T* x, T* y, uint8_t* mask, int64_t n, cudaStream_t stream);
template <class T>
cudaError_t relu_backward_mask(const T* g, const uint8_t* mask, T* dx, int64_t n,
                               cudaStream_t stream);

Tensor forward(Tensor x, int64_t version) {
    check_first(x, "x");
    check_version(version, kVersions);
    OnDeviceOf device(x);
    x = packed(x);
    Tensor y = new_like(x);
    for_type_of(x, [&](auto zero) {
        using T = decltype(zero);
        check_launch(relu_forward<T>(in<T>(x), out<T>(y), x.numel(), version, device.stream));
    });
    return y;
}

Tensor backward(Tensor grad, Tensor y, int64_t version) {
    check_first(y, "y");
    check_like(grad, "grad", y, "y");
    check_same_shape(grad, "grad", y, "y");
    check_version(version, kVersions);
    OnDeviceOf device(y);
    grad = packed(grad);
    y = packed(y);
    Tensor dx = new_like(y);
    for_type_of(y, [&](auto zero) {
        using T = decltype(zero);
        check_launch(
            relu_backward<T>(in<T>(grad), in<T>(y), out<T>(dx), y.numel(), version, device.stream));
    });
    return dx;
}

// One for each 16 bytes of x.
int64_t mask_bytes(const Tensor& x) { return (x.numel() * x.element_size() + 15) / 16; }

std::tuple<Tensor, Tensor> forward_mask(Tensor x) {
    check_first(x, "x");
    OnDeviceOf device(x);
    x = packed(x);
    Tensor y = new_like(x);
    Tensor mask = new_tensor(x, {mask_bytes(x)}, ScalarType::Byte);
    for_type_of(x, [&](auto zero) {
        using T = decltype(zero);
        check_launch(relu_forward_mask<T>(
            in<T>(x), out<T>(y), out<uint8_t>(mask), x.numel(), device.stream));
    });
    return {y, mask};
}

Tensor backward_mask(Tensor grad, Tensor mask) {
    check_first(grad, "grad");
    check_given(mask, "mask");
    if (mask.device() != grad.device() || type_of(mask) != ScalarType::Byte || mask.dim() != 1 ||
        mask.size(0) != mask_bytes(grad)) {
        fail("mask is ", dtype_name(type_of(mask)), " of shape ", shape_name(mask), " on ",
             device_name(mask), ", but grad has shape ", shape_name(grad),
             "; wanted is what forward_mask returned, uint8 of shape (", mask_bytes(grad), ",) on ",
             device_name(grad));
    }
    OnDeviceOf device(grad);
    grad = packed(grad);
    mask = packed(mask);
    Tensor dx = new_like(grad);
    for_type_of(grad, [&](auto zero) {
        using T = decltype(zero);
        check_launch(relu_backward_mask<T>(
            in<T>(grad), in<uint8_t>(mask), out<T>(dx), grad.numel(), device.stream));
    });
    return dx;
}

STABLE_TORCH_LIBRARY(TORCH_EXTENSION_NAME, m) {
    m.def("forward(Tensor x, int version) -> Tensor");
    m.def("backward(Tensor grad, Tensor y, int version) -> Tensor dx");
    m.def("forward_mask(Tensor x) -> (Tensor y, Tensor mask)");
    m.def("backward_mask(Tensor grad, Tensor mask) -> Tensor dx");
}

STABLE_TORCH_LIBRARY_IMPL(TORCH_EXTENSION_NAME, CompositeExplicitAutograd, m) {
    m.impl("forward", TORCH_BOX(&forward));
    m.impl("backward", TORCH_BOX(&backward));
    m.impl("forward_mask", TORCH_BOX(&forward_mask));
    m.impl("backward_mask", TORCH_BOX(&backward_mask));
}
