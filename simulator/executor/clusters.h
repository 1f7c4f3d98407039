// The blocks of a cluster. Each has an operating-system thread of its own, on which it sleeps while
// all its threads wait for other blocks: at the cluster's barrier, or for what those are to write.
//
// The same threads run one cluster after another, each always the block of its rank. What is
// instrumented runs one block at a time: a block that waits hands its turn to the next.
#pragma once
#include <sched.h>
#include <algorithm>
#include <condition_variable>
#include <deque>
#include <mutex>
#include <vector>
#include "../include/simulator/cluster.h"
#include "worker.h"

namespace simulator {
namespace {

class Cluster {
  public:
    enum class Outcome { Changed, Deadlock, GivenUp };

    std::vector<Block*> blocks;
    std::atomic<uint64_t> next;  // cluster to begin, or to be canceled
    uint64_t number;             // of the one that runs

    // A launch of so many clusters.
    void begin(const Launch& to_run, uint64_t clusters) {
        launch = &to_run;
        count = clusters;
        next = 0;
        const dim3& extent = launch->cluster;
        blocks.assign(size_t(extent.x) * extent.y * extent.z, nullptr);
        if (members.size() < blocks.size()) members.resize(blocks.size());
        come = 0;
        given_up = false;
    }

    // The next cluster begins when all have come, who may still have looked at the shared memory of
    // the one before. False if none is to begin any more.
    bool gather(unsigned rank, Block& block) {
        std::unique_lock<std::mutex> lock(mutex);
        blocks[rank] = &block;
        const uint64_t mine = clusters_begun;
        if (++come == blocks.size()) {
            come = 0;
            clusters_begun++;
            number = next++;
            alive = unsigned(blocks.size());
            arrived = asleep = turn = 0;
            for (Member& member : members) member.state = State::Running;
            notify_all();
        }
        members[rank].changed.wait(lock, [&] { return clusters_begun != mine || given_up; });
        if (number >= count) return false;
        take_turn(lock, rank);
        return !given_up;
    }

    // A block has ended: it counts as one that has come to every barrier.
    void leave(unsigned rank) {
        std::lock_guard<std::mutex> lock(mutex);
        members[rank].state = State::Ended;
        alive--;
        open_if_all_have_come();
        note_changes();
        pass_turn(rank);
    }

    // All living threads of a block have come to the barrier.
    void arrive() {
        std::lock_guard<std::mutex> lock(mutex);
        arrived++;
        open_if_all_have_come();
        note_changes();
    }
    uint64_t barriers_opened() const { return opened.load(std::memory_order_acquire); }

    // Something has changed for which any block may wait.
    void change() {
        std::lock_guard<std::mutex> lock(mutex);
        note_changes();
    }
    // For which that one may wait.
    void change_for(unsigned rank) {
        std::lock_guard<std::mutex> lock(mutex);
        note_change(members[rank]);
    }
    uint64_t changes_for(unsigned rank) const {
        return members[rank].changes.load(std::memory_order_acquire);
    }

    // All threads of the block wait for others to change something, of which it has seen so much.
    Outcome sleep(unsigned rank, uint64_t seen) {
        std::unique_lock<std::mutex> lock(mutex);
        Member& mine = members[rank];
        if (given_up) return Outcome::GivenUp;
        if (mine.changes != seen) return Outcome::Changed;
        mine.state = State::Asleep;
        if (++asleep == alive) return Outcome::Deadlock;
        pass_turn(rank);
        mine.changed.wait(lock, [&] { return mine.changes != seen || given_up; });
        if (given_up) return Outcome::GivenUp;
        take_turn(lock, rank);
        return given_up ? Outcome::GivenUp : Outcome::Changed;
    }

    // The threads of the block spin: others go first. False if the launch is to end.
    bool yield(unsigned rank) {
        std::unique_lock<std::mutex> lock(mutex);
        pass_turn(rank);
        take_turn(lock, rank);
        return !given_up;
    }

    void give_up() {
        std::lock_guard<std::mutex> lock(mutex);
        given_up = true;
        notify_all();
    }

  private:
    enum class State : uint8_t { Running, Asleep, Ended };
    struct Member {
        State state = State::Running;
        std::atomic<uint64_t> changes{0};  // for which it may wait, so far
        std::condition_variable changed;
    };

    void open_if_all_have_come() {
        if (arrived == 0 || arrived < alive) return;
        arrived = 0;
        opened++;
    }

    void note_changes() {
        for (size_t rank = 0; rank < blocks.size(); rank++) note_change(members[rank]);
    }
    void note_change(Member& member) {
        member.changes++;
        if (member.state != State::Asleep) return;
        member.state = State::Running;
        asleep--;
        member.changed.notify_one();
    }
    void notify_all() {
        for (Member& member : members) member.changed.notify_one();
    }

    void pass_turn(unsigned rank) {
        if (!launch->instrumented) return;
        for (size_t k = 1; k <= blocks.size(); k++) {
            turn = unsigned((rank + k) % blocks.size());
            if (members[turn].state == State::Running) break;
        }
        members[turn].changed.notify_one();
    }

    void take_turn(std::unique_lock<std::mutex>& lock, unsigned rank) {
        if (launch->instrumented)
            members[rank].changed.wait(lock, [&] { return turn == rank || given_up; });
    }

    std::mutex mutex;
    const Launch* launch = nullptr;
    std::deque<Member> members;  // at least as many as blocks: they stay from launch to launch
    uint64_t count, clusters_begun = 0;
    std::atomic<uint64_t> opened{0};
    unsigned come, alive, arrived, asleep, turn;
    bool given_up = false;
};

// All threads of the block wait. True if some can go on, for another block has changed something.
bool Worker::wait_in_cluster() {
    // What is instrumented has this in common with the blocks that run meanwhile, and the thread
    // that is about to be suspended has not taken it down yet.
    const uint3 thread = threadIdx;
    const auto go_on = [&] {
        changes_seen = team->changes_for(cluster_rank);
        if (launch->instrumented) {
            set_built_ins();
            threadIdx = thread;
            if (watched_by) watched_by->return_to_block(*this);
        }
        wake_parked();
        wake_pausing();
        return ready != 0;
    };
    if (watched_by) watched_by->leave_block(*this);
    bool is_spinning = false;
    for (unsigned w = 0; w * warp_size < size; w++) is_spinning |= warps[w].pausing != 0;
    if (is_spinning && !(launch->instrumented && is_stuck())) {
        if (!launch->instrumented) sched_yield();
        if (!team->yield(cluster_rank)) {
            tell_where(0);
            give_up({cudaErrorLaunchFailure, describe(*launch) + ": another block has failed"});
        }
        return go_on();
    }
    if (changes_seen != team->changes_for(cluster_rank) && go_on()) return true;
    for (;;) {
        switch (team->sleep(cluster_rank, changes_seen)) {
            case Cluster::Outcome::Changed:
                if (go_on()) return true;
                break;
            case Cluster::Outcome::GivenUp:
                tell_where(0);
                give_up({cudaErrorLaunchFailure, describe(*launch) + ": it was interrupted"});
            case Cluster::Outcome::Deadlock: {
                std::string message;
                for (Block* block : team->blocks) {
                    const auto& other = static_cast<Worker&>(*block);
                    if (other.running && other.alive)
                        message += (message.empty() ? "" : "\n") +
                                   static_cast<Worker&>(*block).describe_deadlock();
                }
                give_up({cudaErrorLaunchFailure, message});
            }
        }
    }
}

// A thread has come to the cluster's barrier, or returned.
void Worker::come_to_cluster() {
    if (in_cluster == 0 || in_cluster < alive) return;
    in_cluster = 0;
    for (unsigned w = 0; w * warp_size < size; w++) warps[w].in_cluster = 0;
    team ? team->arrive() : void(opened_alone++);
    wake_parked();
}

uint64_t Worker::cluster_barriers() const { return team ? team->barriers_opened() : opened_alone; }

}  // namespace
uint64_t cluster_barriers(const Block& block) {
    return static_cast<const Worker&>(block).cluster_barriers();
}
namespace {

void Worker::leave_cluster_barrier(unsigned rank) {
    uint32_t& lanes = warps[rank / warp_size].in_cluster;
    if (lanes >> rank % warp_size & 1) {
        lanes &= ~(1u << rank % warp_size);
        in_cluster--;
    }
    if (alive) come_to_cluster();
}

}  // namespace

void cluster_arrive(const char* what, const char* file, int line) {
    Worker& self = *worker;
    if (!self.tracked) self.track(self.rank);
    uint32_t& lanes = self.warps[self.rank / warp_size].in_cluster;
    if (lanes >> self.rank % warp_size & 1)
        fail("the thread has come to this barrier before, and not waited", what, file, line);
    lanes |= 1u << self.rank % warp_size;
    self.in_cluster++;
    self.barriers_awaited[self.rank] = self.cluster_barriers();
    arrived(self.cluster, self.in_cluster == self.alive);
    self.come_to_cluster();
}

bool cluster_has_arrived() {
    const Worker& self = *worker;
    return self.cluster_barriers() != self.barriers_awaited[self.rank];
}

void tell_cluster() {
    if (worker->team) worker->team->change();
}

unsigned count_cluster(const Block& block) {
    const dim3& extent = block.cluster_extent;
    return extent.x * extent.y * extent.z;
}

uint32_t find_in_cluster(const Block& block, const char* p) {
    uint32_t address = no_shared;
    for (unsigned rank = 0, count = count_cluster(block); rank < count; rank++)
        if (find_in(*block.cluster[rank], p, address)) break;
    return address;
}

char* shared_pointer_in_cluster(const Block& block, uint64_t address) {
    const uint32_t rank = uint32_t(address) >> 24, offset = address & 0xffffff;
    const bool is_known = block.cluster && rank < count_cluster(block);
    if (is_known && is_in_window(*block.cluster[rank], offset))
        return shared_pointer_in(*block.cluster[rank], offset);
    // The low bits of a pointer, then.
    const uint32_t count = block.cluster ? count_cluster(block) : 1;
    for (uint32_t i = 0; address && i < count; i++) {
        const Block& of = block.cluster ? *block.cluster[i] : block;
        const auto from = [&](const char* begin) {
            return uint32_t(address) - uint32_t(reinterpret_cast<uintptr_t>(begin));
        };
        if (from(of.dynamic_shared) <= of.launch->shared)
            return of.dynamic_shared + from(of.dynamic_shared);
        if (from(of.static_begin) < size_t(of.static_end - of.static_begin))
            return const_cast<char*>(of.static_begin) + from(of.static_begin);
    }
    worker->fail(cudaErrorIllegalAddress,
                 text("thread %u: 0x%llx is no address of its shared memory", worker->rank,
                      (unsigned long long)address));
}

}  // namespace simulator

// As nvcc has it, for code that declares it itself.
extern "C" SIMULATOR_EXPORT uint32_t __nvvm_get_smem_pointer(void* pointer) {
    uint32_t address = simulator::no_shared;
    simulator::find_in(*simulator::worker, static_cast<const char*>(pointer), address);
    return address;
}
