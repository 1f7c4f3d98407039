// bar and barrier: the barriers of a block.
#pragma once
#include "../cuda/parking.h"
#include "../named_barriers.h"
#include "values.h"

namespace simulator::ptx {

SIMULATOR_INLINE void __ptx_bar_sync(unsigned id, unsigned count = 0, SIMULATOR_CALLER) {
    if (id == 0 && (count == 0 || count == current->size)) {
        barrier(false, "bar.sync", file, line);
        return;
    }
    named_barrier(id, count, true, false, "bar.sync", file, line);
    passed(&current->named[id]);
}
SIMULATOR_INLINE void __ptx_bar_arrive(unsigned id, unsigned count, SIMULATOR_CALLER) {
    named_barrier(id, count, false, false, "bar.arrive", file, line);
}
SIMULATOR_INLINE NamedBarrier bar_red(unsigned id, unsigned count, bool vote, SIMULATOR_CALLER) {
    const NamedBarrier result = named_barrier(id, count, true, vote, "bar.red", file, line);
    passed(&current->named[id]);
    return result;
}
SIMULATOR_INLINE unsigned __ptx_bar_red_popc(unsigned id, unsigned count, bool vote,
                                             SIMULATOR_CALLER) {
    return bar_red(id, count, vote, file, line).result;
}
SIMULATOR_INLINE bool __ptx_bar_red_or(unsigned id, unsigned count, bool vote, SIMULATOR_CALLER) {
    return bar_red(id, count, vote, file, line).result != 0;
}
SIMULATOR_INLINE bool __ptx_bar_red_and(unsigned id, unsigned count, bool vote, SIMULATOR_CALLER) {
    const NamedBarrier voted = bar_red(id, count, vote, file, line);
    return voted.result == voted.all_result;
}

}  // namespace simulator::ptx
