// CUB's collectives of a warp, or of a part of it. They exchange values by shuffles and leave the
// storage that they are given alone, as CUB's own do for parts of a power of two.
#pragma once
#include "util.h"

namespace cub {
namespace simulated {

// A part of a warp: the lanes that work together.
template <int Lanes>
struct Part {
    static_assert(Lanes >= 1 && Lanes <= 32, "a warp has 32 lanes");
    const unsigned lane = LaneId() % Lanes, first = LaneId() - lane;
    const unsigned mask = (Lanes == 32 ? ~0u : (1u << Lanes % 32) - 1) << first;
};

// The first lane gets all of the first `valid` lanes' values. A value ends before lane `end`.
template <int Lanes, class T, class Op>
T reduce(T value, Op op, unsigned end, const char* what, const char* file, int line) {
    const Part<Lanes> part;
    for (unsigned step = 1; step < Lanes; step *= 2) {
        const unsigned source = part.lane + step;
        const T other = from_lane(
            part.mask, value, part.first + (source < Lanes ? source : part.lane), what, file, line);
        if (source < end) value = op(value, other);
    }
    return value;
}

template <int Lanes, class T, class Op>
T inclusive_scan(T value, Op op, const char* what, const char* file, int line) {
    const Part<Lanes> part;
    for (unsigned step = 1; step < Lanes; step *= 2) {
        const unsigned source = part.lane < step ? part.lane : part.lane - step;
        const T other = from_lane(part.mask, value, part.first + source, what, file, line);
        if (part.lane >= step) value = op(other, value);
    }
    return value;
}

// The lane at which the segment of this one ends, which the next head or a tail ends.
template <int Lanes, bool Heads>
unsigned segment_end(bool flag, const char* file, int line) {
    const Part<Lanes> part;
    uint32_t flags = __ballot_sync(part.mask, flag, file, line) >> part.first;
    if (Heads) flags >>= 1;  // a head ends the segment of the lane before it
    flags &= ~0u << part.lane;
    const unsigned end = flags ? __builtin_ctz(flags) + 1 : Lanes;
    return end < Lanes ? end : Lanes;
}

}  // namespace simulated

template <class T, int LOGICAL_WARP_THREADS = 32, int = 0>
class WarpReduce {
    static constexpr int lanes = LOGICAL_WARP_THREADS;

  public:
    struct TempStorage {};
    WarpReduce(TempStorage&) {}

    template <class Op>
    T Reduce(T value, Op op, SIMULATOR_CALLER) {
        return simulated::reduce<lanes>(
            value, op, lanes, "cub::WarpReduce: shuffle down", file, line);
    }
    template <class Op>
    T Reduce(T value, Op op, int valid, SIMULATOR_CALLER) {
        return simulated::reduce<lanes>(
            value, op, valid, "cub::WarpReduce: shuffle down", file, line);
    }
    T Sum(T value, SIMULATOR_CALLER) { return Reduce(value, cub::Sum(), file, line); }
    T Sum(T value, int valid, SIMULATOR_CALLER) {
        return Reduce(value, cub::Sum(), valid, file, line);
    }
    T Max(T value, SIMULATOR_CALLER) { return Reduce(value, cub::Max(), file, line); }
    T Min(T value, SIMULATOR_CALLER) { return Reduce(value, cub::Min(), file, line); }

    template <class Flag, class Op>
    T HeadSegmentedReduce(T value, Flag flag, Op op, SIMULATOR_CALLER) {
        const unsigned end = simulated::segment_end<lanes, true>(flag, file, line);
        return simulated::reduce<lanes>(
            value, op, end, "cub::WarpReduce: shuffle down", file, line);
    }
    template <class Flag, class Op>
    T TailSegmentedReduce(T value, Flag flag, Op op, SIMULATOR_CALLER) {
        const unsigned end = simulated::segment_end<lanes, false>(flag, file, line);
        return simulated::reduce<lanes>(
            value, op, end, "cub::WarpReduce: shuffle down", file, line);
    }
    template <class Flag>
    T HeadSegmentedSum(T value, Flag flag, SIMULATOR_CALLER) {
        return HeadSegmentedReduce(value, flag, cub::Sum(), file, line);
    }
    template <class Flag>
    T TailSegmentedSum(T value, Flag flag, SIMULATOR_CALLER) {
        return TailSegmentedReduce(value, flag, cub::Sum(), file, line);
    }
};

template <class T, int LOGICAL_WARP_THREADS = 32, int = 0>
class WarpScan {
    static constexpr int lanes = LOGICAL_WARP_THREADS;
    static constexpr const char* what = "cub::WarpScan";
    using Part = simulated::Part<lanes>;

  public:
    struct TempStorage {};
    WarpScan(TempStorage&) {}

    template <class Op>
    void InclusiveScan(T in, T& out, Op op, SIMULATOR_CALLER) {
        out = simulated::inclusive_scan<lanes>(in, op, what, file, line);
    }
    template <class Op>
    void InclusiveScan(T in, T& out, Op op, T& aggregate, SIMULATOR_CALLER) {
        InclusiveScan(in, out, op, file, line);
        aggregate = last(out, file, line);
    }
    void InclusiveSum(T in, T& out, SIMULATOR_CALLER) {
        InclusiveScan(in, out, cub::Sum(), file, line);
    }
    void InclusiveSum(T in, T& out, T& aggregate, SIMULATOR_CALLER) {
        InclusiveScan(in, out, cub::Sum(), aggregate, file, line);
    }

    // Without an initial value the first lane's result is undefined: here it is what went in.
    template <class Op>
    void ExclusiveScan(T in, T& out, Op op, SIMULATOR_CALLER) {
        T inclusive;
        Scan(in, inclusive, out, op, file, line);
    }
    template <class Op>
    void ExclusiveScan(T in, T& out, T initial, Op op, SIMULATOR_CALLER) {
        T inclusive;
        Scan(in, inclusive, out, initial, op, file, line);
    }
    template <class Op>
    void ExclusiveScan(T in, T& out, Op op, T& aggregate, SIMULATOR_CALLER) {
        T inclusive;
        Scan(in, inclusive, out, op, file, line);
        aggregate = last(inclusive, file, line);
    }
    template <class Op>
    void ExclusiveScan(T in, T& out, T initial, Op op, T& aggregate, SIMULATOR_CALLER) {
        const T sum = simulated::inclusive_scan<lanes>(in, op, what, file, line);
        out = before(sum, file, line);
        out = Part().lane ? T(op(initial, out)) : initial;
        aggregate = last(sum, file, line);
    }
    void ExclusiveSum(T in, T& out, SIMULATOR_CALLER) {
        ExclusiveScan(in, out, T{}, cub::Sum(), file, line);
    }
    void ExclusiveSum(T in, T& out, T& aggregate, SIMULATOR_CALLER) {
        ExclusiveScan(in, out, T{}, cub::Sum(), aggregate, file, line);
    }

    template <class Op>
    void Scan(T in, T& inclusive, T& exclusive, Op op, SIMULATOR_CALLER) {
        inclusive = simulated::inclusive_scan<lanes>(in, op, what, file, line);
        exclusive = before(inclusive, file, line);
    }
    template <class Op>
    void Scan(T in, T& inclusive, T& exclusive, T initial, Op op, SIMULATOR_CALLER) {
        const T sum = simulated::inclusive_scan<lanes>(in, op, what, file, line);
        const T left = before(sum, file, line);
        inclusive = op(initial, sum);
        exclusive = Part().lane ? T(op(initial, left)) : initial;
    }

    T Broadcast(T value, unsigned source, SIMULATOR_CALLER) {
        const Part part;
        return simulated::from_lane(part.mask, value, part.first + source, what, file, line);
    }

  private:
    T before(T value, const char* file, int line) {
        const Part part;
        const unsigned source = part.first + (part.lane ? part.lane - 1 : 0);
        return simulated::from_lane(part.mask, value, source, what, file, line);
    }
    T last(T value, const char* file, int line) {
        const Part part;  // the last lane there is, of a block that ends within the warp
        const unsigned after = simulator::current->size - (simulator::current->rank - part.lane);
        const unsigned end = after < unsigned(lanes) ? after : lanes;
        return simulated::from_lane(part.mask, value, part.first + end - 1, what, file, line);
    }
};

}  // namespace cub
