// Random numbers for kernels. A seed for Philox is drawn from PyTorch's generator of the CPU, so
// that torch.manual_seed, torch.get_rng_state and torch.utils.checkpoint decide what kernels draw.
#pragma once
#include <ATen/CPUGeneratorImpl.h>
#include <ATen/cuda/PhiloxCudaState.h>
#include <utility>
#include "CUDAContext.h"

namespace at {

// Of the generator that it is a view of, without anything of its own.
struct CUDAGeneratorImpl : CPUGeneratorImpl {
    using CPUGeneratorImpl::CPUGeneratorImpl;

    // Every launch has a seed of its own, and so begins with the offset 0, whatever it draws.
    PhiloxCudaState philox_cuda_state(uint64_t) { return {random64(), uint64_t(0)}; }
    std::pair<uint64_t, uint64_t> philox_engine_inputs(uint64_t) { return {random64(), 0}; }
};
static_assert(sizeof(CUDAGeneratorImpl) == sizeof(CPUGeneratorImpl));

namespace cuda::detail {
inline const Generator& getDefaultCUDAGenerator(DeviceIndex device = -1) {
    c10::cuda::checked_device(device);
    return at::detail::getDefaultCPUGenerator();
}
inline Generator createCUDAGenerator(DeviceIndex device = -1) {
    c10::cuda::checked_device(device);
    return at::detail::createCPUGenerator();
}
}  // namespace cuda::detail

}  // namespace at
