// How a launch is repeated to see what depends on values that nobody has set: undefined.h.
#pragma once
#include <set>
#include "recorder.h"

namespace simulator {
namespace {

void Undefined::begin_launch(const Launch& launch, bool may_repeat) {
    most_blocks = accesses = 0;
    kept.clear();
    kept_shared.clear();
    for (Source& it : sources) it.is_seen = false;
    size_t bytes = 0;
    for (const Region& region : recorder.regions)
        if (region.is_alive() && region.type <= Region::Device && !region.is_shared())
            bytes += region.size;
    if (!may_repeat || bytes > most_bytes || recorder.has_heap()) return;
    const uint64_t threads = uint64_t(launch.block.x) * launch.block.y * launch.block.z;
    most_blocks = std::clamp<uint64_t>(most_threads / threads, 1, recorder.launches.back().blocks);
    for (Region& region : recorder.regions) {
        if (!region.is_alive() || region.type > Region::Device) continue;
        const char* at = reinterpret_cast<const char*>(region.begin);
        auto& all = region.is_shared() ? kept_shared : kept;
        all.push_back({&region, {at, at + region.size}, {}, {}});
    }
}

Undefined::Source& Undefined::source(Source::What what, const char* name, const char* file,
                                     int line) {
    Source*& found = known[{what, name, file, line}];
    if (!found) {
        for (Source& it : sources)  // a template's, or of a literal that is there twice
            if (it.what == what && it.line == line && !strcmp(it.name, name) &&
                !strcmp(it.file, file))
                return *(found = &it);
        sources.push_back({what, name, file, line});
        found = &sources.back();
    }
    return *found;
}

Undefined::Source& Undefined::cells_of(Region& region) {
    Source*& found = known[{Source::Cells, &region, nullptr, 0}];
    if (!found) {
        sources.push_back({Source::Cells, "", "", 0, &region});
        found = &sources.back();
    }
    return *found;
}

unsigned char Undefined::byte_of(const char* name, const char* file, int line, bool is_structure) {
    if (!most_blocks) return 0;
    Source& it = source(Source::Local, name, file, line);
    it.is_structure = is_structure;
    if (is_repeating) return is_chosen(it) ? other_byte : 0;
    it.is_seen = true;
    return 0;
}

void Undefined::note_lane(const Thread& at, unsigned thread, std::string message) {
    if (!most_blocks) return;
    Source& it = source(Source::Lane, at.what, at.file, at.line);
    if (!it.is_seen && !it.is_told) {
        it.finding.kind = "inactive lane";
        it.finding.message = std::move(message);
        it.finding.place = {at.what, nullptr, at.file, at.line, recorder.serial_now(), thread};
    }
    it.is_seen = true;
}

void Undefined::look_at_lanes(const Thread& at) {
    constexpr uint64_t bytes = 0x0101010101010101;
    const bool is_one = is_chosen(source(Source::Lane, at.what, at.file, at.line));
    change_of_inactive = is_one ? other_byte * bytes : 0;
}

void Undefined::note_load(void* const* registers, int count, const Site& at) {
    const unsigned rank = running_block().rank;
    Source*& found = known[{Source::Load, &at, nullptr, 0}];
    if (!found) {
        sources.push_back({Source::Load, at.what, "", 0});
        found = &sources.back();
        found->finding.kind = "register in use";
        found->finding.message =
            "a register of it is used before tcgen05.wait::ld: it has no value until then";
        found->finding.place = {at.what, &at, "", 0, recorder.serial_now(), rank};
    }
    Source& it = *found;
    it.is_seen = true;
    if (!is_repeating || !is_chosen(it)) return;
    for (int i = 0; i < count; i++) {
        // Of both signs, and large in each type. The factor is odd: no two are the same.
        const uint32_t n = tokens++;
        Loaded mine{(n % 2 ? 0xfau : 0x7au) << 24 | (n * 0x9e3779 & 0xffffff), 0};
        memcpy(&mine.value, registers[i], sizeof mine.value);
        memcpy(registers[i], &mine.token, sizeof mine.token);
        loaded[rank].push_back(mine);
    }
}

void Undefined::loads_done(const void* stack_end) {
    const auto found = loaded.find(running_block().rank);
    if (found == loaded.end()) return;
    for (auto* word = static_cast<volatile uint32_t*>(__builtin_frame_address(0)); word < stack_end;
         word++) {
        if ((*word & 0x7f000000) != 0x7a000000) continue;
        for (const Loaded& it : found->second)
            if (it.token == *word) {
                *word = it.value;
                break;
            }
    }
    loaded.erase(found);
}

void Undefined::failed(const Finding& finding) {
    if (!has_failed) failure = finding;
    has_failed = true;
}

// ---- A launch once more

void Undefined::repeat(const std::function<bool(uint64_t)>& run) {
    if (kept.empty() || recorder.has_heap()) return;
    const LaunchRecord& launch = recorder.launches.back();
    const auto doubts = recorder.findings.unset_reads_alone(recorder.launches.size() - 1);
    const bool can_tell = !doubts.empty() && most_blocks == launch.blocks;
    if (recorder.findings.has_error() && !can_tell) return;
    keep(&Kept::after);  // which is what is there
    std::set<const Source*> doubted;
    for (const Source& it : sources)
        if (it.is_seen && !it.is_told) doubted.insert(&it);
    for (const Dependent& it : dependents)
        if (!it.source->is_told) doubted.insert(it.source);
    for (const Kept& it : kept_shared) doubted.insert(&cells_of(*it.region));
    for (const Kept& it : kept)
        if (it.region->type == Region::Fresh && !it.region->written_before)
            doubted.insert(&cells_of(*it.region));
    std::vector<Source*> seen;  // in the order in which they were met, the same on every run
    for (Source& it : sources)
        if (doubted.count(&it)) seen.push_back(&it);
    if (seen.empty()) return;

    const Repeating repeating;
    const struct Ended {
        Undefined& of;
        ~Ended() {
            recorder.mode = Recorder::Mode::Off;
            of.change = Change::Nothing;
            of.most_accesses = ~uint64_t(0);
        }
    } ended{*this};
    most_accesses = 4 * accesses + (1 << 20);
    recorder.mode = Recorder::Mode::Bounds;
    if (can_tell) {
        bool is_used = differs(run, Change::Everything);
        other_byte = least;
        is_used = is_used || differs(run, Change::Everything);
        other_byte = large;
        if (is_stopping()) is_used = true;  // the time is over, and nothing is known
        for (Finding* it : doubts) it->use = is_used ? Finding::Used : Finding::Unused;
    }
    const auto is_local = [](const Source* it) { return it->what == Source::Local; };
    // A launch that does not do the same again tells nothing: it reads a clock.
    const auto look_for = [&](Change how) {
        if (recorder.findings.has_error() || !differs(run, how) || differs(run, Change::Nothing))
            return false;
        if (seen.size() > most_sources) seen.resize(most_sources);
        for (Source* it : seen)
            // With other tokens once more: something else may have been the same as one.
            if (differs(run, Change::One, it) &&
                (it->what != Source::Load || differs(run, Change::One, it)))
                note_differences(*it);
        return true;
    };
    if (!look_for(Change::Everything) && std::any_of(seen.begin(), seen.end(), is_local)) {
        other_byte = no_number;
        look_for(Change::Locals);
        other_byte = large;
    }
    for (const auto* all : {&kept, &kept_shared})
        for (const Kept& it : *all) restore(*it.region, it.after);
}

// Not what is as it was: there are constants among a library's variables.
void Undefined::restore(const Region& region, const std::vector<char>& bytes) {
    void* const at = reinterpret_cast<void*>(region.begin);
    if (memcmp(at, bytes.data(), bytes.size())) memcpy(at, bytes.data(), bytes.size());
}

// Keeps what memory is now.
void Undefined::keep(std::vector<char> Kept::* what) {
    for (auto* all : {&kept, &kept_shared})
        for (Kept& it : *all) {
            const char* at = reinterpret_cast<const char*>(it.region->begin);
            (it.*what).assign(at, at + it.region->size);
        }
}

bool Undefined::differs(const std::function<bool(uint64_t)>& run, Change how, Source* which) {
    change = how, chosen = which;
    has_failed = false;
    accesses = 0;
    for (const Kept& it : kept) restore(*it.region, it.before);
    for (const Kept& it : kept_shared) restore(*it.region, it.before);
    change_memory();
    keep(&Kept::start);
    for (uint64_t n = 0; n < most_blocks && !has_failed; n++) {
        change_shared();
        loaded.clear();
        if (!run(n)) has_failed = true;
    }
    if (is_stopping()) return has_failed = false;
    bool found = has_failed;
    for (const Kept& it : kept) for_each_difference(it, [&](size_t, size_t) { found = true; });
    return found;
}

// Cells of fresh memory that nobody has written, and bytes that depend on what is changed.
void Undefined::change_memory() {
    for (const Kept& it : kept) {
        Region& region = *it.region;
        if (region.type != Region::Fresh || region.written_before || !is_chosen(cells_of(region)))
            continue;
        for (size_t i = 0; i < region.cells(); i++) {
            if (region.is_written(i) || !is_untouched(region, i)) continue;
            char* at = reinterpret_cast<char*>(region.begin) + (i << region.shift);
            for (size_t k = 0; k < std::min(region.cell_size(), region.size - (i << region.shift));
                 k++)
                at[k] ^= char(other_byte);
        }
    }
    for (const Dependent& it : dependents) {
        char* at = reinterpret_cast<char*>(it.region->begin) + it.offset;
        if (is_chosen(*it.source) && it.region->is_alive() &&
            !memcmp(at, it.bytes.data(), it.bytes.size()))
            memcpy(at, it.others.data(), it.others.size());
    }
}

void Undefined::change_shared() {
    for (const Kept& it : kept_shared)
        if (is_chosen(cells_of(*it.region)))
            memset(reinterpret_cast<void*>(it.region->begin), other_byte, it.region->size);
}

// visit(offset, bytes): of stretches that are not what they were after the first run, and that one
// of the runs has changed.
template <class Visit>
void Undefined::for_each_difference(const Kept& it, Visit visit) const {
    const char* now = reinterpret_cast<const char*>(it.region->begin);
    if (!memcmp(now, it.after.data(), it.region->size)) return;
    const auto is_other = [&](size_t i) {
        return now[i] != it.after[i] && (it.after[i] != it.before[i] || now[i] != it.start[i]);
    };
    for (size_t i = 0; i < it.region->size; i++) {
        if (!is_other(i)) continue;
        const size_t begin = i;
        while (i < it.region->size && is_other(i)) i++;
        visit(begin, i - begin);
    }
}

// Whether bytes are those of a structure that nobody has set, as they are: nothing was computed
// with them.
bool Undefined::is_copied(const Source& of, const char* now, const char* was, size_t bytes) const {
    if (!of.is_structure) return false;
    for (size_t i = 0; i < bytes; i++)
        if (was[i] || static_cast<unsigned char>(now[i]) != other_byte) return false;
    return true;
}

void Undefined::note_differences(Source& of) {
    const unsigned launch = recorder.launches.size() - 1;
    if (of.what == Source::Cells) note_reader(of, const_cast<Region&>(*of.region));
    if (has_failed) {
        tell(of, failure.place, launch, nullptr, 0);
        return;
    }
    for (const Kept& it : kept)
        for_each_difference(it, [&](size_t offset, size_t bytes) {
            if (dependents.size() == most_dependents) return;
            const char* now = reinterpret_cast<const char*>(it.region->begin) + offset;
            if (is_copied(of, now, &it.after[offset], bytes)) return;
            const Touch last = it.region->writes.empty()
                                   ? Touch()
                                   : it.region->last_write_of(offset >> it.region->shift);
            Place stored{};
            if (last.time >= recorder.order_now().launch_begin)
                stored = {"write",
                          &recorder.sites[last.site],
                          "",
                          0,
                          recorder.order_now().block_at(last.time),
                          last.thread};
            else
                stored = {"write", it.region->written_by, "", 0, recorder.serial_now(), 0};
            dependents.push_back(
                {&of,
                 it.region,
                 offset,
                 {&it.after[offset], &it.after[offset] + bytes},
                 {now, now + bytes},
                 stored,
                 launch});
        });
}

// Of cells that nobody has written, who has read one.
void Undefined::note_reader(Source& of, Region& region) {
    if (region.reads.empty()) return;
    const uint32_t begin = recorder.order_now().launch_begin;
    for (size_t i = 0; i < region.cells(); i++) {
        if (!region.reads.is_touched(i, begin)) continue;
        if (!region.writes.empty() && region.last_write_of(i).time >= settled) continue;
        const Touch reader = region.reads.last_of(scattered(i));
        const Site& site = recorder.sites[reader.site];
        of.finding.kind = "uninitialised";
        of.finding.place = {
            access_names[int(site.kind)],
            &site,
            "",
            0,
            recorder.order_now().block_at(reader.time),
            reader.thread};
        of.finding.address = region.begin + (i << region.shift);
        of.finding.size = region.cell_size();
        of.finding.region = &region;
        return;
    }
}

// ---- What is told

void Undefined::freed(const Region& region) {
    for (const Dependent& it : dependents)
        if (it.region == &region && (region.output || region.is_cudas())) tell(it);
}

void Undefined::end() {
    for (const Dependent& it : dependents)
        if (it.region->is_alive() &&
            (it.region->type != Region::Fresh || it.region->output || it.region->is_cudas()))
            tell(it);
}

// Unless something else has been written there since.
void Undefined::tell(const Dependent& it) {
    const char* now = reinterpret_cast<const char*>(it.region->begin) + it.offset;
    for (size_t i = 0; i < it.bytes.size(); i++)
        if (now[i] == it.bytes[i])
            return tell(*it.source, it.stored, it.launch, it.region, it.region->begin + it.offset);
}

void Undefined::tell(Source& of, const Place& at, unsigned launch, const Region* region,
                     uintptr_t address) {
    if (std::exchange(of.is_told, true)) return;
    Finding finding = of.finding;
    if (!finding.kind || !*finding.kind) {  // where it is used is where it is stored
        finding.kind = "uninitialised";
        finding.place = at;
        finding.region = region, finding.address = address;
        finding.size = 0;
        finding.message = of.what == Source::Local ? of.name : "";
        if (of.what == Source::Local) finding.other = {"declaration", nullptr, of.file, of.line};
    } else if (at.site) {
        finding.other = at;
    }
    finding.launch = launch;
    // Each source is told once; together where the same line shows several of one declaration.
    auto& all = recorder.findings.all;
    const auto same = std::find_if(all.begin(), all.end(), [&](const Finding& it) {
        return of.what == Source::Local && it.other.line == of.line && it.other.file == of.file &&
               it.launch == launch && it.place.site == finding.place.site &&
               !strcmp(it.kind, finding.kind);
    });
    if (same != all.end())
        same->message += std::string(" and ") + of.name;
    else
        all.push_back(std::move(finding));
}

}  // namespace

SIMULATOR_EXPORT unsigned char __byte_of_unset(const char* name, const char* file, int line,
                                               bool is_filled, bool is_structure) {
    recorder.undefined.is_filling = is_filled;
    return recorder.mode == Recorder::Mode::Off
               ? 0
               : recorder.undefined.byte_of(name, file, line, is_structure);
}
SIMULATOR_EXPORT void __skips_barrier(const char* file, int line) {
    recorder.skips_barrier(file, line);
}
SIMULATOR_EXPORT void __returns() { recorder.returns(); }
SIMULATOR_EXPORT void __has_unset() { recorder.undefined.is_filling = false; }

}  // namespace simulator
