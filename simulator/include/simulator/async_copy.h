// Copies that a thread asks for and later waits for. Each is carried out as late as it may be, when
// the thread waits for it: code that forgets to wait fails here as it may fail on a GPU.
#pragma once
#include "block.h"

namespace simulator {

// `count` pieces of 1, 2, 4, 8 or 16 bytes, `stride` bytes apart, and so many bytes of zeros behind
// the last.
struct AsyncCopy {
    char* to;
    const char* from;
    size_t count, stride;
    uint8_t piece, zeros;
};

// Of the running thread: one copy more; those so far are a batch; and the next to carry out, if all
// batches but the last `prior` are to be complete. False if none is left.
SIMULATOR_EXPORT void add_copy(const AsyncCopy& copy);
SIMULATOR_EXPORT void commit_copies();
SIMULATOR_EXPORT bool take_due_copy(size_t prior, AsyncCopy& copy);

template <class Word>
void copy_pieces(const AsyncCopy& copy) {
    for (size_t i = 0; i < copy.count * copy.stride; i += copy.stride)
        *reinterpret_cast<Word*>(copy.to + i) = *reinterpret_cast<const Word*>(copy.from + i);
}

SIMULATOR_INLINE void wait_for_copies(size_t prior) {
    for (AsyncCopy copy; take_due_copy(prior, copy);) {
        switch (copy.piece) {
            case 16:
                copy_pieces<uint4>(copy);
                break;
            case 8:
                copy_pieces<uint2>(copy);
                break;
            case 4:
                copy_pieces<uint32_t>(copy);
                break;
            case 2:
                copy_pieces<uint16_t>(copy);
                break;
            default:
                copy_pieces<char>(copy);
        }
        char* const end = copy.to + copy.count * copy.piece;
        for (unsigned i = 0; i < copy.zeros; i++) end[i] = 0;
    }
}

}  // namespace simulator
