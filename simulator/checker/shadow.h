// What the checker keeps beside memory: tables, of who touched it last and when (touches.h), and of
// what was fetched.
#pragma once
#include <stdint.h>
#include <stdlib.h>
#include <sys/mman.h>
#include <algorithm>
#include <memory>
#include <new>
#include <type_traits>
#include <utility>
#include "../include/simulator/block.h"

namespace simulator {
namespace {

constexpr unsigned sector_bytes = 32;  // what memory moves at once

// How sure others can be of an access: not at all, as of one that the compiler may leave out or
// split; or it is volatile, or atomic for all or for its block alone.
enum class Strength : uint8_t { Plain, Volatile, Atomic, AtomicInBlock };

// Who touched a cell, and when. Blocks run one after another, so the time also says which block it
// was. Time 0 is never, 1 is before every kernel, or settled: it can race with nothing any more. Of
// a write 2 means the same, and that kernels have written there: by atomics. `value`: a few bits of
// what a thread has written; 0 where that is not known.
struct Touch {
    uint32_t time = 0;
    uint32_t thread : 10, site : 12;  // all 32 bits: copied in one piece
    uint32_t strength : 2;
    uint32_t in_crowd : 1;  // others have touched it too: see readers.h
    uint32_t value : 7;

    Touch() : thread(0), site(0), strength(0), in_crowd(0), value(0) {}
    Touch(uint32_t time, unsigned thread, unsigned site, Strength strength)
        : time(time),
          thread(thread),
          site(site),
          strength(unsigned(strength)),
          in_crowd(0),
          value(0) {}
    Strength how() const { return Strength(strength); }
};
static_assert(sizeof(Touch) == 8);
constexpr uint32_t settled = 1, by_kernel = 2, first_time = 3;
constexpr unsigned most_sites = 1 << 12;

// Where entry i of a table of 8 bytes each lies. Lanes that go down neighbouring rows, a power of
// two apart, would all want the same set of a cache: so lines trade places within their page.
SIMULATOR_INLINE size_t scattered(size_t i) {
    const size_t page = i >> 9;
    return i ^ ((page ^ page >> 6 ^ page >> 12) & 63) << 3;
}
constexpr size_t whole_pages(size_t entries) { return (entries + 511) & ~size_t(511); }

// Entries of 8 bytes, at first all 0. The system supplies the memory as it is used: the C library
// would wipe what it finds used, where sampled blocks touch a fraction of it.
template <class T>
class Table {
    static_assert(sizeof(T) == 8 && std::is_trivially_destructible_v<T>);
    // A TLB finds so much in pages of 4 KiB. Lanes that go down a row each would miss it on most
    // accesses to a larger table.
    static constexpr size_t within_reach = 8 << 20;

  public:
    T& operator[](size_t i) { return at(scattered(i)); }
    const T& operator[](size_t i) const { return at(scattered(i)); }
    T& at(size_t scattered) { return entries.get()[scattered]; }
    const T& at(size_t scattered) const { return entries.get()[scattered]; }
    bool empty() const { return !entries; }
    // It will be wanted soon.
    void prefetch(size_t scattered) const {
        if (entries) __builtin_prefetch(entries.get() + scattered, 1);
    }

    // everywhere: will most entries be used? Else large pages would be memory for nothing. soon:
    // will some on most pages? To ask for them one by one, as they are used, takes longer.
    void make(size_t count, bool everywhere, bool soon = false) {
        const size_t bytes = whole_pages(count) * sizeof(T);
        const int populate = soon && bytes <= within_reach / 8 ? MAP_POPULATE : 0;
        void* memory = mmap(nullptr, bytes, PROT_READ | PROT_WRITE,
                            MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE | populate, -1, 0);
        if (memory == MAP_FAILED) throw std::bad_alloc();
        entries = {static_cast<T*>(memory), Unmap{bytes}};
        if (everywhere && bytes > within_reach) madvise(memory, bytes, MADV_HUGEPAGE);
    }

  private:
    struct Unmap {
        size_t bytes;
        void operator()(T* memory) const { munmap(memory, bytes); }
    };
    std::unique_ptr<T, Unmap> entries{nullptr, Unmap{0}};
};

// How often memory must be asked for sectors: by a block each time that it wants one, but only once
// in a launch for one that several blocks want, since the cache that they share answers the others.
class Fetches {
  public:
    uint64_t count = 0;

    // `begin`: of the launch's blocks. Blocks are known by their serial numbers.
    void add(uintptr_t sector, uint32_t block, uint32_t begin) {
        Sector& it = sectors[sector - base];
        if (it.block < begin) {
            it = {block, 1};
            count++;
        } else if (it.block == block && it.times) {
            it.times++;
            count++;
        } else if (it.times) {
            count -= it.times - 1;
            it.times = 0;
        }
    }

    // Of a region that begins and ends there.
    void make(uintptr_t begin, uintptr_t end, bool everywhere) {
        if (!sectors.empty()) return;
        base = begin / sector_bytes;
        sectors.make((end - 1) / sector_bytes + 1 - base, everywhere);
    }

  private:
    struct Sector {
        uint32_t block = 0, times = 0;  // times: 0 if several blocks want it
    };
    uintptr_t base = 0;
    Table<Sector> sectors;
};

}  // namespace
}  // namespace simulator
