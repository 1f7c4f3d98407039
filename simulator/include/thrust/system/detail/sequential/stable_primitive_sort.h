// How Thrust sorts numbers on the host: by merging, as it sorts all else. The radix sort that
// CCCL 3.0 has here puts negative integers behind the others.
#pragma once
#include <thrust/functional.h>
#include <thrust/iterator/iterator_traits.h>
#include <thrust/system/detail/sequential/execution_policy.h>
#include <thrust/system/detail/sequential/stable_merge_sort.h>

THRUST_NAMESPACE_BEGIN
namespace system::detail::sequential {

template <class Policy, class Keys>
void stable_primitive_sort(execution_policy<Policy>& policy, Keys first, Keys last) {
    using Key = thrust::detail::it_value_t<Keys>;
    sequential::stable_merge_sort(policy, first, last, thrust::less<Key>());
}

template <class Policy, class Keys, class Values>
void stable_primitive_sort_by_key(execution_policy<Policy>& policy, Keys first, Keys last,
                                  Values values) {
    using Key = thrust::detail::it_value_t<Keys>;
    sequential::stable_merge_sort_by_key(policy, first, last, values, thrust::less<Key>());
}

}  // namespace system::detail::sequential
THRUST_NAMESPACE_END
