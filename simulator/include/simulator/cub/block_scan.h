// CUB's reductions and scans of a block.
#pragma once
#include "util.h"

namespace cub {

// Every algorithm has the same result, up to the order in which numbers are added.
enum BlockReduceAlgorithm {
    BLOCK_REDUCE_RAKING_COMMUTATIVE_ONLY,
    BLOCK_REDUCE_RAKING,
    BLOCK_REDUCE_WARP_REDUCTIONS,
    BLOCK_REDUCE_WARP_REDUCTIONS_NONDETERMINISTIC,
};
enum BlockScanAlgorithm { BLOCK_SCAN_RAKING, BLOCK_SCAN_RAKING_MEMOIZE, BLOCK_SCAN_WARP_SCANS };

// ---- Reduction

// The result is the first thread's alone.
template <class T, int BLOCK_DIM_X, BlockReduceAlgorithm = BLOCK_REDUCE_WARP_REDUCTIONS,
          int BLOCK_DIM_Y = 1, int BLOCK_DIM_Z = 1, int = 0>
class BlockReduce {
    static constexpr int threads = BLOCK_DIM_X * BLOCK_DIM_Y * BLOCK_DIM_Z;

  public:
    struct TempStorage {
        simulated::Room<T, threads> parts;
    };
    BlockReduce() : storage(simulated::own<TempStorage>()) {}
    BlockReduce(TempStorage& storage) : storage(storage) {}

    template <class Op>
    T Reduce(T part, Op op, SIMULATOR_CALLER) {
        return Reduce(part, op, threads, file, line);
    }
    // Of the first `valid` threads.
    template <class Op>
    T Reduce(T part, Op op, int valid, SIMULATOR_CALLER) {
        const unsigned rank = simulated::rank_in_block<threads>(file, line, valid);
        storage.parts[rank] = part;
        __syncthreads(file, line);
        if (rank || valid < 1) return part;
        const int count = valid < threads ? valid : threads;
        simulated::Room<T, threads>
            parts;  // what is read here the checker sees in the caller's line
        for (int i = 0; i < count; i++) parts[i] = storage.parts[i];
        return simulated::fold<T>(0, count, [&](int i) { return parts[i]; }, op);
    }
    template <int N, class Op>
    T Reduce(T (&parts)[N], Op op, SIMULATOR_CALLER) {
        return Reduce(T(ThreadReduce(parts, op)), op, file, line);
    }
    T Sum(T part, SIMULATOR_CALLER) { return Reduce(part, cub::Sum(), file, line); }
    T Sum(T part, int valid, SIMULATOR_CALLER) {
        return Reduce(part, cub::Sum(), valid, file, line);
    }
    template <int N>
    T Sum(T (&parts)[N], SIMULATOR_CALLER) {
        return Reduce(parts, cub::Sum(), file, line);
    }

  private:
    TempStorage& storage;
};

// ---- Scan

template <class T, int BLOCK_DIM_X, BlockScanAlgorithm = BLOCK_SCAN_RAKING, int BLOCK_DIM_Y = 1,
          int BLOCK_DIM_Z = 1, int = 0>
class BlockScan {
    static constexpr int threads = BLOCK_DIM_X * BLOCK_DIM_Y * BLOCK_DIM_Z;

  public:
    struct TempStorage {
        // Each thread's part, and then what comes before its next one; the sum, what comes first.
        simulated::Room<T, threads + 2> before;
    };
    BlockScan() : storage(simulated::own<TempStorage>()) {}
    BlockScan(TempStorage& storage) : storage(storage) {}

    // What CUB's scans take last: nothing; a variable for the sum of all; or a function that is
    // told that sum, by the first warp, and returns what comes before the block.

    void ExclusiveSum(T in, T& out, SIMULATOR_CALLER) {
        ExclusiveScan(in, out, T{}, cub::Sum(), file, line);
    }
    void ExclusiveSum(T in, T& out, T& aggregate, SIMULATOR_CALLER) {
        ExclusiveScan(in, out, T{}, cub::Sum(), aggregate, file, line);
    }
    template <class Prefix, class = decltype(::std::declval<Prefix&>()(::std::declval<T>()))>
    void ExclusiveSum(T in, T& out, Prefix& prefix, SIMULATOR_CALLER) {
        ExclusiveScan(in, out, cub::Sum(), prefix, file, line);
    }
    template <int N>
    void ExclusiveSum(T (&in)[N], T (&out)[N], SIMULATOR_CALLER) {
        ExclusiveScan(in, out, T{}, cub::Sum(), file, line);
    }
    template <int N>
    void ExclusiveSum(T (&in)[N], T (&out)[N], T& aggregate, SIMULATOR_CALLER) {
        ExclusiveScan(in, out, T{}, cub::Sum(), aggregate, file, line);
    }
    template <int N, class Prefix, class = decltype(::std::declval<Prefix&>()(::std::declval<T>()))>
    void ExclusiveSum(T (&in)[N], T (&out)[N], Prefix& prefix, SIMULATOR_CALLER) {
        ExclusiveScan(in, out, cub::Sum(), prefix, file, line);
    }

    void InclusiveSum(T in, T& out, SIMULATOR_CALLER) {
        InclusiveScan(in, out, cub::Sum(), file, line);
    }
    void InclusiveSum(T in, T& out, T& aggregate, SIMULATOR_CALLER) {
        InclusiveScan(in, out, cub::Sum(), aggregate, file, line);
    }
    template <class Prefix, class = decltype(::std::declval<Prefix&>()(::std::declval<T>()))>
    void InclusiveSum(T in, T& out, Prefix& prefix, SIMULATOR_CALLER) {
        InclusiveScan(in, out, cub::Sum(), prefix, file, line);
    }
    template <int N>
    void InclusiveSum(T (&in)[N], T (&out)[N], SIMULATOR_CALLER) {
        InclusiveScan(in, out, cub::Sum(), file, line);
    }
    template <int N>
    void InclusiveSum(T (&in)[N], T (&out)[N], T& aggregate, SIMULATOR_CALLER) {
        InclusiveScan(in, out, cub::Sum(), aggregate, file, line);
    }
    template <int N, class Prefix, class = decltype(::std::declval<Prefix&>()(::std::declval<T>()))>
    void InclusiveSum(T (&in)[N], T (&out)[N], Prefix& prefix, SIMULATOR_CALLER) {
        InclusiveScan(in, out, cub::Sum(), prefix, file, line);
    }

    // Of one value a thread.
    template <class Op>
    void ExclusiveScan(T in, T& out, Op op, SIMULATOR_CALLER) {
        one(in, out, [&](auto& i, auto& o) { ExclusiveScan(i, o, op, file, line); });
    }
    template <class Op>
    void ExclusiveScan(T in, T& out, T initial, Op op, SIMULATOR_CALLER) {
        one(in, out, [&](auto& i, auto& o) { ExclusiveScan(i, o, initial, op, file, line); });
    }
    template <class Op>
    void ExclusiveScan(T in, T& out, Op op, T& aggregate, SIMULATOR_CALLER) {
        one(in, out, [&](auto& i, auto& o) { ExclusiveScan(i, o, op, aggregate, file, line); });
    }
    template <class Op>
    void ExclusiveScan(T in, T& out, T initial, Op op, T& aggregate, SIMULATOR_CALLER) {
        one(in, out,
            [&](auto& i, auto& o) { ExclusiveScan(i, o, initial, op, aggregate, file, line); });
    }
    template <class Op, class Prefix,
              class = decltype(::std::declval<Prefix&>()(::std::declval<T>()))>
    void ExclusiveScan(T in, T& out, Op op, Prefix& prefix, SIMULATOR_CALLER) {
        one(in, out, [&](auto& i, auto& o) { ExclusiveScan(i, o, op, prefix, file, line); });
    }
    template <class Op>
    void InclusiveScan(T in, T& out, Op op, SIMULATOR_CALLER) {
        one(in, out, [&](auto& i, auto& o) { InclusiveScan(i, o, op, file, line); });
    }
    template <class Op>
    void InclusiveScan(T in, T& out, Op op, T& aggregate, SIMULATOR_CALLER) {
        one(in, out, [&](auto& i, auto& o) { InclusiveScan(i, o, op, aggregate, file, line); });
    }
    template <class Op>
    void InclusiveScan(T in, T& out, T initial, Op op, SIMULATOR_CALLER) {
        one(in, out, [&](auto& i, auto& o) { InclusiveScan(i, o, initial, op, file, line); });
    }
    template <class Op, class Prefix,
              class = decltype(::std::declval<Prefix&>()(::std::declval<T>()))>
    void InclusiveScan(T in, T& out, Op op, Prefix& prefix, SIMULATOR_CALLER) {
        one(in, out, [&](auto& i, auto& o) { InclusiveScan(i, o, op, prefix, file, line); });
    }

    // Of several. Without anything before it the first result is undefined: here it stays as it is.
    template <int N, class Op>
    void ExclusiveScan(T (&in)[N], T (&out)[N], Op op, SIMULATOR_CALLER) {
        scan<false>(in, out, op, nullptr, none, file, line);
    }
    template <int N, class Op>
    void ExclusiveScan(T (&in)[N], T (&out)[N], T initial, Op op, SIMULATOR_CALLER) {
        scan<false>(in, out, op, &initial, none, file, line);
    }
    template <int N, class Op>
    void ExclusiveScan(T (&in)[N], T (&out)[N], Op op, T& aggregate, SIMULATOR_CALLER) {
        aggregate = scan<false>(in, out, op, nullptr, none, file, line);
    }
    template <int N, class Op>
    void ExclusiveScan(T (&in)[N], T (&out)[N], T initial, Op op, T& aggregate, SIMULATOR_CALLER) {
        aggregate = scan<false>(in, out, op, &initial, none, file, line);
    }
    template <int N, class Op, class Prefix,
              class = decltype(::std::declval<Prefix&>()(::std::declval<T>()))>
    void ExclusiveScan(T (&in)[N], T (&out)[N], Op op, Prefix& prefix, SIMULATOR_CALLER) {
        scan<false>(in, out, op, nullptr, prefix, file, line);
    }
    template <int N, class Op>
    void InclusiveScan(T (&in)[N], T (&out)[N], Op op, SIMULATOR_CALLER) {
        scan<true>(in, out, op, nullptr, none, file, line);
    }
    template <int N, class Op>
    void InclusiveScan(T (&in)[N], T (&out)[N], Op op, T& aggregate, SIMULATOR_CALLER) {
        aggregate = scan<true>(in, out, op, nullptr, none, file, line);
    }
    template <int N, class Op>
    void InclusiveScan(T (&in)[N], T (&out)[N], T initial, Op op, SIMULATOR_CALLER) {
        scan<true>(in, out, op, &initial, none, file, line);
    }
    template <int N, class Op, class Prefix,
              class = decltype(::std::declval<Prefix&>()(::std::declval<T>()))>
    void InclusiveScan(T (&in)[N], T (&out)[N], Op op, Prefix& prefix, SIMULATOR_CALLER) {
        scan<true>(in, out, op, nullptr, prefix, file, line);
    }

  private:
    struct None {};
    None none;

    template <class Scan>
    void one(T& in, T& out, Scan scan) {
        T ins[1] = {in}, outs[1] = {out};
        scan(ins, outs);
        out = outs[0];
    }

    // Returns the sum of all that went in.
    template <bool Inclusive, int N, class Op, class Prefix>
    T scan(T (&in)[N], T (&out)[N], Op op, const T* initial, Prefix& prefix, const char* file,
           int line) {
        constexpr bool has_prefix = !::std::is_same_v<Prefix, None>;
        const unsigned rank = simulated::rank_in_block<threads>(file, line);
        auto& before = storage.before;
        before[rank] = ThreadReduce(in, op);
        __syncthreads(file, line);
        if (rank == 0) {
            T sum = before[0];
            for (int i = 1; i < threads; i++) {
                const T part = before[i];
                before[i - 1] = sum;
                sum = op(sum, part);
            }
            before[threads] = sum;
            if (initial) before[threads + 1] = *initial;
        }
        __syncthreads(file, line);
        const T sum = before[threads];
        if constexpr (has_prefix) {
            if (rank < 32) {
                const T first = prefix(sum);
                if (rank == 0) before[threads + 1] = first;
            }
            __syncthreads(file, line);
        }
        const bool starts = has_prefix || initial;  // something comes before the block
        bool any = starts || rank > 0;              // and before the next item
        T running = in[0];
        if (rank)
            running = starts ? T(op(before[threads + 1], before[rank - 1])) : before[rank - 1];
        else if (starts)
            running = before[threads + 1];
        for (int i = 0; i < N; i++) {
            const T next = any ? T(op(running, in[i])) : in[i];
            if (Inclusive)
                out[i] = next;
            else if (any)
                out[i] = running;
            running = next;
            any = true;
        }
        return sum;
    }

    TempStorage& storage;
};

}  // namespace cub
