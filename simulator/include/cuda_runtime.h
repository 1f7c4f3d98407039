// CUDA for g++: what a .cu file sees without including anything. See simulator/block.h for how it
// runs.
#pragma once
#include <stdio.h>

#define __global__
#define __device__
#define __host__
#define __constant__
#define __managed__
#define __shared__ thread_local
#define __grid_constant__
#define __forceinline__ inline __attribute__((always_inline))
#define __launch_bounds__(...)
#define __align__(n) __attribute__((aligned(n)))

// The rewriter spells `extern __shared__ T name[];` SIMULATOR_DYNAMIC_SHARED T name[]
// SIMULATOR_DYNAMIC_SHARED_NAME; All such arrays of a process are one, of the runtime's.
#define SIMULATOR_DYNAMIC_SHARED extern __attribute__((visibility("default"))) __thread
#ifdef __APPLE__
#define SIMULATOR_DYNAMIC_SHARED_NAME __asm__("_simulator_dynamic_shared")
#else
#define SIMULATOR_DYNAMIC_SHARED_NAME __asm__("simulator_dynamic_shared")
#endif

#include "simulator/launch.h"

#include "simulator/atomics.h"
#include "simulator/barrier.h"
#include "simulator/intrinsics.h"
#include "simulator/warp.h"
