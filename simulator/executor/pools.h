// Memory in a stream's order, and the pools that it comes from. What is given back goes to the
// system at once, so a pool holds what is used and no more.
#pragma once
#include "../include/simulator/pools.h"
#include "device_memory.h"

struct CUmemPoolHandle_st {
    std::mutex mutex;
    unsigned long long threshold = 0, used = 0, used_high = 0;
    int reuse[4] = {0, 1, 1, 1};  // by attribute

    void add(size_t bytes) {
        std::lock_guard<std::mutex> lock(mutex);
        used += bytes;
        used_high = std::max(used_high, used);
    }

    void take(size_t bytes) {
        std::lock_guard<std::mutex> lock(mutex);
        used -= bytes;
    }
};

namespace simulator {
namespace {

auto& pools = *new Handles<CUmemPoolHandle_st>;
CUmemPoolHandle_st* const default_pool = pools.add(new CUmemPoolHandle_st);
std::atomic<CUmemPoolHandle_st*> device_pool{default_pool};

void leave_pool(cudaMemPool_t pool, size_t bytes) { pool->take(bytes); }

// What graphs own: each node that allocates has memory of its own, while there is a graph with it.
CUmemPoolHandle_st& graphs_pool = *new CUmemPoolHandle_st;

std::shared_ptr<void> graphs_memory(size_t bytes) {
    void* address = nullptr;
    Allocation allocation{bytes, cudaMemoryTypeDevice};
    allocation.is_graphs = true;
    if (!bytes || allocate(&address, bytes, allocation)) return nullptr;
    graphs_pool.add(bytes);
    return std::shared_ptr<void>(address, [bytes](void* it) {
        graphs_pool.take(bytes);
        allocations.drop(it);
        deallocate(it);
    });
}

}  // namespace

namespace api {

// While the stream is captured, the graph owns the memory, at one address for all its launches.
cudaError_t cudaMallocFromPoolAsync(void** address, size_t bytes, cudaMemPool_t pool,
                                    cudaStream_t stream) {
    if (const cudaError_t error = broken()) return error;
    if (const cudaError_t error = check_stream(stream)) return error;
    if (!pools.has(pool)) return record(cudaErrorInvalidValue);
    if (capture_of(stream)) {
        const std::shared_ptr<void> memory = graphs_memory(bytes);
        if (!memory) return record(cudaErrorMemoryAllocation);
        *address = memory.get();
        return submit(stream, cudaGraphNodeTypeMemAlloc, [] { return Error{}; }, memory);
    }
    Allocation allocation{bytes, cudaMemoryTypeDevice};
    allocation.pool = pool;
    if (const cudaError_t error = allocate(address, bytes, allocation)) return record(error);
    pool->add(bytes);
    return cudaSuccess;
}

cudaError_t cudaMallocAsync(void** address, size_t bytes, cudaStream_t stream) {
    return cudaMallocFromPoolAsync(address, bytes, device_pool, stream);
}

cudaError_t cudaFreeAsync(void* address, cudaStream_t stream) {
    if (const cudaError_t error = broken()) return error;
    if (const cudaError_t error = check_stream(stream)) return error;
    const Allocations::Found found = allocations.find(address);
    if (!found.has(cudaMemoryTypeDevice) || found.offset) return record(cudaErrorInvalidValue);
    if (found.allocation.is_graphs)
        return submit(stream, cudaGraphNodeTypeMemFree, [] { return Error{}; });
    if (Capture* capture = capture_of(stream))
        return spoil(capture, cudaErrorStreamCaptureUnsupported);
    return cudaFree(address);
}

cudaError_t cudaDeviceGetDefaultMemPool(cudaMemPool_t* pool, int device) {
    if (device != 0) return record(cudaErrorInvalidDevice);
    if (!pool) return record(cudaErrorInvalidValue);
    *pool = default_pool;
    return cudaSuccess;
}

cudaError_t cudaDeviceGetMemPool(cudaMemPool_t* pool, int device) {
    if (device != 0) return record(cudaErrorInvalidDevice);
    if (!pool) return record(cudaErrorInvalidValue);
    *pool = device_pool;
    return cudaSuccess;
}

cudaError_t cudaDeviceSetMemPool(int device, cudaMemPool_t pool) {
    if (device != 0) return record(cudaErrorInvalidDevice);
    if (!pools.has(pool)) return record(cudaErrorInvalidValue);
    device_pool = pool;
    return cudaSuccess;
}

cudaError_t cudaMemPoolCreate(cudaMemPool_t* pool, const cudaMemPoolProps* properties) {
    if (!pool || !properties || properties->allocType != cudaMemAllocationTypePinned)
        return record(cudaErrorInvalidValue);
    if (properties->handleTypes != cudaMemHandleTypeNone) return record(cudaErrorNotSupported);
    *pool = pools.add(new CUmemPoolHandle_st);
    return cudaSuccess;
}

cudaError_t cudaMemPoolDestroy(cudaMemPool_t pool) {
    if (pool == default_pool || !pools.has(pool)) return record(cudaErrorInvalidValue);
    if (device_pool == pool) device_pool = default_pool;
    allocations.leave_pool(pool);
    pools.destroy(pool);
    return cudaSuccess;
}

cudaError_t cudaMemPoolTrimTo(cudaMemPool_t pool, size_t) {
    return record(pools.has(pool) ? cudaSuccess : cudaErrorInvalidValue);
}

cudaError_t cudaMemPoolSetAttribute(cudaMemPool_t pool, cudaMemPoolAttr attribute, void* value) {
    if (!pools.has(pool) || !value) return record(cudaErrorInvalidValue);
    std::lock_guard<std::mutex> lock(pool->mutex);
    const auto number = [&] { return *static_cast<unsigned long long*>(value); };
    switch (attribute) {
        case cudaMemPoolReuseFollowEventDependencies:
        case cudaMemPoolReuseAllowOpportunistic:
        case cudaMemPoolReuseAllowInternalDependencies:
            pool->reuse[attribute] = *static_cast<int*>(value);
            return cudaSuccess;
        case cudaMemPoolAttrReleaseThreshold:
            pool->threshold = number();
            return cudaSuccess;
        case cudaMemPoolAttrReservedMemHigh:
        case cudaMemPoolAttrUsedMemHigh:
            if (number() != 0) return record(cudaErrorInvalidValue);
            pool->used_high = pool->used;
            return cudaSuccess;
        default:
            return record(cudaErrorInvalidValue);
    }
}

cudaError_t cudaMemPoolGetAttribute(cudaMemPool_t pool, cudaMemPoolAttr attribute, void* value) {
    if (!pools.has(pool) || !value) return record(cudaErrorInvalidValue);
    std::lock_guard<std::mutex> lock(pool->mutex);
    const auto give = [&](unsigned long long number) {
        *static_cast<unsigned long long*>(value) = number;
        return cudaSuccess;
    };
    switch (attribute) {
        case cudaMemPoolReuseFollowEventDependencies:
        case cudaMemPoolReuseAllowOpportunistic:
        case cudaMemPoolReuseAllowInternalDependencies:
            *static_cast<int*>(value) = pool->reuse[attribute];
            return cudaSuccess;
        case cudaMemPoolAttrReleaseThreshold:
            return give(pool->threshold);
        case cudaMemPoolAttrReservedMemCurrent:
        case cudaMemPoolAttrUsedMemCurrent:
            return give(pool->used);
        case cudaMemPoolAttrReservedMemHigh:
        case cudaMemPoolAttrUsedMemHigh:
            return give(pool->used_high);
    }
    return record(cudaErrorInvalidValue);
}

cudaError_t cudaMemPoolSetAccess(cudaMemPool_t pool, const cudaMemAccessDesc* access,
                                 size_t count) {
    if (!pools.has(pool) || (count && !access)) return record(cudaErrorInvalidValue);
    for (size_t i = 0; i < count; i++)
        if (access[i].location.type != cudaMemLocationTypeDevice || access[i].location.id != 0)
            return record(cudaErrorInvalidDevice);
    return cudaSuccess;
}

cudaError_t cudaMemPoolGetAccess(cudaMemAccessFlags* flags, cudaMemPool_t pool,
                                 cudaMemLocation* location) {
    if (!pools.has(pool) || !flags || !location) return record(cudaErrorInvalidValue);
    *flags = cudaMemAccessFlagsProtReadWrite;
    return cudaSuccess;
}

}  // namespace api
}  // namespace simulator
