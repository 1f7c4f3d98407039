// The mbarrier of PTX: an object of 64 bits in shared memory, whose phase ends when as many threads
// have arrived as it expects, and as many bytes have come as they have announced.
#pragma once
#include "asynchronous.h"
#include "bulk_copy.h"
#include "cluster.h"

namespace simulator {

// Its word: the number of the phase, the bytes still to come, the arrivals that are awaited, and
// how many are in each phase.
struct MbarrierState {
    static constexpr int count_bits = 20, byte_bits = 22;
    static constexpr uint64_t most = (1 << count_bits) - 1;

    uint64_t word;

    static MbarrierState of(uint64_t phase, int64_t bytes, uint64_t awaited, uint64_t expected) {
        const uint64_t in_bits = uint64_t(bytes) & ((1 << byte_bits) - 1);
        return {phase << 62 | in_bits << 2 * count_bits | awaited << count_bits | expected};
    }
    unsigned phase() const { return unsigned(word >> 62); }  // of which the last two bits are kept
    int64_t bytes() const { return int64_t(word << 2) >> (64 - byte_bits); }
    uint64_t awaited() const { return word >> count_bits & most; }
    uint64_t expected() const { return word & most; }
};

[[noreturn]] SIMULATOR_EXPORT void fail_mbarrier(const char* what, uint64_t word,
                                                 long long arriving, const char* file, int line);
// While a thread waits there, a deadlock is told with what the barrier lacks.
SIMULATOR_EXPORT void note_mbarrier(const uint64_t* barrier);

SIMULATOR_INLINE MbarrierState state_of(const uint64_t* barrier) {
    return {__atomic_load_n(barrier, __ATOMIC_SEQ_CST)};
}

SIMULATOR_INLINE void mbarrier_init(uint64_t* barrier, uint32_t count, SIMULATOR_CALLER) {
    if (reinterpret_cast<uintptr_t>(barrier) % 8)
        fail("it lies on a multiple of 8 bytes", "mbarrier.init", file, line);
    if (count < 1 || count > MbarrierState::most)
        fail("it expects from 1 to 2^20 - 1 arrivals", "mbarrier.init", file, line);
    tell_mbarrier_init(barrier, count, file, line);
    __atomic_store_n(barrier, MbarrierState::of(0, 0, count, count).word, __ATOMIC_SEQ_CST);
}

// So many threads arrive, and so many bytes more are to come, or have come (less than 0); later
// phases expect so many threads less. Returns the state before.
SIMULATOR_INLINE uint64_t mbarrier_change(uint64_t* barrier, int64_t bytes, uint32_t arriving,
                                          uint32_t dropped, const char* what, const char* file,
                                          int line) {
    MbarrierState old = state_of(barrier), next = old;
    bool is_last;
    tell_mbarrier_change(barrier, bytes, arriving, false, what, file, line);
    do {
        if (arriving > old.awaited() || old.expected() == 0)
            fail_mbarrier(what, old.word, arriving, file, line);
        const uint64_t expected = old.expected() - dropped, awaited = old.awaited() - arriving;
        const int64_t to_come = old.bytes() + bytes;
        is_last = awaited == 0 && to_come == 0;
        next = is_last ? MbarrierState::of(old.phase() + 1u, 0, expected, expected)
                       : MbarrierState::of(old.phase(), to_come, awaited, expected);
    } while (!__atomic_compare_exchange_n(
        barrier, &old.word, next.word, true, __ATOMIC_SEQ_CST, __ATOMIC_SEQ_CST));
    arrived(barrier, is_last);
    if (is_last) {
        tell_mbarrier_change(barrier, 0, 0, true, what, file, line);
        if (current->tracked) current->wake_parked();
        if (current->cluster) tell_cluster();
    }
    return old.word;
}

// Others go first to where they wait for the same phase. Else the thread that ends it might end the
// next one, too, before they have looked.
template <class HasEnded>
SIMULATOR_INLINE void mbarrier_wait(uint64_t* barrier, HasEnded has_ended, const char* what,
                                    const char* file, int line) {
    bool had_to_wait = false, have_others_gone = false;
    for (; !has_ended(state_of(barrier)); had_to_wait = true) {
        if (BulkCopy copy; take_due_copy(barrier, copy)) {
            if (!have_others_gone) pause(what, file, line);
            have_others_gone = true;
            finish(copy);
            mbarrier_change(
                barrier, -int64_t(copy.transaction), copy.arrivals, 0, what, file, line);
            continue;
        }
        note_mbarrier(barrier);
        park(what, file, line);
    }
    tell_mbarrier_wait(barrier, had_to_wait, file, line);
    passed(barrier);
}

// A wait for a phase to end, by its parity or by the state that an arrival has returned. It returns
// when that is so: a thread that asks has nothing else to do.
SIMULATOR_INLINE bool mbarrier_wait_parity(uint64_t* barrier, uint32_t parity, SIMULATOR_CALLER) {
    mbarrier_wait(
        barrier, [&](MbarrierState now) { return (now.phase() & 1) != (parity & 1); },
        "mbarrier.try_wait", file, line);
    return true;
}
SIMULATOR_INLINE bool mbarrier_wait_state(uint64_t* barrier, uint64_t state, SIMULATOR_CALLER) {
    mbarrier_wait(
        barrier, [&](MbarrierState now) { return now.phase() != MbarrierState{state}.phase(); },
        "mbarrier.try_wait", file, line);
    return true;
}

// The same question, which does not wait: others go first, and it may have to be asked again.
template <class HasEnded>
SIMULATOR_INLINE bool mbarrier_test(uint64_t* barrier, HasEnded has_ended, const char* what,
                                    const char* file, int line) {
    for (BulkCopy copy; !has_ended(state_of(barrier)) && take_due_copy(barrier, copy);) {
        finish(copy);
        mbarrier_change(barrier, -int64_t(copy.transaction), copy.arrivals, 0, what, file, line);
    }
    if (!has_ended(state_of(barrier))) {
        note_mbarrier(barrier);
        pause(what, file, line);
        if (!has_ended(state_of(barrier))) return false;
    }
    passed(barrier);
    return true;
}
SIMULATOR_INLINE bool mbarrier_test_parity(uint64_t* barrier, uint32_t parity, SIMULATOR_CALLER) {
    return mbarrier_test(
        barrier, [&](MbarrierState now) { return (now.phase() & 1) != (parity & 1); },
        "mbarrier.test_wait", file, line);
}
SIMULATOR_INLINE bool mbarrier_test_state(uint64_t* barrier, uint64_t state, SIMULATOR_CALLER) {
    return mbarrier_test(
        barrier, [&](MbarrierState now) { return now.phase() != MbarrierState{state}.phase(); },
        "mbarrier.test_wait", file, line);
}

}  // namespace simulator
