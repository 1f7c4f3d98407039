// Binding of quantize_mxfp8: schema, checks, allocation, launch.
#include "block_scales_binding.h"

constexpr int64_t kVersions = 2;  // as many as VERSIONS of quantize_mxfp8.py has

template <class T>
cudaError_t quantize_mxfp8(const T* x, uint8_t* q, uint8_t* scales, int64_t rows, int64_t cols,
                           int64_t version, cudaStream_t stream);

std::tuple<Tensor, Tensor> forward(Tensor x, int64_t version) {
    check_block_scalable(x, kMxfp8);
    check_version(version, kVersions);
    OnDeviceOf device(x);
    x = packed(x);
    const Rows of(x);
    const Tensor q = new_elements(x, kMxfp8), scales = new_block_scales(x, kMxfp8);
    for_quantizable_type_of(x, [&](auto zero) {
        using T = decltype(zero);
        check_launch(quantize_mxfp8<T>(in<T>(x), out<uint8_t>(q), out<uint8_t>(scales), of.rows,
                                       of.cols, version, device.stream));
    });
    return {q, scales};
}

STABLE_TORCH_LIBRARY(TORCH_EXTENSION_NAME, m) {
    m.def("forward(Tensor x, int version) -> (Tensor, Tensor)");
}

STABLE_TORCH_LIBRARY_IMPL(TORCH_EXTENSION_NAME, CompositeExplicitAutograd, m) {
    m.impl("forward", TORCH_BOX(&forward));
}
