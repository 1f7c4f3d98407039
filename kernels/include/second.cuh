// A second launch, for what the blocks of a first one have left. It is made ready while the first
// is still at work: that spares a microsecond between one kernel's end and the next one's begin.
//
// The first kernel calls `let_second_begin`, the second one `await_first` before it reads or writes
// anything. GPUs can do that from Hopper on, as clusters ("programmatic dependent launch").
#pragma once

#include "cluster.cuh"

#if PLAYGROUND_CUDA

__device__ inline void let_second_begin() {
#if __CUDA_ARCH__ >= 900
    asm volatile("griddepcontrol.launch_dependents;");
#endif
}

// Returns where to read what the first kernel has left, when that has ended. A kernel that is no
// second one waits for nothing.
template <class T>
__device__ T* await_first(T* left) {
#if __CUDA_ARCH__ >= 900
    asm volatile("griddepcontrol.wait;" : "+l"(left)::"memory");
#endif
    return left;
}

// kernel<<<grid, block, 0, stream>>>(arguments...), in clusters of so many blocks.
template <class... Parameters, class... Arguments>
void launch_second(void (*kernel)(Parameters...), int blocks, unsigned grid, dim3 block,
                   cudaStream_t stream, Arguments... arguments) {
    const bool can = has_clusters(kernel);
    ClusterConfig config(can ? blocks : 1, grid, block, 0, stream);
    if (can) {
        config.add(cudaLaunchAttributeProgrammaticStreamSerialization)
            .programmaticStreamSerializationAllowed = 1;
    }
    cudaLaunchKernelEx(&config, kernel, Parameters(arguments)...);
}

#else

__device__ inline void let_second_begin() {}
template <class T>
__device__ T* await_first(T* left) {
    return left;
}
template <class... Parameters, class... Arguments>
void launch_second(void (*kernel)(Parameters...), int, unsigned grid, dim3 block,
                   cudaStream_t stream, Arguments... arguments) {
    kernel<<<grid, block, 0, stream>>>(arguments...);
}

#endif
