// What PyTorch says of its devices. The one there is, 0, is the CPU.
#pragma once
#include <c10/core/Allocator.h>
#include <c10/cuda/CUDAFunctions.h>

namespace at::cuda {
using namespace c10::cuda;

inline int64_t getNumGPUs() { return 1; }
inline bool is_available() { return true; }
inline int warp_size() { return warpSize; }

inline cudaDeviceProp* getDeviceProperties(c10::DeviceIndex device) {
    checked_device(device);
    static cudaDeviceProp properties = [] {
        cudaDeviceProp asked;
        C10_CUDA_CHECK(cudaGetDeviceProperties(&asked, 0));
        return asked;
    }();
    return &properties;
}
inline cudaDeviceProp* getCurrentDeviceProperties() { return getDeviceProperties(0); }
inline bool canDeviceAccessPeer(c10::DeviceIndex, c10::DeviceIndex) { return false; }
inline c10::Allocator* getCUDADeviceAllocator() { return c10::GetAllocator(c10::DeviceType::CPU); }

}  // namespace at::cuda
