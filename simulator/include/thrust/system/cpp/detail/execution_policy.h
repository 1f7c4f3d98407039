// Whatever includes Thrust's algorithms for the device finds here what it would on a GPU:
// thrust::system_error, and thrust::cuda::par, which may name a stream. On the simulator work is
// done when it is asked for.
#pragma once
#include_next <thrust/system/cpp/detail/execution_policy.h>
#include <thrust/system_error.h>
#include "../../../../cuda_runtime.h"
#if __has_include(<thrust/system/cpp/detail/par.h>)
#include <thrust/system/cpp/detail/par.h>
#endif

namespace thrust::cuda {

using thrust::system::cpp::tag;

struct simulator_policy : thrust::system::cpp::detail::par_t {
    simulator_policy on(cudaStream_t) const { return {}; }
};
inline constexpr simulator_policy par, par_nosync;

}  // namespace thrust::cuda

namespace thrust::system::cuda {
using thrust::cuda::par;
using thrust::cuda::par_nosync;
}  // namespace thrust::system::cuda

namespace thrust::cuda_cub {
using thrust::cuda::par;
using thrust::cuda::par_nosync;
}  // namespace thrust::cuda_cub
