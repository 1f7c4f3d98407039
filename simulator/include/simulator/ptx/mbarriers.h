// mbarrier: arrivals and waits. A barrier's address may be that of another block of the cluster.
#pragma once
#include "../mbarrier.h"
#include "memory.h"

namespace simulator::ptx {

SIMULATOR_INLINE uint64_t* __ptx_barrier_at(char* p) { return reinterpret_cast<uint64_t*>(p); }

SIMULATOR_INLINE void __ptx_narrow_arrival(char* p, SIMULATOR_CALLER) {
    tell_narrow_arrival(__ptx_barrier_at(p), file, line);
}
SIMULATOR_INLINE uint64_t __ptx_mbarrier_arrive(char* p, uint32_t count = 1, SIMULATOR_CALLER) {
    return mbarrier_change(__ptx_barrier_at(p), 0, count, 0, "mbarrier.arrive", file, line);
}
SIMULATOR_INLINE uint64_t __ptx_mbarrier_arrive_drop(char* p, uint32_t count = 1,
                                                     SIMULATOR_CALLER) {
    return mbarrier_change(
        __ptx_barrier_at(p), 0, count, count, "mbarrier.arrive_drop", file, line);
}
SIMULATOR_INLINE uint64_t __ptx_mbarrier_arrive_expect(char* p, uint32_t bytes, SIMULATOR_CALLER) {
    return mbarrier_change(
        __ptx_barrier_at(p), bytes, 1, 0, "mbarrier.arrive.expect_tx", file, line);
}
SIMULATOR_INLINE uint64_t __ptx_mbarrier_drop_expect(char* p, uint32_t bytes, SIMULATOR_CALLER) {
    return mbarrier_change(
        __ptx_barrier_at(p), bytes, 1, 1, "mbarrier.arrive_drop.expect_tx", file, line);
}
SIMULATOR_INLINE void __ptx_mbarrier_expect(char* p, uint32_t bytes, SIMULATOR_CALLER) {
    mbarrier_change(__ptx_barrier_at(p), bytes, 0, 0, "mbarrier.expect_tx", file, line);
}
SIMULATOR_INLINE void __ptx_mbarrier_complete(char* p, uint32_t bytes, SIMULATOR_CALLER) {
    mbarrier_change(__ptx_barrier_at(p), -int64_t(bytes), 0, 0, "mbarrier.complete_tx", file, line);
}
SIMULATOR_INLINE void __ptx_mbarrier_inval(char* p) {
    __atomic_store_n(__ptx_barrier_at(p), 0, __ATOMIC_SEQ_CST);
}
SIMULATOR_INLINE uint32_t __ptx_mbarrier_pending(uint64_t state) {
    return uint32_t(MbarrierState{state}.awaited());
}

SIMULATOR_INLINE void __ptx_mbarrier_init(uint64_t* barrier, uint32_t count, SIMULATOR_CALLER) {
    mbarrier_init(barrier, count, file, line);
}
SIMULATOR_INLINE bool __ptx_mbarrier_wait_parity(uint64_t* barrier, uint32_t parity,
                                                 SIMULATOR_CALLER) {
    return mbarrier_wait_parity(barrier, parity, file, line);
}
SIMULATOR_INLINE bool __ptx_mbarrier_wait_state(uint64_t* barrier, uint64_t state,
                                                SIMULATOR_CALLER) {
    return mbarrier_wait_state(barrier, state, file, line);
}
SIMULATOR_INLINE bool __ptx_mbarrier_test_parity(uint64_t* barrier, uint32_t parity,
                                                 SIMULATOR_CALLER) {
    return mbarrier_test_parity(barrier, parity, file, line);
}
SIMULATOR_INLINE bool __ptx_mbarrier_test_state(uint64_t* barrier, uint64_t state,
                                                SIMULATOR_CALLER) {
    return mbarrier_test_state(barrier, state, file, line);
}

}  // namespace simulator::ptx
