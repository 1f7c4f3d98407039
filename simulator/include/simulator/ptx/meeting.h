// Instructions that the lanes of a warp execute together.
#pragma once
#include "../warp.h"
#include "values.h"

namespace simulator::ptx {

// Lanes that have returned are not waited for. What the instruction does is in `meeting.run`, which
// the last lane to come calls.
SIMULATOR_INLINE void meet(Meeting& meeting, const char* what, const char* file, int line) {
    exchange(Exchange::Meet, full_mask, reinterpret_cast<uintptr_t>(&meeting), 0, what, file, line);
}

}  // namespace simulator::ptx
