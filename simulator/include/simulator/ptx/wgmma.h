// wgmma: products that a warpgroup of four warps asks for, and waits for later. Each warp has the
// 16 rows of its own. The four go on together: of many kernels one thread tells for all that a
// buffer is free.
//
// A product is carried out when it is waited for, in the registers where they then are: the
// accumulators are variables of the kernel, of which the addresses are kept.
#pragma once
#include "../asynchronous.h"
#include "../tile.h"
#include "meeting.h"
#include "memory.h"
#include "tensor_types.h"

namespace simulator::ptx {

SIMULATOR_INLINE void __ptx_wgmma(const tensor_cores::WarpgroupTile& tile, const uint32_t* a,
                                  uint64_t descriptor_a, uint64_t descriptor_b, uint32_t metadata,
                                  bool accumulates, void* const* d, int count,
                                  const void* const* registers_of_a, SIMULATOR_CALLER) {
    if (current->size % 128 && current->rank / 128 == current->size / 128)
        fail("a warpgroup is four whole warps", "wgmma.mma_async", file, line);
    tell_warpgroup_product(tile, descriptor_a, descriptor_b, registers_of_a, d, count, file, line);
    tensor_cores::ask(
        tile, a, descriptor_a, descriptor_b, metadata, accumulates, d, count, file, line);
}

SIMULATOR_INLINE void __ptx_wgmma_commit() {
    tell_warpgroup_commit();
    tensor_cores::commit();
}

SIMULATOR_INLINE void __ptx_wgmma_wait(unsigned prior, SIMULATOR_CALLER) {
    tensor_cores::Wait mine;
    mine.run = tensor_cores::carry_out;
    mine.prior = groups_left(prior);
    mine.thread = current->rank;
    meet(mine, "wgmma.wait_group", file, line);
    tell_warpgroup_wait(prior, file, line);
    simulator::meet(128, 0, current->rank % 128, "wgmma.wait_group", file, line);
}

SIMULATOR_INLINE void __ptx_warpgroup_fence() { tell_warpgroup_fence(); }

}  // namespace simulator::ptx
