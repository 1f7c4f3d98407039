// Binding of quantize: schema, checks, allocation, launch.
#include "quantize_binding.h"

constexpr int64_t kVersions = 2;  // as many as VERSIONS of quantize.py has

template <class T>
cudaError_t quantize(const T* x, Float8* q, float* scales, int64_t rows, int64_t cols,
                     int64_t scaling, int64_t version, cudaStream_t stream);

void check_inputs(const Tensor& x, const std::optional<Tensor>& scale, int64_t scaling) {
    check_quantizable(x, "x");
    check_rank(x, "x");
    if (scaling < kPerTensor || scaling > kPer128x128) {
        fail("scaling is ", scaling, "; wanted is an int from ", int64_t(kPerTensor), " to ",
             int64_t(kPer128x128));
    }
    if (scaling == kPer128x128 && x.dim() != 2) {
        fail("x has shape ", shape_name(x), "; wanted is (rows, cols), for 128 rows share a scale");
    }
    if (scaling != kPerTensor && scale) fail("scale is given, but of each group it is made here");
    if (scaling != kPerTensor) return;
    if (!scale) fail("scale is None; wanted is that of all of x");
    check_device(*scale, "scale", x, "x");
    if (type_of(*scale) != ScalarType::Float)
        fail("scale is ", dtype_name(type_of(*scale)), "; wanted is float32");
    if (scale->numel() != 1)
        fail("scale has shape ", shape_name(*scale), "; wanted is (), one number for all of x");
}

// q, and the scales that were made; none if one was given.
std::tuple<Tensor, Tensor> forward(Tensor x, std::optional<Tensor> scale, int64_t scaling,
                                   int64_t version) {
    check_inputs(x, scale, scaling);
    check_version(version, kVersions);
    OnDeviceOf device(x);
    x = packed(x);
    const Tensor q = new_float8(x);
    const Tensor scales = scale ? new_sums(x, {0}) : new_scales(x, scaling);
    const Rows of_x(x);
    for_quantizable_type_of(x, [&](auto zero) {
        using T = decltype(zero);
        // The kernels only read a scale that is given.
        float* const at = scale ? const_cast<float*>(in<float>(*scale)) : out<float>(scales);
        check_launch(quantize<T>(
            in<T>(x), out<Float8>(q), at, of_x.rows, of_x.cols, scaling, version, device.stream));
    });
    return {q, scales};
}

STABLE_TORCH_LIBRARY(TORCH_EXTENSION_NAME, m) {
    m.def("forward(Tensor x, Tensor? scale, int scaling, int version) -> (Tensor, Tensor)");
}

STABLE_TORCH_LIBRARY_IMPL(TORCH_EXTENSION_NAME, CompositeExplicitAutograd, m) {
    m.impl("forward", TORCH_BOX(&forward));
}
