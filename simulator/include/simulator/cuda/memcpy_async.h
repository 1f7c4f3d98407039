// cuda::memcpy_async. A copy that is asked for is made at once, which is as soon as it may be.
#pragma once
#include "barrier.h"

#if __has_include(<cuda/__memory/aligned_size.h>)
#include <cuda/__memory/aligned_size.h>
#elif __has_include(<cuda/__barrier/aligned_size.h>)
#include <cuda/__barrier/aligned_size.h>
#else
namespace cuda {

template <size_t Alignment>
struct aligned_size_t {
    static constexpr size_t align = Alignment;
    size_t value;

    explicit constexpr aligned_size_t(size_t bytes) : value(bytes) {}
    constexpr operator size_t() const { return value; }
};

}  // namespace cuda
#endif

namespace simulator {

template <class Piece>
SIMULATOR_INLINE void copy_pieces(void* to, const void* from, size_t bytes, size_t rank,
                                  size_t step) {
    struct [[gnu::may_alias, gnu::packed, gnu::aligned(alignof(Piece))]] Aliased {
        Piece piece;
    };
    for (size_t i = rank; i < bytes / sizeof(Piece); i += step)
        static_cast<Aliased*>(to)[i] = static_cast<const Aliased*>(from)[i];
}

// The part of a thread, in pieces of 16, 8, 4 or 1 byte.
SIMULATOR_INLINE void copy_part(void* to, const void* from, size_t bytes, size_t rank,
                                size_t threads) {
    const size_t bits = reinterpret_cast<uintptr_t>(to) | reinterpret_cast<uintptr_t>(from) | bytes;
    if (bits % 16 == 0)
        copy_pieces<uint4>(to, from, bytes, rank, threads);
    else if (bits % 8 == 0)
        copy_pieces<uint64_t>(to, from, bytes, rank, threads);
    else if (bits % 4 == 0)
        copy_pieces<uint32_t>(to, from, bytes, rank, threads);
    else
        copy_pieces<uint8_t>(to, from, bytes, rank, threads);
}

// cuda::aligned_size_t says how memory is aligned that is copied.
template <class Shape>
SIMULATOR_INLINE void check_alignment(const void*, const void*, const Shape&, const char*, int) {}
template <size_t Alignment>
SIMULATOR_INLINE void check_alignment(const void* to, const void* from,
                                      const ::cuda::aligned_size_t<Alignment>& shape,
                                      const char* file, int line) {
    const uintptr_t bits = reinterpret_cast<uintptr_t>(to) | reinterpret_cast<uintptr_t>(from);
    if ((bits | shape.value) % Alignment)
        fail_assertion(
            "cuda::memcpy_async: memory and size are as cuda::aligned_size_t says", file, line);
}

}  // namespace simulator

namespace cuda {

enum class async_contract_fulfillment { none, async };

template <thread_scope Scope>
class pipeline;

// What a copy may arrive at; the group's threads share in the work.
template <class Group, class Shape, class Sync>
async_contract_fulfillment simulator_copy(const Group& group, void* to, const void* from,
                                          const Shape& shape, Sync&, const char* file, int line) {
    simulator::check_alignment(to, from, shape, file, line);
    simulator::copy_part(to, from, size_t(shape), group.thread_rank(), group.size());
    return async_contract_fulfillment::none;
}

struct simulator_one_thread {
    static constexpr unsigned thread_rank() { return 0; }
    static constexpr unsigned size() { return 1; }
};

#define SIMULATOR_MEMCPY_ASYNC(To, From, Sync, ...)                                                \
    template <class Shape, __VA_ARGS__>                                                            \
    async_contract_fulfillment memcpy_async(                                                       \
        To* to, const From* from, Shape shape, Sync& sync, SIMULATOR_CALLER) {                     \
        return simulator_copy(simulator_one_thread(), to, from, shape, sync, file, line);          \
    }                                                                                              \
    template <class Group, class Shape, __VA_ARGS__>                                               \
    async_contract_fulfillment memcpy_async(                                                       \
        const Group& group, To* to, const From* from, Shape shape, Sync& sync, SIMULATOR_CALLER) { \
        return simulator_copy(group, to, from, shape, sync, file, line);                           \
    }
#define SIMULATOR_BARRIER barrier<Scope, Completion>
SIMULATOR_MEMCPY_ASYNC(T, T, SIMULATOR_BARRIER, class T, thread_scope Scope, class Completion)
SIMULATOR_MEMCPY_ASYNC(void, void, SIMULATOR_BARRIER, thread_scope Scope, class Completion)
SIMULATOR_MEMCPY_ASYNC(T, T, pipeline<Scope>, class T, thread_scope Scope)
SIMULATOR_MEMCPY_ASYNC(void, void, pipeline<Scope>, thread_scope Scope)
#undef SIMULATOR_BARRIER
#undef SIMULATOR_MEMCPY_ASYNC

}  // namespace cuda
