// The binding that loop_seconds.py puts below kernels/norms/layer_norm.cu for plain load: the same
// launchers in one file, as most extensions are written.
#include <torch/extension.h>
#if HAVE_GPU
#include <c10/cuda/CUDAGuard.h>
#include <c10/cuda/CUDAStream.h>
#endif

#include <vector>

using Tensors = std::vector<torch::Tensor>;

static cudaStream_t current_stream() {
#if HAVE_GPU
    return c10::cuda::getCurrentCUDAStream();
#else
    return nullptr;  // compiled beside a torch for CPUs, whose headers have no streams
#endif
}

static torch::Tensor new_sums(const torch::Tensor& x, at::IntArrayRef shape) {
    const bool wide = x.scalar_type() == torch::kDouble;
    return torch::empty(shape, x.options().dtype(wide ? torch::kDouble : torch::kFloat));
}

static void check(cudaError_t error) { TORCH_CHECK(error == cudaSuccess, "CUDA error ", error); }

Tensors forward(torch::Tensor x, torch::Tensor weight, torch::Tensor bias, double eps,
                int64_t version) {
    const int64_t cols = x.size(-1), rows = x.numel() / cols;
    auto y = torch::empty_like(x), mean = new_sums(x, {rows}), rstd = new_sums(x, {rows});
    AT_DISPATCH_FLOATING_TYPES_AND2(
        torch::kHalf, torch::kBFloat16, x.scalar_type(), "forward", [&] {
            using T = scalar_t;
            check(layer_norm_forward<T>(
                x.data_ptr<T>(), weight.data_ptr<T>(), bias.data_ptr<T>(), y.data_ptr<T>(),
                mean.data_ptr<Acc<T>>(), rstd.data_ptr<Acc<T>>(), rows, cols, eps, version,
                current_stream()));
        });
    return {y, mean, rstd};
}

Tensors backward(torch::Tensor g, torch::Tensor x, torch::Tensor weight, torch::Tensor mean,
                 torch::Tensor rstd, int64_t version) {
    const int64_t cols = x.size(-1), rows = x.numel() / cols;
    auto dx = torch::empty_like(x);
    auto dweight = torch::empty_like(weight), dbias = torch::empty_like(weight);
    AT_DISPATCH_FLOATING_TYPES_AND2(
        torch::kHalf, torch::kBFloat16, x.scalar_type(), "backward", [&] {
            using T = scalar_t;
            const int64_t count = layer_norm_partials<T>(
                g.data_ptr<T>(), x.data_ptr<T>(), weight.data_ptr<T>(), rows, cols, version);
            auto partial_dweight = new_sums(x, {count, cols});
            auto partial_dbias = new_sums(x, {count, cols});
            check(layer_norm_backward<T>(
                g.data_ptr<T>(), x.data_ptr<T>(), weight.data_ptr<T>(), mean.data_ptr<Acc<T>>(),
                rstd.data_ptr<Acc<T>>(), dx.data_ptr<T>(), {dweight.data_ptr<T>()},
                {dbias.data_ptr<T>()}, partial_dweight.data_ptr<Acc<T>>(),
                partial_dbias.data_ptr<Acc<T>>(), rows, cols, version, current_stream()));
        });
    return {dx, dweight, dbias};
}

PYBIND11_MODULE(TORCH_EXTENSION_NAME, m) {
    m.def("forward", &forward);
    m.def("backward", &backward);
}
