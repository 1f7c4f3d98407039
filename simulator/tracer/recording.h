// What a trace holds: for each step of a thread the line that it ran, the variables that this
// changed and the memory that it touched; and for what each warp waits.
//
// A step is a thread's way from the beginning of a line to the beginning of the next. In a round
// each warp makes one step, with all of its lanes that are at the same place.
#pragma once
#include <string.h>
#include <algorithm>
#include <string>
#include <unordered_map>
#include <vector>
#include "../executor/watcher.h"
#include "../include/simulator/tensor_memory.h"

extern "C" bool simulator_check_region(uintptr_t address, uintptr_t* begin, size_t* bytes,
                                       bool* is_shared, const char** name);
extern "C" uintptr_t simulator_check_shared(unsigned n);

namespace simulator {
namespace {

// ---- What Python tells (lab/tracer/places.py has the same)

// A call of the tracer: the beginning of a line.
struct Place {
    uint64_t pc;  // where the call returns to
    uint32_t line, function;
    uint32_t first, count;  // of the variables that are in scope
    int32_t frame_at;       // the frame's address: register rbp and so much
    uint16_t is_saved;      // or what lies there
    uint16_t is_lambda;
};

struct Variable {
    int32_t at;  // from the frame's address, or from register rbp
    uint32_t size;
    uint32_t line;        // where it is declared; 0: a parameter
    uint32_t kept_at;     // in Frame::kept
    uint16_t is_pointed;  // a reference: `size` bytes lie where it points to
    uint16_t is_at_rbp;   // of a function that aligns its stack
};

// ---- What Python takes

struct Step {
    uint32_t round, place;
    uint16_t thread, depth;  // functions that it is in; with `returned`: its line goes on
};  // round, here and below: the number of a recorded one, and not of the block's
constexpr uint16_t returned = 1 << 15;
struct ChangedVariable {
    uint32_t step, variable, bytes_at;  // of `bytes`
};
// Other: the hardware has written it. Asked: it reads it, as the thread has asked for.
enum class Touched : uint16_t { Read, Write, Atomic, Other, Asked };
struct TouchedMemory {
    uint32_t step;  // of Other: the round
    Touched how;
    uint16_t region;
    uint32_t offset, size, bytes_at;
};
struct Waiting {
    uint32_t round;
    uint16_t warp, what;  // of `words`
    uint32_t lanes;
};
// Asynchronous work, or a product, from when it is asked for until it has been waited for.
struct Flight {
    uint32_t round, until;  // `until`: ~0, if nobody has by the end
    uint16_t thread, what;  // of `words`
    uint64_t barrier;       // that it tells, or 0
};
// Columns of tensor memory that an operation or access writes, or reads.
struct TensorWork {
    uint32_t round, flight;  // `flight`: of `flights`, or ~0
    uint16_t thread, what;   // of `words`
    uint16_t region, is_read, first, count;
};
// An mbarrier changes.
struct BarrierChange {
    uint32_t round, arriving;
    uint64_t barrier;
    int64_t bytes;  // announced; less than 0: come
    uint16_t thread, what, has_ended, is_init;
};
// A thread runs a line that is looked for (size: 0), or touches memory there.
struct Sighting {
    uint64_t round, address;  // the block's round
    uint32_t place, size;
    uint16_t thread, how;
    uint32_t is_outside;  // of all memory that kernels may use
};
// A recorded round: whose, and which of the block's.
struct Round {
    uint32_t block, number;
};
// Of memory that is no kernel's: the checker may find it out of bounds.
struct TouchedOutside {
    uint64_t address;
    uint32_t step, size;
};
// What lay in memory before the traced steps.
struct Before {
    uint32_t region, offset, size, bytes_at;
};
struct MemoryRegion {
    uintptr_t begin;
    size_t size;
    bool is_shared;
    std::string name;
    int block = -1;        // of the traced ones, whose shared memory it is
    bool is_over = false;  // that block has ended
    // Stretches that have been noted in `before`: whether, which, and what lies there as far as is
    // known.
    std::vector<bool> is_known;
    std::vector<uint32_t> known;
    std::unordered_map<uint32_t, std::vector<uint8_t>> now;
    // Of shared memory before the first recorded step, by byte; and what lay there at the
    // beginning.
    std::vector<uint8_t> written, initial;
};

constexpr unsigned stretch = 256;  // bytes of memory that are noted together

struct Recording {
    std::vector<Step> steps;
    std::vector<ChangedVariable> changes;
    std::vector<TouchedMemory> touches;
    std::vector<TouchedOutside> outside;
    std::vector<Waiting> waits;
    std::vector<Before> before;
    std::vector<Flight> flights;
    std::vector<TensorWork> tensor;
    std::vector<BarrierChange> barriers;
    std::vector<Sighting> sightings;
    std::vector<Round> rounds;
    std::vector<Round> opened;  // in which round the block's threads have all come to a barrier
    std::vector<MemoryRegion> regions;
    std::vector<std::string> words;
    std::vector<uint8_t> bytes;

    uint32_t keep(const void* at, size_t size) {
        const auto begin = static_cast<const uint8_t*>(at);
        bytes.insert(bytes.end(), begin, begin + size);
        return bytes.size() - size;
    }

    uint16_t word(const std::string& what) {
        const auto found = std::find(words.begin(), words.end(), what);
        if (found != words.end()) return found - words.begin();
        words.push_back(what);
        return words.size() - 1;
    }

    // -1 where kernels have no memory.
    int region_of(uintptr_t address) {
        for (size_t i = regions.size(); i-- > 0;)
            if (!regions[i].is_over && address - regions[i].begin < regions[i].size) return i;
        MemoryRegion found{};
        const char* name;
        if (!simulator_check_region(address, &found.begin, &found.size, &found.is_shared, &name))
            return -1;
        found.name = name;
        found.is_known.resize(found.size / stretch + 1);
        if (found.is_shared) {
            const auto at = reinterpret_cast<const uint8_t*>(found.begin);
            found.written.resize(found.size);
            found.initial.assign(at, at + found.size);
        }
        regions.push_back(std::move(found));
        return regions.size() - 1;
    }

    // Before these bytes are touched for the first time.
    void note_before(unsigned number, size_t offset, size_t size) {
        MemoryRegion& region = regions[number];
        for (size_t i = offset / stretch; i <= (offset + size - 1) / stretch; i++) {
            if (region.is_known[i]) continue;
            region.is_known[i] = true;
            region.known.push_back(i);
            const size_t begin = i * stretch, end = std::min(region.size, begin + stretch);
            const auto at = reinterpret_cast<const uint8_t*>(region.begin + begin);
            region.now[i].assign(at, at + end - begin);
            for (size_t from = 0; from < end - begin;) {  // what nobody has written is no value
                const auto is_written = [&](size_t k) {
                    return !region.is_shared || region.written[begin + k] ||
                           region.initial[begin + k] != at[k];
                };
                size_t to = from;
                while (to < end - begin && is_written(to) == is_written(from)) to++;
                if (is_written(from))
                    before.push_back({number, uint32_t(begin + from), uint32_t(to - from),
                                      keep(at + from, to - from)});
                from = to;
            }
        }
    }

    // A thread has written.
    void follow(const TouchedMemory& it) {
        MemoryRegion& region = regions[it.region];
        for (uint32_t done = 0; done < it.size;) {
            const uint32_t at = it.offset + done, within = at % stretch;
            const uint32_t size = std::min(it.size - done, stretch - within);
            memcpy(&region.now[at / stretch][within], &bytes[it.bytes_at + done], size);
            done += size;
        }
    }

    // What others than the block's threads have written: asynchronous copies, tensor cores, other
    // blocks.
    void note_others(uint32_t round) {
        for (unsigned number = 0; number < regions.size(); number++) {
            MemoryRegion& region = regions[number];
            if (region.is_over) continue;
            for (const uint32_t i : region.known) {
                auto& before = region.now[i];
                const auto now = reinterpret_cast<const uint8_t*>(region.begin + i * stretch);
                if (!memcmp(before.data(), now, before.size())) continue;
                uint32_t first = 0, end = before.size();
                while (before[first] == now[first]) first++;
                while (before[end - 1] == now[end - 1]) end--;
                first &= ~3u, end = std::min<uint32_t>(before.size(), (end + 3) & ~3u);
                touches.push_back({round, Touched::Other, uint16_t(number), i * stretch + first,
                                   end - first, keep(now + first, end - first)});
                memcpy(before.data(), now, before.size());
            }
        }
    }
};

}  // namespace
}  // namespace simulator
