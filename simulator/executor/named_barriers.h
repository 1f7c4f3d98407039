// Who comes to a block's named barriers. Each warp counts as 32 threads, also where a block ends
// within it.
#pragma once
#include "worker.h"

namespace simulator {

bool Block::come_to_named(unsigned rank, unsigned id, unsigned count, bool waits, bool vote) {
    auto& self = static_cast<Worker&>(*this);
    NamedBarrier& barrier = named[id];
    Warp& warp = warps[rank / warp_size];
    const unsigned lane = rank % warp_size;
    if (barrier.arrived == 0) {
        barrier.expected = count;
        barrier.votes = barrier.all_votes = 0;
    }
    if (barrier.expected != count) self.refuse_count(rank, id, count);
    barrier.votes += vote;
    barrier.all_votes++;
    barrier.arrived++;
    named_in_use |= 1u << id;
    barrier.come[rank / warp_size] |= 1u << lane;
    const bool opens = self.is_complete(barrier);
    if (self.watched_by) self.watched_by->arrived(uintptr_t(&barrier), opens);
    if (waits) {
        warp.named |= 1u << lane;
        warp.key[lane] = id;
    }
    if (!opens) return waits;
    self.open_named(id);
    warp.ready &= ~(1u << lane);
    return false;
}

// Not so many as others, of which one is named.
void Worker::refuse_count(unsigned rank, unsigned id, unsigned count) {
    std::string others = "others";
    for (unsigned w = 0; w * warp_size < size; w++)
        if (const uint32_t come = named[id].come[w]) {
            const Thread& other = threads[w * warp_size + __builtin_ctz(come)];
            others = text("%s:%d: others", other.file, other.line);
        }
    fail(cudaErrorLaunchFailure,
         text("%s:%d: thread %u expects %u threads at barrier %u, and %s %u", threads[rank].file,
              threads[rank].line, rank, count, id, others.c_str(), named[id].expected));
}

// Of a warp that has come, threads count that never will: they have returned, or the block ends
// within the warp.
bool Worker::is_complete(const NamedBarrier& barrier) const {
    if (!barrier.expected) return barrier.arrived >= alive;
    unsigned arrived = barrier.arrived;
    for (unsigned w = 0; w * warp_size < size; w++)
        if (const uint32_t come = barrier.come[w])
            arrived += warp_size - __builtin_popcount(come | warps[w].alive);
    return arrived >= barrier.expected;
}

void Worker::open_named(unsigned id) {
    NamedBarrier& barrier = named[id];
    barrier.result = barrier.votes;
    barrier.all_result = barrier.all_votes;
    barrier.arrived = 0;
    named_in_use &= ~(1u << id);
    memset(barrier.come, 0, sizeof barrier.come);
    for (unsigned w = 0; w * warp_size < size; w++) {
        Warp& warp = warps[w];
        uint32_t those = 0;
        for_each_lane(
            warp.named, [&](unsigned lane) { those |= uint32_t(warp.key[lane] == id) << lane; });
        warp.named &= ~those;
        set_ready(w, those);
    }
}

}  // namespace simulator
