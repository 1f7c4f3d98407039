// CUDA's runtime for a process without a GPU, as far as a launch goes: it notes which kernels are
// registered, and by which fat binary, and which are launched. A kernel that is not registered, or
// whose fat binary does not name it, cannot be launched.

#include <cstring>
#include <map>
#include <string>

struct Dim {
    unsigned x, y, z;
};
struct Wrapper {  // a fat binary as nvcc hands it over
    int magic, version;
    const unsigned* image;
};
struct Kernel {
    std::string name;
    const Wrapper* of;
};

static std::map<const void*, Kernel> registered;
static std::string launched;
static Dim grid, block;
static size_t shared;
static void* stream;

static int launch(const Kernel& kernel) {
    // The header of a fat binary: its magic number, its version, and the bytes that follow it.
    const size_t bytes = *reinterpret_cast<const size_t*>(kernel.of->image + 2);
    const std::string image(reinterpret_cast<const char*>(kernel.of->image), bytes);
    if (image.find(".text." + kernel.name) == std::string::npos) return 98;
    launched += kernel.name + "\n";
    return 0;
}

extern "C" {
const char* fake_launched() { return launched.c_str(); }

void** __cudaRegisterFatBinary(void* wrapper) { return new void*(wrapper); }
void __cudaRegisterFatBinaryEnd(void**) {}
void __cudaUnregisterFatBinary(void**) {}
char __cudaInitModule(void**) { return 1; }
void __cudaRegisterFunction(void** handle, const char* function, char*, const char* name, int,
                            void*, void*, void*, void*, int*) {
    registered[function] = {name, static_cast<const Wrapper*>(*handle)};
}
unsigned __cudaPushCallConfiguration(Dim g, Dim b, size_t s, void* st) {
    grid = g, block = b, shared = s, stream = st;
    return 0;
}
int __cudaPopCallConfiguration(Dim* g, Dim* b, size_t* s, void** st) {
    *g = grid, *b = block, *s = shared, *st = stream;
    return 0;
}
int __cudaGetKernel(const void** kernel, const void* function) {
    *kernel = function;
    return registered.count(function) ? 0 : 98;
}
int cudaLaunchKernel(const void* function, Dim, Dim, void**, size_t, void*) {
    const auto found = registered.find(function);
    return found == registered.end() ? 98 : launch(found->second);
}
int __cudaLaunchKernel(const void* kernel, Dim g, Dim b, void** arguments, size_t s, void* st) {
    return cudaLaunchKernel(kernel, g, b, arguments, s, st);
}
int cudaGetLastError() { return 0; }
}
