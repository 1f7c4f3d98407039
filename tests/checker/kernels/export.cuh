// What the kernels share. Each file has kernels with planted bugs and kernels with none: a line
// that is wrong ends with BUG, the function and what the checker must say of it there; in a
// function that no such line names, nothing is to be found.
#pragma once

// The functions that tests call, with x and y of n = 1000 elements.
#define EXPORT(function, ...) \
    extern "C" void function(const float* x, float* y, int n) { __VA_ARGS__; }

constexpr int kThreads = 128;
constexpr int kWarp = 32;

inline int blocks_of(int n) { return (n + kThreads - 1) / kThreads; }

// Memory that the call clears, and gives back at its end.
template <class T>
struct Cleared {
    explicit Cleared(int count = 1) {
        cudaMalloc(&data, count * sizeof(T));
        cudaMemset(data, 0, count * sizeof(T));
    }
    ~Cleared() { cudaFree(data); }
    T* data;
};
