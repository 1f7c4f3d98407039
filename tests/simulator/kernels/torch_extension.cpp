// The binding of torch_extension.cu, as PyTorch's tutorials write it: a fixed name, and checks that
// want CUDA tensors.
#include <c10/cuda/CUDAGuard.h>
#include <torch/extension.h>

#define CHECK_CUDA(x) TORCH_CHECK(x.is_cuda(), #x " must be a CUDA tensor")
#define CHECK_CONTIGUOUS(x) TORCH_CHECK(x.is_contiguous(), #x " must be contiguous")
#define CHECK_INPUT(x) \
    CHECK_CUDA(x);     \
    CHECK_CONTIGUOUS(x)

torch::Tensor row_sums_cuda(torch::Tensor x);
torch::Tensor doubled(torch::Tensor x);
torch::Tensor squares_cuda(torch::Tensor x);
torch::Tensor histogram_cuda(torch::Tensor x, int64_t bins);
torch::Tensor dropout_cuda(torch::Tensor x, double p, std::optional<at::Generator> generator);
void refused_cuda(int64_t threads);
std::vector<std::string> facts_cuda(torch::Tensor x);

torch::Tensor row_sums(torch::Tensor x) {
    CHECK_INPUT(x);
    const at::cuda::OptionalCUDAGuard guard(device_of(x));
    return row_sums_cuda(x);
}

// With a gradient of its own.
struct Squares : torch::autograd::Function<Squares> {
    static torch::Tensor forward(torch::autograd::AutogradContext* context, torch::Tensor x) {
        TORCH_CHECK(x.device().type() == at::DeviceType::CUDA, "x must be on a GPU");
        TORCH_CHECK(x.device().is_cuda() && x.type().is_cuda());
        context->save_for_backward({x});
        return squares_cuda(x.contiguous());
    }
    static torch::autograd::tensor_list backward(torch::autograd::AutogradContext* context,
                                                 torch::autograd::tensor_list gradients) {
        return {2 * context->get_saved_variables()[0] * gradients[0]};
    }
};

torch::Tensor squares(torch::Tensor x) { return Squares::apply(x); }

// By its device: the branch for CUDA is taken.
std::string branch(torch::Tensor x) {
    switch (x.device().type()) {
        case torch::kCPU:
            return "cpu";
        case torch::kCUDA:
            return "cuda";
        default:
            return "other";
    }
}

PYBIND11_MODULE(torch_extension_of_tests, m) {
    m.def("row_sums", &row_sums, "sums of rows");
    m.def("doubled", &doubled, "twice, in 16 bits");
    m.def("squares", &squares, "squares, with a gradient");
    m.def("histogram", &histogram_cuda, "how often each number occurs");
    m.def("dropout", &dropout_cuda, "zeros at random", py::arg("x"), py::arg("p"),
          py::arg("generator") = py::none());
    m.def("refused", &refused_cuda, "a launch that is refused");
    m.def("facts", &facts_cuda, "what PyTorch says of the device");
    m.def("branch", &branch, "which branch is taken");
}
