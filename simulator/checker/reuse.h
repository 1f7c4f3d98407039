// What caches would answer: how far apart in time a launch asks for the same sectors.
//
// On the simulator a warp runs far ahead of the others, on a GPU they keep pace. So time is what
// the warp itself has asked for since its block began, in lines of 128 bytes: two warps that are as
// far ask at the same time. Who knows how many warps share a cache knows what lies between.
#pragma once
#include <map>
#include <vector>
#include "traffic.h"

namespace simulator {
namespace {

// The requests of one place to one region in one launch.
struct Reuse {
    static constexpr unsigned most = 28;

    uint64_t left_out = 0;  // bytes that lanes asked for beyond their traces: see beyond.h
    uint64_t requests = 0, asked = 0, sectors = 0, lines = 0, passes = 0, smooth = 0;
    // Global memory: sectors that the block had asked for before, by the binary logarithm of the
    // warp's lines since then. And those new to the block: another block of the launch had asked,
    // by the logarithm of how many blocks before; an earlier launch had; nobody had.
    uint64_t in_block[most] = {}, by_blocks[most] = {};
    uint64_t earlier = 0, first = 0;
    uint64_t pairs = 0;    // of the latter, those whose other half of 64 bytes the block has, too
    uint64_t to_warp = 0;  // read sectors that were new to the warp, be they of another warp or not
    uint64_t written = 0;  // sectors that the launch had not written before
    uint64_t touched = 0;  // sectors of each request, each once, however often lanes change it
    uint64_t pieces = 0;   // of 256 bytes of memory, of which the block had asked for no sector
};

class Reuses {
  public:
    bool is_on = false;

    void begin_launch(uint32_t with) {
        launch = with, counts.emplace_back(), hottest.push_back(0), warps.push_back(0);
    }

    // Of a launch: by the numbers of site and region.
    using Counts = std::map<std::pair<unsigned, const Region*>, Reuse>;
    std::vector<Counts> counts;
    std::vector<uint64_t> hottest;  // of a launch: turns of atomics at the busiest line of memory

    std::vector<uint64_t> warps;  // of a launch: those that ask for any global memory

    Reuse& of(unsigned site, const Region& region) { return counts.back()[{site, &region}]; }

    // visit_sectors(visit): of a request of so many that a warp makes, each.
    template <class VisitSectors>
    void note(Reuse& to, Kind kind, unsigned warp, uint32_t block, uint64_t turns,
              VisitSectors visit_sectors) {
        Clock& clock = clocks[warp];
        if (clock.block != block) clock = {block, 0}, warps.back()++;
        uintptr_t line = 0;
        uint32_t lines = 0;
        visit_sectors([&](uintptr_t sector) {
            to.touched++;
            Entry& entry = at(sector);
            if (!lines || sector / 8 != line / 2) to.pieces += is_new_piece(sector, block);
            lines += sector / 4 != line;
            line = sector / 4;
            const uint32_t me = 1u << warp % 32;
            if (entry.block != block) entry.warps = 0;
            if (only_reads(kind)) {
                to.to_warp += !(entry.warps & me);
                if (entry.block == block) {
                    const uint32_t since = clock.lines > entry.lines ? clock.lines - entry.lines
                                                                     : entry.lines - clock.lines;
                    to.in_block[bucket(since)]++;
                } else if (entry.block >= launch) {
                    to.by_blocks[bucket(block - entry.block)]++;
                } else {
                    to.pairs += !entry.block && has(sector ^ 1, block);
                    (entry.block ? to.earlier : to.first)++;
                }
            } else {
                to.written += entry.written < launch;
                entry.written = block;
            }
            entry.block = block;
            entry.warps |= me;
            entry.lines = clock.lines;
        });
        to.lines += lines;
        clock.lines += lines;
        if (is_atomic(kind) && lines) {
            uint64_t& busy = at_line[line % (at_line.size() - 1)];
            busy = (busy >> 40 == (launch & 0xffffff) ? busy : uint64_t(launch & 0xffffff) << 40) +
                   turns;
            hottest.back() = std::max(hottest.back(), busy & ((uint64_t(1) << 40) - 1));
        }
    }

    // The warp has asked for so many lines more.
    void pass(unsigned warp, uint32_t lines) { clocks[warp].lines += lines; }
    uint32_t lines_of(unsigned warp) const { return clocks[warp].lines; }

  private:
    struct Clock {
        uint32_t block, lines;
    };
    struct Entry {
        uintptr_t sector = 0;
        uint32_t block = 0, lines = 0, written = 0, warps = 0;
    };

    static unsigned bucket(uint32_t distance) {
        return distance ? std::min(32u - __builtin_clz(distance), Reuse::most - 1) : 0;
    }

    Entry& at(uintptr_t sector) {
        if (2 * used >= table.size()) grow();
        Entry& found = place_of(sector);
        used += !found.sector;
        found.sector = sector;
        return found;
    }
    Entry& place_of(uintptr_t sector) {
        size_t i = (sector * 0x9E3779B97F4A7C15 >> 20) & (table.size() - 1);
        while (table[i].sector && table[i].sector != sector) i = (i + 1) & (table.size() - 1);
        return table[i];
    }
    bool has(uintptr_t sector, uint32_t block) {
        const Entry& found = place_of(sector);
        return found.sector && found.block == block;
    }
    bool is_new_piece(uintptr_t sector, uint32_t block) {
        for (uintptr_t other = 0; other < 8; other++)
            if (has(sector ^ other, block)) return false;
        return true;
    }
    void grow() {
        std::vector<Entry> before(std::max<size_t>(1 << 14, 2 * table.size()));
        before.swap(table);
        for (const Entry& it : before)
            if (it.sector) place_of(it.sector) = it;
    }

    uint32_t launch = 0;  // the serial number of its first block
    size_t used = 0;
    std::vector<Entry> table;
    std::vector<uint64_t> at_line = std::vector<uint64_t>((1 << 12) + 1);
    Clock clocks[max_threads / warp_size] = {};
};

}  // namespace
}  // namespace simulator
