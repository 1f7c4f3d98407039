// Which columns of tensor memory and which matrices an instruction uses, and what is under way
// there: for lab.check.
#pragma once
#include "tcgen05.h"

namespace simulator::tensor_cores {
namespace {

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
    if (it.is_stationary) return {{first, m == 32 ? n / 4 : m == 64 ? n / 2 : n}};
    return {{first, it.blocks == 2 && m == 128 && !it.is_sparse ? n / 2 : n}};
}

ColumnRanges scales_of(const TensorOperation& it) {
    if (it.kind != TensorOperation::Product || !it.scales) return {};
    const uint32_t m = (it.instruction >> 24 & 31) * 16, n = (it.instruction >> 17 & 63) * 8;
    // With 96 of k some may be in the words of the next tile.
    const uint32_t bits = it.instruction, count = it.scales == 4 ? 6 : 3, is_long = bits >> 31;
    const uint32_t more_of_a = is_long && (bits >> 29 & 3) + count > 4 ? 4 : 0;
    const uint32_t more_of_b = is_long && (bits >> 4 & 3) + count > 4 ? n > 128 ? 8 : 4 : 0;
    return {{it.scales_of_a & 0xffff, m / it.blocks / 32 + more_of_a},
            {it.scales_of_b & 0xffff, (n + 31) / 32 + more_of_b}};
}

ColumnRanges read_by(const TensorOperation& it) {
    if (it.kind != TensorOperation::Product) return {};
    ColumnRanges found = scales_of(it);
    if (it.a_in_memory) found.push_back({uint32_t(it.a) & 0xffff, 8});
    const bool is_wide = it.product == ProductKind::F16 || it.product == ProductKind::TF32;
    const uint32_t metadata = (it.metadata & 0xffff) + (is_wide ? it.instruction & 3 : 0);
    if (it.is_sparse) found.push_back({metadata, is_wide ? 1u : 2u});
    return found;
}

// Visits what the threads have asked for that reaches the running block's tensor memory, by block
// and thread: of its own, and of the other block of a pair what the pair does together.
template <class Visit>
void for_each_operation(Visit visit) {
    const Block& block = running_block();
    const Block* sharing[] = {&block, nullptr};
    if (block.cluster && count_cluster(block) % 2 == 0)
        sharing[1] = block.cluster[block.cluster_rank ^ 1];
    for (const Block* of : sharing) {
        if (!of || of->cluster != block.cluster) continue;
        TensorMemory& memory = memory_of(*of);
        std::lock_guard<std::recursive_mutex> lock(memory.mutex);
        for (const auto& [rank, asked] : memory.asked)
            for (size_t i = asked.done; i < asked.operations.size(); i++)
                if (of == &block || asked.operations[i].blocks == 2)
                    visit(*of, rank, asked.operations[i]);
    }
}

// An operation that is under way and writes these columns, or, for who writes, reads them.
Conflict operation_in(const ColumnRanges& columns, bool writes) {
    Conflict found{};
    for_each_operation([&](const Block&, unsigned, const TensorOperation& it) {
        if (!found.file &&
            (meet(columns, written_by(it)) || (writes && meet(columns, read_by(it)))))
            found = {name_of(it), it.file, it.line};
    });
    return found;
}

// A load or a store of a warp that is under way in columns that are written, or, of stores, read.
Conflict access_in(TensorMemory& memory, const ColumnRanges& written, const ColumnRanges& read) {
    std::lock_guard<std::recursive_mutex> lock(memory.mutex);
    for (const auto& [rank, asked] : memory.asked) {
        for (const PendingAccess& it : asked.accesses) {
            const ColumnRanges columns = columns_of(it.access, it.count);
            if (meet(columns, written) || (it.access.is_store && meet(columns, read)))
                return {it.access.is_store ? "tcgen05.st" : "tcgen05.ld", it.access.file,
                        it.access.line};
        }
    }
    return {};
}

}  // namespace

Conflict conflict_of(const TensorAccess& access, int count) {
    return operation_in(columns_of(access, count), access.is_store);
}
// Operations of one thread follow each other, but for products whose accumulators overlap in part.
// Those of another thread are to be waited for.
Conflict conflict_of(const TensorOperation& operation) {
    const Block& block = running_block();
    const ColumnRanges written = written_by(operation), read = read_by(operation);
    const Pair pair(block, operation);
    Conflict found{};
    for (int i = 0; i < pair.count && !found.file; i++)
        found = access_in(*pair.memories[i], written, read);
    for_each_operation([&](const Block& of, unsigned rank, const TensorOperation& it) {
        if (found.file) return;
        const ColumnRanges its = written_by(it);
        const bool are_products =
            it.kind == TensorOperation::Product && operation.kind == TensorOperation::Product;
        if (are_products && it.to >> 16 != operation.to >> 16) return;  // in other lanes
        if (&of == &block && rank == block.rank
                ? are_products && meet(written, its) && !(written[0] == its[0])
                : meet(written, its) || meet(read, its) || meet(written, read_by(it)))
            found = {name_of(it), it.file, it.line};
    });
    return found;
}
Conflict conflict_of(uint32_t first, uint32_t count) {
    const ColumnRanges columns{{first & 0xffff, count}};
    const Conflict found = operation_in(columns, true);
    return found.file ? found : access_in(memory_of(running_block()), columns, columns);
}

TensorUse use_of(const TensorAccess& access, int count) {
    TensorUse use{access.is_store ? "tcgen05.st" : "tcgen05.ld", access.file, access.line, true};
    use.lane = access.address >> 16;
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
    if (it.kind == TensorOperation::Product)
        use.scales_of_row = it.scales, use.accumulates = it.accumulates;
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
        if (of.row_bytes > 32) {
            for (const bool is_b : {false, true}) {
                const uint64_t bits = is_b ? it.b : it.a;
                const LongRows rows(bits, it, use.what);
                const int lines = is_b ? of.n / pair.count : of.rows(), bytes = rows.units * 16;
                reads(i, bits, false, lines, bytes, 1);
                const uint64_t rest = (bits & ~0x3fffull) | rows.second.start >> 4;
                if (bytes < 48) reads(i, rest, false, lines, 48 - bytes, 1);
            }
            continue;
        }
        if (!it.a_in_memory)
            reads(i, it.a, of.a_is_transposed, of.rows(), 32, std::max(bits_of(tile.a) / 8, 1));
        reads(i, it.b, of.b_is_transposed, of.n / pair.count, it.is_sparse ? 64 : 32,
              std::max(bits_of(tile.b) / 8, 1));
    }
    return use;
}

}  // namespace simulator::tensor_cores
