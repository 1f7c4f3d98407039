// How a thread waits for what another thread of its block, or of another block, is to write.
#pragma once
#include <sched.h>
#include "parking.h"

namespace simulator {

// What is wanted was not there: others go first.
SIMULATOR_INLINE void let_others_go(const char* what, const char* file, int line) {
    if (in_kernel())
        pause(what, file, line);
    else
        sched_yield();
}

// The last value that was loaded on this core, and by whom.
struct Loaded {
    const void* address;
    uint64_t value;
    uint3 block, thread;
};
static thread_local Loaded last_loaded;

// Whoever loads the same value from the same place again waits for somebody to change it.
SIMULATOR_INLINE void let_others_change(const void* address, uint64_t value, const char* what,
                                        const char* file, int line) {
    Loaded& last = last_loaded;
    const auto same = [](uint3 a, uint3 b) { return a.x == b.x && a.y == b.y && a.z == b.z; };
    if (last.address == address && last.value == value && same(last.thread, threadIdx) &&
        same(last.block, blockIdx))
        let_others_go(what, file, line);
    else
        last = {address, value, blockIdx, threadIdx};
}

}  // namespace simulator
