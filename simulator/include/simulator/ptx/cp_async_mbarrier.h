// cp.async.mbarrier.arrive: an arrival at an mbarrier when the thread's copies are complete.
#pragma once
#include "cp_async.h"
#include "mbarriers.h"

namespace simulator::ptx {

// The copies are made now, and the arrival is late. Without .noinc the barrier expects one more.
SIMULATOR_INLINE void __ptx_arrive_after_copies(char* p, bool is_counted, SIMULATOR_CALLER) {
    __ptx_wait_for_all_copies(file, line);
    BulkCopy copy{};
    copy.what = "cp.async.mbarrier.arrive", copy.file = file, copy.line = line;
    copy.kind = BulkCopy::Bytes;
    copy.barrier = __ptx_barrier_at(p);
    copy.arrivals = 1;
    if (!is_counted) {
        MbarrierState old = state_of(copy.barrier), next;
        do next = MbarrierState::of(old.phase(), old.bytes(), old.awaited() + 1, old.expected());
        while (!__atomic_compare_exchange_n(
            copy.barrier, &old.word, next.word, true, __ATOMIC_SEQ_CST, __ATOMIC_SEQ_CST));
    }
    add_copy(*current, copy);
}

}  // namespace simulator::ptx
