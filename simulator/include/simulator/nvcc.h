// What a .cu file finds before its first line: what nvcc says of itself, and the headers that it
// includes. (__CUDACC__ and __NVCC__ are spelled otherwise by the rewriter, which says why.)
#pragma once
#define SIMULATOR_CUDACC 1
#define SIMULATOR_NVCC 1
#define __CUDACC_VER_MAJOR__ 13
#define __CUDACC_VER_MINOR__ 0
#define __CUDACC_VER_BUILD__ 0
#define __CUDACC_EXTENDED_LAMBDA__ 1
// The architecture that TORCH_CUDA_ARCH_LIST names, or sm_90a. nvcc defines all but the first of
// these for device code alone, but nothing else asks.
#ifndef SIMULATOR_ARCHITECTURE
#define SIMULATOR_ARCHITECTURE 900
#define SIMULATOR_ARCHITECTURE_A
#endif
#define __CUDA_ARCH_LIST__ SIMULATOR_ARCHITECTURE
#if defined(SIMULATOR_ARCHITECTURE_A) || defined(SIMULATOR_ARCHITECTURE_F)
#define __CUDA_ARCH_FAMILY_SPECIFIC__ SIMULATOR_ARCHITECTURE
#endif
#ifdef SIMULATOR_ARCHITECTURE_A
#define __CUDA_ARCH_SPECIFIC__ SIMULATOR_ARCHITECTURE
#if SIMULATOR_ARCHITECTURE == 900
#define __CUDA_ARCH_FEAT_SM90_ALL 1
#elif SIMULATOR_ARCHITECTURE == 1000
#define __CUDA_ARCH_FEAT_SM100_ALL 1
#elif SIMULATOR_ARCHITECTURE == 1030
#define __CUDA_ARCH_FEAT_SM103_ALL 1
#elif SIMULATOR_ARCHITECTURE == 1100
#define __CUDA_ARCH_FEAT_SM110_ALL 1
#elif SIMULATOR_ARCHITECTURE == 1200
#define __CUDA_ARCH_FEAT_SM120_ALL 1
#elif SIMULATOR_ARCHITECTURE == 1210
#define __CUDA_ARCH_FEAT_SM121_ALL 1
#endif
#endif
#include <assert.h>
#include <time.h>
#include "../cuda_runtime.h"
