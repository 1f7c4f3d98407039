// The pipeline of CUDA 11: its asynchronous copies, as a class.
#pragma once
#include "cuda_pipeline_primitives.h"

namespace nvcuda::experimental {

class pipeline {
  public:
    pipeline() = default;
    pipeline(const pipeline&) = delete;
    pipeline& operator=(const pipeline&) = delete;

    size_t commit() {
        __pipeline_commit();
        return batches++;
    }
    void commit_and_wait(SIMULATOR_CALLER) {
        commit();
        wait_prior<0>(file, line);
    }
    void wait(size_t batch, SIMULATOR_CALLER) {
        __pipeline_wait_prior(batches > batch ? batches - batch : 0, file, line);
    }
    template <unsigned N>
    void wait_prior(SIMULATOR_CALLER) {
        __pipeline_wait_prior(N, file, line);
    }

  private:
    size_t batches = 0;
};

// The first N elements from there on.
template <size_t N, class T>
auto segment(T* first) -> T (*)[N] {
    return reinterpret_cast<T(*)[N]>(first);
}

template <class T>
void memcpy_async(T& to, const T& from, pipeline&, SIMULATOR_CALLER) {
    static_assert(__is_trivially_copyable(T), "an asynchronous copy is made bit by bit");
    constexpr size_t piece = alignof(T) < 16 ? alignof(T) : 16;
    simulator::add_copy({reinterpret_cast<char*>(&to), reinterpret_cast<const char*>(&from),
                         sizeof(T) / piece, piece, piece, 0},
                        "memcpy_async", file, line);
}

// What the source is too short for becomes zeros.
template <class T, size_t ToN, size_t FromN>
void memcpy_async(T (*to)[ToN], const T (*from)[FromN], pipeline&, SIMULATOR_CALLER) {
    static_assert(__is_trivially_copyable(T), "an asynchronous copy is made bit by bit");
    static_assert(FromN <= ToN, "the source has no more elements than the destination");
    __pipeline_memcpy_async(to, from, sizeof(*to), sizeof(*to) - sizeof(*from), file, line);
}

}  // namespace nvcuda::experimental
