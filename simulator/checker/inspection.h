// Who touched the same memory before: each request is compared with the accesses noted so far.
#pragma once
#include "recorder.h"

namespace simulator {
namespace {

Strength strength_of(const Site& site) {
    return is_volatile(site.kind)       ? Strength::Volatile
           : !is_strong(site.kind)      ? Strength::Plain
           : site.scope == Scope::Block ? Strength::AtomicInBlock
                                        : Strength::Atomic;
}

// Whether two accesses are no race, in whatever order they come. Volatile ones are one for now, and
// a volatile store is beside an atomic: Findings::drop_explained knows more. But where no fence
// occurs a volatile read of what another block stores asks for news, whenever that comes.
bool Recorder::may_coincide(const Touch& before, const Touch& touch) const {
    const Strength one = before.how(), other = touch.how();
    if (one == Strength::Plain || other == Strength::Plain) return false;
    const bool is_in_block = order.is_of_running_block(before.time);
    const auto stores = [&](const Touch& it) { return sites[it.site].kind == Kind::VolatileWrite; };
    if (one == Strength::Volatile && other == Strength::Volatile)
        return !is_in_block && !order.has_fences && !(stores(before) && stores(touch));
    if (stores(before) || stores(touch)) return false;
    return is_in_block || (one != Strength::AtomicInBlock && other != Strength::AtomicInBlock);
}

// What the accesses of a request have in common.
struct Recorder::Inspection {
    Site& site;
    Region& region;
    const Request& request;
    unsigned first_thread;  // of the warp
    unsigned cells;         // of each access
    Strength strength;
    bool reads, writes;  // else it changes, as others may at the same time
    uint32_t begin;  // what was touched before is no matter: another launch's, or another block's
    // What was done to the region since then, and is to be compared with.
    bool was_written, was_changed, was_read, must_be_written;
};

void Recorder::inspect(Site& site, Region& region, const Request& request, unsigned warp) {
    region.refine(request.size | (request.first - region.begin) | request.differ, !is_sampled);
    const uint32_t begin = region.is_shared() ? order.shared_begin : order.launch_begin;
    const bool reads = only_reads(site.kind), writes = site.kind == Kind::Write;
    const bool changes = !reads && !writes;
    Inspection it{
        site,
        region,
        request,
        warp * warp_size,
        std::max(1u, request.size >> region.shift),
        strength_of(site),
        reads,
        writes,
        begin};
    it.was_written = region.last_write >= begin ||
                     (writes && (!request.apart || request.times > 1));  // by itself, perhaps
    it.was_changed = region.last_atomic >= begin;
    it.was_read = !reads && region.last_read >= begin;
    it.must_be_written =
        (reads || (is_atomic(site.kind) && site.kind != Kind::Store &&
                   (site.kind != Kind::Swap || site.uses_old))) &&
        site.role != Role::Done &&
        (region.is_shared() ? !block->cluster || asynchronous.is_own(region)
                            : region.type == Region::Fresh && !region.written_before);
    if (writes)
        region.note_writes(order.now, !is_sampled);
    else if (changes)
        region.note_atomics(order.now, !is_sampled);
    else
        region.note_reads(order.now, !is_sampled);

    region.read_requests += reads;
    region.atomic_requests += changes;
    if (!reads && !region.written_by) region.written_by = &site;
    if (!reads) region.largest = std::max(region.largest, request.size);

    const bool is_plain = site.kind == Kind::Read || writes;
    const bool is_in_runs =
        !(((request.first - region.begin) | request.differ) & (request.size - 1));
    if (is_plain && !request.same && is_in_runs && it.cells <= line_cells && !it.was_changed &&
        !site.is_by_proxy)
        return inspect_runs(it);
    // All lanes that want the same are noted at once.
    const bool compares = it.was_written || it.was_changed || it.was_read || it.must_be_written;
    const uint32_t first = request.lanes & -request.lanes;
    for_each_of(request.same && !compares ? first : request.lanes, [&](unsigned lane) {
        for (unsigned i = 0; i < request.times; i++) inspect_access(it, lane, i);
    });
}

// Run by run. Where one is not certain to come after what was there before, access by access.
void Recorder::inspect_runs(const Inspection& it) {
    const Request& request = it.request;
    const Known known = order.known_to_warp(it.first_thread / warp_size, it.begin);
    const uint32_t written_since =
        !it.must_be_written     ? 0
        : it.region.is_shared() ? it.begin
                                : settled;
    const unsigned log_cells = __builtin_ctz(it.cells);
    // So many accesses of a lane, from its i-th on, or of a lane and those after it.
    const auto inspect_run =
        [&](size_t cell, unsigned lane, unsigned i, unsigned accesses, bool is_lanes) {
            const Touch touch(order.now, it.first_thread + lane, it.site.id, it.strength);
            Run run{scattered(cell), accesses << log_cells, is_lanes ? log_cells : log_line, touch};
            if (it.writes && request.turn != ~0u)
                for (unsigned k = 0; k < accesses; k++)
                    run.set_value(k << log_cells, it.cells,
                                  is_lanes ? value_of(it, lane + k, i) : value_of(it, lane, i + k));
            const bool is_in_order =
                it.writes ? it.region.write_in_order(run, known, it.was_written, it.was_read)
                          : it.region.read_in_order(run, known, it.was_written, written_since);
            if (is_in_order) return;
            for (unsigned k = 0; k < accesses; k++)
                is_lanes ? inspect_access(it, lane + k, i) : inspect_access(it, lane, i + k);
        };
    // In lines.
    const auto inspect_row = [&](unsigned lane, unsigned accesses, bool is_lanes) {
        const size_t first = (request.at[lane] - it.region.begin) >> it.region.shift;
        for (unsigned done = 0; done < accesses;) {
            const size_t cell = first + (size_t(done) << log_cells);
            const unsigned room = (line_cells - cell % line_cells) >> log_cells;
            const unsigned count = std::min(room, accesses - done);
            inspect_run(cell, is_lanes ? lane + done : lane, is_lanes ? 0 : done, count, is_lanes);
            done += count;
        }
    };
    const unsigned first = __builtin_ctz(request.lanes), lanes = request.count();
    if (request.times == 1 && request.in_a_row &&
        request.lanes >> first == (lanes < warp_size ? 1u << lanes : 0) - 1)
        return inspect_row(first, lanes, true);
    for_each_of(request.lanes, [&](unsigned lane) { inspect_row(lane, request.times, false); });
}

unsigned Recorder::value_of(const Inspection& it, unsigned lane, unsigned i) const {
    return trace->value(it.first_thread + lane, it.request.turn + i * it.request.stride);
}

// Of a lane, the i-th of its accesses in this request.
void Recorder::inspect_access(const Inspection& it, unsigned lane, unsigned i) {
    Region& region = it.region;
    const Site& site = it.site;
    const Request& request = it.request;
    const uintptr_t address = request.at[lane] + i * request.size;
    const size_t first = (address - region.begin) >> region.shift;
    const unsigned thread = it.first_thread + lane;
    const uint32_t begin = it.begin;
    Touch touch(order.now, thread, site.id, it.strength);
    if ((it.writes || site.kind == Kind::VolatileWrite) && request.turn != ~0u)
        touch.value = value_of(it, lane, i);
    if (it.must_be_written && !is_any_written(region, first, it.cells, begin)) {
        Finding* const told =
            report(at("uninitialised", site, &region, address, request.size, thread));
        if (told && it.reads && region.is_shared()) note_unset_read(*told);
        if (told && !told->is_certain && unset_reads.size() < most_unset_reads) {
            unset_reads.push_back({told, &region, address, thread, begin});
            unset_bytes.insert({address, {request.size, !region.is_shared()}});
        }
    }
    if (it.writes && !unset_bytes.empty())
        note_write_of_unset(region, first, address, request.size, touch, begin);
    const auto compare = [&](const Touch& before) {
        if (site.role != Role::Done && !may_coincide(before, touch) &&
            !order.is_kept_apart(before, thread, it.reads))
            race(before, touch, region, address, request.size);
    };
    if (is_volatile(site.kind)) order.note_site(thread, site.id);
    Touch shared = touch;  // by all lanes that want the same
    if (request.same && shared.value)
        for_each_of(request.lanes, [&](unsigned other) {
            if (value_of(it, other, i) != touch.value) shared.value = 0;
        });
    const bool notes = !request.same || it.writes || lane == unsigned(__builtin_ctz(request.lanes));
    const uint32_t noted = request.same ? request.lanes : 1u << lane;
    for (size_t cell = first; cell < first + it.cells; cell++) {
        const size_t spot = scattered(cell);
        if (site.is_by_proxy) asynchronous.cross_proxies(site, region, spot, touch, address);
        if (it.was_written) {
            const Touch before = region.writes.get(spot);
            if (before.time >= begin && !order.is_ordered(before, thread)) compare(before);
        }
        if (it.was_changed) {
            // Who has changed it by an atomic comes after the atomics before that one.
            const bool stores = it.writes || site.kind == Kind::VolatileWrite;
            const Touch own = stores ? region.atomics.of(spot, thread, begin) : Touch();
            region.atomics.for_each_unordered(spot, thread, order, begin, [&](const Touch& before) {
                if (own.time <= before.time || !may_coincide(before, own)) compare(before);
            });
        }
        if (it.was_read) {
            region.reads.for_each_unordered(spot, thread, order, begin, compare);
            if (site.kind == Kind::Exchange) note_guess(region, spot, thread, begin);
        }
        if (it.reads && is_volatile(site.kind)) note_waiting(region, spot, touch);
        if (it.writes) {  // it stands for the others from now on
            if (it.was_read) region.reads.settle(spot);
            if (it.was_changed) region.atomics.settle(spot);
        }
        if (!notes) continue;
        if (it.writes)
            region.write(spot, touch);
        else if (it.reads)
            region.read(spot, touch, noted, order, begin);
        else
            region.change(spot, shared, noted, order, begin);
    }
}

// A volatile read of the same by the same thread as before: it waits for a change.
void Recorder::note_waiting(const Region& region, size_t spot, const Touch& touch) {
    const Touch before = region.reads.last_of(spot);
    if (before.time >= order.launch_begin && before.thread == touch.thread &&
        before.site == touch.site && order.is_of_running_block(before.time))
        sites[touch.site].waits = true;
}

// An atomicCAS of what the thread has read there before.
void Recorder::note_guess(const Region& region, size_t spot, unsigned thread, uint32_t begin) {
    const Touch guess = region.reads.of(spot, thread, begin);
    if (guess.time && order.is_of_running_block(guess.time)) sites[guess.site].guesses = true;
}

// Not all cells: a structure that is read as a whole may have gaps that nobody writes.
bool Recorder::is_any_written(const Region& region, size_t first, unsigned cells, uint32_t begin) {
    for (size_t cell = first; cell < first + cells; cell++)
        if (!region.writes.empty() &&
            (region.last_write_of(cell).time >= (region.is_shared() ? begin : settled) ||
             region.atomics.is_touched(cell, begin)))
            return true;
    // By a block that is not traced, perhaps.
    return is_sampled && !region.is_shared() &&
           !is_poisoned(region, region.begin + (first << region.shift), cells << region.shift);
}

}  // namespace
}  // namespace simulator
