// Products, copies and shifts in tensor memory, in the order in which a thread has asked for them.
//
// How a B200 rounds is as Xie and others found ("MMA-Sim", 2025), not measured here.
#pragma once
#include "instruction_descriptor.h"
#include "packed.h"
#include "sparse.h"
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
                fail_unlocked("cta_group::2 needs a cluster of an even number of blocks", "tcgen05",
                              it.file, it.line);
            for (unsigned i = 0; i < 2; i++)
                blocks[i] = block.cluster[(block.cluster_rank & ~1u) | i];
        }
        for (int i = 0; i < count; i++) memories[i] = &memory_of(*blocks[i]);
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

void unpack(char* bytes, size_t count, Type type) {
    if (is_unpacked(type)) unpack(bytes, count, type == Type::ByteE2M1 ? 4 : 6);
}

// 48 bytes of each row of a matrix, along k. What is past the 128 bytes that the swizzle permutes
// is at an address of its own, which the descriptor has in the place of an offset: bit 52 says so.
struct LongRows {
    Descriptor first, second;
    uint32_t units;  // of 16 bytes, that are in the first part

    LongRows(uint64_t bits, const TensorOperation& it, const char* what)
        : first(descriptor_of(bits, it, what)), second(first) {
        const uint32_t width = first.swizzle, at = first.start % std::max(width, 1u);
        units = width ? std::min((width - at) / 16, 3u) : 3;
        if (units == 3) return;
        if (!(bits >> 52 & 1) || width != 128 || first.base_offset)
            fail_with(
                what, it.file, it.line,
                "its matrix descriptor is 0x%016llx: 48 bytes along k pass the end of its %u; "
                "that needs a swizzle of 128 bytes, a base offset of 0, and the address of "
                "the rest in bits 16 to 29 and 52 (leading dimension, absolute)",
                (unsigned long long)bits, width);
        second.start = first.leading;
    }
};

void gather_long_rows(const Block& block, uint64_t bits, const TensorOperation& it, uint32_t from,
                      uint32_t lines, char* to) {
    const LongRows rows(bits, it, "tcgen05.mma");
    const uint32_t bytes = rows.units * 16;
    char part[256 * 48];
    gather(block, rows.first, false, from, lines, bytes, 1, part);
    for (uint32_t i = 0; i < lines; i++) memcpy(to + i * 48, part + i * bytes, bytes);
    if (bytes == 48) return;
    gather(block, rows.second, false, from, lines, 48 - bytes, 1, part);
    for (uint32_t i = 0; i < lines; i++)
        memcpy(to + i * 48 + bytes, part + i * (48 - bytes), 48 - bytes);
}

// The scales of `count` rows of A or columns of B: 32 lanes have a word for each row of 32. With 96
// of k they go on in the words of the next tile of 128 or 256 rows.
void gather_scales(TensorMemory& memory, uint32_t address, uint32_t byte, int count,
                   const Instruction& instruction, const TensorOperation& it, uint64_t* to) {
    address &= 0x3fffffff;  // the upper two bits are the scale factor id again
    if (address >> 16)
        fail_with("tcgen05.mma", it.file, it.line,
                  "its scale factors have the address 0x%08x: they begin in lane 0", address);
    const uint32_t scales = instruction.scales.count, next = count > 128 ? 8 : 4;
    const bool goes_on = byte + scales > 4;
    want_columns(
        memory, address, (count + 31) / 32 + (goes_on ? next : 0), "tcgen05.mma", it.file, it.line);
    const uint64_t used = (1ull << 8 * scales) - 1;
    for (int i = 0; i < count; i++) {
        const uint32_t lane = i % 32, column = address + i / 32;
        const auto bytes = [&](uint32_t quarter) {
            const uint32_t* const words = memory.row(quarter * 32 + lane) + column;
            const uint64_t more = goes_on ? words[next] : 0;
            return (words[0] | more << 32) >> 8 * byte & used;
        };
        to[i] = bytes(0);
        for (uint32_t quarter = 1; quarter < 4; quarter++)
            if (bytes(quarter) != to[i])
                fail_with("tcgen05.mma", it.file, it.line,
                          "its scale factors in column %u are 0x%llx in lane %u and 0x%llx in lane "
                          "%u: all four quarters of the lanes have the same ones (tcgen05.cp with "
                          ".warpx4 copies them to each)",
                          column, (unsigned long long)to[i], lane,
                          (unsigned long long)bytes(quarter), quarter * 32 + lane);
    }
}

// Which units of B belong to the units that rows of a sparse A have, two bits for each. Units of 16
// bits: a column has 16 rows in 16 lanes, of which each has half of the metadata of two rows. Units
// of 8 bits: the lane of a row has its 64 bits in two columns. (So CUTLASS has them.)
void gather_metadata(TensorMemory& memory, const Instruction& instruction,
                     const TensorOperation& it, uint32_t part_lane, int first, uint64_t* rows) {
    const bool is_wide = instruction.has_wide_units();
    const uint32_t column = (it.metadata & 0xffff) + (is_wide ? instruction.field(0, 2) : 0);
    want_columns(memory, column, is_wide ? 1 : 2, "tcgen05.mma", it.file, it.line);
    const auto words = [&](int row) {
        return memory.row((it.metadata >> 16) + part_lane + instruction.lane(row)) + column;
    };
    for (int i = 0; i < instruction.tile.m; i++) {
        const int row = first + i, of_16 = row / 16 * 16 + row % 8, from = row / 8 % 2 * 16;
        rows[i] =
            is_wide
                ? (words(of_16)[0] >> from & 0xffff) | (words(of_16 + 8)[0] >> from & 0xffff) << 16
                : words(row)[0] | uint64_t(words(row)[1]) << 32;
    }
}

void multiply(const Pair& pair, const TensorOperation& it) {
    const char* what = "tcgen05.mma";
    const Instruction instruction(it);
    const Tile& tile = instruction.tile;
    const int rows = instruction.rows(), n = instruction.n, size = bits_of(tile.d) / 8;
    const int columns = instruction.columns();
    const uint32_t row_bytes = instruction.row_bytes;
    const bool is_long = row_bytes > 32;
    const uint32_t row_of_b = it.is_sparse ? 2 * row_bytes : row_bytes;
    alignas(64) static thread_local char a[64 * 48], b[256 * 64];
    alignas(64) static thread_local char d[64 * 256 * 4];
    const int of_each = n / pair.count;
    const Descriptor of_b = descriptor_of(it.b, it, what);
    const ZeroColumns zeros(instruction, it);
    for (int i = 0; i < pair.count; i++) {
        char* const to = b + i * of_each * row_of_b;
        if (is_long)
            gather_long_rows(*pair.blocks[i], it.b, it, 0, of_each, to);
        else
            gather(*pair.blocks[i], of_b, instruction.b_is_transposed, zeros.shift(), of_each,
                   row_of_b, std::max(bits_of(tile.b) / 8, 1), to);
    }
    unpack(b, size_t(n) * row_of_b, tile.b);
    for (int i = 0; i < n; i++)
        if (zeros.is_zero(i)) memset(b + i * row_of_b, 0, row_of_b);
    uint64_t scales_of_a[128], scales_of_b[256];
    const uint32_t column = it.to & 0xffff;
    // One part of D after the other, at most 64 rows at once.
    const auto multiply_rows = [&](int block, int part, int first) {
        TensorMemory& memory = *pair.memories[block];
        const uint32_t part_lane = uint32_t(part * rows), base = (it.to >> 16) + part_lane;
        if (it.a_in_memory) {
            const uint32_t column_of_a = it.a & 0xffff;
            const uint32_t lane_of_a = (uint32_t(it.a) >> 16) + (it.is_stationary ? part_lane : 0);
            for (int row = 0; row < tile.m; row++) {
                const int from = std::max(first + row - it.shifts_a, 0);
                memcpy(a + row * row_bytes,
                       memory.row(lane_of_a + instruction.lane(from)) + column_of_a, row_bytes);
            }
        } else if (is_long) {
            gather_long_rows(*pair.blocks[block], it.a, it, first, tile.m, a);
        } else {
            gather(*pair.blocks[block], descriptor_of(it.a, it, what), instruction.a_is_transposed,
                   first, tile.m, row_bytes, std::max(bits_of(tile.a) / 8, 1), a);
            unpack(a, tile.m * row_bytes, tile.a);
        }
        if (!it.accumulates) memset(d, 0, size_t(tile.m) * columns * size);
        for (int row = 0; it.accumulates && row < tile.m; row++)
            take_row(memory.row(base + instruction.lane(first + row)) + column, columns, tile.d,
                     it.scale, d + row * columns * size);
        const char* const own_b = b + part * columns * row_of_b;
        const auto multiply_some =
            [&](const Tile& some, int row, const char* x, const char* y, char* to) {
                if (it.scales)
                    multiply_scaled(some, instruction.scales, scales_of_a + first + row,
                                    scales_of_b + part * columns, x, y, to);
                else
                    multiply(some, x, y, to);
            };
        if (it.is_sparse) {
            uint64_t metadata[64];
            gather_metadata(
                memory, instruction, it, it.is_stationary ? part_lane : 0, first, metadata);
            multiply_sparse(tile, a, own_b, d, metadata, multiply_some);
        } else {
            multiply_some(tile, 0, a, own_b, d);
        }
        for (int row = 0; row < tile.m; row++) {
            const uint32_t lane = (base + instruction.lane(first + row)) % all_lanes;
            if (!(it.disabled[block * 4 + lane / 32] >> lane % 32 & 1))
                put_row(d + row * columns * size, columns, tile.d, memory.row(lane) + column);
        }
    };
    for (int i = 0; i < pair.count; i++) {
        TensorMemory& memory = *pair.memories[i];
        want_columns(memory, it.to, columns, what, it.file, it.line);
        if (it.a_in_memory) want_columns(memory, uint32_t(it.a), 8, what, it.file, it.line);
        if (it.scales) {
            gather_scales(
                memory, it.scales_of_a, instruction.byte_of_a, rows, instruction, it, scales_of_a);
            gather_scales(
                memory, it.scales_of_b, instruction.byte_of_b, n, instruction, it, scales_of_b);
        }
        for (int part = 0; part < instruction.parts(); part++)
            for (int first = 0; first < rows; first += tile.m) multiply_rows(i, part, first);
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
        if (it.unpacking != Unpacking::None)
            unpack(rows, size_t(it.lanes) * it.bytes, it.unpacking == Unpacking::From4Bits ? 4 : 6);
        for (uint32_t lane = 0; lane < all_lanes; lane += it.lanes == 4 ? 32 : 1)
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
    memory.mutex.lock();
    held = &memory.mutex;
    AskedOfMemory& asked = memory.asked[unsigned(it.words[0])];
    for (; asked.done < it.words[1]; asked.done++) carry_out(block, asked.operations[asked.done]);
    held = nullptr;
    memory.mutex.unlock();
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
