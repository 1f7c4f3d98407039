// What the plans of matmul and matmul_w8a16 reckon with.
#pragma once

#include "vec.cuh"

// The widths of a tile, in columns of y. Those that are no multiple of 64 are for a w by row and
// not for swiglu, and so is 192: their halves are not made of boxes of 64. Only multiples of 64
// store z or read a residual.
constexpr int kColumnsOfTiles[] = {64, 96, 128, 160, 192, 224, 256};

// Whether tiles of this width may be split along k.
constexpr bool has_split_k(int columns) {
    return columns == 64 || columns == 128 || columns == 256;
}

// ---- a model of the time, in clocks of a multiprocessor (1755 MHz). Its constants were fitted to
// some 16,000 times of 1,600 random products of 17 to 1024 rows on an H200.

constexpr double kClocksOfRow = 2.45;           // to read 64 of k of a row of x or w
constexpr double kOperationsOfClock = 32 * 64;  // multiply-adds of 16-bit floats of tensor cores

// A step of 64 of k: the tensor cores multiply while the next step is read. busy: the part of the
// time in which the tensor cores of the kernel work, where they are what takes longest.
inline double clocks_of_step(double rows, int columns, double rows_read, double busy) {
    const double products = rows * columns * 64 / (kOperationsOfClock * busy);
    const double reads = kClocksOfRow * (rows_read + columns);
    return products > reads ? products : reads;
}

// A tile of 128 rows: its steps, and its epilogue, which stores boxes of 64 columns by TMA, or
// takes longer.
constexpr double kBusyOfTiles = 0.88;
inline double clocks_of_tile_step(int columns) {
    return clocks_of_step(128, columns, 128, kBusyOfTiles);
}
inline double clocks_of_tile(int columns, int64_t steps, bool by_tma = true) {
    return clocks_of_tile_step(columns) * double(steps) + (by_tma ? 17.6 : 76) * columns;
}

// Split-K by a second kernel: that kernel, and to write and read a column of a partial product.
constexpr double kClocksOfSecondKernel = 6900, kClocksOfPartialColumn = 0.4;
