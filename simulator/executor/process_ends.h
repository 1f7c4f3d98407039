// What a function of the host, or a kernel, calls to end its process: exit(), abort(), a signal to
// itself. It ends the call, or the launch, with an error that names the line.
//
// To these the linker sends a library's calls: simulator.LIBRARY_LINK_FLAGS.
#pragma once
#include <pthread.h>
#include <signal.h>
#include "host_calls.h"

#ifdef __linux__
namespace simulator {
namespace {

// Where a library calls what ends the process. A call that is the last thing that a function does
// may be a jump; then what Python has called stands for it.
void tell_end(const void* caller) {
    LibraryCode code = code_around(caller);
    uintptr_t at = uintptr_t(caller) - 1;
    if (may_leave() && library_of(reinterpret_cast<void*>(tell_end)).base == code.library.base) {
        at = host_call.function;
        code = code_around(reinterpret_cast<void*>(at));
    }
    told_fault.take();
    told_fault.tell("", 0, code.library.path, at - code.library.base);
}

// A call that would end the process; it returns where it is to do that: in a program, and in a
// process that the host's code has forked.
void instead_of_end(const std::string& what, const void* caller) {
    if (worker && worker->running) {
        tell_end(caller);
        worker->fail(cudaErrorLaunchFailure, describe_thread(*worker) + ": it calls " + what);
    }
    if (may_leave()) {
        tell_end(caller);
        leave_call("it calls " + what);
    }
    if (python.raise && !is_fork_of_call())
        throw std::runtime_error("the host's code calls " + what);
}

// Whether a signal is nothing that a process expects: nobody handles it, and it ends or stops the
// process; or Python or this runtime handle it, for whoever sends it from outside. A handler of the
// library's own is to get it.
bool ends_process(int signal, const void* caller) {
    for (int harmless : {0, SIGCHLD, SIGCONT, SIGURG, SIGWINCH})
        if (signal == harmless) return false;
    struct sigaction action;
    if (sigaction(signal, nullptr, &action) || action.sa_handler == SIG_IGN) return false;
    if (action.sa_handler == SIG_DFL) return true;
    const auto handler = reinterpret_cast<const void*>(action.sa_handler);
    if (library_of(handler).base == library_of(caller).base) return false;
    return signal == SIGINT ||
           std::count(std::begin(fault_signals), std::end(fault_signals), signal);
}

// Of a call that sends a signal to this process, perhaps among others.
void instead_of_signal(int signal, const std::string& call, const void* caller) {
    if (!ends_process(signal, caller)) return;
    instead_of_end(text("%s%d) (%s)", call.c_str(), signal, strsignal(signal)), caller);
}

}  // namespace
}  // namespace simulator

#define SIMULATOR_ENDS(name)                                                     \
    extern "C" SIMULATOR_EXPORT void __wrap_##name(int status) {                 \
        simulator::instead_of_end(                                               \
            simulator::text(#name "(%d)", status), __builtin_return_address(0)); \
        name(status);                                                            \
    }
SIMULATOR_ENDS(exit)
SIMULATOR_ENDS(_exit)
SIMULATOR_ENDS(_Exit)
SIMULATOR_ENDS(quick_exit)
#undef SIMULATOR_ENDS
// -fstack-protector calls this where a function is about to return and something was written past
// the end of one of its arrays.
extern "C" SIMULATOR_EXPORT void __wrap___stack_chk_fail() {
    using namespace simulator;
    const char* const what = "a local array was written past its end";
    const void* const caller = __builtin_return_address(0);
    if (worker && worker->running) {
        tell_end(caller);
        worker->fail(cudaErrorIllegalAddress, describe_thread(*worker) + ": " + what);
    }
    if (may_leave()) {
        tell_end(caller);
        leave_call(what);
    }
    fprintf(stderr, "the code for the CPU: %s\n", what);
    abort();
}
extern "C" SIMULATOR_EXPORT void __wrap_abort() {
    simulator::instead_of_end("abort()", __builtin_return_address(0));
    abort();
}
extern "C" SIMULATOR_EXPORT void __wrap_pthread_exit(void* result) {
    // Of a thread that the host's code has made itself it ends that one.
    if (simulator::may_leave())
        simulator::instead_of_end("pthread_exit()", __builtin_return_address(0));
    pthread_exit(result);
}
extern "C" SIMULATOR_EXPORT int __wrap_raise(int signal) {
    simulator::instead_of_signal(signal, "raise(", __builtin_return_address(0));
    return raise(signal);
}
extern "C" SIMULATOR_EXPORT int __wrap_kill(pid_t process, int signal) {
    if (process == getpid() || process == 0 || process == -1 || process == -getpgrp())
        simulator::instead_of_signal(
            signal, process == getpid() ? "kill(getpid(), " : simulator::text("kill(%d, ", process),
            __builtin_return_address(0));
    return kill(process, signal);
}
extern "C" SIMULATOR_EXPORT int __wrap_killpg(pid_t group, int signal) {
    if (group == 0 || group == getpgrp())
        simulator::instead_of_signal(
            signal, simulator::text("killpg(%d, ", group), __builtin_return_address(0));
    return killpg(group, signal);
}
extern "C" SIMULATOR_EXPORT int __wrap_pthread_kill(pthread_t thread, int signal) {
    simulator::instead_of_signal(signal, "pthread_kill(thread, ", __builtin_return_address(0));
    return pthread_kill(thread, signal);
}
#endif
