// What the checker remembers of memory: whose it is, and who touched it last.
#pragma once
#include <stdint.h>
#include <stdlib.h>
#include <sys/mman.h>
#include <algorithm>
#include <memory>
#include <new>
#include <string>
#include <type_traits>
#include <utility>
#include "../include/simulator/block.h"

namespace simulator {
namespace {

constexpr unsigned sector_bytes = 32;  // what memory moves at once

enum class Kind : uint8_t { Read, Write, Atomic };
constexpr const char* access_names[] = {"read", "write", "atomic"};

// A line of code that touches memory: one call of a hook, known by its return address.
struct Site;

// Who touched a cell, and when. Blocks run one after another, so the time also says which block it
// was. Time 0 is never, 1 is before every kernel, or settled: it can race with nothing any more.
struct Touch {
    uint32_t time = 0;
    uint32_t thread : 10, site : 21, atomic : 1;  // all 32 bits: copied in one piece

    Touch() : thread(0), site(0), atomic(0) {}
    Touch(uint32_t time, unsigned thread, unsigned site, bool atomic)
        : time(time), thread(thread), site(site), atomic(atomic) {}
};
static_assert(sizeof(Touch) == 8);
constexpr uint32_t settled = 1, first_time = 2;
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

    // everywhere: will most entries be used? Else large pages would be memory for nothing.
    void make(size_t count, bool everywhere) {
        const size_t bytes = whole_pages(count) * sizeof(T);
        void* memory = mmap(nullptr, bytes, PROT_READ | PROT_WRITE,
                            MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE, -1, 0);
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

// A touch of each cell; at first nobody's.
class Touches : public Table<Touch> {
  public:
    // `ratio` cells for each of before.
    void split(size_t count, unsigned ratio, bool everywhere) {
        if (empty()) return;
        const Touches before = std::move(*this);
        make(count, everywhere);
        for (size_t i = 0; i < count; i++) (*this)[i] = before[i / ratio];
    }
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

// A stretch of memory that kernels may use, cut into cells as small as the smallest access so far.
struct Region {
    // Fresh: allocated during the check. Device: a __device__ variable. Private: no kernel's.
    enum Type : uint8_t { Given, Fresh, Shared, Device, Private };

    uintptr_t begin, end;  // the same where the memory is given back
    size_t size;
    Type type;
    size_t pad;  // bytes on either side that belong to nobody, so that damage there is none
    std::string name;
    bool output = false;  // the call returned it
    unsigned shift = 4;   // of a cell's size

    // Of each cell the last write, and reads by two threads: a later write is a race with one of
    // them at least if it is one with any that they stand for. `last_`: when the newest was made.
    Touches writes = {}, reads = {}, more_reads = {};
    uint32_t last_write = 0, last_read = 0;
    size_t cells_written = 0, cells_read = 0;  // by kernels, each once
    Fetches fetched_reads = {}, fetched_writes = {};
    bool written_before = false;  // the host has written all of it
    uint64_t read_requests = 0, atomics = 0;
    const Site* written_by = nullptr;  // first

    bool is_alive() const { return begin < end; }
    bool holds(uintptr_t address, size_t size) const {
        return address >= begin && address + size <= end;
    }
    bool is_shared() const { return type == Shared; }
    size_t cell_size() const { return size_t(1) << shift; }
    size_t cells() const { return (size + cell_size() - 1) >> shift; }

    // Before cells are touched from offsets and with a size that have these bits.
    void refine(size_t bits, bool everywhere) {
        if (!(bits & (cell_size() - 1))) return;
        const unsigned finer = __builtin_ctzll(bits), ratio = 1u << (shift - finer);
        shift = finer;
        for (Touches* it : {&writes, &reads, &more_reads}) it->split(cells(), ratio, everywhere);
        cells_written *= ratio;
        cells_read *= ratio;
    }

    void note_writes(uint32_t now, bool everywhere) {
        if (writes.empty()) writes.make(cells(), everywhere);
        last_write = now;
    }
    void note_reads(uint32_t now, bool everywhere) {
        if (reads.empty()) reads.make(cells(), everywhere), more_reads.make(cells(), everywhere);
        last_read = now;
    }
    // `spot`: of a cell, scattered.
    void write(size_t spot, Touch touch) {
        Touch& before = writes.at(spot);
        cells_written += before.time < first_time;
        before = touch;
    }
    void read(size_t spot, Touch touch) {
        Touch& before = reads.at(spot);
        cells_read += before.time == 0;
        before = touch;
    }
    size_t bytes_written() const { return std::min(cells_written << shift, size); }
    size_t bytes_read() const { return std::min(cells_read << shift, size); }
    bool is_written(size_t cell) const { return !writes.empty() && writes[cell].time; }
};

// Fresh memory is filled with words that no kernel and no host is likely to write, each its own:
// where they are still there, nobody has written.
constexpr uint64_t poison_step = 0x9E3779B97F4A7C15;
inline uint64_t poison_at(uintptr_t word) { return (word >> 3) * poison_step | 1; }

// visit(i, what poison makes of word i), for each of so many words from `begin` on. Memory comes in
// megabytes, so this goes in steps that the compiler makes vectors of.
template <class Visit>
SIMULATOR_INLINE void for_each_poisoned(uintptr_t begin, size_t count, Visit visit) {
    constexpr size_t together = 8;
    size_t i = 0;
    for (uint64_t at = (begin >> 3) * poison_step; i + together <= count; i += together)
        for (size_t k = 0; k < together; k++, at += poison_step) visit(i + k, at | 1);
    for (; i < count; i++) visit(i, poison_at(begin + 8 * i));
}

inline void poison(uintptr_t begin, size_t bytes) {
    auto* words = reinterpret_cast<uint64_t*>(begin);
    const size_t count = bytes / 8;
    for_each_poisoned(begin, count, [&](size_t i, uint64_t word) { words[i] = word; });
    const uint64_t last = poison_at(begin + 8 * count);
    __builtin_memcpy(words + count, &last, bytes % 8);
}

// Whether the aligned words that hold [begin, begin + bytes) are as poison() left them.
inline bool is_poisoned(const Region& region, uintptr_t begin, size_t bytes) {
    const uintptr_t end = begin + bytes;
    uintptr_t word = begin & ~uintptr_t(7);
    for (; word < end && word + 8 <= region.end; word += 8)
        if (*reinterpret_cast<const uint64_t*>(word) != poison_at(word)) return false;
    if (word >= end) return true;
    const uint64_t last = poison_at(word);
    return !__builtin_memcmp(reinterpret_cast<const char*>(word), &last, region.end - word);
}

// How many of a region's words are.
inline size_t count_poisoned(const Region& region) {
    const auto* words = reinterpret_cast<const uint64_t*>(region.begin);
    const size_t count = region.size / 8;
    size_t poisoned = 0;
    for_each_poisoned(
        region.begin, count, [&](size_t i, uint64_t word) { poisoned += words[i] == word; });
    return poisoned + (region.size % 8 && is_poisoned(region, region.begin + 8 * count, 1));
}

}  // namespace
}  // namespace simulator
