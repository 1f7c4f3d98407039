// The workers of this process, one for each core, and the division of a grid among them.
#pragma once
#include <pthread.h>
#include <algorithm>
#include <atomic>
#include <condition_variable>
#include <map>
#include <memory>
#include <mutex>
#include <system_error>
#include <thread>
#include <vector>
#include "async_copies.h"
#include "bulk_copies.h"
#include "clusters.h"
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

// What may be resident on a multiprocessor at once, of which each core is one.
constexpr int threads_per_processor = 2048, blocks_per_processor = 32;

// Threads of the pool keep their worker for ever; another host thread has one from its first launch
// to its end.
Worker& this_worker() {
    thread_local std::unique_ptr<Worker> mine;
    if (!mine) {
        provide_signal_stack();
        mine = std::make_unique<Worker>();
        provide_queues(*mine);
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
        return run_alone(launch);
    }

    // Runs what has run before, on copies of its memory: it prints nothing, and ends when so many
    // seconds are over. Launches of other threads wait, so none of this is true of theirs.
    Error repeat(const Launch& launch, double seconds) {
        std::lock_guard<std::mutex> one_launch_at_a_time(launching);
        const Repeating repeating;
        const struct Limited {
            explicit Limited(double seconds) {
                time_limit.begin(seconds);
                time_limit.begin_launch();
            }
            ~Limited() {
                time_limit.end_launch();
                time_limit.is_over = false;
            }
        } limited(seconds);
        return run_alone(launch);
    }

    // Has the launch that runs end soon, if there is one. For one other thread to call, more than
    // once if need be.
    void stop() {
        is_stopping = true;
        if (const Launch* launch = current) {
            if (!stopping.asked) prepare_stop(*launch);
            stopping.asked = true;
            send_stop(host->thread);
            {
                std::lock_guard<std::mutex> lock(mutex);
                for (const Worker* helper : helping) send_stop(helper->thread);
            }
            if (launch->cooperative) gathering.give_up();
            if (launch->in_clusters()) cluster.give_up();
        }
        is_stopping = false;
    }

    // For the same thread to call now and then. A launch that has begun no block for so many calls,
    // and could, may be one whose blocks wait for each other: a GPU would run them at once. It gets
    // twice as many threads, up to as many blocks as would be resident there.
    void relieve(unsigned patience) {
        is_stopping = true;
        const Launch* launch = current;
        if (!launch || next != next_before || changed != changed_before) {
            next_before = next, changed_before = changed;
            calls = 0;
        } else if (++calls % patience == 0 && !launch->instrumented && !launch->cooperative &&
                   !launch->in_clusters()) {
            const unsigned threads = launch->block.x * launch->block.y * launch->block.z;
            const unsigned resident =
                cores * std::min<unsigned>(blocks_per_processor, threads_per_processor / threads);
            std::lock_guard<std::mutex> lock(mutex);
            const uint64_t begun = next;
            if (begun < blocks && busy + 1 < resident && !stopping.asked) {
                relieved = true;
                const unsigned more =
                    std::min<uint64_t>({busy + 1, blocks - begun, resident - busy - 1});
                try {
                    hire(for_relief, for_relief.busy + more);
                    for_relief.places = more;
                    for_relief.wake.notify_all();
                } catch (const std::system_error&) {  // there are no more threads
                }
            }
        }
        is_stopping = false;
    }

    // Cluster launch control: the next cluster that has not begun, which then never does. False if
    // there is none. What is watched leaves half of them, so that more than one block is seen.
    bool cancel_next(uint3& first) {
        const Launch& launch = *current;
        if (launch.cooperative || is_repeating || gathering.takes_turns()) return false;
        const dim3& of = launch.cluster;
        const uint64_t size = launch.in_clusters() ? uint64_t(of.x) * of.y * of.z : 1;
        if (watcher && canceled >= blocks / size / 2) return false;
        std::atomic<uint64_t>& counter = launch.in_clusters() ? cluster.next : next;
        uint64_t n = counter;
        do {
            if (n >= blocks / size) return false;
        } while (!counter.compare_exchange_weak(n, n + 1));
        if (watcher) canceled++;
        const uint64_t block = launch.in_clusters() ? block_in_cluster(launch, n, 0)
                               : watcher            ? watcher->block_in_order(n)
                                                    : n;
        first = index_of(launch, block);
        return true;
    }

    static Error time_is_over(const Launch& launch) {
        return {cudaErrorLaunchTimeout, describe(launch) + ": the time for the check was over"};
    }

    bool is_running() const { return current; }

    // What runs, if it is still the same launch as at so many changes. For the thread that stops
    // launches, too.
    std::string running_since(uint64_t changes) {
        is_stopping = true;
        const Launch* launch = current;
        const std::string said = launch && changed == changes ? describe(*launch) : "";
        is_stopping = false;
        return said;
    }

    // Up to so many of the blocks that are still to come get a thread each, and take turns with the
    // one that runs. False if there are none.
    bool begin_turns(Worker& running) {
        constexpr uint64_t most = 255;
        const uint64_t first = next;  // those before it have begun, or never will
        const uint64_t others = std::min(most, blocks - first);
        if (!others) return false;
        try {
            std::lock_guard<std::mutex> lock(mutex);
            hire(for_blocks, others);
        } catch (const std::system_error&) {
            return false;
        }
        gathering.begin_turns(blocks, running.number, first, others);
        call(for_blocks, others, others);
        return true;
    }

    // How often a launch has begun or ended.
    uint64_t changes() const { return changed; }

  private:
    Error run_alone(const Launch& launch) {
        begin(launch);
        if (watcher) time_limit.begin_launch();
        launch.cooperative     ? run_together(launch)
        : launch.in_clusters() ? run_clusters(launch)
        : watcher              ? run_watched(launch, *watcher)
                               : spread(launch);
        if (watcher) time_limit.end_launch();
        end();
        if (stopping.asked && watcher && time_limit.is_over) {
            watcher->end_late_launch();
            return time_is_over(launch);
        }
        if (stopping.asked) {
            stopping.tell(describe(launch));
            if (failure.code == cudaSuccess)
                failure = {cudaErrorLaunchFailure, describe(launch) + ": it was interrupted"};
            failure.is_interrupt = true;
        }
        return failure;
    }

    void begin(const Launch& launch) {
        host = &this_worker();
        stopping.asked = false;
        failure = {};
        gathering.begin(launch);
        count_change();
        current = &launch;
    }

    void end() {
        if (relieved) dismiss(for_relief);
        next = ~uint64_t(0) / 2;  // nothing to relieve
        count_change();
        current = nullptr;
        while (is_stopping) std::this_thread::yield();  // it speaks to this thread still
        if (relieved.exchange(false)) dismiss(for_relief);
    }

    void count_change() { changed.store(changed + 1, std::memory_order_relaxed); }

    void spread(const Launch& launch) {
        blocks = count_blocks(launch);
        const uint64_t threads = uint64_t(launch.block.x) * launch.block.y * launch.block.z;
        // Long enough to be worth the trip to the counter, short enough to leave no core idle at
        // the end. Blocks that may all be resident, and wait for each other, are taken one by one.
        chunk = blocks <= cores * blocks_per_processor
                    ? 1
                    : std::clamp<uint64_t>(
                          blocks / (cores * 16), 1, std::max<uint64_t>(1, 65536 / threads));
        next = 0;
        // It takes longer to wake a helper than to run a few thousand threads.
        // What is instrumented runs alone, even outside a check.
        const unsigned helpers =
            blocks * threads < 2048 || launch.instrumented
                ? 0
                : std::min<uint64_t>(cores, blocks) - 1;
        if (helpers) call(for_cores, cores - 1, helpers);
        work(launch);
        if (helpers) dismiss(for_cores);
    }

    // As many threads as blocks, for each block may have to wait for all others.
    void run_together(const Launch& launch) {
        blocks = count_blocks(launch);
        next = 0;
        if (watcher) begin_watched(launch, *watcher);
        try {
            if (blocks > 1) call(for_blocks, blocks - 1, blocks - 1);
        } catch (const std::system_error&) {
            gathering.give_up();
            fail({cudaErrorCooperativeLaunchTooLarge,
                  describe(launch) + text(": the system has no %llu threads for its blocks",
                                          (unsigned long long)blocks)});
        }
        work_together(launch);
        dismiss(for_blocks);
        if (watcher) failure = {};  // it is the watcher's to tell
    }

    // As many threads as a cluster has blocks, which run one cluster after another.
    void run_clusters(const Launch& launch);

    // The n-th block of a cluster, x first.
    static uint64_t block_in_cluster(const Launch& launch, uint64_t number, unsigned rank) {
        const dim3 &grid = launch.grid, &of = launch.cluster;
        const uint64_t across = grid.x / of.x, down = grid.y / of.y;
        const uint64_t x = number % across * of.x + rank % of.x;
        const uint64_t y = number / across % down * of.y + rank / of.x % of.y;
        const uint64_t z = number / across / down * of.z + rank / of.x / of.y;
        return (z * grid.y + y) * grid.x + x;
    }

    void work_in_cluster(const Launch& launch);

    static uint64_t count_blocks(const Launch& launch) {
        return uint64_t(launch.grid.x) * launch.grid.y * launch.grid.z;
    }

    static void begin_watched(const Launch& launch, Watcher& watcher, Memory more = {}) {
        Worker& self = this_worker();
        watcher.begin_launch(launch, {simulator_dynamic_shared, launch.shared},
                             {{&self, sizeof self}, self.stacks.memory(), more}, own_stack());
    }

    // All blocks one after another, on this thread. What fails is the watcher's to tell.
    void run_watched(const Launch& launch, Watcher& watcher);

    // The block that began the turns has ended; and then all others.
    void end_in_turns(const Launch& launch, Watcher& watcher, bool ran);

    static uint3 index_of(const Launch& launch, uint64_t block) {
        const uint64_t rest = block / launch.grid.x;
        return {unsigned(block % launch.grid.x), unsigned(rest % launch.grid.y),
                unsigned(rest / launch.grid.y)};
    }

    // Threads that sleep from one launch to the next.
    struct Crew {
        explicit Crew(void (Pool::*work)(const Launch&)) : work(work) {}

        void (Pool::* const work)(const Launch&);
        std::condition_variable wake;
        unsigned hired = 0, places = 0, busy = 0;
    };

    void hire(Crew& crew, unsigned hands) {
        for (; crew.hired < hands; crew.hired++)
            std::thread([this, &crew] { help(crew); }).detach();
    }

    void call(Crew& crew, unsigned hands, unsigned helpers) {
        std::lock_guard<std::mutex> lock(mutex);
        hire(crew, hands);
        crew.places = helpers;
        helping.clear();
        crew.wake.notify_all();
    }

    // A helper that has not yet woken is not waited for.
    void dismiss(Crew& crew) {
        std::unique_lock<std::mutex> lock(mutex);
        crew.places = 0;
        idle.wait(lock, [this] { return busy == 0; });
    }

    void help(Crew& crew) {
        sigset_t all;
        sigfillset(&all);  // signals to the process are for the host's own threads
        for (int own : {SIGSEGV, SIGBUS, SIGFPE, SIGILL, SIGURG}) sigdelset(&all, own);
        pthread_sigmask(SIG_SETMASK, &all, nullptr);
        Worker& self = this_worker();
        std::unique_lock<std::mutex> lock(mutex);
        for (;;) {
            crew.wake.wait(lock, [&] { return crew.places > 0; });
            crew.places--;
            const Launch* launch = current;
            if (!launch) continue;  // it has ended meanwhile
            busy++, crew.busy++;
            helping.push_back(&self);
            lock.unlock();
            (this->*crew.work)(*launch);
            lock.lock();
            crew.busy--;
            if (--busy == 0) idle.notify_one();
        }
    }

    void work(const Launch& launch) {
        SharedEnds ends(launch);
        run_blocks(launch);
        if (const char* what = ends.damage())
            fail({cudaErrorIllegalAddress, describe(launch) + ": illegal memory access: " + what});
    }

    void run_blocks(const Launch& launch) {
        Worker& self = this_worker();
        for (;;) {
            const uint64_t first = next.fetch_add(chunk, std::memory_order_relaxed);
            if (first >= blocks || stopping.asked) return;
            const uint64_t end = std::min(first + chunk, blocks);
            for (uint64_t block = first; block < end && !stopping.asked; block++) {
                if (!self.run_block(launch, index_of(launch, block))) {
                    fail(self.error);
                    return;
                }
            }
        }
    }

    // No new blocks begin. True for the first failure.
    bool fail(const Error& error) {
        next = blocks;
        std::lock_guard<std::mutex> lock(mutex);
        if (failure.code != cudaSuccess) return false;
        failure = error;
        return true;
    }

    void work_together(const Launch& launch) {
        Worker& self = this_worker();
        bool is_known = &self == host;
        for (;;) {
            const uint64_t n = next.fetch_add(1, std::memory_order_relaxed);
            if (n >= blocks || stopping.asked) return;
            const uint64_t block = watcher ? watcher->block_in_order(n) : n;
            const uint3 index = index_of(launch, block);
            self.number = n;
            if (!gathering.enter(n, index)) return;
            if (watcher && !std::exchange(is_known, true))
                watcher->begin_thread(launch, {simulator_dynamic_shared, launch.shared},
                                      {{&self, sizeof self}, self.stacks.memory()});
            if (watcher) watcher->begin_block(self, block);
            if (!self.run_block(launch, index, watcher)) {
                const bool is_first = fail(self.error);
                if (watcher && is_first) watcher->end_block(stopping.asked ? nullptr : &self.error);
                return gathering.give_up();
            }
            if (watcher) watcher->end_block(nullptr);
            gathering.leave(n);
        }
    }

    std::mutex launching;
    std::atomic<const Launch*> current{nullptr};
    const Worker* host;  // of the thread that launched it
    std::atomic<bool> is_stopping{false};
    std::atomic<uint64_t> changed{0};
    uint64_t blocks, chunk;
    std::atomic<uint64_t> next;
    uint64_t canceled = 0;  // clusters, by the running one, where there is a watcher
    Error failure;

    std::mutex mutex;
    Crew for_cores{&Pool::work}, for_blocks{&Pool::work_together}, for_relief{&Pool::work},
        for_clusters{&Pool::work_in_cluster};
    Cluster cluster;
    std::condition_variable idle;
    std::vector<const Worker*> helping;  // since the last launch that called helpers
    unsigned busy = 0;

    std::atomic<bool> relieved{false};  // the launch that runs
    uint64_t next_before = 0, changed_before = 0;
    unsigned calls = 0;  // of relieve() in which neither has changed

    friend struct AtLoad;
};

// The pool is never destroyed: its threads live until the process ends.
Pool* pool = new Pool;

bool begin_turns(Worker& running) { return pool->begin_turns(running); }

}  // namespace

bool cancel_next_cluster(uint3& first) { return pool->cancel_next(first); }
void note_none_canceled() { worker->none_canceled = worker->serial; }
bool was_none_canceled() { return worker->none_canceled == worker->serial; }

}  // namespace simulator
