// CUB's algorithms of the whole device. They are carried out by one thread, as a launch, so that
// what goes wrong in them is an error of the device, as it is on a GPU. Called without temporary
// storage they say how much they need, which is little.
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

struct DeviceReduce {
    template <class In, class Out, class Op, class T>
    static cudaError_t Reduce(SIMULATOR_STORAGE, In in, Out out, int64_t count, Op op, T initial,
                              SIMULATOR_STREAM) {
        return simulated::carry_out(SIMULATOR_CALL("DeviceReduce::Reduce"), [=]() mutable {
            *out = simulated::reduce(in, 0, count, op, initial);
        });
    }
    template <class In, class Out>
    static cudaError_t Sum(SIMULATOR_STORAGE, In in, Out out, int64_t count, SIMULATOR_STREAM) {
        using T = simulated::ValueOr<Out, simulated::Value<In>>;
        return Reduce(storage, bytes, in, out, count, cub::Sum(), T{}, stream, file, line);
    }
    template <class In, class Out>
    static cudaError_t Min(SIMULATOR_STORAGE, In in, Out out, int64_t count, SIMULATOR_STREAM) {
        const auto none = simulated::highest_of<simulated::Value<In>>();
        return Reduce(storage, bytes, in, out, count, cub::Min(), none, stream, file, line);
    }
    template <class In, class Out>
    static cudaError_t Max(SIMULATOR_STORAGE, In in, Out out, int64_t count, SIMULATOR_STREAM) {
        const auto none = simulated::lowest_of<simulated::Value<In>>();
        return Reduce(storage, bytes, in, out, count, cub::Max(), none, stream, file, line);
    }

    // Into a pair of the index and the value, or into a value and an index.
    template <class In, class Out>
    static cudaError_t ArgMin(SIMULATOR_STORAGE, In in, Out out, int64_t count, SIMULATOR_STREAM) {
        return simulated::carry_out(SIMULATOR_CALL("DeviceReduce::ArgMin"), [=]() mutable {
            *out = simulated::best(in, 0, count, simulated::Lesser());
        });
    }
    template <class In, class Out>
    static cudaError_t ArgMax(SIMULATOR_STORAGE, In in, Out out, int64_t count, SIMULATOR_STREAM) {
        return simulated::carry_out(SIMULATOR_CALL("DeviceReduce::ArgMax"), [=]() mutable {
            *out = simulated::best(in, 0, count, simulated::Greater());
        });
    }
    template <class In, class Out, class Index, class = decltype(*::std::declval<Index>())>
    static cudaError_t ArgMin(SIMULATOR_STORAGE, In in, Out out, Index index, int64_t count,
                              SIMULATOR_STREAM) {
        return simulated::carry_out(SIMULATOR_CALL("DeviceReduce::ArgMin"), [=]() mutable {
            const auto found = simulated::best(in, 0, count, simulated::Lesser());
            *out = found.value;
            *index = found.key;
        });
    }
    template <class In, class Out, class Index, class = decltype(*::std::declval<Index>())>
    static cudaError_t ArgMax(SIMULATOR_STORAGE, In in, Out out, Index index, int64_t count,
                              SIMULATOR_STREAM) {
        return simulated::carry_out(SIMULATOR_CALL("DeviceReduce::ArgMax"), [=]() mutable {
            const auto found = simulated::best(in, 0, count, simulated::Greater());
            *out = found.value;
            *index = found.key;
        });
    }

    template <class In, class Out, class Op, class Transform, class T>
    static cudaError_t TransformReduce(SIMULATOR_STORAGE, In in, Out out, int64_t count, Op op,
                                       Transform transform, T initial, SIMULATOR_STREAM) {
        return simulated::carry_out(SIMULATOR_CALL("DeviceReduce::TransformReduce"), [=]() mutable {
            simulated::Result<Op, T, decltype(transform(in[0]))> sum = initial;
            for (int64_t i = 0; i < count; i++) sum = op(sum, transform(in[i]));
            *out = sum;
        });
    }

    // Of each run of equal keys.
    template <class Keys, class Unique, class In, class Out, class Runs, class Op>
    static cudaError_t ReduceByKey(SIMULATOR_STORAGE, Keys keys, Unique unique, In in, Out out,
                                   Runs runs, Op op, int64_t count, SIMULATOR_STREAM) {
        return simulated::carry_out(SIMULATOR_CALL("DeviceReduce::ReduceByKey"), [=]() mutable {
            const auto write = [&](int64_t run, int64_t begin, int64_t end) {
                unique[run] = keys[begin];
                out[run] =
                    simulated::reduce(in, begin + 1, end, op, simulated::Value<In>(in[begin]));
            };
            *runs = simulated::runs(keys, count, Equality(), write);
        });
    }
};

struct DeviceSegmentedReduce {
    template <class In, class Out, class Begin, class End, class Op, class T>
    static cudaError_t Reduce(SIMULATOR_STORAGE, In in, Out out, int64_t segments, Begin begin,
                              End end, Op op, T initial, SIMULATOR_STREAM) {
        return simulated::carry_out(SIMULATOR_CALL("DeviceSegmentedReduce::Reduce"), [=]() mutable {
            for (int64_t s = 0; s < segments; s++)
                out[s] = simulated::reduce(in, begin[s], end[s], op, initial);
        });
    }
    template <class In, class Out, class Begin, class End>
    static cudaError_t Sum(SIMULATOR_STORAGE, In in, Out out, int64_t segments, Begin begin,
                           End end, SIMULATOR_STREAM) {
        using T = simulated::ValueOr<Out, simulated::Value<In>>;
        return Reduce(
            storage, bytes, in, out, segments, begin, end, cub::Sum(), T{}, stream, file, line);
    }
    template <class In, class Out, class Begin, class End>
    static cudaError_t Min(SIMULATOR_STORAGE, In in, Out out, int64_t segments, Begin begin,
                           End end, SIMULATOR_STREAM) {
        const auto none = simulated::highest_of<simulated::Value<In>>();
        return Reduce(
            storage, bytes, in, out, segments, begin, end, cub::Min(), none, stream, file, line);
    }
    template <class In, class Out, class Begin, class End>
    static cudaError_t Max(SIMULATOR_STORAGE, In in, Out out, int64_t segments, Begin begin,
                           End end, SIMULATOR_STREAM) {
        const auto none = simulated::lowest_of<simulated::Value<In>>();
        return Reduce(
            storage, bytes, in, out, segments, begin, end, cub::Max(), none, stream, file, line);
    }
    // Into pairs of the index within the segment and the value.
    template <class In, class Out, class Begin, class End>
    static cudaError_t ArgMin(SIMULATOR_STORAGE, In in, Out out, int64_t segments, Begin begin,
                              End end, SIMULATOR_STREAM) {
        return simulated::carry_out(SIMULATOR_CALL("DeviceSegmentedReduce::ArgMin"), [=]() mutable {
            for (int64_t s = 0; s < segments; s++)
                out[s] = simulated::best(in, begin[s], end[s], simulated::Lesser());
        });
    }
    template <class In, class Out, class Begin, class End>
    static cudaError_t ArgMax(SIMULATOR_STORAGE, In in, Out out, int64_t segments, Begin begin,
                              End end, SIMULATOR_STREAM) {
        return simulated::carry_out(SIMULATOR_CALL("DeviceSegmentedReduce::ArgMax"), [=]() mutable {
            for (int64_t s = 0; s < segments; s++)
                out[s] = simulated::best(in, begin[s], end[s], simulated::Greater());
        });
    }
};

// Input and output may be the same.
struct DeviceScan {
    template <class In, class Out, class Op, class T>
    static cudaError_t ExclusiveScan(SIMULATOR_STORAGE, In in, Out out, Op op, T initial,
                                     int64_t count, SIMULATOR_STREAM) {
        return simulated::carry_out(SIMULATOR_CALL("DeviceScan::ExclusiveScan"), [=]() mutable {
            simulated::Result<Op, T, simulated::Value<In>> sum = initial;
            for (int64_t i = 0; i < count; i++) {
                const auto next = op(sum, in[i]);
                out[i] = sum;
                sum = next;
            }
        });
    }
    template <class Data, class Op, class T>
    static cudaError_t ExclusiveScan(SIMULATOR_STORAGE, Data data, Op op, T initial, int64_t count,
                                     SIMULATOR_STREAM) {
        return ExclusiveScan(storage, bytes, data, data, op, initial, count, stream, file, line);
    }
    template <class In, class Out>
    static cudaError_t ExclusiveSum(SIMULATOR_STORAGE, In in, Out out, int64_t count,
                                    SIMULATOR_STREAM) {
        return ExclusiveScan(
            storage, bytes, in, out, cub::Sum(), simulated::Value<In>{}, count, stream, file, line);
    }
    template <class Data>
    static cudaError_t ExclusiveSum(SIMULATOR_STORAGE, Data data, int64_t count, SIMULATOR_STREAM) {
        return ExclusiveSum(storage, bytes, data, data, count, stream, file, line);
    }
    template <class In, class Out, class Op>
    static cudaError_t InclusiveScan(SIMULATOR_STORAGE, In in, Out out, Op op, int64_t count,
                                     SIMULATOR_STREAM) {
        return simulated::carry_out(SIMULATOR_CALL("DeviceScan::InclusiveScan"), [=]() mutable {
            if (count < 1) return;
            simulated::Value<In> sum = in[0];
            out[0] = sum;
            for (int64_t i = 1; i < count; i++) out[i] = sum = op(sum, in[i]);
        });
    }
    template <class In, class Out, class Op, class T>
    static cudaError_t InclusiveScanInit(SIMULATOR_STORAGE, In in, Out out, Op op, T initial,
                                         int64_t count, SIMULATOR_STREAM) {
        return simulated::carry_out(SIMULATOR_CALL("DeviceScan::InclusiveScanInit"), [=]() mutable {
            simulated::Result<Op, T, simulated::Value<In>> sum = initial;
            for (int64_t i = 0; i < count; i++) out[i] = sum = op(sum, in[i]);
        });
    }
    template <class In, class Out>
    static cudaError_t InclusiveSum(SIMULATOR_STORAGE, In in, Out out, int64_t count,
                                    SIMULATOR_STREAM) {
        return InclusiveScan(storage, bytes, in, out, cub::Sum(), count, stream, file, line);
    }
    template <class Data>
    static cudaError_t InclusiveSum(SIMULATOR_STORAGE, Data data, int64_t count, SIMULATOR_STREAM) {
        return InclusiveSum(storage, bytes, data, data, count, stream, file, line);
    }

    // Anew for each run of equal keys.
    template <class Keys, class In, class Out, class Op, class T, class Same = Equality>
    static cudaError_t ExclusiveScanByKey(SIMULATOR_STORAGE, Keys keys, In in, Out out, Op op,
                                          T initial, int64_t count, Same same = {},
                                          SIMULATOR_STREAM) {
        return simulated::carry_out(
            SIMULATOR_CALL("DeviceScan::ExclusiveScanByKey"), [=]() mutable {
                simulated::Result<Op, T, simulated::Value<In>> sum = initial;
                for (int64_t i = 0; i < count; i++) {
                    if (i && !same(keys[i - 1], keys[i])) sum = initial;
                    const auto next = op(sum, in[i]);
                    out[i] = sum;
                    sum = next;
                }
            });
    }
    template <class Keys, class In, class Out, class Op, class Same = Equality>
    static cudaError_t InclusiveScanByKey(SIMULATOR_STORAGE, Keys keys, In in, Out out, Op op,
                                          int64_t count, Same same = {}, SIMULATOR_STREAM) {
        return simulated::carry_out(
            SIMULATOR_CALL("DeviceScan::InclusiveScanByKey"), [=]() mutable {
                if (count < 1) return;
                simulated::Value<In> sum = in[0];
                out[0] = sum;
                for (int64_t i = 1; i < count; i++) {
                    const simulated::Value<In> item = in[i];
                    out[i] = sum = same(keys[i - 1], keys[i]) ? op(sum, item) : item;
                }
            });
    }
    template <class Keys, class In, class Out, class Same = Equality>
    static cudaError_t ExclusiveSumByKey(SIMULATOR_STORAGE, Keys keys, In in, Out out,
                                         int64_t count, Same same = {}, SIMULATOR_STREAM) {
        return ExclusiveScanByKey(storage, bytes, keys, in, out, cub::Sum(), simulated::Value<In>{},
                                  count, same, stream, file, line);
    }
    template <class Keys, class In, class Out, class Same = Equality>
    static cudaError_t InclusiveSumByKey(SIMULATOR_STORAGE, Keys keys, In in, Out out,
                                         int64_t count, Same same = {}, SIMULATOR_STREAM) {
        return InclusiveScanByKey(
            storage, bytes, keys, in, out, cub::Sum(), count, same, stream, file, line);
    }
};

struct DeviceRadixSort {
#define SIMULATOR_SORT(keys_name, pairs_name, descending)                                          \
    template <class Key>                                                                           \
    static cudaError_t keys_name(                                                                  \
        SIMULATOR_STORAGE, const Key* in, Key* out, int64_t count, int begin_bit = 0,              \
        int end_bit = 8 * sizeof(Key), SIMULATOR_STREAM) {                                         \
        return simulated::carry_out(SIMULATOR_CALL("DeviceRadixSort::" #keys_name), [=] {          \
            const simulated::ByBits order{begin_bit, end_bit, descending};                         \
            const simulated::NoValues none;                                                        \
            simulated::sort_segment(in, out, none, none, 0, count, order);                         \
        });                                                                                        \
    }                                                                                              \
    template <class Key>                                                                           \
    static cudaError_t keys_name(                                                                  \
        SIMULATOR_STORAGE, DoubleBuffer<Key>& keys, int64_t count, int begin_bit = 0,              \
        int end_bit = 8 * sizeof(Key), SIMULATOR_STREAM) {                                         \
        return keys_name(storage, bytes, keys.Current(), keys.Current(), count, begin_bit,         \
                         end_bit, stream, file, line);                                             \
    }                                                                                              \
    template <class Key, class T>                                                                  \
    static cudaError_t pairs_name(                                                                 \
        SIMULATOR_STORAGE, const Key* in, Key* out, const T* values, T* values_out, int64_t count, \
        int begin_bit = 0, int end_bit = 8 * sizeof(Key), SIMULATOR_STREAM) {                      \
        return simulated::carry_out(SIMULATOR_CALL("DeviceRadixSort::" #pairs_name), [=] {         \
            const simulated::ByBits order{begin_bit, end_bit, descending};                         \
            simulated::sort_segment(in, out, values, values_out, 0, count, order);                 \
        });                                                                                        \
    }                                                                                              \
    template <class Key, class T>                                                                  \
    static cudaError_t pairs_name(                                                                 \
        SIMULATOR_STORAGE, DoubleBuffer<Key>& keys, DoubleBuffer<T>& values, int64_t count,        \
        int begin_bit = 0, int end_bit = 8 * sizeof(Key), SIMULATOR_STREAM) {                      \
        return pairs_name(storage, bytes, keys.Current(), keys.Current(), values.Current(),        \
                          values.Current(), count, begin_bit, end_bit, stream, file, line);        \
    }
    SIMULATOR_SORT(SortKeys, SortPairs, false)
    SIMULATOR_SORT(SortKeysDescending, SortPairsDescending, true)
#undef SIMULATOR_SORT
};

#define SIMULATOR_SORT(keys_name, pairs_name, descending)                                         \
    template <class Key, class Begin, class End>                                                  \
    static cudaError_t keys_name(                                                                 \
        SIMULATOR_STORAGE, const Key* in, Key* out, int64_t, int64_t segments, Begin begin,       \
        End end, SIMULATOR_BITS SIMULATOR_STREAM) {                                               \
        return simulated::carry_out(SIMULATOR_CALL("segmented " #keys_name), [=]() mutable {      \
            const simulated::ByBits order{begin_bit, end_bit, descending};                        \
            const simulated::NoValues none;                                                       \
            for (int64_t s = 0; s < segments; s++)                                                \
                simulated::sort_segment(in, out, none, none, begin[s], end[s], order);            \
        });                                                                                       \
    }                                                                                             \
    template <class Key, class Begin, class End>                                                  \
    static cudaError_t keys_name(                                                                 \
        SIMULATOR_STORAGE, DoubleBuffer<Key>& keys, int64_t count, int64_t segments, Begin begin, \
        End end, SIMULATOR_BITS SIMULATOR_STREAM) {                                               \
        return keys_name(storage, bytes, keys.Current(), keys.Current(), count, segments, begin,  \
                         end, SIMULATOR_PASS_BITS stream, file, line);                            \
    }                                                                                             \
    template <class Key, class T, class Begin, class End>                                         \
    static cudaError_t pairs_name(                                                                \
        SIMULATOR_STORAGE, const Key* in, Key* out, const T* values, T* values_out, int64_t,      \
        int64_t segments, Begin begin, End end, SIMULATOR_BITS SIMULATOR_STREAM) {                \
        return simulated::carry_out(SIMULATOR_CALL("segmented " #pairs_name), [=]() mutable {     \
            const simulated::ByBits order{begin_bit, end_bit, descending};                        \
            for (int64_t s = 0; s < segments; s++)                                                \
                simulated::sort_segment(in, out, values, values_out, begin[s], end[s], order);    \
        });                                                                                       \
    }                                                                                             \
    template <class Key, class T, class Begin, class End>                                         \
    static cudaError_t pairs_name(                                                                \
        SIMULATOR_STORAGE, DoubleBuffer<Key>& keys, DoubleBuffer<T>& values, int64_t count,       \
        int64_t segments, Begin begin, End end, SIMULATOR_BITS SIMULATOR_STREAM) {                \
        return pairs_name(                                                                        \
            storage, bytes, keys.Current(), keys.Current(), values.Current(), values.Current(),   \
            count, segments, begin, end, SIMULATOR_PASS_BITS stream, file, line);                 \
    }

struct DeviceSegmentedRadixSort {
#define SIMULATOR_BITS int begin_bit = 0, int end_bit = 8 * sizeof(Key),
#define SIMULATOR_PASS_BITS begin_bit, end_bit,
    SIMULATOR_SORT(SortKeys, SortPairs, false)
    SIMULATOR_SORT(SortKeysDescending, SortPairsDescending, true)
#undef SIMULATOR_BITS
#undef SIMULATOR_PASS_BITS
};

// By the whole key.
struct DeviceSegmentedSort {
  private:
    template <class Key>
    static constexpr int all = 8 * sizeof(Key);

  public:
#define SIMULATOR_BITS
#define SIMULATOR_PASS_BITS
#define begin_bit 0
#define end_bit all<Key>
    SIMULATOR_SORT(SortKeys, SortPairs, false)
    SIMULATOR_SORT(SortKeysDescending, SortPairsDescending, true)
    SIMULATOR_SORT(StableSortKeys, StableSortPairs, false)
    SIMULATOR_SORT(StableSortKeysDescending, StableSortPairsDescending, true)
#undef begin_bit
#undef end_bit
#undef SIMULATOR_BITS
#undef SIMULATOR_PASS_BITS
};
#undef SIMULATOR_SORT

struct DeviceMergeSort {
    template <class Keys, class Less>
    static cudaError_t SortKeys(SIMULATOR_STORAGE, Keys keys, int64_t count, Less less,
                                SIMULATOR_STREAM) {
        return SortKeysCopy(storage, bytes, keys, keys, count, less, stream, file, line);
    }
    template <class Keys, class Out, class Less>
    static cudaError_t SortKeysCopy(SIMULATOR_STORAGE, Keys keys, Out out, int64_t count, Less less,
                                    SIMULATOR_STREAM) {
        return simulated::carry_out(SIMULATOR_CALL("DeviceMergeSort::SortKeys"), [=]() mutable {
            const simulated::NoValues none;
            simulated::sort_segment(keys, out, none, none, 0, count, less);
        });
    }
    template <class Keys, class Values, class Less>
    static cudaError_t SortPairs(SIMULATOR_STORAGE, Keys keys, Values values, int64_t count,
                                 Less less, SIMULATOR_STREAM) {
        return SortPairsCopy(
            storage, bytes, keys, values, keys, values, count, less, stream, file, line);
    }
    template <class Keys, class Values, class Out, class ValuesOut, class Less>
    static cudaError_t SortPairsCopy(SIMULATOR_STORAGE, Keys keys, Values values, Out out,
                                     ValuesOut values_out, int64_t count, Less less,
                                     SIMULATOR_STREAM) {
        return simulated::carry_out(SIMULATOR_CALL("DeviceMergeSort::SortPairs"), [=]() mutable {
            simulated::sort_segment(keys, out, values, values_out, 0, count, less);
        });
    }
    template <class Keys, class Less>
    static cudaError_t StableSortKeys(SIMULATOR_STORAGE, Keys keys, int64_t count, Less less,
                                      SIMULATOR_STREAM) {
        return SortKeys(storage, bytes, keys, count, less, stream, file, line);
    }
    template <class Keys, class Values, class Less>
    static cudaError_t StableSortPairs(SIMULATOR_STORAGE, Keys keys, Values values, int64_t count,
                                       Less less, SIMULATOR_STREAM) {
        return SortPairs(storage, bytes, keys, values, count, less, stream, file, line);
    }
};

struct DeviceSelect {
    template <class In, class Flags, class Out, class Selected>
    static cudaError_t Flagged(SIMULATOR_STORAGE, In in, Flags flags, Out out, Selected selected,
                               int64_t count, SIMULATOR_STREAM) {
        return simulated::carry_out(SIMULATOR_CALL("DeviceSelect::Flagged"), [=]() mutable {
            int64_t kept = 0;
            for (int64_t i = 0; i < count; i++)
                if (flags[i]) out[kept++] = in[i];
            *selected = kept;
        });
    }
    template <class Data, class Flags, class Selected>
    static cudaError_t Flagged(SIMULATOR_STORAGE, Data data, Flags flags, Selected selected,
                               int64_t count, SIMULATOR_STREAM) {
        return Flagged(storage, bytes, data, flags, data, selected, count, stream, file, line);
    }
    template <class In, class Out, class Selected, class Op>
    static cudaError_t If(SIMULATOR_STORAGE, In in, Out out, Selected selected, int64_t count,
                          Op op, SIMULATOR_STREAM) {
        return simulated::carry_out(SIMULATOR_CALL("DeviceSelect::If"), [=]() mutable {
            int64_t kept = 0;
            for (int64_t i = 0; i < count; i++)
                if (op(in[i])) out[kept++] = in[i];
            *selected = kept;
        });
    }
    template <class Data, class Selected, class Op>
    static cudaError_t If(SIMULATOR_STORAGE, Data data, Selected selected, int64_t count, Op op,
                          SIMULATOR_STREAM) {
        return If(storage, bytes, data, data, selected, count, op, stream, file, line);
    }
    template <class In, class Out, class Selected>
    static cudaError_t Unique(SIMULATOR_STORAGE, In in, Out out, Selected selected, int64_t count,
                              SIMULATOR_STREAM) {
        return simulated::carry_out(SIMULATOR_CALL("DeviceSelect::Unique"), [=]() mutable {
            *selected = simulated::runs(
                in, count, Equality(), [&](auto run, auto begin, auto) { out[run] = in[begin]; });
        });
    }
    template <class Keys, class In, class KeysOut, class Out, class Selected>
    static cudaError_t UniqueByKey(SIMULATOR_STORAGE, Keys keys, In in, KeysOut keys_out, Out out,
                                   Selected selected, int64_t count, SIMULATOR_STREAM) {
        return simulated::carry_out(SIMULATOR_CALL("DeviceSelect::UniqueByKey"), [=]() mutable {
            *selected = simulated::runs(keys, count, Equality(), [&](auto run, auto begin, auto) {
                keys_out[run] = keys[begin];
                out[run] = in[begin];
            });
        });
    }
};

// What is not selected follows, in reverse order.
struct DevicePartition {
    template <class In, class Flags, class Out, class Selected>
    static cudaError_t Flagged(SIMULATOR_STORAGE, In in, Flags flags, Out out, Selected selected,
                               int64_t count, SIMULATOR_STREAM) {
        return simulated::carry_out(SIMULATOR_CALL("DevicePartition::Flagged"), [=]() mutable {
            int64_t kept = 0, end = count;
            for (int64_t i = 0; i < count; i++) out[flags[i] ? kept++ : --end] = in[i];
            *selected = kept;
        });
    }
    template <class In, class Out, class Selected, class Op>
    static cudaError_t If(SIMULATOR_STORAGE, In in, Out out, Selected selected, int64_t count,
                          Op op, SIMULATOR_STREAM) {
        return simulated::carry_out(SIMULATOR_CALL("DevicePartition::If"), [=]() mutable {
            int64_t kept = 0, end = count;
            for (int64_t i = 0; i < count; i++) out[op(in[i]) ? kept++ : --end] = in[i];
            *selected = kept;
        });
    }
};

struct DeviceRunLengthEncode {
    template <class In, class Unique, class Lengths, class Runs>
    static cudaError_t Encode(SIMULATOR_STORAGE, In in, Unique unique, Lengths lengths, Runs runs,
                              int64_t count, SIMULATOR_STREAM) {
        return simulated::carry_out(SIMULATOR_CALL("DeviceRunLengthEncode::Encode"), [=]() mutable {
            const auto write = [&](int64_t run, int64_t begin, int64_t end) {
                unique[run] = in[begin];
                lengths[run] = end - begin;
            };
            *runs = simulated::runs(in, count, Equality(), write);
        });
    }
    // Of more than one item.
    template <class In, class Offsets, class Lengths, class Runs>
    static cudaError_t NonTrivialRuns(SIMULATOR_STORAGE, In in, Offsets offsets, Lengths lengths,
                                      Runs runs, int64_t count, SIMULATOR_STREAM) {
        return simulated::carry_out(
            SIMULATOR_CALL("DeviceRunLengthEncode::NonTrivialRuns"), [=]() mutable {
                int64_t kept = 0;
                simulated::runs(in, count, Equality(), [&](int64_t, int64_t begin, int64_t end) {
                    if (end - begin < 2) return;
                    offsets[kept] = begin;
                    lengths[kept++] = end - begin;
                });
                *runs = kept;
            });
    }
};

struct DeviceHistogram {
  private:
    template <class Channel, int Count>
    struct Channels {
        Channel of[Count];
    };

  public:
    // `levels` bounds make one bin less of equal width, or of the widths that they say.
    template <class In, class Counter, class Level>
    static cudaError_t HistogramEven(SIMULATOR_STORAGE, In in, Counter* histogram, int levels,
                                     Level lower, Level upper, int64_t count, SIMULATOR_STREAM) {
        return HistogramEven(storage, bytes, in, histogram, levels, lower, upper, count, 1,
                             size_t(count) * sizeof(simulated::Value<In>), stream, file, line);
    }
    template <class In, class Counter, class Level>
    static cudaError_t HistogramEven(SIMULATOR_STORAGE, In in, Counter* histogram, int levels,
                                     Level lower, Level upper, int64_t columns, int64_t rows,
                                     size_t row_bytes, SIMULATOR_STREAM) {
        Counter* histograms[1] = {histogram};
        const int all_levels[1] = {levels};
        const Level lowers[1] = {lower}, uppers[1] = {upper};
        return MultiHistogramEven<1, 1>(storage, bytes, in, histograms, all_levels, lowers, uppers,
                                        columns, rows, row_bytes, stream, file, line);
    }
    template <class In, class Counter, class Level>
    static cudaError_t HistogramRange(SIMULATOR_STORAGE, In in, Counter* histogram, int levels,
                                      const Level* bounds, int64_t count, SIMULATOR_STREAM) {
        return HistogramRange(storage, bytes, in, histogram, levels, bounds, count, 1,
                              size_t(count) * sizeof(simulated::Value<In>), stream, file, line);
    }
    template <class In, class Counter, class Level>
    static cudaError_t HistogramRange(SIMULATOR_STORAGE, In in, Counter* histogram, int levels,
                                      const Level* bounds, int64_t columns, int64_t rows,
                                      size_t row_bytes, SIMULATOR_STREAM) {
        Counter* histograms[1] = {histogram};
        const int all_levels[1] = {levels};
        const Level* all_bounds[1] = {bounds};
        return MultiHistogramRange<1, 1>(storage, bytes, in, histograms, all_levels, all_bounds,
                                         columns, rows, row_bytes, stream, file, line);
    }

    // Of the first channels of those that a pixel has.
    template <int NUM_CHANNELS, int NUM_ACTIVE_CHANNELS, class In, class Counter, class Level>
    static cudaError_t MultiHistogramEven(
        SIMULATOR_STORAGE, In in, Counter* histograms[NUM_ACTIVE_CHANNELS],
        const int levels[NUM_ACTIVE_CHANNELS], const Level lower[NUM_ACTIVE_CHANNELS],
        const Level upper[NUM_ACTIVE_CHANNELS], int64_t pixels, SIMULATOR_STREAM) {
        return MultiHistogramEven<NUM_CHANNELS, NUM_ACTIVE_CHANNELS>(
            storage, bytes, in, histograms, levels, lower, upper, pixels, 1,
            size_t(pixels) * NUM_CHANNELS * sizeof(simulated::Value<In>), stream, file, line);
    }
    template <int NUM_CHANNELS, int NUM_ACTIVE_CHANNELS, class In, class Counter, class Level>
    static cudaError_t MultiHistogramEven(
        SIMULATOR_STORAGE, In in, Counter* histograms[NUM_ACTIVE_CHANNELS],
        const int levels[NUM_ACTIVE_CHANNELS], const Level lower[NUM_ACTIVE_CHANNELS],
        const Level upper[NUM_ACTIVE_CHANNELS], int64_t columns, int64_t rows, size_t row_bytes,
        SIMULATOR_STREAM) {
        struct Channel {
            Counter* histogram;
            int bins;
            Level lower, upper;
        };
        Channels<Channel, NUM_ACTIVE_CHANNELS> channels;
        for (int c = 0; c < NUM_ACTIVE_CHANNELS; c++)
            channels.of[c] = {histograms[c], levels[c] - 1, lower[c], upper[c]};
        const auto bin_of = [](const Channel& it, const auto& sample) {
            const auto value = Level(sample);
            if (!(value >= it.lower && value < it.upper)) return -1;
            if constexpr (::std::is_integral_v<Level>)
                return int(__int128(value - it.lower) * it.bins / (it.upper - it.lower));
            else
                return int((value - it.lower) * (Level(it.bins) / (it.upper - it.lower)));
        };
        return count<NUM_CHANNELS>(SIMULATOR_CALL("DeviceHistogram::HistogramEven"), in, channels,
                                   columns, rows, row_bytes, bin_of);
    }
    template <int NUM_CHANNELS, int NUM_ACTIVE_CHANNELS, class In, class Counter, class Level>
    static cudaError_t MultiHistogramRange(
        SIMULATOR_STORAGE, In in, Counter* histograms[NUM_ACTIVE_CHANNELS],
        const int levels[NUM_ACTIVE_CHANNELS], const Level* const bounds[NUM_ACTIVE_CHANNELS],
        int64_t pixels, SIMULATOR_STREAM) {
        return MultiHistogramRange<NUM_CHANNELS, NUM_ACTIVE_CHANNELS>(
            storage, bytes, in, histograms, levels, bounds, pixels, 1,
            size_t(pixels) * NUM_CHANNELS * sizeof(simulated::Value<In>), stream, file, line);
    }
    template <int NUM_CHANNELS, int NUM_ACTIVE_CHANNELS, class In, class Counter, class Level>
    static cudaError_t MultiHistogramRange(
        SIMULATOR_STORAGE, In in, Counter* histograms[NUM_ACTIVE_CHANNELS],
        const int levels[NUM_ACTIVE_CHANNELS], const Level* const bounds[NUM_ACTIVE_CHANNELS],
        int64_t columns, int64_t rows, size_t row_bytes, SIMULATOR_STREAM) {
        struct Channel {
            Counter* histogram;
            int bins;
            const Level* bounds;
        };
        Channels<Channel, NUM_ACTIVE_CHANNELS> channels;
        for (int c = 0; c < NUM_ACTIVE_CHANNELS; c++)
            channels.of[c] = {histograms[c], levels[c] - 1, bounds[c]};
        const auto bin_of = [](const Channel& it, const auto& sample) {
            const Level* end = it.bounds + it.bins + 1;
            const int above = ::std::upper_bound(it.bounds, end, Level(sample)) - it.bounds;
            return above <= it.bins ? above - 1 : -1;
        };
        return count<NUM_CHANNELS>(SIMULATOR_CALL("DeviceHistogram::HistogramRange"), in, channels,
                                   columns, rows, row_bytes, bin_of);
    }

  private:
    template <int NUM_CHANNELS, class In, class Channel, int Count, class BinOf>
    static cudaError_t count(simulated::Call call, In in, const Channels<Channel, Count>& channels,
                             int64_t columns, int64_t rows, size_t row_bytes, BinOf bin_of) {
        return simulated::carry_out(call, [=]() mutable {
            const int64_t row_items = row_bytes / sizeof(simulated::Value<In>);
            for (size_t c = 0; c < size_t(Count); c++) {
                const Channel& channel = channels.of[c];
                ::std::fill_n(channel.histogram, channel.bins, 0);
                for (int64_t row = 0; row < rows; row++)
                    for (int64_t i = 0; i < columns; i++) {
                        const int bin =
                            bin_of(channel, in[row * row_items + i * NUM_CHANNELS + int64_t(c)]);
                        if (bin >= 0 && bin < channel.bins) channel.histogram[bin]++;
                    }
            }
        });
    }
};

// These need no storage.
struct DeviceFor {
    template <class It, class Op>
    static cudaError_t ForEach(It begin, It end, Op op, SIMULATOR_STREAM) {
        return ForEachN(begin, end - begin, op, stream, file, line);
    }
    template <class It, class Op>
    static cudaError_t ForEachN(It begin, int64_t count, Op op, SIMULATOR_STREAM) {
        return Bulk(count, [=](int64_t i) mutable { op(begin[i]); }, stream, file, line);
    }
    template <class Index, class Op>
    static cudaError_t Bulk(Index count, Op op, SIMULATOR_STREAM) {
        size_t bytes = 1;
        return simulated::carry_out(
            {&bytes, bytes, stream, "cub::DeviceFor", file, line}, [=]() mutable {
                for (Index i = 0; i < count; i++) op(i);
            });
    }
    template <class It, class Op>
    static cudaError_t ForEach(SIMULATOR_STORAGE, It begin, It end, Op op, SIMULATOR_STREAM) {
        if (!storage) return bytes = 1, cudaSuccess;
        return ForEach(begin, end, op, stream, file, line);
    }
    template <class Index, class Op>
    static cudaError_t Bulk(SIMULATOR_STORAGE, Index count, Op op, SIMULATOR_STREAM) {
        if (!storage) return bytes = 1, cudaSuccess;
        return Bulk(count, op, stream, file, line);
    }
};

#undef SIMULATOR_CALL
#undef SIMULATOR_STREAM
#undef SIMULATOR_STORAGE

}  // namespace cub
