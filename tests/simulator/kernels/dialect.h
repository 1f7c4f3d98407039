// What a header of somebody else's holds.
#pragma once

#include <algorithm>
#include <cmath>

__constant__ float weights[3] = {1, 2, 3};
static __device__ __constant__ const int of_header = 4;

constexpr int unroll_by = 4;
#define PRAGMA(text) _Pragma(#text)

typedef struct __align__(16) {
    float x, y;
} Pair;

struct __align__(8) Aligned {
    int a;
    __host__ __device__ constexpr Aligned(int a = 0) : a{a} {}
    friend __host__ __device__ Aligned operator+(Aligned l, Aligned r) { return {l.a + r.a}; }
};

template <class T>
struct SharedMemory {
    __device__ inline operator T*() {
        extern __shared__ int memory[];
        return (T*)memory;
    }
};
