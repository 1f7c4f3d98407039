// Binding of swiglu: schema, checks, allocation, launch.
#include "quantize_binding.h"

constexpr int64_t kVersions = 2;  // as many as VERSIONS of swiglu.py has

template <class T>
cudaError_t swiglu_forward(const T* a, const T* b, T* y, int64_t n, int64_t version,
                           cudaStream_t stream);
template <class T>
cudaError_t swiglu_backward(const T* g, const T* a, const T* b, T* da, T* db, int64_t n,
                            int64_t version, cudaStream_t stream);
template <class T>
cudaError_t swiglu_forward_fp8(const T* a, const T* b, Float8* q, float* scales, int64_t rows,
                               int64_t cols, int64_t scaling, cudaStream_t stream);

Tensor forward(Tensor a, Tensor b, int64_t version) {
    check_first(a, "a");
    check_like(b, "b", a, "a");
    check_same_shape(b, "b", a, "a");
    check_version(version, kVersions);
    OnDeviceOf device(a);
    a = packed(a);
    b = packed(b);
    Tensor y = new_like(a);
    for_type_of(a, [&](auto zero) {
        using T = decltype(zero);
        check_launch(
            swiglu_forward<T>(in<T>(a), in<T>(b), out<T>(y), a.numel(), version, device.stream));
    });
    return y;
}

std::tuple<Tensor, Tensor> backward(Tensor grad, Tensor a, Tensor b, int64_t version) {
    check_first(a, "a");
    check_like(b, "b", a, "a");
    check_same_shape(b, "b", a, "a");
    check_like(grad, "grad", a, "a");
    check_same_shape(grad, "grad", a, "a");
    check_version(version, kVersions);
    OnDeviceOf device(a);
    grad = packed(grad);
    a = packed(a);
    b = packed(b);
    Tensor da = new_like(a), db = new_like(b);
    for_type_of(a, [&](auto zero) {
        using T = decltype(zero);
        check_launch(swiglu_backward<T>(in<T>(grad), in<T>(a), in<T>(b), out<T>(da), out<T>(db),
                                        a.numel(), version, device.stream));
    });
    return {da, db};
}

// y as floats of one byte, and scales.
std::tuple<Tensor, Tensor> forward_fp8(Tensor a, Tensor b, int64_t scaling) {
    check_first(a, "a");
    check_rank(a, "a");
    check_quantizable(a, "a");
    check_like(b, "b", a, "a");
    check_same_shape(b, "b", a, "a");
    check_row_scaling(scaling);
    OnDeviceOf device(a);
    a = packed(a);
    b = packed(b);
    const Tensor q = new_float8(a), scales = new_scales(a, scaling);
    const Rows shape(a);
    for_quantizable_type_of(a, [&](auto zero) {
        using T = decltype(zero);
        check_launch(swiglu_forward_fp8<T>(in<T>(a), in<T>(b), out<Float8>(q), out<float>(scales),
                                           shape.rows, shape.cols, scaling, device.stream));
    });
    return {q, scales};
}

STABLE_TORCH_LIBRARY(TORCH_EXTENSION_NAME, m) {
    m.def("forward(Tensor a, Tensor b, int version) -> Tensor");
    m.def("forward_fp8(Tensor a, Tensor b, int scaling) -> (Tensor, Tensor)");
    m.def("backward(Tensor grad, Tensor a, Tensor b, int version) -> (Tensor, Tensor)");
}

STABLE_TORCH_LIBRARY_IMPL(TORCH_EXTENSION_NAME, CompositeExplicitAutograd, m) {
    m.impl("forward", TORCH_BOX(&forward));
    m.impl("forward_fp8", TORCH_BOX(&forward_fp8));
    m.impl("backward", TORCH_BOX(&backward));
}
