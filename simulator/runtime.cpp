// The simulator's executor. One copy serves the whole process, and kernels are compiled without it.
//
// To read it: include/simulator/block.h says how a block of threads runs, include/simulator/fiber.h
// how a thread leaves its stack for another, runtime/worker.h who waits for whom, runtime/pool.h
// who runs which block, runtime/interrupts.h what ends a launch
// before its time, and runtime/recorder.h what the checker sees of it all.
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

// How Python is told of an interrupt: see runtime/interrupts.h.
extern "C" SIMULATOR_EXPORT void simulator_interrupt(
    int (*Py_AddPendingCall)(int (*)(void*), void*), void* (*PyObject_CallNoArgs)(void*),
    int (*PyGILState_Ensure)(), void (*PyGILState_Release)(int), int (*PyOS_InterruptOccurred)(),
    void* raise) {
    simulator::python = {Py_AddPendingCall,  PyObject_CallNoArgs,    PyGILState_Ensure,
                         PyGILState_Release, PyOS_InterruptOccurred, raise};
}

// For Python, when it raises an interrupt: the launch that was stopped for it, and on lines below
// that the block and the thread of it that was found first, its library, and the offset of its next
// instruction there. Empty if none was.
extern "C" SIMULATOR_EXPORT const char* simulator_take_stop() {
    static std::string said;
    said = simulator::stopping.take();
    simulator::interrupts->raised();
    return said.c_str();
}
