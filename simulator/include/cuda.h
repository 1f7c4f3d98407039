// The part of CUDA's driver API that goes with programs of the runtime API: the device, memory,
// streams and errors. There is one context. Loading code for a GPU is refused by the rewriter.
#pragma once
#include "cuda_runtime.h"
#include "simulator/virtual_memory.h"

#define __cuda_cuda_h__
#define CUDA_VERSION 13000
#define CUDAAPI

#define SIMULATOR_RESULTS(X)                       \
    X(CUDA_SUCCESS, 0)                             \
    X(CUDA_ERROR_INVALID_VALUE, 1)                 \
    X(CUDA_ERROR_OUT_OF_MEMORY, 2)                 \
    X(CUDA_ERROR_NOT_INITIALIZED, 3)               \
    X(CUDA_ERROR_DEINITIALIZED, 4)                 \
    X(CUDA_ERROR_NO_DEVICE, 100)                   \
    X(CUDA_ERROR_INVALID_DEVICE, 101)              \
    X(CUDA_ERROR_INVALID_IMAGE, 200)               \
    X(CUDA_ERROR_INVALID_CONTEXT, 201)             \
    X(CUDA_ERROR_NO_BINARY_FOR_GPU, 209)           \
    X(CUDA_ERROR_INVALID_PTX, 218)                 \
    X(CUDA_ERROR_INVALID_SOURCE, 300)              \
    X(CUDA_ERROR_FILE_NOT_FOUND, 301)              \
    X(CUDA_ERROR_INVALID_HANDLE, 400)              \
    X(CUDA_ERROR_ILLEGAL_STATE, 401)               \
    X(CUDA_ERROR_NOT_FOUND, 500)                   \
    X(CUDA_ERROR_NOT_READY, 600)                   \
    X(CUDA_ERROR_ILLEGAL_ADDRESS, 700)             \
    X(CUDA_ERROR_LAUNCH_OUT_OF_RESOURCES, 701)     \
    X(CUDA_ERROR_LAUNCH_TIMEOUT, 702)              \
    X(CUDA_ERROR_PEER_ACCESS_ALREADY_ENABLED, 704) \
    X(CUDA_ERROR_PEER_ACCESS_NOT_ENABLED, 705)     \
    X(CUDA_ERROR_CONTEXT_IS_DESTROYED, 709)        \
    X(CUDA_ERROR_ASSERT, 710)                      \
    X(CUDA_ERROR_ILLEGAL_INSTRUCTION, 715)         \
    X(CUDA_ERROR_MISALIGNED_ADDRESS, 716)          \
    X(CUDA_ERROR_LAUNCH_FAILED, 719)               \
    X(CUDA_ERROR_NOT_PERMITTED, 800)               \
    X(CUDA_ERROR_NOT_SUPPORTED, 801)               \
    X(CUDA_ERROR_UNKNOWN, 999)

typedef enum cudaError_enum {
#define SIMULATOR_RESULT(name, number) name = number,
    SIMULATOR_RESULTS(SIMULATOR_RESULT)
#undef SIMULATOR_RESULT
} CUresult;

typedef int CUdevice;
typedef unsigned long long CUdeviceptr;
typedef struct CUctx_st* CUcontext;
typedef struct CUstream_st* CUstream;
typedef struct CUevent_st* CUevent;

// Numbered as cudaDeviceAttr is.
typedef enum CUdevice_attribute_enum {
    CU_DEVICE_ATTRIBUTE_MAX_THREADS_PER_BLOCK = 1,
    CU_DEVICE_ATTRIBUTE_MAX_BLOCK_DIM_X = 2,
    CU_DEVICE_ATTRIBUTE_MAX_BLOCK_DIM_Y = 3,
    CU_DEVICE_ATTRIBUTE_MAX_BLOCK_DIM_Z = 4,
    CU_DEVICE_ATTRIBUTE_MAX_GRID_DIM_X = 5,
    CU_DEVICE_ATTRIBUTE_MAX_GRID_DIM_Y = 6,
    CU_DEVICE_ATTRIBUTE_MAX_GRID_DIM_Z = 7,
    CU_DEVICE_ATTRIBUTE_MAX_SHARED_MEMORY_PER_BLOCK = 8,
    CU_DEVICE_ATTRIBUTE_SHARED_MEMORY_PER_BLOCK = 8,
    CU_DEVICE_ATTRIBUTE_TOTAL_CONSTANT_MEMORY = 9,
    CU_DEVICE_ATTRIBUTE_WARP_SIZE = 10,
    CU_DEVICE_ATTRIBUTE_MAX_PITCH = 11,
    CU_DEVICE_ATTRIBUTE_MAX_REGISTERS_PER_BLOCK = 12,
    CU_DEVICE_ATTRIBUTE_REGISTERS_PER_BLOCK = 12,
    CU_DEVICE_ATTRIBUTE_CLOCK_RATE = 13,
    CU_DEVICE_ATTRIBUTE_TEXTURE_ALIGNMENT = 14,
    CU_DEVICE_ATTRIBUTE_GPU_OVERLAP = 15,
    CU_DEVICE_ATTRIBUTE_MULTIPROCESSOR_COUNT = 16,
    CU_DEVICE_ATTRIBUTE_KERNEL_EXEC_TIMEOUT = 17,
    CU_DEVICE_ATTRIBUTE_INTEGRATED = 18,
    CU_DEVICE_ATTRIBUTE_CAN_MAP_HOST_MEMORY = 19,
    CU_DEVICE_ATTRIBUTE_COMPUTE_MODE = 20,
    CU_DEVICE_ATTRIBUTE_MAXIMUM_TEXTURE1D_WIDTH = 21,
    CU_DEVICE_ATTRIBUTE_MAXIMUM_TEXTURE2D_WIDTH = 22,
    CU_DEVICE_ATTRIBUTE_MAXIMUM_TEXTURE2D_HEIGHT = 23,
    CU_DEVICE_ATTRIBUTE_MAXIMUM_TEXTURE3D_WIDTH = 24,
    CU_DEVICE_ATTRIBUTE_MAXIMUM_TEXTURE3D_HEIGHT = 25,
    CU_DEVICE_ATTRIBUTE_MAXIMUM_TEXTURE3D_DEPTH = 26,
    CU_DEVICE_ATTRIBUTE_MAXIMUM_TEXTURE2D_LAYERED_WIDTH = 27,
    CU_DEVICE_ATTRIBUTE_MAXIMUM_TEXTURE2D_LAYERED_HEIGHT = 28,
    CU_DEVICE_ATTRIBUTE_MAXIMUM_TEXTURE2D_LAYERED_LAYERS = 29,
    CU_DEVICE_ATTRIBUTE_MAXIMUM_TEXTURE2D_ARRAY_WIDTH = 27,
    CU_DEVICE_ATTRIBUTE_MAXIMUM_TEXTURE2D_ARRAY_HEIGHT = 28,
    CU_DEVICE_ATTRIBUTE_MAXIMUM_TEXTURE2D_ARRAY_NUMSLICES = 29,
    CU_DEVICE_ATTRIBUTE_SURFACE_ALIGNMENT = 30,
    CU_DEVICE_ATTRIBUTE_CONCURRENT_KERNELS = 31,
    CU_DEVICE_ATTRIBUTE_ECC_ENABLED = 32,
    CU_DEVICE_ATTRIBUTE_PCI_BUS_ID = 33,
    CU_DEVICE_ATTRIBUTE_PCI_DEVICE_ID = 34,
    CU_DEVICE_ATTRIBUTE_TCC_DRIVER = 35,
    CU_DEVICE_ATTRIBUTE_MEMORY_CLOCK_RATE = 36,
    CU_DEVICE_ATTRIBUTE_GLOBAL_MEMORY_BUS_WIDTH = 37,
    CU_DEVICE_ATTRIBUTE_L2_CACHE_SIZE = 38,
    CU_DEVICE_ATTRIBUTE_MAX_THREADS_PER_MULTIPROCESSOR = 39,
    CU_DEVICE_ATTRIBUTE_ASYNC_ENGINE_COUNT = 40,
    CU_DEVICE_ATTRIBUTE_UNIFIED_ADDRESSING = 41,
    CU_DEVICE_ATTRIBUTE_MAXIMUM_TEXTURE1D_LAYERED_WIDTH = 42,
    CU_DEVICE_ATTRIBUTE_MAXIMUM_TEXTURE1D_LAYERED_LAYERS = 43,
    CU_DEVICE_ATTRIBUTE_MAXIMUM_TEXTURE2D_GATHER_WIDTH = 45,
    CU_DEVICE_ATTRIBUTE_MAXIMUM_TEXTURE2D_GATHER_HEIGHT = 46,
    CU_DEVICE_ATTRIBUTE_MAXIMUM_TEXTURE3D_WIDTH_ALTERNATE = 47,
    CU_DEVICE_ATTRIBUTE_MAXIMUM_TEXTURE3D_HEIGHT_ALTERNATE = 48,
    CU_DEVICE_ATTRIBUTE_MAXIMUM_TEXTURE3D_DEPTH_ALTERNATE = 49,
    CU_DEVICE_ATTRIBUTE_PCI_DOMAIN_ID = 50,
    CU_DEVICE_ATTRIBUTE_TEXTURE_PITCH_ALIGNMENT = 51,
    CU_DEVICE_ATTRIBUTE_MAXIMUM_TEXTURECUBEMAP_WIDTH = 52,
    CU_DEVICE_ATTRIBUTE_MAXIMUM_TEXTURECUBEMAP_LAYERED_WIDTH = 53,
    CU_DEVICE_ATTRIBUTE_MAXIMUM_TEXTURECUBEMAP_LAYERED_LAYERS = 54,
    CU_DEVICE_ATTRIBUTE_MAXIMUM_SURFACE1D_WIDTH = 55,
    CU_DEVICE_ATTRIBUTE_MAXIMUM_SURFACE2D_WIDTH = 56,
    CU_DEVICE_ATTRIBUTE_MAXIMUM_SURFACE2D_HEIGHT = 57,
    CU_DEVICE_ATTRIBUTE_MAXIMUM_SURFACE3D_WIDTH = 58,
    CU_DEVICE_ATTRIBUTE_MAXIMUM_SURFACE3D_HEIGHT = 59,
    CU_DEVICE_ATTRIBUTE_MAXIMUM_SURFACE3D_DEPTH = 60,
    CU_DEVICE_ATTRIBUTE_MAXIMUM_SURFACE1D_LAYERED_WIDTH = 61,
    CU_DEVICE_ATTRIBUTE_MAXIMUM_SURFACE1D_LAYERED_LAYERS = 62,
    CU_DEVICE_ATTRIBUTE_MAXIMUM_SURFACE2D_LAYERED_WIDTH = 63,
    CU_DEVICE_ATTRIBUTE_MAXIMUM_SURFACE2D_LAYERED_HEIGHT = 64,
    CU_DEVICE_ATTRIBUTE_MAXIMUM_SURFACE2D_LAYERED_LAYERS = 65,
    CU_DEVICE_ATTRIBUTE_MAXIMUM_SURFACECUBEMAP_WIDTH = 66,
    CU_DEVICE_ATTRIBUTE_MAXIMUM_SURFACECUBEMAP_LAYERED_WIDTH = 67,
    CU_DEVICE_ATTRIBUTE_MAXIMUM_SURFACECUBEMAP_LAYERED_LAYERS = 68,
    CU_DEVICE_ATTRIBUTE_MAXIMUM_TEXTURE1D_LINEAR_WIDTH = 69,
    CU_DEVICE_ATTRIBUTE_MAXIMUM_TEXTURE2D_LINEAR_WIDTH = 70,
    CU_DEVICE_ATTRIBUTE_MAXIMUM_TEXTURE2D_LINEAR_HEIGHT = 71,
    CU_DEVICE_ATTRIBUTE_MAXIMUM_TEXTURE2D_LINEAR_PITCH = 72,
    CU_DEVICE_ATTRIBUTE_COMPUTE_CAPABILITY_MAJOR = 75,
    CU_DEVICE_ATTRIBUTE_COMPUTE_CAPABILITY_MINOR = 76,
    CU_DEVICE_ATTRIBUTE_STREAM_PRIORITIES_SUPPORTED = 78,
    CU_DEVICE_ATTRIBUTE_GLOBAL_L1_CACHE_SUPPORTED = 79,
    CU_DEVICE_ATTRIBUTE_LOCAL_L1_CACHE_SUPPORTED = 80,
    CU_DEVICE_ATTRIBUTE_MAX_SHARED_MEMORY_PER_MULTIPROCESSOR = 81,
    CU_DEVICE_ATTRIBUTE_MAX_REGISTERS_PER_MULTIPROCESSOR = 82,
    CU_DEVICE_ATTRIBUTE_MANAGED_MEMORY = 83,
    CU_DEVICE_ATTRIBUTE_MULTI_GPU_BOARD = 84,
    CU_DEVICE_ATTRIBUTE_MULTI_GPU_BOARD_GROUP_ID = 85,
    CU_DEVICE_ATTRIBUTE_HOST_NATIVE_ATOMIC_SUPPORTED = 86,
    CU_DEVICE_ATTRIBUTE_SINGLE_TO_DOUBLE_PRECISION_PERF_RATIO = 87,
    CU_DEVICE_ATTRIBUTE_PAGEABLE_MEMORY_ACCESS = 88,
    CU_DEVICE_ATTRIBUTE_CONCURRENT_MANAGED_ACCESS = 89,
    CU_DEVICE_ATTRIBUTE_COMPUTE_PREEMPTION_SUPPORTED = 90,
    CU_DEVICE_ATTRIBUTE_CAN_USE_HOST_POINTER_FOR_REGISTERED_MEM = 91,
    CU_DEVICE_ATTRIBUTE_COOPERATIVE_LAUNCH = 95,
    CU_DEVICE_ATTRIBUTE_COOPERATIVE_MULTI_DEVICE_LAUNCH = 96,
    CU_DEVICE_ATTRIBUTE_MAX_SHARED_MEMORY_PER_BLOCK_OPTIN = 97,
    CU_DEVICE_ATTRIBUTE_CAN_FLUSH_REMOTE_WRITES = 98,
    CU_DEVICE_ATTRIBUTE_HOST_REGISTER_SUPPORTED = 99,
    CU_DEVICE_ATTRIBUTE_DIRECT_MANAGED_MEM_ACCESS_FROM_HOST = 101,
    CU_DEVICE_ATTRIBUTE_VIRTUAL_ADDRESS_MANAGEMENT_SUPPORTED = 102,
    CU_DEVICE_ATTRIBUTE_VIRTUAL_MEMORY_MANAGEMENT_SUPPORTED = 102,
    CU_DEVICE_ATTRIBUTE_HANDLE_TYPE_POSIX_FILE_DESCRIPTOR_SUPPORTED = 103,
    CU_DEVICE_ATTRIBUTE_MAX_BLOCKS_PER_MULTIPROCESSOR = 106,
    CU_DEVICE_ATTRIBUTE_MAX_PERSISTING_L2_CACHE_SIZE = 108,
    CU_DEVICE_ATTRIBUTE_MAX_ACCESS_POLICY_WINDOW_SIZE = 109,
    CU_DEVICE_ATTRIBUTE_RESERVED_SHARED_MEMORY_PER_BLOCK = 111,
    CU_DEVICE_ATTRIBUTE_SPARSE_CUDA_ARRAY_SUPPORTED = 112,
    CU_DEVICE_ATTRIBUTE_READ_ONLY_HOST_REGISTER_SUPPORTED = 113,
    CU_DEVICE_ATTRIBUTE_TIMELINE_SEMAPHORE_INTEROP_SUPPORTED = 114,
    CU_DEVICE_ATTRIBUTE_MEMORY_POOLS_SUPPORTED = 115,
    CU_DEVICE_ATTRIBUTE_GPU_DIRECT_RDMA_SUPPORTED = 116,
    CU_DEVICE_ATTRIBUTE_CLUSTER_LAUNCH = 120,
    CU_DEVICE_ATTRIBUTE_DEFERRED_MAPPING_CUDA_ARRAY_SUPPORTED = 121,
    CU_DEVICE_ATTRIBUTE_IPC_EVENT_SUPPORTED = 125,
    CU_DEVICE_ATTRIBUTE_MEM_SYNC_DOMAIN_COUNT = 126,
    CU_DEVICE_ATTRIBUTE_HANDLE_TYPE_FABRIC_SUPPORTED = 128,
    CU_DEVICE_ATTRIBUTE_MULTICAST_SUPPORTED = 132,
    CU_DEVICE_ATTRIBUTE_MPS_ENABLED = 133,
    CU_DEVICE_ATTRIBUTE_HOST_NUMA_ID = 134,
} CUdevice_attribute;

typedef enum CUcomputemode_enum {
    CU_COMPUTEMODE_DEFAULT = 0,
    CU_COMPUTEMODE_PROHIBITED = 2,
    CU_COMPUTEMODE_EXCLUSIVE_PROCESS = 3,
} CUcomputemode;

enum CUctx_flags {
    CU_CTX_SCHED_AUTO = 0,
    CU_CTX_SCHED_SPIN = 1,
    CU_CTX_SCHED_YIELD = 2,
    CU_CTX_SCHED_BLOCKING_SYNC = 4,
    CU_CTX_MAP_HOST = 8,
};
enum CUstream_flags { CU_STREAM_DEFAULT = 0, CU_STREAM_NON_BLOCKING = 1 };
enum CUevent_flags {
    CU_EVENT_DEFAULT = 0,
    CU_EVENT_BLOCKING_SYNC = 1,
    CU_EVENT_DISABLE_TIMING = 2
};

namespace simulator::driver {

// The runtime's error, as the driver's; the runtime forgets it. Where they are errors of both, the
// numbers are the same.
inline CUresult result(cudaError_t error) {
    if (error != cudaSuccess) cudaGetLastError();
    return CUresult(error == cudaErrorInvalidMemcpyDirection || error == cudaErrorInvalidPitchValue
                        ? cudaErrorInvalidValue
                        : error);
}
inline void* pointer(CUdeviceptr address) { return reinterpret_cast<void*>(address); }
inline CUcontext context() { return reinterpret_cast<CUcontext>(1); }

inline CUresult cuInit(unsigned flags) { return flags ? CUDA_ERROR_INVALID_VALUE : CUDA_SUCCESS; }
inline CUresult cuDriverGetVersion(int* version) { return result(cudaDriverGetVersion(version)); }
inline CUresult cuGetErrorName(CUresult error, const char** name) {
    switch (error) {
#define SIMULATOR_RESULT(code, number) \
    case code:                         \
        *name = #code;                 \
        return CUDA_SUCCESS;
        SIMULATOR_RESULTS(SIMULATOR_RESULT)
#undef SIMULATOR_RESULT
    }
    *name = nullptr;
    return CUDA_ERROR_INVALID_VALUE;
}
inline CUresult cuGetErrorString(CUresult error, const char** text) {
    *text = cudaGetErrorString(cudaError_t(error));
    return CUDA_SUCCESS;
}

inline CUresult cuDeviceGetCount(int* count) { return result(cudaGetDeviceCount(count)); }
inline CUresult cuDeviceGet(CUdevice* device, int ordinal) {
    if (!device) return CUDA_ERROR_INVALID_VALUE;
    if (ordinal != 0) return CUDA_ERROR_INVALID_DEVICE;
    *device = 0;
    return CUDA_SUCCESS;
}
inline CUresult cuDeviceGetAttribute(int* value, CUdevice_attribute attribute, CUdevice device) {
    switch (attribute) {  // those that the runtime has not
        case CU_DEVICE_ATTRIBUTE_VIRTUAL_MEMORY_MANAGEMENT_SUPPORTED:
        case CU_DEVICE_ATTRIBUTE_HANDLE_TYPE_POSIX_FILE_DESCRIPTOR_SUPPORTED:
        case CU_DEVICE_ATTRIBUTE_HANDLE_TYPE_FABRIC_SUPPORTED:
        case CU_DEVICE_ATTRIBUTE_MULTICAST_SUPPORTED:
            if (!value) return CUDA_ERROR_INVALID_VALUE;
            if (device != 0) return CUDA_ERROR_INVALID_DEVICE;
            *value = attribute <= CU_DEVICE_ATTRIBUTE_HANDLE_TYPE_POSIX_FILE_DESCRIPTOR_SUPPORTED;
            return CUDA_SUCCESS;
        default:
            return result(cudaDeviceGetAttribute(value, cudaDeviceAttr(attribute), device));
    }
}
inline CUresult cuDeviceGetName(char* name, int length, CUdevice device) {
    cudaDeviceProp properties;
    if (!name || length < 1) return CUDA_ERROR_INVALID_VALUE;
    if (cudaError_t error = cudaGetDeviceProperties(&properties, device)) return result(error);
    snprintf(name, length, "%s", properties.name);
    return CUDA_SUCCESS;
}
inline CUresult cuDeviceTotalMem(size_t* bytes, CUdevice device) {
    cudaDeviceProp properties;
    if (cudaError_t error = cudaGetDeviceProperties(&properties, device)) return result(error);
    *bytes = properties.totalGlobalMem;
    return CUDA_SUCCESS;
}
inline CUresult cuDeviceComputeCapability(int* major, int* minor, CUdevice device) {
    if (cudaError_t error =
            cudaDeviceGetAttribute(major, cudaDevAttrComputeCapabilityMajor, device))
        return result(error);
    return result(cudaDeviceGetAttribute(minor, cudaDevAttrComputeCapabilityMinor, device));
}
inline CUresult cuDeviceCanAccessPeer(int* can, CUdevice device, CUdevice peer) {
    return result(cudaDeviceCanAccessPeer(can, device, peer));
}

inline CUresult cuDevicePrimaryCtxRetain(CUcontext* to, CUdevice device) {
    *to = context();
    return device == 0 ? CUDA_SUCCESS : CUDA_ERROR_INVALID_DEVICE;
}
inline CUresult cuDevicePrimaryCtxRelease(CUdevice device) {
    return device == 0 ? CUDA_SUCCESS : CUDA_ERROR_INVALID_DEVICE;
}
inline CUresult cuCtxGetCurrent(CUcontext* to) {
    *to = context();
    return CUDA_SUCCESS;
}
inline CUresult cuCtxSetCurrent(CUcontext) { return CUDA_SUCCESS; }
inline CUresult cuCtxGetDevice(CUdevice* device) { return result(cudaGetDevice(device)); }
inline CUresult cuCtxSynchronize() { return result(cudaDeviceSynchronize()); }

inline CUresult cuMemGetInfo(size_t* free, size_t* total) {
    return result(cudaMemGetInfo(free, total));
}
inline CUresult cuMemAlloc(CUdeviceptr* address, size_t bytes) {
    if (!bytes) return CUDA_ERROR_INVALID_VALUE;
    return result(cudaMalloc(reinterpret_cast<void**>(address), bytes));
}
inline CUresult cuMemFree(CUdeviceptr address) { return result(cudaFree(pointer(address))); }
inline CUresult cuMemAllocHost(void** address, size_t bytes) {
    return result(cudaMallocHost(address, bytes));
}
inline CUresult cuMemFreeHost(void* address) { return result(cudaFreeHost(address)); }
inline CUresult cuMemcpyHtoD(CUdeviceptr to, const void* from, size_t bytes) {
    return result(cudaMemcpy(pointer(to), from, bytes, cudaMemcpyHostToDevice));
}
inline CUresult cuMemcpyDtoH(void* to, CUdeviceptr from, size_t bytes) {
    return result(cudaMemcpy(to, pointer(from), bytes, cudaMemcpyDeviceToHost));
}
inline CUresult cuMemcpyDtoD(CUdeviceptr to, CUdeviceptr from, size_t bytes) {
    return result(cudaMemcpy(pointer(to), pointer(from), bytes, cudaMemcpyDeviceToDevice));
}
inline CUresult cuMemsetD8(CUdeviceptr to, unsigned char value, size_t count) {
    return result(cudaMemset(pointer(to), value, count));
}

inline CUresult cuMemGetAllocationGranularity(size_t* bytes, const CUmemAllocationProp* of,
                                              CUmemAllocationGranularity_flags) {
    return result(granularity_of_memory(bytes, of));
}
inline CUresult cuMemAddressReserve(CUdeviceptr* address, size_t bytes, size_t alignment,
                                    CUdeviceptr wanted, unsigned long long flags) {
    return result(reserve_addresses(address, bytes, alignment, wanted, flags));
}
inline CUresult cuMemAddressFree(CUdeviceptr address, size_t bytes) {
    return result(free_addresses(address, bytes));
}
inline CUresult cuMemCreate(CUmemGenericAllocationHandle* handle, size_t bytes,
                            const CUmemAllocationProp* properties, unsigned long long flags) {
    return result(create_memory(handle, bytes, properties, flags));
}
inline CUresult cuMemRelease(CUmemGenericAllocationHandle handle) {
    return result(release_memory(handle));
}
inline CUresult cuMemMap(CUdeviceptr address, size_t bytes, size_t offset,
                         CUmemGenericAllocationHandle handle, unsigned long long flags) {
    return result(map_memory(address, bytes, offset, handle, flags));
}
inline CUresult cuMemUnmap(CUdeviceptr address, size_t bytes) {
    return result(unmap_memory(address, bytes));
}
inline CUresult cuMemSetAccess(CUdeviceptr address, size_t bytes, const CUmemAccessDesc* of,
                               size_t count) {
    return result(set_access(address, bytes, of, count));
}
inline CUresult cuMemRetainAllocationHandle(CUmemGenericAllocationHandle* handle, void* address) {
    return result(retain_memory(handle, address));
}
inline CUresult cuMemGetAllocationPropertiesFromHandle(CUmemAllocationProp* properties,
                                                       CUmemGenericAllocationHandle handle) {
    return result(properties_of_memory(properties, handle));
}
inline CUresult cuMemExportToShareableHandle(void* to, CUmemGenericAllocationHandle handle,
                                             CUmemAllocationHandleType type,
                                             unsigned long long flags) {
    return result(export_memory(to, handle, type, flags));
}
inline CUresult cuMemImportFromShareableHandle(CUmemGenericAllocationHandle* handle, void* from,
                                               CUmemAllocationHandleType type) {
    return result(import_memory(handle, from, type));
}

#define SIMULATOR_MULTICAST "multicast objects are of several devices, and there is one"
SIMULATOR_REFUSED(CUresult, cuMulticastCreate, SIMULATOR_MULTICAST, CUmemGenericAllocationHandle*,
                  const CUmulticastObjectProp*)
SIMULATOR_REFUSED(CUresult, cuMulticastAddDevice, SIMULATOR_MULTICAST, CUmemGenericAllocationHandle,
                  CUdevice)
SIMULATOR_REFUSED(CUresult, cuMulticastBindMem, SIMULATOR_MULTICAST, CUmemGenericAllocationHandle,
                  size_t, CUmemGenericAllocationHandle, size_t, size_t, unsigned long long)
SIMULATOR_REFUSED(CUresult, cuMulticastBindAddr, SIMULATOR_MULTICAST, CUmemGenericAllocationHandle,
                  size_t, CUdeviceptr, size_t, unsigned long long)
SIMULATOR_REFUSED(CUresult, cuMulticastUnbind, SIMULATOR_MULTICAST, CUmemGenericAllocationHandle,
                  CUdevice, size_t, size_t)
SIMULATOR_REFUSED(CUresult, cuMulticastGetGranularity, SIMULATOR_MULTICAST, size_t*,
                  const CUmulticastObjectProp*, CUmulticastGranularity_flags)
#undef SIMULATOR_MULTICAST

inline CUresult cuStreamCreate(CUstream* stream, unsigned flags) {
    return result(cudaStreamCreateWithFlags(stream, flags));
}
inline CUresult cuStreamDestroy(CUstream stream) { return result(cudaStreamDestroy(stream)); }
inline CUresult cuStreamSynchronize(CUstream stream) {
    return result(cudaStreamSynchronize(stream));
}
inline CUresult cuEventCreate(CUevent* event, unsigned flags) {
    return result(cudaEventCreateWithFlags(event, flags));
}
inline CUresult cuEventDestroy(CUevent event) { return result(cudaEventDestroy(event)); }
inline CUresult cuEventRecord(CUevent event, CUstream stream) {
    return result(cudaEventRecord(event, stream));
}
inline CUresult cuEventSynchronize(CUevent event) { return result(cudaEventSynchronize(event)); }
inline CUresult cuEventElapsedTime(float* milliseconds, CUevent start, CUevent end) {
    return result(cudaEventElapsedTime(milliseconds, start, end));
}

}  // namespace simulator::driver
using namespace simulator::driver;
