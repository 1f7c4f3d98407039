// Copies in bulk and of tensors ("TMA") as libcu++ has them: those that complete at a
// cuda::barrier, and those of a thread's groups.
#pragma once
#include "../ptx/bulk_copies.h"
#include "memcpy_async.h"

struct CUtensorMap_st;

namespace cuda::device {

inline uint64_t* barrier_native_handle(barrier<thread_scope_block>& barrier) {
    return barrier.simulator_native();
}

// So many bytes more are to come in this phase; and the same with an arrival.
inline void barrier_expect_tx(barrier<thread_scope_block>& barrier, ptrdiff_t bytes,
                              SIMULATOR_CALLER) {
    simulator::mbarrier_change(
        barrier.simulator_native(), bytes, 0, 0, "cuda::device::barrier_expect_tx", file, line);
}
[[nodiscard]] inline barrier<thread_scope_block>::arrival_token barrier_arrive_tx(
    barrier<thread_scope_block>& barrier, ptrdiff_t count, ptrdiff_t bytes, SIMULATOR_CALLER) {
    return barrier.simulator_arrive_tx(count, bytes, file, line);
}

}  // namespace cuda::device

namespace cuda::device::experimental {

using simulator_block_barrier = ::cuda::barrier<thread_scope_block>;

inline void cp_async_bulk_global_to_shared(void* to, const void* from, uint32_t bytes,
                                           simulator_block_barrier& barrier, SIMULATOR_CALLER) {
    simulator::ptx::__ptx_copy_bulk(
        simulator::shared_address(to), static_cast<const char*>(from), bytes,
        simulator::shared_address(barrier_native_handle(barrier)), 0, file, line);
}
inline void cp_async_bulk_shared_to_global(void* to, const void* from, uint32_t bytes,
                                           SIMULATOR_CALLER) {
    simulator::ptx::__ptx_copy_bulk_global(
        static_cast<char*>(to), const_cast<char*>(static_cast<const char*>(from)), bytes,
        simulator::Reduction::None, simulator::TensorType::U8, 0xffff, file, line);
}

// cp_async_bulk_tensor_2d_global_to_shared(to, map, x, y, barrier) and the like.
#define SIMULATOR_COPIES_OF_BOXES(Rank, Coordinates, ...)                                          \
    inline void cp_async_bulk_tensor_##Rank##d_global_to_shared(                                   \
        void* to, const CUtensorMap_st* map, Coordinates, simulator_block_barrier& barrier,        \
        SIMULATOR_CALLER) {                                                                        \
        simulator::ptx::__ptx_copy_box(                                                            \
            simulator::shared_address(to), {reinterpret_cast<uint64_t>(map), {__VA_ARGS__}}, Rank, \
            simulator::ptx::Mode::Box, simulator::shared_address(barrier_native_handle(barrier)),  \
            0, false, file, line);                                                                 \
    }                                                                                              \
    inline void cp_async_bulk_tensor_##Rank##d_shared_to_global(                                   \
        const CUtensorMap_st* map, Coordinates, const void* from, SIMULATOR_CALLER) {              \
        simulator::ptx::__ptx_copy_box_global(                                                     \
            {reinterpret_cast<uint64_t>(map), {__VA_ARGS__}}, Rank, simulator::ptx::Mode::Box,     \
            const_cast<char*>(static_cast<const char*>(from)), simulator::Reduction::None, file,   \
            line);                                                                                 \
    }
#define SIMULATOR_AND ,
SIMULATOR_COPIES_OF_BOXES(1, int a, a)
SIMULATOR_COPIES_OF_BOXES(2, int a SIMULATOR_AND int b, a, b)
SIMULATOR_COPIES_OF_BOXES(3, int a SIMULATOR_AND int b SIMULATOR_AND int c, a, b, c)
SIMULATOR_COPIES_OF_BOXES(4, int a SIMULATOR_AND int b SIMULATOR_AND int c SIMULATOR_AND int d, a,
                          b, c, d)
SIMULATOR_COPIES_OF_BOXES(
    5, int a SIMULATOR_AND int b SIMULATOR_AND int c SIMULATOR_AND int d SIMULATOR_AND int e, a, b,
    c, d, e)
#undef SIMULATOR_AND
#undef SIMULATOR_COPIES_OF_BOXES

inline void fence_proxy_async_shared_cta() { simulator::tell_fence(simulator::ProxyFence::Async); }
inline void cp_async_bulk_commit_group() { simulator::commit_group(); }
template <int Prior>
void cp_async_bulk_wait_group_read(SIMULATOR_CALLER) {
    simulator::wait_for_groups(Prior, true, file, line);
}

}  // namespace cuda::device::experimental

namespace cuda::device {

template <class T, size_t Alignment>
async_contract_fulfillment memcpy_async_tx(T* to, const T* from, aligned_size_t<Alignment> bytes,
                                           barrier<thread_scope_block>& barrier, SIMULATOR_CALLER) {
    static_assert(__is_trivially_copyable(T), "an asynchronous copy is made bit by bit");
    static_assert(Alignment >= 16, "memcpy_async_tx copies what is aligned to 16 bytes");
    experimental::cp_async_bulk_global_to_shared(to, from, size_t(bytes), barrier, file, line);
    return async_contract_fulfillment::async;
}

}  // namespace cuda::device
