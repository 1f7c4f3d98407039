// Shuffles as PTX has them, which say whether a lane's source lies within its segment; elections.
#pragma once
#include "../warp.h"
#include "values.h"

namespace simulator::ptx {

struct Shuffled {
    uint32_t __ptx_value;
    bool __ptx_is_within;
};

// c: in its low bits the last lane of a segment (for `up` the first), from bit 8 on what segments
// have in common.
SIMULATOR_INLINE Shuffled shuffle_to(uint32_t value, int source, bool is_within, uint32_t mask,
                                     const char* file, int line) {
    const unsigned lane = is_within ? source : lane_id();
    return {shuffle(mask, value, lane, "shfl.sync", file, line), is_within};
}
SIMULATOR_INLINE int segment(uint32_t c) { return c >> 8 & 31; }
SIMULATOR_INLINE int last_of(uint32_t c) {
    return (int(lane_id()) & segment(c)) | (int(c & 31) & ~segment(c));
}
SIMULATOR_INLINE Shuffled __ptx_shuffle_up(uint32_t a, uint32_t b, uint32_t c, uint32_t mask,
                                           SIMULATOR_CALLER) {
    const int source = int(lane_id()) - int(b & 31);
    return shuffle_to(a, source, source >= last_of(c), mask, file, line);
}
SIMULATOR_INLINE Shuffled __ptx_shuffle_down(uint32_t a, uint32_t b, uint32_t c, uint32_t mask,
                                             SIMULATOR_CALLER) {
    const int source = int(lane_id()) + int(b & 31);
    return shuffle_to(a, source, source <= last_of(c), mask, file, line);
}
SIMULATOR_INLINE Shuffled __ptx_shuffle_bfly(uint32_t a, uint32_t b, uint32_t c, uint32_t mask,
                                             SIMULATOR_CALLER) {
    const int source = int(lane_id()) ^ int(b & 31);
    return shuffle_to(a, source, source <= last_of(c), mask, file, line);
}
SIMULATOR_INLINE Shuffled __ptx_shuffle_idx(uint32_t a, uint32_t b, uint32_t c, uint32_t mask,
                                            SIMULATOR_CALLER) {
    const int first = int(lane_id()) & segment(c);
    const int source = first | (int(b & 31) & ~segment(c));
    return shuffle_to(a, source, source <= last_of(c), mask, file, line);
}

SIMULATOR_INLINE bool __ptx_vote_uniform(bool predicate, uint32_t mask, SIMULATOR_CALLER) {
    const uint32_t ballot = __ballot_sync(mask, predicate, file, line);
    return ballot == 0 || ballot == (mask & __ballot_sync(mask, 1, file, line));
}

// The lowest lane of those that have come.
SIMULATOR_INLINE unsigned __ptx_elect(uint32_t mask, SIMULATOR_CALLER) {
    const uint64_t ballot = exchange(Exchange::Ballot, mask, 1, 0, "elect.sync", file, line);
    return __builtin_ctz(uint32_t(ballot));
}

constexpr uint32_t __ptx_full_mask = full_mask;
SIMULATOR_INLINE unsigned __ptx_lane_id() { return lane_id(); }

// Unsigned numbers that compare as floats do, -0 before +0. Of a NaN it is the given one: 0 or ~0.
SIMULATOR_INLINE uint32_t __ptx_key_of_float(uint32_t word, uint32_t of_nan) {
    if ((word & 0x7fffffff) > 0x7f800000) return of_nan;
    return word >> 31 ? ~word : word | 0x80000000;
}
SIMULATOR_INLINE uint32_t __ptx_float_of_key(uint32_t key) {
    const uint32_t word = key >> 31 ? key & 0x7fffffff : ~key;
    return (word & 0x7fffffff) > 0x7f800000 ? 0x7fffffff : word;
}

}  // namespace simulator::ptx
