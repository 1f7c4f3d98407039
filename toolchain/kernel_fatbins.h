// The host code of a .cu whose kernels are compiled one by one: toolchain/kernel_fatbins.py.
//
// nvcc registers the kernels of a library when it is opened. Here that is noted, and done when the
// fat binary is there that has them.

#include <cstdlib>

#include <cuda_runtime_api.h>

namespace std {
[[noreturn]] void __throw_runtime_error(const char*);
}

namespace jitload {

struct Kernel {  // what nvcc registers of one
    const char* function;
    char* device_function;
    const char* name;
    int threads;
    void *tid, *bid, *block, *grid;
    int* warp;
};

static Kernel* kernels;
static const void** missing;  // of each kernel the function that stands for it, until a launch
static int count;

}  // namespace jitload

#define JITLOAD_VISIBLE extern "C" __attribute__((visibility("protected")))

// Asked by number to have a kernel there, at its first launch; returns what is wrong, or nothing.
JITLOAD_VISIBLE const char* (*jitload_find)(int);
const char* (*jitload_find)(int) = nullptr;

JITLOAD_VISIBLE const char* jitload_kernel(int number) {
    return number < jitload::count ? jitload::kernels[number].name : nullptr;
}

namespace jitload {

static void need(const void* function) {
    for (int i = 0; i < count; ++i) {
        if (__atomic_load_n(&missing[i], __ATOMIC_ACQUIRE) != function) continue;
        const char* wrong = jitload_find ? jitload_find(i) : "it has no kernels yet";
        if (wrong != nullptr) std::__throw_runtime_error(wrong);
        __atomic_store_n(&missing[i], nullptr, __ATOMIC_RELEASE);
        return;
    }
}

}  // namespace jitload

// CUDA's functions that take a kernel. A name that this CUDA has not is never called.
#define JITLOAD_BEFORE(name, parameters, arguments)                        \
    extern "C" __attribute__((weak)) cudaError_t __real_##name parameters; \
    extern "C" cudaError_t __wrap_##name parameters {                      \
        jitload::need(function);                                           \
        return __real_##name arguments;                                    \
    }

JITLOAD_BEFORE(__cudaGetKernel, (void** kernel, const void* function), (kernel, function))
JITLOAD_BEFORE(cudaGetKernel, (void** kernel, const void* function), (kernel, function))
JITLOAD_BEFORE(cudaGetFuncBySymbol, (void** found, const void* function), (found, function))
JITLOAD_BEFORE(cudaLaunchKernel,
               (const void* function, dim3 grid, dim3 block, void** arguments, size_t shared,
                cudaStream_t stream),
               (function, grid, block, arguments, shared, stream))
JITLOAD_BEFORE(cudaLaunchCooperativeKernel,
               (const void* function, dim3 grid, dim3 block, void** arguments, size_t shared,
                cudaStream_t stream),
               (function, grid, block, arguments, shared, stream))
JITLOAD_BEFORE(cudaLaunchKernelExC,
               (const void* configuration, const void* function, void** arguments),
               (configuration, function, arguments))
JITLOAD_BEFORE(cudaFuncGetAttributes, (void* attributes, const void* function),
               (attributes, function))
JITLOAD_BEFORE(cudaFuncSetAttribute, (const void* function, int attribute, int value),
               (function, attribute, value))
JITLOAD_BEFORE(cudaFuncSetCacheConfig, (const void* function, int configuration),
               (function, configuration))
JITLOAD_BEFORE(cudaOccupancyMaxActiveBlocksPerMultiprocessor,
               (int* blocks, const void* function, int threads, size_t shared),
               (blocks, function, threads, shared))
JITLOAD_BEFORE(cudaOccupancyMaxActiveBlocksPerMultiprocessorWithFlags,
               (int* blocks, const void* function, int threads, size_t shared, unsigned flags),
               (blocks, function, threads, shared, flags))
JITLOAD_BEFORE(cudaOccupancyAvailableDynamicSMemPerBlock,
               (size_t* bytes, const void* function, int blocks, int threads),
               (bytes, function, blocks, threads))
JITLOAD_BEFORE(cudaOccupancyMaxActiveClusters,
               (int* clusters, const void* function, const void* configuration),
               (clusters, function, configuration))
JITLOAD_BEFORE(cudaOccupancyMaxPotentialClusterSize,
               (int* size, const void* function, const void* configuration),
               (size, function, configuration))

extern "C" void** __real___cudaRegisterFatBinary(void*);
extern "C" void __real___cudaRegisterFatBinaryEnd(void**);
extern "C" void __real___cudaRegisterFunction(void**, const char*, char*, const char*, int, void*,
                                              void*, void*, void*, int*);

extern "C" void** __wrap___cudaRegisterFatBinary(void*) {
    static void* none;
    return &none;
}
extern "C" void __wrap___cudaRegisterFatBinaryEnd(void**) {}
extern "C" void __wrap___cudaUnregisterFatBinary(void**) {}  // the library stays open
extern "C" void __wrap___cudaRegisterFunction(void**, const char* function, char* device_function,
                                              const char* name, int threads, void* tid, void* bid,
                                              void* block, void* grid, int* warp) {
    using namespace jitload;
    kernels = static_cast<Kernel*>(realloc(kernels, (count + 1) * sizeof(Kernel)));
    missing = static_cast<const void**>(realloc(missing, (count + 1) * sizeof(void*)));
    kernels[count] = {function, device_function, name, threads, tid, bid, block, grid, warp};
    missing[count++] = function;
}

// Register a fat binary, and the kernels of these numbers, which it has.
JITLOAD_VISIBLE void jitload_give(const void* image, const int* numbers, int wanted) {
    struct Wrapper {
        int magic, version;
        const void* image;
        void* more;
    };
    auto* wrapper = new Wrapper{0x466243b1, 1, image, nullptr};  // as CUDA's fatbinary_section.h
    void** handle = __real___cudaRegisterFatBinary(wrapper);
    for (int i = 0; i < wanted; ++i) {
        const jitload::Kernel& k = jitload::kernels[numbers[i]];
        __real___cudaRegisterFunction(handle, k.function, k.device_function, k.name, k.threads,
                                      k.tid, k.bid, k.block, k.grid, k.warp);
    }
    __real___cudaRegisterFatBinaryEnd(handle);
}
