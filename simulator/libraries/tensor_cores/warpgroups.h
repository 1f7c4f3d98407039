// Products of warpgroups: which elements a matrix descriptor means, and when they are multiplied.
#pragma once
#include "../../include/simulator/matrix_descriptor.h"
#include "../../include/simulator/tensor_map.h"
#include "sparse.h"

namespace simulator::tensor_cores {
namespace {

// Rows of k elements of so many bytes, densely.
void gather(const Block& block, const Descriptor& descriptor, bool is_transposed, uint32_t first,
            uint32_t lines, uint32_t row_bytes, uint32_t size, char* to) {
    const auto at = [&](uint32_t offset) {
        const uint32_t address = (descriptor.start + offset) & (window - 1);
        return swizzled(const_cast<char*>(at_descriptor(block, address)), descriptor.swizzle);
    };
    if (!is_transposed) {
        for (uint32_t line = 0; line < lines; line++)
            for (uint32_t unit = 0; unit * 16 < row_bytes; unit++)
                memcpy(to + line * row_bytes + unit * 16,
                       at(descriptor.offset(first + line, unit, false)), 16);
        return;
    }
    const uint32_t of_unit = 16 / size;
    for (uint32_t k = 0; k * size < row_bytes; k++)
        for (uint32_t line = 0; line < lines; line++) {
            const uint32_t row = first + line;
            const char* from = at(descriptor.offset(k, row / of_unit, true));
            memcpy(to + line * row_bytes + k * size, from + row % of_unit * size, size);
        }
}

// What a lane has asked for.
struct Asked {
    const WarpgroupTile* tile;
    uint64_t a, b;
    uint32_t words[4];  // of A, in registers
    uint32_t metadata;  // of A, where it is sparse
    bool accumulates;
    unsigned group;
    char* first;              // the accumulators, if they lie side by side
    std::vector<void*> each;  // else where each of them is
    const char* file;
    int line;

    char* accumulator(int i) const { return first ? first + i * 4 : static_cast<char*>(each[i]); }
};

struct AskedByThread {
    uint64_t block = 0;
    unsigned groups = 0;
    std::vector<Asked> all;
};

AskedByThread& asked_by(unsigned thread) {
    thread_local std::vector<AskedByThread> threads(max_threads);
    AskedByThread& mine = threads[thread];
    if (mine.block != running_block().serial) {
        mine.block = running_block().serial;
        mine.groups = 0;
        mine.all.clear();
    }
    return mine;
}

// By one warp, whose lanes have all asked for the same.
void multiply(const Block& block, Asked* const (&asked)[32], unsigned warp) {
    const WarpgroupTile& it = *asked[0]->tile;
    const Tile& tile = it.tile;
    const int bits = bits_of(tile.a), results = bits_of(tile.d);
    const uint32_t row_bytes = uint32_t(tile.k) * bits / 8;
    alignas(64) char a[16 * 32], b[256 * 64];
    alignas(64) static thread_local char d[16 * 256 * 4];
    if (it.a_in_registers) {
        const Dense rows{a, row_bytes};
        for (int lane = 0; lane < 32; lane++)
            for (int r = 0; r < 4; r++) memcpy(rows.at(lane, r, 2, 4), &asked[lane]->words[r], 4);
    } else {
        gather(block, Descriptor(asked[0]->a), it.a_is_transposed, warp % 4 * 16, 16, row_bytes,
               bits / 8, a);
    }
    const uint32_t row_of_b = row_bytes * (it.is_sparse ? 2 : 1);
    gather(block, Descriptor(asked[0]->b), it.b_is_transposed, 0, tile.n, row_of_b, bits / 8, b);
    const Dense result{d, size_t(tile.n) * results / 8};
    // A lane's accumulators, eight columns after the others: of 16 bits two to a register.
    const int per_eight = results == 16 ? 2 : 4, count = tile.n / 8 * per_eight;
    const auto place = [&](int lane, int i) {
        const Dense columns{result.bytes + i / per_eight * results, result.row};
        return at_result(columns, lane, i % per_eight, results);
    };
    if (asked[0]->accumulates) {
        for (int lane = 0; lane < 32; lane++)
            for (int i = 0; i < count; i++) memcpy(place(lane, i), asked[lane]->accumulator(i), 4);
    } else {
        memset(d, 0, size_t(16) * tile.n * results / 8);
    }
    if (it.is_sparse)
        multiply_sparse(tile, a, b, d, Metadata(tile, it.selector, [&](int lane) {
                            return asked[lane]->metadata;
                        }));
    else
        multiply(tile, a, b, d);
    for (int lane = 0; lane < 32; lane++)
        for (int i = 0; i < count; i++) memcpy(asked[lane]->accumulator(i), place(lane, i), 4);
}

}  // namespace

void ask(const WarpgroupTile& tile, const uint32_t* a, uint64_t descriptor_a, uint64_t descriptor_b,
         uint32_t metadata, bool accumulates, void* const* d, int count, const char* file,
         int line) {
    AskedByThread& mine = asked_by(running_block().rank);
    mine.all.emplace_back();
    Asked& it = mine.all.back();
    it.tile = &tile;
    it.a = descriptor_a;
    it.b = descriptor_b;
    if (a) memcpy(it.words, a, sizeof it.words);
    it.metadata = metadata;
    it.accumulates = accumulates;
    it.group = mine.groups;
    it.file = file;
    it.line = line;
    it.first = static_cast<char*>(d[0]);
    for (int i = 1; i < count && it.first; i++)
        if (d[i] != it.first + i * 4) it.first = nullptr;
    if (!it.first) it.each.assign(d, d + count);
}

void commit() { asked_by(running_block().rank).groups++; }

void carry_out(Meeting* const* lanes, uint32_t which) {
    if (which != ~0u) return;
    AskedByThread* mine[32];
    const auto waiting = [&](int lane) { return static_cast<Wait*>(lanes[lane]); };
    for (int lane = 0; lane < 32; lane++) mine[lane] = &asked_by(waiting(lane)->thread);
    const Block& block = running_block();
    const unsigned warp = waiting(0)->thread / 32, prior = waiting(0)->prior;
    size_t done = 0;
    for (; done < mine[0]->all.size(); done++) {
        Asked* asked[32];
        if (mine[0]->all[done].group + prior >= mine[0]->groups) break;
        for (int lane = 0; lane < 32; lane++) {
            if (done >= mine[lane]->all.size() ||
                mine[lane]->all[done].tile != mine[0]->all[done].tile ||
                mine[lane]->all[done].b != mine[0]->all[done].b)
                fail("the lanes of a warp have asked for different products", "wgmma.mma_async",
                     mine[0]->all[done].file, mine[0]->all[done].line);
            asked[lane] = &mine[lane]->all[done];
        }
        multiply(block, asked, warp);
    }
    for (auto* each : mine) each->all.erase(each->all.begin(), each->all.begin() + done);
}

}  // namespace simulator::tensor_cores
