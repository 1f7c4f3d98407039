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

// Whoever loads the same value from the same place again waits for somebody to change it.
SIMULATOR_INLINE void let_others_change(const void* address, uint64_t value, const char* what,
                                        const char* file, int line) {
    if (is_loaded_again(address, value)) let_others_go(what, file, line);
}

}  // namespace simulator
