// Binding of quantize: schema, checks, allocation, launch.
#include "binding.h"
#include "float8.h"

constexpr int64_t kVersions = 2;  // as many as VERSIONS of quantize.py has

template <class T>
cudaError_t quantize(const T* x, Float8* q, float* scales, int64_t rows, int64_t cols,
                     int64_t scaling, int64_t version, cudaStream_t stream);

void check_inputs(const Tensor& x, const std::optional<Tensor>& scale, int64_t scaling) {
    check_first(x, "x");
    check_rank(x, "x");
    if (type_of(x) == ScalarType::Double)
        fail("x is float64; wanted is float32, float16 or bfloat16");
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

Shape shape_of_scales(const Tensor& x, int64_t scaling) {
    Shape shape = shape_of(x);
    const auto blocks = [](int64_t n) { return (n + kScaleBlock - 1) / kScaleBlock; };
    shape.back() = scaling == kPerRow ? 1 : blocks(shape.back());
    if (scaling == kPer128x128) shape[0] = blocks(shape[0]);
    return shape;
}

// q, and the scales that were made; none if one was given.
std::tuple<Tensor, Tensor> forward(Tensor x, std::optional<Tensor> scale, int64_t scaling,
                                   int64_t version) {
    check_inputs(x, scale, scaling);
    check_version(version, kVersions);
    OnDeviceOf device(x);
    x = packed(x);
    const Shape shape = scale ? Shape{0} : shape_of_scales(x, scaling);
    Tensor q = new_tensor(x, x.sizes(), ScalarType::Float8_e4m3fn);
    Tensor scales = new_tensor(x, {shape.data(), shape.size()}, ScalarType::Float);
    const Rows of_x(x);
    const auto run = [&](auto zero) {
        using T = decltype(zero);
        // Of a scale that is given, the kernels only read.
        float* const at = scale ? const_cast<float*>(in<float>(*scale)) : out<float>(scales);
        check_launch(quantize<T>(
            in<T>(x), out<Float8>(q), at, of_x.rows, of_x.cols, scaling, version, device.stream));
    };
    switch (type_of(x)) {
        case ScalarType::Float:
            run(float());
            break;
        case ScalarType::Half:
            run(Half());
            break;
        default:
            run(BFloat16());
    }
    return {q, scales};
}

STABLE_TORCH_LIBRARY(TORCH_EXTENSION_NAME, m) {
    m.def("forward(Tensor x, Tensor? scale, int scaling, int version) -> (Tensor, Tensor)");
}

STABLE_TORCH_LIBRARY_IMPL(TORCH_EXTENSION_NAME, CompositeExplicitAutograd, m) {
    m.impl("forward", TORCH_BOX(&forward));
}
