// What goes wrong with mbarriers: threads that use one before they may, and bytes that were
// announced in vain, or not at all.
#pragma once
#include "../include/simulator/mbarrier.h"
#include "recorder.h"

namespace simulator {
namespace {

void Asynchronous::mbarrier_init(const uint64_t* barrier, uint32_t count, const char* file,
                                 int line) {
    if (stepper)
        stepper->mbarrier_changes(barrier, count, 0, 0, false, "mbarrier.init", file, line);
    recorder.inspect_rest(recorder.block->rank, 0);
    const Site& init = site_of("mbarrier.init", file, line);
    if (const auto found = mbarriers.find(barrier); found != mbarriers.end())
        if (const Mbarrier& before = found->second;
            before.of == recorder.block && before.block == recorder.serial &&
            state_of(barrier).word)  // mbarrier.inval leaves 0
            say("mbarrier in use",
                text("thread %u has initialised it already, which CUDA leaves undefined",
                     before.thread),
                init, before.init, "mbarrier.init", before.thread);
    Mbarrier it{};
    it.count = count;
    it.block = recorder.serial;
    it.time = recorder.order.now++;
    it.thread = recorder.block->rank;
    it.of = recorder.block;
    it.cluster_barriers = simulator::cluster_barriers(*recorder.block);
    it.init = &init;
    mbarriers[barrier] = std::move(it);
}

// Whether the running thread may use it already.
void Asynchronous::visible(const uint64_t* barrier, const Site& user) {
    const auto found = mbarriers.find(barrier);
    if (found == mbarriers.end()) return;
    const Mbarrier& it = found->second;
    const unsigned thread = recorder.block->rank;
    std::string reason;
    if (it.of != recorder.block) {
        if (simulator::cluster_barriers(*recorder.block) != it.cluster_barriers) return;
        reason =
            "another block of the cluster has initialised it, and the cluster's barrier has not "
            "been passed since";
    } else {
        if (it.block != recorder.serial || it.thread == thread ||
            it.time < recorder.order.block_begin ||
            recorder.order.is_ordered(Touch(it.time, it.thread, 0, Strength::Plain), thread))
            return;
        reason = text("thread %u has initialised it, and no barrier has followed", it.thread);
    }
    say("mbarrier not visible", reason, user, it.init, "mbarrier.init", it.thread);
}

void Asynchronous::mbarrier_change(const uint64_t* barrier, int64_t bytes, uint32_t arriving,
                                   bool has_ended, const char* what, const char* file, int line) {
    if (stepper)
        stepper->mbarrier_changes(barrier, 0, bytes, arriving, has_ended, what, file, line);
    const auto found = mbarriers.find(barrier);
    if (found == mbarriers.end()) return;
    Mbarrier& it = found->second;
    if (has_ended) {
        if (!it.coming.empty())
            say("expect_tx",
                text("the phase has ended with %zu of its copies still to come: %llu bytes were "
                     "announced",
                     it.coming.size(), (unsigned long long)it.announced),
                it.expect ? *it.expect : *it.init, it.coming.begin()->second, "copy",
                it.coming.begin()->second->issuer);
        it.announced = 0;
        it.ended++;
        it.visits[it.ended % 2].clear();
        it.given_ended = it.given;
        return;
    }
    if (bytes < 0) return;  // of a copy
    const Site& user = site_of(what, file, line);
    visible(barrier, user);
    if (arriving) visit(it, &user);
    if (bytes > 0) {
        it.expect = &user;
        it.announced += bytes;
    }
}

void Asynchronous::visit(Mbarrier& barrier, const Site* site) {
    recorder.inspect_rest(recorder.block->rank, 0);
    barrier.visits[barrier.ended % 2].push_back({recorder.order.now, recorder.block->rank, site});
}

void Asynchronous::passed(const uint64_t* barrier) {
    const auto found = mbarriers.find(barrier);
    if (found == mbarriers.end()) return;
    Mine& it = mine();
    visit(found->second, it.waited_at == barrier ? it.wait : nullptr);
    if (!found->second.given_ended) return;
    it.heard = Clock::join(it.heard, found->second.given_ended);
    it.heard_at = recorder.order.now;
}

// All that the running thread knows to have happened.
ClockPointer Asynchronous::clock() {
    Mine& it = mine();
    if (!it.clock || it.clock_at != recorder.order.now) {
        recorder.inspect_rest(recorder.block->rank, 0);
        it.clock = Clock::join(recorder.order.clock_of(recorder.block->rank), it.heard);
        it.clock_at = recorder.order.now;
    }
    return it.clock;
}

// Whether that is so of what a thread has done, as far as the running thread knows: by itself, or
// by what it or a thread before it has heard with copies.
bool Asynchronous::has_happened(uint32_t time, unsigned by) {
    const unsigned thread = recorder.block->rank;
    const auto is_ordered = [&](uint32_t time, unsigned by) {
        return recorder.order.is_ordered(Touch(time, by, 0, Strength::Plain), thread);
    };
    if (is_ordered(time, by)) return true;
    for (const auto& [rank, it] : of_block().threads)
        if (it.heard && recorder.order.covers(*it.heard, time, by) &&
            (rank == thread || is_ordered(it.heard_at, rank)))
            return true;
    return false;
}

// Phases have two parities: while the phase before the one that is waited for may still go on, a
// wait may find that the one before that has ended. The thread has to know better, by what it has
// done itself or by what comes before it: an arrival or a wait since that phase.
void Asynchronous::may_be_early(const Mbarrier& barrier, const Site& wait) {
    const Mbarrier::Visit* other = nullptr;
    for (const auto& visits : barrier.visits)
        for (const Mbarrier::Visit& it : visits) {
            if (has_happened(it.time, it.thread)) return;
            if (it.site && (!other || it.site == &wait)) other = &it;
        }
    const unsigned long long awaited = barrier.ended - 1;
    say("wrong parity",
        text("it waits for phase %llu of this mbarrier by parity %llu, and nothing before it says "
             "that phase %llu has ended: until then it returns at once, for %s. Wait for every "
             "phase, or after a thread that has",
             awaited, awaited % 2, awaited - 1,
             awaited == 1 ? "a new mbarrier is past that parity"
                          : text("phase %llu has that parity, too", awaited - 2).c_str()),
        wait, other ? other->site : nullptr, "arrival or wait", other ? other->thread : 0);
}

void Asynchronous::mbarrier_wait(const uint64_t* barrier, bool had_to_wait, const char* file,
                                 int line) {
    Mine& it = mine();
    const Site& at = site_of("mbarrier.try_wait", file, line);
    it.waited_at = barrier;
    if (const auto found = mbarriers.find(barrier); found != mbarriers.end()) {
        const uint64_t ended = found->second.ended;
        const auto [seen, is_first] = it.seen.insert({barrier, ended});
        it.was_stale = !had_to_wait && (ended == 0 || (!is_first && seen->second == ended));
        if (ended > 1 && (is_first || seen->second + 1 < ended)) may_be_early(found->second, at);
        seen->second = ended;
    }
    it.works_before = first_work + works.size();
    it.wait = &at;
    std::set<const uint64_t*> stages;
    for (const Work& work : works)
        if (work.is_open && work.barrier && work.block == recorder.serial)
            stages.insert(work.barrier);
    note_wait(at, stages.size() + had_to_wait);
    visible(barrier, at);
}

// Where a block waits for ever: which bytes were announced and do not come, or come unannounced.
bool Asynchronous::explain(const Error& error) {
    if (error.message.find("wait for others") == std::string::npos) return false;
    std::set<const uint64_t*> told;
    for (const auto& [block, of_block] : blocks) {
        for (const auto& [rank, mine] : of_block.threads) {
            const auto found = mbarriers.find(mine.awaited);
            if (found == mbarriers.end()) continue;
            const MbarrierState state = state_of(mine.awaited);
            if (state.awaited() || state.bytes() == 0 || !told.insert(mine.awaited).second)
                continue;
            const Mbarrier& it = found->second;
            const long long bytes = state.bytes();
            const Thread& thread = block->threads[rank];
            say("expect_tx",
                bytes > 0 ? text("%lld of the %llu bytes that were announced never come", bytes,
                                 (unsigned long long)it.announced)
                          : text("%lld bytes more have come than the %llu that were announced",
                                 -bytes, (unsigned long long)it.announced),
                it.expect ? *it.expect : *it.init,
                &site_of("mbarrier.try_wait", thread.file, thread.line, Kind::Read, true, nullptr),
                "wait", rank);
        }
    }
    return !told.empty();
}

// What kind of finding it is that a failure's message tells of.
const char* kind_of(const std::string& message) {
    const auto has = [&](const char* words) { return message.find(words) != std::string::npos; };
    if (has("integer division")) return "integer division";
    if (has("a call of")) return "wild call";
    if (has("mbarrier has not been initialised")) return "mbarrier not visible";
    if (has("arrive, and the phase awaits")) return "arrival count";
    if (has(" threads at barrier ") || has("bar.sync: ") || has("bar.arrive: ") || has("bar.red: "))
        return "named barrier";
    if (has("setmaxnreg")) return "setmaxnreg";
    if (has("scale factor") || has("scale_vec")) return "scale factors";
    if (has("tcgen05.")) return "tensor memory";
    if (has("clusterlaunchcontrol.")) return "cluster launch control";
    if (has("tensor map")) return "tensor map";
    if (has("multiple of") || has("multiples of")) return "misaligned";
    return "failed";
}

}  // namespace
}  // namespace simulator
