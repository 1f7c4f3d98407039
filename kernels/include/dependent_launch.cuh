// Programmatic dependent launch: a secondary kernel, for what the blocks of a primary one have
// left, is made ready while the primary one is still at work. That spares a microsecond between one
// kernel's end and the next one's begin.
//
// The primary kernel calls `launch_dependents`, the secondary one `grid_dependency_wait` before it
// reads or writes anything. A kernel may be both, for those before and behind it in its stream.
// GPUs can do that from Hopper on, as clusters.
#pragma once

#include "cluster.cuh"

__device__ inline void launch_dependents() {
#if __CUDA_ARCH__ >= 900
    asm volatile("griddepcontrol.launch_dependents;");
#endif
}

// Returns when the primary kernel has ended. A kernel that is not a secondary one waits for
// nothing.
__device__ inline void grid_dependency_wait() {
#if __CUDA_ARCH__ >= 900
    asm volatile("griddepcontrol.wait;" ::: "memory");
#endif
}

// The same, and where to read what the primary kernel has left.
template <class T>
__device__ T* grid_dependency_wait(T* left) {
#if __CUDA_ARCH__ >= 900
    asm volatile("griddepcontrol.wait;" : "+l"(left)::"memory");
#endif
    return left;
}

// Has what a kernel will read brought to the L2 cache, before its time: what the primary kernel may
// still write there is written to that cache, too. From a multiple of 16 bytes on, as many.
__device__ inline void load_to_l2(const void* from, int bytes) {
#if __CUDA_ARCH__ >= 900
    asm volatile("cp.async.bulk.prefetch.L2.global [%0], %1;" ::"l"(from), "r"(bytes) : "memory");
#endif
}

// kernel<<<grid, block, bytes, stream>>>(arguments...), in clusters of `blocks` blocks.
template <class... Parameters, class... Arguments>
void launch_secondary(void (*kernel)(Parameters...), int blocks, unsigned grid, dim3 block,
                      int bytes, cudaStream_t stream, Arguments... arguments) {
    const bool can = has_clusters(kernel);
    ClusterConfig config(can ? blocks : 1, grid, block, bytes, stream);
    if (can) {
        config.add(cudaLaunchAttributeProgrammaticStreamSerialization)
            .programmaticStreamSerializationAllowed = 1;
    }
    cudaLaunchKernelEx(&config, kernel, Parameters(arguments)...);
}
template <class... Parameters, class... Arguments>
void launch_secondary(void (*kernel)(Parameters...), int blocks, unsigned grid, dim3 block,
                      cudaStream_t stream, Arguments... arguments) {
    launch_secondary(kernel, blocks, grid, block, 0, stream, arguments...);
}
