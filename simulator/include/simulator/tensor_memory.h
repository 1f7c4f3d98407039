// Tensor memory, which compute capability 10.0 has: 128 lanes of 512 columns of 32 bits for each
// block, and what works on it. libraries/tensor_cores/tensor_memory.h and tcgen05.h carry it out.
//
// An address has the lane in its upper 16 bits and the column in its lower ones. What is
// asynchronous is kept, and carried out when it is waited for: loads and stores by a thread's own
// wait, all else by whoever waits for the mbarrier that tcgen05.commit tells.
#pragma once
#include "bulk_copy.h"
#include "tensor_cores.h"

namespace simulator::tensor_cores {

// What the lanes of a warp ask for together.
struct Allocation : Meeting {
    uint32_t address, count;
    bool is_granted, is_first;  // the first of the lanes is to write the address
    const char* file;
    int line;
};
SIMULATOR_EXPORT void allocate(Meeting* const* lanes, uint32_t which);
SIMULATOR_EXPORT void deallocate(Meeting* const* lanes, uint32_t which);
SIMULATOR_EXPORT void relinquish(Meeting* const* lanes, uint32_t which);

// A load or a store by a warp: `lanes` x `bits` of memory for each repetition. Of Lanes16x32x2 the
// second 16 lanes are `split` columns further on.
enum class Shape : uint8_t {
    Lanes32x32,
    Lanes16x64,
    Lanes16x128,
    Lanes16x256,
    Lanes16x32x2,
};
struct TensorAccess {
    Shape shape;
    bool is_store;
    bool is_packed;  // 16 bits of a column each: two columns in a register
    uint32_t address, split;
    const char* file;
    int line;
};
// Each thread asks, with its registers: where a load puts them, or what a store takes.
SIMULATOR_EXPORT void ask(const TensorAccess& access, void* const* registers, int count);
struct AccessWait : Meeting {
    unsigned thread;
    bool of_stores;
};
SIMULATOR_EXPORT void carry_out_accesses(Meeting* const* lanes, uint32_t which);

enum class ProductKind : uint8_t { F16, TF32, F8F6F4, I8, MXF8F6F4, MXF4, MXF4NVF4 };
// What a copy makes of 16 bytes: 16 numbers of 6 or of 4 bits, which lie packed in the first 12 or
// 8, get a byte each.
enum class Unpacking : uint8_t { None, From6Bits, From4Bits };
struct TensorOperation {
    enum Kind : uint8_t { Product, Copy, Shift } kind;
    uint8_t blocks;    // 1, or 2: the pair of blocks of a cluster
    uint32_t to;       // where D is, or what is copied or shifted
    uint64_t a, b;     // descriptors; of a copy it is `b`
    bool a_in_memory;  // of tensors: `a` is an address there
    ProductKind product;
    uint32_t instruction;  // its descriptor
    bool accumulates;
    uint8_t scale;                      // D counts 2^-scale before
    uint32_t disabled[8];               // lanes of D that are not written, for each block
    uint8_t scales;                     // of a row of A and of a column of B, or 0
    uint32_t scales_of_a, scales_of_b;  // where they are, in tensor memory
    bool is_sparse;                     // .sp: A has two of four units along k,
    uint32_t metadata;                  // and this is where tensor memory says which
    bool is_stationary;                 // .ws
    uint64_t zero_columns;              // its descriptor, or 0
    bool shifts_a;                      // .ashift: rows of A in tensor memory move down by one
    // A copy: so many lanes of so many bytes, and for each quarter of the memory the first of them.
    uint8_t lanes, bytes, quarters[4];
    Unpacking unpacking;
    // Set where it is asked for. A program may make members without a value an error.
    const char* file = "";
    int line = 0;
    uint32_t architecture = 0;  // __CUDA_ARCH__ of who asks
};
inline const char* name_of(const TensorOperation& operation) {
    constexpr const char* names[] = {"tcgen05.mma", "tcgen05.cp", "tcgen05.shift"};
    return names[operation.kind];
}
SIMULATOR_EXPORT void ask(const TensorOperation& operation);

// What an access or an operation uses, for who watches: columns of tensor memory, and matrices in
// the shared memory of its blocks, with descriptors as wgmma has them.
struct ColumnRange {
    uint32_t first, count;
    bool meets(const ColumnRange& other) const {
        return first < other.first + other.count && other.first < first + count;
    }
    bool operator==(const ColumnRange& other) const {
        return first == other.first && count == other.count;
    }
};
struct SharedMatrix {
    const Block* block;
    uint64_t descriptor;
    bool is_transposed;
    uint32_t lines, row_bytes, element_bytes;
};
struct TensorUse {
    const char *what, *file;
    int line;
    bool is_access;            // of a warp, which reaches a quarter of the lanes
    bool is_told = false;      // that it is in conflict with what is under way
    bool accumulates = false;  // a product adds to what is in written[0]
    uint32_t lane = 0;         // of an access: the first of its address
    const Block* blocks[2];
    const uint32_t* cells[2];  // of each block: 128 lanes of 512 columns
    int block_count = 1, written_count = 0, read_count = 0, scale_count = 0, matrix_count = 0;
    ColumnRange written[2], read[4], scales[2];  // scales: those of what is read
    SharedMatrix matrices[8];   // of a product A and B for each block, unless A is in tensor memory
    uint8_t scales_of_row = 0;  // of a product: scale factors for each row of A or column of B

    void writes(ColumnRange range) { written[written_count++] = range; }
    void reads(ColumnRange range) { read[read_count++] = range; }
};
SIMULATOR_EXPORT TensorUse use_of(const TensorAccess& access, int count);
SIMULATOR_EXPORT TensorUse use_of(const TensorOperation& operation);

// What is under way in the same columns of tensor memory: nobody has waited for it. Without `file`,
// nothing is.
struct Conflict {
    const char* what;
    const char* file;
    int line;
};
SIMULATOR_EXPORT Conflict conflict_of(const TensorAccess& access, int count);
SIMULATOR_EXPORT Conflict conflict_of(const TensorOperation& operation);
SIMULATOR_EXPORT Conflict conflict_of(uint32_t first, uint32_t count);  // of any use
// What a barrier is told when all that the thread has asked for so far is done.
SIMULATOR_EXPORT BulkCopy completion();

}  // namespace simulator::tensor_cores
