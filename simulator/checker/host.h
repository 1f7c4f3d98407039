// What the host does wrong while its launches are watched: it reads what cudaMemcpy has brought
// though nobody has written it, reads the device's own memory, or managed memory before it has
// waited for the kernels that write there; and it asks for launches that CUDA refuses.
#pragma once
#include "recorder.h"

namespace simulator {
namespace {

// Where the host does something; null where there are too many places.
Site* Recorder::host_site(uintptr_t pc, Kind kind) {
    Slot& slot = slot_of(pc);
    if (!slot.pc) {
        if (sites.size() == most_sites) return nullptr;
        slot.pc = pc;
        slot.id = sites.size();
        sites.push_back({pc, slot.id, kind});
    }
    return &sites[slot.id];
}

void Recorder::host_access(uintptr_t address, size_t size, Kind kind, uintptr_t pc) {
    if (!is_on() || host_is_device) return;
    if (!arena.holds(address))
        return only_reads(kind) ? host_reads_copy(address, size, pc) : void();
    if (sorted.empty()) arrange();
    Region* const region = find(address);
    if (!region || !region->is_cudas() || is_strong(kind)) return;
    Site* const site = host_site(pc, kind);
    if (!site) return;
    Finding finding = at("host access", *site, region, address, size, 0);
    finding.place.access = "";
    finding.message = only_reads(kind) ? "the host reads" : "the host writes";
    const uint32_t last = std::max(region->last_write, region->last_atomic);
    if (region->of != cudaMemoryTypeDevice) {
        finding.kind = "unsynchronised";
        const uint32_t touched = only_reads(kind) ? last : std::max(last, region->last_read);
        if (touched <= host.waited) return;
    }
    report(finding);
}

// The bytes are still what they were in memory that nobody had written.
void Recorder::host_reads_copy(uintptr_t address, size_t size, uintptr_t pc) {
    auto& all = host.unwritten;
    const auto after =
        std::upper_bound(all.begin(), all.end(), address,
                         [](uintptr_t at, const Host::Unwritten& it) { return at < it.begin; });
    if (after == all.begin()) return;
    const Host::Unwritten& it = after[-1];
    if (address + size > it.end || size < 2) return;  // of a single byte it is not certain
    const uintptr_t from = it.from + (address - it.begin);
    if (!is_poison_of(from, address, size)) return;
    if (Site* site = host_site(pc, Kind::Read)) {
        Finding finding = at("uninitialised", *site, it.region, from, size, 0);
        finding.place.access = "";
        finding.message = "the host reads what a copy has brought";
        report(finding);
    }
}

// Gaps between the members of a structure that is written member by member are nobody's fault.
void Recorder::brought(uintptr_t to, uintptr_t from, size_t bytes) {
    constexpr size_t most = 1 << 12;
    auto& all = host.unwritten;
    all.erase(std::remove_if(all.begin(), all.end(),
                             [&](const auto& it) { return it.begin < to + bytes && to < it.end; }),
              all.end());
    if (sorted.empty()) arrange();
    Region* const region = find(from);
    if (!region || region->type != Region::Fresh || region->of != cudaMemoryTypeDevice ||
        region->written_before || launches.empty() || !region->holds(from, bytes))
        return;
    uint64_t missing = 0;
    uintptr_t first = 0, begin = 0;
    const auto end_gap = [&](uintptr_t end) {
        if (begin && (region->largest <= region->cell_size() || end - begin >= region->largest)) {
            if (!missing) first = begin;
            missing += end - begin;
            if (all.size() < most)
                all.push_back({to + (begin - from), to + (end - from), begin, region});
        }
        begin = 0;
    };
    for (size_t i = (from - region->begin) >> region->shift; i < region->cells(); i++) {
        const uintptr_t cell = region->begin + (i << region->shift);
        if (cell >= from + bytes) break;
        if (cell < from || region->is_written(i) || !is_untouched(*region, i))
            end_gap(cell);
        else if (!begin)
            begin = cell;
    }
    end_gap(from + bytes);
    std::sort(all.begin(), all.end(), [](auto& a, auto& b) { return a.begin < b.begin; });
    host.begin = ~uintptr_t(0), host.end = 0;
    for (const auto& it : all)
        host.begin = std::min(host.begin, it.begin), host.end = std::max(host.end, it.end);
    if (!missing) return;
    Finding finding{};
    finding.kind = "unwritten";
    finding.severity = Severity::Note;
    finding.address = first, finding.size = region->cell_size(), finding.region = region;
    finding.message = text(
        "%llu of the %zu bytes that are copied to the host were never written, the first at byte "
        "%zu",
        (unsigned long long)missing, bytes, first - region->begin);
    finding.from = callers();
    report(finding);
}

void Recorder::refused(const Launch& launch, const Error& error) {
    Finding finding{};
    finding.kind = "refused launch";
    finding.message = error.message;
    finding.place.file = launch.file;
    finding.place.line = launch.line;
    report(finding);
}

}  // namespace
}  // namespace simulator
