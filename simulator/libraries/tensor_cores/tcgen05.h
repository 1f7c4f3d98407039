// Products, copies and shifts in tensor memory, in the order in which a thread has asked for them.
//
// How a B200 rounds was not measured for this: float16, bfloat16 and tf32 as wgmma does, types of 8
// bits with 25 bits, too, as Xie and others ("MMA-Sim", 2025) found.
#pragma once
#include <stdio.h>
#include "tensor_memory.h"

namespace simulator::tensor_cores {
namespace {

// The blocks that take part, each with its memory.
struct Pair {
    int count;
    const Block* blocks[2];
    TensorMemory* memories[2];

    Pair(const Block& block, const TensorOperation& it) : count(it.blocks) {
        blocks[0] = &block;
        if (count == 2) {
            if (!block.cluster || count_cluster(block) % 2)
                fail("cta_group::2 needs a cluster of an even number of blocks", "tcgen05", it.file,
                     it.line);
            for (unsigned i = 0; i < 2; i++)
                blocks[i] = block.cluster[(block.cluster_rank & ~1u) | i];
        }
        for (int i = 0; i < count; i++) memories[i] = &memory_of(*blocks[i]);
    }
};

// The instruction descriptor, and what follows from it.
struct Instruction {
    uint32_t bits;
    Tile tile;  // of 64 rows at most, for each block
    int m, n, blocks;
    bool a_is_transposed, b_is_transposed;

    uint32_t field(int from, int width) const { return bits >> from & ((1u << width) - 1); }
    int rows() const { return m / blocks; }  // of a block

    explicit Instruction(const TensorOperation& it) : bits(it.instruction), blocks(it.blocks) {
        m = int(field(24, 5)) * 16;
        n = int(field(17, 6)) * 8;
        a_is_transposed = field(15, 1);
        b_is_transposed = field(16, 1);
        const uint32_t a = field(7, 3), b = field(10, 3), d = field(4, 2);
        tile = {};
        tile.m = 64;
        tile.n = uint16_t(n);
        switch (it.product) {
            case ProductKind::F16:
                set(it, "0 (F16) or 1 (BF16)", a < 2 && a == b, a ? Type::BF16 : Type::F16,
                    b ? Type::BF16 : Type::F16);
                break;
            case ProductKind::TF32:
                set(it, "2 (TF32)", a == 2 && b == 2, Type::TF32, Type::TF32);
                break;
            case ProductKind::F8F6F4:
                set(it, "0 (E4M3) or 1 (E5M2) here, not of 6 or 4 bits", a < 2 && b < 2,
                    a ? Type::E5M2 : Type::E4M3, b ? Type::E5M2 : Type::E4M3);
                break;
            case ProductKind::I8:
                set(it, "0 (unsigned) or 1 (signed)", a < 2 && b < 2, a ? Type::S8 : Type::U8,
                    b ? Type::S8 : Type::U8);
                break;
        }
        const bool is_integer = it.product == ProductKind::I8;
        if (is_integer ? d != 2 : d > 1 || (d == 0 && it.product == ProductKind::TF32))
            refuse(it, "its type of D, bits 4 and 5, is %u", d);
        tile.d = is_integer ? Type::S32 : d ? Type::F32 : Type::F16;
        tile.k = uint16_t(256 / bits_of(tile.a));
        tile.saturate = is_integer && field(3, 1);
        tile.scale_a = field(13, 1) ? -1 : 1;
        tile.scale_b = field(14, 1) ? -1 : 1;
        if (field(2, 1)) refuse(it, "bit 2 says that A is sparse (%u)", 1u);
        if (rows() != 64 && rows() != 128)
            refuse(it,
                   blocks == 1 ? "M is %u: it is 64 or 128 with cta_group::1"
                               : "M is %u: it is 128 or 256 with cta_group::2",
                   uint32_t(m));
        const int step = m == 64 ? 8 : blocks == 2 && !is_integer ? 16 : blocks == 2 ? 32 : 16;
        if (n < step || n > 256 || (n % step && !(is_integer && (n == 8 || n == 24))))
            refuse(
                it, "N is %u: it is a multiple of 8 with M = 64, of 16 else, to 256", uint32_t(n));
    }

    void set(const TensorOperation& it, const char* wanted, bool is_known, Type a, Type b) {
        if (!is_known)
            fail_with("tcgen05.mma", it.file, it.line,
                      "its instruction descriptor is 0x%08x: the types of A and B, bits 7 to 12, "
                      "are %s",
                      bits, wanted);
        tile.a = a;
        tile.b = b;
    }
    [[noreturn]] void refuse(const TensorOperation& it, const char* reason, uint32_t value) const {
        char text[200];
        snprintf(text, sizeof text, reason, value);
        fail_with("tcgen05.mma", it.file, it.line, "its instruction descriptor is 0x%08x: %s", bits,
                  text);
    }

    // Where row i of a block is: 64 rows are in the first half of each quarter of the lanes, or,
    // of a pair, in the lower half, and the second half of the columns in the upper.
    bool is_halved() const { return blocks == 2 && rows() == 64; }
    uint32_t lane(int row) const {
        return uint32_t(rows() == 64 && blocks == 1 ? row / 16 * 32 + row % 16 : row);
    }
};

// A matrix in shared memory, as the chapter on tcgen05 of PTX's manual has it.
Descriptor descriptor_of(uint64_t bits, const TensorOperation& it, const char* what) {
    const uint32_t layout = bits >> 61;
    if (layout == 1 || layout % 2)
        fail_with(what, it.file, it.line,
                  "its matrix descriptor is 0x%016llx: the swizzle, bits 61 to 63, is %u",
                  (unsigned long long)bits, layout);
    Descriptor found(bits & ~(7ull << 61));
    found.swizzle = (const uint32_t[]){0, 128, 64, 32}[layout / 2];
    return found;
}

// Part of a row of D as a product has it, and as tensor memory does: float16 has a column, too.
void take_row(const uint32_t* cells, int count, Type type, int scale, char* to) {
    for (int i = 0; i < count; i++) {
        if (type == Type::F16) {
            const uint16_t half = uint16_t(cells[i]);
            const uint16_t scaled = scale ? float16_of(ldexp(float_of_half(half), -scale)) : half;
            memcpy(to + i * 2, &scaled, 2);
        } else if (scale) {
            float value;
            memcpy(&value, &cells[i], 4);
            value = ldexpf(value, -scale);
            memcpy(to + i * 4, &value, 4);
        } else {
            memcpy(to + i * 4, &cells[i], 4);
        }
    }
}
void put_row(const char* from, int count, Type type, uint32_t* cells) {
    for (int i = 0; i < count; i++) {
        cells[i] = 0;
        const int size = type == Type::F16 ? 2 : 4;
        memcpy(&cells[i], from + i * size, size);
    }
}

void multiply(const Pair& pair, const TensorOperation& it) {
    const char* what = "tcgen05.mma";
    const Instruction instruction(it);
    const Tile& tile = instruction.tile;
    const int rows = instruction.rows(), n = instruction.n, size = bits_of(tile.d) / 8;
    const int columns = instruction.is_halved() ? n / 2 : n;
    constexpr uint32_t row_bytes = 32;
    alignas(64) static thread_local char a[64 * row_bytes], b[256 * row_bytes], d[64 * 256 * 4];
    const int of_each = n / pair.count;
    const Descriptor of_b = descriptor_of(it.b, it, what);
    for (int i = 0; i < pair.count; i++)
        gather(*pair.blocks[i], of_b, instruction.b_is_transposed, 0, of_each, row_bytes,
               bits_of(tile.b) / 8, b + i * of_each * row_bytes);
    const uint32_t base = it.to >> 16, column = it.to & 0xffff;
    for (int i = 0; i < pair.count; i++) {
        TensorMemory& memory = *pair.memories[i];
        want_columns(memory, it.to, columns, what, it.file, it.line);
        if (it.a_in_memory) want_columns(memory, uint32_t(it.a), 8, what, it.file, it.line);
        for (int first = 0; first < rows; first += 64) {
            if (it.a_in_memory) {
                const uint32_t lane_of_a = uint32_t(it.a) >> 16, column_of_a = it.a & 0xffff;
                for (int row = 0; row < 64; row++)
                    memcpy(a + row * row_bytes,
                           memory.row(lane_of_a + instruction.lane(first + row)) + column_of_a,
                           row_bytes);
            } else {
                gather(*pair.blocks[i], descriptor_of(it.a, it, what), instruction.a_is_transposed,
                       first, 64, row_bytes, bits_of(tile.a) / 8, a);
            }
            // Each half of a row of D where it is, or both at once.
            const auto for_each_part = [&](auto visit) {
                for (int row = 0; row < 64; row++) {
                    for (int part = 0; part < n / columns; part++) {
                        const uint32_t lane =
                            base + instruction.lane(first + row) + uint32_t(part) * 64;
                        visit(lane % all_lanes, memory.row(lane) + column,
                              d + (row * n + part * columns) * size);
                    }
                }
            };
            if (it.accumulates)
                for_each_part([&](uint32_t, const uint32_t* cells, char* part) {
                    take_row(cells, columns, tile.d, it.scale, part);
                });
            else
                memset(d, 0, size_t(64) * n * size);
            multiply(tile, a, b, d);
            for_each_part([&](uint32_t lane, uint32_t* cells, const char* part) {
                if (!(it.disabled[i * 4 + lane / 32] >> lane % 32 & 1))
                    put_row(part, columns, tile.d, cells);
            });
        }
    }
}

// Each quarter of the lanes gets 32 rows of shared memory, from one that is given.
void copy(const Pair& pair, const TensorOperation& it) {
    const char* what = "tcgen05.cp";
    const Descriptor from = descriptor_of(it.b, it, what);
    char rows[128 * 32];
    for (int i = 0; i < pair.count; i++) {
        want_columns(*pair.memories[i], it.to, it.bytes / 4u, what, it.file, it.line);
        gather(*pair.blocks[i], from, false, 0, it.lanes, it.bytes, 2, rows);
        for (uint32_t lane = 0; lane < all_lanes; lane++)
            memcpy(pair.memories[i]->row((it.to >> 16) + lane) + (it.to & 0xffff),
                   rows + (it.quarters[lane / 32] + lane % 32) * it.bytes, it.bytes);
    }
}

// 32 bytes of each lane from the address's on move to the next lane. The last has none.
void shift(const Pair& pair, const TensorOperation& it) {
    const char* what = "tcgen05.shift";
    const uint32_t first = (it.to >> 16) % all_lanes;
    if (first % 32)
        fail_with(what, it.file, it.line, "its address has lane %u, no multiple of 32", first);
    for (int i = 0; i < pair.count; i++) {
        TensorMemory& memory = *pair.memories[i];
        want_columns(memory, it.to, 8, what, it.file, it.line);
        for (uint32_t lane = all_lanes - 1; lane > first; lane--)
            memcpy(
                memory.row(lane) + (it.to & 0xffff), memory.row(lane - 1) + (it.to & 0xffff), 32);
    }
}

void carry_out(const Block& block, const TensorOperation& it) {
    const Pair pair(block, it);
    switch (it.kind) {
        case TensorOperation::Product:
            return multiply(pair, it);
        case TensorOperation::Copy:
            return copy(pair, it);
        default:
            return shift(pair, it);
    }
}

// What a completion is told with: the first operations of a thread, `words` says how many.
void carry_out_completion(const BulkCopy& it) {
    const Block& block = *reinterpret_cast<const Block*>(it.from);
    TensorMemory& memory = memory_of(block);
    std::lock_guard<std::recursive_mutex> lock(memory.mutex);
    AskedOfMemory& asked = memory.asked[unsigned(it.words[0])];
    for (; asked.done < it.words[1]; asked.done++) carry_out(block, asked.operations[asked.done]);
}

}  // namespace

void ask(const TensorOperation& operation) {
    const Block& block = running_block();
    TensorMemory& memory = memory_of(block);
    std::lock_guard<std::recursive_mutex> lock(memory.mutex);
    memory.asked[block.rank].operations.push_back(operation);
}

BulkCopy completion() {
    const Block& block = running_block();
    TensorMemory& memory = memory_of(block);
    std::lock_guard<std::recursive_mutex> lock(memory.mutex);
    BulkCopy done{};
    done.kind = BulkCopy::Call;
    done.call = carry_out_completion;
    done.arrivals = 1;
    done.from = reinterpret_cast<const char*>(&block);
    done.words[0] = block.rank;
    done.words[1] = memory.asked[block.rank].operations.size();
    return done;
}

}  // namespace simulator::tensor_cores
