// What the host does wrong while its launches are watched: it reads what cudaMemcpy has brought
// though nobody has written it, reads the device's own memory, a __device__ variable among it, or
// managed memory before it has waited for the kernels that write there; it leaves what it has from
// malloc or new[]; it asks for launches that CUDA refuses; and it puts work
// on the same memory into streams that nothing orders.
#pragma once
#include <malloc.h>
#include <cstddef>
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
    if (leaves_block(address, size, kind, pc)) return;
    Region* region = region_of_variable(address);
    if (!region && !arena.holds(address))
        return only_reads(kind) ? host_reads_copy(address, size, pc) : void();
    if (sorted.empty()) arrange();
    if (!region) region = find(address);
    const bool is_device_tensor = device_tensors && region && region->type == Region::Given;
    if (!region || !(region->is_cudas() || is_device_tensor) || is_strong(kind)) return;
    Site* const site = host_site(pc, kind);
    if (!site) return;
    Finding finding = at("host access", *site, region, address, size, 0);
    finding.place.access = "";
    finding.message = only_reads(kind) ? "the host reads" : "the host writes";
    const uint32_t last = std::max(region->last_write, region->last_atomic);
    // Where tensors are a GPU's, the host may not bring them into memory that both reach, either.
    const bool brings = device_tensors && only_reads(kind) && region->last_write;
    if (region->of != cudaMemoryTypeDevice && !is_device_tensor && !brings) {
        finding.kind = "unsynchronised";
        const uint32_t touched = only_reads(kind) ? last : std::max(last, region->last_read);
        const bool is_copied = streams.are_copying(address, size, only_reads(kind));
        if (touched <= host.waited && !is_copied) return;
        finding.message += is_copied ? "|copy" : "|kernel";
    }
    report(finding);
}

void Recorder::watch_host(const Variable& variable) {
    if (variable.of == cudaMemoryTypeUnregistered) return;
    const uintptr_t base = base_of(variable.library), begin = base + variable.offset;
    if (!base) return;
    host.variables.emplace(begin, variable);
    host.first_variable = std::min(host.first_variable, begin);
    host.end_of_variables = std::max(host.end_of_variables, begin + variable.bytes);
}

// Of a variable of the device: as of the last launch, with what kernels have done there in all.
Region* Recorder::region_of_variable(uintptr_t address) {
    const auto after = host.variables.upper_bound(address);
    if (after == host.variables.begin()) return nullptr;
    const auto& [begin, variable] = *std::prev(after);
    if (address - begin >= variable.bytes) return nullptr;
    Region* found = nullptr;
    for (Region& it : regions) {
        if (it.begin != begin || it.type != Region::Device) continue;
        if (found) {
            it.last_write = std::max(it.last_write, found->last_write);
            it.last_read = std::max(it.last_read, found->last_read);
            it.last_atomic = std::max(it.last_atomic, found->last_atomic);
        }
        found = &it;
    }
    if (!found) {  // nothing has been launched
        found = &add(begin, variable.bytes, Region::Device, variable.name);
        found->end = begin;
    }
    found->of = variable.of;
    return found;
}

// Whether the host goes past the end, or the beginning, of memory with guards that it has from
// malloc or new[].
bool Recorder::leaves_block(uintptr_t address, size_t size, Kind kind, uintptr_t pc) {
    if (address - host.heap >= host.heap_end - host.heap) return false;
    const auto [memory, bytes] = guarded_memory_at(address);
    const auto begin = reinterpret_cast<uintptr_t>(memory);
    if (address >= begin && address + size <= begin + bytes) {
        host.block_at(address) = {begin, bytes};
        return false;
    }
    {
        std::lock_guard<std::mutex> lock(host_mutex);
        if (!of_host.count(begin)) return false;
    }
    if (Site* site = host_site(pc, kind)) {
        Finding finding{};
        finding.kind = "host overrun";
        finding.place.site = site;
        finding.message =
            text("the host %s %zu bytes, ", only_reads(kind) ? "reads" : "writes", size);
        finding.message +=
            address < begin ? text("%zu before the beginning", begin - address)
                            : text("the last %zu past the end", address + size - begin - bytes);
        finding.message += text(" of memory of %zu bytes, which it has from malloc or new", bytes);
        report(finding);
    }
    return true;
}

// The program ends there.
void Recorder::host_asserted(const char* condition, const char* in, uintptr_t pc) {
    if (mode != Mode::Off || !is_on()) return;
    Site* const site = host_site(pc, Kind::Read);
    if (!site) return;
    Finding finding{};
    finding.kind = "host crash";
    finding.place.site = site;
    const std::string head(in, strcspn(in, "("));
    finding.message = "the host's code: the C++ library asserts '" + std::string(condition) +
                      "' in " + head.substr(head.rfind(':') + 1) + ": the program ended here";
    report(finding);
}

// Whether a copy goes past the end of what the host has from malloc or new. A library may have
// freed that unseen, and have got something larger there.
bool Recorder::passes_end(uintptr_t begin, size_t bytes, bool writes) {
    if (!is_on()) return false;
    size_t has = 0, past = 0;
    {
        std::lock_guard<std::mutex> lock(host_mutex);
        const auto after = of_host.upper_bound(begin);
        if (after == of_host.begin()) return false;
        const auto& [block, size] = *std::prev(after);
        if (begin >= block + size || bytes <= block + size - begin) return false;
        const bool is_guarded = block - host.heap < host.heap_end - host.heap;
        if (!is_guarded &&
            malloc_usable_size(reinterpret_cast<void*>(block)) >= size + 2 * alignof(max_align_t))
            return false;
        has = size, past = begin + bytes - (block + size);
    }
    Finding finding{};
    finding.kind = "host overrun";
    finding.message = text(
        "a copy %s %zu bytes, the last %zu past the end of memory of %zu bytes, which the "
        "host has from malloc or new",
        writes ? "writes" : "reads", bytes, past, has);
    finding.from = callers();
    report(finding);
    return true;
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

// Where tensors stand for a GPU's, a copy of the device's memory to the host leads the work there.
void Recorder::forbid_bringing(uintptr_t to, uintptr_t from, size_t bytes) {
    if (sorted.empty()) arrange();
    const auto is_device = [&](const Region* it) {
        return it && (it->type == Region::Given || it->of == cudaMemoryTypeDevice);
    };
    Region* const region = find(from);
    if (!is_device(region) || is_device(find(to))) return;
    Finding finding{};
    finding.kind = "host copy";
    finding.address = from, finding.size = bytes, finding.region = region;
    finding.message = "a copy brings to the host";
    finding.from = callers();
    report(finding);
}

// Gaps between the members of a structure that is written member by member are nobody's fault.
void Recorder::brought(uintptr_t to, uintptr_t from, size_t bytes) {
    if (device_tensors) forbid_bringing(to, from, bytes);
    constexpr size_t most = 1 << 12;
    auto& all = host.unwritten;
    all.erase(std::remove_if(all.begin(), all.end(),
                             [&](const auto& it) { return it.begin < to + bytes && to < it.end; }),
              all.end());
    if (has_stopped_threads()) return;
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

// ---- Streams

void Recorder::put(const void* stream, bool is_blocking) {
    settle_work();
    streams.is_used |= stream != nullptr;
    if (streams.is_used) streams.begin(stream, is_blocking, launches.size());
}

// A copy or a fill touches memory.
void Recorder::touches(uintptr_t address, size_t bytes, bool writes) {
    if (!streams.is_open) return;
    Region* const region = region_at(address);
    if (!region || region->type > Region::Fresh) return;
    Streams::Work& work = streams.works.back();
    if (work.from.empty()) work.from = callers();
    work.spans.push_back({writes ? Streams::Span::Write : Streams::Span::Read, address,
                          std::min(address + bytes, region->end), region});
}

// What kernels have touched since then.
void Recorder::note_touched(Streams::Work& work) {
    constexpr size_t most = 1 << 16;
    using Span = Streams::Span;
    const auto add = [&](Region& region, Span::How how, auto was_touched) {
        for (size_t i = 0; i < region.cells() && work.spans.size() < most; i++) {
            if (!streams.cells_left) return;
            streams.cells_left--;
            if (!was_touched(scattered(i))) continue;
            const uintptr_t begin = region.begin + (i << region.shift);
            const uintptr_t end = std::min(begin + region.cell_size(), region.end);
            Span* const last = work.spans.empty() ? nullptr : &work.spans.back();
            if (last && last->region == &region && last->how == how && last->end == begin)
                last->end = end;
            else
                work.spans.push_back({how, begin, end, &region});
        }
    };
    for (Region& region : regions) {
        if (!region.is_alive() || region.type == Region::Shared || region.type == Region::Private)
            continue;
        const auto by = [&](const Readers& readers) {
            return [&](size_t spot) {
                bool is_touched = false;
                readers.for_each_last(
                    spot, [&](const Touch& it) { is_touched |= it.time >= work.since; });
                return is_touched;
            };
        };
        if (region.last_write >= work.since)
            add(region, Span::Write,
                [&](size_t spot) { return region.writes.get(spot).time >= work.since; });
        if (region.last_read >= work.since) add(region, Span::Read, by(region.reads));
        if (region.last_atomic >= work.since) add(region, Span::Atomic, by(region.atomics));
    }
}

// The last work is done: has it touched what other work touches that may go on at the same time?
void Recorder::settle_work() {
    if (!std::exchange(streams.is_open, false)) return;
    Streams::Work& work = streams.works.back();
    if (work.since) note_touched(work);
    auto& spans = work.spans;
    std::sort(
        spans.begin(), spans.end(), [](const auto& a, const auto& b) { return a.begin < b.begin; });
    streams.for_each_unordered([&](const Streams::Work& other) {
        std::set<const Region*> told;
        size_t first = 0;  // that may reach so far
        for (const auto& theirs : other.spans) {
            while (first < spans.size() && spans[first].end <= theirs.begin) first++;
            for (size_t i = first; i < spans.size() && spans[i].begin < theirs.end; i++) {
                const auto& ours = spans[i];
                if (ours.end <= theirs.begin || told.count(ours.region)) continue;
                if (ours.how == theirs.how && ours.how != Streams::Span::Write) continue;
                told.insert(ours.region);
                report_streams(work, ours, other, theirs);
            }
        }
    });
    if (spans.empty()) streams.works.pop_back();
}

void Recorder::report_streams(const Streams::Work& work, const Streams::Span& ours,
                              const Streams::Work& other, const Streams::Span& theirs) {
    const auto told = [&](const Streams::Work& it, Streams::Span::How how, Place& place) {
        const char* const does =
            how == Streams::Span::Read    ? "reads"
            : how == Streams::Span::Write ? "writes"
                                          : "changes";
        if (!it.since) return text("the copy or fill %s", does);
        const LaunchRecord& launch = launches[it.launch];
        place.file = launch.file, place.line = launch.line;
        return text("kernel %s %s", launch.name.c_str(), does);
    };
    Finding finding{};
    finding.kind = "race between streams";
    finding.region = ours.region;
    finding.address = std::max(ours.begin, theirs.begin);
    finding.size = ours.region->cell_size();
    finding.other.access = "work";
    finding.from = work.from, finding.other_from = other.from;
    finding.message = told(work, ours.how, finding.place) + "|";
    finding.message += told(other, theirs.how, finding.other);
    report(finding);
}

void Recorder::refused_call(const Error& error) {
    Finding finding{};
    finding.kind = "refused call";
    finding.message = error.message;
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
