// Where a watched launch's allocations lie: far apart, in addresses that nobody else has and that
// no later allocation gets again. So an access past the end of one meets no other, and an access
// to what was freed is known as that.
//
// Around each allocation a few pages may be written, where an access does no harm; what lies
// further away reads as zeros.
#pragma once
#include <stdint.h>
#include <sys/mman.h>
#include <algorithm>
#include <map>
#include <mutex>

namespace simulator {

class Arena {
  public:
    static constexpr size_t pad = 1 << 14, page = 1 << 12;

    bool holds(const void* address) const { return holds(reinterpret_cast<uintptr_t>(address)); }
    bool holds(uintptr_t address) const { return address - begin < reserved; }

    // Null where the system has no room.
    void* take(size_t bytes) {
        std::lock_guard<std::mutex> lock(mutex);
        if (!begin && !reserve()) return nullptr;
        const size_t whole = round(bytes) + 2 * pad, gap = std::max(least_gap, round(bytes));
        if (whole > reserved || next + whole + 2 * gap > begin + reserved) return nullptr;
        const uintptr_t at = next + gap;
        if (mprotect(reinterpret_cast<void*>(at), whole, PROT_READ | PROT_WRITE)) return nullptr;
        next = at + whole;
        sizes[at + pad] = whole;
        return reinterpret_cast<void*>(at + pad);
    }
    void give_back(void* address) {
        std::lock_guard<std::mutex> lock(mutex);
        const auto found = sizes.find(reinterpret_cast<uintptr_t>(address));
        if (found == sizes.end()) return;
        void* const from = reinterpret_cast<void*>(found->first - pad);
        madvise(from, found->second, MADV_DONTNEED);
        mprotect(from, found->second, PROT_READ);
        sizes.erase(found);
    }

  private:
    static constexpr size_t least_gap = 1 << 22;
    static size_t round(size_t bytes) { return (bytes + page - 1) / page * page; }

    bool reserve() {
        for (size_t bytes = size_t(1) << 45; bytes >= size_t(1) << 38; bytes >>= 1) {
            void* const found =
                mmap(nullptr, bytes, PROT_READ, MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE, -1, 0);
            if (found == MAP_FAILED) continue;
            begin = next = reinterpret_cast<uintptr_t>(found);
            reserved = bytes;
            return true;
        }
        return false;
    }

    std::mutex mutex;
    uintptr_t begin = 0, next = 0;
    size_t reserved = 0;
    std::map<uintptr_t, size_t> sizes;
};

// The checker asks it, too, which is a library of its own.
#pragma GCC visibility push(default)
extern Arena& arena;
#pragma GCC visibility pop

#ifdef SIMULATOR_EXECUTOR
Arena& arena = *new Arena;  // never destroyed, as what lies in it may outlive everything
#endif

}  // namespace simulator
