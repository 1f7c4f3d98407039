// Which lane of a warp has which elements of nvcuda::wmma's fragments: as on an H100, where their
// places are the same whatever the layout of the matrix in memory.
#pragma once
#include "asynchronous.h"
#include "ptx/meeting.h"
#include "tensor_cores.h"

namespace simulator::tensor_cores {

// A and B consist of lines: rows of A, columns of B. A line consists of units along k, which are 4
// bytes or one double. Lanes are in groups of four, each of which has one unit of four. Further
// ones are 4 units or 8 lines away, and then 16.
struct Factor {
    int lines, units;
    bool lines_first;  // whether 8 lines come before 4 units

    struct Place {
        int line, unit;
    };

    constexpr int units_of_lane() const { return lines * units / 32; }

    constexpr Place place(int lane, int i) const {
        const int eights = lines == 8 ? 1 : 2, fours = units / 4;
        const int eight = lines_first ? i % eights : i / fours % eights;
        const int four = lines_first ? i / eights % fours : i % fours;
        const int sixteen = i / (eights * fours);
        return {lane / 4 + 8 * eight + 16 * sixteen, lane % 4 + 4 * four};
    }
};

// B of 32 columns is what A of 32 rows is.
constexpr Factor factor(bool is_a, int lines, int units) {
    return {lines, units, is_a || lines == 32};
}

// An accumulator's element i of a lane. Two are neighbours: in a row, but in a column of m8n32.
struct Element {
    int row, column;
};

constexpr bool has_columns(int m, int n) { return m < n; }

constexpr Element element(int m, int n, int lane, int i) {
    const int group = lane / 4, two = lane % 4 * 2 + i % 2;
    if (m == 16) return {group + i / 2 % 2 * 8, two + i / 4 * 8};
    if (has_columns(m, n)) return {two, group + i / 2 * 8};
    return {group + i / 2 * 8, two};
}

// A product, with the elements of one lane.
struct WarpFragments : Fragments {
    const char* file;
    int line;
};
SIMULATOR_EXPORT void multiply_warp_fragments(Meeting* const* lanes, uint32_t which);

// Lanes wait for each other before a matrix is loaded or stored, and after it is stored: a kernel
// may count on what hardware does, where they go through it together.
SIMULATOR_EXPORT void come_to_load(Meeting* const* lanes, uint32_t which);
SIMULATOR_EXPORT void come_to_store(Meeting* const* lanes, uint32_t which);

SIMULATOR_INLINE void wait_to_load(const char* file, int line) {
    Meeting mine{come_to_load};
    ptx::meet(mine, "load_matrix_sync", file, line);
}

SIMULATOR_INLINE void wait_to_store(const char* file, int line) {
    Meeting mine{come_to_store};
    ptx::meet(mine, "store_matrix_sync", file, line);
}

// What is loaded and stored at once.
template <class T, int count>
struct alignas(sizeof(T) * count) Vector {
    T x[count];
};

template <class Vector>
SIMULATOR_INLINE void want_aligned(const void* p, size_t line_bytes, const char* what,
                                   const char* file, int line) {
    if ((reinterpret_cast<uintptr_t>(p) | line_bytes) % sizeof(Vector))
        fail("the address is a multiple of 32 bytes, and ldm means one of 16", what, file, line);
}

}  // namespace simulator::tensor_cores
