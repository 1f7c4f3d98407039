// The device's memory, which is the host's: cudaMalloc and its like.
#pragma once
#include <stdlib.h>
#include <unistd.h>
#include "allocations.h"
#include "arena.h"
#include "captures.h"
#include "guarded_memory.h"
#include "watcher.h"

namespace simulator {
namespace {

void leave_pool(cudaMemPool_t pool, size_t bytes);  // pools.h

constexpr size_t memory_alignment = 256, pitch_alignment = 512;

// For the caller to record.
cudaError_t allocate(void** address, size_t bytes, const Allocation& allocation) {
    if (!address) return cudaErrorInvalidValue;
    *address = nullptr;
    if (bytes == 0) return cudaSuccess;
    *address = watcher ? arena.take(bytes) : guarded.allocate(bytes, memory_alignment);
    const size_t pad = watcher && *address ? Arena::pad : 0;
    if (!*address && posix_memalign(address, memory_alignment, bytes))
        return cudaErrorMemoryAllocation;
    allocations.add(*address, allocation);
    if (watcher)
        watcher->allocated(reinterpret_cast<uintptr_t>(*address), bytes, pad, allocation.type);
    return cudaSuccess;
}

void deallocate(void* address) {
    if (watcher && watcher->freed(reinterpret_cast<uintptr_t>(address), address)) return;
    if (arena.holds(address))
        arena.give_back(address);
    else
        guarded.owns(address) ? guarded.release(address, true) : free(address);
}

bool is_of_host(const Allocation& it) { return it.type == cudaMemoryTypeHost && !it.is_registered; }

bool is_of_device(const Allocation& it) { return it.type != cudaMemoryTypeHost && !it.is_mapped; }

template <class IsOfKind>
cudaError_t take_back(void* address, IsOfKind is_of_kind) {
    if (!address) return cudaSuccess;
    const Allocations::Found found = allocations.find(address);
    if (!allocations.take(address, is_of_kind)) return cudaErrorInvalidValue;
    if (found.allocation.is_graphs) return cudaSuccess;
    if (found.allocation.pool) leave_pool(found.allocation.pool, found.allocation.bytes);
    deallocate(address);
    return cudaSuccess;
}

size_t round_up(size_t bytes, size_t to) { return (bytes + to - 1) / to * to; }

}  // namespace

namespace api {

cudaError_t cudaMalloc(void** address, size_t bytes) {
    if (const cudaError_t error = ready_for_unsafe_call()) return error;
    return record(allocate(address, bytes, {bytes, cudaMemoryTypeDevice}));
}

cudaError_t cudaFree(void* address) {
    if (watcher) watcher->synchronised();
    if (const cudaError_t error = broken()) return error;
    if (const cudaError_t error = take_back(address, is_of_device))
        return refuse({error, text("invalid argument: cudaFree(%p), which is none of the addresses "
                                   "that cudaMalloc has given out, or has been freed before",
                                   address)});
    return cudaSuccess;
}

cudaError_t cudaMallocManaged(void** address, size_t bytes, unsigned flags) {
    if (const cudaError_t error = ready_for_unsafe_call()) return error;
    if (bytes == 0 || (flags != cudaMemAttachGlobal && flags != cudaMemAttachHost))
        return record(cudaErrorInvalidValue);
    return record(allocate(address, bytes, {bytes, cudaMemoryTypeManaged, flags}));
}

cudaError_t cudaHostAlloc(void** address, size_t bytes, unsigned flags) {
    if (const cudaError_t error = ready_for_unsafe_call()) return error;
    if (flags & ~7u) return record(cudaErrorInvalidValue);
    return record(allocate(address, bytes, {bytes, cudaMemoryTypeHost, flags}));
}

cudaError_t cudaMallocHost(void** address, size_t bytes, unsigned flags) {
    return cudaHostAlloc(address, bytes, flags);
}

cudaError_t cudaFreeHost(void* address) {
    if (const cudaError_t error = broken()) return error;
    return record(take_back(address, is_of_host));
}

cudaError_t cudaMallocPitch(void** address, size_t* pitch, size_t width, size_t height) {
    if (!pitch) return record(cudaErrorInvalidValue);
    *pitch = round_up(width, pitch_alignment);
    if (height && *pitch > SIZE_MAX / height) return record(cudaErrorMemoryAllocation);
    return cudaMalloc(address, *pitch * height);
}

cudaError_t cudaMalloc3D(cudaPitchedPtr* memory, cudaExtent extent) {
    if (!memory) return record(cudaErrorInvalidValue);
    memory->xsize = extent.width;
    memory->ysize = extent.height;
    return cudaMallocPitch(
        &memory->ptr, &memory->pitch, extent.width, extent.height * extent.depth);
}

cudaError_t cudaHostRegister(void* address, size_t bytes, unsigned flags) {
    if (const cudaError_t error = broken()) return error;
    if (!address || !bytes || flags & ~15u) return record(cudaErrorInvalidValue);
    if (allocations.find(address).is_known || allocations.is_any_in(address, bytes))
        return record(cudaErrorHostMemoryAlreadyRegistered);
    allocations.add(address, {bytes, cudaMemoryTypeHost, flags, true});
    return cudaSuccess;
}

cudaError_t cudaHostUnregister(void* address) {
    if (const cudaError_t error = broken()) return error;
    const auto is_registered = [](const Allocation& it) { return it.is_registered; };
    return record(
        allocations.take(address, is_registered) ? cudaSuccess : cudaErrorHostMemoryNotRegistered);
}

cudaError_t cudaHostGetDevicePointer(void** device, void* host, unsigned flags) {
    if (!device || flags || !allocations.find(host).has(cudaMemoryTypeHost))
        return record(cudaErrorInvalidValue);
    *device = host;
    return cudaSuccess;
}

cudaError_t cudaHostGetFlags(unsigned* flags, void* host) {
    const Allocations::Found found = allocations.find(host);
    if (!flags || !found.has(cudaMemoryTypeHost)) return record(cudaErrorInvalidValue);
    *flags = found.allocation.flags;
    return cudaSuccess;
}

cudaError_t cudaPointerGetAttributes(cudaPointerAttributes* attributes, const void* address) {
    if (!attributes) return record(cudaErrorInvalidValue);
    const Allocations::Found found = allocations.find(address);
    void* pointer = const_cast<void*>(address);
    const bool is_devices = found.is_known && found.allocation.type != cudaMemoryTypeHost;
    attributes->type = found.is_known ? found.allocation.type : cudaMemoryTypeUnregistered;
    attributes->device = found.is_known ? 0 : cudaInvalidDeviceId;
    attributes->devicePointer = found.is_known ? pointer : nullptr;
    attributes->hostPointer =
        is_devices && found.allocation.type == cudaMemoryTypeDevice ? nullptr : pointer;
    return cudaSuccess;
}

cudaError_t cudaMemGetInfo(size_t* free, size_t* total) {
    if (const cudaError_t error = broken()) return error;
    const size_t page = sysconf(_SC_PAGESIZE);
    const size_t all = page * sysconf(_SC_PHYS_PAGES);
    if (total) *total = all;
    if (!free) return cudaSuccess;
    *free = all;
#ifdef _SC_AVPHYS_PAGES
    *free = page * sysconf(_SC_AVPHYS_PAGES);
#endif
    return cudaSuccess;
}

// There is one memory, so advice about where to keep what has nothing to do.
cudaError_t cudaMemAdvise(const void* address, size_t bytes, cudaMemoryAdvise advice,
                          cudaMemLocation location) {
    if (const cudaError_t error = broken()) return error;
    const bool is_place = location.type > cudaMemLocationTypeInvalid &&
                          location.type <= cudaMemLocationTypeHostNumaCurrent &&
                          (location.type != cudaMemLocationTypeDevice || location.id == 0);
    const bool needs_place =
        advice == cudaMemAdviseSetPreferredLocation || advice == cudaMemAdviseSetAccessedBy ||
        advice == cudaMemAdviseUnsetAccessedBy;
    if (needs_place && !is_place) return record(cudaErrorInvalidDevice);
    const Allocations::Found found = allocations.find(address);
    const bool is_advice =
        advice >= cudaMemAdviseSetReadMostly && advice <= cudaMemAdviseUnsetAccessedBy;
    const bool is_managed = !found.is_known || found.has(cudaMemoryTypeManaged);
    return record(is_advice && bytes && is_managed && found.holds(bytes) ? cudaSuccess
                                                                         : cudaErrorInvalidValue);
}

namespace {
cudaMemLocation location_of(int device) {
    if (device == cudaCpuDeviceId) return {cudaMemLocationTypeHost, 0};
    return {device == 0 ? cudaMemLocationTypeDevice : cudaMemLocationTypeInvalid, device};
}
}  // namespace

cudaError_t cudaMemAdvise(const void* address, size_t bytes, cudaMemoryAdvise advice, int device) {
    return cudaMemAdvise(address, bytes, advice, location_of(device));
}

cudaError_t cudaMemPrefetchAsync(const void* address, size_t bytes, cudaMemLocation location,
                                 unsigned flags, cudaStream_t stream) {
    if (flags) return record(cudaErrorInvalidValue);
    if (const cudaError_t error = check_stream(stream)) return error;
    return cudaMemAdvise(address, bytes, cudaMemAdviseSetPreferredLocation, location);
}

cudaError_t cudaMemPrefetchAsync(const void* address, size_t bytes, int device,
                                 cudaStream_t stream) {
    return cudaMemPrefetchAsync(address, bytes, location_of(device), 0, stream);
}

cudaError_t cudaStreamAttachMemAsync(cudaStream_t stream, void* address, size_t bytes,
                                     unsigned flags) {
    if (const cudaError_t error = check_stream(stream)) return error;
    const Allocations::Found found = allocations.find(address);
    return record(found.has(cudaMemoryTypeManaged) && found.holds(bytes) && flags &&
                          flags <= cudaMemAttachSingle
                      ? cudaSuccess
                      : cudaErrorInvalidValue);
}

}  // namespace api
}  // namespace simulator
