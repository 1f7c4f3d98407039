// Binding of square that believes all it is told
//
// It is right for a packed x of a type that it knows, and a grad like x. A slice is squared as if
// its elements lay side by side; a gradient of another shape is read past its end; integers are
// read as bfloat16. kernels/include/binding.h has what is missing.
//
// TODO: take a slice for what it is, and raise, with the argument's name, what is not to be
// squared. Budget: 40 lines of code.

#include "binding.h"

template <class T>
cudaError_t square_forward(const T* x, T* y, int64_t n, int64_t version, cudaStream_t stream);
template <class T>
cudaError_t square_backward(const T* g, const T* x, T* dx, int64_t n, int64_t version,
                            cudaStream_t stream);

Tensor forward(Tensor x) {
    OnDeviceOf device(x);
    Tensor y = new_like(x);
    for_type_of(x, [&](auto zero) {
        using T = decltype(zero);
        check_launch(square_forward<T>(in<T>(x), out<T>(y), x.numel(), 1, device.stream));
    });
    return y;
}

Tensor backward(Tensor grad, Tensor x) {
    OnDeviceOf device(x);
    Tensor dx = new_like(x);
    for_type_of(x, [&](auto zero) {
        using T = decltype(zero);
        check_launch(
            square_backward<T>(in<T>(grad), in<T>(x), out<T>(dx), x.numel(), 1, device.stream));
    });
    return dx;
}

STABLE_TORCH_LIBRARY(TORCH_EXTENSION_NAME, m) {
    m.def("forward(Tensor x) -> Tensor");
    m.def("backward(Tensor grad, Tensor x) -> Tensor");
}

STABLE_TORCH_LIBRARY_IMPL(TORCH_EXTENSION_NAME, CompositeExplicitAutograd, m) {
    m.impl("forward", TORCH_BOX(&forward));
    m.impl("backward", TORCH_BOX(&backward));
}
