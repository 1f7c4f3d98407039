// Matrices that the lanes of a warp have together, 8 x 8 elements of 16 bits: how they are loaded
// and stored. libraries/tensor_cores/fragments.h has the part of each lane.
#pragma once
#include "../tensor_cores.h"
#include "meeting.h"
#include "memory.h"

namespace simulator::ptx {

// A row for each lane that gives an address, and the words of each lane.
struct MatrixRows : Meeting {
    uint32_t rows[4], words[4];
    uint8_t count;
    bool is_transposed;
};

struct alignas(16) MatrixRow {
    uint32_t words[4];
};

// The address of a row, of which lanes up to 8 * count have one.
SIMULATOR_INLINE MatrixRow* row_of(uint64_t address, const char* what, const char* file, int line) {
    char* p = shared(address);
    if (reinterpret_cast<uintptr_t>(p) % 16)
        fail("the address of a row is a multiple of 16 bytes", what, file, line);
    return reinterpret_cast<MatrixRow*>(p);
}

template <int count, bool is_transposed>
SIMULATOR_INLINE MatrixRows load_matrices(uint64_t address, SIMULATOR_CALLER) {
    MatrixRows mine;
    mine.run = tensor_cores::distribute_rows;
    mine.count = count;
    mine.is_transposed = is_transposed;
    if (lane_id() < 8 * count) {
        const MatrixRow row = *row_of(address, "ldmatrix", file, line);
        for (int i = 0; i < 4; i++) mine.rows[i] = row.words[i];
    }
    meet(mine, "ldmatrix", file, line);
    return mine;
}

template <int count, bool is_transposed>
SIMULATOR_INLINE void store_matrices(uint64_t address, MatrixRows mine, SIMULATOR_CALLER) {
    mine.run = tensor_cores::collect_rows;
    mine.count = count;
    mine.is_transposed = is_transposed;
    meet(mine, "stmatrix", file, line);
    if (lane_id() < 8 * count) {
        MatrixRow row;
        for (int i = 0; i < 4; i++) row.words[i] = mine.rows[i];
        *row_of(address, "stmatrix", file, line) = row;
    }
}

SIMULATOR_INLINE uint32_t transpose_matrix(uint32_t words, SIMULATOR_CALLER) {
    MatrixRows mine;
    mine.run = tensor_cores::transpose;
    mine.words[0] = words;
    meet(mine, "movmatrix", file, line);
    return mine.words[0];
}

}  // namespace simulator::ptx
