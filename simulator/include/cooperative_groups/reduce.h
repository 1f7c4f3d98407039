// cooperative_groups::reduce over a tile or over coalesced threads, in the order that CUDA has:
// what is rounded, or depends on the order otherwise, comes out the same.
#pragma once
#include "../simulator/collectives.h"

namespace cooperative_groups {

// Every thread of the group gets the combination of all their values.
template <class Group, class T, class Operation>
auto reduce(const Group& group, T&& value, Operation&& operation, SIMULATOR_CALLER)
    -> decltype(operation(value, value)) {
    details::check_collective<Group, T, decltype(operation(value, value))>();
    return details::reduce(group, details::plain<T>(value), operation, file, line);
}

// And one of them writes it, or lets a cuda::atomic take it up.
template <class Group, class T, class Value, class Operation>
void reduce_store_async(const Group& group, T* to, Value&& value, Operation&& operation,
                        SIMULATOR_CALLER) {
    const T result = reduce(group, value, operation, file, line);
    if (group.thread_rank() == 0) *to = result;
}
template <class Group, class Atomic, class Value, class Operation>
auto reduce_store_async(const Group& group, Atomic&& to, Value&& value, Operation&& operation,
                        SIMULATOR_CALLER) -> decltype(to.store(operation(value, value))) {
    const auto result = reduce(group, value, operation, file, line);
    if (group.thread_rank() == 0) to.store(result);
}
template <class Group, class Atomic, class Value, class Operation>
auto reduce_update_async(const Group& group, Atomic&& to, Value&& value, Operation&& operation,
                         SIMULATOR_CALLER) -> decltype(void(to.load())) {
    const auto result = reduce(group, value, operation, file, line);
    if (group.thread_rank() == 0) details::update(to, result, operation);
}

}  // namespace cooperative_groups
