// Loads and stores, and addresses of the state spaces.
#pragma once
#include "../shared_window.h"
#include "values.h"

namespace simulator::ptx {

// Where an address leads, by its state space. A generic one is a pointer, and so is a global one.
SIMULATOR_INLINE char* __ptx_generic(uint64_t address) { return reinterpret_cast<char*>(address); }

// The operand of an instruction that takes an address of shared memory. In a register of 64 bits it
// may be a pointer, too: of that a GPU takes the low bits, which are that address. (Not a class:
// the checker would count accesses to its member.)
SIMULATOR_INLINE uint32_t shared_operand(uint64_t operand) {
    return operand >> 32 ? shared_address(__ptx_generic(operand)) : whole_address(operand);
}
SIMULATOR_INLINE char* __ptx_shared(uint64_t address) {
    return shared_pointer(address >> 32 ? shared_address(__ptx_generic(address)) : address);
}

// What lies in shared memory in any case, by an address without a state space: by a pointer, or as
// `__ptx_shared` has it, for the low bits count.
SIMULATOR_INLINE char* __ptx_pointer_or_shared(uint64_t address) {
    return address >> 32 ? __ptx_generic(address) : __ptx_shared(address);
}

// What is read or written at once stays one access for the checker: no more than 16 bytes.
template <class T, int count>
struct [[gnu::may_alias]] alignas(sizeof(T) * count <= 16 ? sizeof(T) * count : 16) Vector {
    T values[count];
};
template <class T, int count>
using __ptx_Vector = Vector<T, count>;
template <class T, int count>
SIMULATOR_INLINE T __ptx_at(const Vector<T, count>& values, int index) {
    return values.values[index];
}

template <class T, int count = 1>
SIMULATOR_INLINE Vector<T, count> __ptx_load(const char* p) {
    return *reinterpret_cast<const Vector<T, count>*>(p);
}
template <class T, int count>
SIMULATOR_INLINE void __ptx_store(char* p, const Vector<T, count>& values) {
    *reinterpret_cast<Vector<T, count>*>(p) = values;
}
SIMULATOR_INLINE void __ptx_store_zeros(char* p, uint64_t bytes, SIMULATOR_CALLER) {
    if (reinterpret_cast<uintptr_t>(p) % 8 || bytes % 8)
        fail("its address and its size are multiples of 8 bytes", "st.bulk", file, line);
    for (uint64_t i = 0; i < bytes; i += 8) __ptx_store<uint64_t, 1>(p + i, {0});
}

SIMULATOR_INLINE uint32_t __ptx_shared_address(uint64_t address) {
    return shared_address(__ptx_generic(address));
}
SIMULATOR_INLINE bool __ptx_is_shared(uint64_t address) {
    return __ptx_shared_address(address) != no_shared;
}
SIMULATOR_INLINE bool __ptx_is_own_shared(uint64_t address) {
    return __ptx_shared_address(address) >> 24 == current->cluster_rank;
}

}  // namespace simulator::ptx
