// PyTorch's guards. There is one device, so a guard checks what it is given; a stream's guard
// exchanges the current stream.
#pragma once
#include <c10/util/ArrayRef.h>
#include <optional>
#include <vector>
#include "CUDAStream.h"

namespace c10::cuda {

struct CUDAGuard {
    explicit CUDAGuard(DeviceIndex device) { set_index(device); }
    explicit CUDAGuard(Device device) { set_device(device); }
    CUDAGuard(const CUDAGuard&) = delete;
    CUDAGuard& operator=(const CUDAGuard&) = delete;
    ~CUDAGuard() {}  // not trivial, or the compiler would call a guard an unused variable

    void set_device(Device device) { checked_device(device); }
    void reset_device(Device device) { checked_device(device); }
    void set_index(DeviceIndex device) { checked_device(device); }
    Device original_device() const { return Device(DeviceType::CPU); }
    Device current_device() const { return Device(DeviceType::CPU); }
};

struct OptionalCUDAGuard {
    OptionalCUDAGuard() {}
    explicit OptionalCUDAGuard(std::optional<Device> device) {
        if (device) set_device(*device);
    }
    explicit OptionalCUDAGuard(std::optional<DeviceIndex> device) {
        if (device) set_index(*device);
    }
    OptionalCUDAGuard(const OptionalCUDAGuard&) = delete;
    OptionalCUDAGuard& operator=(const OptionalCUDAGuard&) = delete;
    ~OptionalCUDAGuard() {}

    void set_device(Device device) {
        checked_device(device);
        given_ = true;
    }
    void reset_device(Device device) { set_device(device); }
    void set_index(DeviceIndex device) {
        checked_device(device);
        given_ = true;
    }
    std::optional<Device> original_device() const { return current_device(); }
    std::optional<Device> current_device() const {
        return given_ ? std::optional(Device(DeviceType::CPU)) : std::nullopt;
    }
    void reset() { given_ = false; }

  private:
    bool given_ = false;
};

struct CUDAStreamGuard {
    explicit CUDAStreamGuard(Stream stream) : original_(getCurrentCUDAStream()) {
        reset_stream(stream);
    }
    CUDAStreamGuard(const CUDAStreamGuard&) = delete;
    CUDAStreamGuard& operator=(const CUDAStreamGuard&) = delete;
    ~CUDAStreamGuard() { setCurrentCUDAStream(original_); }

    void reset_stream(Stream stream) { setCurrentCUDAStream(CUDAStream(stream)); }
    CUDAStream original_stream() const { return original_; }
    CUDAStream current_stream() const { return getCurrentCUDAStream(); }
    Device original_device() const { return Device(DeviceType::CPU); }
    Device current_device() const { return Device(DeviceType::CPU); }

  private:
    CUDAStream original_;
};

struct OptionalCUDAStreamGuard {
    OptionalCUDAStreamGuard() {}
    explicit OptionalCUDAStreamGuard(Stream stream) { guard_.emplace(stream); }
    explicit OptionalCUDAStreamGuard(std::optional<Stream> stream) {
        if (stream) guard_.emplace(*stream);
    }

    void reset_stream(Stream stream) {
        if (guard_)
            guard_->reset_stream(stream);
        else
            guard_.emplace(stream);
    }
    std::optional<CUDAStream> original_stream() const {
        return guard_ ? std::optional(guard_->original_stream()) : std::nullopt;
    }
    std::optional<CUDAStream> current_stream() const {
        return guard_ ? std::optional(getCurrentCUDAStream()) : std::nullopt;
    }
    void reset() { guard_.reset(); }

  private:
    std::optional<CUDAStreamGuard> guard_;
};

struct CUDAMultiStreamGuard {
    explicit CUDAMultiStreamGuard(ArrayRef<CUDAStream> streams)
        : guard_(streams.empty() ? getCurrentCUDAStream().unwrap() : streams.back().unwrap()) {}

  private:
    CUDAStreamGuard guard_;
};

}  // namespace c10::cuda
