// A worker runs one block at a time. Here is decided which of the block's threads goes on.
//
// A thread that must wait puts its lane into a set, and goes on with another thread's fiber
// (barrier.h, warp.h). When the last thread has come for which others wait, they move to the set of
// those that are ready. A block in which no thread is ready, none can be started, and some are
// alive is deadlocked: it is given up, and its stacks serve the next.
#pragma once
#include <pthread.h>
#include <string.h>
#include <exception>
#include <utility>
#include <vector>
#include "errors.h"
#include "exchanges.h"
#include "gathering.h"
#include "guarded_shared.h"
#include "shared_memory.h"
#include "stacks.h"
#include "watcher.h"

namespace simulator {
namespace {

class Cluster;
}  // namespace
struct BulkCopies;
namespace {
class Worker;
void forget_queued_copies(Block& block);
void finish_copies(Worker& block);
void forget_copies(Worker& block);
std::string describe_mbarrier(Worker& block, unsigned rank);
bool begin_turns(Worker& block);

class Worker : public Block {
  public:
    // Runs one block from beginning to end. False if it failed; then `error` says why.
    bool run_block(const Launch& launch, uint3 index, Watcher* watcher = nullptr);

    [[noreturn]] void fail(cudaError_t code, const std::string& message);
    [[noreturn]] void give_up(const Error& why);
    bool try_exchange(unsigned warp, uint64_t key);
    bool try_tile(unsigned warp);
    void step_grid();
    void yield_in_grid();
    void set_ready(unsigned warp, uint32_t lanes);
    bool converge();
    bool wake_pausing();
    bool wake_stepping();
    bool is_stuck();
    bool waits_alone() const;
    bool wait_in_cluster();
    void come_to_cluster();
    void leave_cluster_barrier(unsigned rank);
    uint64_t cluster_barriers() const;
    [[noreturn]] void refuse_count(unsigned rank, unsigned id, unsigned count);
    bool is_complete(const NamedBarrier& barrier) const;
    void open_named(unsigned id);
    void report_deadlock();
    std::string describe_deadlock();
    std::string describe_wait(unsigned rank);
    void tell_where(uintptr_t at);
    Context* fresh();

    const pthread_t thread = pthread_self();  // that it is of
    bool running = false;
    Watcher* watched_by = nullptr;
    size_t number = 0;                       // of the block, where blocks take turns
    uint64_t grid_round = 0;                 // for which it waits there
    Cluster* team = nullptr;                 // the blocks of its cluster
    uint64_t changes_seen = 0;               // of theirs
    BulkCopies* bulk_copies = nullptr;       // that are to be carried out; made once
    uint64_t none_canceled = 0;              // the block that has read that no cluster is left
    uint64_t opened_alone = 0;               // of its barriers, where the block is all of it
    uint64_t barriers_awaited[max_threads];  // of the cluster, by each thread
    // At the last round of waking those who pause; since when nobody has changed anything.
    unsigned alive_before = 0, rounds = 0, idle_rounds = 0;
    uint64_t changes_before = 0;
    Error error;
    Stacks stacks;

    Context native;  // the worker itself, while its block runs

  private:
    static void run_fiber();
    void set_built_ins();
    [[noreturn]] void leave(Context* next);

    Context starting;  // what fresh() has made
};

thread_local Worker* worker;

// The running thread, as a kernel knows it.
std::string describe_thread(const Worker& block) {
    const dim3 extent = block.launch->block;
    const unsigned rank = block.rank;
    return text("thread (%u, %u, %u)", rank % extent.x, rank / extent.x % extent.y,
                rank / extent.x / extent.y);
}

// ---- Fibers

bool Worker::run_block(const Launch& to_run, uint3 at, Watcher* watcher) {
    launch = &to_run;
    index = at;
    size = launch->block.x * launch->block.y * launch->block.z;
    next = 0;
    watched_by = watcher;
    order = watcher ? watcher->threads_in_order() : nullptr;
    tracked = false;
    first_static = no_shared;
    grid_steps = 0;
    alive_before = rounds = idle_rounds = 0;
    dynamic_shared = simulator_dynamic_shared;
    error.code = cudaSuccess;
    serial++;
    if (queues->in_use) forget_queued_copies(*this);
    if (launch->instrumented) set_built_ins();
    guard_shared(*launch);  // makes what is thread_local there: see _GPPS_THREAD_LOCAL
    const bool is_stepped = stepper && watcher && !is_repeating;
    if (is_stepped) stepper->begin_block(*this);
    running = true;  // not sooner: one that is stopped or faults goes on behind the switch
    switch_fiber(&native, fresh());
    if (is_stepped) stepper->end_block(*this);
    error.code == cudaSuccess ? finish_copies(*this) : forget_copies(*this);
    running = false;
    return error.code == cudaSuccess;
}

void Worker::set_built_ins() {
    current = this;
    blockIdx = index;
    blockDim = launch->block;
    gridDim = launch->grid;
}

Context* Worker::fresh() {
    starting = fresh_fiber(stacks.take(), run_fiber);
    return &starting;
}

// A fiber starts threads of the block until none is left to start.
void Worker::run_fiber() {
    Worker& self = *worker;
    try {
        self.launch->run_threads(self);
    } catch (const std::exception& exception) {
        self.fail(cudaErrorLaunchFailure, std::string("exception: ") + exception.what());
    } catch (...) {
        self.fail(cudaErrorLaunchFailure, "an exception of unknown type");
    }
    self.stacks.give_back(__builtin_frame_address(0));
    self.leave(self.tracked ? self.next_fiber() : &self.native);
}

void Worker::leave(Context* next) {
    Context never_resumed;
    switch_fiber(&never_resumed, next);
    __builtin_unreachable();
}

// Gives the block up: its stacks are taken from under its threads, and the worker goes on where it
// started the block.
void Worker::fail(cudaError_t code, const std::string& message) {
    give_up({code, text("%s, block (%u, %u, %u): %s", describe(*launch).c_str(), index.x, index.y,
                        index.z, message.c_str())});
}

void Worker::give_up(const Error& why) {
    error = why;
    stacks.reset();
    leave(&native);
}

}  // namespace
Block& running_block() { return *worker; }
void stop_block(const char* message) { worker->fail(cudaErrorIllegalAddress, message); }
void pause_thread(const char* what, const char* file, int line) { pause(what, file, line); }
void step_thread() {
    Block& block = *current;
    const unsigned rank = block.rank;
    note(block, rank, "a line", "", 0);
    block.warps[rank / warp_size].stepping |= 1u << rank % warp_size;
    suspend(block, rank, next_fiber(block, rank));
}
namespace {

// ---- Threads that can go on

void Worker::set_ready(unsigned warp, uint32_t lanes) {
    warps[warp].ready |= lanes;
    if (lanes) ready |= 1u << warp;
}

// No lane can move. Those of a warp that stand at the same __activemask are active together.
bool Worker::converge() {
    for (unsigned w = 0; w * warp_size < size; w++) {
        Warp& warp = warps[w];
        if (!warp.convergence) continue;
        const Thread* thread = &threads[w * warp_size];
        const Thread& first = thread[__builtin_ctz(warp.convergence)];
        uint32_t together = 0;
        for_each_lane(warp.convergence, [&](unsigned lane) {
            if (thread[lane].line == first.line && !strcmp(thread[lane].file, first.file))
                together |= 1u << lane;
        });
        for_each_lane(together, [&](unsigned lane) { warp.result[lane] = together; });
        warp.convergence &= ~together;
        set_ready(w, together);
        return true;
    }
    return false;
}

// All wait for others to go first, and have done so for so long that, where blocks run one after
// another, nobody comes any more; where they take turns, it takes less, if nobody has changed
// anything meanwhile. Elsewhere another block may still come to their aid.
bool Worker::is_stuck() {
    if (!watched_by) return false;
    if (alive != alive_before) {
        alive_before = alive;
        rounds = idle_rounds = 0;
        return false;
    }
    const uint64_t changes = watched_by->changes();
    idle_rounds = changes == changes_before ? idle_rounds + 1 : 0;
    changes_before = changes;
    const bool in_turns = gathering.takes_turns() && !launch->cooperative;
    return ++rounds > 1 << 16 || (in_turns && idle_rounds > 1 << 10);
}

// Its threads spin, and one of the blocks that are still to come may have to answer.
bool Worker::waits_alone() const {
    return watched_by && launch->instrumented && !team && !is_repeating && rounds == 1 << 6;
}

bool Worker::wake_pausing() {
    for (unsigned w = 0; w * warp_size < size; w++)
        set_ready(w, std::exchange(warps[w].pausing, 0));
    return ready != 0;
}

// The threads that have come to a line go on, all or some of them.
bool Worker::wake_stepping() {
    uint32_t any = 0;
    for (unsigned w = 0; w * warp_size < size; w++) any |= warps[w].stepping;
    if (!any) return false;
    stepper->end_round(*this);
    for (unsigned w = 0; w * warp_size < size; w++) {
        const uint32_t lanes = stepper->lanes_to_step(*this, w);
        warps[w].stepping &= ~lanes;
        set_ready(w, lanes | std::exchange(warps[w].pausing, 0));
    }
    return true;
}

// Whether what the lanes do together is the same for all.
bool is_one_instruction(const Warp& warp, uint32_t lanes) {
    const auto run_of = [&](unsigned lane) {
        return reinterpret_cast<const Meeting*>(warp.value[lane])->run;
    };
    const auto first = run_of(__builtin_ctz(lanes));
    bool same = true;
    for_each_lane(lanes, [&](unsigned lane) { same &= run_of(lane) == first; });
    return same;
}

// If all living lanes of the key's mask wait with this key, gives them their results and makes them
// ready.
bool Worker::try_exchange(unsigned w, uint64_t key) {
    Warp& warp = warps[w];
    const uint32_t lanes = uint32_t(key) & warp.alive;
    if ((warp.exchange & lanes) != lanes) return false;
    bool same = true;
    for_each_lane(lanes, [&](unsigned lane) { same &= warp.key[lane] == key; });
    if (!same || (Exchange(key >> 32) == Exchange::Meet && !is_one_instruction(warp, lanes)))
        return false;
    if (watched_by) watched_by->exchange(*this, w, lanes, Exchange(key >> 32));
    deliver(warp, lanes, Exchange(key >> 32));
    warp.exchange &= ~lanes;
    set_ready(w, lanes);
    return true;
}

// If the living threads of all warps of the tile that this warp is of wait for each other, gives
// each the value that it has asked for and makes them ready. A warp that has returned never comes.
bool Worker::try_tile(unsigned w) {
    const auto key_of = [&](unsigned warp, unsigned lane) { return warps[warp].key[lane]; };
    const unsigned threads = uint32_t(key_of(w, __builtin_ctz(warps[w].tile)));
    const unsigned count = threads / warp_size, first = w & ~(count - 1);
    if ((first + count) * warp_size > size) return false;
    for (unsigned v = first; v < first + count; v++) {
        if (!warps[v].alive || warps[v].tile != warps[v].alive) return false;
        bool same = true;
        for_each_lane(
            warps[v].tile, [&](unsigned lane) { same &= uint32_t(key_of(v, lane)) == threads; });
        if (!same) return false;
    }
    if (watched_by) watched_by->tile(*this, first, count);
    for (unsigned v = first; v < first + count; v++) {
        for_each_lane(warps[v].tile, [&](unsigned lane) {
            const unsigned source = key_of(v, lane) >> 32;
            const Warp& from = warps[first + source / warp_size];
            warps[v].result[lane] = from.value[source % warp_size];
        });
        set_ready(v, std::exchange(warps[v].tile, 0));
    }
    return true;
}

// ---- The grid

// All threads of the block have come to where it tells the others of the grid, or waits for them.
void Worker::step_grid() {
    const unsigned steps = std::exchange(grid_steps, 0);
    if (steps & GridArrive && gathering.arrive(grid_round) && watched_by) watched_by->grid();
    if (!(steps & GridWait)) return;
    unsigned some = rank;
    for (unsigned w = 0; w * warp_size < size; w++)
        if (warps[w].barrier) some = w * warp_size + __builtin_ctz(warps[w].barrier);
    // What is instrumented has these in common.
    const uint3 thread = threadIdx;
    const auto outcome = gathering.wait(number, grid_round, threads[some]);
    if (outcome == Gathering::Outcome::GivenUp) {
        tell_where(0);
        give_up({cudaErrorLaunchFailure, describe(*launch) + ": it was interrupted"});
    }
    if (outcome == Gathering::Outcome::Deadlock)
        give_up({cudaErrorLaunchFailure, gathering.describe_deadlock()});
    if (launch->instrumented) {
        set_built_ins();
        threadIdx = thread;
    }
    if (watched_by) watched_by->resume_block(*this);
}

// All threads of the block wait, and some of them spin. What is instrumented lets other blocks go
// first, for one of them may change what these wait for.
void Worker::yield_in_grid() {
    const uint3 thread = threadIdx;
    if (watched_by) watched_by->leave_block(*this);
    if (!gathering.yield(number)) {
        tell_where(0);
        give_up({cudaErrorLaunchFailure, describe(*launch) + ": another block has failed"});
    }
    set_built_ins();
    threadIdx = thread;
    if (watched_by) watched_by->return_to_block(*this);
}

}  // namespace
}  // namespace simulator
