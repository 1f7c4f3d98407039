// Copies that a thread asks for, and waits for later: what they touch, and who else does.
#pragma once
#include "../executor/bulk_moves.h"
#include "recorder.h"

namespace simulator {
namespace {

// ---- Blocks and threads

void Asynchronous::begin_launch() {
    blocks.clear();
    ended.clear();
    mbarriers.clear();
    tiles.clear();
    order_looks.clear();
    random = recorder.seed * 0x9E3779B97F4A7C15u + recorder.launches.size();
}

void Asynchronous::begin_block(Block& block) {
    ended.erase(&block);
    OfBlock& it = blocks[&block];
    it = {};
    it.block = &block;
    it.cluster_barriers = simulator::cluster_barriers(block);
    is_watching = open_works || block.cluster;
    watches_registers = false;
    if (!block.cluster) mbarriers.clear(), tiles.clear();
}

// What it has not waited for is of no consequence to others any more.
bool Asynchronous::end_block(const Error* error) {
    const bool is_told = error && explain(*error);
    const Block* block = recorder.block;
    auto found = blocks.find(block);
    if (found != blocks.end()) {
        for (const auto& [first, allocated] : found->second.tensor_columns)
            if (!error)
                say("tensor memory kept",
                    "the block ends without tcgen05.dealloc: the multiprocessor has these columns "
                    "no more, and a later block waits for them for ever",
                    *allocated);
        for (auto& [rank, it] : found->second.threads) {
            for (const OwnCopy& own : it.copies) {
                for (size_t i = 0; i < own.copy.count; i++)
                    writes.clear(
                        uintptr_t(own.copy.to) + i * own.copy.stride, own.copy.piece, own.id);
                end(own.id);
            }
            for (GroupCopy& own : it.group_copies) {
                if (!own.is_read) done_reading(own.copy);
                done_writing(own.copy);
            }
            for (const auto* all : {&it.reads, &it.tensor_reads})
                for (const Reads& of : *all) {
                    for (const Range& range : of.ranges)
                        reads.clear(range.begin, range.bytes, of.id);
                    end(of.id);
                }
        }
        blocks.erase(found);
    }
    ended.insert(block);
    return is_told;
}

Asynchronous::OfBlock& Asynchronous::of_block() { return blocks[recorder.block]; }
Asynchronous::Mine& Asynchronous::mine() { return of_block().threads[recorder.block->rank]; }

// ---- What has been asked for

Site& Asynchronous::site_of(const char* what, const char* file, int line, Kind kind,
                            bool is_by_proxy, const void* from) {
    const uintptr_t pc = reinterpret_cast<uintptr_t>(from);
    Site like{pc ? pc - 1 : 0, 0, kind, Role::Asked, what, file, line};
    like.issuer = recorder.block->rank;
    like.is_by_proxy = is_by_proxy;
    like.counts = !is_by_proxy;
    return site_of(like);
}

Site& Asynchronous::done(const Site& asked) {
    Site like{asked.pc, 0, asked.kind, Role::Done, asked.what, asked.file, asked.line};
    like.issuer = asked.issuer;
    like.counts = false;
    like.is_by_proxy = asked.is_by_proxy;
    return site_of(like);
}

Site& Asynchronous::site_of(const Site& like) {
    const auto [found, is_new] =
        known.insert({{like.pc, like.file, like.line, like.what, like.kind, like.role}, 0});
    if (is_new) {
        if (recorder.sites.size() == most_sites)
            stop_block("it touches memory from more places than the checker can tell apart");
        found->second = recorder.sites.size();
        recorder.sites.push_back(like);
        recorder.sites.back().id = found->second;
    }
    Site& site = recorder.sites[found->second];
    site.issuer = like.issuer;
    return site;
}

uint32_t Asynchronous::begin(const Site& asked, const uint64_t* barrier) {
    works.push_back({&asked, recorder.block->rank, recorder.serial, barrier, true});
    open_works++;
    is_watching = true;
    const uint32_t id = first_work + works.size() - 1;
    if (stepper) stepper->work_begins(id, asked.what, asked.file, asked.line, barrier);
    return id;
}

void Asynchronous::end(uint32_t id) {
    Work* work = find(id);
    if (!work) return;
    work->is_open = false;
    if (stepper) stepper->work_ends(id);
    open_works--;
    while (!works.empty() && !works.front().is_open) works.pop_front(), first_work++;
    if (!open_works && !recorder.block->cluster) is_watching = false;
}

Asynchronous::Work* Asynchronous::find(uint32_t id) {
    if (id < first_work || id >= first_work + works.size()) return nullptr;
    Work& work = works[id - first_work];
    return work.is_open ? &work : nullptr;
}

// In the name of the running thread, after what it has done so far.
void Asynchronous::touch(Site& site, uintptr_t begin, size_t bytes, size_t granularity) {
    recorder.inspect_rest(recorder.block->rank, 0);
    const Region* region = recorder.region_at(begin);
    if (!region || !region->holds(begin, bytes)) {
        if (site.role == Role::Asked) recorder.outside(site, begin, bytes);
        return;
    }
    if (region->type == Region::Private) return;
    for (size_t done = 0; done < bytes;) {
        size_t piece = granularity;
        while (piece > 1 && ((begin + done) % piece || piece > bytes - done)) piece /= 2;
        recorder.inspect(recorder.block->rank, Access(begin + done, piece, site.id));
        done += piece;
    }
}

void Asynchronous::note_wait(const Site& at, size_t in_flight) {
    Waits& it = waits[&at];
    it.times++;
    it.in_flight += in_flight;
    it.most = std::max<uint64_t>(it.most, in_flight);
}

// ---- cp.async

// These are requests of the warp: as a thread's own accesses are, they are traced.
void Asynchronous::trace(const Site& site, uintptr_t at, unsigned size) {
    const Access access(at, size, site.id);
    const Access* const added = recorder.trace->add(recorder.block->rank, access);
    if (!added) return recorder.inspect_at_once(access);
    recorder.trace->value_of(added) = 0;  // what is copied is not known yet
}

void Asynchronous::copy(const AsyncCopy& copy, const char* what, const char* file, int line) {
    Site& from = site_of(what, file, line, Kind::Read, false);
    Site& to = site_of(what, file, line, Kind::Write, false);
    const uintptr_t bytes = copy.count ? (copy.count - 1) * copy.stride + copy.piece : 0;
    const auto is_there = [&](uintptr_t begin, size_t bytes) {
        const Region* region = bytes ? recorder.region_at(begin) : nullptr;
        return region && region->holds(begin, bytes);
    };
    const bool is_outside = bytes && !is_there(uintptr_t(copy.from), bytes);
    if (is_outside) recorder.outside(from, uintptr_t(copy.from), bytes);
    if (!is_there(uintptr_t(copy.to), bytes + copy.zeros))
        return recorder.outside(to, uintptr_t(copy.to), bytes + copy.zeros);
    const uint32_t id = begin(to, nullptr);
    Mine& it = mine();
    it.copies.push_back({copy, it.batches, id});
    for (size_t i = 0; i < copy.count && !is_outside; i++)
        trace(from, uintptr_t(copy.from) + i * copy.stride, copy.piece);
    for (size_t i = 0; i < copy.count; i++) {
        const uintptr_t at = uintptr_t(copy.to) + i * copy.stride;
        look(at, copy.piece, Kind::Write, to);
        trace(to, at, copy.piece);
    }
    const uintptr_t end = uintptr_t(copy.to) + copy.count * copy.piece;
    for (unsigned i = 0; i < copy.zeros; i++) trace(to, end + i, 1);
    // After all of them, for zeros may begin in the word in which what is copied ends.
    for (size_t i = 0; i < copy.count; i++)
        writes.set(uintptr_t(copy.to) + i * copy.stride, copy.piece, id);
    if (copy.zeros) writes.set(end, copy.zeros, id);
}

void Asynchronous::commit_copies() { mine().batches++; }

void Asynchronous::copies_done(size_t prior, const char* file, int line) {
    Mine& it = mine();
    note_wait(site_of("cp.async.wait_group", file, line),
              it.copies.empty() ? 0 : it.batches - it.copies.front().batch);
    while (!it.copies.empty() && it.copies.front().batch + prior < it.batches) {
        const OwnCopy& own = it.copies.front();
        Site& done = this->done(*find(own.id)->asked);
        done.issuer = recorder.block->rank;
        for (size_t i = 0; i < own.copy.count; i++) {
            const uintptr_t at = uintptr_t(own.copy.to) + i * own.copy.stride;
            trace(done, at, own.copy.piece);
            writes.clear(at, own.copy.piece, own.id);
        }
        if (own.copy.zeros) {
            const uintptr_t end = uintptr_t(own.copy.to) + own.copy.count * own.copy.piece;
            for (unsigned i = 0; i < own.copy.zeros; i++) trace(done, end + i, 1);
            writes.clear(end, own.copy.zeros, own.id);
        }
        end(own.id);
        it.copies.pop_front();
    }
}

// ---- Copies in bulk

// visit(address, bytes, writes): what it touches.
template <class Visit>
void Asynchronous::for_each_range(const BulkCopy& copy, Visit visit) {
    switch (copy.kind) {
        case BulkCopy::Bytes:
            if (!copy.bytes) return;
            return copy.for_each_run([&](uint64_t at, uint64_t bytes) {
                visit(uintptr_t(copy.from) + at, bytes, false);
                visit(uintptr_t(copy.shared) + at, bytes, true);
            });
        case BulkCopy::Word:
            return visit(uintptr_t(copy.shared), copy.bytes, true);
        case BulkCopy::Call:
            return;
        default:
            const bool is_load = copy.kind == BulkCopy::BoxToShared;
            for_each_piece(copy, [&](const BoxPiece& it) {
                const size_t all = it.before + it.inside + it.free + it.after;
                if (it.inside) visit(uintptr_t(it.global), it.inside, !is_load);
                if (is_load)
                    visit(uintptr_t(it.shared), all, true);
                else if (it.inside)
                    visit(uintptr_t(it.shared) + it.before, it.inside, false);
            });
    }
}

// Bytes and sectors. The copy goes in pieces of 128 bytes, each a pass of shared memory; a sector
// of global memory in which one piece ends and the next begins moves for both.
void Asynchronous::count_bulk(Site& site, uintptr_t begin, size_t bytes) {
    Region* region = recorder.region_at(begin);
    if (!region || !recorder.is_counting) return;
    Traffic& it = site.traffic_to(region);
    it.requests++;
    it.asked += bytes;
    const uint64_t pieces = (bytes + 127) / 128;
    if (region->is_shared()) {
        it.passes += pieces;
        it.smooth += pieces;
    }
    const uintptr_t first = begin / sector_bytes, last = (begin + bytes - 1) / sector_bytes;
    if (recorder.reuses.is_on) {
        Reuse& reuse = recorder.reuses.of(site.id, *region);
        reuse.requests++;
        reuse.asked += bytes;
        if (region->is_shared()) {
            reuse.passes += pieces;
            reuse.smooth += pieces;
        } else {
            reuse.sectors += last - first + 1;
            recorder.reuses.note(reuse, site.kind, 0, recorder.serial, 0, [&](auto visit) {
                for (uintptr_t sector = first; sector <= last; sector++) visit(sector);
            });
        }
    }
    if (region->is_shared()) return;
    it.sectors += last - first + 1;
    if (begin % sector_bytes) it.sectors += (bytes - 1) / 128;
    it.ideal += (bytes + sector_bytes - 1) / sector_bytes;
    Fetches& fetches = site.kind == Kind::Read ? region->fetched_reads : region->fetched_writes;
    fetches.make(region->begin, region->begin + region->size, !recorder.is_sampled);
    for (uintptr_t sector = first; sector <= last; sector++)
        fetches.add(sector, recorder.serial, recorder.launches.back().first);
}

void Asynchronous::bulk_copy(const Block& of, BulkCopy& copy) {
    const bool adds = copy.reduction != Reduction::None;
    const Kind writing = adds ? Kind::Atomic : Kind::Write;
    Site& from = site_of(copy.what, copy.file, copy.line);
    Site& to = site_of(copy.what, copy.file, copy.line, writing);
    if (copy.barrier) visible(copy.barrier, to);
    copy.id = begin(copy.barrier ? to : from, copy.barrier);
    // What follows on each other in memory is counted together: a swizzle scatters its other end.
    Range runs[2] = {};
    const auto count = [&](bool is_written) {
        const Range& run = runs[is_written];
        // One that goes to several blocks is read once.
        if (run.bytes && (is_written || !copy.is_repeat))
            count_bulk(is_written ? to : from, run.begin, run.bytes);
    };
    for_each_range(copy, [&](uintptr_t at, size_t bytes, bool is_written) {
        Site& site = is_written ? to : from;
        Range& run = runs[is_written];
        if (run.begin + run.bytes == at) {
            run.bytes += bytes;
        } else {
            count(is_written);
            run = {at, bytes};
        }
        const Region* region = recorder.region_at(at);
        if (region && region->holds(at, bytes)) look(at, unsigned(bytes), site.kind, site);
        if (stepper && !is_written) stepper->is_read(at, bytes);
        touch(site, at, bytes, adds && is_written ? size_of(copy.type) : 16);
        if (is_written)
            writes.set(at, bytes, copy.id);
        else if (region && region->is_shared())
            reads.set(at, bytes, copy.id);
    });
    count(false);
    count(true);
    if (copy.kind == BulkCopy::BoxToShared) {
        const uintptr_t begin = uintptr_t(copy.shared), end = begin + copy.bytes;
        auto next = tiles.lower_bound(begin);
        if (next != tiles.begin() && std::prev(next)->second.end > begin) --next;
        while (next != tiles.end() && next->first < end) next = tiles.erase(next);
        tiles[begin] = {end, copy.map.swizzle, &to, &done(to)};
    }
    if (copy.barrier) {
        auto found = mbarriers.find(copy.barrier);
        if (found != mbarriers.end() && copy.transaction) {
            found->second.coming[copy.id] = &to;
            found->second.given = Clock::join(found->second.given, clock());
        }
        if (copy.arrivals) recorder.arrived(uintptr_t(copy.barrier), false);
    } else {
        Mine& it = mine();
        it.group_copies.push_back({copy, it.groups, false});
    }
}

void Asynchronous::done_reading(const BulkCopy& copy) {
    Site& done =
        this->done(site_of(copy.what, copy.file, copy.line, Kind::Read, true, copy.asked_from));
    for_each_range(copy, [&](uintptr_t at, size_t bytes, bool is_written) {
        if (is_written) return;
        touch(done, at, bytes, 16);
        reads.clear(at, bytes, copy.id);
    });
}

void Asynchronous::done_writing(const BulkCopy& copy) {
    const bool adds = copy.reduction != Reduction::None;
    const Kind kind = adds ? Kind::Atomic : Kind::Write;
    Site& done = this->done(site_of(copy.what, copy.file, copy.line, kind, true, copy.asked_from));
    for_each_range(copy, [&](uintptr_t at, size_t bytes, bool is_written) {
        if (!is_written) return;
        touch(done, at, bytes, adds ? size_of(copy.type) : 16);
        writes.clear(at, bytes, copy.id);
    });
    end(copy.id);
}

void Asynchronous::bulk_copy_done(const BulkCopy& copy) {
    if (copy.kind == BulkCopy::Call) tensor_done(copy);
    done_reading(copy);
    done_writing(copy);
    if (auto found = mbarriers.find(copy.barrier); found != mbarriers.end())
        found->second.coming.erase(copy.id);
}

void Asynchronous::commit_group() { mine().groups++; }

void Asynchronous::groups_done(size_t prior, bool until_read, const char* file, int line) {
    Mine& it = mine();
    note_wait(site_of("cp.async.bulk.wait_group", file, line),
              it.group_copies.empty() ? 0 : it.groups - it.group_copies.front().group);
    for (GroupCopy& own : it.group_copies) {
        if (own.group + prior >= it.groups) break;
        if (!std::exchange(own.is_read, true)) done_reading(own.copy);
    }
    if (until_read) return;
    while (!it.group_copies.empty() && it.group_copies.front().group + prior < it.groups) {
        done_writing(it.group_copies.front().copy);
        it.group_copies.pop_front();
    }
}

// With a seed, half of what is asked for is carried out at once.
bool Asynchronous::is_early() {
    if (!recorder.seed) return false;
    random = random * 6364136223846793005u + 1442695040888963407u;
    return random >> 63;
}

}  // namespace
}  // namespace simulator
