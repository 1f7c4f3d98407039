// The instruction descriptor of tcgen05.mma, and which shapes there are.
#pragma once
#include <stdio.h>
#include "tensor_memory.h"

namespace simulator::tensor_cores {
namespace {

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
    bool a_is_transposed, b_is_transposed, is_sparse, is_stationary;
    uint32_t row_bytes = 32;  // of A, and of B where A is not sparse

    uint32_t field(int from, int width) const { return bits >> from & ((1u << width) - 1); }
    int rows() const { return m / blocks; }  // of a block

    explicit Instruction(const TensorOperation& it)
        : bits(it.instruction),
          blocks(it.blocks),
          is_sparse(it.is_sparse),
          is_stationary(it.is_stationary) {
        m = int(field(24, 5)) * 16;
        n = int(field(17, 6)) * 8;
        a_is_transposed = field(15, 1);
        b_is_transposed = field(16, 1);
        const uint32_t a = field(7, 3), b = field(10, 3), d = field(4, 2);
        tile = {};
        tile.m = uint8_t(std::min(rows(), 64));
        tile.n = uint16_t(columns());
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
        if (field(2, 1) != is_sparse)
            refuse(it,
                   is_sparse ? "bit 2 is %u: it says that A is not sparse, and .sp that it is"
                             : "bit 2 is %u: it says that A is sparse, which needs .sp",
                   field(2, 1));
        if (is_sparse && !it.scales && !has_wide_units() && field(0, 2))
            refuse(it, "the sparsity selector, bits 0 and 1, is %u: it is 0 for this kind",
                   field(0, 2));
        if (it.shifts_a && m != 128 && m != 256)
            refuse(it, "M is %u: with .ashift it is 128 or 256", uint32_t(m));
        if (it.scale > 15)
            fail_with("tcgen05.mma", it.file, it.line, "scale-input-d is %u: it is 0 to 15",
                      uint32_t(it.scale));
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
        check_shape(it, is_integer);
    }

    // M and N without scales.
    void check_shape(const TensorOperation& it, bool is_integer) const {
        if (is_stationary) {
            if (m != 32 && m != 64 && m != 128)
                refuse(it, "M is %u: with .ws it is 32, 64 or 128", uint32_t(m));
            if (n != 64 && n != 128 && (n != 256 || is_sparse))
                refuse(it,
                       is_sparse ? "N is %u: with .ws.sp it is 64 or 128"
                                 : "N is %u: with .ws it is 64, 128 or 256",
                       uint32_t(n));
            return;
        }
        if (rows() != 64 && rows() != 128)
            refuse(it,
                   blocks == 1 ? "M is %u: it is 64 or 128 with cta_group::1"
                               : "M is %u: it is 128 or 256 with cta_group::2",
                   uint32_t(m));
        const int step = (is_integer ? 16 : 8) * blocks;
        const bool is_small = is_integer && blocks == 1 && (n == 8 || n == 24);
        if (n < step / (is_small ? 2 : 1) || n > 256 || (n % step && !is_small))
            refuse(it,
                   is_integer    ? blocks == 1 ? "N is %u: it is 8, 24 or a multiple of 16 to 256"
                                               : "N is %u: it is a multiple of 32 to 256"
                   : blocks == 1 ? "N is %u: it is a multiple of 8 to 256"
                                 : "N is %u: it is a multiple of 16 to 256",
                   uint32_t(n));
    }

    // Of a descriptor with scales: their type, and their first bytes within a word.
    void read_scaling(const TensorOperation& it) {
        scales = {!field(23, 1), it.scales};
        byte_of_a = field(29, 2);
        byte_of_b = field(4, 2);
        if (scales.is_ue4m3 && !(it.product == ProductKind::MXF4NVF4 && it.scales == 4))
            refuse(it, "bit 23 is %u (UE4M3): that is for kind::mxf4nvf4 with scale_vec::4X", 0u);
        if (field(31, 1)) read_k_96(it);
        const uint32_t step = scales.count == 3 ? 1 : scales.count == 6 ? 2 : scales.count;
        if (byte_of_a % step || byte_of_b % step)
            refuse(
                it, "the scale factor ids, bits 4, 5, 29 and 30, are multiples of %u here", step);
        if (rows() != 128 && (rows() != 64 || blocks == 1 || is_sparse))
            refuse(it,
                   blocks == 1 ? "M is %u: with scales it is 128 with cta_group::1"
                   : is_sparse ? "M is %u: with scales and .sp it is 256 with cta_group::2"
                               : "M is %u: with scales it is 128 or 256 with cta_group::2",
                   uint32_t(m));
        if (n < 8 * blocks || n > 256 || n % (8 * blocks))
            refuse(it, "N is %u: it is a multiple of 8 for each block, to 256", uint32_t(n));
    }

    // 48 bytes of a row, and scales for 16 or 32 numbers of these.
    void read_k_96(const TensorOperation& it) {
        if (tile.a != Type::E2M1) refuse(it, "bit 31 is %u: K is 32 for this kind, not 96", 1u);
        if (it.architecture >= 1000 && it.architecture != 1030)
            refuse(it, "bit 31 is 1 (K is 96): sm_103a alone has that, and this is for sm_%u",
                   it.architecture / 10);
        if (is_sparse) refuse(it, "bit 31 is %u: K is 128 with .sp, not 96", 1u);
        if (it.a_in_memory) refuse(it, "bit 31 is %u (K is 96): A is in shared memory then", 1u);
        if (rows() != 128) refuse(it, "M is %u: with K = 96 it is 128 for each block", uint32_t(m));
        tile.k = 96;
        row_bytes = 48;
        scales.count = it.scales == 4 ? 6 : 3;
    }

    void set(const TensorOperation& it, const char* wanted, bool is_known, Type a, Type b) {
        if (!is_known)
            fail_with("tcgen05.mma", it.file, it.line,
                      "its instruction descriptor is 0x%08x: the types of A and B, bits 7 to 12, "
                      "are %u and %u; with this kind they are %s",
                      bits, field(7, 3), field(10, 3), wanted);
        tile.a = a;
        tile.b = b;
    }
    [[noreturn]] void refuse(const TensorOperation& it, const char* reason, uint32_t value) const {
        char text[200];
        snprintf(text, sizeof text, reason, value);
        fail_with("tcgen05.mma", it.file, it.line, "its instruction descriptor is 0x%08x: %s", bits,
                  text);
    }

    // Whether metadata counts units of 16 bits.
    bool has_wide_units() const { return bits_of(tile.a) >= 16; }

    // Columns of D may be split among the lanes: those of a dense pair of 64 rows each, and with
    // .ws those of 32 and of 64 rows. Each part has as many lanes as D has rows.
    int parts() const {
        return is_stationary ? 128 / rows() : blocks == 2 && rows() == 64 && !is_sparse ? 2 : 1;
    }
    int columns() const { return n / parts(); }
    // Where row i of a part is: without parts 64 rows are in the first half of each quarter of the
    // lanes.
    uint32_t lane(int row) const {
        const bool has_half = rows() == 64 && parts() == 1;
        return uint32_t(has_half ? row / 16 * 32 + row % 16 : row);
    }
};

// Which columns of B are zeros with .ws, whatever the memory has, and by how many they are moved.
// Parts of D have masks of their own: spans of columns that are used and of zeros take turns. The
// manual's table has the names of the two spans the other way round than its examples; these count.
struct ZeroColumns {
    uint64_t bits;
    int columns;  // of a part

    ZeroColumns(const Instruction& instruction, const TensorOperation& it)
        : bits(it.zero_columns), columns(instruction.columns()) {
        const uint32_t most = instruction.field(30, 2) ? 4u << instruction.field(30, 2) : 0;
        const uint32_t allowed = std::min(most, instruction.m == 32 ? 16u : 32u);
        if (bits >> 36 & 7 || bits >> 62)
            fail_with(
                "tcgen05.mma", it.file, it.line,
                "its zero-column mask descriptor is 0x%016llx: bits 36 to 38, 62 and 63 are 0",
                (unsigned long long)bits);
        if (shift() > allowed)
            fail_with("tcgen05.mma", it.file, it.line,
                      "its zero-column mask descriptor moves columns by %u: bits 30 and 31 of the "
                      "instruction descriptor, and M = %u, allow %u",
                      shift(), uint32_t(instruction.m), allowed);
    }
    uint32_t shift() const { return uint32_t(bits >> 56 & 63); }
    bool is_zero(int column) const {
        if (!(bits >> 39 & 1)) return false;
        const int part = column / columns;
        const bool begins_with_zeros = bits >> (32 + part) & 1;
        const int zeros = int(bits >> 40 & 255) + 1, used = int(bits >> 48 & 255) + 1;
        const int first = begins_with_zeros ? zeros : used;
        const int skipped = std::min(int(bits >> 8 * part & 255), first - 1);
        const int at = (column % columns + skipped) % (zeros + used);
        return (at < first) == begins_with_zeros;
    }
};

}  // namespace
}  // namespace simulator::tensor_cores
