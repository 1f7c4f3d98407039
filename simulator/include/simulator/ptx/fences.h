// Fences between the accesses of threads and those of asynchronous copies and tensor cores. All is
// carried out in order here: the checker alone wants to know.
#pragma once
#include "../asynchronous.h"
#include "values.h"

namespace simulator::ptx {

using simulator::ProxyFence;
SIMULATOR_NAMED(ProxyFence, Async)
SIMULATOR_NAMED(ProxyFence, MbarrierInit)

SIMULATOR_INLINE void __ptx_proxy_fence(ProxyFence fence) {
    tell_fence(fence);
    __atomic_thread_fence(__ATOMIC_SEQ_CST);
}

}  // namespace simulator::ptx
