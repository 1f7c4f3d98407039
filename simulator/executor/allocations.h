// What cudaMalloc and its like have given out and not yet got back, so that a pointer that is none
// of theirs, or a size beyond theirs, is an error rather than a crash. Other memory is not known
// here: PyTorch's tensors, and the host's own.
#pragma once
#include <map>
#include "errors.h"

namespace simulator {
namespace {

struct Allocation {
    size_t bytes;
    cudaMemoryType type;
    unsigned flags = 0;
    bool is_registered = false;  // the host's own, of cudaHostRegister
    bool is_graphs = false;      // of a graph, which frees it
    cudaMemPool_t pool = nullptr;
    bool is_mapped = false;  // by cuMemMap
};

class Allocations {
  public:
    void add(const void* address, const Allocation& allocation) {
        std::lock_guard<std::mutex> lock(mutex);
        by_address[reinterpret_cast<uintptr_t>(address)] = allocation;
    }

    // The one that begins there, if there is one of this kind: then it is no more.
    template <class IsOfKind>
    bool take(const void* address, IsOfKind is_of_kind) {
        std::lock_guard<std::mutex> lock(mutex);
        const auto found = by_address.find(reinterpret_cast<uintptr_t>(address));
        if (found == by_address.end() || !is_of_kind(found->second)) return false;
        if (!found->second.is_graphs) by_address.erase(found);
        return true;
    }

    void leave_pool(cudaMemPool_t pool) {
        std::lock_guard<std::mutex> lock(mutex);
        for (auto& [address, allocation] : by_address)
            if (allocation.pool == pool) allocation.pool = nullptr;
    }

    void drop(const void* address) {
        std::lock_guard<std::mutex> lock(mutex);
        by_address.erase(reinterpret_cast<uintptr_t>(address));
    }

    struct Found {
        bool is_known = false;
        const void* begin = nullptr;
        size_t offset = 0;
        Allocation allocation{};

        bool has(cudaMemoryType type) const { return is_known && allocation.type == type; }
        // Whether so many bytes from there on stay within it, as far as anybody knows.
        bool holds(size_t bytes) const {
            return !is_known || allocation.is_registered || bytes <= allocation.bytes - offset;
        }
    };

    // The one that `address` points into.
    Found find(const void* address) {
        const auto at = reinterpret_cast<uintptr_t>(address);
        std::lock_guard<std::mutex> lock(mutex);
        auto next = by_address.upper_bound(at);
        if (next == by_address.begin()) return {};
        const auto& [begin, allocation] = *--next;
        if (at - begin >= allocation.bytes) return {};
        return {true, reinterpret_cast<const void*>(begin), at - begin, allocation};
    }

    bool is_any_in(const void* address, size_t bytes) {
        const auto at = reinterpret_cast<uintptr_t>(address);
        std::lock_guard<std::mutex> lock(mutex);
        const auto next = by_address.lower_bound(at);
        return next != by_address.end() && next->first - at < bytes;
    }

  private:
    std::mutex mutex;
    std::map<uintptr_t, Allocation> by_address;
};

// Never destroyed: a program may free in its destructors.
Allocations& allocations = *new Allocations;

}  // namespace
}  // namespace simulator
