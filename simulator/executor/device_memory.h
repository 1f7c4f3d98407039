// The device's memory, which is the host's: cudaMalloc, cudaMemcpy and their like.
#pragma once
#include <stdlib.h>
#include <string.h>
#include <unistd.h>
#include "watcher.h"

namespace simulator::api {

cudaError_t cudaMalloc(void** address, size_t bytes) {
    if (!address) return record(cudaErrorInvalidValue);
    *address = nullptr;
    if (bytes && posix_memalign(address, 256, bytes)) return record(cudaErrorMemoryAllocation);
    if (bytes && watcher) watcher->allocated(reinterpret_cast<uintptr_t>(*address), bytes, 0);
    return cudaSuccess;
}

cudaError_t cudaFree(void* address) {
    if (watcher) watcher->freed(reinterpret_cast<uintptr_t>(address));
    free(address);
    return cudaSuccess;
}

cudaError_t cudaMemcpy(void* to, const void* from, size_t bytes, cudaMemcpyKind kind) {
    if (kind < cudaMemcpyHostToHost || kind > cudaMemcpyDefault)
        return record(cudaErrorInvalidMemcpyDirection);
    if (bytes && (!to || !from)) return record(cudaErrorInvalidValue);
    if (bytes) memmove(to, from, bytes);
    return cudaSuccess;
}

cudaError_t cudaMemcpy2D(void* to, size_t to_pitch, const void* from, size_t from_pitch,
                         size_t width, size_t height, cudaMemcpyKind kind) {
    if (width > to_pitch || width > from_pitch) return record(cudaErrorInvalidValue);
    for (size_t row = 0; row < height; row++)
        if (const cudaError_t error =
                cudaMemcpy(static_cast<char*>(to) + row * to_pitch,
                           static_cast<const char*>(from) + row * from_pitch, width, kind))
            return error;
    return cudaSuccess;
}

cudaError_t cudaMemset(void* address, int byte, size_t bytes) {
    if (bytes && !address) return record(cudaErrorInvalidValue);
    if (bytes) memset(address, byte, bytes);
    return cudaSuccess;
}

cudaError_t cudaMemGetInfo(size_t* free, size_t* total) {
    const size_t page = sysconf(_SC_PAGESIZE);
    *total = *free = page * sysconf(_SC_PHYS_PAGES);
#ifdef _SC_AVPHYS_PAGES
    *free = page * sysconf(_SC_AVPHYS_PAGES);
#endif
    return cudaSuccess;
}

}  // namespace simulator::api
