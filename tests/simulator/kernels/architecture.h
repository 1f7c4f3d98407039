// Where __CUDA_ARCH__ is defined, in a header.
#pragma once

#define ON_DEVICE __host__ __device__ __forceinline__

#ifdef __CUDACC__
#define BY_NVCC 1
#else
#define BY_NVCC 0
#endif

// The parameters stand in branches of their own.
#if BY_NVCC
ON_DEVICE int halves(int a) {
#else
int halves(int a, int b) {
#endif
#if defined(__CUDA_ARCH__)
    return __CUDA_ARCH__ / 2;
#else
    return a;
#endif
}

// What a macro is depends on who reads it.
#if __CUDA_ARCH__ >= 800
#define FAST  // only there
#define WIDTH 4
#else
#define WIDTH 1
#endif
#ifdef FAST
#define PATHS(slow, fast) (fast)
#else
#define PATHS(slow, fast) (slow)
#endif
#define TWICE_THE_WIDTH (2 * WIDTH)

struct Counter {
    int count;
    __device__ Counter(int c) : count{c} {
#ifdef __CUDA_ARCH__
        count += __CUDA_ARCH__;
#endif
    }
    __device__ int operator()(int x) const {
#ifndef __CUDA_ARCH__
        return x;
#else
        return x + count;
#endif
    }
};

// One asks for what another defines, and two define one name.
#if __CUDA_ARCH__ >= 800
#define HAS_COPIES
#endif
#ifdef HAS_COPIES
#define DEPTH 3
#endif
#if __CUDA_ARCH__ >= 2000
#define DEPTH 5
#endif

#define UNROLL #pragma unroll
