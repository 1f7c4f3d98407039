// Work in streams: launches, copies and fills, and which of them surely come one after the other.
//
// Each knows how much of every stream is over when it begins: what was put into its own stream
// before, what the events that it waits for stand for, and what the host had waited for. Once there
// are streams, what work has touched is kept until the host has waited for it, and compared with
// what later work touches that does not come after it.
#pragma once
#include <deque>
#include <map>
#include <set>
#include "findings.h"

namespace simulator {
namespace {

class Streams {
  public:
    using Clock = std::map<const void*, uint64_t>;  // how much of each stream is over

    // Cells side by side that work has touched alike.
    struct Span {
        enum How : uint8_t { Read, Write, Atomic } how;
        uintptr_t begin, end;
        Region* region;
    };
    struct Work {
        const void* stream;
        uint64_t number;     // in its stream, from 1
        Clock before;        // what is over when it begins
        size_t launch;       // its first, if there is one
        uint32_t since = 0;  // the time when that began; 0 if there is none
        Callers from = {};   // of a copy or a fill
        std::vector<Span> spans = {};
    };

    bool is_used = false;  // there is another stream than the default one
    std::deque<Work> works;
    bool is_open = false;                 // the last of them is being done
    size_t cells_left = size_t(1) << 28;  // that are looked at: some seconds

    // The default stream is null; it waits for the blocking ones, and they for it.
    void begin(const void* stream, bool is_blocking, size_t launch) {
        Clock& clock = clocks[stream];
        join(clock, host);
        if (!stream)
            join_blocking(clock);
        else if (is_blocking)
            blocking.insert(stream), join(clock, clocks[nullptr]);
        const Clock before = clock;
        works.push_back({stream, ++clock[stream], before, launch});
        is_open = true;
    }
    void recorded(const void* event, const void* stream) { clocks[event] = clocks[stream]; }
    void waits(const void* stream, const void* event) { join(clocks[stream], clocks[event]); }
    // The host waits for a stream or an event; or for all streams.
    void host_waits(const void* of) {
        join(host, clocks[of]);
        if (!of) join_blocking(host);
        forget();
    }
    void host_waits() {
        for (const auto& [handle, clock] : clocks) join(host, clock);
        forget();
    }

    // Visits earlier work that the last one does not come after.
    template <class Visit>
    void for_each_unordered(Visit visit) const {
        for (const Work& it : works)
            if (&it != &works.back() && !is_over(it, works.back().before)) visit(it);
    }

    // Whether copies may still read or write this, or only write it.
    bool are_copying(uintptr_t address, size_t size, bool only_write) const {
        for (const Work& it : works)
            for (const Span& span : it.spans)
                if (!it.since && address < span.end && span.begin < address + size &&
                    (!only_write || span.how == Span::Write))
                    return true;
        return false;
    }

  private:
    static void join(Clock& clock, const Clock& other) {
        for (const auto& [stream, number] : other) clock[stream] = std::max(clock[stream], number);
    }
    void join_blocking(Clock& clock) {
        for (const void* stream : blocking) join(clock, clocks[stream]);
    }
    static bool is_over(const Work& work, const Clock& clock) {
        const auto found = clock.find(work.stream);
        return found != clock.end() && found->second >= work.number;
    }
    // What the host has waited for comes before all that it asks for from now on.
    void forget() {
        works.erase(std::remove_if(works.begin(), works.end(),
                                   [&](const Work& it) { return is_over(it, host); }),
                    works.end());
    }

    std::map<const void*, Clock> clocks;  // of streams and of events
    std::set<const void*> blocking;
    Clock host;
};

}  // namespace
}  // namespace simulator
