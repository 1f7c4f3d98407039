// Which touches of memory come before an access, whatever the order in which threads are run.
//
// Two touches are ordered by a barrier of their block, by a meeting of their warp (__syncwarp, a
// shuffle, a vote), by an arrival at a cuda::barrier and a wait for that phase of it, by an atomic
// that follows a fence on one side and comes later on the other, or by the end of a launch.
// Whatever is not ordered may race.
//
// Time steps on whenever threads synchronise. Blocks run one after another, so a time belongs to
// one block.
#pragma once
#include <string.h>
#include <algorithm>
#include <unordered_map>
#include <vector>
#include "shadow.h"

namespace simulator {
namespace {

class Order {
  public:
    uint32_t now = first_time;
    uint32_t launch_begin = 0, block_begin = 0;
    uint32_t shared_begin =
        0;  // when the block began; block_begin: or went on after a grid's barrier

    void begin_launch() { begin_phase(); }

    // What came before is ordered before what comes: a launch begins, or all blocks have met.
    void begin_phase() {
        launch_begin = ++now;
        releases.clear();
        past_fences.clear();
    }

    void begin_block(uint32_t serial) { resume_block(serial, now + 1); }

    void resume_block(uint32_t serial, uint32_t began) {
        shared_begin = began;
        block_begin = last_barrier = ++now;
        blocks.push_back({now, serial});
        acquires.clear();
        fences.clear();
        phases.clear();
        known.clear();
    }

    void end_block() {
        if (!fences.empty()) past_fences[block_begin] = fences;
    }

    void barrier() { last_barrier = ++now; }

    // `lanes` of a warp that has `all` have met.
    void meeting(unsigned warp, uint32_t lanes, uint32_t all) {
        now++;
        if (!known.empty()) share_known(warp, lanes);
        if (lanes == all) {
            last_meeting[warp] = now;
            return;
        }
        uint32_t joined[warp_size] = {};
        for (unsigned lane = 0; lane < warp_size; lane++)
            if (lanes >> lane & 1)
                for (unsigned k = 0; k < warp_size; k++)
                    joined[k] = std::max(joined[k], seen[warp * warp_size + lane][k]);
        for (unsigned lane = 0; lane < warp_size; lane++)
            if (lanes >> lane & 1) joined[lane] = now;
        for (unsigned lane = 0; lane < warp_size; lane++)
            if (lanes >> lane & 1) memcpy(seen[warp * warp_size + lane], joined, sizeof joined);
    }

    // All threads of so many warps have met, and what one of them knows of another all know now.
    void meeting_of_warps(unsigned first, unsigned count) {
        now++;
        uint32_t joined[max_warps] = {};
        for (unsigned w = first; w < first + count; w++)
            for (unsigned k = 0; k < max_warps; k++)
                joined[k] = std::max(joined[k], seen_warps[w][k]);
        std::fill_n(joined + first, count, now);
        for (unsigned w = first; w < first + count; w++)
            memcpy(seen_warps[w], joined, sizeof joined), last_meeting[w] = now;
    }

    // A thread, one of so many, gives all that it has done and knows of to a phase of a
    // cuda::barrier; and takes what was given to the phases that have ended.
    void arrive(uintptr_t barrier, unsigned thread, unsigned threads, bool is_last) {
        Phase& phase = phases[barrier];
        phase.coming.resize(threads);
        if (known.empty()) known.resize(threads * threads), size = threads;
        now++;
        raise(phase.coming.data(), &known[thread * size]);
        const unsigned warp = thread / warp_size, first = warp * warp_size;
        for (unsigned k = first; k < std::min(first + warp_size, size); k++)
            phase.coming[k] =
                std::max({phase.coming[k], last_meeting[warp], seen[thread][k % warp_size]});
        phase.coming[thread] = now;
        if (is_last) phase.ended = phase.coming;
    }
    void pass(uintptr_t barrier, unsigned thread) {
        const auto phase = phases.find(barrier);
        if (phase == phases.end() || phase->second.ended.empty()) return;
        raise(&known[thread * size], phase->second.ended.data());
        now++;
    }

    void fence() { fences.push_back(now++); }

    // Whether an atomic has anything to give, or to take from this address.
    bool is_synchronising(uintptr_t address) const {
        return !fences.empty() || (!releases.empty() && releases.count(address));
    }
    // An atomic gives away what was done before a fence, and takes what others have given away.
    void synchronise(uintptr_t address, unsigned thread) {
        if (releases.count(address)) acquires.push_back({address, ++now, thread});
        if (fences.empty()) return;
        releases[address].push_back({block_begin, ++now, last_barrier, thread});
        now++;
    }

    // Whether a touch of this launch, or of this block where the memory is, is no race.
    bool is_ordered(const Touch& before, unsigned thread) const {
        if (before.time >= block_begin) {
            if (before.thread == thread || before.time < last_barrier) return true;
            const unsigned warp = thread / warp_size;
            if (before.time < seen_warps[warp][before.thread / warp_size]) return true;
            if (before.thread / warp_size == warp &&
                (before.time < last_meeting[warp] ||
                 before.time < seen[thread][before.thread % warp_size]))
                return true;
            if (!known.empty() && before.time < known[thread * size + before.thread]) return true;
        }
        return !acquires.empty() && is_given_away(before, thread);
    }

    // The serial number of the block that ran at a time.
    uint32_t block_at(uint32_t time) const { return span_at(time).serial; }

  private:
    struct Span {
        uint32_t begin, serial;
    };
    // What a fence and then an atomic gave away, and what a later atomic of the running block took.
    struct Release {
        uint32_t block, time, last_barrier, thread;
    };
    struct Acquire {
        uintptr_t address;
        uint32_t time, thread;
    };

    // Of a cuda::barrier: until when what each thread did comes before the end of the phase under
    // way, and came before the end of the one before.
    struct Phase {
        std::vector<uint32_t> coming, ended;
    };

    void raise(uint32_t* times, const uint32_t* others) const {
        for (unsigned k = 0; k < size; k++) times[k] = std::max(times[k], others[k]);
    }

    // Lanes that meet know what each of them did.
    void share_known(unsigned warp, uint32_t lanes) {
        std::vector<uint32_t> all(size);
        const auto of = [&](unsigned lane) { return &known[(warp * warp_size + lane) * size]; };
        for (unsigned lane = 0; lane < warp_size; lane++)
            if (lanes >> lane & 1) raise(all.data(), of(lane));
        for (unsigned lane = 0; lane < warp_size; lane++)
            if (lanes >> lane & 1) std::copy(all.begin(), all.end(), of(lane));
    }

    const Span& span_at(uint32_t time) const {
        return std::upper_bound(blocks.begin(), blocks.end(), time,
                                [](uint32_t t, const Span& span) { return t < span.begin; })[-1];
    }

    bool is_given_away(const Touch& before, unsigned thread) const {
        const uint32_t block = span_at(before.time).begin;
        for (const Acquire& acquire : acquires) {
            if (acquire.thread != thread && acquire.time >= last_barrier) continue;
            for (const Release& release : releases.at(acquire.address)) {
                if (release.block != block || release.time >= acquire.time) continue;
                if (release.time <= before.time) continue;
                if (release.thread != before.thread && before.time >= release.last_barrier)
                    continue;
                const auto past = past_fences.find(block);
                const auto& of_block = block == block_begin ? fences : past->second;
                const auto fence = std::lower_bound(of_block.begin(), of_block.end(), before.time);
                if (fence != of_block.end() && *fence < release.time) return true;
            }
        }
        return false;
    }

    uint32_t last_barrier = 0;
    static constexpr unsigned max_warps = max_threads / warp_size;
    uint32_t last_meeting[max_warps] = {};           // of all lanes of a warp
    uint32_t seen_warps[max_warps][max_warps] = {};  // until when a warp knows another
    uint32_t seen[max_threads][warp_size] = {};      // until when a thread knows its warp's lanes
    // Of the running block, once one of its threads has arrived at a cuda::barrier: the barriers,
    // and of each thread until when it knows what each other has done.
    std::unordered_map<uintptr_t, Phase> phases;
    std::vector<uint32_t> known;
    unsigned size = 0;
    std::vector<Span> blocks;
    std::vector<uint32_t> fences;                                     // of the running block
    std::unordered_map<uint32_t, std::vector<uint32_t>> past_fences;  // of the launch's others
    std::unordered_map<uintptr_t, std::vector<Release>> releases;
    std::vector<Acquire> acquires;
};

}  // namespace
}  // namespace simulator
