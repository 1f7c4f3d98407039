// A kernel that touches what it must not ends its launch with an error, and not the process.
#pragma once
#include <signal.h>
#include "asynchronous.h"
#ifdef __linux__
#include <ucontext.h>
#endif

namespace simulator {
namespace {

// What a handler does that has found another in its place.
void pass_on(const struct sigaction& earlier, int signal, siginfo_t* info, void* context) {
    if (earlier.sa_flags & SA_SIGINFO)
        earlier.sa_sigaction(signal, info, context);
    else if (earlier.sa_handler != SIG_DFL && earlier.sa_handler != SIG_IGN)
        earlier.sa_handler(signal);
}

#ifdef __linux__
uintptr_t program_counter(void* context) {
    auto& registers = static_cast<ucontext_t*>(context)->uc_mcontext;
#if defined(__x86_64__)
    return registers.gregs[REG_RIP];
#else
    return registers.pc;
#endif
}

// Where a function that has just been entered returns to. Elsewhere it is any number.
uintptr_t return_address(void* context) {
    auto& registers = static_cast<ucontext_t*>(context)->uc_mcontext;
#if defined(__x86_64__)
    return *reinterpret_cast<const uintptr_t*>(registers.gregs[REG_RSP]);
#else
    return registers.regs[30];
#endif
}

// The interrupted thread of a kernel goes on with `function`, on an empty stack.
void go_on_at(void* context, void (*function)()) {
    auto& registers = static_cast<ucontext_t*>(context)->uc_mcontext;
    char* top = worker->stacks.any();
#if defined(__x86_64__)
    registers.gregs[REG_RSP] = reinterpret_cast<greg_t>(top) - 8;  // as after a call
    registers.gregs[REG_RIP] = reinterpret_cast<greg_t>(function);
#else
    registers.sp = reinterpret_cast<uintptr_t>(top);
    registers.pc = reinterpret_cast<uintptr_t>(function);
#endif
}

constexpr int fault_signals[] = {SIGSEGV, SIGBUS, SIGFPE, SIGILL};
struct sigaction earlier_action[NSIG];
thread_local int fault_signal;
thread_local void* fault_address;
thread_local bool is_wild_call, is_too_large;

// Whether what is divided is the least number of its type: then it is divided by -1, for the result
// is no number of that type, and that faults as a division by zero does. Only x86-64 faults at all.
bool divides_least_number([[maybe_unused]] void* context) {
#if defined(__x86_64__)
    const auto& registers = static_cast<ucontext_t*>(context)->uc_mcontext.gregs;
    const int64_t high = registers[REG_RDX], low = registers[REG_RAX];
    return (int32_t(high) == -1 && int32_t(low) == INT32_MIN) || (high == -1 && low == INT64_MIN);
#else
    return false;
#endif
}

// Where a faulting thread goes on, on an empty stack.
void after_fault() {
    const bool overflow = worker->stacks.is_guard(fault_address);
    worker->stacks.reset();
    if (overflow)
        worker->fail(cudaErrorLaunchFailure,
                     text("stack overflow: a thread's local variables take more than %zu KiB",
                          Stacks::size >> 10));
    if (fault_signal == SIGFPE)
        worker->fail(cudaErrorLaunchFailure,
                     is_too_large ? "integer division of the least number of a type by -1: the "
                                    "result is no number of that type"
                                  : "integer division by zero");
    if (fault_signal == SIGILL) worker->fail(cudaErrorIllegalInstruction, "illegal instruction");
    const char* what = is_wild_call ? "a call of a function" : "illegal memory access";
    worker->fail(cudaErrorIllegalAddress,
                 fault_address ? text("%s at address %p", what, fault_address)
                               : text("%s at the null pointer", what));
}

void on_fault(int signal, siginfo_t* info, void* context) {
    if (worker && worker->running) {
        fault_signal = signal;
        fault_address = info->si_addr;
        const uintptr_t at = program_counter(context);
        is_wild_call = signal == SIGSEGV && at == reinterpret_cast<uintptr_t>(fault_address);
        is_too_large = signal == SIGFPE && divides_least_number(context);
        if (watcher)
            failed_from = reinterpret_cast<void*>(is_wild_call ? return_address(context) : at + 1);
        go_on_at(context, after_fault);
        return;
    }
    const auto& earlier = earlier_action[signal];
    if (earlier.sa_flags & SA_SIGINFO ||
        (earlier.sa_handler != SIG_DFL && earlier.sa_handler != SIG_IGN))
        pass_on(earlier, signal, info, context);
    else
        sigaction(signal, &earlier,
                  nullptr);  // the instruction faults again, and the system ends the process
}

void catch_faults() {
    struct sigaction action = {};
    action.sa_sigaction = on_fault;
    action.sa_flags = SA_SIGINFO | SA_ONSTACK;
    for (int signal : fault_signals) sigaction(signal, &action, &earlier_action[signal]);
}

// A thread whose stack is full needs another one for the handler.
void provide_signal_stack() {
    stack_t current;
    if (sigaltstack(nullptr, &current) == 0 && !(current.ss_flags & SS_DISABLE)) return;
    stack_t stack = {};
    stack.ss_size = 64 << 10;
    stack.ss_sp = malloc(stack.ss_size);
    sigaltstack(&stack, nullptr);
}
#else
void catch_faults() {}
void provide_signal_stack() {}
#endif

}  // namespace
}  // namespace simulator
