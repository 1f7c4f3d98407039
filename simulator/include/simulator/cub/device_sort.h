// CUB's sorts of the whole device.
#pragma once
#include "device_call.h"

namespace cub {

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

}  // namespace cub
