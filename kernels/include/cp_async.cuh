// Copies from global to shared memory that go on while the thread works on something else
// ("asynchronous copies", cp.async in PTX).
//
// They need no register on the way, which a plain load does from its start to its end. A thread
// commits the copies that it has started as a group, and waits for its own groups alone.
#pragma once

#include <cuda_pipeline_primitives.h>
#include "vec.cuh"

// What shared memory for copies consists of: they are fastest when they begin with a line of it.
// 16 bytes beyond one, a warp's 512 bytes touch five lines and not four.
struct alignas(128) CacheLine {
    char at[128];
};

// (Inline for the simulator's compiler, which at -O1 would call these. nvcc inlines them anyway.)

// N elements, which have 4, 8 or 16 bytes together and stand on a multiple of that. 16 bytes are
// read as `load_once` reads them.
//
// Not for stages in shared memory whose number all threads of a block share: there ptxas of CUDA
// 13.0 names an odd register as the policy's (desc[UR1] in the listing), and the GPU reports an
// illegal instruction. Tiles that several blocks read want no such policy: see mma.cuh.
template <int N, class T>
__device__ __forceinline__ void cp_async(T* shared, const T* global) {
#if PLAYGROUND_CUDA && __CUDA_ARCH__ >= 800
    if constexpr (N * sizeof(T) == kVecBytes) {
        asm volatile("cp.async.cg.shared.global.L2::cache_hint [%0], [%1], 16, %2;" ::"r"(
                         uint32_t(__cvta_generic_to_shared(shared))),
                     "l"(global), "l"(evict_last())
                     : "memory");
        return;
    }
#endif
    __pipeline_memcpy_async(shared, global, N * sizeof(T));
}
__device__ __forceinline__ void cp_async_commit() { __pipeline_commit(); }

// Returns when all but the last `pending` of the committed groups have arrived.
template <int pending>
__device__ __forceinline__ void cp_async_wait() {
    __pipeline_wait_prior(pending);
}
