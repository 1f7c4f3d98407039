// The workers of this process, one for each core, and the division of a grid among them.
#pragma once
#include <pthread.h>
#include <algorithm>
#include <atomic>
#include <condition_variable>
#include <map>
#include <memory>
#include <mutex>
#include <thread>
#include <vector>
#include "shared_memory.h"
#include "stops.h"
#ifdef __linux__
#include <sched.h>
#endif

namespace simulator {
namespace {

// The cores that this process may use, or SIMULATOR_THREADS.
unsigned count_cores() {
    if (const char* wanted = getenv("SIMULATOR_THREADS"))
        if (const int count = atoi(wanted); count > 0) return count;
#ifdef __linux__
    cpu_set_t set;
    if (sched_getaffinity(0, sizeof set, &set) == 0) return CPU_COUNT(&set);
#endif
    return std::max(1u, std::thread::hardware_concurrency());
}

// Threads of the pool keep their worker for ever; another host thread has one from its first launch
// to its end.
Worker& this_worker() {
    thread_local std::unique_ptr<Worker> mine;
    if (!mine) {
        provide_signal_stack();
        mine = std::make_unique<Worker>();
        worker = mine.get();
    }
    return *mine;
}

class Pool {
  public:
    const unsigned cores = count_cores();

    // Returns when every block has run, one has failed, or the launch has been stopped.
    Error run(const Launch& launch) {
        std::lock_guard<std::mutex> one_launch_at_a_time(launching);
        begin(launch);
        watcher ? run_watched(launch, *watcher) : spread(launch);
        end();
        if (stopping.asked) {
            stopping.tell(describe(launch));
            if (failure.code == cudaSuccess)
                failure = {cudaErrorLaunchFailure, describe(launch) + ": it was interrupted"};
            failure.is_interrupt = true;
        }
        return failure;
    }

    // Has the launch that runs end soon, if there is one. For one other thread to call, more than
    // once if need be.
    void stop() {
        is_stopping = true;
        if (const Launch* launch = current) {
            if (!stopping.asked) prepare_stop(*launch);
            stopping.asked = true;
            send_stop(host->thread);
            std::lock_guard<std::mutex> lock(mutex);
            for (const Worker* helper : helping) send_stop(helper->thread);
        }
        is_stopping = false;
    }

    // How often a launch has begun or ended.
    uint64_t changes() const { return changed; }

  private:
    void begin(const Launch& launch) {
        host = &this_worker();
        stopping.asked = false;
        failure = {};
        count_change();
        current = &launch;
    }

    void end() {
        count_change();
        current = nullptr;
        while (is_stopping) std::this_thread::yield();  // it speaks to this thread still
    }

    void count_change() { changed.store(changed + 1, std::memory_order_relaxed); }

    void spread(const Launch& launch) {
        blocks = uint64_t(launch.grid.x) * launch.grid.y * launch.grid.z;
        const uint64_t threads = uint64_t(launch.block.x) * launch.block.y * launch.block.z;
        // Long enough to be worth the trip to the counter, short enough to leave no core idle at
        // the end.
        chunk =
            std::clamp<uint64_t>(blocks / (cores * 16), 1, std::max<uint64_t>(1, 65536 / threads));
        next = 0;
        // It takes longer to wake a helper than to run a few thousand threads.
        // What is instrumented runs alone, even outside a check.
        const unsigned helpers =
            blocks * threads < 2048 || launch.instrumented
                ? 0
                : std::min<uint64_t>(cores, blocks) - 1;
        if (helpers) call(helpers);
        work(launch);
        if (helpers) dismiss();
    }

    // All blocks one after another, on this thread. What fails is the watcher's to tell.
    void run_watched(const Launch& launch, Watcher& watcher) {
        Worker& self = this_worker();
        watcher.begin_launch(launch, {simulator_dynamic_shared, launch.shared},
                             {{&self, sizeof self}, self.stacks.memory()});
        const uint64_t count = uint64_t(launch.grid.x) * launch.grid.y * launch.grid.z;
        for (uint64_t n = 0; n < count; n++) {
            const uint64_t block = watcher.block_in_order(n);
            watcher.begin_block(self, block);
            const bool ran = self.run_block(launch, index_of(launch, block), &watcher);
            if (stopping.asked) return void(watcher.end_block(nullptr));
            if (!watcher.end_block(ran ? nullptr : &self.error)) return;
        }
    }

    static uint3 index_of(const Launch& launch, uint64_t block) {
        const uint64_t rest = block / launch.grid.x;
        return {unsigned(block % launch.grid.x), unsigned(rest % launch.grid.y),
                unsigned(rest / launch.grid.y)};
    }

    void call(unsigned helpers) {
        std::lock_guard<std::mutex> lock(mutex);
        while (hired < cores - 1) {
            hired++;
            std::thread([this] { help(); }).detach();
        }
        places = helpers;
        helping.clear();
        wake.notify_all();
    }

    // A helper that has not yet woken is not waited for.
    void dismiss() {
        std::unique_lock<std::mutex> lock(mutex);
        places = 0;
        idle.wait(lock, [this] { return busy == 0; });
    }

    void help() {
        sigset_t all;
        sigfillset(&all);  // signals to the process are for the host's own threads
        for (int own : {SIGSEGV, SIGBUS, SIGFPE, SIGILL, SIGURG}) sigdelset(&all, own);
        pthread_sigmask(SIG_BLOCK, &all, nullptr);
        Worker& self = this_worker();
        std::unique_lock<std::mutex> lock(mutex);
        for (;;) {
            wake.wait(lock, [this] { return places > 0; });
            places--;
            busy++;
            helping.push_back(&self);
            const Launch& launch = *current;
            lock.unlock();
            work(launch);
            lock.lock();
            if (--busy == 0) idle.notify_one();
        }
    }

    void work(const Launch& launch) {
        Worker& self = this_worker();
        for (;;) {
            const uint64_t first = next.fetch_add(chunk, std::memory_order_relaxed);
            if (first >= blocks || stopping.asked) return;
            const uint64_t end = std::min(first + chunk, blocks);
            for (uint64_t block = first; block < end && !stopping.asked; block++) {
                if (!self.run_block(launch, index_of(launch, block))) {
                    next = blocks;  // the launch has failed: no new blocks
                    std::lock_guard<std::mutex> lock(mutex);
                    if (failure.code == cudaSuccess) failure = self.error;
                    return;
                }
            }
        }
    }

    std::mutex launching;
    std::atomic<const Launch*> current{nullptr};
    const Worker* host;  // of the thread that launched it
    std::atomic<bool> is_stopping{false};
    std::atomic<uint64_t> changed{0};
    uint64_t blocks, chunk;
    std::atomic<uint64_t> next;
    Error failure;

    std::mutex mutex;
    std::condition_variable wake, idle;
    std::vector<const Worker*> helping;  // since the last launch that called helpers
    unsigned hired = 0, places = 0, busy = 0;

    friend struct AtLoad;
};

// The pool is never destroyed: its threads live until the process ends.
Pool* pool = new Pool;

}  // namespace
}  // namespace simulator
