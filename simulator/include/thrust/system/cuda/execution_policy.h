// thrust::cuda::par, which may name a stream. On the simulator work is done when it is asked for.
#pragma once
#include <thrust/system/cpp/execution_policy.h>
#include "../../../cuda_runtime.h"

namespace thrust::cuda {

using thrust::system::cpp::tag;

struct simulator_policy : thrust::system::cpp::detail::par_t {
    simulator_policy on(cudaStream_t) const { return {}; }
};
inline constexpr simulator_policy par, par_nosync;

template <class T>
using pointer = thrust::system::cpp::pointer<T>;

}  // namespace thrust::cuda

namespace thrust::system::cuda {
using thrust::cuda::par;
using thrust::cuda::par_nosync;
}  // namespace thrust::system::cuda

namespace thrust::cuda_cub {
using thrust::cuda::par;
using thrust::cuda::par_nosync;
}  // namespace thrust::cuda_cub
