// Launches of the pool whose blocks form clusters, and those that a watcher sees.
#pragma once
#include "pool.h"

namespace simulator {
namespace {

inline void Pool::run_clusters(const Launch& launch) {
    blocks = count_blocks(launch);
    next = 0;
    const dim3& of = launch.cluster;
    cluster.begin(launch, blocks / (uint64_t(of.x) * of.y * of.z));
    const Memory of_blocks{cluster.blocks.data(), cluster.blocks.size() * sizeof(Block*)};
    if (watcher) begin_watched(launch, *watcher, of_blocks);
    const size_t size = cluster.blocks.size();
    try {
        if (size > 1) call(for_clusters, size - 1, size - 1);
    } catch (const std::system_error&) {
        cluster.give_up();
        fail({cudaErrorCooperativeLaunchTooLarge,
              describe(launch) + text(": the system has no %zu threads for its blocks", size)});
    }
    work_in_cluster(launch);
    dismiss(for_clusters);
    if (watcher) failure = {};  // it is the watcher's to tell
}

inline void Pool::work_in_cluster(const Launch& launch) {
    Worker& self = this_worker();
    const unsigned rank = unsigned(next.fetch_add(1, std::memory_order_relaxed));
    const uint64_t size = cluster.blocks.size();
    if (rank >= size) return;
    bool is_known = &self == host;
    copies_of(self);
    self.team = &cluster;
    self.cluster_rank = rank;
    self.cluster_extent = launch.cluster;
    // Others may look for its shared memory before its threads start.
    self.launch = &launch;
    self.dynamic_shared = simulator_dynamic_shared;
    find_static_shared(self, guard_shared(launch));
    for (;;) {
        if (stopping.asked) cluster.give_up();
        if (!cluster.gather(rank, self)) break;
        const uint64_t n = cluster.number;
        canceled = 0;
        self.cluster = cluster.blocks.data();
        self.changes_seen = cluster.changes_for(rank);
        const uint64_t block = block_in_cluster(launch, n, rank);
        self.number = n * size + rank;
        if (watcher && !std::exchange(is_known, true))
            watcher->begin_thread(launch, {simulator_dynamic_shared, launch.shared},
                                  {{&self, sizeof self}, self.stacks.memory()});
        if (watcher) watcher->begin_block(self, block);
        if (!self.run_block(launch, index_of(launch, block), watcher)) {
            const bool is_first = fail(self.error);
            if (watcher && is_first) watcher->end_block(stopping.asked ? nullptr : &self.error);
            cluster.give_up();
            break;
        }
        if (watcher) watcher->end_block(nullptr);
        cluster.leave(rank);
    }
    self.team = nullptr;
    self.cluster = nullptr;
    self.cluster_rank = 0;
}

inline void Pool::run_watched(const Launch& launch, Watcher& watcher) {
    Worker& self = this_worker();
    begin_watched(launch, watcher);
    blocks = count_blocks(launch);
    const uint64_t repeated = watcher.blocks_to_repeat();
    const auto run = [&](uint64_t n) {
        const uint64_t block = watcher.block_in_order(n);
        self.number = n;
        return self.run_block(launch, index_of(launch, block), &watcher) && !stopping.asked;
    };
    next = 0;
    for (uint64_t n; (n = next++) < blocks;) {
        if (watcher.leaves_out(watcher.block_in_order(n))) continue;
        canceled = 0;
        watcher.begin_block(self, watcher.block_in_order(n));
        const bool ran = run(n) || stopping.asked;
        if (gathering.takes_turns()) return end_in_turns(launch, watcher, ran);
        if (stopping.asked) return void(watcher.end_block(nullptr));
        if (!ran && self.error.wanted.x) {  // to be launched in clusters
            failure = self.error;
            watcher.end_block(nullptr);
            return watcher.forget_launch();
        }
        if (!watcher.end_block(ran ? nullptr : &self.error)) return;
        if (n + 1 == repeated && !canceled) watcher.repeat(run);
        if (stopping.asked) return;
    }
}

inline void Pool::end_in_turns(const Launch& launch, Watcher& watcher, bool ran) {
    Worker& self = this_worker();
    if (ran) {
        watcher.end_block(nullptr);
        gathering.leave(self.number);
        work_together(launch);
    } else {
        const bool is_first = fail(self.error);
        if (is_first) watcher.end_block(stopping.asked ? nullptr : &self.error);
        gathering.give_up();
    }
    dismiss(for_blocks);
    failure = {};  // it is the watcher's to tell
}

}  // namespace
}  // namespace simulator
