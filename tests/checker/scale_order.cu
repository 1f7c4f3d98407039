// A product of MXFP8, or of NVFP4, with its scale factors [rows, blocks] by rows: a thread puts
// those of its row and 4 blocks where tcgen05.cp wants them, or elsewhere.
#include "kernels/tensor_order.cuh"

enum Order { kRight, kByRows, kOtherWay, kHalvesSwapped, kTransposed, kFirstBlocks };

DEVICE int place_of(int row, int order) {
    switch (order) {
        case kByRows:
            return row;
        case kOtherWay:
            return row % 4 * 32 + row / 4;  // the inverse of the right one
        case kHalvesSwapped:
            return (row ^ 64) % 32 * 4 + (row ^ 64) / 32;
        case kTransposed:
            return row % 64 * 2 + row / 64;
        default:
            return row % 32 * 4 + row / 32;
    }
}

// Rows of 32 bytes of a step, as core matrices of 8 rows.
DEVICE void put_row(unsigned char* tile, const unsigned char* from) {
    const int row = threadIdx.x;
    for (int unit = 0; unit < 2; unit++)
        for (int i = 0; i < 16; i++)
            tile[row / 8 * 256 + unit * 128 + row % 8 * 16 + i] = from[unit * 16 + i];
}

#define MULTIPLY(kind)                                                                        \
    asm volatile("{ .reg .pred p; setp.ne.b32 p, %5, 0; tcgen05.mma.cta_group::1.kind::" kind \
                 " [%0], %1, %1, %2, [%3], [%4], p; }" ::"r"(columns),                        \
                 "l"(from), "r"(instruction), "r"(of_a), "r"(of_b), "r"(step))

// x [128 blocks, row_bytes], scales [128 blocks, row_bytes / of_scale], y [128, 32] = x x^T of the
// first 32 columns, of each 128 rows.
template <bool is_nvfp4>
__global__ void multiply_with(const unsigned char* x, const unsigned char* scales_of_x, float* y,
                              int row_bytes, int order, int of_b) {
    constexpr int of_scale = is_nvfp4 ? 8 : 32, steps_of_word = is_nvfp4 ? 1 : 4;
    __shared__ alignas(128) unsigned char tile[4096];
    __shared__ alignas(128) unsigned scales[2][128];
    __shared__ alignas(8) uint64_t barrier;
    __shared__ unsigned columns;
    const int row = blockIdx.x * 128 + threadIdx.x, steps = row_bytes / 32;
    if (threadIdx.x < 32) allocate(&columns, 256);
    if (threadIdx.x == 0) init(&barrier, 1), fence_init();
    __syncthreads();
    for (int step = 0; step < steps; step++) {
        put_row(tile, x + size_t(row) * row_bytes + step * 32);
        const unsigned* words =
            reinterpret_cast<const unsigned*>(scales_of_x) + row * (row_bytes / of_scale / 4);
        const unsigned right = words[step / steps_of_word];
        const unsigned wrong = order == kFirstBlocks ? words[0] : right;
        scales[0][place_of(threadIdx.x, of_b ? kRight : order)] = of_b ? right : wrong;
        scales[1][place_of(threadIdx.x, of_b ? order : kRight)] = of_b ? wrong : right;
        fence_proxy();
        __syncthreads();
        if (threadIdx.x == 0) {
            const unsigned of_a = columns + 128, of_b = columns + 132;
            copy_scales(of_a, scales[0]), copy_scales(of_b, scales[1]);
            const unsigned id = is_nvfp4 ? 0 : step % 4;
            const unsigned shape = (is_nvfp4 ? of_4_bits & ~(1u << 23) : scaled) & ~(63u << 17);
            const unsigned instruction = shape | 128 / 8 << 17 | id << 29 | id << 4;
            const long long from = (at(tile) & 0x3ffff) >> 4 | 1ll << 46 | 16ll << 32 | 8ll << 16;
            if (is_nvfp4)
                MULTIPLY(NVFP4);
            else
                MULTIPLY(MXFP8);
            commit_to(&barrier);
        }
        wait_at(&barrier, step % 2);
        __syncthreads();
    }
    after();
    unsigned word;
    for (int column = 0; column < 32; column++) {
        LOAD(word, columns + column);
        loaded();
        y[row * 32 + column] = __uint_as_float(word);
    }
    before();
    __syncthreads();
    if (threadIdx.x < 32) deallocate(columns, 256);
}

extern "C" void mxfp8(const unsigned char* x, const unsigned char* scales, float* y, int rows,
                      int row_bytes, int order, int of_b) {
    multiply_with<false><<<rows / 128, threads>>>(x, scales, y, row_bytes, order, of_b);
}
extern "C" void nvfp4(const unsigned char* x, const unsigned char* scales, float* y, int rows,
                      int row_bytes, int order, int of_b) {
    multiply_with<true><<<rows / 128, threads>>>(x, scales, y, row_bytes, order, of_b);
}
