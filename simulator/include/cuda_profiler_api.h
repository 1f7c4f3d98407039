// Where a profiler would begin and end: there is none.
#pragma once
#include "cuda_runtime.h"

namespace simulator::api {
inline cudaError_t cudaProfilerStart() { return cudaSuccess; }
inline cudaError_t cudaProfilerStop() { return cudaSuccess; }
}  // namespace simulator::api
