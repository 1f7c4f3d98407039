// __CUDA_ARCH__ is defined in the bodies of device functions, and nowhere else.
#include "architecture.h"

#define ARCHITECTURE (__CUDA_ARCH__ + 0)
#define AT_LEAST(n) (__CUDA_ARCH__ >= (n))
// nvcc parses kernels for the host, too, where it knows no __CUDA_ARCH__; no directive can stand
// in a macro.
#if PLAYGROUND_CUDA
#define WRITES(name, value) \
    __global__ void name(int* y) { y[0] = (value) + 900; }
#else
#define WRITES(name, value) \
    __global__ void name(int* y) { y[0] = (value) + __CUDA_ARCH__; }
#endif

#if __CUDA_ARCH__ >= 700
static int of_host = 1;
#else
static int of_host = 0;
#endif

// The host has no use for these: the device's branch is taken.
#if __CUDA_ARCH__ >= 800
__device__ int newest() { return 80; }
#elif __CUDA_ARCH__ >= 700
__device__ int newest() { return 70; }
#else
__device__ int newest() { return 0; }
#endif

// The host's own is another function: it is the one that both call here.
#ifndef __CUDA_ARCH__
inline int both() { return 3; }
#endif

__global__ void branches(int* y) {
#if __CUDA_ARCH__ >= 700
    y[0] = 1;
#endif
#if __CUDA_ARCH__ < 700
    y[1] = 9;
#elif __CUDA_ARCH__ < 800
    y[1] = 8;
#elif AT_LEAST(900)
    y[1] = 2;
#else
    y[1] = 7;
#endif
#ifdef __CUDA_ARCH__
    y[2] = 3;
#endif
#ifndef __CUDA_ARCH__
    y[3] = 9;
#else
    y[3] = 4;
#endif
#if !defined(__CUDA_ARCH__) || __CUDA_ARCH__ < 300
    y[4] = 9;
#elif defined __CUDA_ARCH__
    y[4] = 5;
#endif
#ifdef __CUDA_ARCH__
    if (__CUDA_ARCH__ >= 900) {
        y[5] = 6;
    }
    y[6] = ARCHITECTURE;
#endif
    y[7] = newest();
    y[8] = halves(1);
    y[9] = Counter(4)(1);
}

WRITES(by_macro, 5)

__global__ void macros(int* y) {
    y[0] = WIDTH;
    y[1] = TWICE_THE_WIDTH;
#ifdef FAST
    y[2] = PATHS(1, 2);
#endif
    y[3] = __LINE__;
#ifdef DEPTH
    UNROLL
    for (int i = 0; i < 2; i++) y[4] += DEPTH;
#endif
}

template <class F>
__global__ void call(int* y, F f) {
    y[0] = f();
}

template <class T>
struct Held {
    static __device__ T value();
};
template <class T>
__device__ auto Held<T>::value() -> T {
#if __CUDA_ARCH__
    return 12;
#else
    return 13;
#endif
}
__global__ void held(int* y) { y[0] = Held<int>::value(); }

extern "C" void run_architecture(int* y) {
    branches<<<1, 1>>>(y);
    by_macro<<<1, 1>>>(y + 10);
    call<<<1, 1>>>(y + 11, [=] __device__() {
#if __CUDA_ARCH__ >= 900
        return 11;
#else
        return 0;
#endif
    });
    held<<<1, 1>>>(y + 12);
#if defined(__CUDA_ARCH__) && !PLAYGROUND_CUDA  // CUDA forbids that this depends on it
    call<<<1, 1>>>(y + 13, [=] __device__() { return -1; });
#else
    call<<<1, 1>>>(y + 13, [=] __device__() { return 14; });
#endif
    macros<<<1, 1>>>(y + 14);
    cudaDeviceSynchronize();
}

extern "C" int run_host() {
#if defined(__CUDA_ARCH__)
    return 1;
#else
    return of_host + both();
#endif
}

extern "C" int run_macros() {
#ifdef FAST
    return -1;
#else
    return 100 * WIDTH + 10 * TWICE_THE_WIDTH + PATHS(1, 2);
#endif
}

extern "C" int run_nvcc() { return 1000 * BY_NVCC + (__CUDACC_VER_MAJOR__ > 11) + __LINE__; }
