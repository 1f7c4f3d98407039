// A touch of each cell of a region: its last write, or whoever has read it last.
//
// Mostly cells side by side are touched alike: by one thread that goes along a row, or by the
// threads of a warp one after the other. So a request is taken in runs of such cells, and a line of
// cells has one entry, from which all of them follow. Only where they differ each has its own.
#pragma once
#include <string.h>
#include "shadow.h"

namespace simulator {
namespace {

// What a warp knows of earlier touches, as far as barriers and its own meetings say so. `begin`:
// what was before does not count.
struct Known {
    int64_t begin, block_begin, last_barrier, last_meeting;
};

constexpr unsigned log_line = 3, line_cells = 1 << log_line;

// Cells within a line, and who touches them: a thread, and the next one each 1 << log_cells cells
// on. Where that is a line, it is one thread.
struct Run {
    size_t spot;  // of the first cell, scattered
    unsigned count;
    unsigned log_cells;
    Touch first;          // its value is in `values`
    uint64_t values = 0;  // of what is written: a byte for each cell

    unsigned thread(unsigned i) const { return first.thread + (i >> log_cells); }
    void set_value(unsigned cell, unsigned cells, uint64_t value) {
        for (unsigned i = cell; i < cell + cells; i++) values |= value << 8 * i;
    }
};

// Calls with a constant where the run is a whole line, as most are.
template <class Call>
SIMULATOR_INLINE auto with_count(const Run& run, Call call) {
    return run.count == line_cells ? call(std::integral_constant<unsigned, line_cells>())
                                   : call(run.count);
}

class Touches {
  public:
    bool empty() const { return lines.empty(); }
    void make(size_t count, bool everywhere, bool soon = true) {
        const size_t in_lines = whole_pages(count) >> log_line;
        lines.make(in_lines, everywhere, soon);
        values.make(in_lines, everywhere);
        cells.make(count, everywhere);
    }
    // `ratio` cells for each of before.
    void split(size_t count, unsigned ratio, bool everywhere) {
        if (empty()) return;
        const Touches before = std::move(*this);
        make(count, everywhere);
        for (size_t i = 0; i < count; i++) {
            const Touch touch = before.get(scattered(i / ratio));
            if (touch.time) at(scattered(i)) = touch;
        }
    }
    // It will be wanted soon.
    void prefetch(size_t spot) const {
        if (!empty()) lines.prefetch(spot >> log_line);
    }

    // `spot`: of a cell, scattered.
    SIMULATOR_INLINE Touch get(size_t spot) const {
        const Touch line = lines.at(spot >> log_line);
        return line.value == apart ? cells.at(spot) : in_line(line, spot);
    }
    // To be changed.
    SIMULATOR_INLINE Touch& at(size_t spot) {
        if (lines.at(spot >> log_line).value != apart) take_apart(spot >> log_line);
        return cells.at(spot);
    }

    // Of the cells of a run, as many as were touched at `since` or later.
    SIMULATOR_INLINE unsigned count_since(const Run& run, int64_t since) const {
        const Touch line = lines.at(run.spot >> log_line);
        if (line.value != apart) return line.time >= since ? run.count : 0;
        return with_count(run, [&](auto count) {
            uint64_t found = 0;
            for (unsigned i = 0; i < count; i++) found += time_of(bits(run.spot + i)) >= since;
            return unsigned(found);
        });
    }

    // Whether each of these touches surely comes before the run: it does not count, or is of the
    // same thread, or a barrier of the block or a meeting of the warp has followed. Of a crowd only
    // a barrier says so.
    SIMULATOR_INLINE bool come_before(const Run& run, const Known& known) const {
        const Touch line = lines.at(run.spot >> log_line);
        if (line.value == apart) return cells_come_before(run, known);
        const int64_t time = line.time;
        if (time < known.begin) return true;
        if (time < known.block_begin) return false;
        if (time < known.last_barrier) return true;
        if (line.thread / warp_size != run.first.thread / warp_size) return false;
        if (time < known.last_meeting) return true;
        for (unsigned i = 0; i < run.count; i++)
            if (in_line(line, run.spot + i).thread != run.thread(i)) return false;
        return true;
    }

    SIMULATOR_INLINE void put(const Run& run) {
        Touch& line = lines.at(run.spot >> log_line);
        if (run.count == line_cells) {
            line = run.first;
            line.value = alike + run.log_cells;
            if (!run.values) return;
            line.value += with_values;
            values.at(run.spot >> log_line) = run.values;
        } else {
            if (line.value != apart) take_apart(run.spot >> log_line);
            for (unsigned i = 0; i < run.count; i++) {
                Touch& cell = cells.at(run.spot + i);
                cell = run.first;
                cell.thread = run.thread(i);
                cell.value = run.values >> 8 * i;
            }
        }
    }

  private:
    // The value of a line's entry: how its cells follow from it. Of memory that is new it is 0, and
    // so is the time.
    enum : unsigned { alike = 1, with_values = 4, apart = 127 };

    SIMULATOR_INLINE Touch in_line(const Touch& line, size_t spot) const {
        Touch cell = line;
        cell.value = 0;
        if (!line.value) return cell;
        const unsigned i = spot % line_cells, how = line.value - alike;
        cell.thread = line.thread + (i >> how % with_values);
        if (how & with_values) cell.value = values.at(spot >> log_line) >> 8 * i;
        return cell;
    }
    [[gnu::noinline]] void take_apart(size_t number) {
        Touch& line = lines.at(number);
        const size_t first = number << log_line;
        for (size_t spot = first; spot < first + line_cells; spot++)
            cells.at(spot) = in_line(line, spot);
        line = Touch();
        line.value = apart;
    }

    // What goes without branches, in numbers that the compiler makes vectors of.
    uint64_t bits(size_t spot) const {
        uint64_t found;
        memcpy(&found, &cells.at(spot), sizeof found);
        return found;
    }
    static int64_t time_of(uint64_t bits) { return uint32_t(bits); }
    bool cells_come_before(const Run& run, const Known& known) const {
        return with_count(run, [&](auto count) {
            uint64_t unsure = 0;
            for (unsigned i = 0; i < count; i++) {
                const uint64_t before = bits(run.spot + i);
                const uint64_t differ = (before >> 32) ^ run.thread(i);
                const int64_t time = time_of(before);
                const uint64_t own_thread = (differ & (max_threads - 1)) == 0;
                const uint64_t own_warp = (differ & (max_threads - 1)) < warp_size;
                const uint64_t is_alone = ~before >> 56 & 1;
                const uint64_t is_known =
                    uint64_t(time < known.last_barrier) |
                    (is_alone & (own_thread | (own_warp & uint64_t(time < known.last_meeting))));
                const uint64_t is_before =
                    uint64_t(time < known.begin) | (uint64_t(time >= known.block_begin) & is_known);
                unsure |= is_before ^ 1;
            }
            return !unsure;
        });
    }

    Table<Touch> lines;
    Table<uint64_t> values;
    Table<Touch> cells;
};

}  // namespace
}  // namespace simulator
