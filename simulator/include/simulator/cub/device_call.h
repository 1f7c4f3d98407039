// What CUB's algorithms of the whole device share: how a call is carried out, and its steps.
#pragma once
#include <algorithm>
#include <limits>
#include <numeric>
#include <vector>
#include "iterators.h"
#include "radix.h"

namespace cub {
namespace simulated {

struct Call {
    void* storage;
    size_t& bytes;
    cudaStream_t stream;
    const char *name, *file;
    int line;
};

// A kernel's body is constant, and what it calls may change its own copy.
template <class Body>
struct OnCopy : Body {
    void operator()() const { Body (*this)(); }
};

template <class Body>
cudaError_t carry_out(Call call, const Body& body) {
    if (!call.storage) {
        call.bytes = 1;
        return cudaSuccess;
    }
#ifdef __SANITIZE_THREAD__  // what the host does is not traced
    Body copy{body};
    simulator::work_for_device(true);
    copy();
    simulator::work_for_device(false);
    return cudaSuccess;
#else
    simulator::Launch launch{};
    launch.name = call.name;
    launch.file = call.file;
    launch.line = call.line;
    launch.grid = launch.block = {1, 1, 1};
    launch.stream = call.stream;
    launch.body = &body;
    launch.body_bytes = sizeof body;
    simulator::set_code(launch, simulator::site<OnCopy<Body>>());
    simulator::run(launch);
    return cudaPeekAtLastError();
#endif
}

template <class In, class Op, class T>
auto reduce(In in, int64_t begin, int64_t end, Op& op, T initial) {
    using Sum = Result<Op, T, Value<In>>;
    Sum sum = initial;
    for (int64_t i = begin; i < end; i++) sum = op(sum, in[i]);
    return sum;
}

// What is less, or greater, than all others of a type.
template <class T>
T lowest_of() {
    using Limits = ::std::numeric_limits<T>;
    if constexpr (Limits::is_specialized)
        return Limits::has_infinity ? -Limits::infinity() : Limits::lowest();
    else
        return T(-::std::numeric_limits<float>::infinity());
}
template <class T>
T highest_of() {
    using Limits = ::std::numeric_limits<T>;
    if constexpr (Limits::is_specialized)
        return Limits::has_infinity ? Limits::infinity() : Limits::max();
    else
        return T(::std::numeric_limits<float>::infinity());
}

struct Lesser {
    template <class T>
    bool operator()(const T& a, const T& b) const {
        return a < b;
    }
    template <class T>
    static T none() {
        return highest_of<T>();
    }
};
struct Greater {
    template <class T>
    bool operator()(const T& a, const T& b) const {
        return b < a;
    }
    template <class T>
    static T none() {
        return lowest_of<T>();
    }
};
// The first of the best, with its index in the segment: 1 if there is none, as CUB has it.
template <class In, class Better>
auto best(In in, int64_t begin, int64_t end, Better better) {
    using T = Value<In>;
    if (begin >= end) return KeyValuePair<int, T>(1, Better::template none<T>());
    T found = in[begin];
    int64_t at = begin;
    for (int64_t i = begin + 1; i < end; i++)
        if (const T value = in[i]; better(value, found)) found = value, at = i;
    return KeyValuePair<int, T>(at - begin, found);
}

// The order of keys, as their numbers.
template <class Keys, class Less>
::std::vector<int64_t> sorted_order(Keys keys, int64_t begin, int64_t end, Less less) {
    ::std::vector<int64_t> order(end - begin);
    ::std::iota(order.begin(), order.end(), begin);
    ::std::stable_sort(
        order.begin(), order.end(), [&](int64_t a, int64_t b) { return less(keys[a], keys[b]); });
    return order;
}
template <class From, class To>
void gather(const ::std::vector<int64_t>& order, From from, To to, int64_t begin) {
    using T = Value<From>;
    ::std::vector<T> taken;
    taken.reserve(order.size());
    for (const int64_t i : order) taken.push_back(from[i]);  // `to` may be the same memory
    for (size_t i = 0; i < taken.size(); i++) to[begin + i] = taken[i];
}
struct NoValues {};
template <class Keys, class KeysOut, class Values, class ValuesOut, class Less>
void sort_segment(Keys keys, KeysOut keys_out, Values values, ValuesOut values_out, int64_t begin,
                  int64_t end, Less less) {
    if constexpr (::std::is_same_v<Values, NoValues>) {
        using Key = Value<Keys>;
        ::std::vector<Key> sorted(keys + begin, keys + end);
        ::std::stable_sort(sorted.begin(), sorted.end(), less);
        ::std::copy(sorted.begin(), sorted.end(), keys_out + begin);
    } else {
        const auto order = sorted_order(keys, begin, end, less);
        gather(order, keys, keys_out, begin);
        gather(order, values, values_out, begin);
    }
}

// `write(number of run, begin, end)` for each run of equal items; returns how many there are.
template <class In, class Same, class Write>
int64_t runs(In in, int64_t count, Same same, Write write) {
    int64_t found = 0;
    for (int64_t begin = 0, end; begin < count; begin = end, found++) {
        for (end = begin + 1; end < count && same(in[end - 1], in[end]);) end++;
        write(found, begin, end);
    }
    return found;
}

}  // namespace simulated

// What all these functions take first and last: where their storage is and how large; and the
// stream and, unseen, the line that calls them.
#define SIMULATOR_STORAGE void *storage, size_t &bytes
#define SIMULATOR_STREAM cudaStream_t stream = nullptr, SIMULATOR_CALLER
#define SIMULATOR_CALL(name) {storage, bytes, stream, "cub::" name, file, line}

}  // namespace cub
