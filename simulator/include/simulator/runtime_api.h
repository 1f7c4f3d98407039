// CUDA's runtime API as launchers and whole programs use it: errors, memory, streams, events, the
// device. There is one device, this computer's processor, and its memory is the host's. A launch is
// over when it returns, so every stream is idle. What is rarer has headers of its own, which the
// rewriter includes where a source speaks of it: graphs.h, kernel_address.h, memory_pools.h,
// textures.h.
//
// The functions live in a namespace, so that a process which has loaded NVIDIA's runtime too keeps
// the two apart.
#pragma once
#include "../driver_types.h"
#include "block.h"

#define __CUDA_RUNTIME_API_H__
#define CUDART_VERSION 13000
#define CUDARTAPI

namespace simulator::api {
#pragma GCC visibility push(default)

// ---- Errors

cudaError_t cudaGetLastError();
cudaError_t cudaPeekAtLastError();
const char* cudaGetErrorName(cudaError_t error);
// For an error of this thread's last launches, what happened in detail.
const char* cudaGetErrorString(cudaError_t error);

// A statement that is only a call, as `cudaMemcpy(y, x, n, kind);`, drops the call's error. The
// rewriter puts a Dropped and a comma before it, so that the error is told with its place.
struct Dropped {
    const char* call;
    const char* file = __builtin_FILE();
    int line = __builtin_LINE();
};
void tell_dropped(const Dropped& it, cudaError_t error);
inline void operator,(const Dropped& it, cudaError_t error) {
    if (error != cudaSuccess) tell_dropped(it, error);
}

// ---- Memory

cudaError_t cudaMalloc(void** address, size_t bytes);
cudaError_t cudaFree(void* address);
cudaError_t cudaMallocManaged(void** address, size_t bytes, unsigned flags = cudaMemAttachGlobal);
cudaError_t cudaMallocHost(void** address, size_t bytes, unsigned flags = 0);
cudaError_t cudaHostAlloc(void** address, size_t bytes, unsigned flags);
cudaError_t cudaFreeHost(void* address);
cudaError_t cudaMallocAsync(void** address, size_t bytes, cudaStream_t stream);
cudaError_t cudaFreeAsync(void* address, cudaStream_t stream);
cudaError_t cudaMallocPitch(void** address, size_t* pitch, size_t width, size_t height);
cudaError_t cudaMalloc3D(cudaPitchedPtr* memory, cudaExtent extent);
cudaError_t cudaHostRegister(void* address, size_t bytes, unsigned flags);
cudaError_t cudaHostUnregister(void* address);
cudaError_t cudaHostGetDevicePointer(void** device, void* host, unsigned flags);
cudaError_t cudaHostGetFlags(unsigned* flags, void* host);
cudaError_t cudaPointerGetAttributes(cudaPointerAttributes* attributes, const void* address);
cudaError_t cudaMemGetInfo(size_t* free, size_t* total);
cudaError_t cudaMemAdvise(const void* address, size_t bytes, cudaMemoryAdvise advice, int device);
cudaError_t cudaMemAdvise(const void* address, size_t bytes, cudaMemoryAdvise advice,
                          cudaMemLocation location);
cudaError_t cudaMemPrefetchAsync(const void* address, size_t bytes, int device,
                                 cudaStream_t stream = nullptr);
cudaError_t cudaMemPrefetchAsync(const void* address, size_t bytes, cudaMemLocation location,
                                 unsigned flags, cudaStream_t stream = nullptr);

// ---- Copies

cudaError_t cudaMemcpy(void* to, const void* from, size_t bytes, cudaMemcpyKind kind);
cudaError_t cudaMemcpyAsync(void* to, const void* from, size_t bytes, cudaMemcpyKind kind,
                            cudaStream_t stream = nullptr);
cudaError_t cudaMemcpy2D(void* to, size_t to_pitch, const void* from, size_t from_pitch,
                         size_t width, size_t height, cudaMemcpyKind kind);
cudaError_t cudaMemcpy2DAsync(void* to, size_t to_pitch, const void* from, size_t from_pitch,
                              size_t width, size_t height, cudaMemcpyKind kind,
                              cudaStream_t stream = nullptr);
cudaError_t cudaMemcpy3D(const cudaMemcpy3DParms* copy);
cudaError_t cudaMemcpy3DAsync(const cudaMemcpy3DParms* copy, cudaStream_t stream = nullptr);
cudaError_t cudaMemcpyPeer(void* to, int to_device, const void* from, int from_device,
                           size_t bytes);
cudaError_t cudaMemcpyPeerAsync(void* to, int to_device, const void* from, int from_device,
                                size_t bytes, cudaStream_t stream = nullptr);
cudaError_t cudaMemset(void* address, int byte, size_t bytes);
cudaError_t cudaMemsetAsync(void* address, int byte, size_t bytes, cudaStream_t stream = nullptr);
cudaError_t cudaMemset2D(void* address, size_t pitch, int byte, size_t width, size_t height);
cudaError_t cudaMemset2DAsync(void* address, size_t pitch, int byte, size_t width, size_t height,
                              cudaStream_t stream = nullptr);
cudaError_t cudaMemset3D(cudaPitchedPtr memory, int byte, cudaExtent extent);
cudaError_t cudaMemset3DAsync(cudaPitchedPtr memory, int byte, cudaExtent extent,
                              cudaStream_t stream = nullptr);

// ---- The device

cudaError_t cudaGetDevice(int* device);
cudaError_t cudaSetDevice(int device);
cudaError_t cudaInitDevice(int device, unsigned device_flags, unsigned flags);
cudaError_t cudaGetDeviceCount(int* count);
cudaError_t device_attribute(int* value, cudaDeviceAttr attribute, int device, int architecture);
cudaError_t device_properties(cudaDeviceProp* properties, int device, int architecture);
#if defined(SIMULATOR_ARCHITECTURE) && SIMULATOR_ARCHITECTURE != 900
// A build for another architecture sees a device of that one.
static inline cudaError_t cudaDeviceGetAttribute(int* value, cudaDeviceAttr attribute, int device) {
    return device_attribute(value, attribute, device, SIMULATOR_ARCHITECTURE);
}
static inline cudaError_t cudaGetDeviceProperties(cudaDeviceProp* properties, int device) {
    return device_properties(properties, device, SIMULATOR_ARCHITECTURE);
}
#else
cudaError_t cudaDeviceGetAttribute(int* value, cudaDeviceAttr attribute, int device);
cudaError_t cudaGetDeviceProperties(cudaDeviceProp* properties, int device);
#endif
cudaError_t cudaChooseDevice(int* device, const cudaDeviceProp* wanted);
cudaError_t cudaSetDeviceFlags(unsigned flags);
cudaError_t cudaGetDeviceFlags(unsigned* flags);
cudaError_t cudaDeviceSynchronize();
cudaError_t cudaDeviceReset();
cudaError_t cudaDeviceSetLimit(cudaLimit limit, size_t value);
cudaError_t cudaDeviceGetLimit(size_t* value, cudaLimit limit);
cudaError_t cudaDeviceGetCacheConfig(cudaFuncCache* config);
cudaError_t cudaDeviceSetCacheConfig(cudaFuncCache config);
cudaError_t cudaDeviceGetSharedMemConfig(cudaSharedMemConfig* config);
cudaError_t cudaDeviceSetSharedMemConfig(cudaSharedMemConfig config);
cudaError_t cudaDeviceGetStreamPriorityRange(int* least, int* greatest);
cudaError_t cudaDeviceGetPCIBusId(char* id, int length, int device);
cudaError_t cudaDeviceGetByPCIBusId(int* device, const char* id);
cudaError_t cudaDeviceCanAccessPeer(int* can, int device, int peer);
cudaError_t cudaDeviceEnablePeerAccess(int peer, unsigned flags);
cudaError_t cudaDeviceDisablePeerAccess(int peer);
cudaError_t cudaDeviceGetP2PAttribute(int* value, cudaDeviceP2PAttr attribute, int from, int to);
cudaError_t cudaDriverGetVersion(int* version);
cudaError_t cudaRuntimeGetVersion(int* version);

// ---- Streams and events

cudaError_t cudaStreamCreate(cudaStream_t* stream);
cudaError_t cudaStreamCreateWithFlags(cudaStream_t* stream, unsigned flags);
cudaError_t cudaStreamCreateWithPriority(cudaStream_t* stream, unsigned flags, int priority);
cudaError_t cudaStreamDestroy(cudaStream_t stream);
cudaError_t cudaStreamSynchronize(cudaStream_t stream);
cudaError_t cudaStreamQuery(cudaStream_t stream);
cudaError_t cudaStreamWaitEvent(cudaStream_t stream, cudaEvent_t event, unsigned flags = 0);
cudaError_t cudaStreamGetFlags(cudaStream_t stream, unsigned* flags);
cudaError_t cudaStreamGetPriority(cudaStream_t stream, int* priority);
cudaError_t cudaStreamGetId(cudaStream_t stream, unsigned long long* id);
cudaError_t cudaStreamAddCallback(cudaStream_t stream, cudaStreamCallback_t callback, void* data,
                                  unsigned flags);
cudaError_t cudaLaunchHostFunc(cudaStream_t stream, cudaHostFn_t function, void* data);
cudaError_t cudaStreamAttachMemAsync(cudaStream_t stream, void* address, size_t bytes = 0,
                                     unsigned flags = cudaMemAttachSingle);
cudaError_t cudaStreamIsCapturing(cudaStream_t stream, cudaStreamCaptureStatus* status);
cudaError_t cudaEventCreate(cudaEvent_t* event);
cudaError_t cudaEventCreateWithFlags(cudaEvent_t* event, unsigned flags);
cudaError_t cudaEventDestroy(cudaEvent_t event);
cudaError_t cudaEventRecord(cudaEvent_t event, cudaStream_t stream = nullptr);
cudaError_t cudaEventRecordWithFlags(cudaEvent_t event, cudaStream_t stream = nullptr,
                                     unsigned flags = 0);
cudaError_t cudaEventSynchronize(cudaEvent_t event);
cudaError_t cudaEventQuery(cudaEvent_t event);
cudaError_t cudaEventElapsedTime(float* milliseconds, cudaEvent_t start, cudaEvent_t end);

// ---- What the templates below come down to

cudaError_t set_attribute(const void* function, cudaFuncAttribute attribute, int value);
cudaError_t get_attributes(cudaFuncAttributes* attributes, const void* function);
cudaError_t occupancy(int* blocks, int threads, size_t shared);
cudaError_t potential_block_size(int* blocks, int* threads, size_t (*shared_of)(void*, int),
                                 void* data, int limit);
cudaError_t copy_symbol(void* symbol, size_t size, bool is_target, void* other, size_t bytes,
                        size_t offset, cudaMemcpyKind kind, cudaStream_t stream);

#pragma GCC visibility pop

// ---- Memory of any type

template <class T>
cudaError_t cudaMalloc(T** address, size_t bytes) {
    return cudaMalloc((void**)address, bytes);
}
template <class T>
cudaError_t cudaMallocManaged(T** address, size_t bytes, unsigned flags = cudaMemAttachGlobal) {
    return cudaMallocManaged((void**)address, bytes, flags);
}
template <class T>
cudaError_t cudaMallocHost(T** address, size_t bytes, unsigned flags = 0) {
    return cudaMallocHost((void**)address, bytes, flags);
}
template <class T>
cudaError_t cudaHostAlloc(T** address, size_t bytes, unsigned flags) {
    return cudaHostAlloc((void**)address, bytes, flags);
}
template <class T>
cudaError_t cudaMallocAsync(T** address, size_t bytes, cudaStream_t stream) {
    return cudaMallocAsync((void**)address, bytes, stream);
}
template <class T>
cudaError_t cudaMallocPitch(T** address, size_t* pitch, size_t width, size_t height) {
    return cudaMallocPitch((void**)address, pitch, width, height);
}
template <class T>
cudaError_t cudaHostGetDevicePointer(T** device, void* host, unsigned flags) {
    return cudaHostGetDevicePointer((void**)device, host, flags);
}
inline cudaError_t cudaEventCreate(cudaEvent_t* event, unsigned flags) {
    return cudaEventCreateWithFlags(event, flags);
}
template <class T>
cudaError_t cudaStreamAttachMemAsync(cudaStream_t stream, T* address, size_t bytes = 0,
                                     unsigned flags = cudaMemAttachSingle) {
    return cudaStreamAttachMemAsync(stream, (void*)address, bytes, flags);
}

inline cudaExtent make_cudaExtent(size_t width, size_t height, size_t depth) {
    return {width, height, depth};
}
inline cudaPos make_cudaPos(size_t x, size_t y, size_t z) { return {x, y, z}; }
inline cudaPitchedPtr make_cudaPitchedPtr(void* memory, size_t pitch, size_t width, size_t height) {
    return {memory, pitch, width, height};
}

// ---- `__device__` and `__constant__` variables, which are ordinary ones

template <class T>
cudaError_t cudaMemcpyToSymbol(const T& symbol, const void* from, size_t bytes, size_t offset = 0,
                               cudaMemcpyKind kind = cudaMemcpyHostToDevice) {
    const cudaError_t error =
        copy_symbol((void*)&symbol, sizeof(T), true, (void*)from, bytes, offset, kind, nullptr);
    return error ? error : cudaStreamSynchronize(nullptr);
}
template <class T>
cudaError_t cudaMemcpyFromSymbol(void* to, const T& symbol, size_t bytes, size_t offset = 0,
                                 cudaMemcpyKind kind = cudaMemcpyDeviceToHost) {
    const cudaError_t error =
        copy_symbol((void*)&symbol, sizeof(T), false, to, bytes, offset, kind, nullptr);
    return error ? error : cudaStreamSynchronize(nullptr);
}
template <class T>
cudaError_t cudaMemcpyToSymbolAsync(const T& symbol, const void* from, size_t bytes,
                                    size_t offset = 0, cudaMemcpyKind kind = cudaMemcpyHostToDevice,
                                    cudaStream_t stream = nullptr) {
    return copy_symbol((void*)&symbol, sizeof(T), true, (void*)from, bytes, offset, kind, stream);
}
template <class T>
cudaError_t cudaMemcpyFromSymbolAsync(void* to, const T& symbol, size_t bytes, size_t offset = 0,
                                      cudaMemcpyKind kind = cudaMemcpyDeviceToHost,
                                      cudaStream_t stream = nullptr) {
    return copy_symbol((void*)&symbol, sizeof(T), false, to, bytes, offset, kind, stream);
}
template <class T, class U>
cudaError_t cudaGetSymbolAddress(T** address, const U& symbol) {
    *address = (T*)&symbol;
    return cudaSuccess;
}
template <class T>
cudaError_t cudaGetSymbolSize(size_t* bytes, const T&) {
    *bytes = sizeof(T);
    return cudaSuccess;
}

// ---- Kernels

template <class T>
cudaError_t cudaFuncSetAttribute(T* function, cudaFuncAttribute attribute, int value) {
    cudaDeviceProp it;
    const bool is_shared = attribute == cudaFuncAttributeMaxDynamicSharedMemorySize;
    if (is_shared && !cudaGetDeviceProperties(&it, 0) && value > int(it.sharedMemPerBlockOptin))
        value = -1;  // which is refused, too
    return set_attribute((const void*)function, attribute, value);
}
template <class T>
cudaError_t cudaFuncGetAttributes(cudaFuncAttributes* attributes, T* function) {
    return get_attributes(attributes, (const void*)function);
}
template <class T>
cudaError_t cudaFuncSetCacheConfig(T*, cudaFuncCache) {
    return cudaSuccess;
}
template <class T>
cudaError_t cudaFuncSetSharedMemConfig(T*, cudaSharedMemConfig) {
    return cudaSuccess;
}
template <class T>
cudaError_t cudaOccupancyMaxActiveBlocksPerMultiprocessor(int* blocks, T*, int threads,
                                                          size_t shared) {
    return occupancy(blocks, threads, shared);
}
template <class T>
cudaError_t cudaOccupancyMaxActiveBlocksPerMultiprocessorWithFlags(int* blocks, T*, int threads,
                                                                   size_t shared, unsigned) {
    return occupancy(blocks, threads, shared);
}
template <class T, class Shared>
cudaError_t cudaOccupancyMaxPotentialBlockSizeVariableSMemWithFlags(
    int* blocks, int* threads, T*, Shared shared, int limit = 0, unsigned = 0) {
    const auto shared_of = [](void* data, int size) -> size_t { return (*(Shared*)data)(size); };
    return potential_block_size(blocks, threads, shared_of, (void*)&shared, limit);
}
template <class T, class Shared>
cudaError_t cudaOccupancyMaxPotentialBlockSizeVariableSMem(int* blocks, int* threads, T* kernel,
                                                           Shared shared, int limit = 0) {
    return cudaOccupancyMaxPotentialBlockSizeVariableSMemWithFlags(
        blocks, threads, kernel, shared, limit);
}
template <class T>
cudaError_t cudaOccupancyMaxPotentialBlockSize(int* blocks, int* threads, T*, size_t shared = 0,
                                               int limit = 0) {
    const auto shared_of = [](void* data, int) { return *(size_t*)data; };
    return potential_block_size(blocks, threads, shared_of, &shared, limit);
}
template <class T>
cudaError_t cudaOccupancyMaxPotentialBlockSizeWithFlags(
    int* blocks, int* threads, T* kernel, size_t shared = 0, int limit = 0, unsigned = 0) {
    return cudaOccupancyMaxPotentialBlockSize(blocks, threads, kernel, shared, limit);
}
template <class T>
cudaError_t cudaOccupancyAvailableDynamicSMemPerBlock(size_t* bytes, T*, int blocks, int threads) {
    int most = 0;
    *bytes = 0;
    for (size_t next = 0; !occupancy(&most, threads, next) && most >= blocks; next += 1024)
        *bytes = next;
    return cudaSuccess;
}

}  // namespace simulator::api
using namespace simulator::api;
