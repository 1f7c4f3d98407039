// kernel<<<grid, block, shared, stream>>>(arguments), which the rewriter spells
// SIMULATOR_KERNEL(kernel)(grid, block, shared, stream)(arguments).
#pragma once
#include "block.h"
#include "runtime_api.h"

namespace simulator {

#ifdef __SANITIZE_THREAD__
constexpr bool is_instrumented = true;

// The built-in variables are constant in here, and only in here.
template <class Body>
[[gnu::noinline, gnu::flatten]] void run_thread(Body body) {
    body();
}
#else
constexpr bool is_instrumented = false;
#endif

// Somewhere among the `__shared__` variables of the kernel library: shared_window.h says what for.
// With its alignment the others have the same addresses in all blocks, but for multiples of 1 KB.
#ifdef SIMULATOR_SEVERAL_SOURCES
inline __attribute__((visibility("hidden"))) thread_local char static_shared
    __attribute__((aligned(1024)));
#else
static thread_local char static_shared __attribute__((aligned(1024)));
#endif

// The loop over a block's threads. It runs on a fiber, and the kernel is inlined into it. As long
// as no thread waits, it is a plain loop that calls nothing, so the compiler may keep the built-in
// variables in registers.
template <class Body>
[[gnu::flatten]] void run_threads(Block& block) {
    const Body body = *static_cast<const Body*>(block.launch->body);
    if (block.static_shared != &static_shared) find_static_shared(block, &static_shared);
#ifdef __SANITIZE_THREAD__
    for (bool more = start_thread(block); more; more = next_thread(block)) run_thread(body);
#else
    current = &block;
    blockIdx = block.index;
    blockDim = block.launch->block;
    gridDim = block.launch->grid;
    const dim3 extent = block.launch->block;
    const unsigned size = block.size;
    while (block.next < size) {
        unsigned rank = block.next;
        uint3 index = {rank % extent.x, rank / extent.x % extent.y, rank / extent.x / extent.y};
        for (;;) {
            block.next = rank + 1;
            block.rank = rank;
            threadIdx = index;
            body();
            if (block.tracked) break;
            if (++rank == size) return;
            if (++index.x == extent.x) {
                index.x = 0;
                if (++index.y == extent.y) {
                    index.y = 0;
                    ++index.z;
                }
            }
        }
        block.finish(
            rank);  // others have waited or wait still, and may have started the next threads
    }
#endif
}

// What the executor has to know of the kernel's library.
template <class Body>
void set_code(Launch& launch) {
    launch.run_threads = run_threads<Body>;
    launch.static_shared = [] { return &static_shared; };
    launch.instrumented = is_instrumented;
}

// A launch whose arguments have still to come.
template <class Call>
struct Configured {
    Call call;
    Launch launch;

    template <class... Parameters>
    void start(Parameters... parameters) {
        auto body = [call = call, parameters...] { call(parameters...); };
        launch.body = &body;
        launch.body_bytes = sizeof body;
        set_code<decltype(body)>(launch);
        run(launch);
    }
};

template <bool>
struct Fewer;
template <>
struct Fewer<true> {
    using arguments = void;
};

// With a kernel's parameters known, arguments convert to them as in any call: 0 and {1, 2} too.
template <class... Parameters>
struct Typed {
    void (*kernel)(Parameters...);
    const void* address() const { return reinterpret_cast<const void*>(kernel); }

    template <class Call>
    struct Start : Configured<Call> {
        void operator()(Parameters... parameters) { this->start(parameters...); }
        // The kernel has defaults for those that are not given.
        template <class... Given>
        typename Fewer<(sizeof...(Given) < sizeof...(Parameters))>::arguments operator()(
            Given... given) {
            this->start(given...);
        }
    };
};

// One name for several functions: the arguments decide which it is.
struct Overloaded {
    const void* address() const { return nullptr; }

    template <class Call>
    struct Start : Configured<Call> {
        template <class... Arguments>
        void operator()(Arguments... arguments) {
            this->start(arguments...);
        }
    };
};

struct Tag {};
template <class... Parameters>
Typed<Parameters...> signature(void (*kernel)(Parameters...), Tag) {
    return {kernel};
}

template <class Signature, class Call>
struct Kernel {
    Signature signature;
    Call call;
    const char *name, *file;
    int line;

    auto operator()(dim3 grid, dim3 block, size_t shared = 0, cudaStream_t stream = nullptr) const {
        Launch launch{name, file, line, signature.address(), grid, block, shared, stream};
        return typename Signature::template Start<Call>{{call, launch}};
    }
};

template <class>
void accepts(...);
template <class F>
auto accepts(int) -> decltype(static_cast<F*>(nullptr)->operator()(Tag{}));
template <class Find>
constexpr bool is_overloaded = __is_same(decltype(accepts<Find>(0)), void);

template <class Find, class Call>
auto kernel(const char* name, Find find, Call call, SIMULATOR_CALLER) {
    if constexpr (is_overloaded<Find>)
        return Kernel<Overloaded, Call>{{}, call, name, file, line};
    else
        return Kernel<decltype(find(Tag{})), Call>{find(Tag{}), call, name, file, line};
}

// A kernel library has these two under CUDA's names, as one that is linked with NVIDIA's runtime
// has, for a host that looks them up there.
#ifdef __APPLE__
#define SIMULATOR_C_NAME(name) __asm__("_" name)
#else
#define SIMULATOR_C_NAME(name) __asm__(name)
#endif
SIMULATOR_EXPORT const char* error_name(cudaError_t error) SIMULATOR_C_NAME("cudaGetErrorName");
SIMULATOR_EXPORT const char* error_string(cudaError_t error) SIMULATOR_C_NAME("cudaGetErrorString");
#undef SIMULATOR_C_NAME
__attribute__((weak)) const char* error_name(cudaError_t error) {
    return api::cudaGetErrorName(error);
}
__attribute__((weak)) const char* error_string(cudaError_t error) {
    return api::cudaGetErrorString(error);
}

}  // namespace simulator

// The name is written out where it stands, so the call is direct and can be inlined. `signature`
// depends on its tag to make a name that stands for several functions a failed substitution rather
// than an error.
#define SIMULATOR_KERNEL(...)                                                 \
    ::simulator::kernel(                                                      \
        #__VA_ARGS__,                                                         \
        [&](auto tag) -> decltype(::simulator::signature(__VA_ARGS__, tag)) { \
            return ::simulator::signature(__VA_ARGS__, tag);                  \
        },                                                                    \
        [&](const auto&... arguments) { __VA_ARGS__(arguments...); })
