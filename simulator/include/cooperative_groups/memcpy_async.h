// cooperative_groups::memcpy_async: the threads of a group copy together, and wait later.
#pragma once
#include "../cooperative_groups.h"
#include "../cuda_pipeline.h"

namespace cooperative_groups {
namespace details {

// Each thread takes every n-th piece. Elements are aligned as their type says; of bytes, and of
// pairs of them, the addresses decide.
template <class Group>
void copy_async(const Group& group, void* to, const void* from, size_t bytes, size_t alignment,
                const char* file, int line) {
    static_assert(!std::is_base_of_v<grid_group, Group>,
                  "memcpy_async copies for a thread_block, a tile of it, or a coalesced_group");
    size_t piece = alignment;
    if (piece < 4)
        for (const size_t all =
                 reinterpret_cast<uintptr_t>(to) | reinterpret_cast<uintptr_t>(from) | bytes;
             piece < 16 && !(all & (2 * piece - 1));)
            piece *= 2;
    if (piece > 16) piece = 16;
    const size_t pieces = bytes / piece, threads = group.num_threads(), rank = group.thread_rank();
    if (rank < pieces)
        simulator::add_copy(
            {static_cast<char*>(to) + rank * piece, static_cast<const char*>(from) + rank * piece,
             (pieces - rank + threads - 1) / threads, threads * piece, static_cast<uint8_t>(piece),
             0},
            "memcpy_async", file, line);
    __pipeline_commit();
}

template <class T>
constexpr size_t alignment_of = alignof(T);
template <>
inline constexpr size_t alignment_of<void> = 1;

// cuda::aligned_size_t<n> says more than the type does.
template <class T, class Count>
constexpr size_t known_alignment = alignment_of<T>;
template <class T, template <size_t> class Aligned, size_t n>
constexpr size_t known_alignment<T, Aligned<n>> = n;

}  // namespace details

// So many bytes.
template <class Group, class T, class Count>
void memcpy_async(const Group& group, T* __restrict__ to, const T* __restrict__ from,
                  const Count& bytes, SIMULATOR_CALLER) {
    details::copy_async(
        group, to, from, size_t(bytes), details::known_alignment<T, Count>, file, line);
}

// So many elements, as both have.
template <class Group, class T, class ToCount, class FromCount>
void memcpy_async(const Group& group, T* __restrict__ to, const ToCount& to_count,
                  const T* __restrict__ from, const FromCount& from_count, SIMULATOR_CALLER) {
    const size_t there = size_t(to_count), here = size_t(from_count);
    details::copy_async(group, to, from, (here < there ? here : there) * sizeof(T),
                        details::known_alignment<T, ToCount>, file, line);
}

// The group's copies but the last n are complete for all of it.
template <unsigned n, class Group>
void wait_prior(const Group& group, SIMULATOR_CALLER) {
    __pipeline_wait_prior(n, file, line);
    group.sync(file, line);
}
template <class Group>
void wait(const Group& group, SIMULATOR_CALLER) {
    wait_prior<0>(group, file, line);
}

}  // namespace cooperative_groups
