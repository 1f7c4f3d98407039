// A launch on copies of its memory, each of which ends, or begins, where access does: so a read or
// a write one element beside it faults.
#pragma once
#include <alloca.h>
#include <map>
#include <string>
#include "host_memory.h"

namespace simulator {
namespace {

using Island = GuardedMemory::Island;

enum class Side { NotCopied, None, Before, Behind };

// The copies, and the launch with their addresses in place of the originals'.
class LaunchOnCopies {
  public:
    // `side_of`: of each piece of memory, the side on which access ends with it.
    template <class SideOf>
    LaunchOnCopies(const Launch& launch, size_t most_bytes, SideOf side_of) {
        const size_t page = sysconf(_SC_PAGESIZE);
        const auto* words = static_cast<const uintptr_t*>(launch.body);
        size_t bytes = 0;
        for (size_t i = 0; i < launch.body_bytes / sizeof *words; i++) {
            if (!guarded.owns(reinterpret_cast<void*>(words[i]))) continue;
            const Island it = guarded.find(words[i]);
            if (!it.bytes || copies.count(it.begin)) continue;
            const Side side = side_of(it);
            if (side == Side::NotCopied) continue;
            if ((bytes += it.bytes) > most_bytes) return;
            size_t alignment = 256;  // of the original, except where a copy ends with its page
            while (side == Side::Behind && it.bytes % alignment) alignment /= 2;
            const size_t size =
                side == Side::Before ? (it.bytes + page - 1) / page * page : it.bytes;
            void* const copy = guarded.allocate(size, alignment);
            if (!copy) return;
            memcpy(copy, reinterpret_cast<void*>(it.begin), it.bytes);
            copies[it.begin] = {it, uintptr_t(copy)};
        }
        is_whole = true;
    }
    ~LaunchOnCopies() {
        for (const auto& [_, copy] : copies) guarded.release(reinterpret_cast<void*>(copy.begin));
    }

    // What comes of it, in so many seconds. `change`: is given each word of the arguments that is
    // not in memory that is copied, and may change it.
    template <class Change>
    Error run(const Launch& launch, double seconds, Change change) {
        constexpr size_t alignment = 256;
        const uintptr_t place = uintptr_t(alloca(launch.body_bytes + alignment));
        auto* words = reinterpret_cast<uintptr_t*>((place + alignment - 1) / alignment * alignment);
        memcpy(words, launch.body, launch.body_bytes);
        for (size_t i = 0; i < launch.body_bytes / sizeof *words; i++)
            if (const uintptr_t copy = moved(words[i], 0))
                words[i] = copy;
            else
                change(words[i]);
        Launch on_copies = launch;
        on_copies.body = words;
        told_fault.take();
        return pool->repeat(on_copies, seconds);
    }

    // The address in the memory itself of one that is in its copy, or so near; else 0.
    uintptr_t original(uintptr_t address, size_t near_by) const {
        for (const auto& [begin, copy] : copies)
            if (address - (copy.begin - near_by) < copy.of.bytes + 2 * near_by)
                return begin + (address - copy.begin);
        return 0;
    }

    bool is_whole = false;

  private:
    struct Copy {
        Island of;
        uintptr_t begin;
    };

    uintptr_t moved(uintptr_t address, uintptr_t otherwise) const {
        auto after = copies.upper_bound(address);
        if (after == copies.begin()) return otherwise;
        const auto& [begin, copy] = *--after;
        return address <= begin + copy.of.bytes ? copy.begin + (address - begin) : otherwise;
    }

    std::map<uintptr_t, Copy> copies;  // by the beginning of the original
};

// What simulator_take_fault would say, and its parts.
struct Told {
    std::string access, library;
    uintptr_t address = 0;
    size_t offset = 0;

    static Told take() {
        Told told;
        char access[16];
        const std::string said = told_fault.take();
        if (sscanf(said.c_str(), "%15[a-z]\n%zx", access, &told.address) != 2) return told;
        const size_t library = said.find('\n', said.find('\n') + 1) + 1;
        const size_t offset = said.find('\n', library) + 1;
        told.access = access;
        told.library = said.substr(library, offset - 1 - library);
        told.offset = strtoull(&said[offset], nullptr, 16);
        return told;
    }

    // Tells it again, of an address in the memory itself; and the error with it.
    Error again_at(Error error, uintptr_t original) const {
        told_fault.tell(access.c_str(), original, library, offset);
        const std::string where = where_is(address);
        if (const size_t at = error.message.find(where); at != std::string::npos)
            error.message.replace(at, where.size(), where_is(original));
        return error;
    }
};

}  // namespace
}  // namespace simulator
