// Whose memory an access touches, and what comes of one that touches nobody's or is not aligned.
#pragma once
#include "recorder.h"

namespace simulator {
namespace {

Region& Recorder::add(uintptr_t begin, size_t bytes, Region::Type type, std::string name,
                      size_t pad) {
    regions.push_back({begin, begin + bytes, bytes, type, pad, std::move(name)});
    sorted.clear();
    return regions.back();
}

void Recorder::allocated(uintptr_t begin, size_t bytes, size_t pad, cudaMemoryType type) {
    if (!is_on()) return;
    poison(begin, bytes);
    Region& region = add(begin, bytes, Region::Fresh, "", pad);
    region.made_by = callers();
    region.of = type;
}

// The region's record stays. Its memory does, too, if there is not too much of that: else its
// addresses may be another's from now on, and a use of them is not seen.
bool Recorder::freed(uintptr_t begin, void* memory) {
    constexpr size_t most = 64 << 20;
    if (!is_on()) return false;
    note_value();
    settle_work();
    bool is_kept_back = false;
    for (Region& region : regions)
        if (region.begin == begin && region.is_alive() && region.type == Region::Fresh) {
            region.end = region.begin, sorted.clear();
            region.freed_by = callers();
            undefined.freed(region);
            region.is_kept_back = arena.holds(begin);  // nobody gets these addresses again
            if (region.is_kept_back || bytes_kept_back + region.size > most) continue;
            is_kept_back = region.is_kept_back = true;
            bytes_kept_back += region.size, kept_back.push_back(memory);
        }
    forget_places();
    return is_kept_back;
}

// What was there, and is no more.
Region* Recorder::freed_at(uintptr_t address) {
    for (Region& region : regions)
        if (region.is_kept_back && address - region.begin < region.size) return &region;
    return nullptr;
}

void Recorder::written(uintptr_t begin, size_t bytes) {
    for (Region& region : regions)
        if (region.is_alive() && region.type <= Region::Fresh)
            region.note_host(begin, begin + bytes, !is_sampled);
}

Region* Recorder::region_at(uintptr_t address) {
    if (sorted.empty()) arrange();
    return find(address);
}

void Recorder::arrange() {
    for (Region& region : regions)
        if (region.is_alive()) sorted.push_back(&region);
    std::sort(sorted.begin(), sorted.end(),
              [](const Region* a, const Region* b) { return a->begin < b->begin; });
    forget_places();
}

void Recorder::forget_places() {
    for (Site& site : sites) {
        note_ends(site.id);
        site.region = nullptr;
        slot_of(site.pc).size = 0;
    }
}

// The last region that begins at or before the address, if it ends after it.
Region* Recorder::find(uintptr_t address) const {
    auto after = std::upper_bound(sorted.begin(), sorted.end(), address,
                                  [](uintptr_t a, const Region* r) { return a < r->begin; });
    if (after == sorted.begin()) return nullptr;
    Region* region = after[-1];
    return address < region->end ? region : nullptr;
}

// Before a site turns to other memory.
void Recorder::note_ends(unsigned site) {
    const uintptr_t end = std::exchange(written_to[site], 0);
    if (Region* region = end ? find(end - 1) : nullptr)
        region->written_to = std::max(region->written_to, end);
}

// When a site is new, or touches other memory than before. False if that is nobody's.
bool Recorder::look(uintptr_t pc, uintptr_t address, unsigned size, Kind kind) {
    Slot& slot = slot_of(pc);
    if (!slot.pc) {
        if (sites.size() == most_sites)
            stop_block("it touches memory from more places than the checker can tell apart");
        slot.pc = pc;
        slot.id = sites.size();
        sites.push_back({pc, slot.id, kind});
    }
    Region* region = find(address);
    if (!region || !region->holds(address, size) || is_of_host_stack(address)) {
        if (look_in_heap(slot, address, size)) return true;
        outside(sites[slot.id], address, size);
        return false;
    }
    note_ends(slot.id);
    slot.begin = region->begin;
    slot.size = region->end - region->begin;
    slot.is_private = region->type == Region::Private;
    return true;
}

// Whether a kernel has taken this memory.
bool Recorder::look_in_heap(Slot& slot, uintptr_t address, unsigned size) {
    auto it = heap.upper_bound(address);
    if (it == heap.begin() || address + size > (--it)->first + it->second) return false;
    note_ends(slot.id);
    slot.begin = it->first;
    slot.size = it->second;
    slot.is_private = true;
    return true;
}

// ---- Findings

void Recorder::outside(Site& site, uintptr_t address, unsigned size) {
    const auto distance = [&](const Region& region) {
        return address + size > region.end ? address + size - region.end : region.begin - address;
    };
    if (Region* freed = freed_at(address)) {
        report(at("freed memory", site, freed, address, size, block->rank));
        reported = serial;
        stopped = true;
        stop_block("a use of freed memory");
    }
    const bool is_local = is_of_host_stack(address);
    if (is_local || (!slot_of(site.pc).size && is_of_host(address))) {  // and never was elsewhere
        Finding finding = at("out of bounds", site, nullptr, address, size, block->rank);
        finding.message = is_local ? "host's stack" : "host";
        report(finding);
        reported = serial;
        stopped = true;
        stop_block("an access to memory of the host");
    }
    Region* nearest = nullptr;
    for (Region* region : sorted) {
        if (region->type == Region::Private) continue;
        if (!nearest || distance(*region) < distance(*nearest)) nearest = region;
    }
    constexpr size_t near = 1 << 20;
    Finding finding =
        at("out of bounds", site, nearest && distance(*nearest) < near ? nearest : nullptr, address,
           size, block->rank);
    // An int of more than 2^31 is 2^32 elements before what it should be.
    for (unsigned bytes = 16; bytes && !finding.region; bytes /= 2) {
        const uintptr_t meant = address + (uintptr_t(bytes) << 32);
        if (Region* region = find(meant);
            region && meant - region->begin >= uintptr_t(bytes) << 31) {
            finding.region = region;
            finding.message = text("%u", bytes);
        }
    }
    report(finding);
    reported = serial;
    const bool harmless = nearest && distance(*nearest) <= nearest->pad;
    if (site.kind != Kind::Read && !harmless) {
        stopped = true;
        stop_block("an illegal write");
    }
}

// Whether the host has it from malloc or new.
bool Recorder::is_of_host(uintptr_t address) {
    std::lock_guard<std::mutex> lock(host_mutex);
    auto it = of_host.upper_bound(address);
    return it != of_host.begin() && address < (--it)->first + it->second;
}

// Whether it is a variable of a function of the host to which the kernel was given a pointer, or
// one behind it on that stack. What the launch itself has there is the kernel's.
bool Recorder::is_of_host_stack(uintptr_t address) {
    if (!host_variable || address < host_variable) return false;
    const auto [begin, bytes] = launching_stack;
    const auto in = [&](const void* object, size_t size) {
        return address - uintptr_t(object) < size;
    };
    return in(begin, bytes) && !in(latest, sizeof *latest) && !in(latest->body, latest->body_bytes);
}

// The first of the host's variables to which a kernel is given a pointer; 0 if there is none.
uintptr_t Recorder::host_variable_given_to(const Launch& launch) const {
    uintptr_t first = 0;
    if (!launch.has_parameters) return first;
    const auto [begin, bytes] = launching_stack;
    for (size_t i = 0; i + sizeof first <= launch.body_bytes; i += sizeof first) {
        uintptr_t given;
        memcpy(&given, static_cast<const char*>(launch.body) + i, sizeof given);
        if (given - uintptr_t(begin) < bytes && (!first || given < first)) first = given;
    }
    return first;
}

// Neighbouring lanes touch neighbouring words, the first of them in another shared array than the
// last: one of the two ends too early.
void Recorder::runs_over(Site& site, const Region& array, const Request& request, unsigned lane,
                         unsigned warp) {
    report(
        at("out of bounds", site, &array, request.at[lane], request.size, warp * warp_size + lane));
}

// While a launch is repeated: another value has it go on and on.
void Recorder::give_up_repeating(const Site& site, uintptr_t address, unsigned size) {
    report(at("timeout", site, nullptr, address, size, block->rank));
    stop_block("it does far more than before");
}

void Recorder::misaligned(uintptr_t pc, uintptr_t address, unsigned size) {
    const Site& site = sites[slot_of(pc).id];
    report(at("misaligned", site, find(address), address, size, block->rank));
    stopped = true;
    stop_block("a misaligned access");
}

}  // namespace
}  // namespace simulator
