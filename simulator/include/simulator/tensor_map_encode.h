// The driver's functions that make tensor maps, with its checks of what they are given.
#pragma once
#include "../cuda.h"
#include "asynchronous.h"
#include "tensor_map.h"

// A box in shared memory begins at a multiple of 128 bytes. With nvcc an array of a kernel mostly
// does, whatever it is declared with.
#undef __shared__
#define __shared__ __attribute__((__aligned__(128))) thread_local

typedef uint32_t cuuint32_t;
typedef uint64_t cuuint64_t;

typedef struct alignas(64) CUtensorMap_st {
    cuuint64_t opaque[16];
} CUtensorMap;

typedef enum CUtensorMapDataType_enum {
    CU_TENSOR_MAP_DATA_TYPE_UINT8 = 0,
    CU_TENSOR_MAP_DATA_TYPE_UINT16,
    CU_TENSOR_MAP_DATA_TYPE_UINT32,
    CU_TENSOR_MAP_DATA_TYPE_INT32,
    CU_TENSOR_MAP_DATA_TYPE_UINT64,
    CU_TENSOR_MAP_DATA_TYPE_INT64,
    CU_TENSOR_MAP_DATA_TYPE_FLOAT16,
    CU_TENSOR_MAP_DATA_TYPE_FLOAT32,
    CU_TENSOR_MAP_DATA_TYPE_FLOAT64,
    CU_TENSOR_MAP_DATA_TYPE_BFLOAT16,
    CU_TENSOR_MAP_DATA_TYPE_FLOAT32_FTZ,
    CU_TENSOR_MAP_DATA_TYPE_TFLOAT32,
    CU_TENSOR_MAP_DATA_TYPE_TFLOAT32_FTZ,
    CU_TENSOR_MAP_DATA_TYPE_16U4_ALIGN8B,
    CU_TENSOR_MAP_DATA_TYPE_16U4_ALIGN16B,
    CU_TENSOR_MAP_DATA_TYPE_16U6_ALIGN16B,
} CUtensorMapDataType;

typedef enum CUtensorMapInterleave_enum {
    CU_TENSOR_MAP_INTERLEAVE_NONE = 0,
    CU_TENSOR_MAP_INTERLEAVE_16B,
    CU_TENSOR_MAP_INTERLEAVE_32B,
} CUtensorMapInterleave;

typedef enum CUtensorMapSwizzle_enum {
    CU_TENSOR_MAP_SWIZZLE_NONE = 0,
    CU_TENSOR_MAP_SWIZZLE_32B,
    CU_TENSOR_MAP_SWIZZLE_64B,
    CU_TENSOR_MAP_SWIZZLE_128B,
    CU_TENSOR_MAP_SWIZZLE_128B_ATOM_32B,
    CU_TENSOR_MAP_SWIZZLE_128B_ATOM_32B_FLIP_8B,
    CU_TENSOR_MAP_SWIZZLE_128B_ATOM_64B,
} CUtensorMapSwizzle;

typedef enum CUtensorMapL2promotion_enum {
    CU_TENSOR_MAP_L2_PROMOTION_NONE = 0,
    CU_TENSOR_MAP_L2_PROMOTION_L2_64B,
    CU_TENSOR_MAP_L2_PROMOTION_L2_128B,
    CU_TENSOR_MAP_L2_PROMOTION_L2_256B,
} CUtensorMapL2promotion;

typedef enum CUtensorMapFloatOOBfill_enum {
    CU_TENSOR_MAP_FLOAT_OOB_FILL_NONE = 0,
    CU_TENSOR_MAP_FLOAT_OOB_FILL_NAN_REQUEST_ZERO_FMA,
} CUtensorMapFloatOOBfill;

namespace simulator {

// Why the driver would refuse a tensor map; null if it would not.
inline const char* why_refused(const void* map, unsigned type, cuuint32_t rank, const void* address,
                               const cuuint64_t* extent, const cuuint64_t* strides,
                               const cuuint32_t* box, const cuuint32_t* steps, unsigned swizzle,
                               unsigned promotion, unsigned fill) {
    if (!map || !address || !extent || !box || !steps) return "an argument is null";
    if (rank < 1 || rank > 5) return "tensorRank is from 1 to 5";
    if (rank > 1 && !strides) return "globalStrides is null";
    if (type > CU_TENSOR_MAP_DATA_TYPE_16U6_ALIGN16B) return "tensorDataType is none";
    if (reinterpret_cast<uintptr_t>(map) % 64) return "tensorMap lies on a multiple of 64 bytes";
    if (reinterpret_cast<uintptr_t>(address) % 16) return "globalAddress is a multiple of 16 bytes";
    if (promotion > CU_TENSOR_MAP_L2_PROMOTION_L2_256B) return "l2Promotion is none";
    const bool is_float = type >= CU_TENSOR_MAP_DATA_TYPE_FLOAT16;
    if (fill > CU_TENSOR_MAP_FLOAT_OOB_FILL_NAN_REQUEST_ZERO_FMA || (fill && !is_float))
        return "oobFill asks for NaN, which integers do not have";
    for (unsigned d = 0; d < rank; d++) {
        if (extent[d] < 1 || extent[d] > 1ull << 32) return "globalDim is from 1 to 2^32";
        if (box[d] < 1 || box[d] > 256) return "boxDim is from 1 to 256";
        if (steps[d] < 1 || steps[d] > 8) return "elementStrides are from 1 to 8";
        if (d && strides[d - 1] % 16) return "globalStrides are multiples of 16 bytes";
        if (d && strides[d - 1] >= 1ull << 40) return "globalStrides are less than 2^40";
    }
    if (type > CU_TENSOR_MAP_DATA_TYPE_TFLOAT32_FTZ) return nullptr;
    const size_t inner = box[0] * size_of(TensorType(type));
    if (inner % 16) return "boxDim[0] is a multiple of 16 bytes";
    if (swizzle && swizzle <= CU_TENSOR_MAP_SWIZZLE_128B && inner > size_t(16) << swizzle)
        return "boxDim[0] is no wider than the swizzle";
    return nullptr;
}

}  // namespace simulator

// Of no interleaved layout: those are for images.
[[gnu::noinline]] inline CUresult cuTensorMapEncodeTiled(
    CUtensorMap* map, CUtensorMapDataType type, cuuint32_t rank, void* address,
    const cuuint64_t* extent, const cuuint64_t* strides, const cuuint32_t* box,
    const cuuint32_t* steps, CUtensorMapInterleave interleave, CUtensorMapSwizzle swizzle,
    CUtensorMapL2promotion promotion, CUtensorMapFloatOOBfill fill) {
    if (const char* reason = simulator::why_refused(
            map, type, rank, address, extent, strides, box, steps, swizzle, promotion, fill)) {
        simulator::tell_refused_map(__builtin_return_address(0), reason);
        return CUDA_ERROR_INVALID_VALUE;
    }
    if (unsigned(type) > CU_TENSOR_MAP_DATA_TYPE_TFLOAT32_FTZ || interleave ||
        unsigned(swizzle) > CU_TENSOR_MAP_SWIZZLE_128B)
        return CUDA_ERROR_NOT_SUPPORTED;
    simulator::TensorMap it{};
    it.base = address;
    it.rank = uint8_t(rank);
    it.type = simulator::TensorType(type);
    it.swizzle = uint8_t(swizzle ? 16 << swizzle : 0);
    it.fills_with_nan = fill != CU_TENSOR_MAP_FLOAT_OOB_FILL_NONE;
    it.mark = simulator::TensorMap::encoded;
    for (unsigned d = 0; d < rank; d++) {
        it.extent[d] = extent[d];
        it.box[d] = uint16_t(box[d]);
        it.steps[d] = d ? uint8_t(steps[d]) : 1;  // of the innermost dimension nothing is left out
        if (d) it.stride[d - 1] = strides[d - 1];
    }
    __builtin_memcpy(map->opaque, &it, sizeof it);
    return CUDA_SUCCESS;
}

inline CUresult cuTensorMapReplaceAddress(CUtensorMap* map, void* address) {
    if (!map || reinterpret_cast<uintptr_t>(address) % 16) return CUDA_ERROR_INVALID_VALUE;
    reinterpret_cast<simulator::TensorMap*>(map)->base = address;
    return CUDA_SUCCESS;
}

typedef CUresult (*PFN_cuTensorMapEncodeTiled_v12000)(
    CUtensorMap*, CUtensorMapDataType, cuuint32_t, void*, const cuuint64_t*, const cuuint64_t*,
    const cuuint32_t*, const cuuint32_t*, CUtensorMapInterleave, CUtensorMapSwizzle,
    CUtensorMapL2promotion, CUtensorMapFloatOOBfill);
typedef PFN_cuTensorMapEncodeTiled_v12000 PFN_cuTensorMapEncodeTiled;
// Of images: the type alone. Who asks for the function by its name is told that there is none.
typedef CUresult (*PFN_cuTensorMapEncodeIm2col_v12000)(
    CUtensorMap*, CUtensorMapDataType, cuuint32_t, void*, const cuuint64_t*, const cuuint64_t*,
    const int*, const int*, cuuint32_t, cuuint32_t, const cuuint32_t*, CUtensorMapInterleave,
    CUtensorMapSwizzle, CUtensorMapL2promotion, CUtensorMapFloatOOBfill);
typedef PFN_cuTensorMapEncodeIm2col_v12000 PFN_cuTensorMapEncodeIm2col;
typedef CUresult (*PFN_cuTensorMapReplaceAddress_v12000)(CUtensorMap*, void*);
typedef PFN_cuTensorMapReplaceAddress_v12000 PFN_cuTensorMapReplaceAddress;

// ---- The driver's functions by their names

enum cudaDriverEntryPointQueryResult {
    cudaDriverEntryPointSuccess = 0,
    cudaDriverEntryPointSymbolNotFound = 1,
    cudaDriverEntryPointVersionNotSufficent = 2,
};
enum { cudaEnableDefault = 0, cudaEnableLegacyStream = 1, cudaEnablePerThreadDefaultStream = 2 };
typedef enum CUdriverProcAddressQueryResult_enum {
    CU_GET_PROC_ADDRESS_SUCCESS = 0,
    CU_GET_PROC_ADDRESS_SYMBOL_NOT_FOUND = 1,
    CU_GET_PROC_ADDRESS_VERSION_NOT_SUFFICIENT = 2,
} CUdriverProcAddressQueryResult;
enum { CU_GET_PROC_ADDRESS_DEFAULT = 0 };

namespace simulator {
inline void* entry_point(const char* name) {
    if (!__builtin_strcmp(name, "cuTensorMapEncodeTiled"))
        return reinterpret_cast<void*>(&cuTensorMapEncodeTiled);
    if (!__builtin_strcmp(name, "cuTensorMapReplaceAddress"))
        return reinterpret_cast<void*>(&cuTensorMapReplaceAddress);
    return nullptr;
}
}  // namespace simulator

inline cudaError_t cudaGetDriverEntryPoint(const char* name, void** function, unsigned long long,
                                           cudaDriverEntryPointQueryResult* result = nullptr) {
    if (!name || !function) return cudaErrorInvalidValue;
    *function = simulator::entry_point(name);
    if (result)
        *result = *function ? cudaDriverEntryPointSuccess : cudaDriverEntryPointSymbolNotFound;
    return *function || result ? cudaSuccess : cudaErrorSymbolNotFound;
}
inline cudaError_t cudaGetDriverEntryPointByVersion(
    const char* name, void** function, unsigned, unsigned long long flags,
    cudaDriverEntryPointQueryResult* result = nullptr) {
    return cudaGetDriverEntryPoint(name, function, flags, result);
}
inline CUresult cuGetProcAddress(const char* name, void** function, int, cuuint64_t,
                                 CUdriverProcAddressQueryResult* result = nullptr) {
    if (!name || !function) return CUDA_ERROR_INVALID_VALUE;
    *function = simulator::entry_point(name);
    if (result)
        *result = *function ? CU_GET_PROC_ADDRESS_SUCCESS : CU_GET_PROC_ADDRESS_SYMBOL_NOT_FOUND;
    return *function ? CUDA_SUCCESS : CUDA_ERROR_NOT_FOUND;
}
