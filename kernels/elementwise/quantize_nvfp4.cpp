// Binding of quantize_nvfp4: schema, checks, allocation, launch.
#include "block_scales_binding.h"

constexpr int64_t kVersions = 2;  // as many as VERSIONS of quantize_nvfp4.py has

template <class T>
cudaError_t quantize_nvfp4(const T* x, const float* tensor_scale, uint8_t* q, uint8_t* scales,
                           int64_t rows, int64_t cols, int64_t version, cudaStream_t stream);

std::tuple<Tensor, Tensor> forward(Tensor x, Tensor scale, int64_t version) {
    check_block_scalable(x, kNvfp4);
    check_tensor_scale(scale, "scale", x);
    check_version(version, kVersions);
    OnDeviceOf device(x);
    x = packed(x);
    const Rows of(x);
    const Tensor q = new_elements(x, kNvfp4), scales = new_block_scales(x, kNvfp4);
    for_quantizable_type_of(x, [&](auto zero) {
        using T = decltype(zero);
        check_launch(quantize_nvfp4<T>(
            in<T>(x), in<float>(scale), out<uint8_t>(q), out<uint8_t>(scales), of.rows, of.cols,
            version, device.stream));
    });
    return {q, scales};
}

STABLE_TORCH_LIBRARY(TORCH_EXTENSION_NAME, m) {
    m.def("forward(Tensor x, Tensor scale, int version) -> (Tensor, Tensor)");
}

STABLE_TORCH_LIBRARY_IMPL(TORCH_EXTENSION_NAME, CompositeExplicitAutograd, m) {
    m.impl("forward", TORCH_BOX(&forward));
}
