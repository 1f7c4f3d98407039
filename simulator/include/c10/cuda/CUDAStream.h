// PyTorch's streams. On the CPU a kernel has ended when its launch returns, so that all streams are
// one: the null stream, or one that the user made.
#pragma once
#include <c10/core/Stream.h>
#include <tuple>
#include "../../simulator/thread_local.h"
#include "CUDAFunctions.h"

namespace c10::cuda {

static constexpr int max_compile_time_stream_priorities = 4;

class CUDAStream {
  public:
    enum Unchecked { UNCHECKED };

    explicit CUDAStream(cudaStream_t stream = nullptr) : stream_(stream) {}
    explicit CUDAStream(Stream stream)
        : stream_(reinterpret_cast<cudaStream_t>(static_cast<intptr_t>(stream.id()))) {
        checked_device(stream.device());
    }
    CUDAStream(Unchecked, Stream stream) : CUDAStream(stream) {}

    bool operator==(const CUDAStream& other) const noexcept { return stream_ == other.stream_; }
    bool operator!=(const CUDAStream& other) const noexcept { return stream_ != other.stream_; }
    operator cudaStream_t() const { return stream_; }
    operator Stream() const { return unwrap(); }

    cudaStream_t stream() const { return stream_; }
    DeviceType device_type() const { return DeviceType::CPU; }
    DeviceIndex device_index() const { return 0; }
    Device device() const { return Device(DeviceType::CPU); }
    StreamId id() const { return reinterpret_cast<intptr_t>(stream_); }
    Stream unwrap() const { return Stream(Stream::UNSAFE, device(), id()); }
    StreamData3 pack3() const { return unwrap().pack3(); }
    static CUDAStream unpack3(StreamId id, DeviceIndex device, DeviceType type) {
        return CUDAStream(Stream::unpack3(id, device, type));
    }

    bool query() const { return cudaStreamQuery(stream_) == cudaSuccess; }
    void synchronize() const { C10_CUDA_CHECK(cudaStreamSynchronize(stream_)); }
    bool is_capturing() const { return false; }
    int priority() const { return 0; }
    static std::tuple<int, int> priority_range() { return {0, 0}; }

  private:
    cudaStream_t stream_;
};

// That of this thread. Libraries do not share it: a stream reaches a kernel as an argument.
SIMULATOR_CALL_TO_THREAD_LOCAL inline CUDAStream& current_stream() {
    static thread_local CUDAStream stream;
    return stream;
}

inline CUDAStream getDefaultCUDAStream(DeviceIndex device = -1) {
    checked_device(device);
    return CUDAStream();
}
inline CUDAStream getCurrentCUDAStream(DeviceIndex device = -1) {
    checked_device(device);
    return current_stream();
}
inline void setCurrentCUDAStream(CUDAStream stream) { current_stream() = stream; }
inline CUDAStream getStreamFromPool(bool, DeviceIndex device = -1) {
    return getDefaultCUDAStream(device);
}
inline CUDAStream getStreamFromPool(int = 0, DeviceIndex device = -1) {
    return getDefaultCUDAStream(device);
}
inline CUDAStream getStreamFromExternal(cudaStream_t stream, DeviceIndex device) {
    checked_device(device);
    return CUDAStream(stream);
}

inline std::ostream& operator<<(std::ostream& out, const CUDAStream& stream) {
    return out << "stream " << stream.id() << " on device 0, the CPU";
}

}  // namespace c10::cuda

template <>
struct std::hash<c10::cuda::CUDAStream> {
    size_t operator()(c10::cuda::CUDAStream stream) const noexcept {
        return std::hash<c10::StreamId>{}(stream.id());
    }
};
