// clusterlaunchcontrol: a running cluster takes the place of one that has not begun.
#pragma once
#include "bulk_copies.h"

namespace simulator::ptx {

// The answer, 16 bytes, comes as a copy does: to this block, or to all of the cluster. It is
// decided when it is asked for.
SIMULATOR_INLINE void __ptx_try_cancel(uint64_t to, uint64_t barrier, bool to_all,
                                       SIMULATOR_CALLER) {
    to = shared_operand(to), barrier = shared_operand(barrier);
    const char* what = "clusterlaunchcontrol.try_cancel";
    if (was_none_canceled())
        fail("the block has read that none was canceled: to ask again is undefined", what, file,
             line);
    uint3 first{};
    const uint64_t is_canceled = cancel_next_cluster(first);
    BulkCopy copy{};
    copy.kind = BulkCopy::Word;
    copy.bytes = copy.transaction = sizeof copy.words;
    copy.words[0] = first.x | uint64_t(first.y) << 32;
    copy.words[1] = first.z | is_canceled << 63;
    start(copy, to, barrier, to_all ? (1u << cluster_size()) - 1 : 0, false, what, file, line);
}

SIMULATOR_INLINE bool __ptx_is_canceled(b128 answer) {
    const bool is = answer >> 127;
    if (!is) note_none_canceled();
    return is;
}
SIMULATOR_INLINE uint32_t __ptx_first_block(b128 answer, int dimension, SIMULATOR_CALLER) {
    if (!(answer >> 127))
        fail("the answer is that none was canceled, and has no block",
             "clusterlaunchcontrol.query_cancel.get_first_ctaid", file, line);
    return uint32_t(answer >> 32 * dimension) & 0x7fffffff;
}

}  // namespace simulator::ptx
