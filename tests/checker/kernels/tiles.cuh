// Boxes of one and three dimensions, and tiles that warpgroups multiply.
#pragma once
#include <cuda_fp16.h>
#include "asynchronous.cuh"

// ---- Boxes: a line of floats, and a cube of 8 x 4 x 2 of them

constexpr int threads = 64, line = 64, cube_x = 8, cube_y = 4, cube_z = 2;

inline CUtensorMap map_of_floats(const void* x, int rank, const cuuint64_t* extent,
                                 const cuuint64_t* stride, const cuuint32_t* box) {
    void* entry = nullptr;
    cudaDriverEntryPointQueryResult found;
    cudaGetDriverEntryPoint("cuTensorMapEncodeTiled", &entry, cudaEnableDefault, &found);
    alignas(64) CUtensorMap map;
    const cuuint32_t steps[] = {1, 1, 1};
    reinterpret_cast<decltype(&cuTensorMapEncodeTiled)>(entry)(
        &map, CU_TENSOR_MAP_DATA_TYPE_FLOAT32, rank, const_cast<void*>(x), extent, stride, box,
        steps, CU_TENSOR_MAP_INTERLEAVE_NONE, CU_TENSOR_MAP_SWIZZLE_NONE,
        CU_TENSOR_MAP_L2_PROMOTION_NONE, CU_TENSOR_MAP_FLOAT_OOB_FILL_NONE);
    return map;
}
inline CUtensorMap map_of_lines(const void* x) {
    const cuuint64_t extent[] = {1000};
    const cuuint32_t box[] = {line};
    return map_of_floats(x, 1, extent, nullptr, box);
}
// 25 planes of 5 rows of 8 floats.
inline CUtensorMap map_of_cubes(const void* x) {
    const cuuint64_t extent[] = {8, 5, 25}, stride[] = {32, 160};
    const cuuint32_t box[] = {cube_x, cube_y, cube_z};
    return map_of_floats(x, 3, extent, stride, box);
}

DEVICE void load_line(void* to, const CUtensorMap* map, int x, uint64_t* barrier) {
    asm volatile(
        "cp.async.bulk.tensor.1d.shared::cluster.global.mbarrier::complete_tx::bytes [%0], [%1, "
        "{%2}], [%3];" ::"r"(at(to)),
        "l"(map), "r"(x), "r"(at(barrier))
        : "memory");
}
DEVICE void load_cube(void* to, const CUtensorMap* map, int x, int y, int z, uint64_t* barrier) {
    asm volatile(
        "cp.async.bulk.tensor.3d.shared::cluster.global.mbarrier::complete_tx::bytes [%0], [%1, "
        "{%2, %3, %4}], [%5];" ::"r"(at(to)),
        "l"(map), "r"(x), "r"(y), "r"(z), "r"(at(barrier))
        : "memory");
}
DEVICE void store_line(const CUtensorMap* map, int x, const void* from) {
    asm volatile(
        "cp.async.bulk.tensor.1d.global.shared::cta.bulk_group [%0, {%1}], [%2];" ::"l"(map),
        "r"(x), "r"(at(from))
        : "memory");
}
DEVICE void store_cube(const CUtensorMap* map, int x, int y, int z, const void* from) {
    asm volatile(
        "cp.async.bulk.tensor.3d.global.shared::cta.bulk_group [%0, {%1, %2, %3}], [%4];" ::"l"(
            map),
        "r"(x), "r"(y), "r"(z), "r"(at(from))
        : "memory");
}

// ---- Tiles of A, 128 x 32 halves, and of B, 8 x 32: two warpgroups have 64 rows of A each

struct Tiles {
    char a[128 * 64], b[8 * 64];
};
constexpr int tile_bytes = sizeof(Tiles);
inline CUtensorMap map_of_a(const void* x) { return map_of(x, 60, 32, 128, 32, 64, true); }
inline CUtensorMap map_of_b(const void* x) { return map_of(x, 60, 32, 8, 32, 64, true); }
DEVICE void multiply_tiles(float (&d)[4], const Tiles& tiles, int group) {
    for (int k = 0; k < 2; k++)
        multiply(d, describe(tiles.a + group * 64 * 64 + 32 * k, 16, 512, 64),
                 describe(tiles.b + 32 * k, 16, 512, 64));
}

// ---- Attention of 64 queries of 16 numbers: 16 keys a step, and 8 numbers of their values

struct Step {
    float keys[2][64], values[64];  // each float is two halves
};
struct Weights {
    __half of[2][64 * 8];  // of the step's keys, in pieces of 8 rows by 8 columns
};
// The i-th of a thread's eight, of 16 keys in two rows, as a product leaves them.
DEVICE __half& weight_of(Weights& weights, int i) {
    const int t = threadIdx.x, row = t / 32 * 16 + t % 32 / 4 + i % 4 / 2 * 8;
    return weights.of[i / 4][row * 8 + t % 4 * 2 + i % 2];
}
DEVICE uint64_t describe_rows(const void* p) { return describe(p, 1024, 128); }
DEVICE uint64_t describe_keys(const void* p) { return describe(p, 128, 128); }
// A thread has four weights of 8 keys, in two rows.
DEVICE void exponentiate(float (&s)[2][4], float (&greatest)[2], float (&factor)[2]) {
    for (int r = 0; r < 2; r++) {
        float most =
            fmaxf(fmaxf(s[0][2 * r], s[0][2 * r + 1]), fmaxf(s[1][2 * r], s[1][2 * r + 1]));
        for (int d = 1; d < 4; d *= 2) most = fmaxf(most, __shfl_xor_sync(~0u, most, d));
        most = fmaxf(most, greatest[r]);
        factor[r] = expf(greatest[r] - most);
        greatest[r] = most;
        for (int k = 0; k < 4; k++) {
            float& weight = s[k / 2][2 * r + k % 2];
            weight = expf(weight - most);
        }
    }
}
DEVICE uint32_t pack(float a, float b) {
    const __half2 both = __floats2half2_rn(a, b);
    return *reinterpret_cast<const uint32_t*>(&both);
}
