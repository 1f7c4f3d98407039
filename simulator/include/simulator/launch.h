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
static SIMULATOR_BEFORE_SHARED thread_local char static_shared __attribute__((aligned(1024)));
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

// What runs a kernel, in the library that has it: its `__shared__` variables and threadIdx are
// there.
struct Site {
    const void* kernel;
    void (*run_threads)(Block&);
    char* (*static_shared)();
};
template <class Body>
constexpr Site site(const void* kernel = nullptr) {
    return {kernel, run_threads<Body>, [] { return &static_shared; }};
}

// A part of a kernel library lacks kernels. In the place of each it has a function that stands for
// it until it is launched: toolchain/parts.py.
#ifdef SIMULATOR_PART
extern "C" __attribute__((visibility("hidden"))) const Site* jitload_found(const void* function);
inline Site found(const Site& here, const void* function) {
    const Site* const there = jitload_found(function);
    return there ? *there : here;
}
#else
inline Site found(const Site& here, const void*) { return here; }
#endif

// What the executor has to know of the kernel's library.
inline void set_code(Launch& launch, const Site& site) {
    launch.run_threads = site.run_threads;
    launch.static_shared = site.static_shared;
    launch.instrumented = is_instrumented;
}

// A launch whose arguments have still to come. `call` is the kernel as a call of its name finds it.
template <class Call>
struct Configured {
    Call call;
    Launch launch;

    template <class Body>
    void start(const Body& body, const Site& site) {
        launch.body = &body;
        launch.body_bytes = sizeof body;
        set_code(launch, site);
        run(launch);
    }
    template <class... Arguments>
    void start_call(Arguments... arguments) {
        auto body = [call = call, arguments...] { call(arguments...); };
        start(body, site<decltype(body)>());
    }
};

// Takes the first parameters alone, for a kernel that has defaults for the others: as many as there
// are types in Taken, or more. Braces have no type, so that a template cannot take them.
template <class Call, class Taken, class... Left>
struct First : Configured<Call> {
    First(Call call, Launch launch) : Configured<Call>{call, launch} {}
    void operator()() = delete;
};
template <class Call, class... Taken, class Next, class... Left>
struct First<Call, void (*)(Taken...), Next, Left...>
    : First<Call, void (*)(Taken..., Next), Left...> {
    using More = First<Call, void (*)(Taken..., Next), Left...>;
    using More::More;
    using More::operator();
    void operator()(Taken... taken) { this->start_call(taken...); }
};

template <bool>
struct Fewer;
template <>
struct Fewer<true> {
    using arguments = void;
};

// With a kernel's parameters known, arguments convert to them as in any call: 0 and {1, 2} too.
template <class Function, class Call, class... Parameters>
struct Typed : First<Call, void (*)(), Parameters...> {
    Function function;
    using First<Call, void (*)(), Parameters...>::operator();
    void operator()(Parameters... parameters) {
        const Site site = function.site();
        this->launch.has_parameters = true;
        this->start(Function::bind(site, parameters...), site);
    }
    // The kernel has defaults for those that are not given.
    template <class... Given>
    typename Fewer<(sizeof...(Given) < sizeof...(Parameters))>::arguments operator()(
        Given... given) {
        this->start_call(given...);
    }
};

// A kernel that is known where it is launched. What runs it has it inlined, and is named after it.
template <auto kernel>
struct Code {};
template <class... Parameters, void (*kernel)(Parameters...)>
struct Code<kernel> {
    static auto bind(const Site&, Parameters... parameters) {
        return [parameters...] { kernel(parameters...); };
    }
    using Body = decltype(bind(Site(), static_cast<Parameters (*)()>(nullptr)()...));

    static Site site() {
        const Site here = simulator::site<Body>();
        return found(here, reinterpret_cast<const void*>(here.run_threads));
    }
    const void* address() const { return reinterpret_cast<const void*>(kernel); }
    template <class Call>
    auto start(Call call, Launch launch) const {
        return Typed<Code, Call, Parameters...>{{call, launch}, {}};
    }
};

// One that is known when it is launched.
template <class... Parameters>
struct Pointer {
    void (*kernel)(Parameters...);

    static auto bind(const Site& site, Parameters... parameters) {
        const auto kernel =
            reinterpret_cast<void (*)(Parameters...)>(const_cast<void*>(site.kernel));
        return [kernel, parameters...] { kernel(parameters...); };
    }
    using Body = decltype(bind(Site(), static_cast<Parameters (*)()>(nullptr)()...));

    const void* address() const { return reinterpret_cast<const void*>(kernel); }
    Site site() const { return found(simulator::site<Body>(address()), address()); }
    template <class Call>
    auto start(Call call, Launch launch) const {
        return Typed<Pointer, Call, Parameters...>{{call, launch}, *this};
    }
};
template <class... Parameters>
Pointer<Parameters...> pointer(void (*kernel)(Parameters...)) {
    return {kernel};
}

#ifdef SIMULATOR_PART
// The site of a kernel that a part has, which is at `kernel`: the part has its name for a jump.
template <class Function>
struct Held {
    static Site at(void (*kernel)()) {
        return site<typename Function::Body>(reinterpret_cast<const void*>(kernel));
    }
};
template <auto kernel>
struct Held<Code<kernel>> {
    static Site at(void (*run_threads)()) {
        Site found = site<typename Code<kernel>::Body>();
        found.run_threads = reinterpret_cast<void (*)(Block&)>(run_threads);
        return found;
    }
};
template <class Function>
Site held(void (*function)()) {
    return Held<Function>::at(function);
}
#endif

// A kernel's name, or an expression for one, given to `__which`. Is it a function or a pointer to
// one?
struct Meant {
    template <class... Parameters>
    static Pointer<Parameters...> __of(void (*kernel)(Parameters...)) {
        return {kernel};
    }
};
// Which function it is: the one, or the one that has these parameters.
struct One {
    template <class... Parameters>
    static constexpr auto __of(void (*kernel)(Parameters...)) {
        return kernel;
    }
};
template <class... Parameters>
struct OneOf {
    static constexpr auto __of(void (*kernel)(Parameters...)) { return kernel; }
};
// No function that is known where it is launched.
struct Unknown {};

// These two for SIMULATOR_KERNEL, which stands among a program's own macros: its names are
// reserved.
template <auto kernel>
constexpr Code<kernel> __code() {
    return {};
}
constexpr Unknown __unknown() { return {}; }

template <class Find, class Which>
using Found = decltype(static_cast<Find*>(nullptr)->operator()(Which()));
template <class Mean, class Which, class = void>
constexpr bool means = false;
template <class Mean, class Which>
constexpr bool means<Mean, Which, decltype(void(static_cast<Found<Mean, Which>*>(nullptr)))> = true;

// One name for several functions: the arguments decide which it is.
template <class Mean, class Find>
struct Several {
    template <class Call>
    struct Start : Configured<Call> {
        template <class... Arguments>
        void operator()(Arguments... arguments) {
            if constexpr (means<Mean, OneOf<Arguments...>>)
                Found<Find, OneOf<Arguments...>>().start(this->call, this->launch)(arguments...);
            else
                this->start_call(arguments...);
        }
    };
    const void* address() const { return nullptr; }
    template <class Call>
    auto start(Call call, Launch launch) const {
        return Start<Call>{{call, launch}};
    }
};

template <class Function, class Call>
struct Kernel {
    Function function;
    Call call;
    const char *name, *file;
    int line;

    auto operator()(dim3 grid, dim3 block, size_t shared = 0, cudaStream_t stream = nullptr) const {
        return function.start(
            call, {name, file, line, function.address(), grid, block, shared, stream});
    }
};

template <class Mean, class Find, class Call>
auto __kernel(const char* name, Mean mean, Find, Call call, SIMULATOR_CALLER) {
    if constexpr (!means<Mean, Meant>)
        return Kernel<Several<Mean, Find>, Call>{{}, call, name, file, line};
    else if constexpr (__is_same(Found<Find, One>, Unknown))
        return Kernel<Found<Mean, Meant>, Call>{mean(Meant()), call, name, file, line};
    else
        return Kernel<Found<Find, One>, Call>{{}, call, name, file, line};
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

// The name is written out where it stands, so the call is direct and can be inlined. Types depend
// on `__which` to make what the name does not stand for a failed substitution rather than an error,
// and a variable one that is found when it is launched.
#define SIMULATOR_KERNEL(...)                                                           \
    ::simulator::__kernel(                                                              \
        #__VA_ARGS__,                                                                   \
        [&](auto __which) -> decltype(__which.__of(__VA_ARGS__)) {                      \
            return __which.__of(__VA_ARGS__);                                           \
        },                                                                              \
        [&](auto __which) {                                                             \
            if constexpr (__builtin_constant_p(__which.__of(__VA_ARGS__) == nullptr)) { \
                constexpr auto __known = __which.__of(__VA_ARGS__);                     \
                return ::simulator::__code<__known>();                                  \
            } else                                                                      \
                return ::simulator::__unknown();                                        \
        },                                                                              \
        [&](const auto&... __arguments) { __VA_ARGS__(__arguments...); })
