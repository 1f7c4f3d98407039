// Writes beside the memory that a launch is given, within its last page or its first: nothing
// faults there, so they are found when the launch has ended (guarded_memory.h).
//
// Whose they were is found by another run, on copies of the memory, of which the damaged one ends,
// or begins, where access does. The launch has failed, so its time does not matter.
#pragma once
#include <alloca.h>
#include <map>
#include <string>
#include "interrupts.h"

namespace simulator {
namespace {

using Island = GuardedMemory::Island;

// The copies of a launch's memory, and the launch with their addresses in place of the originals'.
class LaunchOnCopies {
  public:
    // at: an address beside `damaged`.
    LaunchOnCopies(const Launch& launch, const Island& damaged, uintptr_t at) {
        const size_t page = sysconf(_SC_PAGESIZE);
        const bool is_behind = at >= damaged.begin + damaged.bytes;
        const auto* words = static_cast<const uintptr_t*>(launch.body);
        size_t bytes = 0;
        for (size_t i = 0; i < launch.body_bytes / sizeof *words; i++) {
            if (!guarded.owns(reinterpret_cast<void*>(words[i]))) continue;
            const Island it = guarded.find(words[i]);
            if (!it.bytes || copies.count(it.begin)) continue;
            if ((bytes += it.bytes) > most_bytes) return;
            const bool is_damaged = it.begin == damaged.begin;
            size_t alignment = 256;  // of the original, except where a copy ends with its page
            while (is_damaged && is_behind && it.bytes % alignment) alignment /= 2;
            const size_t size =
                is_damaged && !is_behind ? (it.bytes + page - 1) / page * page : it.bytes;
            void* const copy = guarded.allocate(size, alignment);
            if (!copy) return;
            memcpy(copy, reinterpret_cast<void*>(it.begin), it.bytes);
            copies[it.begin] = {it, uintptr_t(copy)};
            if (is_damaged) moved = uintptr_t(copy) - it.begin;
        }
        is_whole = moved;
    }
    ~LaunchOnCopies() {
        for (const auto& [_, copy] : copies) guarded.release(reinterpret_cast<void*>(copy.begin));
    }

    // The error of the thread that writes to `at`; no error if another run does not. Its access is
    // noted for simulator_take_fault.
    Error run(const Launch& launch, uintptr_t at) {
        if (!is_whole) return {};
        constexpr size_t alignment = 256;
        const uintptr_t place = uintptr_t(alloca(launch.body_bytes + alignment));
        auto* words = reinterpret_cast<uintptr_t*>((place + alignment - 1) / alignment * alignment);
        memcpy(words, launch.body, launch.body_bytes);
        for (size_t i = 0; i < launch.body_bytes / sizeof *words; i++) {
            auto after = copies.upper_bound(words[i]);
            if (after == copies.begin()) continue;
            const auto& [original, copy] = (--after)->second;
            if (words[i] <= original.begin + original.bytes) words[i] += copy - original.begin;
        }
        Launch on_copies = launch;
        on_copies.body = words;
        told_fault.take();
        const Error error = pool->repeat(on_copies, 1.0);
        char access[16];
        size_t address = 0;
        const std::string said = told_fault.take();
        const bool is_told = sscanf(said.c_str(), "%15[a-z]\n%zx", access, &address) == 2;
        if (!is_told || error.is_interrupt || address - moved - (at - near_by) > 2 * near_by)
            return {};
        const size_t library = said.find('\n', said.find('\n') + 1) + 1;
        const size_t offset = said.find('\n', library) + 1;
        told_fault.tell(access, address - moved, said.substr(library, offset - 1 - library),
                        strtoull(&said[offset], nullptr, 16));
        return error;
    }

  private:
    struct Copy {
        Island original;
        uintptr_t begin;
    };
    static constexpr size_t most_bytes = size_t(64) << 20;
    static constexpr size_t near_by = 4096;

    std::map<uintptr_t, Copy> copies;  // by the beginning of the original
    uintptr_t moved = 0;               // from the damaged memory to its copy
    bool is_whole = false;
};

enum class Damage { ByHost, ByKernel, ToExplain };

// An error if what lies beside the memory of a launch was written to; the memory there is mended.
Error damage_beside(const Launch& launch, Damage how) {
    const bool by_host = how == Damage::ByHost;
    const char* const what =
        by_host ? ", finds that the host wrote" : ": illegal memory access: it writes";
    Error error;
    const auto* words = static_cast<const uintptr_t*>(launch.body);
    for (size_t i = 0; i < launch.body_bytes / sizeof *words; i++) {
        Island of;
        const uintptr_t at = guarded.damage(words[i], of, by_host ? guarded.few : guarded.all);
        if (!at || error.code != cudaSuccess) continue;
        if (how == Damage::ToExplain) error = LaunchOnCopies(launch, of, at).run(launch, at);
        if (error.code != cudaSuccess) continue;
        error = {cudaErrorIllegalAddress, describe(launch) + what + where_is(at)};
        told_fault.tell("writes", at, "", 0);
    }
    return error;
}

}  // namespace
}  // namespace simulator
