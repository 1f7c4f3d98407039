// What the checker's Python side calls: it opens a check, says which memory is whose, and takes the
// report, as JSON. lab/checker/run.py is the only caller.
#pragma once
#include "recorder.h"

namespace simulator {
namespace {

std::string quoted(const std::string& text) {
    std::string out = "\"";
    for (const char c : text) {
        if (c == '"' || c == '\\') out += '\\';
        if (c == '\n')
            out += "\\n";
        else if (static_cast<unsigned char>(c) >= 32)
            out += c;
    }
    return out + '"';
}

std::string list(unsigned x, unsigned y, unsigned z) { return text("[%u, %u, %u]", x, y, z); }

class Report {
  public:
    std::string json() {
        std::string out = "{";
        out += section("launches", recorder.launches, [](const LaunchRecord& it) {
            return text(
                       "\"line\": %d, \"shared\": %zu, \"blocks\": %llu, \"recorded\": %llu"
                       ", \"ended\": %llu",
                       it.line, it.shared, (unsigned long long)it.blocks,
                       (unsigned long long)it.recorded, (unsigned long long)it.ended) +
                   ", \"kernel\": " + quoted(it.name) + ", \"file\": " + quoted(it.file) +
                   ", \"grid\": " + list(it.grid.x, it.grid.y, it.grid.z) +
                   ", \"block\": " + list(it.block.x, it.block.y, it.block.z) +
                   (recorder.reuses.is_on ? counted(it) : "");
        });
        out += section("host_waits", recorder.host_waits, [](const Recorder::HostWait& it) {
            return text("\"made\": %zu, \"over\": %zu", it.made, it.over);
        });
        out += section("regions", recorder.regions, [&](const Region& it) {
            return text("\"bytes\": %zu, \"type\": %d, \"read\": %zu, \"written\": %zu", it.size,
                        int(it.type), it.bytes_read(), it.bytes_written()) +
                   text(", \"fetched\": %llu",
                        (unsigned long long)(it.fetched_reads.count + it.fetched_writes.count)) +
                   ", \"name\": " + quoted(it.name);
        });
        out += section("sites", recorder.sites, [](const Site& it) {
            // Of asynchronous work the instruction's file and line are known.
            const Library library =
                it.pc ? library_of(reinterpret_cast<const void*>(it.pc)) : Library{};
            return text("\"offset\": %zu, \"size\": %u, \"access\": \"%s\", \"line\": %d",
                        it.pc - library.base, it.size, access_names[int(it.kind)], it.line) +
                   ", \"library\": " + quoted(library.path) + ", \"what\": " + quoted(it.what) +
                   ", \"file\": " + quoted(it.file);
        });
        std::vector<std::pair<const Site*, const Traffic*>> traffic;
        for (const Site& site : recorder.sites)
            for (const Traffic& it : site.traffic) traffic.push_back({&site, &it});
        out += section("traffic", traffic, [&](const auto& pair) {
            const Traffic& it = *pair.second;
            std::string out =
                text("\"site\": %u, \"region\": %zu", pair.first->id, index_of(it.region));
            const std::pair<const char*, uint64_t> counts[] = {
                {"requests", it.requests}, {"lanes", it.lanes},           {"asked", it.asked},
                {"sectors", it.sectors},   {"ideal", it.ideal},           {"passes", it.passes},
                {"smooth", it.smooth},     {"contention", it.contention}, {"worst", it.worst}};
            for (auto [name, count] : counts)
                out += text(", \"%s\": %llu", name, (unsigned long long)count);
            out += ", \"example\": [";
            const char* comma = "";
            for (unsigned lane = 0; lane < warp_size; lane++) {
                const bool asks = it.example_lanes >> lane & 1;
                out += asks ? text("%s%zu", comma, it.example[lane]) : text("%snull", comma);
                comma = ", ";
            }
            return out + text("], \"begin\": %zu", it.region->begin);
        });
        out += section("findings", recorder.findings.all, [&](const Finding& it) {
            std::string out =
                text(
                    "\"kind\": \"%s\", \"launch\": %u, \"address\": %zu, \"size\": %u, "
                    "\"count\": %llu, \"region\": %zd",
                    it.kind, it.launch, it.address, it.size, (unsigned long long)it.count,
                    it.region ? ssize_t(index_of(it.region)) : ssize_t(-1)) +
                text(", \"begin\": %zu, \"end\": %zu", it.region ? it.region->begin : 0,
                     it.region ? it.region->begin + it.region->size : 0);
            out += text(", \"severity\": \"%s\", \"hazard\": \"%s\"",
                        severity_names[int(it.severity)], it.hazard);
            out += text(", \"column\": %u", it.column);
            if (it.region)
                out += ", \"made_by\": " + codes(it.region->made_by) +
                       ", \"freed_by\": " + codes(it.region->freed_by);
            out += ", \"from\": " + codes(it.from);
            out += ", \"other_from\": " + codes(it.other_from);
            return out + ", \"place\": " + place(it.place) + ", \"other\": " + place(it.other) +
                   ", \"message\": " + quoted(it.message);
        });
        out += section("waits", recorder.asynchronous.waits, [](const auto& pair) {
            const Waits& it = pair.second;
            return text("\"site\": %u, \"times\": %llu, \"in_flight\": %llu, \"most\": %llu",
                        pair.first->id, (unsigned long long)it.times,
                        (unsigned long long)it.in_flight, (unsigned long long)it.most);
        });
        out += section("products", recorder.asynchronous.products, [](const auto& pair) {
            const Products& it = pair.second;
            return text("\"site\": %u, \"products\": %llu, \"operations\": %llu", pair.first->id,
                        (unsigned long long)it.products, (unsigned long long)it.operations) +
                   ", \"types\": " + quoted(it.types);
        });
        out += section("stood", recorder.blocks_stood, [](const BlockStood& it) {
            return "\"block\": " + list(it.block.x, it.block.y, it.block.z) + ", " +
                   section("threads", it.threads, stood) + "\"all\": true";
        });
        out.resize(out.size() - 2);
        return out + "}";
    }

  private:
    static std::string counted(const LaunchRecord& launch) {
        const size_t index = &launch - recorder.launches.data();
        std::string out =
            text(", \"barriers\": %llu, \"shuffles\": %llu, \"hottest\": %llu, ",
                 (unsigned long long)launch.barriers, (unsigned long long)launch.shuffles,
                 (unsigned long long)recorder.reuses.hottest[index]);
        out += text("\"warps\": %llu, ", (unsigned long long)recorder.reuses.warps[index]);
        out += "\"full_name\": " + quoted(launch.full_name) + ", ";
        out += section("products", launch.products, [](const auto& it) {
            return "\"types\": " + quoted(it.first) +
                   text(", \"operations\": %llu", (unsigned long long)it.second);
        });
        out += section("ran", launch.ran, [](const auto& it) {
            const Library library = library_of(reinterpret_cast<const void*>(it.first));
            return "\"library\": " + quoted(library.path) +
                   text(", \"offset\": %zu, \"runs\": %llu", it.first - library.base,
                        (unsigned long long)it.second);
        });
        out += section("reuse", recorder.reuses.counts[index], [](const auto& pair) {
            const Reuse& it = pair.second;
            std::string out = text(
                "\"site\": %u, \"region\": %zu", pair.first.first, index_of(pair.first.second));
            const std::pair<const char*, uint64_t> counts[] = {
                {"requests", it.requests}, {"asked", it.asked},     {"sectors", it.sectors},
                {"lines", it.lines},       {"passes", it.passes},   {"smooth", it.smooth},
                {"earlier", it.earlier},   {"first", it.first},     {"written", it.written},
                {"pairs", it.pairs},       {"to_warp", it.to_warp}, {"left_out", it.left_out},
                {"touched", it.touched},   {"pieces", it.pieces}};
            for (auto [name, count] : counts)
                out += text(", \"%s\": %llu", name, (unsigned long long)count);
            return out + ", \"in_block\": " + numbers(it.in_block) +
                   ", \"by_blocks\": " + numbers(it.by_blocks);
        });
        return out.substr(0, out.size() - 2);
    }

    static std::string numbers(const uint64_t (&values)[Reuse::most]) {
        std::string out = "[";
        for (uint64_t it : values)
            out += text(out.size() > 1 ? ", %llu" : "%llu", (unsigned long long)it);
        return out + "]";
    }

    template <class Items, class Describe>
    static std::string section(const char* name, const Items& items, Describe describe) {
        std::string out = text("\"%s\": [", name);
        const char* comma = "";
        for (const auto& item : items) {
            out += comma;
            out += "{" + describe(item) + "}";
            comma = ",\n";
        }
        return out + "], ";
    }

    static std::string stood(const Standing& it) {
        const Library library = library_of(reinterpret_cast<const void*>(it.at));
        return text("\"offset\": %zu, \"line\": %d, \"count\": %u",
                    it.at ? it.at - library.base : 0, it.line, it.count) +
               ", \"doing\": " + quoted(it.doing) + ", \"file\": " + quoted(it.file) +
               ", \"threads\": " + quoted(it.threads) +
               ", \"library\": " + quoted(it.at ? library.path : "");
    }

    // Each with its library.
    static std::string codes(const Callers& callers) {
        std::string out = "[";
        for (const void* it : callers) {
            const Library library = library_of(it);
            const size_t offset = reinterpret_cast<uintptr_t>(it) - library.base - 1;
            out += (out.size() > 1 ? ", [" : "[") + quoted(library.path) + text(", %zu]", offset);
        }
        return out + "]";
    }

    static size_t index_of(const Region* region) {
        size_t index = 0;
        while (&recorder.regions[index] != region) index++;
        return index;
    }

    static std::string place(const Place& it) {
        uint3 block = {};
        for (const LaunchRecord& launch : recorder.launches)
            if (it.block >= launch.first && it.block < launch.first + launch.blocks) {
                const uint64_t index = it.block - launch.first, rest = index / launch.grid.x;
                block = {unsigned(index % launch.grid.x), unsigned(rest % launch.grid.y),
                         unsigned(rest / launch.grid.y)};
            }
        return text("{\"access\": \"%s\", \"site\": %d, \"line\": %d, \"thread\": %u", it.access,
                    it.site ? int(it.site->id) : -1, it.line, it.thread) +
               ", \"file\": " + quoted(it.file) +
               ", \"block\": " + list(block.x, block.y, block.z) + "}";
    }
};

}  // namespace
}  // namespace simulator

#define SIMULATOR_CHECK extern "C" SIMULATOR_EXPORT

// From here on launches are checked; `threads` of each in full, 0: as many as it pays. `traffic`:
// is counted too. `seconds`: that they may take in all.
SIMULATOR_CHECK void simulator_check_begin(unsigned seed, unsigned long threads, bool traffic,
                                           double seconds) {
    simulator::recorder.begin(seed, threads, traffic, seconds);
}

// Right after that: the tensors stand for a GPU's, and the host may not touch them.
SIMULATOR_CHECK void simulator_check_device_tensors() { simulator::recorder.device_tensors = true; }

// Right after that: what caches of a GPU would answer is counted, too. `skips`: blocks that are not
// recorded in full do not run. `processors`: the GPU's multiprocessors.
SIMULATOR_CHECK void simulator_check_reuse(bool skips, int processors) {
    simulator::recorder.reuses.is_on = true;
    simulator::recorder.skips_blocks = skips;
    simulator::recorder.told_processors = processors;
}

// A variable of a library: see Variable.
SIMULATOR_CHECK void simulator_check_variable(const char* library, size_t offset, size_t bytes,
                                              bool is_shared, bool is_kernels, const char* owner,
                                              const char* name, int of) {
    simulator::recorder.variables.push_back(
        {library, offset, bytes, is_shared, is_kernels, owner, name, cudaMemoryType(of)});
    simulator::recorder.watch_host(simulator::recorder.variables.back());
}

// A kernel of a library, by its name with its template arguments.
SIMULATOR_CHECK void simulator_check_kernel(const char* library, size_t offset, const char* name) {
    simulator::recorder.kernels[{library, offset}] = name;
}

// Memory that the caller owns and kernels may use.
// `original`: the same bytes, which stay as they are; or null.
SIMULATOR_CHECK void simulator_check_tensor(uintptr_t begin, size_t bytes, size_t pad,
                                            const char* name, const char* original) {
    simulator::recorder.add(begin, bytes, simulator::Region::Given, name, pad).original = original;
}

// Memory that came into being during the check, and its end.
SIMULATOR_CHECK void simulator_check_allocated(uintptr_t begin, size_t bytes, size_t pad) {
    simulator::recorder.allocated(begin, bytes, pad, cudaMemoryTypeUnregistered);
}
// For such memory, far from all other; or null. And whether it came from there, and is given back.
SIMULATOR_CHECK void* simulator_check_take(size_t bytes) { return simulator::arena.take(bytes); }
SIMULATOR_CHECK bool simulator_check_give_back(void* memory) {
    if (!simulator::arena.holds(memory)) return false;
    simulator::arena.give_back(memory);
    return true;
}
// True: `memory`, which is free()'s, is freed when the check ends.
SIMULATOR_CHECK bool simulator_check_freed(uintptr_t begin, void* memory) {
    return simulator::recorder.freed(begin, memory);
}

// What fresh memory is, now that the call has returned; outputs must have been written.
SIMULATOR_CHECK void simulator_check_name(uintptr_t address, const char* name, bool output) {
    simulator::Region* region = simulator::recorder.region_at(address);
    if (!region || region->type != simulator::Region::Fresh) return;
    region->name = name;
    region->output = output;
}

// For the tracer: the memory that kernels may use around an address, and its name. False: there is
// none, or it is where threads run.
SIMULATOR_CHECK bool simulator_check_region(uintptr_t address, uintptr_t* begin, size_t* bytes,
                                            bool* is_shared, const char** name) {
    const simulator::Region* region = simulator::recorder.region_at(address);
    if (!region || region->type == simulator::Region::Private) return false;
    *begin = region->begin;
    *bytes = region->size;
    *is_shared = region->is_shared();
    *name = region->name.c_str();
    return true;
}

// The n-th of the running block's shared arrays.
SIMULATOR_CHECK uintptr_t simulator_check_shared(unsigned n) {
    for (const simulator::Region& region : simulator::recorder.regions)
        if (region.is_shared() && region.is_alive() && n-- == 0) return region.begin;
    return 0;
}

// The report, which lasts until the next one.
SIMULATOR_CHECK const char* simulator_check_end() {
    static std::string json;
    if (simulator::recorder.is_on()) simulator::recorder.end();
    json = simulator::Report().json();
    return json.c_str();
}
#undef SIMULATOR_CHECK
