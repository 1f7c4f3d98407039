// Memory of which everybody else's is far away: of cudaMalloc, and of PyTorch's tensors.
//
// Each allocation is an island in an address space that is closed to all access for at least 256
// MiB on both sides, and ends where its last page ends. So an index that is too large or negative
// faults, and costs the kernel nothing until then (faults.h says whose index it was). What an
// alignment leaves on either side within the pages is filled, and looked at after each launch that
// is given the allocation. As an index of 32 bits does not lead out of the address space, it cannot
// reach the heap of the process.
#pragma once
#include <pthread.h>
#include <stdint.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <unistd.h>
#include <algorithm>
#include <deque>
#include <map>
#include <mutex>
#include <vector>
#include "../include/simulator/shared_window.h"
#include "libraries.h"

namespace simulator {
namespace {

// Whether a stretch of memory holds this byte alone. Every launch asks, so this takes whole lines
// of the cache at a time. No memcmp: at the end of a page, glibc's takes ten times as long.
bool is_filled(uintptr_t begin, uintptr_t end, unsigned char byte) {
    typedef uint64_t Word __attribute__((may_alias));
    typedef uint64_t Line __attribute__((vector_size(64), may_alias));
    const uint64_t word = ~uint64_t(0) / 0xFF * byte;
    uint64_t different = 0;
    const auto take = [&](uintptr_t until, uintptr_t& at) {  // byte by byte, and word by word
        for (; at < until && at % 8; at++)
            different |= *reinterpret_cast<unsigned char*>(at) ^ byte;
        for (; at + 8 <= until; at += 8) different |= *reinterpret_cast<const Word*>(at) ^ word;
        for (; at < until; at++) different |= *reinterpret_cast<unsigned char*>(at) ^ byte;
    };
    uintptr_t at = begin;
    take(std::min(end, (begin + 63) / 64 * 64), at);
    Line line{};
    for (; at + 64 <= end; at += 64) line |= *reinterpret_cast<const Line*>(at) ^ word;
    take(end, at);
    for (int i = 0; i < 8; i++) different |= line[i];
    return !different;
}

// The first address in a stretch of memory at which another byte lies; 0 if there is none.
uintptr_t first_other(uintptr_t begin, uintptr_t end, unsigned char byte) {
    if (is_filled(begin, end, byte)) return 0;
    const auto* bytes = reinterpret_cast<const unsigned char*>(begin);
    while (*bytes == byte) bytes++;
    return uintptr_t(bytes);
}

class GuardedMemory {
  public:
    struct Island {
        uintptr_t begin;
        size_t bytes;
        uint32_t pages, slots;  // slots: that it takes, from its own on
        bool is_alive, is_open;
        bool is_shared;  // of a block: it ends at a multiple of 256 KB
    };

    static constexpr size_t few = 512, all = size_t(1) << 30;

    // Null where there is no room for more: then memory of the heap has to do.
    void* allocate(size_t bytes, size_t alignment, bool is_shared = false) {
        if (!bytes || alignment > page || bytes > most) return nullptr;
        std::lock_guard<std::mutex> lock(mutex);
        if (!base && !reserve()) return nullptr;
        const uint32_t pages = (bytes + page - 1) / page;
        auto& unused = unused_of(pages, is_shared);
        uint32_t slot;
        if (!unused.empty()) {
            slot = unused.back();
            unused.pop_back();
            bytes_kept -= pages * page;
        } else if (!open(pages, is_shared, slot)) {
            return nullptr;
        }
        Island& it = islands[slot];
        const uintptr_t begin = (end_of(slot) - bytes) / alignment * alignment;
        const bool is_filled = it.is_open && it.begin == begin && it.bytes == bytes;
        it.begin = begin, it.bytes = bytes, it.is_alive = it.is_open = true;
        if (!is_filled) fill(slot);
        return reinterpret_cast<void*>(begin);
    }

    bool owns(const void* address) const { return uintptr_t(address) - base < slots * slot_size; }

    // for_good: what is freed is closed to all access, as whoever still uses it is to find.
    void release(void* address, bool for_good = false) {
        std::lock_guard<std::mutex> lock(mutex);
        const uint32_t slot = owner(slot_of(uintptr_t(address)));
        Island& it = islands[slot];
        if (!it.is_alive || it.begin != uintptr_t(address)) return;
        it.is_alive = false;
        const size_t bytes = it.pages * page;
        if (for_good || bytes > most_kept / 4) return close(slot);
        if (bytes_kept + bytes > most_kept) close_unused();
        bytes_kept += bytes;
        unused_of(it.pages, it.is_shared).push_back(slot);
    }

    // The bytes of the closed allocation that an address was in; 0 if it was in none.
    size_t closed_at(uintptr_t address) {
        std::lock_guard<std::mutex> lock(mutex);
        if (!owns(reinterpret_cast<void*>(address))) return 0;
        const Island& it = islands[owner(slot_of(address))];
        return !it.is_open && address - it.begin < it.bytes ? it.bytes : 0;
    }

    // The allocation that an address is in or, failing that, the nearest; null if there is none
    // anywhere near.
    Island find(uintptr_t address) {
        std::lock_guard<std::mutex> lock(mutex);
        Island nearest{};
        if (!owns(reinterpret_cast<void*>(address))) return nearest;
        const uint32_t at = slot_of(address);
        size_t least = ~size_t(0);
        for (uint32_t slot = at - std::min(at, around); slot < std::min(at + around, first_unused);
             slot++) {
            const Island& it = islands[slot];
            if (it.is_alive && distance(it, address) < least)
                nearest = it, least = distance(it, address);
        }
        return nearest;
    }

    static size_t distance(const Island& it, uintptr_t address) {
        return address < it.begin              ? it.begin - address
               : address < it.begin + it.bytes ? 0
                                               : address - (it.begin + it.bytes) + 1;
    }

    // Where the filling beside an allocation is damaged, if an address is one of it; it is mended.
    // Before it so many bytes are looked at. The caller sees to it that nobody frees it meanwhile.
    uintptr_t damage(uintptr_t address, Island& of, size_t before = few) {
        if (!owns(reinterpret_cast<void*>(address))) return 0;
        const uint32_t slot = owner(slot_of(address));
        of = islands[slot];
        if (!of.is_alive) return 0;
        uintptr_t found = first_other(of.begin + of.bytes, end_of(slot), filling);
        const uintptr_t first = std::max(end_of(slot) - of.pages * page, of.begin - before);
        if (!found) found = first_other(first, of.begin, filling);
        if (found) fill(slot);
        return found;
    }

    void bounds(uint64_t* of) {
        std::lock_guard<std::mutex> lock(mutex);
        if (!base) reserve();
        of[0] = base, of[1] = base + slots * slot_size;
    }

    void lock() { mutex.lock(); }
    void unlock() { mutex.unlock(); }

  private:
    static constexpr size_t slot_size = size_t(1) << 30, gap = slot_size / 4;
    static constexpr size_t margin = size_t(64) << 30;  // 2^31 elements of 16 bytes, and as many
    static constexpr size_t most = size_t(1) << 40;
    static constexpr size_t most_kept = size_t(256) << 20;  // of what is not in use
    static constexpr uint32_t most_slots = 16384;  // each splits mappings; a process has 65530
    static constexpr uint32_t around = 64;
    static constexpr size_t rest = 64;  // so many closed slots wait before one is used again
    static constexpr unsigned char filling = 0xFB;  // a large number of any type of floats

    bool reserve() {
        for (slots = most_slots; slots >= 64; slots /= 4) {
            void* found = mmap(nullptr, slots * slot_size + 2 * margin, PROT_NONE,
                               MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE, -1, 0);
            if (found == MAP_FAILED) continue;
            base = uintptr_t(found) + margin;
            islands = static_cast<Island*>(calloc(slots, sizeof(Island)));
            followed = static_cast<uint32_t*>(calloc(slots, sizeof(uint32_t)));
            return true;
        }
        slots = 0;
        return false;
    }

    std::vector<uint32_t>& unused_of(uint32_t pages, bool is_shared) {
        if (is_shared) return unused_shared[pages];
        return pages < std::size(unused_small) ? unused_small[pages] : unused_large[pages];
    }

    uint32_t slot_of(uintptr_t address) const { return (address - base) / slot_size; }
    // Of several slots that are one island's, the first.
    uint32_t owner(uint32_t slot) const {
        return islands[slot].slots || !followed[slot] ? slot : followed[slot] - 1;
    }
    // Were all to end at the same offset, they would fight for the same few lines of the caches,
    // and an index that is off by a power of two would lead from one into another.
    uintptr_t end_of(uint32_t slot) const {
        const size_t stagger = slot * 5 % 64 * (page + (size_t(1) << 20));
        const uintptr_t end =
            base + (slot + std::max(1u, islands[slot].slots)) * slot_size - gap - stagger;
        return islands[slot].is_shared ? end / window * window : end;
    }

    bool open(uint32_t pages, bool is_shared, uint32_t& slot) {
        const uint32_t count = (pages * page + 2 * gap + slot_size - 1) / slot_size;
        auto& unused = free_slots[count];  // the oldest first: stale pointers are to fault for long
        const bool is_new = unused.size() * count < rest && first_unused + count <= slots;
        if (!is_new && unused.empty()) return false;
        slot = is_new ? first_unused : unused.front();
        Island& it = islands[slot];
        it.slots = count, it.pages = pages, it.is_open = false, it.is_shared = is_shared;
        void* begin = reinterpret_cast<void*>(end_of(slot) - pages * page);
        if (mprotect(begin, pages * page, PROT_READ | PROT_WRITE)) return false;
        if (is_new) {
            first_unused += count;
            for (uint32_t i = 1; i < count; i++) followed[slot + i] = slot + 1;
        } else {
            unused.pop_front();
        }
        return true;
    }

    void close(uint32_t slot) {
        Island& it = islands[slot];
        void* begin = reinterpret_cast<void*>(end_of(slot) - it.pages * page);
        madvise(begin, it.pages * page, MADV_DONTNEED);
        mprotect(begin, it.pages * page, PROT_NONE);
        it.is_open = false;
        free_slots[it.slots].push_back(slot);
    }

    void close_unused() {
        const auto close_all = [this](std::vector<uint32_t>& unused) {
            for (uint32_t slot : unused) close(slot);
            unused.clear();
        };
        for (auto& unused : unused_small) close_all(unused);
        for (auto& [pages, unused] : unused_large) close_all(unused);
        for (auto& [pages, unused] : unused_shared) close_all(unused);
        bytes_kept = 0;
    }

    void fill(uint32_t slot) {
        const Island& it = islands[slot];
        const uintptr_t begin = end_of(slot) - it.pages * page, end = it.begin + it.bytes;
        memset(reinterpret_cast<void*>(begin), filling, it.begin - begin);
        memset(reinterpret_cast<void*>(end), filling, end_of(slot) - end);
    }

    const size_t page = sysconf(_SC_PAGESIZE);
    uintptr_t base = 0;
    size_t slots = 0, bytes_kept = 0;
    uint32_t first_unused = 0;
    std::vector<uint32_t> unused_small[64];  // islands that are open still, by their pages
    std::map<uint32_t, std::vector<uint32_t>> unused_large, unused_shared;
    std::map<uint32_t, std::deque<uint32_t>> free_slots;  // by how many they are
    std::mutex mutex;
    Island* islands = nullptr;     // by the first slot of each
    uint32_t* followed = nullptr;  // of a slot within an island: its first, and one
};

// Never destroyed, as what it holds may be freed by a destructor.
GuardedMemory& guarded = *new GuardedMemory;

#ifdef __linux__
int allocate_tensor(void** memory, size_t alignment, size_t bytes) {
    if (void* found = guarded.allocate(bytes, alignment)) return *memory = found, 0;
    return posix_memalign(memory, alignment, bytes);
}

void free_tensor(void* memory) { guarded.owns(memory) ? guarded.release(memory) : free(memory); }

// Has a library call a function of ours in the place of one of another's.
void redirect(const dl_phdr_info& library, const char* name, const void* to) {
    const ElfW(Dyn)* entry = nullptr;
    for (int i = 0; i < library.dlpi_phnum; i++)
        if (library.dlpi_phdr[i].p_type == PT_DYNAMIC)
            entry = reinterpret_cast<ElfW(Dyn)*>(library.dlpi_addr + library.dlpi_phdr[i].p_vaddr);
    const char* names = nullptr;
    const ElfW(Sym)* symbols = nullptr;
    std::pair<const ElfW(Rela)*, size_t> tables[2] = {};
    for (; entry && entry->d_tag != DT_NULL; entry++) switch (entry->d_tag) {
            case DT_STRTAB:
                names = reinterpret_cast<char*>(entry->d_un.d_ptr);
                break;
            case DT_SYMTAB:
                symbols = reinterpret_cast<ElfW(Sym)*>(entry->d_un.d_ptr);
                break;
            case DT_JMPREL:
                tables[0].first = reinterpret_cast<ElfW(Rela)*>(entry->d_un.d_ptr);
                break;
            case DT_PLTRELSZ:
                tables[0].second = entry->d_un.d_val;
                break;
            case DT_RELA:
                tables[1].first = reinterpret_cast<ElfW(Rela)*>(entry->d_un.d_ptr);
                break;
            case DT_RELASZ:
                tables[1].second = entry->d_un.d_val;
                break;
        }
    const size_t page = sysconf(_SC_PAGESIZE);
    for (auto [table, bytes] : tables)
        for (size_t i = 0; names && symbols && i < bytes / sizeof *table; i++) {
            const size_t symbol = ELF64_R_SYM(table[i].r_info);
            if (!symbol || strcmp(names + symbols[symbol].st_name, name)) continue;
            const uintptr_t at = library.dlpi_addr + table[i].r_offset;
            // Perhaps it is read-only once the linker is done.
            if (mprotect(reinterpret_cast<void*>(at / page * page), page, PROT_READ | PROT_WRITE))
                continue;
            __atomic_store_n(reinterpret_cast<const void**>(at), to, __ATOMIC_RELEASE);
        }
}

// PyTorch's allocator for the CPU, in whatever release: it calls posix_memalign and free.
bool guard_tensors() {
    return find_library([](const dl_phdr_info& library) {
        const char* name = strrchr(library.dlpi_name, '/');
        if (!name || strncmp(name, "/libc10.so", 10)) return false;
        redirect(library, "free", reinterpret_cast<void*>(free_tensor));
        redirect(library, "posix_memalign", reinterpret_cast<void*>(allocate_tensor));
        return true;
    });
}
#else
bool guard_tensors() { return false; }
#endif

}  // namespace
}  // namespace simulator

// From here on PyTorch's tensors have guards. False where it has no allocator of the kind.
extern "C" SIMULATOR_EXPORT bool simulator_guard_tensors() { return simulator::guard_tensors(); }

// Where memory with guards may lie: from the first address to before the second.
extern "C" SIMULATOR_EXPORT void simulator_guarded_range(uint64_t* bounds) {
    simulator::guarded.bounds(bounds);
}
