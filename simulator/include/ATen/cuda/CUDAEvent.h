// PyTorch's events over CUDA's.
#pragma once
#include <c10/cuda/CUDAStream.h>
#include <utility>
#include "ATenCUDAGeneral.h"

namespace at::cuda {

struct CUDAEvent {
    CUDAEvent() {}
    explicit CUDAEvent(unsigned) {}
    CUDAEvent(const CUDAEvent&) = delete;
    CUDAEvent& operator=(const CUDAEvent&) = delete;
    CUDAEvent(CUDAEvent&& other) noexcept : event_(std::exchange(other.event_, nullptr)) {}
    CUDAEvent& operator=(CUDAEvent&& other) noexcept {
        std::swap(event_, other.event_);
        return *this;
    }
    ~CUDAEvent() {
        if (event_) (void)cudaEventDestroy(event_);
    }

    operator cudaEvent_t() const { return event_; }
    cudaEvent_t event() const { return event_; }
    bool isCreated() const { return event_ != nullptr; }
    c10::DeviceIndex device_index() const { return 0; }

    bool query() const { return !event_ || cudaEventQuery(event_) == cudaSuccess; }
    void record() { record(c10::cuda::getCurrentCUDAStream()); }
    void record(const c10::cuda::CUDAStream& stream) {
        if (!event_) C10_CUDA_CHECK(cudaEventCreate(&event_));
        C10_CUDA_CHECK(cudaEventRecord(event_, stream));
    }
    void recordOnce(const c10::cuda::CUDAStream& stream) {
        if (!event_) record(stream);
    }
    void block(const c10::cuda::CUDAStream& stream) {
        if (event_) C10_CUDA_CHECK(cudaStreamWaitEvent(stream, event_, 0));
    }
    void synchronize() const {
        if (event_) C10_CUDA_CHECK(cudaEventSynchronize(event_));
    }
    float elapsed_time(const CUDAEvent& other) const {
        TORCH_CHECK(event_ && other.event_, "Both events must be recorded before elapsed_time");
        float milliseconds = 0;
        C10_CUDA_CHECK(cudaEventElapsedTime(&milliseconds, event_, other.event_));
        return milliseconds;
    }

  private:
    cudaEvent_t event_ = nullptr;
};

}  // namespace at::cuda
