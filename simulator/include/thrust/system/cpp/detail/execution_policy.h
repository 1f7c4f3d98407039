// Whatever includes Thrust's algorithms for the device finds thrust::system_error, too: on a GPU
// they throw it.
#pragma once
#include <thrust/system_error.h>
#include_next <thrust/system/cpp/detail/execution_policy.h>
