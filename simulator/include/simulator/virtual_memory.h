// Virtual memory of the driver API: addresses are reserved, memory is created, and one is mapped to
// the other. Memory is a file without a name, so it may be mapped twice and in other processes.
// What needs several devices, or shares what cudaMalloc has given, says so when it is called.
//
// The rewriter includes this where a source speaks of it, and cuda.h does.
#pragma once
#include "../cuda_runtime.h"

typedef unsigned long long CUmemGenericAllocationHandle;

typedef enum CUmemAllocationHandleType_enum {
    CU_MEM_HANDLE_TYPE_NONE = 0,
    CU_MEM_HANDLE_TYPE_POSIX_FILE_DESCRIPTOR = 1,
    CU_MEM_HANDLE_TYPE_WIN32 = 2,
    CU_MEM_HANDLE_TYPE_WIN32_KMT = 4,
    CU_MEM_HANDLE_TYPE_FABRIC = 8,
} CUmemAllocationHandleType;

typedef enum CUmemAccess_flags_enum {
    CU_MEM_ACCESS_FLAGS_PROT_NONE = 0,
    CU_MEM_ACCESS_FLAGS_PROT_READ = 1,
    CU_MEM_ACCESS_FLAGS_PROT_READWRITE = 3,
} CUmemAccess_flags;

typedef enum CUmemLocationType_enum {
    CU_MEM_LOCATION_TYPE_INVALID = 0,
    CU_MEM_LOCATION_TYPE_DEVICE = 1,
    CU_MEM_LOCATION_TYPE_HOST = 2,
    CU_MEM_LOCATION_TYPE_HOST_NUMA = 3,
    CU_MEM_LOCATION_TYPE_HOST_NUMA_CURRENT = 4,
} CUmemLocationType;

typedef enum CUmemAllocationType_enum {
    CU_MEM_ALLOCATION_TYPE_INVALID = 0,
    CU_MEM_ALLOCATION_TYPE_PINNED = 1,
    CU_MEM_ALLOCATION_TYPE_MANAGED = 2,
} CUmemAllocationType;

typedef enum CUmemAllocationGranularity_flags_enum {
    CU_MEM_ALLOC_GRANULARITY_MINIMUM = 0,
    CU_MEM_ALLOC_GRANULARITY_RECOMMENDED = 1,
} CUmemAllocationGranularity_flags;

typedef enum CUmulticastGranularity_flags_enum {
    CU_MULTICAST_GRANULARITY_MINIMUM = 0,
    CU_MULTICAST_GRANULARITY_RECOMMENDED = 1,
} CUmulticastGranularity_flags;

typedef struct CUmemLocation_st {
    CUmemLocationType type;
    int id;
} CUmemLocation;

typedef struct CUmemAllocationProp_st {
    CUmemAllocationType type;
    CUmemAllocationHandleType requestedHandleTypes;
    CUmemLocation location;
    void* win32HandleMetaData;
    struct {
        unsigned char compressionType, gpuDirectRDMACapable;
        unsigned short usage;
        unsigned char reserved[4];
    } allocFlags;
} CUmemAllocationProp;

typedef struct CUmemAccessDesc_st {
    CUmemLocation location;
    CUmemAccess_flags flags;
} CUmemAccessDesc;

typedef struct CUmulticastObjectProp_st {
    unsigned int numDevices;
    size_t size;
    unsigned long long handleTypes, flags;
} CUmulticastObjectProp;

typedef struct cudaIpcMemHandle_st {
    char reserved[64];
} cudaIpcMemHandle_t;
typedef struct cudaIpcEventHandle_st {
    char reserved[64];
} cudaIpcEventHandle_t;
#define cudaIpcMemLazyEnablePeerAccess 1

namespace simulator::api {
#pragma GCC visibility push(default)

// The driver's calls of the same names, with the runtime's errors.
cudaError_t granularity_of_memory(size_t* bytes, const CUmemAllocationProp* of);
cudaError_t reserve_addresses(unsigned long long* address, size_t bytes, size_t alignment,
                              unsigned long long wanted, unsigned long long flags);
cudaError_t free_addresses(unsigned long long address, size_t bytes);
cudaError_t create_memory(CUmemGenericAllocationHandle* handle, size_t bytes,
                          const CUmemAllocationProp* properties, unsigned long long flags);
cudaError_t release_memory(CUmemGenericAllocationHandle handle);
cudaError_t map_memory(unsigned long long address, size_t bytes, size_t offset,
                       CUmemGenericAllocationHandle handle, unsigned long long flags);
cudaError_t unmap_memory(unsigned long long address, size_t bytes);
cudaError_t set_access(unsigned long long address, size_t bytes, const CUmemAccessDesc* of,
                       size_t count);
cudaError_t retain_memory(CUmemGenericAllocationHandle* handle, void* address);
cudaError_t properties_of_memory(CUmemAllocationProp* properties,
                                 CUmemGenericAllocationHandle handle);
cudaError_t export_memory(void* to, CUmemGenericAllocationHandle handle,
                          CUmemAllocationHandleType type, unsigned long long flags);
cudaError_t import_memory(CUmemGenericAllocationHandle* handle, void* from,
                          CUmemAllocationHandleType type);
// Says on standard error what is not supported, and where it was called.
cudaError_t refuse_call(const char* what, const char* why, const char* file, int line);

#pragma GCC visibility pop

#define SIMULATOR_REFUSED(Result, name, why, ...)                                        \
    inline Result name(                                                                  \
        __VA_ARGS__, const char* file = __builtin_FILE(), int line = __builtin_LINE()) { \
        return Result(refuse_call(#name, why, file, line));                              \
    }
#define SIMULATOR_IPC                                                                 \
    "memory of cudaMalloc is of one process; cuMemCreate's can be exported to others" \
    " as a file descriptor"
SIMULATOR_REFUSED(cudaError_t, cudaIpcGetMemHandle, SIMULATOR_IPC, cudaIpcMemHandle_t*, void*)
SIMULATOR_REFUSED(cudaError_t, cudaIpcOpenMemHandle, SIMULATOR_IPC, void**, cudaIpcMemHandle_t,
                  unsigned)
SIMULATOR_REFUSED(cudaError_t, cudaIpcCloseMemHandle, SIMULATOR_IPC, void*)
SIMULATOR_REFUSED(cudaError_t, cudaIpcGetEventHandle, "events are of one process",
                  cudaIpcEventHandle_t*, cudaEvent_t)
SIMULATOR_REFUSED(cudaError_t, cudaIpcOpenEventHandle, "events are of one process", cudaEvent_t*,
                  cudaIpcEventHandle_t)
#undef SIMULATOR_IPC

}  // namespace simulator::api
using namespace simulator::api;
