// Virtual memory of the driver API: see include/simulator/virtual_memory.h.
#pragma once
#include <sys/mman.h>
#include <sys/stat.h>
#include "../include/simulator/virtual_memory.h"
#include "device_memory.h"

namespace simulator {
namespace {

constexpr size_t granularity = 2 << 20;  // as an H100's

// What cuMemCreate has made. It ends with its last handle and its last mapping.
struct PhysicalMemory {
    int file;
    size_t bytes;
    CUmemAllocationProp properties;
    unsigned handles, mappings;
};

struct MappedMemory {
    size_t bytes;
    CUmemGenericAllocationHandle handle;
};

class VirtualMemory {
  public:
    std::mutex mutex;
    std::map<uintptr_t, size_t> reserved;
    std::map<uintptr_t, MappedMemory> mapped;
    std::map<CUmemGenericAllocationHandle, PhysicalMemory> physical;

    CUmemGenericAllocationHandle add(int file, size_t bytes,
                                     const CUmemAllocationProp& properties) {
        physical[++last] = {file, bytes, properties, 1, 0};
        return last;
    }
    PhysicalMemory* find(CUmemGenericAllocationHandle handle) {
        const auto found = physical.find(handle);
        return found == physical.end() ? nullptr : &found->second;
    }
    void end_if_unused(CUmemGenericAllocationHandle handle) {
        const PhysicalMemory& it = physical.at(handle);
        if (it.handles || it.mappings) return;
        close(it.file);
        physical.erase(handle);
    }
    // Whether a range is within one that is reserved.
    bool is_reserved(uintptr_t address, size_t bytes) const {
        auto next = reserved.upper_bound(address);
        if (next == reserved.begin()) return false;
        --next;
        return bytes <= next->second && address - next->first <= next->second - bytes;
    }
    bool is_mapped(uintptr_t address, size_t bytes) const {
        const auto next = mapped.lower_bound(address + bytes);
        if (next == mapped.begin()) return false;
        const auto& [begin, last_one] = *std::prev(next);
        return begin + last_one.bytes > address;
    }

  private:
    CUmemGenericAllocationHandle last = 0;
};

// Never destroyed: a program may free in its destructors.
VirtualMemory& virtual_memory = *new VirtualMemory;

cudaError_t check_properties(const CUmemAllocationProp* of) {
    if (!of || of->type != CU_MEM_ALLOCATION_TYPE_PINNED) return cudaErrorInvalidValue;
    if (of->location.type == CU_MEM_LOCATION_TYPE_DEVICE && of->location.id != 0)
        return cudaErrorInvalidDevice;
    const auto handles = of->requestedHandleTypes;
    return handles == CU_MEM_HANDLE_TYPE_NONE || handles == CU_MEM_HANDLE_TYPE_POSIX_FILE_DESCRIPTOR
               ? cudaSuccess
               : cudaErrorNotSupported;
}

bool is_grain(size_t bytes) { return bytes && bytes % granularity == 0; }

}  // namespace

namespace api {

cudaError_t granularity_of_memory(size_t* bytes, const CUmemAllocationProp* of) {
    if (!bytes) return record(cudaErrorInvalidValue);
    if (const cudaError_t error = check_properties(of)) return record(error);
    *bytes = granularity;
    return cudaSuccess;
}

cudaError_t reserve_addresses(unsigned long long* address, size_t bytes, size_t alignment,
                              unsigned long long wanted, unsigned long long flags) {
    if (const cudaError_t error = ready_for_unsafe_call()) return error;
    const size_t to = std::max(alignment, granularity);
    if (!address || flags || !is_grain(bytes) || to & (to - 1))
        return record(cudaErrorInvalidValue);
    char* const found = static_cast<char*>(mmap(reinterpret_cast<void*>(wanted), bytes + to,
                                                PROT_NONE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0));
    if (found == MAP_FAILED) return record(cudaErrorMemoryAllocation);
    const uintptr_t first = uintptr_t(found), begin = round_up(first, to);
    if (begin > first) munmap(found, begin - first);
    if (first + to > begin) munmap(reinterpret_cast<void*>(begin + bytes), first + to - begin);
    std::lock_guard<std::mutex> lock(virtual_memory.mutex);
    virtual_memory.reserved[begin] = bytes;
    *address = begin;
    return cudaSuccess;
}

cudaError_t free_addresses(unsigned long long address, size_t bytes) {
    std::lock_guard<std::mutex> lock(virtual_memory.mutex);
    const auto found = virtual_memory.reserved.find(address);
    if (found == virtual_memory.reserved.end() || found->second != bytes ||
        virtual_memory.is_mapped(address, bytes))
        return record(cudaErrorInvalidValue);
    virtual_memory.reserved.erase(found);
    munmap(reinterpret_cast<void*>(address), bytes);
    return cudaSuccess;
}

cudaError_t create_memory(CUmemGenericAllocationHandle* handle, size_t bytes,
                          const CUmemAllocationProp* properties, unsigned long long flags) {
    if (const cudaError_t error = ready_for_unsafe_call()) return error;
    if (!handle || flags || !is_grain(bytes)) return record(cudaErrorInvalidValue);
    if (const cudaError_t error = check_properties(properties)) return record(error);
#ifdef __linux__
    const int file = memfd_create("cuMemCreate", MFD_CLOEXEC);
    if (file < 0 || ftruncate(file, off_t(bytes))) {
        if (file >= 0) close(file);
        return record(cudaErrorMemoryAllocation);
    }
    std::lock_guard<std::mutex> lock(virtual_memory.mutex);
    *handle = virtual_memory.add(file, bytes, *properties);
    return cudaSuccess;
#else
    return record(cudaErrorNotSupported);
#endif
}

cudaError_t release_memory(CUmemGenericAllocationHandle handle) {
    std::lock_guard<std::mutex> lock(virtual_memory.mutex);
    PhysicalMemory* const found = virtual_memory.find(handle);
    if (!found || !found->handles) return record(cudaErrorInvalidValue);
    found->handles--;
    virtual_memory.end_if_unused(handle);
    return cudaSuccess;
}

cudaError_t map_memory(unsigned long long address, size_t bytes, size_t offset,
                       CUmemGenericAllocationHandle handle, unsigned long long flags) {
    if (const cudaError_t error = ready_for_unsafe_call()) return error;
    std::lock_guard<std::mutex> lock(virtual_memory.mutex);
    PhysicalMemory* const found = virtual_memory.find(handle);
    if (!found || flags || offset || !is_grain(bytes) || address % granularity ||
        bytes != found->bytes || !virtual_memory.is_reserved(address, bytes) ||
        virtual_memory.is_mapped(address, bytes))
        return record(cudaErrorInvalidValue);
    void* const at = reinterpret_cast<void*>(address);
    // Nobody has access until cuMemSetAccess says so.
    if (mmap(at, bytes, PROT_NONE, MAP_SHARED | MAP_FIXED, found->file, 0) == MAP_FAILED)
        return record(cudaErrorMemoryAllocation);
    found->mappings++;
    virtual_memory.mapped[address] = {bytes, handle};
    allocations.add(at, {bytes, cudaMemoryTypeDevice, 0, false, false, nullptr, true});
    if (watcher) watcher->allocated(address, bytes, 0, cudaMemoryTypeDevice);
    return cudaSuccess;
}

cudaError_t unmap_memory(unsigned long long address, size_t bytes) {
    if (watcher) watcher->synchronised();
    std::lock_guard<std::mutex> lock(virtual_memory.mutex);
    // Several mappings that lie side by side may go at once.
    uintptr_t end = address;
    for (auto it = virtual_memory.mapped.find(address);
         it != virtual_memory.mapped.end() && it->first == end && end < address + bytes; ++it)
        end += it->second.bytes;
    if (!bytes || end != address + bytes) return record(cudaErrorInvalidValue);
    while (address < end) {
        const auto found = virtual_memory.mapped.find(address);
        const MappedMemory it = found->second;
        void* const at = reinterpret_cast<void*>(address);
        if (watcher) watcher->freed(address, nullptr);
        allocations.drop(at);
        mmap(at, it.bytes, PROT_NONE, MAP_PRIVATE | MAP_ANONYMOUS | MAP_FIXED, -1, 0);
        virtual_memory.mapped.erase(found);
        virtual_memory.physical.at(it.handle).mappings--;
        virtual_memory.end_if_unused(it.handle);
        address += it.bytes;
    }
    return cudaSuccess;
}

cudaError_t set_access(unsigned long long address, size_t bytes, const CUmemAccessDesc* of,
                       size_t count) {
    if (!of || !count || !bytes) return record(cudaErrorInvalidValue);
    int protection = PROT_NONE;
    for (size_t i = 0; i < count; i++) {
        if (of[i].location.type == CU_MEM_LOCATION_TYPE_DEVICE && of[i].location.id != 0)
            return record(cudaErrorInvalidDevice);
        if (of[i].flags & 1) protection |= PROT_READ;
        if (of[i].flags & 2) protection |= PROT_WRITE;
    }
    std::lock_guard<std::mutex> lock(virtual_memory.mutex);
    const auto found = virtual_memory.mapped.find(address);
    if (found == virtual_memory.mapped.end() ||
        mprotect(reinterpret_cast<void*>(address), bytes, protection))
        return record(cudaErrorInvalidValue);
    return cudaSuccess;
}

cudaError_t retain_memory(CUmemGenericAllocationHandle* handle, void* address) {
    std::lock_guard<std::mutex> lock(virtual_memory.mutex);
    auto next = virtual_memory.mapped.upper_bound(uintptr_t(address));
    if (!handle || next == virtual_memory.mapped.begin()) return record(cudaErrorInvalidValue);
    --next;
    if (uintptr_t(address) - next->first >= next->second.bytes)
        return record(cudaErrorInvalidValue);
    *handle = next->second.handle;
    virtual_memory.find(*handle)->handles++;
    return cudaSuccess;
}

cudaError_t properties_of_memory(CUmemAllocationProp* properties,
                                 CUmemGenericAllocationHandle handle) {
    std::lock_guard<std::mutex> lock(virtual_memory.mutex);
    const PhysicalMemory* const found = virtual_memory.find(handle);
    if (!properties || !found) return record(cudaErrorInvalidValue);
    *properties = found->properties;
    return cudaSuccess;
}

cudaError_t export_memory(void* to, CUmemGenericAllocationHandle handle,
                          CUmemAllocationHandleType type, unsigned long long flags) {
    std::lock_guard<std::mutex> lock(virtual_memory.mutex);
    const PhysicalMemory* const found = virtual_memory.find(handle);
    if (!to || flags || !found || type != CU_MEM_HANDLE_TYPE_POSIX_FILE_DESCRIPTOR ||
        found->properties.requestedHandleTypes != type)
        return record(cudaErrorInvalidValue);
    const int file = dup(found->file);
    if (file < 0) return record(cudaErrorOperatingSystem);
    *static_cast<int*>(to) = file;
    return cudaSuccess;
}

cudaError_t import_memory(CUmemGenericAllocationHandle* handle, void* from,
                          CUmemAllocationHandleType type) {
    struct stat about;
    const int file = int(reinterpret_cast<intptr_t>(from));
    if (!handle || type != CU_MEM_HANDLE_TYPE_POSIX_FILE_DESCRIPTOR || fstat(file, &about) ||
        !is_grain(size_t(about.st_size)))
        return record(cudaErrorInvalidValue);
    const int mine = dup(file);
    if (mine < 0) return record(cudaErrorOperatingSystem);
    CUmemAllocationProp properties{};
    properties.type = CU_MEM_ALLOCATION_TYPE_PINNED;
    properties.requestedHandleTypes = type;
    properties.location.type = CU_MEM_LOCATION_TYPE_DEVICE;
    std::lock_guard<std::mutex> lock(virtual_memory.mutex);
    *handle = virtual_memory.add(mine, size_t(about.st_size), properties);
    return cudaSuccess;
}

cudaError_t refuse_call(const char* what, const char* why, const char* file, int line) {
    fprintf(stderr, "%s:%d: %s is not supported by the simulator: %s\n", file, line, what, why);
    return record(cudaErrorNotSupported);
}

}  // namespace api
}  // namespace simulator
