// Streams and events of CUDA's runtime API. A launch is over when it returns, so a stream is idle,
// and an event is a time.
#pragma once
#include <chrono>
#include "errors.h"

namespace simulator::api {

// A launch's failure is known when the launch returns; there is nothing to wait for, and nothing
// more to tell.
cudaError_t cudaDeviceSynchronize() { return pending.code; }

cudaError_t cudaStreamCreate(cudaStream_t* stream) {
    *stream = reinterpret_cast<cudaStream_t>(new char);
    return cudaSuccess;
}

cudaError_t cudaStreamDestroy(cudaStream_t stream) {
    delete reinterpret_cast<char*>(stream);
    return cudaSuccess;
}

using Clock = std::chrono::steady_clock;

cudaError_t cudaEventCreate(cudaEvent_t* event) {
    *event = reinterpret_cast<cudaEvent_t>(new Clock::time_point);
    return cudaSuccess;
}

cudaError_t cudaEventDestroy(cudaEvent_t event) {
    delete reinterpret_cast<Clock::time_point*>(event);
    return cudaSuccess;
}

cudaError_t cudaEventRecord(cudaEvent_t event, cudaStream_t) {
    *reinterpret_cast<Clock::time_point*>(event) = Clock::now();
    return cudaSuccess;
}

cudaError_t cudaEventElapsedTime(float* milliseconds, cudaEvent_t start, cudaEvent_t end) {
    const auto time = [](cudaEvent_t event) {
        return *reinterpret_cast<Clock::time_point*>(event);
    };
    *milliseconds = std::chrono::duration<float, std::milli>(time(end) - time(start)).count();
    return cudaSuccess;
}

}  // namespace simulator::api
