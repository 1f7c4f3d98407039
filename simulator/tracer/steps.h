// A step of the traced block: which lines its threads come to, and which variables have changed.
#pragma once
#include "stepping.h"

namespace simulator {
namespace {

// Notes which of the thread's variables have changed.
void Tracer::compare(TracedThread& thread, Frame& frame, Which which) {
    const Place& place = *frame.place;
    for (uint32_t i = place.first; i < place.first + place.count; i++) {
        const Variable& it = variables[i];
        if (which == Which::Parameters       ? it.line != 0
            : which == Which::DeclaredBefore ? it.line >= place.line
                                             : it.line > place.line)
            continue;
        const uintptr_t from = it.is_at_rbp ? frame.rbp : frame.at;
        auto at = reinterpret_cast<const uint8_t*>(from + it.at);
        if (it.is_pointed) {
            memcpy(&at, at, sizeof at);
            const auto address = reinterpret_cast<uintptr_t>(at);
            if (!thread.has_on_stack(address) && recording.region_of(address) < 0) continue;
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
    TracedThread& thread = of->threads[of->running->rank];
    // The lambda that calls the kernel, which a launch is rewritten to, is no line of it.
    if (place.is_lambda && int(place.line) == of->running->launch->line &&
        (thread.frames.empty() || at > thread.base))
        return false;
    if (!thread.base) thread.base = at;
    if (!thread.frames.empty() && thread.frames.back().at == at &&
        thread.frames.back().place->line == place.line && pc > thread.frames.back().place->pc) {
        if (thread.step != ~0u) compare(thread, thread.frames.back(), Which::Declared);
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
            {at, rbp, &place, std::vector<uint8_t>(bytes), std::vector<uint8_t>(bytes)});
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
    if (!is_on || !runs_traced()) return;
    see(place, 0, 0, Touched::Read, false);
    thread.step = ~0u;
    if (!is_recording()) return;
    thread.step = recording.steps.size();
    const uint16_t depth = thread.frames.size() | (has_returned ? returned : 0);
    recording.steps.push_back(
        {of->round, uint32_t(&place - places.data()), thread_number(), depth});
}

// For what the lanes of each warp wait from now on, where that has changed.
void Tracer::note_waits(TracedBlock& it) {
    const Block& at = *it.running;
    for (unsigned w = 0; w < it.said.size(); w++) {
        const Warp& warp = at.warps[w];
        std::string now;
        std::vector<Waiting> rows;
        const auto add = [&](const std::string& what, uint32_t lanes) {
            rows.push_back({last_round(), warp_number(it, w), recording.word(what), lanes});
            now += what + ':' + std::to_string(lanes) + ' ';
        };
        add("", warp.alive);
        uint32_t waiting = warp.alive & ~warp.stepping;
        while (waiting) {
            const Thread& first = at.threads[w * warp_size + __builtin_ctz(waiting)];
            uint32_t lanes = 0;
            for (uint32_t left = waiting; left; left &= left - 1) {
                const unsigned lane = __builtin_ctz(left);
                const Thread& thread = at.threads[w * warp_size + lane];
                if (thread.line == first.line && !strcmp(thread.what, first.what))
                    lanes |= 1u << lane;
            }
            add(place_of(first.what, first.file, first.line), lanes);
            waiting &= ~lanes;
        }
        if (now == it.said[w]) continue;
        it.said[w] = now;
        recording.waits.insert(recording.waits.end(), rows.begin(), rows.end());
    }
}

Tracer* tracer = nullptr;

}  // namespace
}  // namespace simulator
