// Whose memory is whose: regions that kernels may use, and whether anybody has written to them.
#pragma once
#include <string>
#include "library_memory.h"
#include "readers.h"

namespace simulator {
namespace {

// A line of code that touches memory: one call of a hook, known by its return address.
struct Site;

// A stretch of memory that kernels may use, cut into cells as small as the smallest access so far.
struct Region {
    // Fresh: allocated during the check. Device: a __device__ variable. Private: no kernel's.
    enum Type : uint8_t { Given, Fresh, Shared, Device, Private };

    uintptr_t begin, end;  // the same where the memory is given back
    size_t size;
    Type type;
    size_t pad;  // bytes on either side that belong to nobody, so that damage there is none
    std::string name;
    bool output = false;                             // the call returned it
    cudaMemoryType of = cudaMemoryTypeUnregistered;  // cudaMalloc's and the like
    unsigned largest = 0;                            // of what kernels have written at once
    unsigned shift = 4;                              // of a cell's size

    // Of each cell the last write, and who has read it or changed it by an atomic since. `last_`:
    // when the newest was made.
    Touches writes = {};
    Readers reads = {}, atomics = {};
    uint32_t last_write = 0, last_read = 0, last_atomic = 0;
    size_t cells_written = 0, cells_read = 0;  // by kernels, each once
    Fetches fetched_reads = {}, fetched_writes = {};
    uintptr_t written_to = 0;        // by blocks that are not traced: where the last of it ends
    bool written_before = false;     // the host has written all of it
    const char* original = nullptr;  // what was there when the check began
    uint64_t read_requests = 0, atomic_requests = 0;
    const Site* written_by = nullptr;  // first

    Callers made_by, freed_by;  // where memory came into being, and its end
    bool is_kept_back = false;  // since its end

    bool is_alive() const { return begin < end; }
    bool holds(uintptr_t address, size_t size) const {
        return address >= begin && address + size <= end;
    }
    bool is_shared() const { return type == Shared; }
    bool is_cudas() const { return of != cudaMemoryTypeUnregistered; }  // and no tensor's
    size_t cell_size() const { return size_t(1) << shift; }
    size_t cells() const { return (size + cell_size() - 1) >> shift; }

    // Before cells are touched from offsets and with a size that have these bits.
    void refine(size_t bits, bool everywhere) {
        if (!(bits & (cell_size() - 1))) return;
        const unsigned finer = __builtin_ctzll(bits), ratio = 1u << (shift - finer);
        shift = finer;
        writes.split(cells(), ratio, everywhere);
        reads.split(cells(), ratio, everywhere);
        atomics.split(cells(), ratio, everywhere);
        cells_written *= ratio;
        cells_read *= ratio;
    }

    void note_writes(uint32_t now, bool everywhere) {
        if (writes.empty()) writes.make(cells(), everywhere);
        last_write = now;
    }
    void note_reads(uint32_t now, bool everywhere) {
        reads.make(cells(), everywhere);
        last_read = now;
    }
    void note_atomics(uint32_t now, bool everywhere) {
        if (writes.empty()) writes.make(cells(), everywhere);
        atomics.make(cells(), everywhere);
        last_atomic = now;
    }
    // `spot`: of a cell, scattered.
    void write(size_t spot, Touch touch) {
        Touch& before = writes.at(spot);
        cells_written += before.time < by_kernel;
        before = touch;
    }
    void read(size_t spot, Touch touch, uint32_t lanes, const Order& order, uint32_t begin) {
        cells_read += reads.last_of(spot).time == 0;
        reads.note(spot, touch, lanes, order, begin, cells());
    }
    void change(size_t spot, Touch touch, uint32_t lanes, const Order& order, uint32_t begin) {
        Touch& before = writes.at(spot);
        if (before.time < by_kernel) before.time = by_kernel, cells_written++;
        atomics.note(spot, touch, lanes, order, begin, cells());
    }
    // Plain accesses to the cells of a run, if these surely come after all that was done there:
    // else nothing is noted, and each cell needs a look. `was_`: that there is something to look
    // at; written_since: when the cells must have been written, if they must.
    SIMULATOR_INLINE bool read_in_order(const Run& run, const Known& known, bool was_written,
                                        uint32_t written_since) {
        if (was_written && !writes.come_before(run, known)) return false;
        if (written_since && (writes.empty() || writes.count_since(run, written_since) < run.count))
            return false;
        return reads.note_in_order(run, known, cells_read);
    }
    SIMULATOR_INLINE bool write_in_order(const Run& run, const Known& known, bool was_written,
                                         bool was_read) {
        if (was_written && !writes.come_before(run, known)) return false;
        if (was_read) {
            if (!reads.are_before(run, known)) return false;
            reads.settle(run, known.begin);
        }
        cells_written += run.count - writes.count_since(run, by_kernel);
        writes.put(run);
        return true;
    }
    size_t bytes_written() const { return std::min(cells_written << shift, size); }
    size_t bytes_read() const { return std::min(cells_read << shift, size); }
    // The host writes so many bytes from there on.
    void note_host(uintptr_t from, uintptr_t to, bool everywhere) {
        from = std::max(from, begin), to = std::min(to, end);
        if (from >= to) return;
        if (from == begin && to == end) written_before = true;
        if (written_before) return;
        refine((from - begin) | (to - begin), everywhere);
        if (writes.empty()) writes.make(cells(), everywhere);
        for (size_t i = (from - begin) >> shift; i < (to - begin + cell_size() - 1) >> shift; i++)
            if (!is_written(i)) writes.at(scattered(i)).time = settled;
    }
    Touch last_write_of(size_t cell) const { return writes.get(scattered(cell)); }
    bool is_written(size_t cell) const { return !writes.empty() && last_write_of(cell).time; }
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

// Whether bytes are what poison makes of those at `from`.
inline bool is_poison_of(uintptr_t from, uintptr_t begin, size_t bytes) {
    for (size_t i = 0; i < bytes; i++) {
        const uint64_t word = poison_at(from + i);
        if (reinterpret_cast<const unsigned char*>(begin)[i] !=
            reinterpret_cast<const unsigned char*>(&word)[(from + i) % 8])
            return false;
    }
    return true;
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

// Whether a cell that no kernel has written is as poison() left it. Where kernels have written
// beside it in its word, its own bytes say so.
inline bool is_untouched(const Region& region, size_t cell) {
    const uintptr_t begin = region.begin + (cell << region.shift);
    const size_t bytes = std::min(region.cell_size(), region.end - begin);
    if (is_poisoned(region, begin, bytes)) return true;
    if (region.cell_size() >= 8) return false;
    const size_t in_word = 8 >> region.shift, first = cell & ~(in_word - 1);
    bool has_neighbour = false;
    for (size_t i = first; i < std::min(first + in_word, region.cells()); i++)
        has_neighbour |= !region.writes.empty() && region.last_write_of(i).time >= by_kernel;
    const uint64_t word = poison_at(begin);
    return has_neighbour &&
           !__builtin_memcmp(reinterpret_cast<const char*>(begin),
                             reinterpret_cast<const char*>(&word) + begin % 8, bytes);
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
