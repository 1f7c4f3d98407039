// CUDA arrays, which textures and surfaces read: rows of texels, without gaps.
#pragma once
#include "../include/simulator/textures.h"
#include "device_memory.h"

namespace simulator {
namespace {

// A box of rows: `rows` of them make a slice.
struct Box {
    char* begin;
    size_t pitch, rows;

    char* row(size_t y, size_t z) const { return begin + (z * rows + y) * pitch; }
};

// Channels of one size, as many as a texel may have; 0 for what is no format.
size_t bytes_of(const cudaChannelFormatDesc& format) {
    const int bits[] = {format.x, format.y, format.z, format.w};
    if (bits[0] != 8 && bits[0] != 16 && bits[0] != 32) return 0;
    if (format.f != cudaChannelFormatKindSigned && format.f != cudaChannelFormatKindUnsigned &&
        (format.f != cudaChannelFormatKindFloat || bits[0] == 8))
        return 0;
    size_t count = 1;
    while (count < 4 && bits[count] == bits[0]) count++;
    for (size_t i = count; i < 4; i++)
        if (bits[i]) return 0;
    return count == 3 ? 0 : count * bits[0] / 8;
}

}  // namespace
}  // namespace simulator

struct cudaArray {
    cudaChannelFormatDesc format;
    cudaExtent extent;  // as given: 0 for a dimension that is not there
    unsigned flags;
    std::unique_ptr<char, void (*)(void*)> texels;

    size_t texel_bytes() const { return simulator::bytes_of(format); }
    size_t height() const { return std::max<size_t>(extent.height, 1); }
    size_t depth() const { return std::max<size_t>(extent.depth, 1); }
    simulator::Box box() const { return {texels.get(), extent.width * texel_bytes(), height()}; }

    // x and width in bytes.
    bool holds(size_t x, size_t y, size_t z, size_t width, size_t height, size_t depth) const {
        const auto fits = [](size_t from, size_t count, size_t size) {
            return from <= size && count <= size - from;
        };
        return fits(x, width, extent.width * texel_bytes()) && fits(y, height, this->height()) &&
               fits(z, depth, this->depth());
    }
};

namespace simulator {
namespace {

auto& arrays = *new Handles<cudaArray>;

}  // namespace

namespace api {

cudaError_t cudaMalloc3DArray(cudaArray_t* array, const cudaChannelFormatDesc* format,
                              cudaExtent extent, unsigned flags) {
    if (const cudaError_t error = ready_for_unsafe_call()) return error;
    constexpr unsigned known =
        cudaArrayLayered | cudaArraySurfaceLoadStore | cudaArrayCubemap | cudaArrayTextureGather;
    if (flags & ~known) return record(cudaErrorNotSupported);
    if (!array || !format || !extent.width) return record(cudaErrorInvalidValue);
    const size_t texel = bytes_of(*format);
    if (!texel) return record(cudaErrorInvalidChannelDescriptor);
    if (flags & cudaArrayCubemap && (extent.width != extent.height || extent.depth % 6))
        return record(cudaErrorInvalidValue);
    void* texels;
    const size_t count =
        extent.width * std::max<size_t>(extent.height, 1) * std::max<size_t>(extent.depth, 1);
    if (posix_memalign(&texels, memory_alignment, count * texel))
        return record(cudaErrorMemoryAllocation);
    *array = arrays.add(new cudaArray{*format, extent, flags, {static_cast<char*>(texels), free}});
    return cudaSuccess;
}

cudaError_t cudaMallocArray(cudaArray_t* array, const cudaChannelFormatDesc* format, size_t width,
                            size_t height, unsigned flags) {
    return cudaMalloc3DArray(array, format, {width, height, 0}, flags);
}

cudaError_t cudaFreeArray(cudaArray_t array) {
    if (const cudaError_t error = broken()) return error;
    if (!array) return cudaSuccess;
    return record(arrays.destroy(array) ? cudaSuccess : cudaErrorInvalidResourceHandle);
}

cudaError_t cudaArrayGetInfo(cudaChannelFormatDesc* format, cudaExtent* extent, unsigned* flags,
                             cudaArray_t array) {
    if (!arrays.has(array)) return record(cudaErrorInvalidResourceHandle);
    if (format) *format = array->format;
    if (extent) *extent = array->extent;
    if (flags) *flags = array->flags;
    return cudaSuccess;
}

cudaError_t cudaGetChannelDesc(cudaChannelFormatDesc* format, cudaArray_const_t array) {
    return cudaArrayGetInfo(format, nullptr, nullptr, const_cast<cudaArray_t>(array));
}

}  // namespace api
}  // namespace simulator
