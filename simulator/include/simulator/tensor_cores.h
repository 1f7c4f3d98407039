// What a tensor core computes: D = A B + C for one tile, bit for bit as on compute capability 9.0.
// libraries/tensor_cores.cpp says how it rounds.
#pragma once
#include "block.h"

namespace simulator::tensor_cores {

// E2M1 lies packed, two to a byte. E2M3, E3M2 and ByteE2M1 have a byte each: 6 bits in its lower
// ones, 4 bits in bits 2 to 5.
enum class Type : uint8_t {
    F16,
    BF16,
    TF32,
    E4M3,
    E5M2,
    F64,
    S8,
    U8,
    S4,
    U4,
    B1,
    F32,
    S32,
    E2M3,
    E3M2,
    ByteE2M1,
    E2M1
};

// How the products of floating-point types are summed.
enum class Sum : uint8_t {
    Exact25,    // of all k at once, with 25 bits behind the largest exponent's
    Exact13,    // the same with 13 bits: what wgmma does with 8-bit types
    TwoHalves,  // what mma.sync does with 8-bit types: pairs of k by turns, C last
    Blackwell   // Exact25, where a zero among the terms has an exponent, too
};

// Elements lie densely: A as m rows of k, B as n columns of k, C and D as m rows of n. Those of
// less than a byte are packed, the first in the lowest bits.
struct Tile {
    Type a, b, d;
    uint8_t m;
    uint16_t n, k;
    Sum sum = Sum::Exact25;
    bool saturate = false;            // integers
    bool is_and = false;              // single bits: `and`, else `xor`, before they are counted
    int8_t scale_a = 1, scale_b = 1;  // 1 or -1
    bool a_is_column = false, b_is_row = false;  // of m8n8k4 alone
};

// d holds C before, and D afterwards.
SIMULATOR_EXPORT void multiply(const Tile& tile, const void* a, const void* b, void* d);

// The words in which one lane has its elements of a tile, as PTX's chapter on mma.sync shows.
struct Fragments : Meeting {
    const Tile* tile;
    const void *a, *b;
    void* d;
};

// Of a sparse A the tile has the k that A has, half of B's. Metadata says where they are.
struct SparseFragments : Fragments {
    uint32_t metadata;
    unsigned selector;  // which lanes of four have the metadata
};

// Scales of blocks along k: UE8M0 is a power of two, UE4M3 is E4M3 without its sign.
struct BlockScales {
    bool is_ue4m3;
    uint8_t count;  // of a row of A and of a column of B: 1, 2 or 4; with 96 of k 3 or 6
};

// And where rows of A and columns of B have scales: the first byte of a lane's word, and which
// lanes of four have it.
struct ScaledFragments : Fragments {
    BlockScales scales;
    uint32_t scale_a, scale_b;
    unsigned byte_a, lane_a, byte_b, lane_b;
    bool is_sparse = false;  // A, as in SparseFragments with the selector 0
    uint32_t metadata;
};

// What lanes do when they meet: with Fragments, and with the MatrixRows of ptx/matrices.h.
SIMULATOR_EXPORT void multiply_fragments(Meeting* const* lanes, uint32_t which);
SIMULATOR_EXPORT void multiply_sparse_fragments(Meeting* const* lanes, uint32_t which);
SIMULATOR_EXPORT void multiply_scaled_fragments(Meeting* const* lanes, uint32_t which);
SIMULATOR_EXPORT void distribute_rows(Meeting* const* lanes, uint32_t which);
SIMULATOR_EXPORT void collect_rows(Meeting* const* lanes, uint32_t which);
SIMULATOR_EXPORT void transpose(Meeting* const* lanes, uint32_t which);

// A product of a warpgroup: 64 rows of A, from registers or, as B, from shared memory.
struct WarpgroupTile {
    Tile tile;  // of one warp: m is 16
    bool a_in_registers;
    bool a_is_transposed, b_is_transposed;  // in shared memory: m or n is contiguous, not k
    bool is_sparse = false;                 // A, as in SparseFragments
    unsigned selector = 0;
};

// What all lanes of a warp ask for, one by one: D is where its accumulators lie.
SIMULATOR_EXPORT void ask(const WarpgroupTile& tile, const uint32_t* a, uint64_t descriptor_a,
                          uint64_t descriptor_b, uint32_t metadata, bool accumulates,
                          void* const* d, int count, const char* file, int line);
SIMULATOR_EXPORT void commit();

// And what they wait for: all groups but the last `prior`.
struct Wait : Meeting {
    unsigned prior, thread;
};
SIMULATOR_EXPORT void carry_out(Meeting* const* lanes, uint32_t which);

}  // namespace simulator::tensor_cores
