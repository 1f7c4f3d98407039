// The launchers of attention: which kernels each version runs. A version that cannot run falls back
// to the one before.
#pragma once

#include "attention_backward_fused_d128.cuh"
#include "attention_backward_wgmma.cuh"
#include "attention_online.cuh"
#include "attention_wgmma.cuh"

enum Version : int64_t { kNaive, kOnline, kMma, kWgmma, kOverlap };  // as in attention.py

template <class Call>
int64_t row_tiles(const Call& a) {
    return a.slices() * a.row_tiles(kTile);
}

// Tiles of rows, or slices of k and v, that naive computes at once.
template <class Call>
int64_t forward_at_once(const Call& a) {
    return smaller(row_tiles(a), kScratch / ((a.keys + 2) * kTile) + 1);
}
template <class Call>
int64_t backward_at_once(const Call& a) {
    return a.kv_slices() ? smaller(a.kv_slices(), kScratch / (scratch_naive(a) + 1) + 1) : 0;
}

// Whether sizes and alignment allow tensor cores.
template <class T, class Call, class... P>
bool can_take_mma(const Call& a, int64_t version, const T* p, const P*... more) {
    return sizeof(T) == 2 && version >= kMma && takes_tensor_cores(a) && is_aligned(p, more...);
}
template <class Call>
bool takes_online(const Call& a, int64_t version) {
    return version >= kOnline && a.cols <= kOnlineMost;
}

// Calls f with the head size that the kernels are compiled for.
template <class F>
auto for_columns(int64_t cols, F f) {
    if (cols <= 64) return f(std::integral_constant<int, 64>());
    if (cols <= 128) return f(std::integral_constant<int, 128>());
    return f(std::integral_constant<int, 256>());
}

// The version whose kernels run backward.
template <class T, class Call>
int64_t backward_version(const Call& a, int64_t version, const T* g, const T* q, const T* k,
                         const T* v, const T* y) {
    if constexpr (sizeof(T) == 2) {
        const auto mma = [&](auto cols) { return can_backward_mma<T, cols.value, Call>(); };
        const auto wgmma = [&](auto cols) { return can_backward_wgmma<T, cols.value, Call>(); };
        const auto ordered = [&](auto cols) { return can_backward_fused<T, cols.value, Call>(); };
        if (can_take_mma(a, version, g, q, k, v, y) && for_columns(a.cols, mma)) {
            if (version >= kOverlap && for_columns(a.cols, ordered)) return kOverlap;
            return version >= kWgmma && for_columns(a.cols, wgmma) ? kWgmma : kMma;
        }
    }
    return kNaive;
}

// Elements of scratch memory, Acc<T>, for forward and for backward.
template <class T, class Call>
int64_t attention_forward_scratch(const Call& a, int64_t version) {
    return takes_online(a, version) ? 0 : forward_at_once(a) * (a.keys + 2) * kTile;
}
template <class T, class Call>
int64_t attention_backward_scratch(const Call& a, const T* g, const T* q, const T* k, const T* v,
                                   const T* y, int64_t version) {
    const int64_t run_version = backward_version(a, version, g, q, k, v, y);
    if (run_version >= kMma) {
        const auto fused = [&](auto cols) { return fused_scratch<cols.value>(a); };
        const auto wgmma = [&](auto cols) { return wgmma_scratch<cols.value>(a); };
        const int64_t more = run_version == kOverlap ? for_columns(a.cols, fused)
                             : run_version == kWgmma ? for_columns(a.cols, wgmma)
                                                     : 0;
        return 2 * a.slices() * infos_of_slice(a) + more;
    }
    const int64_t at_once = backward_at_once(a);
    return at_once ? at_once * scratch_naive(a) : 0;  // without slices of k nothing shares them
}

template <class T, class Call>
cudaError_t attention_forward(const Call& a, const T* q, const T* k, const T* v, T* y,
                              Acc<T>* stats, Acc<T>* scratch, int64_t version,
                              cudaStream_t stream) {
    const int64_t tiles = row_tiles(a);
    if (tiles == 0) return cudaSuccess;
    if constexpr (sizeof(T) == 2) {
        const auto launch = [&](auto cols) {
            if (version >= kOverlap &&
                launch_forward_wgmma<T, cols.value, true>(a, q, k, v, y, stats, stream))
                return true;
            if (version >= kWgmma &&
                launch_forward_wgmma<T, cols.value, false>(a, q, k, v, y, stats, stream))
                return true;
            return launch_forward_mma<T, cols.value>(a, q, k, v, y, stats, stream);
        };
        if (can_take_mma(a, version, q, k, v, y) && for_columns(a.cols, launch))
            return cudaGetLastError();
    }
    if (takes_online(a, version)) {
        const auto kernel = a.cols <= 64    ? forward_online<T, 64, Call>
                            : a.cols <= 128 ? forward_online<T, 128, Call>
                                            : forward_online<T, 256, Call>;
        kernel<<<tiles, kTileThreads, 0, stream>>>(a, q, k, v, y, stats);
        return cudaGetLastError();
    }
    const int64_t across = ceil_div<int64_t>(a.keys, kTile);
    const int64_t parts = ceil_div<int64_t>(a.cols, kTile);
    for (int64_t first = 0; first < tiles; first += forward_at_once(a)) {
        const int64_t count = smaller(forward_at_once(a), tiles - first);
        if (across)
            scores_naive<<<count * across, kTileThreads, 0, stream>>>(a, q, k, scratch, first);
        softmax_naive<T><<<count, kTile, 0, stream>>>(a, scratch, stats, first);
        if (parts)
            values_naive<<<count * parts, kTileThreads, 0, stream>>>(a, scratch, v, y, first);
    }
    return cudaGetLastError();
}

// The parameter `deep` of backward_naive: as large as shared memory allows, and no larger than
// needed.
template <class T, class Call>
int depth(const Call& a) {
    const int64_t row = 2 * kTile * sizeof(Acc<T>), fixed = 5 * sizeof(Tile<Acc<T>>) + 1024;
    const int64_t room = smaller<int64_t>((shared_bytes() - fixed) / row, 512);
    const int64_t rows = a.q_slices_per_kv() * (ceil_div<int64_t>(a.rows, kTile) * kTile);
    const int64_t most = a.keys > rows ? ceil_div<int64_t>(a.keys, kTile) * kTile : rows;
    return smaller(most, room / kTile * kTile);
}

template <class T, class Call>
cudaError_t attention_backward(const Call& a, const T* g, const T* q, const T* k, const T* v,
                               const T* y, const Acc<T>* stats, T* dq, T* dk, T* dv,
                               Acc<T>* scratch, int64_t version, cudaStream_t stream) {
    if constexpr (sizeof(T) == 2) {
        const int64_t run_version = backward_version(a, version, g, q, k, v, y);
        if (run_version >= kMma) {
            for_columns(a.cols, [&](auto cols) {
                if constexpr (has_fused_backward(cols.value)) {
                    if (run_version == kOverlap &&
                        launch_backward_fused<T, cols.value>(
                            a, g, q, k, v, y, stats, scratch, dq, dk, dv, stream))
                        return;
                }
                if (run_version >= kWgmma &&
                    launch_backward_wgmma<T, cols.value>(
                        a, g, q, k, v, y, stats, scratch, dq, dk, dv, stream))
                    return;
                launch_backward_mma<T, cols.value>(
                    a, g, q, k, v, y, stats, scratch, dq, dk, dv, stream);
            });
            return cudaGetLastError();
        }
    }
    const int64_t slices = a.kv_slices();
    if (slices == 0 || a.cols == 0) return cudaSuccess;
    const int64_t blocks = a.q_slices_per_kv() * a.row_tiles(kTile) + a.key_tiles(kTile);
    if (blocks == 0) return cudaSuccess;
    const int deep = depth<T>(a), bytes = 2 * kTile * deep * sizeof(Acc<T>);
    cudaFuncSetAttribute(
        backward_naive<T, Call>, cudaFuncAttributeMaxDynamicSharedMemorySize, bytes);
    for (int64_t first = 0; first < slices; first += backward_at_once(a)) {
        const int64_t count = smaller(backward_at_once(a), slices - first);
        backward_naive<<<count * blocks, kTileThreads, bytes, stream>>>(
            a, g, q, k, v, y, stats, dq, dk, dv, scratch, first, deep);
    }
    return cudaGetLastError();
}

// Instantiates the launchers for a type and a kind of call.
#define INSTANTIATE_ATTENTION(T, Call)                                                          \
    template decltype(attention_forward_scratch<T, Call>) attention_forward_scratch<T, Call>;   \
    template decltype(attention_forward<T, Call>) attention_forward<T, Call>;                   \
    template decltype(attention_backward_scratch<T, Call>) attention_backward_scratch<T, Call>; \
    template decltype(attention_backward<T, Call>) attention_backward<T, Call>;
