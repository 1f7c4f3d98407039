// Products, copies and shifts in tensor memory, in the order in which a thread has asked for them.
//
// How a B200 rounds is as Xie and others found ("MMA-Sim", 2025), not measured here.
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
                fail_unlocked("cta_group::2 needs a cluster of an even number of blocks", "tcgen05",
                              it.file, it.line);
            for (unsigned i = 0; i < 2; i++)
                blocks[i] = block.cluster[(block.cluster_rank & ~1u) | i];
        }
        for (int i = 0; i < count; i++) memories[i] = &memory_of(*blocks[i]);
    }
};

// Types of 8, 6 and 4 bits by their number in an instruction descriptor.
constexpr Type small_types[8] = {
    Type::E4M3, Type::E5M2, Type::E4M3, Type::E2M3, Type::E3M2, Type::ByteE2M1};

bool is_unpacked(Type type) {
    return type == Type::E2M3 || type == Type::E3M2 || type == Type::ByteE2M1;
}
bool is_whole(Type type) { return !is_unpacked(type) && type != Type::E2M1; }  // bytes, or more

// The instruction descriptor, and what follows from it.
struct Instruction {
    uint32_t bits;
    Tile tile;  // of 64 rows at most, for each block
    BlockScales scales{};
    uint32_t byte_of_a = 0, byte_of_b = 0;  // where a row's scales begin in a word
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
        const bool is_integer = it.product == ProductKind::I8;
        tile.sum = Sum::Blackwell;
        switch (it.product) {
            case ProductKind::F16:
                set(it, "0 (F16) or 1 (BF16)", a < 2 && a == b, a ? Type::BF16 : Type::F16,
                    b ? Type::BF16 : Type::F16);
                break;
            case ProductKind::TF32:
                set(it, "2 (TF32)", a == 2 && b == 2, Type::TF32, Type::TF32);
                break;
            case ProductKind::F8F6F4:
            case ProductKind::MXF8F6F4:
                set(it, "0 (E4M3), 1 (E5M2), 3 (E2M3), 4 (E3M2) or 5 (E2M1)",
                    a < 6 && a != 2 && b < 6 && b != 2, small_types[a], small_types[b]);
                break;
            case ProductKind::I8:
                set(it, "0 (unsigned) or 1 (signed)", a < 2 && b < 2, a ? Type::S8 : Type::U8,
                    b ? Type::S8 : Type::U8);
                break;
            case ProductKind::MXF4:
            case ProductKind::MXF4NVF4:
                set(it, "1 (E2M1)", a == 1 && b == 1, Type::E2M1, Type::E2M1);
                break;
        }
        tile.k = uint16_t(256 / bits_of(tile.a));
        tile.scale_a = field(13, 1) ? -1 : 1;
        tile.scale_b = field(14, 1) ? -1 : 1;
        if (field(2, 1)) refuse(it, "bit 2 says that A is sparse (%u)", 1u);
        if ((a_is_transposed && !is_whole(tile.a)) || (b_is_transposed && !is_whole(tile.b)))
            refuse(it, "bits 15 and 16 are %u: numbers of 4 and 6 bits lie along k", field(15, 2));
        if (it.scales) {
            tile.d = Type::F32;
            read_scaling(it);
            return;
        }
        if (is_integer ? d != 2 : d > 1 || (d == 0 && it.product == ProductKind::TF32))
            refuse(it, "its type of D, bits 4 and 5, is %u", d);
        tile.d = is_integer ? Type::S32 : d ? Type::F32 : Type::F16;
        tile.saturate = is_integer && field(3, 1);
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

    // Of a descriptor with scales: their type, and their first bytes within a word.
    void read_scaling(const TensorOperation& it) {
        scales = {!field(23, 1), it.scales};
        byte_of_a = field(29, 2);
        byte_of_b = field(4, 2);
        if (scales.is_ue4m3 && !(it.product == ProductKind::MXF4NVF4 && it.scales == 4))
            refuse(it, "bit 23 is %u (UE4M3): that is for kind::mxf4nvf4 with scale_vec::4X", 0u);
        if (byte_of_a % it.scales || byte_of_b % it.scales)
            refuse(it, "the scale factor ids, bits 4, 5, 29 and 30, are multiples of %u here",
                   it.scales);
        if (field(31, 1)) refuse(it, "bit 31 is %u: K is 32 or 64 here, not 96", 1u);
        if (rows() != 128) refuse(it, "M is %u: with scales it is 128 for each block", uint32_t(m));
        if (n < 8 * blocks || n > 256 || n % (8 * blocks))
            refuse(it, "N is %u: it is a multiple of 8 for each block, to 256", uint32_t(n));
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

// 16 bytes with 16 numbers of so many bits in the first of them, as a byte for each: 6 bits in its
// lower ones, 4 bits in bits 2 to 5.
void unpack(char* bytes, size_t count, int bits) {
    for (size_t first = 0; first < count; first += 16) {
        uint64_t words[3] = {};
        memcpy(words, bytes + first, 16);
        for (int i = 0; i < 16; i++) {
            const int at = i * bits % 64;
            uint64_t number = words[i * bits / 64] >> at;
            if (at + bits > 64) number |= words[i * bits / 64 + 1] << (64 - at);
            bytes[first + i] = char(bits == 4 ? (number & 15) << 2 : number & 63);
        }
    }
}
void unpack(char* bytes, size_t count, Type type) {
    if (is_unpacked(type)) unpack(bytes, count, type == Type::ByteE2M1 ? 4 : 6);
}

// The scales of `count` rows of A or columns of B: 32 lanes have a word for each row of 32.
void gather_scales(TensorMemory& memory, uint32_t address, uint32_t byte, int count,
                   const TensorOperation& it, uint32_t* to) {
    address &= 0x3fffffff;  // the upper two bits are the scale factor id again
    if (address >> 16)
        fail_with("tcgen05.mma", it.file, it.line,
                  "its scale factors have the address 0x%08x: they begin in lane 0", address);
    want_columns(memory, address, (count + 31) / 32, "tcgen05.mma", it.file, it.line);
    const uint32_t used = it.scales == 4 ? ~0u : (1u << 8 * it.scales) - 1;
    for (int i = 0; i < count; i++) {
        const uint32_t lane = i % 32, column = address + i / 32;
        const auto word = [&](uint32_t quarter) {
            return memory.row(quarter * 32 + lane)[column] >> 8 * byte & used;
        };
        to[i] = word(0);
        for (uint32_t quarter = 1; quarter < 4; quarter++)
            if (word(quarter) != to[i])
                fail_with("tcgen05.mma", it.file, it.line,
                          "its scale factors in column %u are 0x%x in lane %u and 0x%x in lane %u: "
                          "all four quarters of the lanes have the same ones (tcgen05.cp with "
                          ".warpx4 copies them to each)",
                          column, to[i], lane, word(quarter), quarter * 32 + lane);
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
               std::max(bits_of(tile.b) / 8, 1), b + i * of_each * row_bytes);
    unpack(b, size_t(n) * row_bytes, tile.b);
    uint32_t scales_of_a[128], scales_of_b[256];
    const uint32_t base = it.to >> 16, column = it.to & 0xffff;
    for (int i = 0; i < pair.count; i++) {
        TensorMemory& memory = *pair.memories[i];
        want_columns(memory, it.to, columns, what, it.file, it.line);
        if (it.a_in_memory) want_columns(memory, uint32_t(it.a), 8, what, it.file, it.line);
        if (it.scales) {
            gather_scales(memory, it.scales_of_a, instruction.byte_of_a, rows, it, scales_of_a);
            gather_scales(memory, it.scales_of_b, instruction.byte_of_b, n, it, scales_of_b);
        }
        for (int first = 0; first < rows; first += 64) {
            if (it.a_in_memory) {
                const uint32_t lane_of_a = uint32_t(it.a) >> 16, column_of_a = it.a & 0xffff;
                for (int row = 0; row < 64; row++)
                    memcpy(a + row * row_bytes,
                           memory.row(lane_of_a + instruction.lane(first + row)) + column_of_a,
                           row_bytes);
            } else {
                gather(*pair.blocks[i], descriptor_of(it.a, it, what), instruction.a_is_transposed,
                       first, 64, row_bytes, std::max(bits_of(tile.a) / 8, 1), a);
                unpack(a, sizeof a, tile.a);
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
            if (it.scales)
                multiply_scaled(
                    tile, instruction.scales, scales_of_a + first, scales_of_b, a, b, d);
            else
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

// ---- What is under way

using ColumnRanges = std::vector<ColumnRange>;

bool meet(const ColumnRanges& some, const ColumnRanges& others) {
    for (const ColumnRange& range : some)
        for (const ColumnRange& other : others)
            if (range.meets(other)) return true;
    return false;
}

ColumnRanges columns_of(const TensorAccess& access, int count) {
    const bool is_wide = access.shape == Shape::Lanes16x64 || access.shape == Shape::Lanes16x128 ||
                         access.shape == Shape::Lanes16x256;
    const uint32_t first = access.address & 0xffff, width = access.is_packed ? 2 : 1;
    const uint32_t columns = uint32_t(count) * (is_wide ? 2 : 1) * width;
    ColumnRanges found{{first, columns}};
    if (access.shape == Shape::Lanes16x32x2) found.push_back({first + access.split, columns});
    return found;
}

ColumnRanges written_by(const TensorOperation& it) {
    const uint32_t first = it.to & 0xffff;
    if (it.kind == TensorOperation::Copy) return {{first, it.bytes / 4u}};
    if (it.kind == TensorOperation::Shift) return {{first, 8}};
    const uint32_t m = (it.instruction >> 24 & 31) * 16, n = (it.instruction >> 17 & 63) * 8;
    return {{first, it.blocks == 2 && m == 128 ? n / 2 : n}};
}

ColumnRanges scales_of(const TensorOperation& it) {
    if (it.kind != TensorOperation::Product || !it.scales) return {};
    const uint32_t n = (it.instruction >> 17 & 63) * 8;
    return {{it.scales_of_a & 0xffff, 4}, {it.scales_of_b & 0xffff, (n + 31) / 32}};
}

ColumnRanges read_by(const TensorOperation& it) {
    if (it.kind != TensorOperation::Product) return {};
    ColumnRanges found = scales_of(it);
    if (it.a_in_memory) found.push_back({uint32_t(it.a) & 0xffff, 8});
    return found;
}

// Of the running block: an operation that is under way and writes these columns, or, for who
// writes, reads them. Operations come in their order: among themselves they wait for nobody.
Conflict operation_in(TensorMemory& memory, const ColumnRanges& columns, bool writes) {
    std::lock_guard<std::recursive_mutex> lock(memory.mutex);
    for (const auto& [rank, asked] : memory.asked) {
        for (size_t i = asked.done; i < asked.operations.size(); i++) {
            const TensorOperation& it = asked.operations[i];
            if (meet(columns, written_by(it)) || (writes && meet(columns, read_by(it))))
                return {name_of(it), it.file, it.line};
        }
    }
    return {};
}

// A load or a store of a warp that is under way in columns that are written, or, of stores, read.
Conflict access_in(TensorMemory& memory, const ColumnRanges& written, const ColumnRanges& read) {
    std::lock_guard<std::recursive_mutex> lock(memory.mutex);
    for (const auto& [rank, asked] : memory.asked) {
        for (const PendingAccess& it : asked.accesses) {
            const ColumnRanges columns = columns_of(it.access, it.count());
            if (meet(columns, written) || (it.access.is_store && meet(columns, read)))
                return {it.access.is_store ? "tcgen05.st" : "tcgen05.ld", it.access.file,
                        it.access.line};
        }
    }
    return {};
}

}  // namespace

Conflict conflict_of(const TensorAccess& access, int count) {
    return operation_in(memory_of(running_block()), columns_of(access, count), access.is_store);
}
// Operations of one thread follow each other, but for products whose accumulators overlap in part.
// Those of another thread are to be waited for.
Conflict conflict_of(const TensorOperation& operation) {
    const Block& block = running_block();
    TensorMemory& memory = memory_of(block);
    const ColumnRanges written = written_by(operation), read = read_by(operation);
    const Conflict found = access_in(memory, written, read);
    if (found.file) return found;
    std::lock_guard<std::recursive_mutex> lock(memory.mutex);
    for (const auto& [rank, asked] : memory.asked)
        for (size_t i = asked.done; i < asked.operations.size(); i++) {
            const TensorOperation& it = asked.operations[i];
            const ColumnRanges its = written_by(it);
            const bool are_products =
                it.kind == TensorOperation::Product && operation.kind == TensorOperation::Product;
            if (are_products && it.to >> 16 != operation.to >> 16) continue;  // in other lanes
            if (rank == block.rank
                    ? are_products && meet(written, its) && !(written[0] == its[0])
                    : meet(written, its) || meet(read, its) || meet(written, read_by(it)))
                return {name_of(it), it.file, it.line};
        }
    return {};
}
Conflict conflict_of(uint32_t first, uint32_t count) {
    TensorMemory& memory = memory_of(running_block());
    const ColumnRanges columns{{first & 0xffff, count}};
    const Conflict found = operation_in(memory, columns, true);
    return found.file ? found : access_in(memory, columns, columns);
}

TensorUse use_of(const TensorAccess& access, int count) {
    TensorUse use{access.is_store ? "tcgen05.st" : "tcgen05.ld", access.file, access.line, true};
    use.blocks[0] = &running_block();
    use.cells[0] = memory_of(running_block()).cells[0];
    for (const ColumnRange& range : columns_of(access, count))
        access.is_store ? use.writes(range) : use.reads(range);
    return use;
}

TensorUse use_of(const TensorOperation& it) {
    const Pair pair(running_block(), it);
    TensorUse use{name_of(it), it.file, it.line, false};
    use.block_count = pair.count;
    for (const ColumnRange& range : written_by(it)) use.writes(range);
    for (const ColumnRange& range : read_by(it)) use.reads(range);
    for (const ColumnRange& range : scales_of(it)) use.scales[use.scale_count++] = range;
    const auto reads = [&](int i, uint64_t descriptor, bool is_transposed, int lines, int bytes,
                           int element_bytes) {
        use.matrices[use.matrix_count++] = {
            pair.blocks[i],  descriptor & ~(1ull << 61), is_transposed, uint32_t(lines),
            uint32_t(bytes), uint32_t(element_bytes)};
    };
    for (int i = 0; i < pair.count; i++) {
        use.blocks[i] = pair.blocks[i];
        use.cells[i] = pair.memories[i]->cells[0];
        if (it.kind == TensorOperation::Copy) reads(i, it.b, false, it.lanes, it.bytes, 2);
        if (it.kind != TensorOperation::Product) continue;
        const Instruction of(it);
        const Tile& tile = of.tile;
        if (!it.a_in_memory)
            reads(i, it.a, of.a_is_transposed, of.rows(), 32, std::max(bits_of(tile.a) / 8, 1));
        reads(i, it.b, of.b_is_transposed, of.n / pair.count, 32, std::max(bits_of(tile.b) / 8, 1));
    }
    return use;
}

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
