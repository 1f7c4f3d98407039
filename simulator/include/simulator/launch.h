// kernel<<<grid, block, shared, stream>>>(arguments), which the rewriter spells
// SIMULATOR_KERNEL(kernel)(grid, block, shared, stream)(arguments).
#pragma once
#include "api.h"
#include "block.h"

#define SIMULATOR_BUILT_IN __attribute__((visibility("hidden"))) inline thread_local
SIMULATOR_BUILT_IN uint3 threadIdx;
SIMULATOR_BUILT_IN uint3 blockIdx;
SIMULATOR_BUILT_IN dim3 blockDim;
SIMULATOR_BUILT_IN dim3 gridDim;
#undef SIMULATOR_BUILT_IN
constexpr int warpSize = simulator::warp_size;

namespace simulator {

// The loop over a block's threads. It runs on a fiber; the kernel is inlined into it.
template <class Body> void run_threads(Block& block) {
    const Body body = *static_cast<const Body*>(block.launch->body);
    const dim3 extent = block.launch->block;
    const unsigned size = block.size;
    here.block = &block;
    blockIdx = block.index;
    blockDim = extent;
    gridDim = block.launch->grid;
    unsigned rank = block.next;
    uint3 index = {rank % extent.x, rank / extent.x % extent.y, rank / extent.x / extent.y};
    for (;;) {
        block.next = rank + 1;
        here.rank = rank;
        threadIdx = index;
        body();
        unsigned next = rank + 1;
        if (block.tracked) { // then others may have started threads while this one waited
            block.finish(rank);
            next = block.next;
        }
        if (next >= size)
            return;
        index.x += next - rank;
        rank = next;
        while (index.x >= extent.x) {
            index.x -= extent.x;
            if (++index.y == extent.y) {
                index.y = 0;
                ++index.z;
            }
        }
    }
}

// A launch whose arguments have still to come.
template <class Call> struct Configured {
    Call call;
    Launch launch;

    template <class... Parameters> void start(Parameters... parameters) {
        auto body = [call = call, parameters...] { call(parameters...); };
        launch.body = &body;
        launch.run_threads = run_threads<decltype(body)>;
        run(launch);
    }
};

// With a kernel's parameters known, arguments convert to them as in any call: 0 and {1, 2} too.
template <class... Parameters> struct Typed {
    void (*kernel)(Parameters...);
    const void* address() const { return reinterpret_cast<const void*>(kernel); }

    template <class Call> struct Start : Configured<Call> {
        void operator()(Parameters... parameters) { this->start(parameters...); }
    };
};

// One name for several functions: the arguments decide which it is.
struct Overloaded {
    const void* address() const { return nullptr; }

    template <class Call> struct Start : Configured<Call> {
        template <class... Arguments> void operator()(Arguments... arguments) {
            this->start(arguments...);
        }
    };
};

struct Tag {};
template <class... Parameters> Typed<Parameters...> signature(void (*kernel)(Parameters...), Tag) {
    return {kernel};
}

template <class Signature, class Call> struct Kernel {
    Signature signature;
    Call call;
    const char *name, *file;
    int line;

    auto operator()(dim3 grid, dim3 block, size_t shared = 0, cudaStream_t = nullptr) const {
        Launch launch{name, file, line, signature.address(), grid, block, shared, nullptr, nullptr};
        return typename Signature::template Start<Call>{{call, launch}};
    }
};

template <class> void accepts(...);
template <class F> auto accepts(int) -> decltype(static_cast<F*>(nullptr)->operator()(Tag{}));
template <class Find> constexpr bool is_overloaded = __is_same(decltype(accepts<Find>(0)), void);

template <class Find, class Call>
auto kernel(const char* name, Find find, Call call, SIMULATOR_CALLER) {
    if constexpr (is_overloaded<Find>)
        return Kernel<Overloaded, Call>{{}, call, name, file, line};
    else
        return Kernel<decltype(find(Tag{})), Call>{find(Tag{}), call, name, file, line};
}

} // namespace simulator

// The name is written out where it stands, so the call is direct and can be inlined. `signature` depends on its tag
// to make a name that stands for several functions a failed substitution rather than an error.
#define SIMULATOR_KERNEL(...)                                                                      \
    ::simulator::kernel(                                                                           \
        #__VA_ARGS__,                                                                              \
        [&](auto tag) -> decltype(::simulator::signature(__VA_ARGS__, tag)) {                      \
            return ::simulator::signature(__VA_ARGS__, tag);                                       \
        },                                                                                         \
        [&](const auto&... arguments) { __VA_ARGS__(arguments...); })
