// cudaMemcpy and cudaMemset in all their dimensions, which come down to rows of bytes.
#pragma once
#include <string.h>
#include "arrays.h"
#include "device_memory.h"
#include "faults.h"

namespace simulator {
namespace {

// Whether the memory that holds so many rows and slices is there, as far as anybody knows.
bool holds(const Box& box, const cudaExtent& extent) {
    const char* last = box.row(extent.height - 1, extent.depth - 1) + extent.width;
    return allocations.find(box.begin).holds(last - box.begin);
}

Error coded(cudaError_t code) { return {code, code ? words_for(code) : ""}; }

Error too_large(const char* what, const char* direction, const Allocations::Found& of,
                const Box& box, const cudaExtent& extent) {
    const size_t bytes = box.row(extent.height - 1, extent.depth - 1) + extent.width - box.begin;
    return {cudaErrorInvalidValue,
            text("invalid argument: %s of %zu bytes %s memory of %zu bytes, of which %zu are left "
                 "there. Sizes are counted in bytes: n * sizeof(float)",
                 what, bytes, direction, of.allocation.bytes, of.allocation.bytes - of.offset)};
}

bool is_empty(const cudaExtent& extent) { return !extent.width || !extent.height || !extent.depth; }

// The verdict on a copy. A direction that says the opposite of what the pointers are is an error,
// as far as it is known what they are.
Error check_copy(const Box& to, const Box& from, const cudaExtent& extent, cudaMemcpyKind kind) {
    if (kind < cudaMemcpyHostToHost || kind > cudaMemcpyDefault)
        return coded(cudaErrorInvalidMemcpyDirection);
    if (is_empty(extent)) return {};
    if (!to.begin || !from.begin)
        return {cudaErrorInvalidValue,
                text("invalid argument: a copy %s the null pointer", to.begin ? "from" : "to")};
    if (extent.height * extent.depth > 1 && (extent.width > to.pitch || extent.width > from.pitch))
        return coded(cudaErrorInvalidPitchValue);
    const Allocations::Found there = allocations.find(to.begin),
                             here = allocations.find(from.begin);
    if (kind == cudaMemcpyHostToDevice && here.has(cudaMemoryTypeDevice) && !there.is_known)
        return {cudaErrorInvalidValue,
                "invalid argument: a copy of kind cudaMemcpyHostToDevice whose source (the second "
                "argument) is the device's memory, and the target is not. Say "
                "cudaMemcpyDeviceToHost, or turn the pointers round"};
    if (kind == cudaMemcpyDeviceToHost && there.has(cudaMemoryTypeDevice) && !here.is_known)
        return {cudaErrorInvalidValue,
                "invalid argument: a copy of kind cudaMemcpyDeviceToHost whose target (the first "
                "argument) is the device's memory, and the source is not. Say "
                "cudaMemcpyHostToDevice, or turn the pointers round"};
    if (!holds(to, extent)) return too_large("a copy", "to", there, to, extent);
    const size_t bytes = to.row(extent.height - 1, extent.depth - 1) + extent.width - to.begin;
    if (bytes > left_on_stack(to.begin))
        return {cudaErrorInvalidValue,
                text("invalid argument: a copy of %zu bytes to a local variable of the host, which "
                     "has fewer. Sizes are counted in bytes: n * sizeof(float)",
                     bytes)};
    if (!holds(from, extent)) return too_large("a copy", "from", here, from, extent);
    return {};
}

// Calls act(y, z) for each row.
template <class Act>
void for_each_row(const cudaExtent& extent, Act act) {
    for (size_t z = 0; z < extent.depth; z++)
        for (size_t y = 0; y < extent.height; y++) act(y, z);
}

void copy(const Box& to, const Box& from, const cudaExtent& extent) {
    for_each_row(
        extent, [&](size_t y, size_t z) { memmove(to.row(y, z), from.row(y, z), extent.width); });
}

// Tells whoever watches of the rows that are about to be brought to the host, or to be written.
void tell_of_copy(const Box& to, const Box& from, const cudaExtent& extent) {
    if (!watcher || allocations.find(to.begin).has(cudaMemoryTypeDevice)) return;
    for_each_row(extent, [&](size_t y, size_t z) {
        watcher->brought(reinterpret_cast<uintptr_t>(to.row(y, z)),
                         reinterpret_cast<uintptr_t>(from.row(y, z)), extent.width);
    });
}
// And of those that it is copying, or that a fill writes.
void tell_of_touches(const Box& box, const cudaExtent& extent, bool writes) {
    if (!watcher) return;
    for_each_row(extent, [&](size_t y, size_t z) {
        watcher->touches(reinterpret_cast<uintptr_t>(box.row(y, z)), extent.width, writes);
    });
}
bool passes_end_of_host(const Box& box, const cudaExtent& extent, bool writes) {
    bool passes = false;
    if (watcher)
        for_each_row(extent, [&](size_t y, size_t z) {
            passes |= !passes && watcher->passes_end(reinterpret_cast<uintptr_t>(box.row(y, z)),
                                                     extent.width, writes);
        });
    return passes;
}
void tell_of_rows(const Box& to, const cudaExtent& extent) {
    if (!watcher) return;
    for_each_row(extent, [&](size_t y, size_t z) {
        watcher->written(reinterpret_cast<uintptr_t>(to.row(y, z)), extent.width);
    });
}

cudaError_t submit_copy(const Box& to, const Box& from, const cudaExtent& extent,
                        cudaMemcpyKind kind, cudaStream_t stream) {
    if (const Error error = check_copy(to, from, extent, kind); error.code) return refuse(error);
    if (is_empty(extent)) return broken();
    if (passes_end_of_host(from, extent, false) || passes_end_of_host(to, extent, true))
        return coded(cudaErrorInvalidValue).code;
    tell_of_rows(to, extent);
    return submit(stream, cudaGraphNodeTypeMemcpy, [=] {
        tell_of_copy(to, from, extent);
        tell_of_touches(from, extent, false);
        tell_of_touches(to, extent, true);
        copy(to, from, extent);
        return Error{};
    });
}

Box box_of(const void* begin, size_t pitch, size_t rows = 0) {
    return {static_cast<char*>(const_cast<void*>(begin)), pitch, rows};
}

// What fills memory: elements of 1, 2 or 4 bytes.
struct Fill {
    Box to;
    cudaExtent extent;  // bytes, rows, slices
    unsigned value, element;

    void operator()() const {
        for (size_t z = 0; z < extent.depth; z++)
            for (size_t y = 0; y < extent.height; y++) {
                char* row = to.row(y, z);
                if (element == 1)
                    memset(row, value, extent.width);
                else
                    for (size_t x = 0; x < extent.width; x += element)
                        memcpy(row + x, &value, element);
            }
    }

    Error check() const {
        if (element != 1 && element != 2 && element != 4) return coded(cudaErrorInvalidValue);
        if (is_empty(extent)) return {};
        if (!to.begin || (extent.height * extent.depth > 1 && extent.width > to.pitch))
            return coded(cudaErrorInvalidValue);
        if (!holds(to, extent))
            return too_large("a fill", "of", allocations.find(to.begin), to, extent);
        return {};
    }
};

cudaError_t submit_fill(const Fill& fill, cudaStream_t stream) {
    if (const Error error = fill.check(); error.code) return refuse(error);
    if (is_empty(fill.extent)) return broken();
    tell_of_rows(fill.to, fill.extent);
    return submit(stream, cudaGraphNodeTypeMemset, [=] {
        tell_of_touches(fill.to, fill.extent, true);
        fill();
        return Error{};
    });
}

// A cudaMemcpy3D. Beside an array its x and width count elements, else bytes.
struct Copy3D {
    Box to, from;
    cudaExtent extent;
    cudaMemcpyKind kind;
    Error error;

    explicit Copy3D(const cudaMemcpy3DParms* copy) {
        if (!copy || !(copy->srcArray || copy->srcPtr.ptr) ||
            !(copy->dstArray || copy->dstPtr.ptr)) {
            error = coded(cudaErrorInvalidValue);
            return;
        }
        for (const cudaArray* array : {copy->srcArray, copy->dstArray})
            if (array && !arrays.has(const_cast<cudaArray*>(array))) {
                error = coded(cudaErrorInvalidResourceHandle);
                return;
            }
        const cudaArray* array = copy->srcArray ? copy->srcArray : copy->dstArray;
        const size_t unit = array ? array->texel_bytes() : 1;
        extent = {copy->extent.width * unit, copy->extent.height, copy->extent.depth};
        kind = copy->kind;
        if ((copy->srcArray && copy->srcArray->texel_bytes() != unit) ||
            !place(&to, copy->dstArray, copy->dstPos, copy->dstPtr, unit) ||
            !place(&from, copy->srcArray, copy->srcPos, copy->srcPtr, unit))
            error = coded(cudaErrorInvalidValue);
        else
            error = check_copy(to, from, extent, kind);
    }

    bool place(Box* box, cudaArray* array, const cudaPos& at, const cudaPitchedPtr& memory,
               size_t unit) const {
        if (array) {
            *box = array->box();
            if (!array->holds(at.x * unit, at.y, at.z, extent.width, extent.height, extent.depth))
                return false;
        } else {
            *box = box_of(memory.ptr, memory.pitch, memory.ysize);
        }
        box->begin = box->row(at.y, at.z) + at.x * (array ? unit : 1);
        return true;
    }

    cudaError_t submit_to(cudaStream_t stream) const {
        if (error.code != cudaSuccess) return record(error);
        return submit_copy(to, from, extent, kind, stream);
    }
};

// Of a copy that returns when it is done.
cudaError_t waited_for(cudaError_t result) {
    if (watcher) watcher->synchronised(nullptr);
    return result;
}

}  // namespace

namespace api {

cudaError_t cudaMemcpyAsync(void* to, const void* from, size_t bytes, cudaMemcpyKind kind,
                            cudaStream_t stream) {
    return submit_copy(box_of(to, bytes), box_of(from, bytes), {bytes, 1, 1}, kind, stream);
}

cudaError_t cudaMemcpy(void* to, const void* from, size_t bytes, cudaMemcpyKind kind) {
    return waited_for(cudaMemcpyAsync(to, from, bytes, kind, nullptr));
}

cudaError_t cudaMemcpy2DAsync(void* to, size_t to_pitch, const void* from, size_t from_pitch,
                              size_t width, size_t height, cudaMemcpyKind kind,
                              cudaStream_t stream) {
    if (width > to_pitch || width > from_pitch) return record(cudaErrorInvalidPitchValue);
    return submit_copy(
        box_of(to, to_pitch), box_of(from, from_pitch), {width, height, 1}, kind, stream);
}

cudaError_t cudaMemcpy2D(void* to, size_t to_pitch, const void* from, size_t from_pitch,
                         size_t width, size_t height, cudaMemcpyKind kind) {
    return waited_for(
        cudaMemcpy2DAsync(to, to_pitch, from, from_pitch, width, height, kind, nullptr));
}

cudaError_t cudaMemcpy3DAsync(const cudaMemcpy3DParms* copy, cudaStream_t stream) {
    return Copy3D(copy).submit_to(stream);
}

cudaError_t cudaMemcpy3D(const cudaMemcpy3DParms* copy) {
    return waited_for(cudaMemcpy3DAsync(copy, nullptr));
}

cudaError_t cudaMemcpyPeerAsync(void* to, int to_device, const void* from, int from_device,
                                size_t bytes, cudaStream_t stream) {
    if (to_device != 0 || from_device != 0) return record(cudaErrorInvalidDevice);
    return cudaMemcpyAsync(to, from, bytes, cudaMemcpyDeviceToDevice, stream);
}

cudaError_t cudaMemcpyPeer(void* to, int to_device, const void* from, int from_device,
                           size_t bytes) {
    return cudaMemcpyPeerAsync(to, to_device, from, from_device, bytes, nullptr);
}

cudaError_t copy_symbol(void* symbol, size_t size, bool is_target, void* other, size_t bytes,
                        size_t offset, cudaMemcpyKind kind, cudaStream_t stream) {
    if (offset > size || bytes > size - offset)
        return refuse({cudaErrorInvalidValue,
                       text("invalid argument: a copy of %zu bytes %s offset %zu of a variable of "
                            "%zu bytes. Sizes are counted in bytes: n * sizeof(float)",
                            bytes, is_target ? "to" : "from", offset, size)});
    if (kind == (is_target ? cudaMemcpyDeviceToHost : cudaMemcpyHostToDevice))
        return refuse(coded(cudaErrorInvalidMemcpyDirection));
    char* inside = static_cast<char*>(symbol) + offset;
    return is_target ? cudaMemcpyAsync(inside, other, bytes, kind, stream)
                     : cudaMemcpyAsync(other, inside, bytes, kind, stream);
}

cudaError_t cudaMemset2DAsync(void* address, size_t pitch, int byte, size_t width, size_t height,
                              cudaStream_t stream) {
    return submit_fill(
        {box_of(address, pitch), {width, height, 1}, unsigned(byte) & 0xff, 1}, stream);
}

cudaError_t cudaMemset2D(void* address, size_t pitch, int byte, size_t width, size_t height) {
    return cudaMemset2DAsync(address, pitch, byte, width, height, nullptr);
}

cudaError_t cudaMemsetAsync(void* address, int byte, size_t bytes, cudaStream_t stream) {
    return cudaMemset2DAsync(address, bytes, byte, bytes, 1, stream);
}

cudaError_t cudaMemset(void* address, int byte, size_t bytes) {
    return cudaMemsetAsync(address, byte, bytes, nullptr);
}

cudaError_t cudaMemset3DAsync(cudaPitchedPtr memory, int byte, cudaExtent extent,
                              cudaStream_t stream) {
    return submit_fill(
        {box_of(memory.ptr, memory.pitch, memory.ysize), extent, unsigned(byte) & 0xff, 1}, stream);
}

cudaError_t cudaMemset3D(cudaPitchedPtr memory, int byte, cudaExtent extent) {
    return cudaMemset3DAsync(memory, byte, extent, nullptr);
}

}  // namespace api
}  // namespace simulator
