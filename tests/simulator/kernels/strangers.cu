// Forms that nvcc takes and C++ compilers do not, as other people's programs have them.
#include <cstdio>
#include <cub/cub.cuh>

template <class T>
struct Atom {
    T value;
};
namespace inner {
template <class T, int N>
struct Shape {
    T sizes[N];
};
template <class T>
struct Config {
    using Atom = Atom<T>;  // of the global namespace
    using Shape = Shape<T, 2>;
    Atom atom;
    Shape shape;
};
}  // namespace inner

__global__ void aliases(int* y) {
    inner::Config<int> config{{40}, {{1, 1}}};
    *y = config.atom.value + config.shape.sizes[0] + config.shape.sizes[1];
}

// Assembly of the host, in a function that is said to be its and in one that is not.
__host__ unsigned long long ticks() {
    unsigned low = 1, high = 0;
#ifdef __x86_64__
    asm volatile("rdtsc" : "=a"(low), "=d"(high));
#endif
    return low | (unsigned long long)high << 32;
}
static void barrier() { asm volatile("" : : : "memory"); }

// A block of 64 threads, though the collective's template says 1024.
__global__ void fewer_threads(float* out) {
    using Reduce = cub::BlockReduce<float, 1024>;
    __shared__ typename Reduce::TempStorage storage;
    float sum = Reduce(storage).Sum(8.0f, blockDim.x);
    __syncthreads();
    auto larger = [](float a, float b) { return a > b ? a : b; };
    float most = Reduce(storage).Reduce(float(448 + threadIdx.x), larger, blockDim.x);
    if (threadIdx.x == 0) out[0] = sum, out[1] = most;
}

__global__ void add_int_kernel(int* y, int n) { *y += n; }
// clang-format off
#define LAUNCH(tag, y, n) add_##tag##_kernel < < < dim3(1), 1 > > > (y, n)
// clang-format on

// Directives within a statement, and qualifiers in an order of the author's own.
__device__ float loaded(const float* p, bool guarded) {
    float x = 0;
    if (guarded)
        asm volatile(
#if defined(WIDE) && WIDE > 1
            "no.such.instruction %0, [%1];"
#elif __CUDACC_VER_MAJOR__ >= 11
            "ld.global.nc.L2::128B.f32 %0, [%1];"
#else
            "ld.global.nc.f32 %0, [%1];"
#endif
            : "=f"(x)
            : "l"(p));
    else
        asm volatile("ld.f32.global %0, [%1];" : "=f"(x) : "l"(p));
    return x;
}
__global__ void load(const float* x, float* y) {
    y[threadIdx.x] = 2 * loaded(x + threadIdx.x, threadIdx.x & 1);
}

extern "C" void run(int* y, float* reduced, const float* x, float* doubled) {
    const auto begin = std::chrono::steady_clock::now();
    const unsigned long long before = ticks();
    aliases<<<1, 1>>>(y);
    LAUNCH(int, y, 58);
    fewer_threads<<<1, 64>>>(reduced);
    load<<<1, 32>>>(x, doubled);
    barrier();
    if (ticks() < before || std::chrono::steady_clock::now() < begin)
        printf("time runs backwards\n");
}
