// Shuffles, votes, matches and reductions among the lanes of a warp.
//
// A lane hands in a value and waits. The last of the lanes that the mask names works out the result
// of each, so no lane can read a value that another has already replaced by its next. Lanes that
// have returned are not waited for.
#pragma once
#include "barrier.h"

namespace simulator {

constexpr unsigned full_mask = 0xffffffff;

SIMULATOR_INLINE unsigned lane_id() { return current->rank % warp_size; }

#ifdef __SANITIZE_THREAD__
SIMULATOR_EXPORT uint64_t exchange(Exchange exchange, unsigned mask, uint64_t value,
                                   unsigned source, const char* what, const char* file, int line);
SIMULATOR_EXPORT unsigned active_lanes(const char* file, int line);
#else
SIMULATOR_WAIT uint64_t exchange(Exchange exchange, unsigned mask, uint64_t value, unsigned source,
                                 const char* what, const char* file, int line) {
    Block& block = *current;
    const unsigned rank = block.rank;
    note(block, rank, what, file, line);
    Warp& warp = block.warps[rank / warp_size];
    const unsigned lane = rank % warp_size;
    if (mask != full_mask && !(mask >> lane & 1)) block.fail_for_mask(rank, mask);
    warp.key[lane] = uint64_t(exchange) << 32 | mask;
    warp.value[lane] = value;
    warp.source[lane] = source;
    warp.exchange |= 1u << lane;
    const bool last = (warp.exchange & mask) == (warp.alive & mask);
    if (Context* next = last ? block.complete_exchange(rank) : next_fiber(block, rank))
        suspend(block, rank, next);
    return warp.result[lane];
}

// Which lanes run together is the hardware's choice. Here they are as many as can be: a lane waits
// until no other lane of its warp can run, and all that then stand at the same __activemask are
// active together. So `__shfl_down_sync(__activemask(), ...)` and the counting of a warp's atomics
// both come out right.
SIMULATOR_WAIT unsigned active_lanes(const char* file, int line) {
    Block& block = *current;
    const unsigned rank = block.rank;
    note(block, rank, "__activemask", file, line);
    block.warps[rank / warp_size].convergence |= 1u << rank % warp_size;
    suspend(block, rank, next_fiber(block, rank));
    return block.warps[rank / warp_size].result[rank % warp_size];
}
#endif

template <class T>
SIMULATOR_INLINE T shuffle(unsigned mask, T value, unsigned source, const char* what,
                           const char* file, int line) {
    static_assert(__is_trivially_copyable(T) && sizeof(T) <= 8,
                  "a shuffle takes numbers and half types, of up to 8 bytes");
    uint64_t bits = 0;
    __builtin_memcpy(&bits, &value, sizeof(T));
    bits = exchange(Exchange::Shuffle, mask, bits, source, what, file, line);
    __builtin_memcpy(static_cast<void*>(&value), &bits, sizeof(T));
    return value;
}

template <class T>
SIMULATOR_INLINE uint64_t bits_of(T value) {
    uint64_t bits = 0;
    __builtin_memcpy(&bits, &value, sizeof(T));
    return bits;
}

}  // namespace simulator

template <class T>
SIMULATOR_INLINE T __shfl_sync(unsigned mask, T value, int source, int width = 32,
                               SIMULATOR_CALLER) {
    const unsigned first = simulator::lane_id() & ~(width - 1);
    return simulator::shuffle(
        mask, value, first + (source & (width - 1)), "__shfl_sync", file, line);
}

// Of a distance the hardware looks at the last five bits.
template <class T>
SIMULATOR_INLINE T __shfl_up_sync(unsigned mask, T value, unsigned delta, int width = 32,
                                  SIMULATOR_CALLER) {
    const unsigned lane = simulator::lane_id(), within = lane & (width - 1);
    delta &= 31;
    return simulator::shuffle(
        mask, value, delta <= within ? lane - delta : lane, "__shfl_up_sync", file, line);
}

template <class T>
SIMULATOR_INLINE T __shfl_down_sync(unsigned mask, T value, unsigned delta, int width = 32,
                                    SIMULATOR_CALLER) {
    const unsigned lane = simulator::lane_id(), within = lane & (width - 1);
    delta &= 31;
    return simulator::shuffle(
        mask, value, delta < width - within ? lane + delta : lane, "__shfl_down_sync", file, line);
}

// A lane of an earlier segment may be read, one of a later segment may not.
template <class T>
SIMULATOR_INLINE T __shfl_xor_sync(unsigned mask, T value, int lane_mask, int width = 32,
                                   SIMULATOR_CALLER) {
    const unsigned lane = simulator::lane_id(), last = lane | (width - 1);
    const unsigned source = lane ^ (lane_mask & 31);
    return simulator::shuffle(
        mask, value, source <= last ? source : lane, "__shfl_xor_sync", file, line);
}

SIMULATOR_INLINE void __syncwarp(unsigned mask = simulator::full_mask, SIMULATOR_CALLER) {
    simulator::exchange(simulator::Exchange::Sync, mask, 0, 0, "__syncwarp", file, line);
}

SIMULATOR_INLINE unsigned __ballot_sync(unsigned mask, int predicate, SIMULATOR_CALLER) {
    return simulator::exchange(
        simulator::Exchange::Ballot, mask, predicate != 0, 0, "__ballot_sync", file, line);
}

SIMULATOR_INLINE int __any_sync(unsigned mask, int predicate, SIMULATOR_CALLER) {
    const uint64_t ballot = simulator::exchange(
        simulator::Exchange::Ballot, mask, predicate != 0, 0, "__any_sync", file, line);
    return uint32_t(ballot) != 0;
}

SIMULATOR_INLINE int __all_sync(unsigned mask, int predicate, SIMULATOR_CALLER) {
    const uint64_t ballot = simulator::exchange(
        simulator::Exchange::Ballot, mask, predicate != 0, 0, "__all_sync", file, line);
    return uint32_t(ballot) == ballot >> 32;
}

template <class T>
SIMULATOR_INLINE unsigned __match_any_sync(unsigned mask, T value, SIMULATOR_CALLER) {
    return simulator::exchange(simulator::Exchange::MatchAny, mask, simulator::bits_of(value), 0,
                               "__match_any_sync", file, line);
}

template <class T>
SIMULATOR_INLINE unsigned __match_all_sync(unsigned mask, T value, int* predicate,
                                           SIMULATOR_CALLER) {
    const unsigned lanes = simulator::exchange(
        simulator::Exchange::MatchAll, mask, simulator::bits_of(value), 0, "__match_all_sync", file,
        line);
    *predicate = lanes != 0;
    return lanes;
}

#define SIMULATOR_REDUCE(name, T, kind)                                                           \
    SIMULATOR_INLINE T name(unsigned mask, T value, SIMULATOR_CALLER) {                           \
        return simulator::exchange(simulator::Exchange::kind, mask, value, 0, #name, file, line); \
    }
SIMULATOR_REDUCE(__reduce_add_sync, int, AddSigned)
SIMULATOR_REDUCE(__reduce_add_sync, unsigned, AddUnsigned)
SIMULATOR_REDUCE(__reduce_min_sync, int, MinSigned)
SIMULATOR_REDUCE(__reduce_min_sync, unsigned, MinUnsigned)
SIMULATOR_REDUCE(__reduce_max_sync, int, MaxSigned)
SIMULATOR_REDUCE(__reduce_max_sync, unsigned, MaxUnsigned)
SIMULATOR_REDUCE(__reduce_and_sync, unsigned, And)
SIMULATOR_REDUCE(__reduce_or_sync, unsigned, Or)
SIMULATOR_REDUCE(__reduce_xor_sync, unsigned, Xor)
#undef SIMULATOR_REDUCE

SIMULATOR_INLINE unsigned __activemask(SIMULATOR_CALLER) {
    return simulator::active_lanes(file, line);
}
