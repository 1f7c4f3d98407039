// The first launches of a kernel run on copies of their memory before, for what no fault tells and
// leaves no trace: a read one element beside an array, or of the host's memory.
//
// It is not done where a second run could be noticed: where memory holds addresses of other memory,
// or an argument is one of memory that is not known here. What the kernel's library keeps, its
// __device__ variables, is as it was afterwards.
#pragma once
#include <pthread.h>
#include "on_copies.h"

namespace simulator {
namespace {

#ifdef __linux__
// What a library keeps between launches.
class KeptByLibrary {
  public:
    explicit KeptByLibrary(const void* code) {
        with_headers_of(library_of(code), [&](const dl_phdr_info& info) {
            uintptr_t read_only = 0;  // up to there, once it is loaded
            const size_t page = sysconf(_SC_PAGESIZE);
            const auto each = [&](auto visit) {
                for (int i = 0; i < info.dlpi_phnum; i++) visit(info.dlpi_phdr[i]);
            };
            each([&](const auto& part) {
                if (part.p_type == PT_GNU_RELRO)
                    read_only = (info.dlpi_addr + part.p_vaddr + part.p_memsz) / page * page;
            });
            each([&](const auto& part) {
                if (part.p_type != PT_LOAD || !(part.p_flags & PF_W)) return;
                const uintptr_t begin = std::max(read_only, info.dlpi_addr + part.p_vaddr);
                const uintptr_t end = info.dlpi_addr + part.p_vaddr + part.p_memsz;
                if (begin < end) parts.push_back({begin, end - begin});
                bytes += begin < end ? end - begin : 0;
            });
        });
        if (bytes > most_bytes) return;
        for (const auto& [begin, size] : parts) {
            const auto* from = reinterpret_cast<const char*>(begin);
            copy.insert(copy.end(), from, from + size);
        }
    }

    bool is_whole() const { return bytes && bytes <= most_bytes; }
    bool holds(uintptr_t address) const {
        for (const auto& [begin, size] : parts)
            if (address - begin < size) return true;
        return false;
    }
    const std::vector<char>& contents() const { return copy; }

    // Only what has changed, as the host's other threads may go on meanwhile.
    void restore() const {
        const char* was = copy.data();
        for (const auto& [begin, size] : parts)
            for (size_t i = 0; i < size; i += 64) {
                const size_t count = std::min<size_t>(64, size - i);
                auto* to = reinterpret_cast<char*>(begin) + i;
                if (memcmp(to, was, count)) memcpy(to, was, count);
                was += count;
            }
    }

  private:
    static constexpr size_t most_bytes = size_t(4) << 20;
    std::vector<std::pair<uintptr_t, size_t>> parts;
    std::vector<char> copy;
    size_t bytes = 0;
};

class Rehearsals {
  public:
    // Whether a launch is one of the first of its kernel with such a grid.
    bool is_new(const Launch& launch) {
        const uintptr_t kernel = uintptr_t(launch.run_threads);
        uint64_t key = kernel;
        for (const unsigned extent : {launch.grid.x, launch.grid.y, launch.grid.z, launch.block.x,
                                      launch.block.y, launch.block.z})
            key = (key ^ extent) * 0x9E3779B97F4A7C15;
        return !find(key | 1) && add(kernel << 8, key | 1);
    }

  private:
    static constexpr size_t size = 1 << 12, most_of_kernel = 4;

    std::atomic<uint64_t>& place_of(uint64_t key, uint64_t mask) {
        size_t at = key * 0x9E3779B97F4A7C15 >> 52;
        while (table[at % size] && (table[at % size] ^ key) & mask) at++;
        return table[at % size];
    }
    bool find(uint64_t key) { return place_of(key, ~uint64_t(0)); }

    bool add(uint64_t kernel, uint64_t key) {
        std::lock_guard<std::mutex> lock(mutex);
        if (used > size / 2) return false;
        std::atomic<uint64_t>& count = place_of(kernel, ~uint64_t(0xFF));
        used += !count;
        if ((count & 0xFF) >= most_of_kernel) return false;
        count = (count ? count.load() : kernel) + 1;
        used++;
        place_of(key, ~uint64_t(0)) = key;
        return true;
    }

    std::mutex mutex;
    size_t used = 0;
    std::atomic<uint64_t> table[size] = {};
};
Rehearsals& rehearsals = *new Rehearsals;

class Rehearsal {
  public:
    explicit Rehearsal(const Launch& launch)
        : launch(launch), library(reinterpret_cast<const void*>(launch.run_threads)) {
        pthread_attr_t attributes;
        if (pthread_getattr_np(pthread_self(), &attributes)) return;
        void* begin;
        size_t bytes;
        pthread_attr_getstack(&attributes, &begin, &bytes);
        pthread_attr_destroy(&attributes);
        stack_begin = uintptr_t(begin), stack_end = stack_begin + bytes;
    }

    // The first error of a run; none if there is none, or there may be no such run.
    Error run() {
        if (!library.is_whole() || !may_run_twice()) return {};
        for (const Side side : {Side::Behind, Side::Before}) {
            const Error error = run(side);
            if (error.code != cudaSuccess) return error;
            if (is_late) break;
        }
        return {};
    }

  private:
    static constexpr size_t most_bytes = size_t(16) << 20, near_by = size_t(64) << 20;
    static constexpr double seconds = 0.05;

    Error run(Side side) {
        LaunchOnCopies on_copies(launch, most_bytes, [&](const Island& it) {
            return is_hosts(it.begin) ? Side::NotCopied : side;
        });
        if (!on_copies.is_whole) return {};
        const Error error = on_copies.run(launch, seconds, [&](uintptr_t& word) {
            if (is_hosts(word)) word = guarded.nowhere() + word % 256;
        });
        library.restore();
        is_late = error.is_interrupt;
        const Told told = Told::take();
        if (error.code == cudaSuccess || is_late || !told.address) return {};
        constexpr uintptr_t far = uintptr_t(16) << 30;
        if (told.address - (guarded.nowhere() - far) < 2 * far) {
            told_fault.tell("", 0, told.library, told.offset);
            return {error.code,
                    describe(launch) + ": it " + told.access +
                        " memory of the host, of malloc() or a local variable, which a GPU cannot "
                        "reach: give it memory of cudaMalloc(), and copy there with cudaMemcpy()"};
        }
        const uintptr_t original = on_copies.original(told.address, near_by);
        return original ? told.again_at(error, original) : Error{};
    }

    bool may_run_twice() {
        const auto* words = static_cast<const uintptr_t*>(launch.body);
        size_t bytes = 0;
        bool is_any_hosts = false;
        for (size_t i = 0; i < launch.body_bytes / sizeof *words; i++) {
            if (is_hosts(words[i])) {
                is_any_hosts = true;
                continue;
            }
            if (!guarded.owns(reinterpret_cast<void*>(words[i]))) {
                if (is_mapped(words[i]) && !is_librarys(words[i])) return false;
                continue;
            }
            const Island it = guarded.find(words[i]);
            if ((bytes += it.bytes) > most_bytes || holds_addresses(it.begin, it.bytes))
                return false;
        }
        const auto& kept = library.contents();
        const auto* kept_words = reinterpret_cast<const uintptr_t*>(kept.data());
        for (size_t i = 0; i < kept.size() / sizeof *kept_words; i++)
            if (guarded.owns(reinterpret_cast<void*>(kept_words[i]))) return false;
        return bytes || is_any_hosts;
    }

    bool is_hosts(uintptr_t word) const {
        if (word - stack_begin < stack_end - stack_begin) return true;
        if (!guarded.owns(reinterpret_cast<void*>(word))) return false;
        const Island it = guarded.find(word);
        return host_memory.holds(reinterpret_cast<void*>(it.begin)) &&
               !allocations.find(reinterpret_cast<void*>(word)).is_known;
    }

    bool is_librarys(uintptr_t word) const {
        return library.holds(word) ||
               library_of(reinterpret_cast<void*>(word)).base ==
                   library_of(reinterpret_cast<const void*>(launch.run_threads)).base;
    }

    // Numbers are hardly ever addresses that something is at, except an int with what lies behind
    // it, which may be the upper half of an address.
    static bool is_mapped(uintptr_t word) {
        if (word >> 47 || uint32_t(word) < 1 << 24) return false;
        const size_t page = sysconf(_SC_PAGESIZE);
        unsigned char is_resident;
        return !mincore(reinterpret_cast<void*>(word / page * page), 1, &is_resident);
    }

    static bool holds_addresses(uintptr_t begin, size_t bytes) {
        const auto* word = reinterpret_cast<const uintptr_t*>((begin + 7) / 8 * 8);
        const auto* const end = reinterpret_cast<const uintptr_t*>(begin + bytes);
        for (; word + 1 <= end; word++)
            if (*word >> 44 >= 5 && *word >> 44 < 8 && is_mapped(*word)) return true;
        return false;
    }

    const Launch& launch;
    const KeptByLibrary library;
    bool is_late = false;
    uintptr_t stack_begin = 0, stack_end = 0;
};

bool is_debugged() {
    char text[4096] = {};
    FILE* file = fopen("/proc/self/status", "r");
    if (!file) return false;
    const size_t count = fread(text, 1, sizeof text - 1, file);
    fclose(file);
    const char* found = count ? strstr(text, "TracerPid:") : nullptr;
    return found && atoi(found + 10);
}

Error rehearse(const Launch& launch) {
    if (watcher || launch.instrumented || launch.cooperative || launch.in_clusters() ||
        !rehearsals.is_new(launch) || is_debugged())
        return {};
    return Rehearsal(launch).run();
}
#else
Error rehearse(const Launch&) { return {}; }
#endif

}  // namespace
}  // namespace simulator
