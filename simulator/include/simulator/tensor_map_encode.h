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

typedef enum CUtensorMapIm2ColWideMode_enum {
    CU_TENSOR_MAP_IM2COL_WIDE_MODE_W = 0,
    CU_TENSOR_MAP_IM2COL_WIDE_MODE_W128,
} CUtensorMapIm2ColWideMode;

namespace simulator {

// What all kinds of tensor maps are made of.
struct MapArguments {
    void* map;
    unsigned type, rank;
    void* address;
    const cuuint64_t *extent, *strides;
    const cuuint32_t* steps;
    unsigned interleave, swizzle, promotion, fill;
};

// Why the driver would refuse them; null if it would not. inner: elements of a row of a box,
// boxDim[0] or channelsPerPixel.
inline const char* why_refused(const MapArguments& it, cuuint32_t inner, bool is_im2col = false) {
    const bool is_padded = it.type == CU_TENSOR_MAP_DATA_TYPE_16U4_ALIGN16B ||
                           it.type == CU_TENSOR_MAP_DATA_TYPE_16U6_ALIGN16B;
    if (!it.map || !it.address || !it.extent || !it.steps) return "an argument is null";
    if (it.rank > 1 && !it.strides) return "globalStrides is null";
    if (it.type > CU_TENSOR_MAP_DATA_TYPE_16U6_ALIGN16B) return "tensorDataType is none";
    if (it.interleave > CU_TENSOR_MAP_INTERLEAVE_32B) return "interleave is none";
    if (it.swizzle > CU_TENSOR_MAP_SWIZZLE_128B_ATOM_64B) return "swizzle is none";
    if (reinterpret_cast<uintptr_t>(it.map) % 64) return "tensorMap lies on a multiple of 64 bytes";
    const uintptr_t address = reinterpret_cast<uintptr_t>(it.address);
    if (address % 16) return "globalAddress is a multiple of 16 bytes";
    if (is_padded && address % 32)
        return "globalAddress of padded elements is a multiple of 32 bytes";
    if (it.promotion > CU_TENSOR_MAP_L2_PROMOTION_L2_256B) return "l2Promotion is none";
    const bool is_float = it.type >= CU_TENSOR_MAP_DATA_TYPE_FLOAT16 &&
                          it.type <= CU_TENSOR_MAP_DATA_TYPE_TFLOAT32_FTZ;
    if (it.fill > CU_TENSOR_MAP_FLOAT_OOB_FILL_NAN_REQUEST_ZERO_FMA || (it.fill && !is_float))
        return "oobFill asks for NaN, which integers and packed elements do not have";
    for (unsigned d = 0; d < it.rank; d++) {
        if (it.extent[d] < 1 || it.extent[d] > 1ull << 32) return "globalDim is from 1 to 2^32";
        if (it.steps[d] < 1 || it.steps[d] > 8) return "elementStrides are from 1 to 8";
        if (d && it.strides[d - 1] % 16) return "globalStrides are multiples of 16 bytes";
        if (d && is_padded && it.strides[d - 1] % 32)
            return "globalStrides of padded elements are multiples of 32 bytes";
        if (d && it.strides[d - 1] >= 1ull << 40) return "globalStrides are less than 2^40";
    }
    if (is_padded && it.extent[0] % 128)
        return "globalDim[0] of padded elements is a multiple of 128";
    if (is_padded && inner != 128) return "a box of padded elements has 128 in its rows";
    if (it.type == CU_TENSOR_MAP_DATA_TYPE_16U4_ALIGN8B && it.extent[0] % 2)
        return "globalDim[0] of 16U4_ALIGN8B is a multiple of 2";
    const bool is_for_padded =
        it.swizzle == CU_TENSOR_MAP_SWIZZLE_NONE || it.swizzle == CU_TENSOR_MAP_SWIZZLE_128B ||
        it.swizzle == CU_TENSOR_MAP_SWIZZLE_128B_ATOM_32B ||
        (it.swizzle == CU_TENSOR_MAP_SWIZZLE_128B_ATOM_64B &&
         it.type == CU_TENSOR_MAP_DATA_TYPE_16U6_ALIGN16B);
    if (is_padded && !is_for_padded) return "padded elements do not come in this swizzle";
    const Packing packing = packing_of(TensorType(it.type));
    const size_t bytes = size_t(inner) * packing.bytes / packing.elements;
    if (bytes % 16 || inner % packing.elements)
        return is_im2col ? "channelsPerPixel is a multiple of 16 bytes"
                         : "boxDim[0] is a multiple of 16 bytes";
    const size_t widest = it.swizzle > CU_TENSOR_MAP_SWIZZLE_128B ? 128 : size_t(16) << it.swizzle;
    if (it.swizzle && bytes > widest)
        return is_im2col ? "channelsPerPixel is no wider than the swizzle"
                         : "boxDim[0] is no wider than the swizzle";
    return nullptr;
}

// The map, but for what it moves.
inline TensorMap begun_map(const MapArguments& from, cuuint32_t inner) {
    static constexpr uint8_t atoms[] = {0, 0, 0, 0, 1, 2, 3};
    TensorMap it{};
    it.base = from.address;
    it.rank = uint8_t(from.rank);
    it.type = TensorType(from.type);
    const bool is_wide = from.swizzle > CU_TENSOR_MAP_SWIZZLE_128B;
    it.swizzle = uint8_t(is_wide ? 128 : from.swizzle ? 16 << from.swizzle : 0);
    it.atom = atoms[from.swizzle];
    it.fills_with_nan = from.fill != CU_TENSOR_MAP_FLOAT_OOB_FILL_NONE;
    it.mark = TensorMap::encoded;
    it.box[0] = uint16_t(inner);
    for (unsigned d = 0; d < from.rank; d++) {
        it.extent[d] = from.extent[d];
        it.steps[d] = d ? uint8_t(from.steps[d]) : 1;  // nothing is left out of the innermost one
        if (d) it.stride[d - 1] = from.strides[d - 1];
    }
    return it;
}

inline const char* why_refused_im2col(const MapArguments& it, const int* lower, const int* upper,
                                      cuuint32_t channels, cuuint32_t pixels, bool is_wide) {
    static constexpr int most[] = {32768, 128, 16};
    if (!lower || !upper) return "an argument is null";
    if (it.rank < 3 || it.rank > 5) return "tensorRank is from 3 to 5";
    if (channels < 1 || channels > 256) return "channelsPerPixel is from 1 to 256";
    if (pixels < 1 || pixels > 1024) return "pixelsPerColumn is from 1 to 1024";
    if (const char* reason = why_refused(it, channels, true)) return reason;
    const int reach = is_wide ? most[0] : most[it.rank - 3];
    for (unsigned d = 0; d < (is_wide ? 1 : it.rank - 2); d++) {
        if (lower[d] < -reach || lower[d] >= reach || upper[d] < -reach || upper[d] >= reach)
            return "a corner of the bounding box is too far off for this tensorRank";
        if (int64_t(it.extent[d + 1]) + upper[d] - lower[d] < 1) return "the bounding box is empty";
    }
    const bool is_for_wide = it.swizzle >= CU_TENSOR_MAP_SWIZZLE_64B &&
                             it.swizzle <= CU_TENSOR_MAP_SWIZZLE_128B_ATOM_32B;
    if (is_wide && (!is_for_wide || it.interleave))
        return "the swizzle is one of 64B, 128B and 128B_ATOM_32B, without interleaving";
    return nullptr;
}

[[gnu::noinline]] inline CUresult refused(const void* caller, const char* reason) {
    tell_refused_map(caller, reason);
    return CUDA_ERROR_INVALID_VALUE;
}

}  // namespace simulator

// Of no interleaved layout.
[[gnu::noinline]] inline CUresult cuTensorMapEncodeTiled(
    CUtensorMap* map, CUtensorMapDataType type, cuuint32_t rank, void* address,
    const cuuint64_t* extent, const cuuint64_t* strides, const cuuint32_t* box,
    const cuuint32_t* steps, CUtensorMapInterleave interleave, CUtensorMapSwizzle swizzle,
    CUtensorMapL2promotion promotion, CUtensorMapFloatOOBfill fill) {
    const void* caller = __builtin_return_address(0);
    if (!box) return simulator::refused(caller, "an argument is null");
    if (rank < 1 || rank > 5) return simulator::refused(caller, "tensorRank is from 1 to 5");
    for (unsigned d = 0; d < rank; d++)
        if (box[d] < 1 || box[d] > 256)
            return simulator::refused(caller, "boxDim is from 1 to 256");
    const simulator::MapArguments given{
        map,
        unsigned(type),
        rank,
        address,
        extent,
        strides,
        steps,
        unsigned(interleave),
        unsigned(swizzle),
        unsigned(promotion),
        unsigned(fill)};
    if (const char* reason = simulator::why_refused(given, box[0]))
        return simulator::refused(caller, reason);
    if (interleave) return CUDA_ERROR_NOT_SUPPORTED;
    simulator::TensorMap it = simulator::begun_map(given, box[0]);
    for (unsigned d = 1; d < rank; d++) it.box[d] = uint16_t(box[d]);
    __builtin_memcpy(map->opaque, &it, sizeof it);
    return CUDA_SUCCESS;
}

[[gnu::noinline]] inline CUresult cuTensorMapEncodeIm2col(
    CUtensorMap* map, CUtensorMapDataType type, cuuint32_t rank, void* address,
    const cuuint64_t* extent, const cuuint64_t* strides, const int* lower, const int* upper,
    cuuint32_t channels, cuuint32_t pixels, const cuuint32_t* steps,
    CUtensorMapInterleave interleave, CUtensorMapSwizzle swizzle, CUtensorMapL2promotion promotion,
    CUtensorMapFloatOOBfill fill) {
    const simulator::MapArguments given{
        map,
        unsigned(type),
        rank,
        address,
        extent,
        strides,
        steps,
        unsigned(interleave),
        unsigned(swizzle),
        unsigned(promotion),
        unsigned(fill)};
    if (const char* reason =
            simulator::why_refused_im2col(given, lower, upper, channels, pixels, false))
        return simulator::refused(__builtin_return_address(0), reason);
    if (interleave) return CUDA_ERROR_NOT_SUPPORTED;
    simulator::TensorMap it = simulator::begun_map(given, channels);
    it.traversal = simulator::Traversal::Im2col;
    it.pixels = uint16_t(pixels);
    for (unsigned d = 0; d < rank - 2; d++)
        it.lower[d] = int16_t(lower[d]), it.upper[d] = int16_t(upper[d]);
    __builtin_memcpy(map->opaque, &it, sizeof it);
    return CUDA_SUCCESS;
}

[[gnu::noinline]] inline CUresult cuTensorMapEncodeIm2colWide(
    CUtensorMap* map, CUtensorMapDataType type, cuuint32_t rank, void* address,
    const cuuint64_t* extent, const cuuint64_t* strides, int lower, int upper, cuuint32_t channels,
    cuuint32_t pixels, const cuuint32_t* steps, CUtensorMapInterleave interleave,
    CUtensorMapIm2ColWideMode mode, CUtensorMapSwizzle swizzle, CUtensorMapL2promotion promotion,
    CUtensorMapFloatOOBfill fill) {
    const void* caller = __builtin_return_address(0);
    const simulator::MapArguments given{
        map,
        unsigned(type),
        rank,
        address,
        extent,
        strides,
        steps,
        unsigned(interleave),
        unsigned(swizzle),
        unsigned(promotion),
        unsigned(fill)};
    const bool is_of_128 = mode == CU_TENSOR_MAP_IM2COL_WIDE_MODE_W128;
    if (mode != CU_TENSOR_MAP_IM2COL_WIDE_MODE_W && !is_of_128)
        return simulator::refused(caller, "mode is none");
    if (const char* reason = simulator::why_refused_im2col(
            given, &lower, &upper, channels, is_of_128 ? 128 : pixels, true))
        return simulator::refused(caller, reason);
    simulator::TensorMap it = simulator::begun_map(given, channels);
    it.traversal =
        is_of_128 ? simulator::Traversal::Im2colWide128 : simulator::Traversal::Im2colWide;
    it.pixels = uint16_t(is_of_128 ? 128 : pixels);
    it.lower[0] = int16_t(lower), it.upper[0] = int16_t(upper);
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
typedef CUresult (*PFN_cuTensorMapEncodeIm2col_v12000)(
    CUtensorMap*, CUtensorMapDataType, cuuint32_t, void*, const cuuint64_t*, const cuuint64_t*,
    const int*, const int*, cuuint32_t, cuuint32_t, const cuuint32_t*, CUtensorMapInterleave,
    CUtensorMapSwizzle, CUtensorMapL2promotion, CUtensorMapFloatOOBfill);
typedef PFN_cuTensorMapEncodeIm2col_v12000 PFN_cuTensorMapEncodeIm2col;
typedef decltype(&cuTensorMapEncodeIm2colWide) PFN_cuTensorMapEncodeIm2colWide_v12080;
typedef PFN_cuTensorMapEncodeIm2colWide_v12080 PFN_cuTensorMapEncodeIm2colWide;
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
    if (!__builtin_strcmp(name, "cuTensorMapEncodeIm2col"))
        return reinterpret_cast<void*>(&cuTensorMapEncodeIm2col);
    if (!__builtin_strcmp(name, "cuTensorMapEncodeIm2colWide"))
        return reinterpret_cast<void*>(&cuTensorMapEncodeIm2colWide);
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
