// The runtime API of include/simulator/api.h.
#pragma once
#include <stdlib.h>
#include <chrono>
#include "interrupts.h"

namespace simulator {
namespace {

constexpr size_t default_shared =
    48 << 10;  // bytes of dynamic shared memory that any launch may ask for
constexpr size_t most_shared =
    227 << 10;  // and with cudaFuncSetAttribute, as on compute capability 9.0
constexpr size_t shared_per_processor = 228 << 10, reserved_shared = 1 << 10;
constexpr int threads_per_processor = 2048, blocks_per_processor = 32;
// Kernels size their grids by the number of multiprocessors: outside a check that is the number of
// cores, and in one this, lest a report tell of the machine that made it.
constexpr int checked_processors = 2;
constexpr dim3 largest_block = {1024, 1024, 64}, largest_grid = {0x7fffffff, 65535, 65535};

struct ErrorText {
    cudaError_t code;
    const char *name, *text;
};
constexpr ErrorText error_texts[] = {
    {cudaSuccess, "cudaSuccess", "no error"},
    {cudaErrorInvalidValue, "cudaErrorInvalidValue", "invalid argument"},
    {cudaErrorMemoryAllocation, "cudaErrorMemoryAllocation", "out of memory"},
    {cudaErrorInvalidConfiguration, "cudaErrorInvalidConfiguration",
     "invalid configuration argument"},
    {cudaErrorInvalidMemcpyDirection, "cudaErrorInvalidMemcpyDirection",
     "invalid copy direction for memcpy"},
    {cudaErrorInvalidDeviceFunction, "cudaErrorInvalidDeviceFunction", "invalid device function"},
    {cudaErrorInvalidDevice, "cudaErrorInvalidDevice", "invalid device ordinal"},
    {cudaErrorInvalidResourceHandle, "cudaErrorInvalidResourceHandle", "invalid resource handle"},
    {cudaErrorNotReady, "cudaErrorNotReady", "device not ready"},
    {cudaErrorIllegalAddress, "cudaErrorIllegalAddress",
     "an illegal memory access was encountered"},
    {cudaErrorAssert, "cudaErrorAssert", "device-side assert triggered"},
    {cudaErrorIllegalInstruction, "cudaErrorIllegalInstruction",
     "an illegal instruction was encountered"},
    {cudaErrorLaunchFailure, "cudaErrorLaunchFailure", "unspecified launch failure"},
    {cudaErrorNotSupported, "cudaErrorNotSupported", "operation not supported"},
    {cudaErrorUnknown, "cudaErrorUnknown", "unknown error"},
};

// What cudaFuncSetAttribute has allowed each kernel, by its address.
std::mutex allowances_mutex;
std::map<const void*, size_t> allowances;

size_t allowed_shared(const void* function) {
    std::lock_guard<std::mutex> lock(allowances_mutex);
    size_t allowed = default_shared;
    for (const auto& [allowed_function, bytes] : allowances)
        if (allowed_function == function || !function) allowed = std::max(allowed, bytes);
    return allowed;
}

bool within(const dim3& extent, const dim3& limit) {
    return extent.x - 1 < limit.x && extent.y - 1 < limit.y &&
           extent.z - 1 < limit.z;  // 0 - 1 is large
}

// CUDA's verdict on a launch, with the reason. The codes are those that its documentation names,
// and that CUDA 12 gives; CUDA 13.0 was seen to say cudaErrorInvalidValue to all of them.
Error check(const Launch& launch) {
    const dim3 &grid = launch.grid, &block = launch.block;
    const auto refuse = [&](cudaError_t code, const std::string& reason) {
        return Error{
            code, std::string(cudaGetErrorName(code)) + ": " + describe(launch) + ": " + reason};
    };
    if (!within(grid, largest_grid))
        return refuse(
            cudaErrorInvalidConfiguration,
            text("a grid of (%u, %u, %u) blocks; each extent is at least 1, at most (%u, %u, %u)",
                 grid.x, grid.y, grid.z, largest_grid.x, largest_grid.y, largest_grid.z));
    if (!within(block, largest_block) || uint64_t(block.x) * block.y * block.z > max_threads)
        return refuse(cudaErrorInvalidConfiguration,
                      text("a block of (%u, %u, %u) threads; each extent is at least 1, at most "
                           "(%u, %u, %u), and "
                           "their product at most %u",
                           block.x, block.y, block.z, largest_block.x, largest_block.y,
                           largest_block.z, max_threads));
    if (const size_t allowed = allowed_shared(launch.function); launch.shared > allowed)
        return refuse(
            cudaErrorInvalidValue,
            text("%zu bytes of dynamic shared memory; %zu are allowed, and at most %zu after "
                 "cudaFuncSetAttribute(kernel, cudaFuncAttributeMaxDynamicSharedMemorySize, bytes)",
                 launch.shared, allowed, most_shared));
    return {};
}

std::atomic<uint64_t> launches_so_far;

}  // namespace

void run(const Launch& launch) {
    launches_so_far.fetch_add(1, std::memory_order_relaxed);
    if (worker && worker->running)
        worker->fail(cudaErrorNotSupported,
                     "it launches " + describe(launch) +
                         ": the simulator does not launch kernels from kernels");
    Error error = check(launch);
    if (error.code == cudaSuccess) {
        interrupts->enter();
        error = pool->run(launch);
        interrupts->leave();
    }
    fflush(stdout);  // what the kernel printed
    if (error.is_interrupt && interrupts->will_raise()) return;
    if (error.code != cudaSuccess) record(error);
}

void trap(const char* file, int line) {
    worker->fail(
        cudaErrorLaunchFailure, text("%s:%d: thread %u: __trap", file, line, worker->rank));
}

void fail_bounds(unsigned threads, const char* file, int line) {
    worker->fail(cudaErrorInvalidConfiguration,
                 text("%s:%d: %u threads in a block, and the kernel's __launch_bounds__ allow %u",
                      file, line, worker->size, threads));
}

void fail_assertion(const char* condition, const char* file, int line) {
    if (worker && worker->running)
        worker->fail(cudaErrorAssert, text("%s:%d: thread %u: assertion failed: %s", file, line,
                                           worker->rank, condition));
    fprintf(stderr, "%s:%d: assertion failed: %s\n", file, line, condition);
    abort();
}

namespace api {

cudaError_t cudaGetLastError() {
    const cudaError_t code = pending.code;
    pending = {};
    return code;
}

cudaError_t cudaPeekAtLastError() { return pending.code; }

const char* cudaGetErrorName(cudaError_t code) {
    for (const ErrorText& error : error_texts)
        if (error.code == code) return error.name;
    return "unrecognized error code";
}

const char* cudaGetErrorString(cudaError_t code) {
    if (code != cudaSuccess && code == detailed.code) return detailed.message.c_str();
    for (const ErrorText& error : error_texts)
        if (error.code == code) return error.text;
    return "unrecognized error code";
}

cudaError_t cudaMalloc(void** address, size_t bytes) {
    if (!address) return record(cudaErrorInvalidValue);
    *address = nullptr;
    if (bytes && posix_memalign(address, 256, bytes)) return record(cudaErrorMemoryAllocation);
    if (bytes) recorder.allocated(reinterpret_cast<uintptr_t>(*address), bytes, 0);
    return cudaSuccess;
}

cudaError_t cudaFree(void* address) {
    recorder.freed(reinterpret_cast<uintptr_t>(address));
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
    properties->multiProcessorCount = recorder.is_on ? checked_processors : pool->cores;
    properties->l2CacheSize = 1 << 20;
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

// A launch's failure is known when the launch returns; there is nothing to wait for, and nothing
// more to tell.
cudaError_t cudaDeviceSynchronize() { return pending.code; }

cudaError_t cudaStreamCreate(cudaStream_t* stream) {
    *stream = reinterpret_cast<cudaStream_t>(new char);
    return cudaSuccess;
}

cudaError_t cudaStreamDestroy(cudaStream_t stream) {
    delete reinterpret_cast<char*>(stream);
    return cudaSuccess;
}

using Clock = std::chrono::steady_clock;

cudaError_t cudaEventCreate(cudaEvent_t* event) {
    *event = reinterpret_cast<cudaEvent_t>(new Clock::time_point);
    return cudaSuccess;
}

cudaError_t cudaEventDestroy(cudaEvent_t event) {
    delete reinterpret_cast<Clock::time_point*>(event);
    return cudaSuccess;
}

cudaError_t cudaEventRecord(cudaEvent_t event, cudaStream_t) {
    *reinterpret_cast<Clock::time_point*>(event) = Clock::now();
    return cudaSuccess;
}

cudaError_t cudaEventElapsedTime(float* milliseconds, cudaEvent_t start, cudaEvent_t end) {
    const auto time = [](cudaEvent_t event) {
        return *reinterpret_cast<Clock::time_point*>(event);
    };
    *milliseconds = std::chrono::duration<float, std::milli>(time(end) - time(start)).count();
    return cudaSuccess;
}

cudaError_t set_attribute(const void* function, cudaFuncAttribute attribute, int value) {
    if (attribute != cudaFuncAttributeMaxDynamicSharedMemorySize) return cudaSuccess;
    if (!function) return record(cudaErrorInvalidDeviceFunction);
    if (value < 0 || size_t(value) > most_shared) return record(cudaErrorInvalidValue);
    std::lock_guard<std::mutex> lock(allowances_mutex);
    allowances[function] = value;
    return cudaSuccess;
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
