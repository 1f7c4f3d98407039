// The scale factors of products in tensor memory: whether somebody has written them, and whether
// those of a row are that row's.
#pragma once
#include "../include/simulator/matrix_descriptor.h"
#include "../include/simulator/tensor_memory.h"
#include "recorder.h"

namespace simulator {
namespace {

using tensor_cores::ColumnRange;
using tensor_cores::SharedMatrix;
using tensor_cores::TensorUse;

constexpr uint32_t rows_of_scales = 128;  // that tcgen05.cp copies at once, with 4 blocks each

// A product reads its scale factors in all four quarters of the lanes. Who has written them there
// is known; whether the quarters have the same ones is for the product to find.
void Asynchronous::look_for_scales(const TensorUse& use, const Site& at) {
    for (int i = 0; i < use.scale_count; i++) {
        const ColumnRange range = use.scales[i];
        const auto tell = [&](uint32_t column, const char* what, const Site* other = nullptr) {
            say("scale factors",
                text("the scale factors of %s are read from columns %u to %u, and column %u %s",
                     i ? "B" : "A", range.first, range.first + range.count - 1, column, what),
                at, other, other ? other->what : "");
        };
        if (range.meets(use.written[0]))
            return tell(std::max(range.first, use.written[0].first),
                        "belongs to the accumulator of this product");
        for (int of = 0; of < use.block_count; of++) {
            const auto found = blocks.find(use.blocks[of]);
            if (found == blocks.end()) continue;
            const Columns* const columns = found->second.columns.get();
            for (uint32_t c = range.first; c < range.first + range.count && c < 512; c++)
                for (unsigned q = 0; q < 4; q++) {
                    const ColumnUse written = columns ? columns->writes[q][c] : ColumnUse();
                    if (!written.time)
                        return tell(c, text("has not been written in lanes %u to %u: tcgen05.cp "
                                            "with .warpx4 writes all of them",
                                            q * 32, q * 32 + 31)
                                           .c_str());
                    if (!strcmp(written.site->what, "tcgen05.mma"))
                        return tell(c, "was written last as an accumulator", written.site);
                }
        }
    }
}

// What tcgen05.cp copies as scale factors, as it is when that is asked for.
void Asynchronous::note_scales(const TensorUse& use, const Site& at) {
    for (int i = 0; i < use.block_count; i++) {
        const auto of = blocks.find(use.blocks[i]);
        if (of == blocks.end()) continue;
        auto& copied = of->second.copied_scales;
        for (int k = 0; k < use.written_count; k++) {
            const ColumnRange& range = use.written[k];
            copied.erase(
                copied.lower_bound(range.first), copied.lower_bound(range.first + range.count));
        }
        if (use.is_access || use.matrix_count != use.block_count) continue;
        const SharedMatrix& from = use.matrices[i];
        if (from.lines != 32 || from.row_bytes != 16) continue;
        for (uint32_t row = 0; row < 32; row++) {
            uint32_t words[4];
            memcpy(words, line_of(from, row), sizeof words);
            for (uint32_t k = 0; k < 4; k++) {
                CopiedScales& to = copied[use.written[0].first + k];
                to.words[row] = words[k], to.at = &at;
            }
        }
    }
}

// Where a row of a matrix in shared memory begins.
const char* Asynchronous::line_of(const SharedMatrix& of, uint32_t row) {
    const tensor_cores::Descriptor descriptor(of.descriptor);
    const uint32_t address = descriptor.start + descriptor.offset(row, 0, false);
    return swizzled(
        const_cast<char*>(tensor_cores::at_descriptor(*of.block, address & (window - 1))),
        descriptor.swizzle);
}

bool is_global(const Region& region) {
    return region.is_alive() && (region.type == Region::Given || region.type == Region::Fresh);
}

// The one place in global memory that has these 16 bytes, or null.
const char* Asynchronous::only_place_of(const char* bytes, const Region*& in) {
    const char* found = nullptr;
    for (const Region& region : recorder.regions) {
        if (!is_global(region)) continue;
        const uintptr_t last = region.end - 16;
        for (uintptr_t at = (region.begin + 15) & ~uintptr_t(15); at <= last; at += 16) {
            if (memcmp(reinterpret_cast<const char*>(at), bytes, 16)) continue;
            if (found) return nullptr;
            found = reinterpret_cast<const char*>(at), in = &region;
        }
    }
    return found;
}

// A and B come from matrices in global memory, and their scale factors from a tensor of so many
// words for each row. Where the words of 128 rows are these rows', but some are another's, the
// order in shared memory is wrong; where they are those of these rows' other blocks, the wrong ones
// were copied. Told is only what is certain: the rows of the matrix are found in their order, no
// tensor has their scale factors in this order, neither by rows nor in tiles, and the words differ
// enough to be known by their values.
void Asynchronous::look_for_order(const TensorUse& use, const Site& at) {
    if (!use.scales_of_row || use.is_told || use.matrix_count != 2 * use.block_count) return;
    for (int i = 0; i < 2 * use.block_count; i++) {
        const bool is_b = i % 2;
        const SharedMatrix& matrix = use.matrices[i];
        if ((is_b && use.block_count > 1) || matrix.is_transposed || matrix.row_bytes != 32)
            continue;
        const auto of = blocks.find(use.blocks[i / 2]);
        if (of == blocks.end() || order_looks[{&at, is_b}] >= most_order_looks) continue;
        for (uint32_t first = 0; first + rows_of_scales <= matrix.lines; first += rows_of_scales)
            look_for_order(use, matrix, is_b, first, of->second, at);
    }
}

void Asynchronous::look_for_order(const TensorUse& use, const SharedMatrix& matrix, bool is_b,
                                  uint32_t first, const OfBlock& of, const Site& at) {
    uint32_t words[rows_of_scales];
    const Site* copy = nullptr;
    for (uint32_t k = 0; k < 4; k++) {
        const auto copied = of.copied_scales.find(use.scales[is_b].first + first / 32 + k);
        if (copied == of.copied_scales.end()) return;
        memcpy(words + 32 * k, copied->second.words, sizeof copied->second.words);
        copy = copied->second.at;
    }
    uint32_t sorted[rows_of_scales];
    std::copy(words, words + rows_of_scales, sorted);
    std::sort(sorted, sorted + rows_of_scales);
    if (std::unique(sorted, sorted + rows_of_scales) - sorted < 16) return;

    // Of many products the first ones, and ever fewer: each look goes through all of memory.
    const int look = order_looks[{&at, is_b}]++;
    if (look >= 4 && look & (look - 1)) return;
    const Region *region = nullptr, *second = nullptr;
    const char* const begin = only_place_of(line_of(matrix, first), region);
    const char* const next = begin ? only_place_of(line_of(matrix, first + 1), second) : nullptr;
    if (!next || region != second || next <= begin) return;
    const size_t pitch = next - begin, of_scale = 32 / use.scales_of_row;
    const size_t offset = uintptr_t(begin) - region->begin, row = offset / pitch;
    if (region->size % pitch || pitch % (4 * of_scale)) return;
    const size_t rows = region->size / pitch, row_bytes = pitch / of_scale;  // of scales
    if (row + rows_of_scales > rows) return;
    for (uint32_t r = 0; r < rows_of_scales; r++)
        if (memcmp(begin + r * pitch, line_of(matrix, first + r), 16)) return;

    const size_t own = offset % pitch / of_scale / 4 * 4, tiles_down = (rows + 127) / 128;
    const auto word = [](const Region& of, size_t offset) {
        uint32_t found;
        memcpy(&found, reinterpret_cast<const char*>(of.begin + offset), sizeof found);
        return found;
    };
    const auto by_rows = [&](const Region& of, size_t r, size_t column) {
        return word(of, (row + r) * row_bytes + column);
    };
    // Tiles of the same rows follow each other, or those of the same blocks do.
    const auto in_tiles = [&](const Region& of, size_t r, size_t column, bool down) {
        const size_t i = (row + r) / 128, j = column / 4;
        const size_t tile = down ? j * tiles_down + i : i * (row_bytes / 4) + j;
        return word(of, tile * 512 + (row + r) % 32 * 16 + (row + r) % 128 / 32 * 4);
    };
    // Whether a region has the words as the scale factors of these rows, from a block on.
    const auto has = [&](const Region& each, size_t column, bool or_down) {
        bool has_rows = true, has_tiles = tiles_down * row_bytes * 128 <= each.size;
        bool has_down = has_tiles && or_down;
        for (uint32_t r = 0; r < rows_of_scales && (has_rows || has_tiles || has_down); r++) {
            has_rows = has_rows && by_rows(each, r, column) == words[r];
            has_tiles = has_tiles && in_tiles(each, r, column, false) == words[r];
            has_down = has_down && in_tiles(each, r, column, true) == words[r];
        }
        return has_rows || has_tiles || has_down;
    };
    const auto may_be_scales = [&](const Region& each) {
        return is_global(each) && &each != region && each.size >= rows * row_bytes &&
               each.size % row_bytes == 0;
    };
    const Region* permuted = nullptr;
    for (const Region& each : recorder.regions) {
        if (!may_be_scales(each)) continue;
        if (has(each, own, true)) return;
        std::copy(words, words + rows_of_scales, sorted);
        std::sort(sorted, sorted + rows_of_scales);
        uint32_t its[rows_of_scales];
        for (uint32_t r = 0; r < rows_of_scales; r++) its[r] = by_rows(each, r, own);
        std::sort(its, its + rows_of_scales);
        if (std::equal(its, its + rows_of_scales, sorted)) permuted = &each;
    }
    if (permuted) {
        uint32_t wrong = 0, from = 0;
        while (by_rows(*permuted, wrong, own) == words[wrong]) wrong++;
        while (by_rows(*permuted, from, own) != words[wrong]) from++;
        say("scale factors",
            text("row %u of %s has the scale factors of row %u (%s): in the 512 bytes that "
                 "tcgen05.cp copies, those of row r and block j are byte r %% 32 * 16 + r / 32 * 4 "
                 "+ j",
                 first + wrong, is_b ? "B, a column of the product," : "A", first + from,
                 permuted->name.c_str()),
            at, copy, "tcgen05.cp");
        return;
    }
    for (const Region& each : recorder.regions)
        for (size_t column = 0; may_be_scales(each) && column < row_bytes; column += 4) {
            if (column == own || !has(each, column, false)) continue;
            say("scale factors",
                text("blocks %zu to %zu of the rows of %s are multiplied with the scale factors of "
                     "blocks %zu to %zu (%s)",
                     own, own + 3, is_b ? "B" : "A", column, column + 3, each.name.c_str()),
                at, copy, "tcgen05.cp");
            return;
        }
}

}  // namespace
}  // namespace simulator
