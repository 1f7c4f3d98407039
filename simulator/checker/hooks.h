// What g++ and clang call before each access of code that they compiled with -fsanitize=thread.
// The sanitizer's own runtime is not linked: these take its place.
#pragma once
#include <stdio.h>
#include <stdlib.h>
#include "recorder.h"

using simulator::Kind;
using simulator::recorder;

#define SIMULATOR_HOOK extern "C" SIMULATOR_EXPORT
#define SIMULATOR_CALLED_FROM (reinterpret_cast<uintptr_t>(__builtin_return_address(0)) - 1)

#define SIMULATOR_ACCESS(name, size, kind)                                      \
    SIMULATOR_HOOK void __tsan_##name(void* address) {                          \
        recorder.access<Kind::kind>(                                            \
            reinterpret_cast<uintptr_t>(address), size, SIMULATOR_CALLED_FROM); \
    }
#define SIMULATOR_ACCESSES(size)                                 \
    SIMULATOR_ACCESS(read##size, size, Read)                     \
    SIMULATOR_ACCESS(write##size, size, Write)                   \
    SIMULATOR_RANGE(unaligned_read##size, size, Read)            \
    SIMULATOR_RANGE(unaligned_write##size, size, Write)          \
    SIMULATOR_VOLATILE_READ(volatile_read##size, size)           \
    SIMULATOR_VOLATILE_READ(unaligned_volatile_read##size, size) \
    SIMULATOR_VOLATILE_WRITE(volatile_write##size, size)         \
    SIMULATOR_VOLATILE_WRITE(unaligned_volatile_write##size, size)
#define SIMULATOR_VOLATILE_READ(name, size)                                         \
    SIMULATOR_HOOK void __tsan_##name(void* address) {                              \
        const auto at = reinterpret_cast<uintptr_t>(address);                       \
        recorder.access_range<Kind::VolatileRead>(at, size, SIMULATOR_CALLED_FROM); \
        recorder.synchronise(at, size, true, false);                                \
    }
#define SIMULATOR_VOLATILE_WRITE(name, size)                                         \
    SIMULATOR_HOOK void __tsan_##name(void* address) {                               \
        const auto at = reinterpret_cast<uintptr_t>(address);                        \
        recorder.access_range<Kind::VolatileWrite>(at, size, SIMULATOR_CALLED_FROM); \
        recorder.synchronise(at, size, false, true);                                 \
        recorder.note_store(at, size, SIMULATOR_CALLED_FROM);                        \
    }
#define SIMULATOR_RANGE(name, size, kind)                                       \
    SIMULATOR_HOOK void __tsan_##name(void* address) {                          \
        recorder.access_range<Kind::kind>(                                      \
            reinterpret_cast<uintptr_t>(address), size, SIMULATOR_CALLED_FROM); \
    }
SIMULATOR_ACCESSES(1)
SIMULATOR_ACCESSES(2)
SIMULATOR_ACCESSES(4)
SIMULATOR_ACCESSES(8)
SIMULATOR_ACCESSES(16)
#undef SIMULATOR_ACCESSES
#undef SIMULATOR_ACCESS
#undef SIMULATOR_VOLATILE_READ
#undef SIMULATOR_VOLATILE_WRITE
#undef SIMULATOR_RANGE

SIMULATOR_HOOK void __tsan_read_range(void* address, size_t bytes) {
    recorder.access_range<Kind::Read>(
        reinterpret_cast<uintptr_t>(address), bytes, SIMULATOR_CALLED_FROM);
}
SIMULATOR_HOOK void __tsan_write_range(void* address, size_t bytes) {
    recorder.access_range<Kind::Write>(
        reinterpret_cast<uintptr_t>(address), bytes, SIMULATOR_CALLED_FROM);
}

// Before each stretch of code that was compiled with -fsanitize-coverage=trace-pc.
SIMULATOR_HOOK void __sanitizer_cov_trace_pc() { recorder.ran(SIMULATOR_CALLED_FROM); }

SIMULATOR_HOOK void __tsan_init() {}
SIMULATOR_HOOK void __tsan_func_entry(void*) {}
SIMULATOR_HOOK void __tsan_func_exit() {}
SIMULATOR_HOOK void __tsan_vptr_update(void**, void*) {}
SIMULATOR_HOOK void __tsan_vptr_read(void**) {}

// Calls of the C library, which the linker sends here.
#define SIMULATOR_COPY(name)                                                       \
    SIMULATOR_HOOK void* __wrap_##name(void* to, const void* from, size_t bytes) { \
        if (simulator::stepper) simulator::stepper->copied(to, from, bytes);       \
        recorder.access_range<Kind::Read>(                                         \
            reinterpret_cast<uintptr_t>(from), bytes, SIMULATOR_CALLED_FROM - 1);  \
        recorder.access_range<Kind::Write>(                                        \
            reinterpret_cast<uintptr_t>(to), bytes, SIMULATOR_CALLED_FROM);        \
        return name(to, from, bytes);                                              \
    }
SIMULATOR_COPY(memcpy)
SIMULATOR_COPY(memmove)
#undef SIMULATOR_COPY
SIMULATOR_HOOK void* __wrap_memset(void* to, int byte, size_t bytes) {
    if (simulator::stepper) simulator::stepper->copied(to, nullptr, bytes);
    recorder.access_range<Kind::Write>(
        reinterpret_cast<uintptr_t>(to), bytes, SIMULATOR_CALLED_FROM);
    return memset(to, byte, bytes);
}
// What a kernel takes from the heap, and gives back.
#define SIMULATOR_TAKES(name, bytes, call)                     \
    SIMULATOR_HOOK void* __wrap_##name {                       \
        void* const guarded = recorder.take_for_host(bytes);   \
        return recorder.took(guarded ? guarded : call, bytes); \
    }
SIMULATOR_TAKES(malloc(size_t bytes), bytes, malloc(bytes))
SIMULATOR_TAKES(_Znam(size_t bytes), bytes, operator new[](bytes))
#undef SIMULATOR_TAKES
SIMULATOR_HOOK void* __wrap_calloc(size_t count, size_t size) {
    size_t bytes;
    const bool is_too_large = __builtin_mul_overflow(count, size, &bytes);
    void* const guarded = is_too_large ? nullptr : recorder.take_for_host(bytes);
    return recorder.took(guarded ? memset(guarded, 0, bytes) : calloc(count, size), bytes);
}
SIMULATOR_HOOK void* __wrap_realloc(void* memory, size_t bytes) {
    return recorder.took_again(memory, bytes, __builtin_return_address(0));
}
SIMULATOR_HOOK void* __wrap__Znwm(size_t bytes) {
    return recorder.took(operator new(bytes), bytes);
}
#define SIMULATOR_GIVES_BACK(name, call)                                                    \
    SIMULATOR_HOOK void __wrap_##name {                                                     \
        recorder.gave_back(memory);                                                         \
        call(simulator::give_back_host_memory(memory, #call, __builtin_return_address(0))); \
    }
SIMULATOR_GIVES_BACK(free(void* memory), free)
SIMULATOR_GIVES_BACK(_ZdlPv(void* memory), operator delete)
SIMULATOR_GIVES_BACK(_ZdlPvm(void* memory, size_t), operator delete)
SIMULATOR_GIVES_BACK(_ZdaPv(void* memory), operator delete[])
SIMULATOR_GIVES_BACK(_ZdaPvm(void* memory, size_t), operator delete[])
#undef SIMULATOR_GIVES_BACK

// What the C++ library asserts, as that an index is within a std::vector, does not hold.
SIMULATOR_HOOK void __wrap__ZSt21__glibcxx_assert_failPKciS0_S0_(
    const char* file, int line, const char* in, const char* condition) {
    recorder.host_asserted(condition, in, SIMULATOR_CALLED_FROM);
    fprintf(stderr, "%s:%d: %s: Assertion '%s' failed.\n", file, line, in, condition);
    abort();
}

// Atomics. The order that is asked for is the strongest here, as it is for the simulator's own: but
// what loads with another one than `acquire` is of the simulator's making, and counts as nothing,
// and the simulator's own tell by `told_by_order` what they are on a GPU.

#define SIMULATOR_ATOMIC_HOOK(kind, T) \
    recorder.access<Kind::kind>(       \
        reinterpret_cast<uintptr_t>(address), sizeof(T), SIMULATOR_CALLED_FROM)
#define SIMULATOR_SYNCHRONISE(T, takes, gives, ...) \
    recorder.synchronise(                           \
        reinterpret_cast<uintptr_t>(address), sizeof(T), takes, gives, ##__VA_ARGS__)
#define SIMULATOR_CHANGE(how, before, after) \
    simulator::Change { simulator::Change::how, before, after }
#define SIMULATOR_UNLESS_CHANGED(changed, T) \
    if (!(changed))                          \
    recorder.changed_nothing(reinterpret_cast<uintptr_t>(address), sizeof(T), SIMULATOR_CALLED_FROM)
#define SIMULATOR_FETCH(bits, T, name)                                                             \
    SIMULATOR_HOOK T __tsan_atomic##bits##_fetch_##name(volatile T* address, T value, int order) { \
        if (sizeof(T) == 8)                                                                        \
            SIMULATOR_ATOMIC_HOOK(Loop, T);                                                        \
        else if (order == simulator::told_by_order)                                                \
            SIMULATOR_ATOMIC_HOOK(Count, T);                                                       \
        else                                                                                       \
            SIMULATOR_ATOMIC_HOOK(Atomic, T);                                                      \
        const T old = __atomic_fetch_##name(address, value, __ATOMIC_SEQ_CST);                     \
        T now = old;                                                                               \
        __atomic_fetch_##name(&now, value, __ATOMIC_RELAXED);                                      \
        SIMULATOR_SYNCHRONISE(T, true, true, SIMULATOR_CHANGE(Update, old, now));                  \
        SIMULATOR_UNLESS_CHANGED(now != old, T);                                                   \
        return old;                                                                                \
    }
// weak: what the simulator makes other atomics of, where an atomicCAS is strong.
#define SIMULATOR_COMPARE(bits, T, strength, kind, how)                                      \
    SIMULATOR_HOOK bool __tsan_atomic##bits##_compare_exchange_##strength(                   \
        volatile T* address, T* expected, T value, int order, int) {                         \
        if (Kind::kind == Kind::Loop && sizeof(T) == 4 && order != simulator::told_by_order) \
            SIMULATOR_ATOMIC_HOOK(Atomic, T);                                                \
        else                                                                                 \
            SIMULATOR_ATOMIC_HOOK(kind, T);                                                  \
        const T wanted = *expected;                                                          \
        const bool done = __atomic_compare_exchange_n(                                       \
            address, expected, value, false, __ATOMIC_SEQ_CST, __ATOMIC_SEQ_CST);            \
        const T now = done ? value : wanted;                                                 \
        SIMULATOR_SYNCHRONISE(T, true, done, SIMULATOR_CHANGE(how, wanted, now));            \
        SIMULATOR_UNLESS_CHANGED(done && wanted != value, T);                                \
        return done;                                                                         \
    }
#define SIMULATOR_ATOMICS(bits, T)                                                       \
    SIMULATOR_HOOK T __tsan_atomic##bits##_load(const volatile T* address, int order) {  \
        if (order == __ATOMIC_ACQUIRE) {                                                 \
            SIMULATOR_ATOMIC_HOOK(Load, T);                                              \
            SIMULATOR_SYNCHRONISE(T, true, false);                                       \
        }                                                                                \
        recorder.loaded(reinterpret_cast<uintptr_t>(address), SIMULATOR_CALLED_FROM);    \
        return __atomic_load_n(address, __ATOMIC_SEQ_CST);                               \
    }                                                                                    \
    SIMULATOR_HOOK void __tsan_atomic##bits##_store(volatile T* address, T value, int) { \
        SIMULATOR_ATOMIC_HOOK(Store, T);                                                 \
        SIMULATOR_SYNCHRONISE(T, false, true, SIMULATOR_CHANGE(Store, 0, value));        \
        __atomic_store_n(address, value, __ATOMIC_SEQ_CST);                              \
    }                                                                                    \
    SIMULATOR_HOOK T __tsan_atomic##bits##_exchange(volatile T* address, T value, int) { \
        SIMULATOR_ATOMIC_HOOK(Swap, T);                                                  \
        const T old = __atomic_exchange_n(address, value, __ATOMIC_SEQ_CST);             \
        SIMULATOR_SYNCHRONISE(T, true, true, SIMULATOR_CHANGE(Exchange, old, value));    \
        SIMULATOR_UNLESS_CHANGED(old != value, T);                                       \
        return old;                                                                      \
    }                                                                                    \
    SIMULATOR_FETCH(bits, T, add)                                                        \
    SIMULATOR_FETCH(bits, T, sub)                                                        \
    SIMULATOR_FETCH(bits, T, and)                                                        \
    SIMULATOR_FETCH(bits, T, or)                                                         \
    SIMULATOR_FETCH(bits, T, xor)                                                        \
    SIMULATOR_FETCH(bits, T, nand)                                                       \
    SIMULATOR_COMPARE(bits, T, strong, Exchange, Exchange)                               \
    SIMULATOR_COMPARE(bits, T, weak, Loop, Update)
SIMULATOR_ATOMICS(8, unsigned char)
SIMULATOR_ATOMICS(16, unsigned short)
SIMULATOR_ATOMICS(32, unsigned int)
SIMULATOR_ATOMICS(64, unsigned long)
#undef SIMULATOR_ATOMICS
#undef SIMULATOR_COMPARE
#undef SIMULATOR_FETCH
#undef SIMULATOR_SYNCHRONISE
#undef SIMULATOR_CHANGE
#undef SIMULATOR_ATOMIC_HOOK
#undef SIMULATOR_UNLESS_CHANGED

SIMULATOR_HOOK void __tsan_atomic_thread_fence(int) {
    recorder.fence();
    __atomic_thread_fence(__ATOMIC_SEQ_CST);
}
SIMULATOR_HOOK void __tsan_atomic_signal_fence(int) {}

namespace simulator {
void announce(Scope scope) { recorder.next_scope = scope; }
void announce_acquire() { recorder.next_acquires = true; }
void work_for_device(bool does) { recorder.host_is_device = does; }
unsigned long long used(unsigned long long old) noexcept {
    recorder.used_old_value();
    return old;
}
}  // namespace simulator

#undef SIMULATOR_HOOK
#undef SIMULATOR_CALLED_FROM
