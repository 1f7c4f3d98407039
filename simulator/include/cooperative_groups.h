// Cooperative groups: the grid, the block, its tiles, and lanes of a warp that run together.
//
// What a group is follows from the thread that asks, nearly always: a tile knows its lanes without
// keeping them. A thread_group keeps what it takes to be any of them.
#pragma once
#include "simulator/group_tiles.h"

namespace cooperative_groups {

// ---- Functions of any group

template <class Group>
void sync(const Group& group, SIMULATOR_CALLER) {
    group.sync(file, line);
}
template <class Group>
auto thread_rank(const Group& group) -> decltype(group.thread_rank()) {
    return group.thread_rank();
}
template <class Group>
auto group_size(const Group& group) -> decltype(group.num_threads()) {
    return group.num_threads();
}

// ---- Partitions by what a lane says

namespace details {

template <class Group>
constexpr bool is_of_warp = false;
template <>
constexpr bool is_of_warp<coalesced_group> = true;
template <unsigned Size, class Parent>
constexpr bool is_of_warp<thread_block_tile<Size, Parent>> = Size <= 32;

template <class Label>
constexpr bool is_label = __is_enum(Label) || Label(1) / 2 == Label(0);
template <class T>
constexpr bool is_label<T*> = true;

}  // namespace details

template <class Group>
coalesced_group binary_partition(const Group& group, bool predicate, SIMULATOR_CALLER) {
    static_assert(details::is_of_warp<Group>,
                  "binary_partition cuts a coalesced_group, or a tile of up to 32 threads");
    const unsigned all = group.lanes(), yes = __ballot_sync(all, predicate, file, line);
    if (yes == all || yes == 0) return coalesced_group(all);
    return coalesced_group(predicate ? yes : all & ~yes, false, predicate, 2);
}

template <class Group, class Label>
coalesced_group labeled_partition(const Group& group, Label label, SIMULATOR_CALLER) {
    static_assert(details::is_of_warp<Group>,
                  "labeled_partition cuts a coalesced_group, or a tile of up to 32 threads");
    static_assert(
        details::is_label<Label>, "the label of labeled_partition is an integer or a pointer");
    if constexpr (__is_same(Label, bool)) {
        return binary_partition(group, label, file, line);
    } else {
        const unsigned lanes = __match_any_sync(group.lanes(), label, file, line);
        const bool is_first = (lanes & ((1u << simulator::lane_id()) - 1)) == 0;
        const unsigned firsts = __ballot_sync(group.lanes(), is_first, file, line);
        return coalesced_group(
            lanes, false, __popc(firsts & ((lanes & -lanes) - 1)), __popc(firsts));
    }
}

// ---- One thread for all: on the simulator the first

template <class Group, class Function, class... Arguments>
void invoke_one(const Group& group, Function&& function, Arguments&&... arguments) {
    if (group.thread_rank() == 0)
        static_cast<Function&&>(function)(static_cast<Arguments&&>(arguments)...);
}

template <class Group, class Function, class... Arguments>
auto invoke_one_broadcast(const Group& group, Function&& function, Arguments&&... arguments)
    -> details::plain<decltype(function(static_cast<Arguments&&>(arguments)...))> {
    details::plain<decltype(function(static_cast<Arguments&&>(arguments)...))> result{};
    if (group.thread_rank() == 0)
        result = static_cast<Function&&>(function)(static_cast<Arguments&&>(arguments)...);
    return group.shfl(result, 0);
}

// As they were called in CUDA 11.
namespace experimental {
template <unsigned = 8, unsigned MaxBlockSize = 1024>
struct block_tile_memory : cooperative_groups::block_tile_memory<MaxBlockSize> {};
using cooperative_groups::this_thread_block;
using cooperative_groups::thread_block;
using cooperative_groups::thread_block_tile;
using cooperative_groups::tiled_partition;
}  // namespace experimental

}  // namespace cooperative_groups
