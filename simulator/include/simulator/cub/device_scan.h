// CUB's reductions and scans of the whole device.
#pragma once
#include "device_call.h"

namespace cub {

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

}  // namespace cub
