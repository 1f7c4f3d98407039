// From the trace of a warp to its memory requests: accesses of lanes in step are one request.
#pragma once
#include "recorder.h"

namespace simulator {
namespace {

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

}  // namespace
}  // namespace simulator
