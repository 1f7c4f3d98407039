// wmma.load, wmma.store and wmma.mma: nvcuda::wmma, whose fragments are lists of registers here.
#pragma once
#include <mma.h>
#include "memory.h"

namespace simulator::ptx {

template <class Use, int m, int n, int k, class T, class... Layout>
using __ptx_fragment = nvcuda::wmma::fragment<Use, m, n, k, T, Layout...>;
using __ptx_matrix_a = nvcuda::wmma::matrix_a;
using __ptx_matrix_b = nvcuda::wmma::matrix_b;
using __ptx_accumulator = nvcuda::wmma::accumulator;
using __ptx_row_major = nvcuda::wmma::row_major;
using __ptx_col_major = nvcuda::wmma::col_major;
constexpr auto __ptx_mem_row_major = nvcuda::wmma::mem_row_major;
constexpr auto __ptx_mem_col_major = nvcuda::wmma::mem_col_major;
using __ptx_tf32 = nvcuda::wmma::precision::tf32;
using __ptx_s4 = nvcuda::wmma::experimental::precision::s4;
using __ptx_u4 = nvcuda::wmma::experimental::precision::u4;
using __ptx_b1 = nvcuda::wmma::experimental::precision::b1;

template <class Use, int m, int n, int k, class T, class Layout>
constexpr auto memory_of(const nvcuda::wmma::fragment<Use, m, n, k, T, Layout>*)
    -> simulator::wmma::Memory<T>*;
template <class Fragment>
using MemoryOf = decltype(memory_of(static_cast<Fragment*>(nullptr)));

template <class Fragment, class Word, int count>
SIMULATOR_INLINE Fragment fragment_of(const Word (&registers)[count]) {
    Fragment made;
    static_assert(sizeof made.x == sizeof registers);
    __builtin_memcpy(made.x, registers, sizeof registers);
    return made;
}

template <class Word, int count, class Fragment>
SIMULATOR_INLINE void put_fragment(Word (&registers)[count], const Fragment& made) {
    static_assert(sizeof made.x == sizeof registers);
    __builtin_memcpy(registers, made.x, sizeof registers);
}

template <class Fragment, class Word, int count>
SIMULATOR_INLINE void __ptx_load_fragment(Word (&registers)[count], const char* p, unsigned stride,
                                          SIMULATOR_CALLER) {
    Fragment made;
    load_matrix_sync(
        made, reinterpret_cast<MemoryOf<Fragment>>(const_cast<char*>(p)), stride, file, line);
    put_fragment(registers, made);
}

template <class Fragment, class Word, int count>
SIMULATOR_INLINE void __ptx_load_fragment(Word (&registers)[count], const char* p, unsigned stride,
                                          nvcuda::wmma::layout_t layout, SIMULATOR_CALLER) {
    Fragment made;
    load_matrix_sync(made, reinterpret_cast<MemoryOf<Fragment>>(const_cast<char*>(p)), stride,
                     layout, file, line);
    put_fragment(registers, made);
}

template <class Fragment, class Word, int count>
SIMULATOR_INLINE void __ptx_store_fragment(char* p, const Word (&registers)[count], unsigned stride,
                                           nvcuda::wmma::layout_t layout, SIMULATOR_CALLER) {
    store_matrix_sync(reinterpret_cast<MemoryOf<Fragment>>(p), fragment_of<Fragment>(registers),
                      stride, layout, file, line);
}

template <class D, class A, class B, class C, class WordD, int of_d, class WordA, int of_a,
          class WordB, int of_b, class WordC, int of_c>
SIMULATOR_INLINE void __ptx_multiply_fragments(WordD (&d)[of_d], const WordA (&a)[of_a],
                                               const WordB (&b)[of_b], const WordC (&c)[of_c],
                                               bool saturate, bool is_and, SIMULATOR_CALLER) {
    D made;
    simulator::wmma::multiply(made, fragment_of<A>(a), fragment_of<B>(b), fragment_of<C>(c),
                              saturate, is_and, "wmma.mma", file, line);
    put_fragment(d, made);
}

}  // namespace simulator::ptx
