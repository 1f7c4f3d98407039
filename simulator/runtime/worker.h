// A worker runs one block at a time. Here is decided which of the block's threads goes on.
#pragma once
#include "errors.h"
#include "stacks.h"
#include "warp.h"
#include <exception>
#include <string.h>
#include <vector>

namespace simulator {
namespace {

// "0-30, 64" from ranks that come in ascending order.
class Ranges {
  public:
    void add(unsigned rank) {
        if (count++ && rank == last + 1) {
            last = rank;
            return;
        }
        flush();
        first = last = rank;
    }

    std::string str() {
        flush();
        return written;
    }

    unsigned count = 0;

  private:
    void flush() {
        if (first > last)
            return;
        written += text(first == last ? "%s%u" : "%s%u-%u", written.empty() ? "" : ", ", first, last);
        first = 1, last = 0;
    }

    unsigned first = 1, last = 0;
    std::string written;
};

class Worker : public Block {
  public:
    // Runs one block from beginning to end. False if it failed; then `error` says why.
    bool run_block(const Launch& launch, uint3 index);

    void* next_stack();
    void track(unsigned rank);
    void open_barrier();
    bool try_exchange(unsigned warp, uint64_t key);
    void set_ready(unsigned warp, uint32_t lanes);
    void unready(unsigned rank);
    [[noreturn]] void leave(void* stack);
    [[noreturn]] void fail(cudaError_t code, const std::string& message);
    void fault(int signal, void* address, void* context);

    bool running = false;
    Error error;
    Stacks stacks;

  private:
    static void run_fiber();
    void* fresh();
    bool converge();
    bool wake_pausing();
    void report_deadlock();

    void* native_stack;
};

thread_local Worker* worker;

bool Worker::run_block(const Launch& to_run, uint3 at) {
    launch = &to_run;
    index = at;
    size = launch->block.x * launch->block.y * launch->block.z;
    next = 0;
    tracked = false;
    error.code = cudaSuccess;
    running = true;
    switch_stack(&native_stack, fresh());
    running = false;
    return error.code == cudaSuccess;
}

// Each fiber starts threads of the block until none is left to start.
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
    self.leave(self.tracked ? self.next_stack() : self.native_stack);
}

void Worker::leave(void* stack) {
    void* abandoned;
    switch_stack(&abandoned, stack);
    __builtin_unreachable();
}

void* Worker::fresh() {
    return fresh_stack(stacks.take(), run_fiber);
}

// From the moment a thread waits, the block keeps account of all its threads. Those before `rank` have
// returned, for only now can a thread be left behind.
void Worker::track(unsigned rank) {
    tracked = true;
    alive = size - rank;
    arrived = votes = 0;
    ready = 0;
    warp = 0;
    for (unsigned w = 0, first = 0; first < size; w++, first += warp_size) {
        Warp& it = warps[w];
        it.alive = size - first >= warp_size ? ~0u : (1u << (size - first)) - 1;
        if (first + warp_size <= rank)
            it.alive = 0;
        else if (first < rank)
            it.alive &= ~0u << (rank - first);
        it.ready = it.barrier = it.exchange = it.convergence = it.pausing = 0;
    }
}

void Worker::set_ready(unsigned w, uint32_t lanes) {
    warps[w].ready |= lanes;
    if (lanes)
        ready |= 1u << w;
}

// The thread goes on at once.
void Worker::unready(unsigned rank) {
    Warp& it = warps[rank / warp_size];
    it.ready &= ~(1u << rank % warp_size);
    if (!it.ready)
        ready &= ~(1u << rank / warp_size);
}

// Who goes on when the running thread cannot: a thread that is ready, of the warp that ran last if possible, for its
// stacks are still in the cache; else one that has not been started; else those who wait for nothing better to do.
void* Worker::next_stack() {
    for (;;) {
        if (ready) {
            if (!(ready >> warp & 1))
                warp = __builtin_ctz(ready);
            Warp& it = warps[warp];
            const unsigned lane = __builtin_ctz(it.ready);
            it.ready &= it.ready - 1;
            if (!it.ready)
                ready &= ~(1u << warp);
            return threads[warp * warp_size + lane].stack_pointer;
        }
        if (next < size)
            return fresh();
        if (alive == 0)
            return native_stack;
        if (!converge() && !wake_pausing()) {
            report_deadlock();
            stacks.reset();
            return native_stack;
        }
    }
}

// No lane can move: those that stand at the same __activemask are active together.
bool Worker::converge() {
    for (unsigned w = 0; w * warp_size < size; w++) {
        Warp& it = warps[w];
        if (!it.convergence)
            continue;
        const Thread& first = threads[w * warp_size + __builtin_ctz(it.convergence)];
        uint32_t together = 0;
        for_each_lane(it.convergence, [&](unsigned lane) {
            const Thread& thread = threads[w * warp_size + lane];
            if (thread.line == first.line && !strcmp(thread.file, first.file))
                together |= 1u << lane;
        });
        for_each_lane(together, [&](unsigned lane) { it.result[lane] = together; });
        it.convergence &= ~together;
        set_ready(w, together);
        return true;
    }
    return false;
}

bool Worker::wake_pausing() {
    bool any = false;
    for (unsigned w = 0; w * warp_size < size; w++) {
        any |= warps[w].pausing != 0;
        set_ready(w, warps[w].pausing);
        warps[w].pausing = 0;
    }
    return any;
}

void Worker::open_barrier() {
    barrier_alive = alive;
    barrier_votes = votes;
    arrived = votes = 0;
    for (unsigned w = 0; w * warp_size < size; w++) {
        set_ready(w, warps[w].barrier);
        warps[w].barrier = 0;
    }
}

// If all living lanes of the key's mask wait with this key, gives them their results and makes them ready.
bool Worker::try_exchange(unsigned w, uint64_t key) {
    Warp& it = warps[w];
    const uint32_t lanes = uint32_t(key) & it.alive;
    if ((it.exchange & lanes) != lanes)
        return false;
    bool same = true;
    for_each_lane(lanes, [&](unsigned lane) { same &= it.key[lane] == key; });
    if (!same)
        return false;
    deliver(it, lanes, Exchange(key >> 32));
    it.exchange &= ~lanes;
    set_ready(w, lanes);
    return true;
}

// One line for each place at which threads wait.
void Worker::report_deadlock() {
    std::vector<std::pair<std::string, Ranges>> places;
    for (unsigned rank = 0; rank < size; rank++) {
        const Warp& it = warps[rank / warp_size];
        const unsigned lane = rank % warp_size;
        if (!(it.alive >> lane & 1))
            continue;
        const Thread& thread = threads[rank];
        std::string place = text("%s:%d: %s", thread.file, thread.line, thread.what);
        if (it.exchange >> lane & 1)
            place += text(" (mask 0x%08x)", uint32_t(it.key[lane]));
        size_t i = 0;
        while (i < places.size() && places[i].first != place)
            i++;
        if (i == places.size())
            places.push_back({place, {}});
        places[i].second.add(rank);
    }
    std::string message = text("%s, block (%u, %u, %u): %u of %u threads wait for others that never come",
                               describe(*launch).c_str(), index.x, index.y, index.z, alive, size);
    for (auto& [place, ranks] : places)
        message += text("\n  %s: %u thread%s (%s)", place.c_str(), ranks.count, ranks.count == 1 ? "" : "s",
                        ranks.str().c_str());
    error = {cudaErrorLaunchFailure, message};
}

// Gives the block up: its stacks are taken from under its threads, and the worker goes on where it started the block.
void Worker::fail(cudaError_t code, const std::string& message) {
    error = {code, text("%s, block (%u, %u, %u): %s", describe(*launch).c_str(), index.x, index.y, index.z,
                        message.c_str())};
    stacks.reset();
    leave(native_stack);
}

} // namespace

// ---- Called by kernels. Each answers with the stack on which to go on, or null for the caller's own. ----


void* Block::wait_at_barrier(unsigned rank, bool vote) {
    auto& self = static_cast<Worker&>(*this);
    if (!tracked)
        self.track(rank);
    votes += vote;
    if (++arrived == alive) {
        self.open_barrier();
        return nullptr;
    }
    warps[rank / warp_size].barrier |= 1u << rank % warp_size;
    return self.next_stack();
}

void* Block::wait_at_exchange(unsigned rank, Exchange exchange, uint32_t mask) {
    auto& self = static_cast<Worker&>(*this);
    if (!tracked)
        self.track(rank);
    const uint32_t lane = 1u << rank % warp_size;
    if (!(mask & lane))
        self.fail(cudaErrorLaunchFailure,
                  text("%s:%d: thread %u (lane %u) calls %s with mask 0x%08x, which does not name that lane",
                       threads[rank].file, threads[rank].line, rank, rank % warp_size, threads[rank].what, mask));
    Warp& it = warps[rank / warp_size];
    const uint64_t key = uint64_t(exchange) << 32 | mask;
    it.key[rank % warp_size] = key;
    it.exchange |= lane;
    if (!self.try_exchange(rank / warp_size, key))
        return self.next_stack();
    self.unready(rank);
    return nullptr;
}

void* Block::wait_at_activemask(unsigned rank) {
    auto& self = static_cast<Worker&>(*this);
    if (!tracked)
        self.track(rank);
    warps[rank / warp_size].convergence |= 1u << rank % warp_size;
    return self.next_stack();
}

void* Block::pause(unsigned rank) {
    auto& self = static_cast<Worker&>(*this);
    if (!tracked)
        self.track(rank);
    warps[rank / warp_size].pausing |= 1u << rank % warp_size;
    return self.next_stack();
}

void Block::finish(unsigned rank) {
    auto& self = static_cast<Worker&>(*this);
    Warp& it = warps[rank / warp_size];
    it.alive &= ~(1u << rank % warp_size);
    --alive;
    // Others may have waited for this thread alone.
    if (arrived && arrived == alive)
        self.open_barrier();
    for (uint32_t left = it.exchange; left; left &= left - 1)
        self.try_exchange(rank / warp_size, it.key[__builtin_ctz(left)]);
}

} // namespace simulator
