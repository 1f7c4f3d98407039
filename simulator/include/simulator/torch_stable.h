// What the stable ABI says of accelerators, where the CPU is one: `simulator.torch_rewrite` writes
// `accelerator::cpu::` in place of `accelerator::`.
#pragma once
#include <stdint.h>

namespace torch::stable::accelerator::cpu {

// One device, whose tensors say -1.
class DeviceGuard {
  public:
    explicit DeviceGuard(int32_t) {}
    DeviceGuard(const DeviceGuard&) = delete;
    DeviceGuard& operator=(const DeviceGuard&) = delete;
    ~DeviceGuard() {}
    void set_index(int32_t) {}
};

class Stream {
  public:
    int64_t id() const { return 0; }
    void* nativeHandle() const { return nullptr; }
};

inline Stream getCurrentStream(int32_t) { return {}; }
inline int32_t getCurrentDeviceIndex() { return 0; }

}  // namespace torch::stable::accelerator::cpu

extern "C" inline int32_t aoti_torch_get_current_cuda_stream(int32_t, void** stream) {
    *stream = nullptr;
    return 0;
}
