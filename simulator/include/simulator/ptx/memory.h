// Loads and stores, and addresses of the state spaces.
#pragma once
#include "../shared_window.h"
#include "values.h"

namespace simulator::ptx {

// Where an address leads, by its state space. A generic one is a pointer, and so is a global one.
SIMULATOR_INLINE char* shared(uint64_t address) { return shared_pointer(address); }
SIMULATOR_INLINE char* generic(uint64_t address) { return reinterpret_cast<char*>(address); }

// What is read or written at once stays one access for the checker: no more than 16 bytes.
template <class T, int count>
struct [[gnu::may_alias]] alignas(sizeof(T) * count <= 16 ? sizeof(T) * count : 16) Vector {
    T values[count];
};

template <class T, int count = 1>
SIMULATOR_INLINE Vector<T, count> load(const char* p) {
    return *reinterpret_cast<const Vector<T, count>*>(p);
}
template <class T, int count>
SIMULATOR_INLINE void store(char* p, const Vector<T, count>& values) {
    *reinterpret_cast<Vector<T, count>*>(p) = values;
}

}  // namespace simulator::ptx
