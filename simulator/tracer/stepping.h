// How the threads of the traced block go on: in rounds, and the lanes of a warp together where they
// are at the same place.
#pragma once
#include <utility>
#include "../executor/libraries.h"
#include "recording.h"

extern "C" SIMULATOR_EXPORT bool simulator_trace_is_on;
bool simulator_trace_is_on = false;  // the traced block runs, and has not made all of its steps

namespace simulator {
namespace {

// A function that a thread is in.
struct Frame {
    uintptr_t at;
    const Place* place;          // the line that it runs
    std::vector<uint8_t> kept;   // its variables' bytes when they were last compared
    std::vector<uint8_t> known;  // whether they have been
};

struct TracedThread {
    std::vector<Frame> frames;
    uintptr_t base = 0;   // the first frame's address
    uint32_t step = ~0u;  // its last one that is recorded
    uint64_t pc = 0;
    size_t depth = 0;  // bytes of stack
};

class Tracer : public Stepper {
  public:
    // Of which block, of which launch, which rounds.
    uint64_t launch = 0, block = 0, first_round = 0, end_round_at = 0;
    uint32_t watched_line = 0;  // the first round in which a thread runs it is noted
    int64_t round_of_line = -1;
    bool is_found = false;  // the block has run
    uint64_t rounds = 0, launches = 0;
    Recording recording;
    std::vector<Place> places;
    std::vector<Variable> variables;
    std::unordered_map<uintptr_t, uint32_t> place_at;
    std::vector<uint32_t> bytes_kept;  // by function
    std::string kernel, failed;
    uint3 index{};
    dim3 grid, extent;
    unsigned thread_count = 0;

    bool& is_on = simulator_trace_is_on;

    bool is_traced(const Block& running) const { return &running == traced; }
    bool is_recording() const { return is_on && rounds >= first_round; }

    void begin_launch(const Launch&) override { launches++; }

    void begin_block(Block& begun) override {
        const dim3& all = begun.launch->grid;
        const uint64_t number =
            begun.index.x + uint64_t(all.x) * (begun.index.y + uint64_t(all.y) * begun.index.z);
        if (is_found || launches != launch + 1 || number != block) return;
        is_found = is_on = true;
        traced = &begun;
        rounds = has_begun = 0;
        kernel = begun.launch->name;
        index = begun.index;
        grid = all;
        extent = begun.launch->block;
        thread_count = begun.size;
        threads.assign(begun.size, {});
        said.assign((begun.size + warp_size - 1) / warp_size, {});
        if (first_round == 0) note_shared();
    }
    void end_block(Block& ended) override {
        if (&ended != traced) return;
        settle();
        if (is_recording()) recording.note_others(rounds);
        is_on = false;
        traced = nullptr;
    }

    void end_round(Block& at) override {
        if (!is_on || &at != traced) return;
        if (!std::exchange(has_begun, true)) return;  // all have come to their first line
        settle();
        if (is_recording()) recording.note_others(rounds), note_waits(at);
        if (++rounds >= end_round_at) is_on = false;
        if (rounds == first_round) note_shared();
    }

    // Those deepest in functions go first, and of them those that are the least far: so lanes that
    // have gone different ways meet again behind these.
    uint32_t lanes_to_step(const Block& at, unsigned warp) override {
        const uint32_t all = at.warps[warp].stepping;
        if (!is_on || !all || rounds % all_go == 0) return all;
        const TracedThread* first = nullptr;
        uint32_t lanes = 0;
        for (uint32_t left = all; left; left &= left - 1) {
            const unsigned lane = __builtin_ctz(left);
            const TracedThread& it = threads[warp * warp_size + lane];
            const bool same = first && it.depth == first->depth && it.pc == first->pc;
            if (!first || it.depth > first->depth ||
                (it.depth == first->depth && it.pc < first->pc)) {
                first = &it;
                lanes = 0;
            } else if (!same) {
                continue;
            }
            lanes |= 1u << lane;
        }
        return lanes;
    }

    void copied(const void* to, const void* from, size_t bytes) override {
        if (from) touch(reinterpret_cast<uintptr_t>(from), bytes, Touched::Read);
        touch(reinterpret_cast<uintptr_t>(to), bytes, Touched::Write);
    }

    // The running thread touches memory.
    void touch(uintptr_t address, size_t size, Touched how) {
        if (!is_on || &running_block() != traced) return;
        settle();
        const int number = recording.region_of(address);
        if (number < 0) return;
        MemoryRegion& region = recording.regions[number];
        const size_t offset = address - region.begin;
        size = std::min(size, region.size - offset);
        if (region.is_shared && how != Touched::Read)
            std::fill_n(region.written.begin() + offset, size, true);
        if (!is_recording()) return;
        recording.note_before(number, offset, size);
        const uint32_t step = threads[traced->rank].step;
        if (step == ~0u) return;
        recording.touches.push_back({step, how, uint16_t(number), uint32_t(offset), uint32_t(size),
                                     recording.keep(reinterpret_cast<void*>(address), size)});
        if (how != Touched::Read) unsettled = recording.touches.size();
    }

    // The running thread comes to a line. True: it has made a step.
    bool comes_to(uint64_t pc, uintptr_t rbp);

  private:
    static constexpr unsigned all_go = 64;  // every so many rounds, for those who wait for others

    // What was written is there now.
    void settle() {
        if (!unsettled) return;
        const TouchedMemory& it = recording.touches[unsettled - 1];
        unsettled = 0;
        const auto at = recording.regions[it.region].begin + it.offset;
        memcpy(&recording.bytes[it.bytes_at], reinterpret_cast<void*>(at), it.size);
        recording.follow(it);
    }
    void note_shared() {
        for (unsigned n = 0; const uintptr_t at = simulator_check_shared(n); n++)
            if (const int number = recording.region_of(at); number >= 0)
                recording.note_before(number, 0, recording.regions[number].size);
    }
    void note_waits(Block& at);
    // Of the variables in scope. DeclaredBefore: before the line that the function is in.
    void step(TracedThread& thread, const Place& place, uintptr_t at, bool has_returned);
    enum class Which { Parameters, DeclaredBefore, Declared };
    void compare(TracedThread& thread, Frame& frame, Which which);

    bool has_begun = false;
    Block* traced = nullptr;
    std::vector<TracedThread> threads;
    size_t unsettled = 0;
    std::vector<std::string> said;
};

// Notes which of the thread's variables have changed.
void Tracer::compare(TracedThread& thread, Frame& frame, Which which) {
    const Place& place = *frame.place;
    for (uint32_t i = place.first; i < place.first + place.count; i++) {
        const Variable& it = variables[i];
        if (which == Which::Parameters       ? it.line != 0
            : which == Which::DeclaredBefore ? it.line >= place.line
                                             : it.line > place.line)
            continue;
        auto at = reinterpret_cast<const uint8_t*>(frame.at + it.at);
        if (it.is_pointed) {
            memcpy(&at, at, sizeof at);
            const auto address = reinterpret_cast<uintptr_t>(at);
            const bool is_on_stack = address - (thread.base - (1 << 20)) < (1 << 20) + 4096;
            if (!is_on_stack && recording.region_of(address) < 0) continue;
        }
        if (frame.known[it.kept_at] && !memcmp(&frame.kept[it.kept_at], at, it.size)) continue;
        frame.known[it.kept_at] = true;
        memcpy(&frame.kept[it.kept_at], at, it.size);
        recording.changes.push_back({thread.step, i, recording.keep(at, it.size)});
    }
}

bool Tracer::comes_to(uint64_t pc, uintptr_t rbp) {
    const auto found = place_at.find(pc);
    if (found == place_at.end()) return false;
    const Place& place = places[found->second];
    uintptr_t at = rbp + place.frame_at;
    if (place.is_saved) memcpy(&at, reinterpret_cast<void*>(at), sizeof at);
    TracedThread& thread = threads[traced->rank];
    // What calls the kernel is no line of it.
    if (int(place.line) == traced->launch->line && (thread.frames.empty() || at > thread.base))
        return false;
    if (!thread.base) thread.base = at;
    if (!thread.frames.empty() && thread.frames.back().at == at &&
        thread.frames.back().place->line == place.line && pc > thread.frames.back().place->pc) {
        thread.frames.back().place = &place;
        thread.pc = pc;
        return false;  // further on in the line
    }
    bool has_returned = false;
    if (!thread.frames.empty() && thread.step != ~0u && thread.frames.back().at >= at)
        compare(thread, thread.frames.back(),
                thread.frames.back().at == at ? Which::Declared : Which::DeclaredBefore);
    std::vector<uint32_t> left;  // functions
    while (!thread.frames.empty() && thread.frames.back().at < at) {
        left.push_back(thread.frames.back().place->function);
        thread.frames.pop_back();
        has_returned = true;
    }
    const bool is_new = thread.frames.empty() || thread.frames.back().at != at ||
                        thread.frames.back().place->function != place.function;
    if (!is_new) {
        Frame& frame = thread.frames.back();
        if (std::find(left.begin(), left.end(), place.function) != left.end())
            std::fill(frame.known.begin(), frame.known.end(), 0);  // by itself
        if (has_returned) {                                        // the line that called goes on
            step(thread, *frame.place, at, true);
            if (!is_on) return true;
            if (thread.step != ~0u) compare(thread, frame, Which::Declared);
            if (frame.place->line == place.line && pc > frame.place->pc) {
                frame.place = &place;
                return true;
            }
        }
    } else {
        if (!thread.frames.empty() && thread.frames.back().at == at) thread.frames.pop_back();
        const size_t bytes = bytes_kept[place.function];
        thread.frames.push_back(
            {at, &place, std::vector<uint8_t>(bytes), std::vector<uint8_t>(bytes)});
    }
    thread.frames.back().place = &place;
    step(thread, place, at, false);
    if (is_new && is_recording() && thread.step != ~0u)
        compare(thread, thread.frames.back(), Which::Parameters);
    return true;
}

// The thread waits for its turn, and begins a step. `has_returned`: to a line that goes on.
void Tracer::step(TracedThread& thread, const Place& place, uintptr_t at, bool has_returned) {
    settle();
    thread.pc = place.pc;
    thread.depth = thread.base - at;
    step_thread();
    if (!is_on) return;
    if (place.line == watched_line && round_of_line < 0) round_of_line = rounds;
    if (!is_recording()) return;
    thread.step = recording.steps.size();
    const uint16_t depth = thread.frames.size() | (has_returned ? returned : 0);
    recording.steps.push_back(
        {uint32_t(rounds), uint32_t(&place - places.data()), uint16_t(traced->rank), depth});
}

// For what the lanes of each warp wait, where that has changed.
void Tracer::note_waits(Block& at) {
    for (unsigned w = 0; w < said.size(); w++) {
        const Warp& warp = at.warps[w];
        std::string now;
        std::vector<Waiting> rows;
        const auto add = [&](const std::string& what, uint32_t lanes) {
            rows.push_back({uint32_t(rounds), uint16_t(w), recording.word(what), lanes});
            now += what + ':' + std::to_string(lanes) + ' ';
        };
        add("", warp.alive);
        uint32_t waiting = warp.alive & ~warp.stepping;
        while (waiting) {
            const Thread& first = at.threads[w * warp_size + __builtin_ctz(waiting)];
            uint32_t lanes = 0;
            for (uint32_t left = waiting; left; left &= left - 1) {
                const unsigned lane = __builtin_ctz(left);
                const Thread& it = at.threads[w * warp_size + lane];
                if (it.line == first.line && !strcmp(it.what, first.what)) lanes |= 1u << lane;
            }
            add(std::string(first.what) + " at " + first.file + ':' + std::to_string(first.line),
                lanes);
            waiting &= ~lanes;
        }
        if (now == said[w]) continue;
        said[w] = now;
        recording.waits.insert(recording.waits.end(), rows.begin(), rows.end());
    }
}

Tracer* tracer = nullptr;

}  // namespace
}  // namespace simulator
