// CUDA's device management with exceptions. The one device there is, 0, is the CPU.
#pragma once
#include <c10/core/Device.h>
#include "CUDAException.h"

namespace c10::cuda {

// Of a tensor on the CPU PyTorch says -1, and so it is here for the current device.
inline DeviceIndex checked_device(int64_t index) {
    TORCH_CHECK(index == 0 || index == -1, "the simulator has one device, 0; got device ", index);
    return 0;
}
inline DeviceIndex checked_device(Device device) {
    TORCH_CHECK(device.is_cpu(), "Expected a CUDA device, which is the CPU here, but got ", device);
    return checked_device(device.index());
}

inline DeviceIndex device_count() noexcept { return 1; }
inline DeviceIndex device_count_ensure_non_zero() { return 1; }
inline DeviceIndex current_device() { return 0; }
inline void set_device(DeviceIndex device, bool = false) { checked_device(device); }
inline void device_synchronize() { C10_CUDA_CHECK(cudaDeviceSynchronize()); }
inline void warn_or_error_on_sync() {}

inline cudaError_t GetDeviceCount(int* count) { return cudaGetDeviceCount(count); }
inline cudaError_t GetDevice(DeviceIndex* device) {
    *device = 0;
    return cudaSuccess;
}
inline cudaError_t SetDevice(DeviceIndex device, bool = false) { return cudaSetDevice(device); }
inline cudaError_t MaybeSetDevice(DeviceIndex device) { return cudaSetDevice(device); }
inline DeviceIndex ExchangeDevice(DeviceIndex device) { return checked_device(device); }
inline DeviceIndex MaybeExchangeDevice(DeviceIndex device) { return checked_device(device); }

inline void memcpy_and_sync(void* to, const void* from, int64_t bytes, cudaMemcpyKind kind,
                            cudaStream_t stream) {
    C10_CUDA_CHECK(cudaMemcpyAsync(to, from, size_t(bytes), kind, stream));
    C10_CUDA_CHECK(cudaStreamSynchronize(stream));
}
inline void stream_synchronize(cudaStream_t stream) {
    C10_CUDA_CHECK(cudaStreamSynchronize(stream));
}

}  // namespace c10::cuda
