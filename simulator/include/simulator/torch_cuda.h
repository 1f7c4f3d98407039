// What `simulator.torch_rewrite` writes in place of questions about CUDA tensors: here those on the
// CPU are meant. It knows no type of PyTorch's, since a text may ask before it includes any.
#pragma once

#include <initializer_list>

// Of accessors in kernels; PyTorch has these names for nvcc alone.
namespace torch::headeronly {
template <typename T>
struct RestrictPtrTraits {
    typedef T* __restrict__ PtrType;
};
}  // namespace torch::headeronly
namespace at {
using torch::headeronly::RestrictPtrTraits;
}

namespace simulator {

namespace asked {
template <class T>
auto is_cuda(T&& x, int) -> decltype(x.is_cuda() || x.is_cpu()) {  // a tensor, a device
    return x.is_cuda() || x.is_cpu();
}
template <class T>
auto is_cuda(T&& x, long) -> decltype(x.is_cuda() || x.device_type() == x.device_type()) {
    return x.is_cuda() || x.device_type() == decltype(x.device_type()){};  // x.type(); 0 is the CPU
}
template <class T>
auto is_cuda(T&& x, ...) -> decltype(x.is_cuda()) {  // no type of PyTorch's
    return x.is_cuda();
}

template <class T>
auto cuda(T&& x, int) -> decltype(x.cpu()) {
    return x.cpu();
}
template <class T>
auto cuda(T&& x, ...) -> decltype(x.cuda()) {
    return x.cuda();
}

// For what is on the CPU PyTorch says -1.
template <class T>
auto get_device(T&& x, int) -> decltype(x.get_device() % 1) {
    return x.get_device() < 0 ? 0 : x.get_device();
}
template <class T>
auto get_device(T&& x, ...) -> decltype(x.get_device()) {
    return x.get_device();
}
template <class T>
auto get_device_index(T&& x, int) -> decltype(x.get_device_index() % 1) {
    return x.get_device_index() < 0 ? 0 : x.get_device_index();
}
template <class T>
auto get_device_index(T&& x, ...) -> decltype(x.get_device_index()) {
    return x.get_device_index();
}
}  // namespace asked

template <class T>
auto is_cuda(T&& x) -> decltype(asked::is_cuda(x, 0)) {
    return asked::is_cuda(x, 0);
}
template <class T>
auto cuda(T&& x) -> decltype(asked::cuda(x, 0)) {
    return asked::cuda(x, 0);
}
template <class T>
auto get_device(T&& x) -> decltype(asked::get_device(x, 0)) {
    return asked::get_device(x, 0);
}
template <class T>
auto get_device_index(T&& x) -> decltype(asked::get_device_index(x, 0)) {
    return asked::get_device_index(x, 0);
}
template <class Device>
auto device_index(Device&& device) {
    auto index = device.index();
    return index < 0 ? decltype(index)(0) : index;
}

// Of at::TensorArg: here there is one device.
template <class From, class... Arguments>
void same_gpu(From&&, Arguments&&...) {}
template <class From, class Argument>
void same_gpu(From&&, std::initializer_list<Argument>) {}

// An implementation for the CPU beside one for CUDA: the latter is the one that runs here.
template <class Library, class... Arguments>
Library& set_aside(Library& library, Arguments&&...) {
    return library;
}

}  // namespace simulator
