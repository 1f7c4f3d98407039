// What the executor announces to whoever watches its launches, and asks of it: all that it knows of
// a checker.
#pragma once
#include <atomic>
#include <chrono>
#include <functional>
#include <initializer_list>
#include <string>
#include <utility>
#include <vector>
#include "../include/simulator/async_copy.h"
#include "../include/simulator/asynchronous.h"
#include "../include/simulator/bulk_copy.h"
#include "messages.h"

namespace simulator {

using Memory = std::pair<const void*, size_t>;

// Threads of a block that stand at one place when their launch is stopped.
struct Standing {
    std::string doing;  // "__syncthreads", or "runs", "has not begun", "has returned"
    std::string file;   // where it waits
    int line;
    uintptr_t at;  // the next instruction of the one that runs, else 0
    unsigned count;
    std::string threads;  // "0-30, 64"
};

// What the running thread asks for that is asynchronous, and waits for later.
class WorkWatcher {
  public:
    // A copy of the thread's own; those so far are a batch; and it has waited for all batches but
    // the last `prior`.
    virtual void copy(const AsyncCopy& copy, const char* what, const char* file, int line) = 0;
    virtual void commit_copies() = 0;
    virtual void copies_done(size_t prior, const char* file, int line) = 0;

    // A copy in bulk that is to tell an mbarrier of a block, or is one of the thread's next group.
    // Each gets a number. It is done, which the running thread sees as one of those that wait.
    virtual void bulk_copy(const Block& of, BulkCopy& copy) = 0;
    virtual void bulk_copy_done(const BulkCopy& copy) = 0;
    virtual void commit_group() = 0;
    virtual void groups_done(size_t prior, bool until_read, const char* file, int line) = 0;
    // Whether what is asked for now is carried out at once, and not as late as may be.
    virtual bool is_early() = 0;

    // As include/simulator/asynchronous.h has them.
    virtual void fence(ProxyFence fence) = 0;
    virtual void mbarrier_init(const uint64_t* barrier, uint32_t count, const char* file,
                               int line) = 0;
    virtual void mbarrier_change(const uint64_t* barrier, int64_t bytes, uint32_t arriving,
                                 bool has_ended, const char* what, const char* file, int line) = 0;
    virtual void mbarrier_awaited(const uint64_t* barrier) = 0;
    virtual void mbarrier_wait(const uint64_t* barrier, bool had_to_wait, const char* file,
                               int line) = 0;
    virtual void product(const tensor_cores::Tile& tile, const char* what, const char* file,
                         int line) = 0;
    virtual void warpgroup_product(const tensor_cores::WarpgroupTile& tile, uint64_t a, uint64_t b,
                                   const void* const* registers_of_a, void* const* d, int count,
                                   const char* file, int line) = 0;
    virtual void warpgroup_fence() = 0;
    virtual void warpgroup_commit() = 0;
    virtual void warpgroup_done(unsigned prior, const char* file, int line) = 0;
    virtual unsigned groups_left(unsigned most) = 0;
    virtual void registers(unsigned count, bool is_more, const char* file, int line) = 0;
    virtual void cta_group(int blocks, const char* what, const char* file, int line) = 0;
    virtual void pair_columns(const char* what, const char* file, int line) = 0;
    virtual void tensor_use(const tensor_cores::TensorUse& use) = 0;
    virtual void tensor_fence(bool is_before) = 0;
    virtual void narrow_arrival(const uint64_t* barrier, const char* file, int line) = 0;
    virtual void tensor_columns(uint32_t first, uint32_t count, bool is_freed, const char* file,
                                int line) = 0;
    virtual void tensor_conflict(const char* what, const char* file, int line, const char* other,
                                 const char* other_file, int other_line) = 0;

  protected:
    ~WorkWatcher() = default;
};

// While there is one, the blocks of a launch run one after another, on the thread that launches.
class Watcher {
  public:
    // The number of multiprocessors that kernels are told. Many size their grids by it.
    virtual int processors() const = 0;

    // A launch begins. `shared`: its dynamic shared memory. `executors`: what else its threads
    // touch, because they run there. `own_stack`: that of the host's function that launches it, if
    // the function does not run on its thread's.
    virtual void begin_launch(const Launch& launch, Memory shared,
                              std::initializer_list<Memory> executors, Memory own_stack) = 0;
    // The n-th of its blocks to run, and the threads of each in the order in which they start.
    virtual uint64_t block_in_order(uint64_t n) const = 0;
    virtual bool leaves_out(uint64_t index) const = 0;  // whether a block need not run
    virtual const uint16_t* threads_in_order() const = 0;

    // It is not to be run like that, and begins once more.
    virtual void forget_launch() = 0;

    // The driver's function refuses to make a tensor map: called from there, for this reason.
    virtual void refused_map(const void* caller, const char* reason) = 0;

    // A block begins. It ends with what made it fail, if anything did; the answer is whether the
    // launch goes on.
    virtual void begin_block(Block& block, uint64_t index) = 0;
    virtual bool end_block(const Error* error) = 0;

    // tcgen05.ld has put values into registers of the running thread; and the thread has waited for
    // all of these. Its stack ends there.
    virtual void loaded(void* const* registers, int count, const char* file, int line) = 0;
    virtual void loads_done(const void* stack_end) = 0;

    // How many of its blocks are to run once more, the first ones; and that they do so, by a
    // function that runs the n-th, and says whether it came to its end.
    virtual uint64_t blocks_to_repeat() const = 0;
    virtual void repeat(const std::function<bool(uint64_t)>& run) = 0;

    // All living threads of the block, or these lanes of a warp, have come to where they wait for
    // each other.
    virtual void barrier(const Block& block) = 0;
    virtual void exchange(const Block& block, unsigned warp, uint32_t lanes, Exchange kind) = 0;
    // All living threads of so many warps have come, from the first on.
    virtual void tile(const Block& block, unsigned first, unsigned warps) = 0;

    // Where the blocks of a cooperative grid take turns, each on a thread of its own: the first
    // block of such a thread begins; all blocks have come to where they wait for each other; and
    // one goes on after that.
    virtual void begin_thread(const Launch& launch, Memory shared,
                              std::initializer_list<Memory> executors) = 0;
    virtual void grid() = 0;
    virtual void resume_block(Block& block) = 0;
    // And where those of a cluster do, or threads of any grid spin: a block lets others go first,
    // and goes on after that. In a cluster what came before is then taken to be known to all.
    virtual void leave_block(const Block& block) = 0;
    virtual void return_to_block(Block& block) = 0;

    // The running thread arrives at a cuda::barrier, and the last one ends its phase; and it has
    // seen a phase end.
    virtual void arrived(uintptr_t barrier, bool is_last) = 0;
    virtual void passed(uintptr_t barrier) = 0;

    // How often strong stores and atomics have changed memory so far.
    virtual uint64_t changes() const = 0;

    // Null while the running block is not watched as closely as that.
    virtual WorkWatcher* work() = 0;

    // Memory of the device comes into being, with so many bytes on either side that are nobody's;
    // and its end, where the watcher may take over what is free()'s.
    virtual void allocated(uintptr_t begin, size_t bytes, size_t pad, cudaMemoryType type) = 0;
    virtual bool freed(uintptr_t begin, void* memory) = 0;
    // The host writes so many bytes, by cudaMemset or a copy; a copy brings it so many; and it
    // waits for the device.
    virtual void written(uintptr_t begin, size_t bytes) = 0;
    virtual void brought(uintptr_t to, uintptr_t from, size_t bytes) = 0;
    // Whether a copy would go past the end of the host's memory: then it is not made.
    virtual bool passes_end(uintptr_t begin, size_t bytes, bool writes) = 0;
    virtual void synchronised() = 0;
    // It waits for a stream, or an event, alone: by their handles. The default stream is null.
    virtual void synchronised(const void* of) = 0;
    // There is another stream. Work is put into one, which may be one that waits for the default
    // stream's, and that for its; that copies or fills memory; an event stands for what a stream
    // has so far; and a stream waits for an event.
    virtual void made_stream() = 0;
    virtual void put(const void* stream, bool is_blocking) = 0;
    virtual void touches(uintptr_t address, size_t bytes, bool writes) = 0;
    virtual void recorded(const void* event, const void* stream) = 0;
    virtual void waits(const void* stream, const void* event) = 0;
    // CUDA refuses a launch.
    virtual void refused(const Launch& launch, const Error& error) = 0;
    virtual void refused_call(const Error& error) = 0;

    // The time for launches is over: where the threads of a block stood, from each thread that had
    // one; and the end of the launch.
    virtual void stood(const Block& block, const std::vector<Standing>& threads) = 0;
    virtual void end_late_launch() = 0;

  protected:
    ~Watcher() = default;
};

// Whoever has the threads of a block go on line by line, for lab.trace. Kernels that are built for
// it call the tracer at each line.
class Stepper {
  public:
    virtual void begin_launch(const Launch& launch) = 0;
    virtual void forget_launch() = 0;  // it begins once more
    virtual void begin_block(Block& block) = 0;
    virtual void end_block(Block& block) = 0;

    // All threads of the block have come to a line, or wait for each other: which of the lanes of
    // a warp that have come to a line go on.
    virtual void end_round(Block& block) = 0;
    virtual uint32_t lanes_to_step(const Block& block, unsigned warp) = 0;
    virtual void barrier() = 0;  // of all threads of the block, which goes on now

    // The C library is about to copy or fill memory for a kernel; `from` is null for the latter.
    virtual void copied(const void* to, const void* from, size_t bytes) = 0;
    // So does what the running thread has asked for: a copy in bulk, or a product of matrices.
    virtual void is_read(uintptr_t address, size_t bytes) = 0;

    // The running thread asks for what is asynchronous, by a number; it has been waited for. And a
    // warp has made a product, of which all lanes tell.
    virtual void work_begins(uint32_t id, const char* what, const char* file, int line,
                             const uint64_t* barrier) = 0;
    virtual void work_ends(uint32_t id) = 0;
    virtual void product(const tensor_cores::Tile& tile, const char* what, const char* file,
                         int line) = 0;
    // It uses tensor memory, by work of this number, or 0.
    virtual void tensor_use(const tensor_cores::TensorUse& use, uint32_t id) = 0;
    // As of WorkWatcher; `count`: it has been initialised for so many.
    virtual void mbarrier_changes(const uint64_t* barrier, uint32_t count, int64_t bytes,
                                  uint32_t arriving, bool has_ended, const char* what,
                                  const char* file, int line) = 0;

  protected:
    ~Stepper() = default;
};

// How long all launches may take while somebody watches.
class TimeLimit {
  public:
    void begin(double allowed) {
        left = seconds = allowed;
        is_over = false;
    }
    void begin_launch() { began = Clock::now().time_since_epoch().count(); }
    void end_launch() {
        left = left - since_launch();
        began = 0;
    }
    // For another thread to ask.
    bool is_exceeded() const { return began && since_launch() > left; }

    double seconds = 0;
    std::atomic<bool> is_over{false};  // a launch has been stopped for that

  private:
    using Clock = std::chrono::steady_clock;
    double since_launch() const {
        const Clock::duration taken(Clock::now().time_since_epoch().count() - began);
        return std::chrono::duration<double>(taken).count();
    }

    std::atomic<double> left{0};
    std::atomic<Clock::rep> began{0};  // 0: none runs
};

// What the executor and the checker share, each of which is a library of its own.
#pragma GCC visibility push(default)

extern Watcher* watcher;  // null where nobody watches
extern Stepper* stepper;  // null where nobody steps
extern TimeLimit time_limit;

// What runs now has run before, so what it prints is known; and in such a run, how the value that a
// shuffle gets from a lane that takes no part differs from that of the run before.
extern bool is_repeating;
extern uint64_t change_of_inactive;
struct Repeating {
    Repeating() { is_repeating = true; }
    ~Repeating() {
        change_of_inactive = 0;
        is_repeating = false;
    }
};

// Where a kernel under check calls what tells of its asynchronous work, and where what it does
// fails.
extern const void *told_from, *failed_from;

// What the host of a watched call has from malloc or new[] has guards (host_memory.h). Null where
// it is to be the heap's; `memory`, unless it is of those, and is given back; the allocation with
// guards that an address is in, or the nearest; and where all of them may lie.
void* take_host_memory(size_t bytes);
void* give_back_host_memory(void* memory, const char* function, const void* caller);
Memory guarded_memory_at(uintptr_t address);
Memory guarded_range();

// For a watcher: gives up the running block, which is about to do what cannot be let happen.
[[noreturn]] void stop_block(const char* message);

// For a watcher, whose own code no signal stops: whether the launch is to end now and its news are
// of no use to anybody; and ends the running block if the launch is to end. `next`: the
// instruction at which it would go on.
bool is_dropped();
bool is_stopping();  // for whatever reason
void stop_if_asked(uintptr_t next);

// The running thread lets others go first; `what`, `file` and `line` say where it is meanwhile.
void pause_thread(const char* what, const char* file, int line);

// The running thread has come to a line, and goes on when the stepper says so.
void step_thread();

// How often the blocks of a block's cluster have all come to their barrier.
uint64_t cluster_barriers(const Block& block);

#pragma GCC visibility pop

}  // namespace simulator
