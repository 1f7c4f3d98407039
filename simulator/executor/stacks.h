// The stacks on which the threads of a block wait for each other.
#pragma once
#include <stdio.h>
#include <stdlib.h>
#include <sys/mman.h>
#include <unistd.h>
#include <atomic>
#include <utility>
#include "../include/simulator/block.h"

namespace simulator {
namespace {

// The fibers' stacks of one worker. They are reserved at once; the system supplies a page when it
// is touched.
class Stacks {
  public:
    static constexpr size_t size = 128 << 10;

    Stacks() {
        const size_t bytes = size * max_threads;
        void* memory = mmap(nullptr, bytes, PROT_READ | PROT_WRITE,
                            MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE, -1, 0);
        if (memory == MAP_FAILED) {
            fprintf(stderr, "simulator: no memory for %zu MiB of stacks\n", bytes >> 20);
            abort();
        }
        base = static_cast<char*>(memory);
        page = sysconf(_SC_PAGESIZE);
        reset();
    }

    void reset() {
        for (unsigned i = 0; i < max_threads; i++) idle[i] = max_threads - 1 - i;
        count = max_threads;
    }

    // The end of an unused stack. Its lowest page is closed to all access, so that a thread that
    // needs more stack than it has stops there.
    char* take() {
        const unsigned index = idle[--count];
        if (index == guarded) {
            guarded++;
            if (guards_left.fetch_sub(1, std::memory_order_relaxed) > 0)
                mprotect(base + index * size, page, PROT_NONE);
        }
        // Were all stacks to end at the same offset in a page, they would fight for the same few
        // lines of the cache.
        const size_t stagger = index * 5 % 16 * 256;
        return base + (index + 1) * size - stagger;
    }

    void give_back(const void* address) { idle[count++] = index_of(address); }

    bool is_guard(const void* address) const {
        return address >= base && address < base + size * max_threads &&
               size_t(static_cast<const char*>(address) - base) % size < page;
    }

    bool is_on(const void* address) const {
        return address >= base && address < base + size * max_threads && !is_guard(address) &&
               !(reinterpret_cast<uintptr_t>(address) % sizeof(void*));
    }

    // The end of some stack, for one who has given up all that is on them.
    char* any() { return base + size; }

    const void* end_of(const void* address) const { return base + (index_of(address) + 1) * size; }

    std::pair<const void*, size_t> memory() const { return {base, size * max_threads}; }

  private:
    unsigned index_of(const void* address) const {
        return (static_cast<const char*>(address) - base) / size;
    }

    // A closed page splits a mapping in two, and Linux allows a process 65530 mappings.
    static inline std::atomic<int> guards_left{16384};

    char* base;
    size_t page;
    unsigned guarded = 0;
    unsigned count;
    uint16_t idle[max_threads];
};

}  // namespace
}  // namespace simulator
