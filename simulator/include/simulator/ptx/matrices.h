// Matrices that the lanes of a warp have together, of rows of 16 bytes: how they are loaded and
// stored. libraries/tensor_cores/matrix_rows.h has the part of each lane.
#pragma once
#include "../tensor_cores.h"
#include "meeting.h"
#include "memory.h"

namespace simulator::ptx {

struct alignas(16) MatrixRow {
    uint32_t words[4];
};

// A row for each lane that gives an address, and the words of each lane. Rows are read and written
// when all lanes have come: what another lane has stored before is there.
struct MatrixRows : Meeting {
    MatrixRow* row = nullptr;
    uint32_t rows[4], words[4];
    uint8_t count;      // of registers
    uint8_t bits = 16;  // of an element in memory; those of 4 and 6 become bytes
    bool is_transposed;
};
using __ptx_MatrixRows = MatrixRows;
SIMULATOR_INLINE uint32_t& __ptx_word_of(MatrixRows& rows, int index) { return rows.words[index]; }
SIMULATOR_INLINE uint32_t __ptx_word_of(const MatrixRows& rows, int index) {
    return rows.words[index];
}

// The address of a row, of which lanes up to 8 * count have one.
SIMULATOR_INLINE MatrixRow* row_of(uint64_t address, const char* what, const char* file, int line) {
    char* p = __ptx_shared(address);
    if (reinterpret_cast<uintptr_t>(p) % 16)
        fail("the address of a row is a multiple of 16 bytes", what, file, line);
    return reinterpret_cast<MatrixRow*>(p);
}

template <int count, bool is_transposed, int bits>
SIMULATOR_INLINE MatrixRows __ptx_load_matrices(uint64_t address, SIMULATOR_CALLER) {
    MatrixRows mine;
    mine.run = tensor_cores::distribute_rows;
    mine.count = count;
    mine.bits = bits;
    mine.is_transposed = is_transposed;
    if (lane_id() < 8 * count) {
        mine.row = row_of(address, "ldmatrix", file, line);
#ifdef __SANITIZE_THREAD__  // the checker has the lane's access
        const MatrixRow row = *mine.row;
        for (int i = 0; i < 4; i++) mine.rows[i] = row.words[i];
#endif
    }
    meet(mine, "ldmatrix", file, line);
    return mine;
}

template <int count, bool is_transposed, int bits>
SIMULATOR_INLINE void __ptx_store_matrices(uint64_t address, MatrixRows mine, SIMULATOR_CALLER) {
    mine.run = tensor_cores::collect_rows;
    mine.count = count;
    mine.bits = bits;
    mine.is_transposed = is_transposed;
    MatrixRow* const to = lane_id() < 8 * count ? row_of(address, "stmatrix", file, line) : nullptr;
#ifndef __SANITIZE_THREAD__
    mine.row = to;
    meet(mine, "stmatrix", file, line);
#else  // the checker has the lane's access
    meet(mine, "stmatrix", file, line);
    if (!to) return;
    MatrixRow row;
    for (int i = 0; i < 4; i++) row.words[i] = mine.rows[i];
    *to = row;
#endif
}

SIMULATOR_INLINE uint32_t __ptx_transpose_matrix(uint32_t words, SIMULATOR_CALLER) {
    MatrixRows mine;
    mine.run = tensor_cores::transpose;
    mine.words[0] = words;
    meet(mine, "movmatrix", file, line);
    return mine.words[0];
}

}  // namespace simulator::ptx
