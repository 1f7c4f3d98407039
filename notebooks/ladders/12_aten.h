// What the bindings of square through ATen share: its launchers, called with at::Tensor.
#pragma once

#include <ATen/core/Tensor.h>
#include <cuda_runtime.h>
#if PLAYGROUND_CUDA
#include <c10/cuda/CUDAGuard.h>
#include <c10/cuda/CUDAStream.h>
#endif

#include "types.h"

template <class T>
cudaError_t square_forward(const T* x, T* y, int64_t n, int64_t version, cudaStream_t stream);
template <class T>
cudaError_t square_backward(const T* g, const T* x, T* dx, int64_t n, int64_t version,
                            cudaStream_t stream);

// While it lives, x's device is the current one; `stream` is what PyTorch works on there.
struct OnDeviceOf {
#if PLAYGROUND_CUDA
    explicit OnDeviceOf(const at::Tensor& x)
        : guard(x.device()), stream(c10::cuda::getCurrentCUDAStream()) {}
    c10::cuda::CUDAGuard guard;
#else
    explicit OnDeviceOf(const at::Tensor&) {}
#endif
    cudaStream_t stream = nullptr;
};

inline void check(const at::Tensor& x, const char* name) {
    TORCH_CHECK(PLAYGROUND_CUDA ? x.is_cuda() : x.is_cpu(), name, " is on ", x.device());
    TORCH_CHECK(x.layout() == at::kStrided, name, " is ", x.layout());
}

// Calls f(T()) with the C++ type of x's elements.
template <class F>
void for_type_of(const at::Tensor& x, F f) {
    switch (x.scalar_type()) {
        case at::kDouble:
            return f(double());
        case at::kFloat:
            return f(float());
        case at::kHalf:
            return f(Half());
        case at::kBFloat16:
            return f(BFloat16());
        default:
            TORCH_CHECK(false, "x is ", x.scalar_type());
    }
}

template <class T>
const T* in(const at::Tensor& t) {
    return static_cast<const T*>(t.const_data_ptr());
}
template <class T>
T* out(const at::Tensor& t) {
    return static_cast<T*>(t.mutable_data_ptr());
}

inline void check_launch(cudaError_t error) {
    TORCH_CHECK(error == cudaSuccess, "kernel launch failed: ", cudaGetErrorString(error));
}

inline at::Tensor run_forward(const at::Tensor& given) {
    check(given, "x");
    OnDeviceOf device(given);
    const at::Tensor x = given.contiguous(), y = x.new_empty(x.sizes());
    for_type_of(x, [&](auto zero) {
        using T = decltype(zero);
        check_launch(square_forward<T>(in<T>(x), out<T>(y), x.numel(), 1, device.stream));
    });
    return y;
}

inline at::Tensor run_backward(const at::Tensor& arriving, const at::Tensor& given) {
    check(given, "x");
    check(arriving, "grad");
    TORCH_CHECK(arriving.device() == given.device(), "grad and x are on two devices");
    TORCH_CHECK(arriving.scalar_type() == given.scalar_type(), "grad and x are of two types");
    TORCH_CHECK(arriving.sizes() == given.sizes(), "grad and x are of two shapes");
    OnDeviceOf device(given);
    const at::Tensor grad = arriving.contiguous(), x = given.contiguous();
    const at::Tensor dx = x.new_empty(x.sizes());
    for_type_of(x, [&](auto zero) {
        using T = decltype(zero);
        check_launch(
            square_backward<T>(in<T>(grad), in<T>(x), out<T>(dx), x.numel(), 1, device.stream));
    });
    return dx;
}
