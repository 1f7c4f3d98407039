// thrust::cuda::par: see ../cpp/detail/execution_policy.h.
#pragma once
#include <thrust/system/cpp/execution_policy.h>
