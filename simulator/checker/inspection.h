// What comes of a trace: requests of warps, who touched the same memory before, and findings.
#pragma once
#include "recorder.h"

namespace simulator {
namespace {

// ---- From the trace to requests

// The lanes of a warp have met, or ended: what they have asked for is complete.
void Recorder::flush(unsigned warp) {
    if (is_dropped()) return;
    note_value();
    settle_store();
    unsigned count[warp_size], total = 0, done = 0;
    for (unsigned lane = 0; lane < warp_size; lane++) {
        total += count[lane] = trace->count(warp * warp_size + lane);
        done += inspected[warp * warp_size + lane];
    }
    if (!total) return;
    accesses += total;
    counted_warp = warp;
    if (done) inspect(warp);
    if (is_counting || !done) flush_in_step(warp, count, !done);
    count_beyond(warp);
    for (unsigned lane = 0; lane < warp_size; lane++) {
        trace->clear(warp * warp_size + lane);
        inspected[warp * warp_size + lane] = 0;
    }
}

// Turn by turn, as long as all lanes are at the same place.
void Recorder::flush_in_step(unsigned warp, const unsigned (&count)[warp_size], bool inspects) {
    const auto [least, turns] = std::minmax_element(count, count + warp_size);
    for (unsigned turn = 0; turn < *turns; turn++) {
        Request request;
        const bool same = turn < *least ? trace->gather(warp, turn, request)
                                        : trace->gather(warp, turn, request, count);
        if (!same) {
            inspect_pending(warp);
            if (inspects) inspect(warp, turn);
            if (is_counting) count_out_of_step(warp, count, turn);
            return;
        }
        Site& site = sites[request.site];
        by_region(site, request, warp, [&](Region& region, const Request& part) {
            if (inspects) inspect_together(site, region, part, warp);
            if (is_counting) account(site, region, part);
        });
    }
    inspect_pending(warp);
}

// Lanes that go down a row each do so for many turns, in which each stays within a line of a table.
// Such requests are put together until its end, or until another wants the same memory.
void Recorder::inspect_together(Site& site, Region& region, const Request& request, unsigned warp) {
    const auto is_at_end = [&](const Request& it) {
        const uintptr_t end = it.at[__builtin_ctz(it.lanes)] + it.times * it.size - region.begin;
        return end % (line_cells << region.shift) == 0;
    };
    const bool reads = site.kind == Kind::Read;
    bool is_joined = false;
    size_t kept = 0;
    for (Pending& it : pending) {
        const bool is_its = it.site == &site && it.region == &region;
        const bool joins = is_its && it.request.join(request);
        const bool stays =
            joins ? !is_at_end(it.request)
                  : it.region != &region || (!is_its && reads && it.site->kind == Kind::Read);
        is_joined |= joins;
        if (!stays)
            inspect(*it.site, region, it.request, warp);
        else if (&it != &pending[kept++])
            pending[kept - 1] = it;
    }
    pending.erase(pending.begin() + kept, pending.end());
    if (is_joined) return;
    const bool may_go_on =
        (reads || site.kind == Kind::Write) && request.turn != ~0u &&
        (!request.in_a_row || request.count() == 1) && !request.same && !is_at_end(request);
    if (!may_go_on) return inspect(site, region, request, warp);
    if (pending.size() == most_pending) inspect_pending(warp);
    pending.push_back({&site, &region, request});
    // Each lane's line is another, far from those before.
    for_each_of(request.lanes, [&](unsigned lane) {
        const size_t spot = scattered((request.at[lane] - region.begin) >> region.shift);
        region.writes.prefetch(spot);
        region.reads.prefetch(spot);
    });
}

void Recorder::inspect_pending(unsigned warp) {
    for (Pending& it : pending) inspect(*it.site, *it.region, it.request, warp);
    pending.clear();
}

// From a turn on, a lane's k-th access at a place goes with the others' k-th there.
void Recorder::count_out_of_step(unsigned warp, const unsigned (&count)[warp_size], unsigned from) {
    std::vector<Site*> found;
    for (unsigned lane = 0; lane < warp_size; lane++)
        for (unsigned turn = from; turn < count[lane]; turn++) {
            const Access access = trace->get(warp * warp_size + lane, turn);
            Site& site = sites[access.site()];
            if (site.open.empty()) found.push_back(&site);
            if (site.open.empty() || site.passing != lane) site.passed = 0, site.passing = lane;
            if (site.passed == site.open.size()) {
                site.open.emplace_back();
                site.open.back().size = access.size();
            }
            site.open[site.passed++].add(lane, access.address());
        }
    for (Site* site : found) {
        for (const Request& request : site->open)
            by_region(*site, request, warp,
                      [&](Region& region, const Request& part) { account(*site, region, part); });
        site->open.clear();
    }
}

// What is kept of the accesses beyond a trace, which stands for the rest.
void Recorder::count_beyond(unsigned warp) {
    beyond[warp].take([&](const Beyond::OfSite& it) {
        Site& site = sites[it.site];
        const uint32_t before = reuses.lines_of(warp);
        uint64_t kept = 0;
        for (const Request& request : it.requests) {
            kept += request.count();
            by_region(site, request, warp,
                      [&](Region& region, const Request& part) { account(site, region, part); });
        }
        const uint64_t lines = reuses.lines_of(warp) - before;
        if (kept) reuses.pass(warp, uint32_t(lines * (it.accesses - kept) / kept));
    });
}

// Lane by lane, in the order of each, what has not been inspected yet.
void Recorder::inspect(unsigned warp, unsigned from) {
    for (unsigned thread = warp * warp_size; thread < (warp + 1) * warp_size; thread++)
        inspect_rest(thread, from);
}

void Recorder::inspect_rest(unsigned thread, unsigned from) {
    note_value();
    const unsigned count = trace->count(thread);
    for (unsigned turn = std::max(from, inspected[thread]); turn < count; turn++)
        inspect(thread, trace->get(thread, turn), turn);
    inspect_pending(thread / warp_size);
    inspected[thread] = count;
}

void Recorder::inspect(unsigned thread, Access access, unsigned turn) {
    Request request;
    request.turn = turn;
    request.size = access.size();
    request.add(thread % warp_size, access.address());
    Site& site = sites[access.site()];
    by_region(site, request, thread / warp_size, [&](Region& region, const Request& part) {
        inspect_together(site, region, part, thread / warp_size);
    });
}

// For which there is no room in the trace: it is inspected, and a few of its kind are counted.
// Who reads the same again and again waits for another thread.
void Recorder::inspect_at_once(Access access) {
    if (reuses.is_on && is_counting) {
        const bool is_kept = beyond[block->rank / warp_size].add(block->rank % warp_size, access);
        const Region* region = is_kept ? nullptr : find(access.address());
        if (region) reuses.of(access.site(), *region).left_out += access.size();
    }
    inspect_rest(block->rank, 0);
    inspect(block->rank, access);
    accesses++;
    stop_if_asked(sites[access.site()].pc + 1);
    Spin& spin = spins[block->rank];
    const bool same = spin.what == access.bits;
    // Nor does one that asks again and again by a lock or a counter end before others have gone on.
    if (is_strong(sites[access.site()].kind) && ++strong_at_once % waits_after == 0)
        return wait(access.site());
    if (is_atomic(sites[access.site()].kind) && same) return;  // see changed_nothing()
    if (!same || !only_reads(sites[access.site()].kind))
        spin = {access.bits, access.site(), 0};
    else if (++spin.times, spin.is_waiting())
        wait(access.site());
}

void Recorder::changed_nothing(uintptr_t address, unsigned size, uintptr_t pc) {
    if (mode != Mode::Full) return;
    const Slot& slot = slot_of(pc);
    if (slot.pc != pc || slot.is_private) return;
    const Access access(address, size, slot.id);
    const unsigned count = trace->count(block->rank);
    Spin& spin = spins[block->rank];
    const bool again =
        spin.what == access.bits && (count == spin.count + 1 || count == Trace::most || count <= 1);
    spin = {access.bits, slot.id, again ? spin.times + 1 : 0, count};
    if (spin.is_waiting()) wait(slot.id);
}

void Recorder::wait_for_load(uintptr_t pc) {
    stop_if_asked(pc + 1);
    if (const Slot& slot = slot_of(pc); slot.pc == pc) wait(slot.id);
    pause_thread("an atomic load that waits", "", 0);
}

// The thread lets others go first. Where it does so Python finds out: places.py.
void Recorder::wait(unsigned site) {
    stop_if_asked(sites[site].pc + 1);
    const bool reads = sites[site].kind == Kind::Read;
    pause_thread(reads ? "a read that waits" : "an atomic that waits", "(site)", int(site));
}

// What the thread did before its last access comes first; that one comes after what it takes.
void Recorder::hand_over(uintptr_t address, bool takes, bool gives, Scope scope,
                         const Change& change, bool acquires) {
    const unsigned thread = block->rank, count = trace->count(thread);
    for (unsigned turn = inspected[thread]; turn + 1 < count; turn++)
        inspect(thread, trace->get(thread, turn), turn);
    inspect_pending(thread / warp_size);
    inspected[thread] = std::max(inspected[thread], std::max(count, 1u) - 1);
    order.synchronise(address, thread, takes, gives, scope, change, acquires);
    note_section();
}

// What the last volatile store has left there may be what a lock is when nobody holds it.
void Recorder::settle_store() {
    const auto store = std::exchange(last_store, {});
    if (!store.size) return;
    uint64_t value = 0;
    memcpy(&value, reinterpret_cast<const void*>(store.address), std::min(store.size, 8u));
    order.follow_lock(store.address, store.thread, Scope::Device, {Change::Store, 0, value});
    sites[store.site].unlocks |= order.has_ended_section;
    note_section();
}

// The thread has given back a lock: its volatile accesses meanwhile were no signals to others.
void Recorder::note_section() {
    if (!order.has_ended_section) return;
    for (const unsigned site : order.sites_of_section)
        if (!sites[site].unlocks) sites[site].is_locked = true;
    order.has_ended_section = false;
    fences.own[block->rank] = fences.for_all[block->rank] = false;
}

void Recorder::account(Site& site, Region& region, const Request& request) {
    if (!site.counts) return;
    Traffic& traffic = site.traffic_to(&region);
    const uint64_t sectors = traffic.sectors, passes = traffic.passes, smooth = traffic.smooth;
    const uint64_t requests = traffic.requests;
    traffic.account(request, site.kind);
    if (reuses.is_on) {
        Reuse& reuse = reuses.of(site.id, region);
        reuse.requests += traffic.requests - requests;
        reuse.asked += uint64_t(request.count()) * request.size;
        reuse.sectors += traffic.sectors - sectors;
        reuse.passes += traffic.passes - passes;
        reuse.smooth += traffic.smooth - smooth;
        if (!region.is_shared())
            reuses.note(reuse, site.kind, counted_warp, serial, traffic.sectors - sectors,
                        [&](auto visit) { for_each_sector(request, visit); });
    }
    if (region.is_shared()) return;
    Fetches& fetches = only_reads(site.kind) ? region.fetched_reads : region.fetched_writes;
    fetches.make(region.begin, region.begin + region.size, !is_sampled);
    for_each_sector(
        request, [&](uintptr_t sector) { fetches.add(sector, serial, launches.back().first); });
}

// Visits the parts of a request that go to one region each: nearly always all of it.
template <class Visit>
SIMULATOR_INLINE void Recorder::by_region(Site& site, const Request& request, unsigned warp,
                                          Visit visit) {
    const unsigned size = site.size = request.size;
    Region* region = site.region;
    const auto is_in = [&](unsigned lane) { return region->holds(request.at[lane], size); };
    if (region && (request.apart || request.same) &&
        region->holds(request.first, request.last - request.first))
        return visit(*region, request);
    Region* before = nullptr;
    for (uint32_t lanes = request.lanes; lanes;) {
        const unsigned lane = __builtin_ctz(lanes);
        region = site.region = find(request.at[lane]);
        if (before && before->is_shared() && region->is_shared() && request.in_a_row)
            runs_over(site, *before, request, lane, warp);
        before = region;
        Request part;
        part.turn = request.turn;
        part.size = size;
        for_each_of(lanes, [&](unsigned lane) {
            if (is_in(lane)) part.add(lane, request.at[lane]);
        });
        lanes &= ~part.lanes;
        visit(*region, part);
    }
}

// ---- Who touched the same memory before

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

// ---- Findings

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
