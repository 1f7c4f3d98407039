// cooperative_groups::reduce over a tile or over coalesced threads.
#pragma once
#include "../cooperative_groups.h"

namespace cooperative_groups {

#define SIMULATOR_OPERATION(name, expression)               \
    template <class T>                                      \
    struct name {                                           \
        T operator()(T a, T b) const { return expression; } \
    };
SIMULATOR_OPERATION(plus, a + b)
SIMULATOR_OPERATION(less, b < a ? b : a)
SIMULATOR_OPERATION(greater, a < b ? b : a)
SIMULATOR_OPERATION(bit_and, a& b)
SIMULATOR_OPERATION(bit_or, a | b)
SIMULATOR_OPERATION(bit_xor, a ^ b)
#undef SIMULATOR_OPERATION

// Every thread of the group gets the same value: that of combining their values in the order of
// their ranks, pair by pair.
template <class Group, class T, class Operation>
T reduce(const Group& group, T value, Operation operation, SIMULATOR_CALLER) {
    const unsigned rank = group.thread_rank(), size = group.num_threads();
    for (unsigned step = 1; step < size; step *= 2) {
        const T other = group.shfl_down(value, step, file, line);
        if (rank % (2 * step) == 0 && rank + step < size) value = operation(value, other);
    }
    return group.shfl(value, 0, file, line);
}

}  // namespace cooperative_groups
