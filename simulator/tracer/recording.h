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
    uint32_t is_saved;      // or what lies there
};

struct Variable {
    int32_t at;  // from the frame's address
    uint32_t size;
    uint32_t line;        // where it is declared; 0: a parameter
    uint32_t kept_at;     // in Frame::kept
    uint32_t is_pointed;  // a reference: `size` bytes lie where it points to
};

// ---- What Python takes

struct Step {
    uint32_t round, place;
    uint16_t thread, depth;  // functions that it is in; with `returned`: its line goes on
};
constexpr uint16_t returned = 1 << 15;
struct ChangedVariable {
    uint32_t step, variable, bytes_at;  // of `bytes`
};
enum class Touched : uint16_t { Read, Write, Atomic, Other };  // Other: the hardware has written it
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
// What lay in memory before the traced steps.
struct Before {
    uint32_t region, offset, size, bytes_at;
};
struct MemoryRegion {
    uintptr_t begin;
    size_t size;
    bool is_shared;
    std::string name;
    // Stretches that have been noted in `before`: whether, which, and what lies there as far as is
    // known.
    std::vector<bool> is_known;
    std::vector<uint32_t> known;
    std::unordered_map<uint32_t, std::vector<uint8_t>> now;
    std::vector<uint8_t> written;  // of shared memory before the first recorded step: by byte
};

constexpr unsigned stretch = 256;  // bytes of memory that are noted together

struct Recording {
    std::vector<Step> steps;
    std::vector<ChangedVariable> changes;
    std::vector<TouchedMemory> touches;
    std::vector<Waiting> waits;
    std::vector<Before> before;
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
            if (address - regions[i].begin < regions[i].size) return i;
        MemoryRegion found{};
        const char* name;
        if (!simulator_check_region(address, &found.begin, &found.size, &found.is_shared, &name))
            return -1;
        found.name = name;
        found.is_known.resize(found.size / stretch + 1);
        if (found.is_shared) found.written.resize(found.size);
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
            before.push_back(
                {number, uint32_t(begin), uint32_t(end - begin), keep(at, end - begin)});
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
