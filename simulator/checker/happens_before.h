// Which touches of memory come before an access, whatever the order in which threads are run.
//
// Two touches are ordered by a barrier of their block, by a meeting of their warp (__syncwarp, a
// shuffle, a vote), by an arrival at a cuda::barrier and a wait for that phase of it, by a fence
// and a store or atomic after it that the other side then reads, or by the end of a launch. What a
// thread knows it hands on with what it gives away, over as many threads and blocks as there are.
// Whatever is not ordered may race, unless a lock keeps it apart (locks.h).
//
// Time steps on whenever threads synchronise. Blocks run one after another, so a time belongs to
// one block. Barriers and meetings of whole warps are a time each; all else is kept in clocks.
#pragma once
#include <algorithm>
#include <unordered_map>
#include <vector>
#include "clocks.h"
#include "locks.h"
#include "touches.h"
#include "trace.h"

namespace simulator {
namespace {

class Order {
  public:
    uint32_t now = first_time;
    uint32_t launch_begin = 0, block_begin = 0;
    uint32_t shared_begin = 0;  // when the block began, or the first of its cluster

    void begin_launch() {
        asleep.clear();
        has_fences = false;
        begin_phase();
    }

    // What came before is ordered before what comes: a launch begins, or all blocks have met.
    void begin_phase() {
        launch_begin = ++now;
        flags.clear();
        locks.clear();
    }

    // `began`: when shared memory became the block's; 0: now. What the last block knew is kept if
    // it goes on later.
    void begin_block(uint32_t serial, unsigned threads, uint32_t began, bool keeps) {
        put_aside(keeps);
        run(serial);
        shared_begin = began ? began : now;
        if (!began) phases.clear();
        here = State();
        here.serial = serial;
        here.threads = threads;
        here.last_barrier = here.began = now;
        here.shared_began = shared_begin;
    }
    void resume_block(uint32_t serial) {
        if (here.serial != serial) {
            put_aside(true);
            here = std::move(asleep[serial]);
        }
        run(serial);
        shared_begin = here.shared_began;
    }

    void barrier() {
        here.last_barrier = ++now;
        if (!here.learnt.empty()) {
            ClockPointer all = joined(here.learnt, 0, here.threads);
            if (all) all = all->without(here.serial);
            std::fill(here.learnt.begin(), here.learnt.end(), all);
        }
        for (auto& fenced : here.fenced)
            if (!fenced.empty())
                std::fill(fenced.begin(), fenced.end(), joined(fenced, 0, here.threads));
        here.held.for_each([&](Held& it) {
            for (const Reach reach : {OwnBlock, Everybody}) it.fence(reach, now);
        });
    }

    // `lanes` of a warp that has `all` have met.
    void meeting(unsigned warp, uint32_t lanes, uint32_t all) {
        now++;
        const unsigned first = warp * warp_size;
        if (lanes == all) {
            here.last_meeting[warp] = now;
            share(here.learnt, first, lanes);
        } else {
            Clock::Part met{here.serial, here.last_barrier, {}};
            for (uint32_t rest = lanes; rest;) {
                const unsigned begin = __builtin_ctz(rest);
                const unsigned count =
                    ~(rest >> begin) ? __builtin_ctz(~(rest >> begin)) : warp_size;
                met.some.push_back({first + begin, first + begin + count, now});
                rest &= begin + count < warp_size ? ~0u << (begin + count) : 0;
            }
            make(here.learnt);
            here.learnt[first + __builtin_ctz(lanes)] =
                Clock::join(here.learnt[first + __builtin_ctz(lanes)],
                            std::make_shared<const Clock>(std::move(met)));
            share(here.learnt, first, lanes);
        }
        for (auto& fenced : here.fenced) share(fenced, first, lanes);
    }

    // All threads of so many warps have met.
    void meeting_of_warps(unsigned first, unsigned count) {
        now++;
        make(here.learnt);
        const unsigned begin = first * warp_size;
        const unsigned end = std::min(here.threads, begin + count * warp_size);
        const auto all = Clock::join(joined(here.learnt, begin, end),
                                     std::make_shared<const Clock>(Clock::Part{
                                         here.serial, here.last_barrier, {{begin, end, now}}}));
        std::fill(here.learnt.begin() + begin, here.learnt.begin() + end, all);
        std::fill_n(here.last_meeting + first, count, now);
        for (auto& fenced : here.fenced)
            if (!fenced.empty())
                std::fill(fenced.begin() + begin, fenced.begin() + end, joined(fenced, begin, end));
    }

    // A thread gives all that it has done and knows of to a phase of a barrier in memory; and takes
    // what was given to the phases that have ended.
    void arrive(uintptr_t barrier, unsigned thread, bool is_last) {
        Phase& phase = phases[barrier];
        phase.coming = Clock::join(phase.coming, known_to(thread));
        if (is_last) phase.ended = phase.coming;
    }
    void pass(uintptr_t barrier, unsigned thread) {
        const auto phase = phases.find(barrier);
        if (phase != phases.end()) learn(thread, phase->second.ended);
    }

    // From now on the thread's strong stores and atomics give away what it knows now: to its block,
    // or to all.
    void fence(unsigned thread, Scope scope) {
        ClockPointer known = known_to(thread);
        has_fences = true;
        here.held.for_each_of(thread, [&](Held& it) {
            it.fence(OwnBlock, now);
            if (scope != Scope::Block) it.fence(Everybody, now);
        });
        make(here.fenced[OwnBlock]);
        if (scope != Scope::Block) {
            make(here.fenced[Everybody]);
            here.fenced[Everybody][thread] = known;
        }
        here.fenced[OwnBlock][thread] = std::move(known);
    }
    bool has_fenced(unsigned thread) const {
        return !here.fenced[OwnBlock].empty() && here.fenced[OwnBlock][thread];
    }

    // Whether a strong access has anything to give, or to take from this address.
    bool is_synchronising(uintptr_t address, unsigned thread) const {
        return has_fenced(thread) || (!flags.empty() && flags.count(address & ~uintptr_t(3)));
    }
    // A strong access takes what those have given whose value it reads, and gives away what was
    // done before a fence. An atomic hands on what it has found; a store puts its own in its place.
    // acquires: as if a fence followed.
    void synchronise(uintptr_t address, unsigned thread, bool takes, bool gives, Scope scope,
                     const Change& change, bool acquires) {
        const uintptr_t word = address & ~uintptr_t(3);
        const bool hands_on = takes;
        if (follow_lock(address, thread, scope, change, acquires)) takes = false;
        if (const auto found = flags.find(word); takes && found != flags.end()) {
            const Flag& flag = found->second;
            learn(thread, flag.to_all);
            learn(thread, flag.of(here.serial));
        }
        if (!gives) return;
        Flag& flag = flags[word];
        if (!hands_on) flag = {};
        if (!has_fenced(thread)) return;
        const auto give = [&](Reach reach, ClockPointer& to) {
            if (!here.fenced[reach].empty()) to = Clock::join(to, here.fenced[reach][thread]);
        };
        give(OwnBlock, flag.to(here.serial));
        if (scope != Scope::Block) give(Everybody, flag.to_all);
        now++;
    }

    bool is_of_running_block(uint32_t time) const {
        return time >= block_begin || (time >= here.began && block_at(time) == here.serial);
    }
    bool is_before_barrier(uint32_t time) const {
        return time < here.last_barrier && is_of_running_block(time);
    }

    // Whether a touch of this launch, or of this block where the memory is, is no race.
    bool is_ordered(const Touch& before, unsigned thread) const {
        const bool is_own = is_of_running_block(before.time);
        if (is_own) {
            if (before.thread == thread || before.time < here.last_barrier) return true;
            const unsigned warp = thread / warp_size;
            if (before.thread / warp_size == warp && before.time < here.last_meeting[warp])
                return true;
        }
        if (here.learnt.empty() || !here.learnt[thread]) return false;
        return here.learnt[thread]->knows(
            is_own ? here.serial : block_at(before.time), before.thread, before.time);
    }

    // Whether a lock keeps a touch apart from what the thread does now. If that reads what the
    // other has written, it comes after it.
    bool is_kept_apart(const Touch& before, unsigned thread, bool reads_it) {
        for (const unsigned holder : here.held.holders)
            for (const Held& held : here.held.of(holder, here.threads)) {
                if (!held.is_lock || !is_known(held, holder, thread) ||
                    fault_of(held, before) != LockFault::None)
                    continue;
                if (reads_it)
                    for (const ClockPointer& clock : held.before) learn(thread, clock);
                return true;
            }
        return false;
    }
    // Why none does, if one of the two threads holds one.
    LockFault fault_of_lock(const Touch& before, unsigned thread) {
        LockFault fault = LockFault::None;
        for (const unsigned holder : here.held.holders)
            for (const Held& held : here.held.of(holder, here.threads))
                if (held.is_lock && is_known(held, holder, thread)) fault = fault_of(held, before);
        if (fault != LockFault::None) return fault;
        const uint32_t serial = serial_at(before.time);
        for (const auto& [word, lock] : locks)
            if (lock.is_regular && lock.at(before.time, serial)) return LockFault::OneSide;
        return LockFault::None;
    }
    // A volatile access is made, perhaps while the thread holds a lock. And those of the last
    // section that has ended.
    void note_site(unsigned thread, unsigned site) {
        here.held.for_each_of(thread, [&](Held& it) {
            if (std::find(it.sites.begin(), it.sites.end(), site) == it.sites.end())
                it.sites.push_back(site);
        });
    }
    // Follows words that may be locks. True: what was given away with this one the thread does not
    // learn by that.
    bool follow_lock(uintptr_t address, unsigned thread, Scope scope, const Change& change,
                     bool acquires = false) {
        const uintptr_t word = address & ~uintptr_t(3);
        has_ended_section = false;
        if (change.how == Change::None) return false;
        const auto found = locks.find(word);
        Lock* const lock = found == locks.end() ? nullptr : &found->second;
        if (!change.is_one()) return lock && lock->is_regular && change.how == Change::Exchange;
        if (here.held.empty() && !lock && change.how != Change::Exchange) return false;
        std::vector<Held>& mine = here.held.of(thread, here.threads);
        const auto own =
            std::find_if(mine.begin(), mine.end(), [&](const Held& it) { return it.word == word; });
        if (own != mine.end()) {
            const bool gives_back = change.after == own->free;
            if (gives_back)
                end_section(*own, thread, scope);
            else if (lock)
                lock->is_regular = false;
            const bool is_lock = gives_back && locks.at(word).is_regular;
            if (!is_lock)
                for (const ClockPointer& clock : own->before) learn(thread, clock);
            here.held.forget(thread, word);
            return is_lock;
        }
        if (change.how != Change::Exchange) {
            if (lock) lock->is_regular = false;
            return false;
        }
        if (lock && lock->free != change.before) lock->is_regular = false;
        Held taken{word, change.before, ++now};
        taken.is_lock = lock && lock->is_regular;
        if (acquires) {
            taken.fence(OwnBlock, now);
            if (scope != Scope::Block) taken.fence(Everybody, now);
        }
        if (const auto flag = flags.find(word); taken.is_lock && flag != flags.end()) {
            taken.before[Everybody] = flag->second.to_all;
            taken.before[OwnBlock] = flag->second.of(here.serial);
        }
        if (mine.size() == HeldLocks::most) here.held.forget(thread, mine.front().word);
        if (taken.is_lock) here.held.note_holder(thread);
        mine.push_back(std::move(taken));
        return mine.back().is_lock;
    }
    bool has_ended_section = false;
    std::vector<unsigned> sites_of_section;
    bool has_fences = false;  // in this launch so far

    // All that a thread has done and knows of now; and whether that covers a touch.
    ClockPointer clock_of(unsigned thread) { return known_to(thread); }
    bool covers(const Clock& clock, uint32_t time, unsigned thread) const {
        const bool is_own = is_of_running_block(time);
        return clock.knows(is_own ? here.serial : block_at(time), thread, time);
    }

    // What is_ordered says without clocks, for what touches memory from `begin` on.
    Known known_to_warp(unsigned warp, uint32_t begin) const {
        return {begin, block_begin, here.last_barrier, here.last_meeting[warp]};
    }

    // The serial number of the block that ran at a time.
    uint32_t block_at(uint32_t time) const {
        return std::upper_bound(
                   blocks.begin(), blocks.end(), time,
                   [](uint32_t t, const Running& running) { return t < running.begin; })[-1]
            .serial;
    }

  private:
    using Clocks = std::vector<ClockPointer>;  // by thread; empty until one of them has a clock

    struct Running {
        uint32_t begin, serial;
    };
    // What the threads of a block know.
    struct State {
        uint32_t serial = 0, threads = 0, began = 0, shared_began = 0;
        uint32_t last_barrier = 0;
        uint32_t last_meeting[max_threads / warp_size] = {};  // of all lanes of a warp
        Clocks learnt;
        Clocks fenced[2];  // of which each thread may give away, by Reach
        HeldLocks held;
    };
    // Of a barrier in memory: what was given to the phase under way, and to those that have ended.
    struct Phase {
        ClockPointer coming, ended;
    };
    // What has been given away with a word: to everybody, and by a block to its own threads.
    struct Flag {
        static constexpr size_t most = 16;  // blocks
        ClockPointer to_all;
        std::vector<std::pair<uint32_t, ClockPointer>> own;

        ClockPointer& to(uint32_t serial) {
            for (auto& [block, clock] : own)
                if (block == serial) return clock;
            if (own.size() == most) own.erase(own.begin());
            return own.emplace_back(serial, nullptr).second;
        }
        ClockPointer of(uint32_t serial) const {
            for (const auto& [block, clock] : own)
                if (block == serial) return clock;
            return nullptr;
        }
    };

    void run(uint32_t serial) {
        block_begin = ++now;
        blocks.push_back({now, serial});
    }
    void put_aside(bool keeps) {
        if (keeps && here.serial) asleep[here.serial] = std::move(here);
    }

    void make(Clocks& clocks) {
        if (clocks.empty()) clocks.resize(here.threads);
    }

    // What threads know together.
    static ClockPointer joined(const Clocks& clocks, unsigned begin, unsigned end) {
        Clocks different;
        for (unsigned thread = begin; thread < end; thread++)
            if (const ClockPointer& clock = clocks[thread];
                clock && (different.empty() || different.back() != clock))
                different.push_back(clock);
        return Clock::join(different.data(), different.size());
    }
    // Each of these lanes knows what one of them knows.
    void share(Clocks& clocks, unsigned first, uint32_t lanes) {
        if (clocks.empty()) return;
        const ClockPointer& one = clocks[first + __builtin_ctz(lanes)];
        bool same = true;
        for_each_of(lanes, [&](unsigned lane) { same &= clocks[first + lane] == one; });
        if (same) return;
        Clocks different;
        for_each_of(lanes, [&](unsigned lane) {
            if (clocks[first + lane]) different.push_back(clocks[first + lane]);
        });
        const ClockPointer all = Clock::join(different.data(), different.size());
        for_each_of(lanes, [&](unsigned lane) { clocks[first + lane] = all; });
    }

    void learn(unsigned thread, const ClockPointer& clock) {
        if (!clock) return;
        make(here.learnt);
        if (here.learnt[thread] == clock) return;
        here.learnt[thread] = Clock::join(here.learnt[thread], clock);
        now++;
    }

    // All that a thread has done and knows of.
    ClockPointer known_to(unsigned thread) {
        const unsigned warp = thread / warp_size, first = warp * warp_size;
        const uint32_t met = here.last_meeting[warp], until = ++now;
        Clock::Part own{here.serial, here.last_barrier, {}};
        if (met > here.last_barrier && thread > first) own.some.push_back({first, thread, met});
        own.some.push_back({thread, thread + 1, until});
        if (met > here.last_barrier && thread + 1 < first + warp_size)
            own.some.push_back({thread + 1, first + warp_size, met});
        auto known = std::make_shared<const Clock>(std::move(own));
        return here.learnt.empty() ? known : Clock::join(known, here.learnt[thread]);
    }

    uint32_t serial_at(uint32_t time) const {
        return is_of_running_block(time) ? here.serial : block_at(time);
    }
    // Whether a thread knows that another one has taken a lock.
    bool is_known(const Held& held, unsigned holder, unsigned thread) const {
        return holder == thread ||
               is_ordered(Touch(held.begin, holder, 0, Strength::Plain), thread);
    }
    LockFault fault_of(const Held& held, const Touch& before) const;

    void end_section(Held& own, unsigned thread, Scope scope);

    State here;                                  // of the running block
    std::unordered_map<uint32_t, State> asleep;  // of those that go on later
    std::vector<Running> blocks;
    std::unordered_map<uintptr_t, Phase> phases;
    std::unordered_map<uintptr_t, Flag> flags;
    std::unordered_map<uintptr_t, Lock> locks;
};

}  // namespace
}  // namespace simulator
