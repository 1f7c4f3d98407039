// What Thrust takes for the device is the device's memory, as cudaMalloc gives it: so that a
// pointer of a thrust::device_vector is known to cudaMemcpy and to lab.check.
#pragma once
#include <thrust/detail/raw_pointer_cast.h>
#include <thrust/system/detail/sequential/execution_policy.h>
#include "../../../../cuda_runtime.h"

THRUST_NAMESPACE_BEGIN
namespace system::detail::sequential {

template <class Policy>
void* malloc(execution_policy<Policy>&, size_t bytes) {
    void* memory = nullptr;
    return cudaMalloc(&memory, bytes) == cudaSuccess ? memory : nullptr;
}

template <class Policy, class Pointer>
void free(execution_policy<Policy>&, Pointer memory) {
    cudaFree(thrust::raw_pointer_cast(memory));
}

}  // namespace system::detail::sequential
THRUST_NAMESPACE_END
