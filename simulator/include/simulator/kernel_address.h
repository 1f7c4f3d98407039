// Kernels that are launched by their address, with an array of pointers to their arguments:
// cudaLaunchKernel and kernel nodes of graphs. The rewriter includes this where a source speaks of
// them, and spells a cast of a name to `void*` as SIMULATOR_ADDRESS(name): there the kernel's type
// is still known, and with it how to read its arguments.
#pragma once
#include <new>
#include <tuple>
#include <utility>
#include "launch.h"

namespace simulator {

// How to launch the kernel of an address.
struct Entry {
    Launch launch;  // without extents and body
    size_t body_bytes, body_alignment, parameters;
    void (*bind)(void* body, const void* function, void** arguments);
    const size_t* parameter_bytes;
};
SIMULATOR_EXPORT void know_kernel(const Entry& entry);

// A kernel with its arguments, all of which a GPU copies byte by byte.
template <class... Parameters>
struct Bound {
    void (*kernel)(Parameters...);
    std::tuple<Parameters...> arguments;
    void operator()() const { std::apply(kernel, arguments); }

    template <size_t... I>
    static void bind(void* body, const void* function, void** from, std::index_sequence<I...>) {
        new (body) Bound{reinterpret_cast<void (*)(Parameters...)>(const_cast<void*>(function)),
                         {*static_cast<Parameters*>(from[I])...}};
    }
    static void bind(void* body, const void* function, void** from) {
        bind(body, function, from, std::index_sequence_for<Parameters...>());
    }
    static constexpr size_t bytes[] = {sizeof(Parameters)..., 0};
};

template <class... Parameters>
void* know(void (*kernel)(Parameters...), const char* name, const char* file, int line) {
    using Body = Bound<Parameters...>;
    void* const address = reinterpret_cast<void*>(kernel);
    Launch launch{};
    launch.name = name;
    launch.file = file;
    launch.line = line;
    launch.function = address;
    set_code(launch, site<Body>());
    know_kernel(
        {launch, sizeof(Body), alignof(Body), sizeof...(Parameters), Body::bind, Body::bytes});
    return address;
}

// What a cast to `void*` gives.
template <class... Parameters>
void* __address(const char* name, void (*kernel)(Parameters...), SIMULATOR_CALLER) {
    while (*name == '&' || *name == ' ') name++;
    return know(kernel, name, file, line);
}
template <class T>
void* __address(const char*, const T& other) {
    return (void*)other;
}
#define SIMULATOR_ADDRESS(...) ::simulator::__address(#__VA_ARGS__, __VA_ARGS__)

namespace api {

SIMULATOR_EXPORT cudaError_t cudaLaunchKernel(const void* kernel, dim3 grid, dim3 block,
                                              void** arguments, size_t shared = 0,
                                              cudaStream_t stream = nullptr);
template <class... Parameters>
cudaError_t cudaLaunchKernel(void (*kernel)(Parameters...), dim3 grid, dim3 block, void** arguments,
                             size_t shared = 0, cudaStream_t stream = nullptr, SIMULATOR_CALLER) {
    return cudaLaunchKernel(
        know(kernel, "by its address", file, line), grid, block, arguments, shared, stream);
}

SIMULATOR_EXPORT cudaError_t cudaLaunchCooperativeKernel(const void* kernel, dim3 grid, dim3 block,
                                                         void** arguments, size_t shared = 0,
                                                         cudaStream_t stream = nullptr);
template <class... Parameters>
cudaError_t cudaLaunchCooperativeKernel(void (*kernel)(Parameters...), dim3 grid, dim3 block,
                                        void** arguments, size_t shared = 0,
                                        cudaStream_t stream = nullptr, SIMULATOR_CALLER) {
    return cudaLaunchCooperativeKernel(
        know(kernel, "by its address", file, line), grid, block, arguments, shared, stream);
}

}  // namespace api
}  // namespace simulator
