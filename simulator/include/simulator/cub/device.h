// CUB's algorithms of the whole device. They are carried out by one thread, as a launch, so that
// what goes wrong in them is an error of the device, as it is on a GPU. Called without temporary
// storage they say how much they need, which is little.
#pragma once
#include "device_scan.h"
#include "device_sort.h"

namespace cub {

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
