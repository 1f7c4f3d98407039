// What cooperative_groups/reduce.h and scan.h have in common. The order in which values are
// combined is that of CUDA's collectives on compute capability 9.0: a tile's reduction goes by
// shfl_xor from far to near, a scan by shfl_up from near to far, any lanes are reduced by a scan,
// and of a tile of several warps first each warp and then their results are combined.
#pragma once
#include <type_traits>
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

namespace details {

using simulator::Exchange;

template <class Group>
constexpr bool has_collectives = false;
template <>
constexpr bool has_collectives<coalesced_group> = true;
template <unsigned Size, class Parent>
constexpr bool has_collectives<thread_block_tile<Size, Parent>> = true;

template <class Group, class T, class Result>
constexpr void check_collective() {
    static_assert(has_collectives<Group>,
                  "reduce and scan go over a thread_block_tile or a coalesced_group: cut a "
                  "thread_block by tiled_partition first");
    static_assert(__is_same(plain<T>, plain<Result>),
                  "the operation of reduce and scan gives the type that it takes");
}

// All that its collectives depend on: not the parent.
inline coalesced_group kind_of(const coalesced_group& group) { return group; }
template <unsigned Size, class Parent>
typename TileBase<Size, (Size <= 32)>::type kind_of(const thread_block_tile<Size, Parent>&) {
    return {};
}

// ---- Reduction

// Of integers of up to 32 bits CUDA's own operations are one instruction.
template <class T, class Operation>
constexpr Exchange instruction = Exchange::Sync;
#define SIMULATOR_INSTRUCTION(operation, name)                             \
    template <class T>                                                     \
    constexpr Exchange instruction<T, operation<T>> =                      \
        !std::is_integral_v<T> || sizeof(T) > 4 ? Exchange::Sync           \
        : std::is_unsigned_v<T>                 ? Exchange::name##Unsigned \
                                                : Exchange::name##Signed;
#define SIMULATOR_BITWISE(operation, name)            \
    template <class T>                                \
    constexpr Exchange instruction<T, operation<T>> = \
        !std::is_integral_v<T> || sizeof(T) > 4 ? Exchange::Sync : Exchange::name;
SIMULATOR_INSTRUCTION(plus, Add)
SIMULATOR_INSTRUCTION(less, Min)
SIMULATOR_INSTRUCTION(greater, Max)
SIMULATOR_BITWISE(bit_and, And)
SIMULATOR_BITWISE(bit_or, Or)
SIMULATOR_BITWISE(bit_xor, Xor)
#undef SIMULATOR_BITWISE
#undef SIMULATOR_INSTRUCTION

// ---- Within a warp

template <class Group, class T, class Operation>
SIMULATOR_INLINE T scan_lanes(const Group& group, T value, Operation& operation, const char* file,
                              int line) {
    for (unsigned step = 1; step < group.num_threads(); step *= 2) {
        const T before = group.shfl_up(value, step, file, line);
        if (step <= group.thread_rank()) value = operation(value, before);
    }
    return value;
}

// What an inclusive scan of `value` has given, shifted by one thread.
template <class Operation, class Group, class T>
SIMULATOR_INLINE T shifted(const Group& group, T scanned, T value, const char* file, int line) {
    if constexpr (std::is_same_v<std::remove_cv_t<Operation>, plus<T>> && std::is_integral_v<T>)
        return scanned - value;
    const T before = group.shfl_up(scanned, 1, file, line);
    return group.thread_rank() == 0 ? T{} : before;
}

template <unsigned Size, class T, class Operation>
SIMULATOR_INLINE T reduce_tile(TileOfWarp<Size> tile, T value, Operation& operation,
                               const char* file, int line) {
    for (unsigned step = Size / 2; step; step /= 2)
        value = operation(value, tile.shfl_xor(value, step, file, line));
    return value;
}

template <class Group, class T, class Operation>
SIMULATOR_INLINE T reduce_lanes(const Group& group, T value, Operation& operation, const char* file,
                                int line) {
    constexpr Exchange exchange = instruction<T, std::remove_cv_t<Operation>>;
    if constexpr (exchange != Exchange::Sync) {
        return T(simulator::exchange(
            exchange, group.lanes(), uint64_t(value), 0, "cooperative_groups::reduce", file, line));
    } else if constexpr (!std::is_same_v<Group, coalesced_group>) {
        return reduce_tile(group, value, operation, file, line);
    } else if (group.num_threads() == 32) {
        return reduce_tile(TileOfWarp<32>{}, value, operation, file, line);
    } else {
        value = scan_lanes(group, value, operation, file, line);
        return group.shfl(value, group.num_threads() - 1, file, line);
    }
}

// ---- Of any group

template <class Kind>
constexpr unsigned warps_of = 1;
template <unsigned Size>
constexpr unsigned warps_of<TileOfWarps<Size>> = Size / 32;

using WholeWarp = TileOfWarp<32>;

// Of a value that is the same in each warp, of lane `lane` of each: that of the k-th warp, in all
// lanes whose number is k modulo the number of warps. They are tiles which all compute the same.
template <unsigned Size, class T>
SIMULATOR_INLINE T of_each_warp(TileOfWarps<Size>, T value, unsigned lane, const char* file,
                                int line) {
    const unsigned source = simulator::lane_id() * 32 + lane;
    return TileOfWarps<Size>::read(value, source, "a tile's collective", file, line);
}

// From there back: the own warp's.
template <unsigned Size, class T>
SIMULATOR_INLINE T of_my_warp(TileOfWarps<Size> tile, T value, const char* file, int line) {
    return WholeWarp::shfl(value, tile.thread_rank() / 32, file, line);
}

template <class Group, class T, class Operation>
T reduce(const Group& group, T value, Operation& operation, const char* file, int line) {
    const auto kind = kind_of(group);
    constexpr unsigned warps = warps_of<std::remove_const_t<decltype(kind)>>;
    if constexpr (warps == 1) {
        return reduce_lanes(kind, value, operation, file, line);
    } else {
        value = reduce_lanes(WholeWarp{}, value, operation, file, line);
        value = of_each_warp(kind, value, 0, file, line);
        value = reduce_lanes(TileOfWarp<warps>{}, value, operation, file, line);
        return of_my_warp(kind, value, file, line);
    }
}

// Combines a value with that of an atomic, and returns what was there before.
template <class Atomic, class T, class Operation>
T update(Atomic& to, T value, Operation& operation) {
    T before = to.load();
    while (!to.compare_exchange_weak(before, operation(before, value))) {
    }
    return before;
}

// `with_all`, called by the last thread with the combination of all values, gives what stands
// before the first.
template <bool is_exclusive, class Group, class T, class Operation, class WithAll>
SIMULATOR_INLINE T scan(const Group& group, T value, Operation& operation, WithAll with_all,
                        const char* file, int line) {
    constexpr bool has_first = !std::is_same_v<WithAll, decltype(nullptr)>;
    const auto kind = kind_of(group);
    constexpr unsigned warps = warps_of<std::remove_const_t<decltype(kind)>>;
    T first{};
    if constexpr (warps == 1) {
        T scanned = scan_lanes(kind, value, operation, file, line);
        if constexpr (has_first) {
            const unsigned last = kind.num_threads() - 1;
            if (kind.thread_rank() == last) first = with_all(scanned);
            first = kind.shfl(first, last, file, line);
        }
        if constexpr (is_exclusive) scanned = shifted<Operation>(kind, scanned, value, file, line);
        if constexpr (has_first) scanned = operation(first, scanned);
        return scanned;
    } else {
        const unsigned lane = simulator::lane_id(), warp = kind.thread_rank() / 32;
        T scanned = scan_lanes(WholeWarp{}, value, operation, file, line);
        const TileOfWarp<warps> of_warps;
        const T sum = of_each_warp(kind, scanned, 31, file, line);
        const T sums = scan_lanes(of_warps, sum, operation, file, line);
        T before = shifted<Operation>(of_warps, sums, sum, file, line);
        if constexpr (has_first) {
            constexpr unsigned last = warps - 1;
            if (kind.thread_rank() == last) first = with_all(sums);
            first = kind.read(first, last, "a tile's collective", file, line);
            before = of_warps.thread_rank() == 0 ? first : operation(before, first);
        }
        before = of_my_warp(kind, before, file, line);
        if constexpr (is_exclusive) {
            scanned = WholeWarp::shfl_up(scanned, 1, file, line);
            if (lane == 0) return before;
        }
        return warp == 0 && !has_first ? scanned : operation(scanned, before);
    }
}

}  // namespace details
}  // namespace cooperative_groups
