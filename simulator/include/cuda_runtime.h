// CUDA for g++: what a .cu file sees without including anything. See simulator/block.h for how it
// runs.
#pragma once
#define __CUDA_RUNTIME_H__
#include <stdio.h>

#ifdef __SANITIZE_THREAD__  // compiled by itself, and not once more in what runs it
#define __global__ __attribute__((__flatten__, __noinline__))
#else
#define __global__
#endif
#define __device__
#define __host__
#define __constant__
#define __managed__
// With nvcc arrays begin at multiples of 16 bytes, and kernels move so many at once.
#define __shared__ __attribute__((__aligned__(16))) thread_local
#define __grid_constant__
#define __forceinline__ inline __attribute__((__always_inline__))
#define __launch_bounds__(...)
// What they say, in the kernel's body.
#ifdef __SANITIZE_THREAD__
#define SIMULATOR_LAUNCH_BOUNDS(...) ::simulator::__hold_bounds(__FILE__, __LINE__, __VA_ARGS__);
#else
#define SIMULATOR_LAUNCH_BOUNDS(...)
#endif
// The cluster's dimensions, in the kernel's body.
#define __cluster_dims__(...)
#define SIMULATOR_CLUSTER_DIMS(...) ::simulator::__hold_cluster(__VA_ARGS__);
#define __block_size__(...)
#define __maxnreg__(...)
#define __align__(n) __attribute__((__aligned__(n)))
#ifndef __clang__
#define __builtin_assume(...) ((__VA_ARGS__) ? void() : __builtin_unreachable())
#endif

// All `extern __shared__` arrays of a process are one, of the runtime's. In a file the rewriter
// spells `extern __shared__ T name[];` SIMULATOR_DYNAMIC_SHARED T name[]
// SIMULATOR_DYNAMIC_SHARED_NAME; but a template's instance would lose that name, so in a function
// it spells it `typedef T simulator_name[]; SIMULATOR_DYNAMIC_SHARED_HERE(simulator_name, name);`
#define SIMULATOR_DYNAMIC_SHARED extern __attribute__((__visibility__("default"))) __thread
#ifdef __APPLE__
#define SIMULATOR_DYNAMIC_SHARED_NAME __asm__("_simulator_dynamic_shared")
#else
#define SIMULATOR_DYNAMIC_SHARED_NAME __asm__("simulator_dynamic_shared")
#endif
#define SIMULATOR_DYNAMIC_SHARED_HERE(type, name) \
    __attribute__((__unused__)) auto& name = *reinterpret_cast<type*>(simulator_blocks_shared)
SIMULATOR_DYNAMIC_SHARED char simulator_blocks_shared[] SIMULATOR_DYNAMIC_SHARED_NAME;

#include "simulator/launch.h"
#include "simulator/unset.h"

#include "simulator/atomics.h"
#include "simulator/barrier.h"
#include "simulator/intrinsics.h"
#include "simulator/warp.h"
