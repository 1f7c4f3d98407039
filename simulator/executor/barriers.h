// The first and the last step of a thread, and the barriers that its last step may open.
#pragma once
#include "worker.h"

namespace simulator {

// Those before `rank` have returned, for only now can a thread be left behind.
void Block::track(unsigned rank) {
    tracked = true;
    alive = size - (next - 1);
    arrived = votes = in_cluster = 0;
    ready = 0;
    for (; named_in_use; named_in_use &= named_in_use - 1) named[__builtin_ctz(named_in_use)] = {};
    for (unsigned w = 0, first = 0; first < size; w++, first += warp_size) {
        Warp& warp = warps[w];
        warp.alive = size - first >= warp_size ? ~0u : (1u << (size - first)) - 1;
        if (first + warp_size <= rank)
            warp.alive = 0;
        else if (first < rank)
            warp.alive &= ~0u << (rank - first);
        warp.ready = warp.barrier = warp.exchange = warp.convergence = warp.pausing = 0;
        warp.tile = warp.parked = warp.named = warp.in_cluster = warp.stepping = 0;
    }
    if (!order) return;
    for (unsigned w = 0; w * warp_size < size; w++) warps[w].alive = 0;
    for (unsigned i = next - 1; i < size; i++)
        warps[order[i] / warp_size].alive |= 1u << order[i] % warp_size;
}

// A ready thread; else one that has not been started; else one that waits for the others to have
// nothing to do.
Context* Block::next_fiber() {
    auto& self = static_cast<Worker&>(*this);
    for (;;) {
        for (; ready; ready &= ready - 1)
            if (const unsigned warp = __builtin_ctz(ready); warps[warp].ready)
                return simulator::next_fiber(*this, warp * warp_size);
        if (next < size) return self.fresh();
        if (alive == 0) return &self.native;
        if (self.converge() || self.wake_stepping() || (self.team && self.wait_in_cluster()))
            continue;
        if (self.is_stuck() || !self.wake_pausing()) {
            self.report_deadlock();
            return &self.native;
        }
        if (gathering.takes_turns() || (self.waits_alone() && begin_turns(self)))
            self.yield_in_grid();
    }
}

void Block::open_barrier() {
    auto& self = static_cast<Worker&>(*this);
    if (self.watched_by) self.watched_by->barrier(*this);
    if (grid_steps) self.step_grid();
    barrier_alive = alive;
    barrier_votes = votes;
    arrived = votes = 0;
    for (unsigned w = 0; w * warp_size < size; w++)
        self.set_ready(w, std::exchange(warps[w].barrier, 0));
}

Context* Block::complete_exchange(unsigned rank) {
    auto& self = static_cast<Worker&>(*this);
    Warp& warp = warps[rank / warp_size];
    const unsigned lane = rank % warp_size;
    if (!self.try_exchange(rank / warp_size, warp.key[lane]))
        return simulator::next_fiber(*this, rank);
    warp.ready &= ~(1u << lane);
    return nullptr;
}

Context* Block::complete_tile(unsigned rank) {
    const unsigned w = rank / warp_size;
    if (!static_cast<Worker&>(*this).try_tile(w)) return simulator::next_fiber(*this, rank);
    warps[w].ready &= ~(1u << rank % warp_size);
    return nullptr;
}

void Block::wake_parked() {
    auto& self = static_cast<Worker&>(*this);
    for (unsigned w = 0; w * warp_size < size; w++)
        self.set_ready(w, std::exchange(warps[w].parked, 0));
}

void Block::fail_for_mask(unsigned rank, uint32_t mask) {
    const Thread& thread = threads[rank];
    static_cast<Worker&>(*this).fail(
        cudaErrorLaunchFailure,
        text("%s:%d: thread %u (lane %u) calls %s with mask 0x%08x, which does not name that lane",
             thread.file, thread.line, rank, rank % warp_size, thread.what, mask));
}

namespace {
SIMULATOR_INLINE bool start(Block& block) {
    if (block.next == block.size) return false;
    const unsigned rank = block.order ? block.order[block.next] : block.next;
    const dim3& extent = block.launch->block;
    block.next++;
    block.rank = rank;
    if (rank < extent.x)
        threadIdx = {rank, 0, 0};
    else
        threadIdx = {rank % extent.x, rank / extent.x % extent.y, rank / extent.x / extent.y};
    return true;
}

}  // namespace

bool start_thread(Block& block) { return start(block); }

bool next_thread(Block& block) {
    if (block.tracked) block.finish(block.rank);
    return start(block);
}

// Others may have waited for this thread alone.
void Block::finish(unsigned rank) {
    auto& self = static_cast<Worker&>(*this);
    Warp& warp = warps[rank / warp_size];
    warp.alive &= ~(1u << rank % warp_size);
    if (--alive == arrived && arrived) open_barrier();
    if (self.team || in_cluster) self.leave_cluster_barrier(rank);
    for (unsigned left = named_in_use; left; left &= left - 1)
        if (const unsigned id = __builtin_ctz(left); self.is_complete(named[id]))
            self.open_named(id);
    for (uint32_t waiting = warp.exchange; waiting; waiting &= warp.exchange & (waiting - 1))
        self.try_exchange(rank / warp_size, warp.key[__builtin_ctz(waiting)]);
    if (warp.tile) self.try_tile(rank / warp_size);
}

}  // namespace simulator
