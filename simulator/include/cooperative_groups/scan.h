// cooperative_groups::inclusive_scan and exclusive_scan over a tile or over coalesced threads, in
// the order that CUDA has.
#pragma once
#include "../simulator/collectives.h"

namespace cooperative_groups {

// Each thread gets the combination of the values of those up to itself.
template <class Group, class T, class Operation>
auto inclusive_scan(const Group& group, T&& value, Operation&& operation, SIMULATOR_CALLER)
    -> decltype(operation(value, value)) {
    details::check_collective<Group, T, decltype(operation(value, value))>();
    return details::scan<false>(group, details::plain<T>(value), operation, nullptr, file, line);
}
template <class Group, class T>
details::plain<T> inclusive_scan(const Group& group, T&& value, SIMULATOR_CALLER) {
    return inclusive_scan(group, value, plus<details::plain<T>>(), file, line);
}

// Of those before it; the first gets T().
template <class Group, class T, class Operation>
auto exclusive_scan(const Group& group, T&& value, Operation&& operation, SIMULATOR_CALLER)
    -> decltype(operation(value, value)) {
    details::check_collective<Group, T, decltype(operation(value, value))>();
    return details::scan<true>(group, details::plain<T>(value), operation, nullptr, file, line);
}
template <class Group, class T>
details::plain<T> exclusive_scan(const Group& group, T&& value, SIMULATOR_CALLER) {
    return exclusive_scan(group, value, plus<details::plain<T>>(), file, line);
}

// A cuda::atomic takes the combination of all up, and its value before stands before the first.
template <class Group, class Atomic, class T, class Operation>
auto inclusive_scan_update(const Group& group, Atomic&& to, T&& value, Operation&& operation,
                           SIMULATOR_CALLER) -> decltype(operation(value, value)) {
    details::check_collective<Group, T, decltype(operation(value, value))>();
    return details::scan<false>(
        group, details::plain<T>(value), operation,
        [&](auto all) { return details::update(to, all, operation); }, file, line);
}
template <class Group, class Atomic, class T>
details::plain<T> inclusive_scan_update(const Group& group, Atomic&& to, T&& value,
                                        SIMULATOR_CALLER) {
    return inclusive_scan_update(group, to, value, plus<details::plain<T>>(), file, line);
}
template <class Group, class Atomic, class T, class Operation>
auto exclusive_scan_update(const Group& group, Atomic&& to, T&& value, Operation&& operation,
                           SIMULATOR_CALLER) -> decltype(operation(value, value)) {
    details::check_collective<Group, T, decltype(operation(value, value))>();
    return details::scan<true>(
        group, details::plain<T>(value), operation,
        [&](auto all) { return details::update(to, all, operation); }, file, line);
}
template <class Group, class Atomic, class T>
details::plain<T> exclusive_scan_update(const Group& group, Atomic&& to, T&& value,
                                        SIMULATOR_CALLER) {
    return exclusive_scan_update(group, to, value, plus<details::plain<T>>(), file, line);
}

}  // namespace cooperative_groups
