// Rows that begin anywhere, copied to where each begins on a multiple of 16 bytes, as kernels with
// tensor cores read them. Traffic: each row is read and written once.
#pragma once

#include "matmul.h"
#include "vec.cuh"

// The 16 bytes from any address on. Those of another row, which `before` bytes from there are
// behind and `left` ahead, are 0 and not read: aligned words, shifted by the bytes before `from` in
// one.
__device__ inline Vec<uint32_t, 4> load_bytes(const uint8_t* from, int64_t before, int64_t left) {
    constexpr int kWord = sizeof(uint32_t);
    const int shift = int(reinterpret_cast<uintptr_t>(from) % kWord);
    uint32_t words[5];
#pragma unroll
    for (int i = 0; i < 5; ++i) {
        const int first = kWord * i - shift;
        words[i] = 0;
        if (first >= -before && first + kWord <= left) {
            words[i] = *reinterpret_cast<const uint32_t*>(from + first);
        } else {
            for (int b = 0; b < kWord; ++b)
                if (first + b >= -before && first + b < left)
                    words[i] |= uint32_t(from[first + b]) << 8 * b;
        }
    }
    Vec<uint32_t, 4> all;
#pragma unroll
    for (int i = 0; i < 4; ++i) all[i] = __funnelshift_r(words[i], words[i + 1], 8 * shift);
    return all;
}

// A block has several rows, if they are narrow, and a thread kBytes of each.
template <int kBytes>
__global__ void align_rows(RowsToAlign of) {
    const int64_t begin = (int64_t(blockIdx.x) * blockDim.x + threadIdx.x) * kBytes;
    if (begin >= of.stride) return;
    const int64_t down = int64_t(gridDim.y) * blockDim.y;
    for (int64_t row = int64_t(blockIdx.y) * blockDim.y + threadIdx.y; row < of.batch * of.rows;
         row += down) {
        const int64_t matrix = of.batch == 1 ? 0 : row / of.rows;
        const uint8_t* const from =
            of.from + matrix * of.from_matrix + (row - matrix * of.rows) * of.from_row;
        store(reinterpret_cast<uint32_t*>(of.to + row * of.stride + begin),
              load_bytes(from + begin, begin, of.bytes - begin));
    }
}

// A launch whose threads have a vector each of a row: a block has several rows, if they are narrow.
struct VectorsOfRows {
    static constexpr int kThreads = 256;  // of a block
    dim3 block, grid;
    VectorsOfRows(int64_t vectors, int64_t rows) {
        unsigned across = 8;
        while (across < kThreads && across < vectors) across *= 2;
        block = dim3(across, kThreads / across);
        const int64_t down = smaller<int64_t>(ceil_div<int64_t>(rows, block.y), 65535);
        grid = dim3(ceil_div<int64_t>(vectors, across), down);
    }
};

inline cudaError_t launch_align_rows(const RowsToAlign& of, cudaStream_t stream) {
    const int64_t vectors = of.stride / kVecBytes, rows = of.batch * of.rows;
    if (vectors * rows == 0) return cudaSuccess;
    const VectorsOfRows launch(vectors, rows);
    align_rows<kVecBytes><<<launch.grid, launch.block, 0, stream>>>(of);
    return cudaGetLastError();
}
