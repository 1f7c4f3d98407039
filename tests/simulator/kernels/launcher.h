// A function for Python that launches a kernel.
#pragma once
#define LAUNCHER(function, parameters, ...)      \
    extern "C" cudaError_t function parameters { \
        __VA_ARGS__;                             \
        return cudaGetLastError();               \
    }
