// What Thrust's containers take for the device is the device's memory, as cudaMalloc gives it: so
// lab.check knows whose it is.
#pragma once
#include <thrust/mr/fancy_pointer_resource.h>
#include <thrust/mr/new.h>
#include <thrust/system/cpp/pointer.h>
#include <new>
#include "../../../cuda_runtime.h"

THRUST_NAMESPACE_BEGIN
namespace system::cpp {
namespace detail {

class device_resource final : public thrust::mr::memory_resource<> {
  public:
    void* do_allocate(size_t bytes, size_t) override {
        void* memory = nullptr;
        if (cudaMalloc(&memory, bytes) != cudaSuccess) throw std::bad_alloc();
        return memory;
    }
    void do_deallocate(void* memory, size_t, size_t) override { cudaFree(memory); }
};

using native_resource =
    thrust::mr::fancy_pointer_resource<device_resource, thrust::cpp::pointer<void>>;
using universal_native_resource =
    thrust::mr::fancy_pointer_resource<device_resource, thrust::cpp::universal_pointer<void>>;

}  // namespace detail

using memory_resource = detail::native_resource;
using universal_memory_resource = detail::universal_native_resource;
using universal_host_pinned_memory_resource = universal_memory_resource;

}  // namespace system::cpp
THRUST_NAMESPACE_END
