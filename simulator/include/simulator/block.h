// One block of CUDA threads as the simulator runs it: what the kernel's side (launch.h, barrier.h,
// warp.h) and the executor (executor/) both know.
//
// The threads of a block run one after another in a plain loop (launch.h). Nothing more happens to
// a kernel without barriers. A thread that must wait for others leaves its stack as it is, and the
// loop goes on with the next thread on a fresh stack (fiber.h). It is resumed when those for whom
// it waits have arrived.
//
// A block stays on one operating-system thread from its first instruction to its last. So nothing
// in here is atomic, and `__shared__` is simply `thread_local`.
#pragma once
#include <stddef.h>
#include <stdint.h>
#include "../vector_types.h"
#include "fiber.h"

#define SIMULATOR_EXPORT __attribute__((visibility("default")))
#define SIMULATOR_INLINE [[gnu::always_inline]] inline
// The line that called a built-in function, as its last two parameters.
#define SIMULATOR_CALLER const char *file = __builtin_FILE(), int line = __builtin_LINE()
// Where a thread waits, or asks for its block's memory: part of the kernel, but for the checker
// part of the executor, where no hook is called.
#ifdef SIMULATOR_EXECUTOR
#define SIMULATOR_WAIT SIMULATOR_EXPORT
#else
#define SIMULATOR_WAIT SIMULATOR_INLINE
#endif

struct CUstream_st;

namespace simulator {

constexpr unsigned max_threads = 1024;  // per block
constexpr unsigned warp_size = 32;

// The threads for which a fence orders, and an atomic is one.
enum class Scope : uint8_t { Block, Device };

struct Block;
struct CopyQueue;
struct CopyQueues;

// One `kernel<<<grid, block, shared>>>(arguments)`.
struct Launch {
    const char* name;  // as written: "layer_norm<T>"
    const char* file;
    int line;
    const void* function;  // the kernel's address, or null for one of several overloads
    dim3 grid, block;
    size_t shared;  // bytes of dynamic shared memory
    CUstream_st* stream;
    void (*run_threads)(Block&);  // starts the block's threads, from Block::next on
    const void* body;             // the kernel with its arguments
    size_t body_bytes;
    char* (*static_shared)();     // of the calling thread: where what is `__shared__` lies around
    bool instrumented;            // for the checker
    bool has_parameters = false;  // as the kernel declares them: `body` holds nothing else
    bool cooperative = false;     // its blocks may wait for each other: all run at once
    dim3 cluster{0, 0, 0};        // blocks in a cluster; 0 if it has none
    bool in_clusters() const { return cluster.x != 0; }
};

// Where a suspended thread waits.
struct alignas(64) Thread {
    Context context;
    const char* what;  // "__syncthreads"
    const char* file;
    int line;
};

// What the lanes of a warp do with each other's values when the last of them arrives.
enum class Exchange : uint32_t {
    Sync,       // nothing
    Shuffle,    // result: the value of lane `source`, or the lane's own
    Ballot,     // result: the lanes whose value is not 0 | the lanes that took part << 32
    MatchAny,   // result: the lanes with the same value
    MatchAll,   // result: all lanes that took part if their values are the same, else 0
    AddSigned,  // result: the sum of the values, and so on
    AddUnsigned,
    MinSigned,
    MinUnsigned,
    MaxSigned,
    MaxUnsigned,
    And,
    Or,
    Xor,
    Meet,  // what the Meeting of each does, to which its value points
};

// What lanes do together when the last of them arrives, with what each has on its stack.
struct Meeting {
    void (*run)(Meeting* const* lanes, uint32_t which);  // lanes: 32, of which these have come
};

// 32 lanes; a set of lanes is a bit mask.
struct Warp {
    uint32_t alive;  // has not returned
    // A living thread is running, not yet started, or in one of these sets:
    uint32_t ready;        // may go on
    uint32_t barrier;      // waits at __syncthreads
    uint32_t exchange;     // waits at a __sync function of the warp
    uint32_t convergence;  // waits at __activemask
    uint32_t pausing;      // spins or sleeps, and lets others go first
    uint32_t tile;         // waits for the other warps of a tile
    uint32_t parked;       // waits for a phase of a barrier in memory to end, or for the cluster
    uint32_t named;        // waits at a named barrier
    uint32_t stepping;     // has come to a line, where somebody steps through the block
    uint32_t in_cluster;   // no such set: has come to the cluster's barrier
    uint8_t source[warp_size];
    uint64_t key[warp_size];  // lanes meet only if they name the same exchange and the same mask
    uint64_t value[warp_size];
    uint64_t result[warp_size];
};

// The 16 barriers of a block that have numbers, for some of its warps.
struct NamedBarrier {
    unsigned expected;  // threads; 0: all that live
    unsigned arrived, votes, all_votes;
    unsigned result, all_result;  // of the votes when it last opened
    uint32_t come[32];            // of each warp, the lanes that have, since it opened
};

struct SIMULATOR_EXPORT Block {
    const Launch* launch;
    uint3 index;
    unsigned size;          // threads
    unsigned next;          // how many threads have been started
    const uint16_t* order;  // in which they are, while the checker looks on; else null: ascending
    uint64_t serial;        // counts the blocks of this operating-system thread
    unsigned rank;          // the running one: x + y * blockDim.x + z * blockDim.x * blockDim.y
    bool tracked;           // a thread has waited: from here on the fields below are kept
    unsigned alive;         // threads that have not returned
    unsigned in_cluster;    // of them, those that have come to the cluster's barrier
    unsigned arrived;       // threads that wait at __syncthreads
    unsigned votes;         // how many of them brought a predicate that is not 0
    unsigned barrier_alive, barrier_votes;  // the same two when the last barrier opened
    uint32_t ready;         // the warps that have a ready lane, and perhaps some that had one
    uint8_t grid_steps;     // what follows when the barrier opens: GridStep
    CopyQueues* queues;     // of copies that its threads have not waited for: see async_copy.h
    char* dynamic_shared;   // where its shared memory begins: see shared_window.h
    char* static_shared;    // and where what is declared `__shared__` lies around
    uint32_t first_static;  // the lowest address in that part which was asked for
    unsigned cluster_rank;  // among the blocks of its cluster, which are these; null: it is one
    Block* const* cluster;
    dim3 cluster_extent;
    const char *static_begin, *static_end;  // of all that is declared `__shared__`
    uint32_t static_alignment = 1024;       // the largest of any of that
    uint16_t named_in_use = 0;              // the named barriers to which somebody has come
    NamedBarrier named[16] = {};
    Warp warps[max_threads / warp_size];
    Thread threads[max_threads + 1];  // the last is never used
    CopyQueue* copy_queues[max_threads];

    // From here on the block keeps account of its threads; those before `rank` have returned.
    void track(unsigned rank);
    // The fiber that goes on now that the running thread waits.
    Context* next_fiber();
    // The last thread has come to __syncthreads, or those that had not come have returned.
    void open_barrier();
    // Enough lanes of a warp have come for the exchange of thread `rank`. If all mean the same one
    // they get their results, and the answer is null: the thread goes on.
    Context* complete_exchange(unsigned rank);
    // The same of all living threads of a warp, which wait for the others of a tile.
    Context* complete_tile(unsigned rank);
    // The mask that thread `rank` gave does not name its lane: an error.
    [[noreturn]] void fail_for_mask(unsigned rank, uint32_t mask);
    // Thread `rank` comes to a named barrier, which may be the one of `count` threads that opens
    // it. True if it is to wait.
    bool come_to_named(unsigned rank, unsigned id, unsigned count, bool waits, bool vote);
    // Thread `rank` has returned.
    void finish(unsigned rank);
    // A phase of a cuda::barrier has ended: those who wait for one look whether it is theirs.
    void wake_parked();
};

// The same as Block::next_fiber, but first another lane of the same warp, whose stacks are still in
// the cache.
SIMULATOR_INLINE Context* next_fiber(Block& block, unsigned rank) {
    uint32_t& lanes = block.warps[rank / warp_size].ready;
    if (!lanes) return block.next_fiber();
    const unsigned lane = __builtin_ctz(lanes);
    lanes &= lanes - 1;
    Thread* thread = &block.threads[(rank & ~(warp_size - 1)) + lane];
    // Lanes go on in order: the stack after this one is wanted soon, and is often out of the cache.
    const char* soon = static_cast<const char*>(thread[1].context.stack);
    __builtin_prefetch(soon, 1);
    __builtin_prefetch(soon + 64, 1);
    return &thread->context;
}

// Runs a grid to its end. Errors are recorded for cudaGetLastError.
SIMULATOR_EXPORT void run(const Launch& launch);

// The block of the running thread, for libraries of the simulator's.
SIMULATOR_EXPORT Block& running_block();

// The loop over a block's threads, for the checker: the first, and the next after one has returned,
// in its order. False if none is left.
SIMULATOR_EXPORT bool start_thread(Block& block);
SIMULATOR_EXPORT bool next_thread(Block& block);

// A kernel whose __launch_bounds__ allow so many threads a block has more.
[[noreturn]] SIMULATOR_EXPORT void fail_bounds(unsigned threads, const char* file, int line);

// The bounds of what is declared `__shared__` around a variable of the kernel library.
SIMULATOR_EXPORT void find_static_shared(Block& block, char* among_them);

// A kernel whose __cluster_dims__ say so is launched without clusters, or in others.
[[noreturn]] SIMULATOR_EXPORT void want_clusters(unsigned x, unsigned y, unsigned z);

// __trap and assert: each ends the running block and with it the launch, with an error. An
// assertion of the host ends the process, as everywhere.
[[noreturn]] SIMULATOR_EXPORT void trap(const char* file, int line);
// For the checker: whom the next fence or atomic is for. It is for all where nothing is said.
#if defined(SIMULATOR_CHECKER) || defined(__SANITIZE_THREAD__)
SIMULATOR_EXPORT void announce(Scope scope);
SIMULATOR_EXPORT void announce_acquire();  // the next atomic acquires
// What an atomicExch has found. A call whose value nobody uses the compiler leaves out.
SIMULATOR_EXPORT unsigned long long used(unsigned long long old) noexcept __attribute__((const));
// What the host does from here on it does for the device, or no longer does.
SIMULATOR_EXPORT void work_for_device(bool does);
#else
SIMULATOR_INLINE void announce(Scope) {}
SIMULATOR_INLINE void announce_acquire() {}
SIMULATOR_INLINE unsigned long long used(unsigned long long old) { return old; }
#endif
// The order of a kernel's atomic load. To the checker those of another are the simulator's own.
#ifdef __SANITIZE_THREAD__
constexpr int of_kernel = __ATOMIC_ACQUIRE;
#else
constexpr int of_kernel = __ATOMIC_SEQ_CST;
#endif
// What CUDA leaves undefined or traps on, with the reason.
[[noreturn]] SIMULATOR_EXPORT void fail(const char* reason, const char* what, const char* file,
                                        int line);
[[noreturn]] SIMULATOR_EXPORT void fail_assertion(const char* condition, const char* file,
                                                  int line);

}  // namespace simulator

// Between the last `__shared__` array of a library and its guard nothing else of it is to lie.
#ifdef __ELF__
#define SIMULATOR_BEFORE_SHARED __attribute__((section(".tdata")))
#else
#define SIMULATOR_BEFORE_SHARED
#endif

// The built-in variables, and `current`: the block of the running thread, or what was one in a
// thread of the host.
#if defined(SIMULATOR_EXECUTOR) || defined(__SANITIZE_THREAD__)
// For the checker the executor has them, since one block runs at a time. They are constant while a
// thread runs, so that no hook is called for them.
#ifdef SIMULATOR_EXECUTOR
#define SIMULATOR_BUILT_IN(T, name, symbol) T name __asm__(symbol)
#else
#define SIMULATOR_BUILT_IN(T, name, symbol) extern T const name __asm__(symbol)
#endif
#pragma GCC visibility push(default)
SIMULATOR_BUILT_IN(uint3, threadIdx, "simulator_thread_index");
SIMULATOR_BUILT_IN(uint3, blockIdx, "simulator_block_index");
SIMULATOR_BUILT_IN(uint3, blockDim, "simulator_block_extent");
SIMULATOR_BUILT_IN(uint3, gridDim, "simulator_grid_extent");
namespace simulator {
SIMULATOR_BUILT_IN(Block*, current, "simulator_current");
}
#pragma GCC visibility pop
#undef SIMULATOR_BUILT_IN
#else
// Of internal linkage, so that the compiler sees every use and can keep them in registers. But a
// template or an inline function that several .cu files of a library share is one function, and
// has to find the variables of whichever file launches it: there they are the library's.
#ifdef SIMULATOR_SEVERAL_SOURCES
#define SIMULATOR_BUILT_IN inline __attribute__((visibility("hidden"))) __thread
#else
#define SIMULATOR_BUILT_IN static SIMULATOR_BEFORE_SHARED thread_local
#endif
SIMULATOR_BUILT_IN uint3 threadIdx;
SIMULATOR_BUILT_IN uint3 blockIdx;
SIMULATOR_BUILT_IN dim3 blockDim;
SIMULATOR_BUILT_IN dim3 gridDim;
namespace simulator {
SIMULATOR_BUILT_IN Block* current;
}
#undef SIMULATOR_BUILT_IN
#endif
namespace simulator {
// The minimum of blocks, and the maximum of a cluster, are of no consequence here.
SIMULATOR_INLINE void __hold_bounds(const char* file, int line, unsigned threads, unsigned = 1,
                                    unsigned = 1) {
    if (blockDim.x * blockDim.y * blockDim.z > threads) fail_bounds(threads, file, line);
}
SIMULATOR_INLINE void __hold_cluster(unsigned x, unsigned y = 1, unsigned z = 1) {
    const dim3& extent = current->launch->cluster;
    if (extent.x != x || extent.y != y || extent.z != z) want_clusters(x, y, z);
}
}  // namespace simulator
constexpr int warpSize = simulator::warp_size;
