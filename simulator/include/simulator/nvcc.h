// What a .cu file finds before its first line: what nvcc says of itself, and the headers that it
// includes. (__CUDACC__ and __NVCC__ are spelled otherwise by the rewriter, which says why.)
#pragma once
#define SIMULATOR_CUDACC 1
#define SIMULATOR_NVCC 1
#define __CUDACC_VER_MAJOR__ 13
#define __CUDACC_VER_MINOR__ 0
#define __CUDACC_VER_BUILD__ 0
#define __CUDACC_EXTENDED_LAMBDA__ 1
#define __CUDA_ARCH_FEAT_SM90_ALL 1  // of sm_90a, to device code alone: nothing else asks
#include <assert.h>
#include <time.h>
#include "../cuda_runtime.h"
