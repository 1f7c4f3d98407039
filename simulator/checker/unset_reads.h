// Findings of memory that was read but never written, and the report of a race.
#pragma once
#include "recorder.h"

namespace simulator {
namespace {

// Those that stay without a writer are no race's consequence. Where a launch was stopped, its
// writer may not have had its turn.
void Recorder::look_at_unset_reads(bool of_shared) {
    for (const UnsetRead& it : unset_reads) {
        if (it.region->is_shared() != of_shared || it.finding->is_certain) continue;
        if (time_limit.is_over) break;
        const size_t first = (it.address - it.region->begin) >> it.region->shift;
        const size_t cells = std::max(1u, it.finding->size >> it.region->shift);
        if (is_any_written(*it.region, first, cells, it.begin) && !is_only_updated(it, first))
            continue;
        it.finding->is_certain = true;
        it.finding->address = it.address, it.finding->place.thread = it.thread;
    }
    unset_reads.erase(
        std::remove_if(unset_reads.begin(), unset_reads.end(),
                       [&](const auto& it) { return it.region->is_shared() == of_shared; }),
        unset_reads.end());
    if (of_shared) unset_bytes.clear();
}

// Lanes that write there at once have read alike.
void Recorder::note_write_of_unset(const Region& region, size_t first, uintptr_t address,
                                   unsigned size, const Touch& touch, uint32_t begin) {
    constexpr size_t widest = 16;
    const auto end = unset_bytes.lower_bound(address + size);
    for (auto it = unset_bytes.lower_bound(address - widest); it != end; ++it) {
        if (it->second.may_be_set || it->first + it->second.size <= address) continue;
        const size_t spot = scattered(first);
        const Touch before = region.writes.empty() ? Touch() : region.writes.get(spot);
        const bool is_same_step = before.time == touch.time && before.site == touch.site;
        it->second.may_be_set = !is_same_step && !region.reads.of(spot, touch.thread, begin).time;
    }
}

// Whether all who write there have read before, as in bins[i]++: whoever is the first reads what
// nobody has written.
bool Recorder::is_only_updated(const UnsetRead& it, size_t first) const {
    const auto bytes = unset_bytes.find(it.address);
    if (bytes == unset_bytes.end() || bytes->second.may_be_set ||
        it.region->atomics.is_touched(first, it.begin))
        return false;
    const Site& last = sites[it.region->last_write_of(first).site];
    return last.kind == Kind::Write && last.role == Role::Thread;
}

// What no repetition of an earlier launch has shown to be unused counts as used.
void Recorder::note_unset_read(Finding& told) {
    const unsigned launch = launches.size() - 1;
    if (told.read_in == launch) return;
    if (told.use == Finding::Unused)
        told.use = Finding::Unknown;
    else if (told.read_in != ~0u)
        told.use = Finding::Used;
    told.read_in = launch;
}

void Recorder::race(const Touch& before, const Touch& touch, const Region& region,
                    uintptr_t address, unsigned size) {
    const Site &site = sites[touch.site], &other = sites[before.site];
    // What blocks of a cluster send each other is ordered by mbarriers, of which this knows too
    // little.
    if ((site.role != Role::Thread || other.role != Role::Thread) && block->cluster &&
        order.block_at(before.time) != serial)
        return;
    // Copies that others have asked for since tell of it, too, through the mbarrier that they
    // count.
    if (site.role == Role::Asked && other.role == Role::Thread &&
        asynchronous.has_happened(before.time, before.thread))
        return;
    Finding finding = at("race", site, &region, address, size, touch.thread);
    if (asynchronous.is_race_of(site, other, finding)) finding.kind = "asynchronous race";
    finding.hazard = only_reads(site.kind)    ? "read after write"
                     : only_reads(other.kind) ? "write after read"
                                              : "write after write";
    if (touch.value && touch.value == before.value) {
        finding.severity = Severity::Note;
        finding.message = "both write the same value";
    }
    if (is_atomic(site.kind) && is_atomic(other.kind))
        finding.message = "an atomic whose scope is its block is none for other blocks";
    else if (const LockFault fault = order.fault_of_lock(before, touch.thread);
             fault != LockFault::None && finding.message.empty())
        finding.message = lock_fault_texts[int(fault)];
    finding.other = {
        access_names[int(other.kind)], &other, "", 0, order.block_at(before.time), before.thread};
    report(finding);
}

// What these were to write stays unwritten, which is no news.
bool Recorder::has_stopped_threads() const {
    return time_limit.is_over ||
           findings.has({"out of bounds", "array end", "misaligned", "freed memory", "wild call",
                         "integer division", "deadlock", "failed", "assertion", "timeout"});
}

// Outputs that the call left with elements that nobody wrote. A tensor that was given looks like an
// output if kernels write most of it and do not read it: what writes less means to (a scatter).
void Recorder::find_unwritten() {
    bool all_ran = true;
    for (const LaunchRecord& launch : launches) all_ran &= launch.recorded == launch.blocks;
    if (launches.empty() || has_stopped_threads()) return;
    for (const Site& site : sites) note_ends(site.id);
    for (Region& region : regions) {
        if (!region.is_alive() || region.writes.empty()) continue;
        if (region.type == Region::Given && !all_ran) find_unwritten_end(region);
        const bool given = region.type == Region::Given;
        if (given ? region.read_requests || region.atomic_requests || !all_ran : !region.output)
            continue;
        if (given && 2 * region.bytes_written() < region.size) {
            find_comb(region);
            continue;
        }
        if (region.written_before || region.bytes_written() == region.size) continue;
        // Of blocks that were not traced only whole words tell: a sample stands for the rest.
        const size_t sample = given || all_ran || count_poisoned(region) ? ~size_t(0) : 1 << 16;
        uint64_t missing = 0;
        uintptr_t first = 0;
        for (size_t i = 0; i < std::min(region.cells(), sample); i++) {
            if (region.is_written(i)) continue;
            const uintptr_t cell = region.begin + (i << region.shift);
            const size_t bytes = std::min(region.cell_size(), region.end - cell);
            if (given ? region.original && memcmp(region.original + (cell - region.begin),
                                                  reinterpret_cast<const char*>(cell), bytes)
                      : !is_untouched(region, i))
                continue;
            if (!missing++) first = cell;
        }
        if (!missing) continue;
        report_unwritten(region, first,
                         text("%llu of its bytes were never written, the first at byte %zu",
                              (unsigned long long)(missing << region.shift), first - region.begin));
    }
}

// The same of a tensor that was given, where not all blocks were traced: what lies behind all that
// anybody has written.
void Recorder::find_unwritten_end(Region& region) {
    uint64_t blocks = 0, recorded = 0;
    for (const LaunchRecord& launch : launches)
        blocks += launch.blocks, recorded += launch.recorded;
    const double likely = double(region.bytes_written()) * blocks / recorded;
    if (region.read_requests || region.atomic_requests || 2 * likely < region.size) return;
    size_t cell = region.cells();
    while (cell && !region.is_written(cell - 1)) cell--;
    const uintptr_t traced = std::min(region.begin + (cell << region.shift), region.end);
    const uintptr_t end = std::max(traced, region.written_to);
    if (end < region.end)
        report_unwritten(region, end,
                         text("its last %zu bytes were never written, from byte %zu on",
                              region.end - end, end - region.begin));
}

// The same few of each so many elements: what writes less than half may mean to, but hardly so.
void Recorder::find_comb(const Region& region) {
    constexpr size_t longest = 8, least = 8;
    const size_t cells = region.cells();
    for (size_t step = 2; step <= longest && step * least <= cells; step++) {
        const auto is_alike = [&](size_t i) {
            return region.is_written(i) == region.is_written(i % step);
        };
        size_t i = step, written = 0, missing = 0;
        while (i < cells && is_alike(i)) i++;
        if (i < cells) continue;
        for (i = step; i--;) region.is_written(i) ? void(written++) : void(missing = i);
        if (4 * written < step) return;
        Finding* const told = report_unwritten(
            region, region.begin + (missing << region.shift),
            text("of every %zu elements %zu were never written, the first at byte "
                 "%zu",
                 step, step - written, missing << region.shift));
        if (told) told->severity = Severity::Note;
        return;
    }
}

Finding* Recorder::report_unwritten(const Region& region, uintptr_t first,
                                    const std::string& message) {
    Finding finding{};
    finding.kind = "unwritten";
    finding.address = first, finding.size = region.cell_size(), finding.region = &region;
    finding.place.access = "write";
    finding.place.site = region.written_by;
    finding.message = message;
    return report(finding);
}

}  // namespace
}  // namespace simulator
