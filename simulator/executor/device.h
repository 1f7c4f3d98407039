// The device that CUDA's runtime API tells of: this computer's processor, with the limits of a GPU.
#pragma once
#include "pool.h"
#include "shared_memory.h"

namespace simulator {
namespace {

constexpr size_t shared_per_processor = 228 << 10, reserved_shared = 1 << 10;
constexpr int threads_per_processor = 2048, blocks_per_processor = 32;
// Kernels size their grids by the number of multiprocessors: that is the number of cores, but for a
// watcher this, lest what it sees depend on the machine.
constexpr int watched_processors = 2;
constexpr dim3 largest_block = {1024, 1024, 64}, largest_grid = {0x7fffffff, 65535, 65535};

}  // namespace

namespace api {

cudaError_t cudaGetDevice(int* device) {
    *device = 0;
    return cudaSuccess;
}

cudaError_t cudaSetDevice(int device) {
    return record(device == 0 ? cudaSuccess : cudaErrorInvalidDevice);
}

cudaError_t cudaGetDeviceCount(int* count) {
    *count = 1;
    return cudaSuccess;
}

cudaError_t cudaGetDeviceProperties(cudaDeviceProp* properties, int device) {
    if (device != 0) return record(cudaErrorInvalidDevice);
    *properties = {};
    strcpy(properties->name, "CPU (simulator)");
    size_t free;
    cudaMemGetInfo(&free, &properties->totalGlobalMem);
    properties->sharedMemPerBlock = default_shared;
    properties->sharedMemPerBlockOptin = most_shared;
    properties->sharedMemPerMultiprocessor = shared_per_processor;
    properties->reservedSharedMemPerBlock = reserved_shared;
    properties->totalConstMem = 64 << 10;
    properties->regsPerBlock = properties->regsPerMultiprocessor = 64 << 10;
    properties->warpSize = warp_size;
    properties->maxThreadsPerBlock = max_threads;
    properties->maxThreadsPerMultiProcessor = threads_per_processor;
    properties->maxBlocksPerMultiProcessor = blocks_per_processor;
    properties->major = 9;
    properties->multiProcessorCount = watcher ? watched_processors : pool->cores;
    properties->l2CacheSize = 1 << 20;
    properties->cooperativeLaunch = 1;
    properties->managedMemory = properties->unifiedAddressing = 1;
    const unsigned block[] = {largest_block.x, largest_block.y, largest_block.z};
    const unsigned grid[] = {largest_grid.x, largest_grid.y, largest_grid.z};
    std::copy(block, block + 3, properties->maxThreadsDim);
    std::copy(grid, grid + 3, properties->maxGridSize);
    return cudaSuccess;
}

cudaError_t cudaDeviceGetAttribute(int* value, cudaDeviceAttr attribute, int device) {
    cudaDeviceProp properties;
    if (const cudaError_t error = cudaGetDeviceProperties(&properties, device)) return error;
    switch (attribute) {
        case cudaDevAttrMaxThreadsPerBlock:
            *value = properties.maxThreadsPerBlock;
            return cudaSuccess;
        case cudaDevAttrMaxBlockDimX:
        case cudaDevAttrMaxBlockDimY:
        case cudaDevAttrMaxBlockDimZ:
            *value = properties.maxThreadsDim[attribute - cudaDevAttrMaxBlockDimX];
            return cudaSuccess;
        case cudaDevAttrMaxGridDimX:
        case cudaDevAttrMaxGridDimY:
        case cudaDevAttrMaxGridDimZ:
            *value = properties.maxGridSize[attribute - cudaDevAttrMaxGridDimX];
            return cudaSuccess;
        case cudaDevAttrMaxSharedMemoryPerBlock:
            *value = properties.sharedMemPerBlock;
            return cudaSuccess;
        case cudaDevAttrMaxSharedMemoryPerBlockOptin:
            *value = properties.sharedMemPerBlockOptin;
            return cudaSuccess;
        case cudaDevAttrMaxSharedMemoryPerMultiprocessor:
            *value = properties.sharedMemPerMultiprocessor;
            return cudaSuccess;
        case cudaDevAttrReservedSharedMemoryPerBlock:
            *value = properties.reservedSharedMemPerBlock;
            return cudaSuccess;
        case cudaDevAttrWarpSize:
            *value = properties.warpSize;
            return cudaSuccess;
        case cudaDevAttrMultiProcessorCount:
            *value = properties.multiProcessorCount;
            return cudaSuccess;
        case cudaDevAttrL2CacheSize:
            *value = properties.l2CacheSize;
            return cudaSuccess;
        case cudaDevAttrMaxThreadsPerMultiProcessor:
            *value = properties.maxThreadsPerMultiProcessor;
            return cudaSuccess;
        case cudaDevAttrMaxBlocksPerMultiprocessor:
            *value = properties.maxBlocksPerMultiProcessor;
            return cudaSuccess;
        case cudaDevAttrComputeCapabilityMajor:
            *value = properties.major;
            return cudaSuccess;
        case cudaDevAttrComputeCapabilityMinor:
            *value = properties.minor;
            return cudaSuccess;
        case cudaDevAttrCooperativeLaunch:
            *value = properties.cooperativeLaunch;
            return cudaSuccess;
    }
    return record(cudaErrorInvalidValue);
}

cudaError_t occupancy(int* blocks, int threads, size_t shared) {
    if (threads <= 0) return record(cudaErrorInvalidValue);
    const int warps = (threads + warp_size - 1) / warp_size;
    *blocks = threads > int(max_threads) || shared > most_shared
                  ? 0
                  : std::min({blocks_per_processor, threads_per_processor / int(warp_size) / warps,
                              int(shared_per_processor / (shared + reserved_shared))});
    return cudaSuccess;
}

}  // namespace api
}  // namespace simulator
