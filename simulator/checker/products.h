// The products of warpgroups (wgmma): what they read of shared memory, which registers they use
// until they are waited for, and whether the matrices lie as their descriptors say.
#pragma once
#include "../include/simulator/matrix_descriptor.h"
#include "../include/simulator/tensor_cores.h"
#include "recorder.h"

namespace simulator {
namespace {

using tensor_cores::Descriptor;
using tensor_cores::Type;

constexpr const char* type_names[] = {
    "f16", "bf16", "tf32", "e4m3", "e5m2", "f64",  "s8",   "u8",  "s4",
    "u4",  "b1",   "f32",  "s32",  "e2m3", "e3m2", "e2m1", "e2m1"};
constexpr unsigned type_bits[] = {16, 16, 32, 8, 8, 64, 8, 8, 4, 4, 1, 32, 32, 8, 8, 8, 4};

void Asynchronous::product(const tensor_cores::Tile& tile, const char* what, const char* file,
                           int line) {
    if (stepper) stepper->product(tile, what, file, line);
    if (recorder.block->rank % warp_size || !recorder.is_counting) return;
    Products& it = products[&site_of(what, file, line)];
    if (it.types.empty())
        it.types = text("%s * %s + %s", type_names[int(tile.a)], type_names[int(tile.b)],
                        type_names[int(tile.d)]);
    it.products++;
    it.operations += uint64_t(2) * tile.m * tile.n * tile.k;
    recorder.launches.back().products[it.types] += uint64_t(2) * tile.m * tile.n * tile.k;
}

void Asynchronous::warpgroup_product(const tensor_cores::WarpgroupTile& tile, uint64_t a,
                                     uint64_t b, const void* const* registers_of_a, void* const* d,
                                     int count, const char* file, int line) {
    const char* what = "wgmma.mma_async";
    product(tile.tile, what, file, line);
    const uint32_t of_b = tile.is_sparse ? 2 : 1;  // B has twice the k of a sparse A
    Mine& it = mine();
    const Block& block = *recorder.block;
    const unsigned rank = block.rank;
    Site& asked = site_of(what, file, line);
    if (!it.has_fenced) {
        say("missing wgmma fence",
            "the first product of a warp comes after wgmma.fence, which orders it after what has "
            "been written to its registers",
            asked);
        it.has_fenced = true;
    }
    // A warp's matrix A are 16 rows of its own; B is the warpgroup's.
    if (rank % warp_size == 0) {
        Reads reading{{}, it.products, begin(asked, nullptr), &asked};
        const uint32_t row_bytes = tile.tile.k * type_bits[int(tile.tile.a)] / 8;
        if (!tile.a_in_registers)
            read_matrix(block, a, tile.a_is_transposed, rank / warp_size % 4 * 16, 16, row_bytes, 2,
                        reading, asked);
        if (rank / warp_size % 4 == 0)
            read_matrix(block, b, tile.b_is_transposed, 0, tile.tile.n, row_bytes * of_b, 2,
                        reading, asked);
        it.reads.push_back(std::move(reading));
    }
    const auto use = [&](uintptr_t begin, uintptr_t end, bool is_a) {
        for (Registers& its : it.registers) {
            if (its.begin != begin || its.end != end || its.is_a != is_a) continue;
            if (its.is_done && its.is_touched && !is_a) {
                say("missing wgmma fence",
                    "its accumulators have been written to since the product before, and no "
                    "wgmma.fence has followed",
                    asked);
            }
            its = {begin, end, is_a, false, false, it.products, &asked};
            return;
        }
        it.registers.push_back({begin, end, is_a, false, false, it.products, &asked});
    };
    const auto use_all = [&](auto place, int count, bool is_a) {
        for (int i = 0; i < count;) {
            if (!place(i)) {
                i++;
                continue;
            }
            const uintptr_t begin = uintptr_t(place(i));
            int n = 1;
            while (i + n < count && uintptr_t(place(i + n)) == begin + n * 4) n++;
            use(begin, begin + n * 4, is_a);
            i += n;
        }
    };
    use_all([&](int i) -> const void* { return d[i]; }, count, false);
    if (registers_of_a) use_all([&](int i) { return registers_of_a[i]; }, 4, true);
    watches_registers = true;
}

// `lines` of a matrix from the first on, of so many bytes along k; transposed, the lines are k.
void Asynchronous::read_matrix(const Block& block, uint64_t bits, bool is_transposed,
                               uint32_t first, uint32_t lines, uint32_t row_bytes,
                               uint32_t element_bytes, Reads& reading, Site& asked) {
    const Descriptor descriptor(bits);
    const auto at = [&](uint32_t offset) {
        const uint32_t address = (descriptor.start + offset) & (window - 1);
        return uintptr_t(swizzled(
            const_cast<char*>(tensor_cores::at_descriptor(block, address)), descriptor.swizzle));
    };
    const uintptr_t start =
        uintptr_t(tensor_cores::at_descriptor(block, descriptor.start & (window - 1)));
    const uint32_t lines_of_pattern = descriptor.swizzle / 16;  // of 128 bytes each
    if (descriptor.swizzle && !descriptor.base_offset && start / 128 % lines_of_pattern &&
        descriptor.start / 128 % lines_of_pattern)
        say("misaligned",
            text("the descriptor's swizzle of %u bytes repeats every %u bytes, and the matrix "
                 "begins %u bytes past a multiple of that, with a base offset of 0: alignas(%u)",
                 descriptor.swizzle, 128 * lines_of_pattern,
                 unsigned(descriptor.start % (128 * lines_of_pattern)), 128 * lines_of_pattern),
            asked);
    auto tile = tiles.upper_bound(start);
    if (tile != tiles.begin() && start < (--tile)->second.end) {
        const Tile& its = tile->second;
        const Region* region = recorder.region_at(start);
        const size_t cell = region ? (start - region->begin) >> region->shift : 0;
        const Touch written =
            region && !region->writes.empty() ? region->last_write_of(cell) : Touch();
        const bool is_its = written.time >= recorder.order.block_begin &&
                            (written.site == its.asked->id || written.site == its.done->id);
        if (is_its && its.swizzle != descriptor.swizzle)
            say("swizzle",
                text("the descriptor says a swizzle of %u bytes, and the tensor map by which the "
                     "tile was copied one of %u",
                     descriptor.swizzle, its.swizzle),
                asked, its.asked, "copy", its.asked->issuer);
    }
    const auto read = [&](uint32_t offset) {
        const uintptr_t address = at(offset);
        const Region* region = recorder.region_at(address);
        if (region && region->holds(address, 16)) look(address, 16, Kind::Read, asked);
        if (stepper) stepper->is_read(address, 16);
        touch(asked, address, 16, 16);
        reads.set(address, 16, reading.id);
        reading.ranges.push_back({address, 16});
    };
    if (is_transposed) {
        const uint32_t of_unit = 16 / element_bytes;
        for (uint32_t k = 0; k * element_bytes < row_bytes; k++)
            for (uint32_t unit = 0; unit * of_unit < lines; unit++)
                read(descriptor.offset(k, first / of_unit + unit, true));
        return;
    }
    std::set<uint32_t> begins;
    for (uint32_t row = 0; row < lines; row++) {
        begins.insert(descriptor.offset(first + row, 0, false));
        for (uint32_t unit = 0; unit * 16 < row_bytes; unit++)
            read(descriptor.offset(first + row, unit, false));
    }
    if (begins.size() < lines)
        if (Finding* const told =
                say("matrix descriptor",
                    text("its stride has %u rows read from %zu places: some are "
                         "read more than once",
                         lines, begins.size()),
                    asked))
            told->severity = Severity::Note;
}

void Asynchronous::warpgroup_fence() {
    Mine& it = mine();
    it.has_fenced = true;
    for (Registers& its : it.registers) its.is_touched = false;
}

void Asynchronous::warpgroup_commit() { mine().products++; }

void Asynchronous::warpgroup_done(unsigned prior, const char* file, int line) {
    Mine& it = mine();
    unsigned oldest = it.products;
    for (const Registers& its : it.registers)
        if (!its.is_done) oldest = std::min(oldest, its.group);
    note_wait(site_of("wgmma.wait_group", file, line), it.products - oldest);
    for (Registers& its : it.registers)
        if (its.group + prior < it.products) its.is_done = true;
    it.registers.erase(std::remove_if(it.registers.begin(), it.registers.end(),
                                      [](const Registers& its) { return its.is_done && its.is_a; }),
                       it.registers.end());
    while (!it.reads.empty() && it.reads.front().group + prior < it.products) {
        const Reads& done = it.reads.front();
        Site& site = this->done(*done.asked);
        for (const Range& range : done.ranges) {
            touch(site, range.begin, range.bytes, 16);
            reads.clear(range.begin, range.bytes, done.id);
        }
        end(done.id);
        it.reads.pop_front();
    }
}

// With a seed, some of what may be left for later is carried out now: the same for all lanes of a
// warp, which have waited as often.
unsigned Asynchronous::groups_left(unsigned most) {
    Mine& it = mine();
    const uint64_t turn = (recorder.seed + it.waits++) * 0x9E3779B97F4A7C15u;
    return recorder.seed && most ? unsigned(turn >> 40) % (most + 1) : most;
}

void Asynchronous::look_at_register(uintptr_t address, unsigned size, Kind kind, const Site& site) {
    const auto of = blocks.find(recorder.block);
    if (of == blocks.end()) return;
    const auto found = of->second.threads.find(recorder.block->rank);
    if (found == of->second.threads.end()) return;
    for (Registers& its : found->second.registers) {
        if (address + size <= its.begin || address >= its.end) continue;
        if (its.is_done) {
            its.is_touched |= kind != Kind::Read;
            continue;
        }
        if (its.is_a && kind == Kind::Read) continue;
        Finding finding =
            recorder.at("register in use", site, nullptr, address, size, recorder.block->rank);
        finding.message =
            text("%s of %s of a product that has not been waited for", access_names[int(kind)],
                 its.is_a ? "a register with A" : "an accumulator");
        finding.other = {"product", its.asked, "", 0, recorder.serial, recorder.block->rank};
        recorder.report(finding);
    }
}

// A multiprocessor has 65536 registers: 512 for each thread of a warpgroup, if there were one.
void Asynchronous::registers(unsigned count, bool is_more, const char* file, int line) {
    OfBlock& of = of_block();
    unsigned& mine = of.registers[recorder.block->rank / 128];
    const unsigned before = mine;
    mine = count;
    const Site& at = site_of(is_more ? "setmaxnreg.inc" : "setmaxnreg.dec", file, line);
    if (is_more) of.more_registers = &at;
    unsigned total = 0;
    for (unsigned each : of.registers) total += each;
    if (before != count && total > 512)
        say("setmaxnreg",
            text("the warpgroups ask for %u registers per thread together, and a multiprocessor "
                 "has 512 for the threads of one: this one would wait for ever",
                 total),
            of.more_registers ? *of.more_registers : at);
}

}  // namespace
}  // namespace simulator
