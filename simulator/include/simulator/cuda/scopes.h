// cuda::thread_scope and cuda::memory_order. Where NVIDIA's own headers are on the include path
// these are theirs, so that both can be used in one file.
#pragma once
#include <new>
#include "../../cuda_runtime.h"

#if __has_include(<cuda/std/__atomic/scopes.h>)
#include <cuda/std/__atomic/order.h>
#include <cuda/std/__atomic/scopes.h>
#else
namespace cuda::std {

enum thread_scope {
    thread_scope_system,
    thread_scope_device,
    thread_scope_block,
    thread_scope_thread = 10,
};

enum memory_order {
    memory_order_relaxed,
    memory_order_consume,
    memory_order_acquire,
    memory_order_release,
    memory_order_acq_rel,
    memory_order_seq_cst,
};

}  // namespace cuda::std

namespace cuda {

using std::memory_order;
using std::memory_order_acq_rel;
using std::memory_order_acquire;
using std::memory_order_consume;
using std::memory_order_relaxed;
using std::memory_order_release;
using std::memory_order_seq_cst;
using std::thread_scope;
using std::thread_scope_block;
using std::thread_scope_device;
using std::thread_scope_system;
using std::thread_scope_thread;

}  // namespace cuda
#endif
