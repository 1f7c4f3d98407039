// What the checker is told of asynchronous work, by kernels that run under it: which fences and
// barriers of memory they use, and what tensor cores are asked for. Copies are told of by the
// functions that queue them. To other kernels all of this is nothing.
#pragma once
#include "block.h"

namespace simulator {

namespace tensor_cores {
struct Tile;
struct WarpgroupTile;
struct TensorUse;
}  // namespace tensor_cores

enum class ProxyFence : uint8_t { Async, MbarrierInit };

#if defined(SIMULATOR_EXECUTOR) || defined(__SANITIZE_THREAD__)
#define SIMULATOR_TOLD(signature) SIMULATOR_EXPORT signature;
#else
#define SIMULATOR_TOLD(signature) \
    SIMULATOR_INLINE signature {}
#endif

SIMULATOR_TOLD(void tell_fence(ProxyFence))
SIMULATOR_TOLD(void tell_refused_map(const void*, const char*))

SIMULATOR_TOLD(void tell_mbarrier_init(const uint64_t*, uint32_t, const char*, int))
// So many bytes are announced, or have come (less than 0), and so many threads arrive.
SIMULATOR_TOLD(void tell_mbarrier_change(const uint64_t*, int64_t, uint32_t, bool, const char*,
                                         const char*, int))
// A thread is about to wait; and has seen a phase end, perhaps without having had to wait.
SIMULATOR_TOLD(void tell_mbarrier_wait(const uint64_t*, bool, const char*, int))

// A product of a warp, of which all lanes tell.
SIMULATOR_TOLD(void tell_product(const tensor_cores::Tile&, const char*, const char*, int))
// One of a warpgroup's: with its descriptors, and where the registers of A and D are.
SIMULATOR_TOLD(void tell_warpgroup_product(const tensor_cores::WarpgroupTile&, uint64_t, uint64_t,
                                           const void* const*, void* const*, int, const char*, int))
SIMULATOR_TOLD(void tell_warpgroup_fence())
SIMULATOR_TOLD(void tell_warpgroup_commit())
// An instruction on tensor memory says that one block or a pair takes part; of a pair, columns are
// allocated or freed.
SIMULATOR_TOLD(void tell_cta_group(int blocks, const char* what, const char*, int))
SIMULATOR_TOLD(void tell_pair_columns(const char* what, const char*, int))
SIMULATOR_TOLD(void tell_tensor_use(const tensor_cores::TensorUse&))
SIMULATOR_TOLD(void tell_tensor_fence(bool is_before))
// An arrival at another block's barrier says that it releases to its own block alone.
SIMULATOR_TOLD(void tell_narrow_arrival(const uint64_t*, const char*, int))
// A block gets columns of tensor memory, or frees them. And something uses those of something else
// that is under way: both by their names, files and lines.
SIMULATOR_TOLD(void tell_tensor_columns(uint32_t first, uint32_t count, bool is_freed, const char*,
                                        int))
SIMULATOR_TOLD(void tell_tensor_conflict(const char*, const char*, int, const char*, const char*,
                                         int))
// tcgen05.ld has put values into registers; and the thread has waited for all such.
SIMULATOR_TOLD(void tell_tensor_load(void* const* registers, int count, const char*, int))
SIMULATOR_TOLD(void tell_tensor_loads_done())
SIMULATOR_TOLD(void tell_warpgroup_wait(unsigned, const char*, int))
SIMULATOR_TOLD(void tell_registers(unsigned, bool, const char*, int))
#undef SIMULATOR_TOLD

// How many groups of products are left to be carried out later, of so many that may be.
#if defined(SIMULATOR_EXECUTOR) || defined(__SANITIZE_THREAD__)
SIMULATOR_EXPORT unsigned groups_left(unsigned most);
#else
SIMULATOR_INLINE unsigned groups_left(unsigned most) { return most; }
#endif

}  // namespace simulator
