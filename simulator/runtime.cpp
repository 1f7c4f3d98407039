// The simulator's executor. One copy serves the whole process, and kernels are compiled without it.
//
// To read it: include/simulator/block.h says how a block of threads runs, include/simulator/fiber.h
// how a thread leaves its stack for another, runtime/worker.h who waits for whom, runtime/pool.h
// who runs which block, and runtime/recorder.h what the checker sees of it all.
#define SIMULATOR_EXECUTOR
#include "include/simulator/warp.h"
#include "runtime/api.h"
#include "runtime/checks.h"
#include "runtime/hooks.h"
#include "runtime/inspection.h"
#include "runtime/report.h"

// The dynamic shared memory of the block that runs on this operating-system thread: each `extern
// __shared__` array of every kernel is this one.
extern "C" {
SIMULATOR_EXPORT __thread char simulator_dynamic_shared[simulator::most_shared]
    __attribute__((aligned(1024)));
}

// The message of this host thread's pending error, or null. Clears it.
extern "C" SIMULATOR_EXPORT const char* simulator_take_error() {
    static thread_local std::string message;
    if (simulator::pending.code == cudaSuccess) return nullptr;
    message = simulator::pending.message;
    simulator::pending = {};
    return message.c_str();
}

// How many kernels this process has launched: a measurement asks before a call and after it.
extern "C" SIMULATOR_EXPORT uint64_t simulator_launches() {
    return simulator::launches_so_far.load(std::memory_order_relaxed);
}
