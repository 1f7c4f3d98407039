// square as two ops of PyTorch's dispatcher, all in C++: schema, kernel, shape, gradient.
#include <torch/csrc/autograd/custom_function.h>
#include <torch/library.h>

#include "12_aten.h"

using torch::autograd::AutogradContext;
using torch::autograd::tensor_list;

// The ops as Python calls them: through the dispatcher, which asks whoever is registered.
const char* const kForward = C10_STRINGIZE(TORCH_EXTENSION_NAME) "::forward";
const char* const kBackward = C10_STRINGIZE(TORCH_EXTENSION_NAME) "::backward";

template <class F>
c10::TypedOperatorHandle<F> op(const char* name) {
    return c10::Dispatcher::singleton().findSchemaOrThrow(name, "").typed<F>();
}

at::Tensor forward(const at::Tensor& x) {
    static const auto call = op<at::Tensor(const at::Tensor&)>(kForward);
    return call.call(x);
}

at::Tensor backward(const at::Tensor& grad, const at::Tensor& x) {
    static const auto call = op<at::Tensor(const at::Tensor&, const at::Tensor&)>(kBackward);
    return call.call(grad, x);
}

struct Backward : torch::autograd::Function<Backward> {
    static at::Tensor forward(AutogradContext* context, const at::Tensor& grad,
                              const at::Tensor& x) {
        context->save_for_backward({grad, x});
        at::AutoDispatchBelowADInplaceOrView below;
        return ::backward(grad, x);
    }
    static tensor_list backward(AutogradContext* context, const tensor_list& grads) {
        const auto saved = context->get_saved_variables();
        return {::backward(grads[0], saved[1]), ::backward(grads[0], saved[0])};
    }
};

struct Forward : torch::autograd::Function<Forward> {
    static at::Tensor forward(AutogradContext* context, const at::Tensor& x) {
        context->save_for_backward({x});
        at::AutoDispatchBelowADInplaceOrView below;
        return ::forward(x);
    }
    static tensor_list backward(AutogradContext* context, const tensor_list& grads) {
        return {::backward(grads[0], context->get_saved_variables()[0])};
    }
};

at::Tensor like(const at::Tensor& x) { return x.new_empty_symint(x.sym_sizes()); }

TORCH_LIBRARY(TORCH_EXTENSION_NAME, m) {
    m.def("forward(Tensor x) -> Tensor");
    m.def("backward(Tensor grad, Tensor x) -> Tensor");
}

#if PLAYGROUND_CUDA
TORCH_LIBRARY_IMPL(TORCH_EXTENSION_NAME, CUDA, m) {
#else
TORCH_LIBRARY_IMPL(TORCH_EXTENSION_NAME, CPU, m) {
#endif
    m.impl("forward", &run_forward);
    m.impl("backward", &run_backward);
}

TORCH_LIBRARY_IMPL(TORCH_EXTENSION_NAME, Meta, m) {
    m.impl("forward", &like);
    m.impl("backward", [](const at::Tensor&, const at::Tensor& x) { return like(x); });
}

TORCH_LIBRARY_IMPL(TORCH_EXTENSION_NAME, Autograd, m) {
    m.impl("forward", [](const at::Tensor& x) { return Forward::apply(x); });
    m.impl("backward",
           [](const at::Tensor& grad, const at::Tensor& x) { return Backward::apply(grad, x); });
}
