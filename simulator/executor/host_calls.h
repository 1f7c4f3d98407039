// A function of the host that Python calls: what would end the process ends the call with an error.
//
// Python calls it through an entry that notes where the call is to return. After a fault, exit(),
// abort() or an exception that nobody catches the call returns there at once; destructors between
// are not run. The function runs on a stack of its own (host_stacks.h), so a write past the end of
// a local array leaves Python's frames alone. Where PyTorch calls a binding its own frames must not
// be left like that: there exit() and abort() throw an exception.
#pragma once
#include <stdlib.h>
#include <exception>
#include <stdexcept>
#include "host_stacks.h"
#include "interrupts.h"

namespace simulator {
namespace {

#if defined(__linux__) && defined(__x86_64__)
constexpr bool has_host_calls = true;

// What a call has to find again when it returns; the code below knows where each lies.
struct Landing {
    uintptr_t rbx, rbp, r12, r13, r14, r15, stack, returns_to;
    uintptr_t function, enters_at;
    uintptr_t arguments[6];  // those that are in registers, for what they may point to
    HostCall outer;
};
thread_local std::vector<Landing> landings;
thread_local HostStacks host_stacks;

// The code that Python calls in a function's place, and what it is to call.
struct [[gnu::packed]] Entry {
    uint16_t mov_r11 = 0xBB49;
    const Entry* self = this;
    uint16_t mov_r10 = 0xBA49;
    void (*enter)();
    uint32_t jmp_r10 = 0x90E2FF41;
    int words;  // of arguments, at most, that the caller puts on the stack; -1: it runs there
    const void* function;
    char unused[12];
};
static_assert(sizeof(Entry) == 48);

// Where a function is entered: below the words that its caller has put on the stack.
uintptr_t entered_at(uintptr_t stack, uintptr_t top, size_t words) {
    if (!top) return stack;
    const uintptr_t at = top - (words + 1) / 2 * 2 * sizeof(uintptr_t);
    memcpy(reinterpret_cast<void*>(at), reinterpret_cast<const uintptr_t*>(stack) + 1,
           words * sizeof(uintptr_t));
    return at - sizeof(uintptr_t);
}

void land_after_fault();

// That a function of the host failed, with no line of it.
void tell_function(uintptr_t function) {
    const LibraryCode code = code_around(reinterpret_cast<const void*>(function));
    told_fault.take();
    told_fault.tell("", 0, code.library.path, function - code.library.base);
}

extern "C" {
Landing* simulator_land(const Entry* entry, uintptr_t stack, const uintptr_t* arguments) {
    provide_signal_stack();
    const auto function = reinterpret_cast<uintptr_t>(entry->function);
    const HostStack on = entry->words < 0 ? HostStack() : host_stacks.at(landings.size());
    landings.push_back({.stack = stack,
                        .function = function,
                        .enters_at = entered_at(stack, on.top, entry->words),
                        .outer = host_call});
    std::copy_n(arguments, 6, landings.back().arguments);
    constexpr uintptr_t red_zone = 128;
    host_call = {on.top ? stack - red_zone : stack - near, land_after_fault, function, on};
    interrupts->enter_host(function);
    return &landings.back();
}

// `kept`: the registers that a function has to leave as they were, or null where it has not
// returned.
const Landing* simulator_landed(const uintptr_t* kept) {
    static thread_local Landing last;
    last = landings.back();
    host_call = last.outer;
    interrupts->leave_host(host_call.function);
    if (kept && memcmp(kept, &last, 6 * sizeof *kept)) {
        tell_function(last.function);
        record({cudaErrorIllegalAddress,
                "the host's code: a local array was written past its end: the function came back "
                "with other registers than it was called with"});
    }
    for (const uintptr_t argument : last.arguments) {
        GuardedMemory::Island of;
        const uintptr_t at = guarded.damage(argument, of);
        if (!at) continue;
        told_fault.tell("writes", at, "", 0);
        record({cudaErrorIllegalAddress,
                "the host's code: illegal memory access: it writes" + where_is(at)});
    }
    landings.pop_back();
    return &last;
}
void simulator_enter();
[[noreturn]] void simulator_return(const Landing*);
}

// simulator_enter: as the function of the Entry whose address is in r11, with its arguments. It
// puts the address of its own end in the place of the one to which the call returns.
__asm__(R"(
    .text
    .type simulator_enter, @function
simulator_enter:
    push %rbp
    mov %rsp, %rbp
    sub $208, %rsp
    mov %rdi, 0(%rsp)
    mov %rsi, 8(%rsp)
    mov %rdx, 16(%rsp)
    mov %rcx, 24(%rsp)
    mov %r8, 32(%rsp)
    mov %r9, 40(%rsp)
    mov %rax, 48(%rsp)
    mov %r11, 56(%rsp)
    movups %xmm0, 64(%rsp)
    movups %xmm1, 80(%rsp)
    movups %xmm2, 96(%rsp)
    movups %xmm3, 112(%rsp)
    movups %xmm4, 128(%rsp)
    movups %xmm5, 144(%rsp)
    movups %xmm6, 160(%rsp)
    movups %xmm7, 176(%rsp)
    mov %r11, %rdi
    lea 8(%rbp), %rsi
    mov %rsp, %rdx
    call simulator_land
    mov %rbx, 0(%rax)
    mov 0(%rbp), %rdx
    mov %rdx, 8(%rax)
    mov %r12, 16(%rax)
    mov %r13, 24(%rax)
    mov %r14, 32(%rax)
    mov %r15, 40(%rax)
    mov 8(%rbp), %rdx
    mov %rdx, 56(%rax)
    mov 64(%rax), %r11
    mov 72(%rax), %r10
    lea 1f(%rip), %rdx
    mov %rdx, 0(%r10)
    mov 0(%rsp), %rdi
    mov 8(%rsp), %rsi
    mov 16(%rsp), %rdx
    mov 24(%rsp), %rcx
    mov 32(%rsp), %r8
    mov 40(%rsp), %r9
    mov 48(%rsp), %rax
    movups 64(%rsp), %xmm0
    movups 80(%rsp), %xmm1
    movups 96(%rsp), %xmm2
    movups 112(%rsp), %xmm3
    movups 128(%rsp), %xmm4
    movups 144(%rsp), %xmm5
    movups 160(%rsp), %xmm6
    movups 176(%rsp), %xmm7
    leave
    mov %r10, %rsp
    jmp *%r11
1:
    sub $80, %rsp
    mov %rbx, 0(%rsp)
    mov %rbp, 8(%rsp)
    mov %r12, 16(%rsp)
    mov %r13, 24(%rsp)
    mov %r14, 32(%rsp)
    mov %r15, 40(%rsp)
    mov %rax, 48(%rsp)
    movups %xmm0, 64(%rsp)
    mov %rsp, %rdi
    call simulator_landed
    mov %rax, %rdi
    mov 48(%rsp), %rax
    movups 64(%rsp), %xmm0
    jmp 2f
    .type simulator_return, @function
simulator_return:
    xor %eax, %eax
    pxor %xmm0, %xmm0
2:
    mov 0(%rdi), %rbx
    mov 8(%rdi), %rbp
    mov 16(%rdi), %r12
    mov 24(%rdi), %r13
    mov 32(%rdi), %r14
    mov 40(%rdi), %r15
    mov 48(%rdi), %rsp
    mov 56(%rdi), %r11
    add $8, %rsp
    jmp *%r11
)");

// why: the error that its caller gets; "" for none.
[[noreturn]] void leave_call(const std::string& why) {
    const Landing* const last = simulator_landed(nullptr);
    if (!why.empty()) record({cudaErrorUnknown, "the host's code: " + why});
    simulator_return(last);
}

// On the stack that the function has left.
void land_after_fault() {
    const LibraryCode around = code_around(reinterpret_cast<const void*>(fault.at));
    const bool is_foreign = !around.end || strstr(around.library.path.c_str(), "/libc.so");
    const bool is_overflow = overflows_host_stack();
    const LibraryCode of_host =
        is_foreign ? code_around(reinterpret_cast<const void*>(landings.back().function)) : around;
    const std::string overflow = is_overflow ? what_overflowed("the host's stack") : "";
    told_fault.take();
    tell_fault(of_host, is_overflow);
    leave_call(what_failed(overflow).message);
}

// ---- a function that is to be left after an interrupt
//
// The main thread gets a signal. In the function's own code it leaves it at once. Elsewhere, in the
// C library with a lock in its hand or in the runtime, it goes on step by step, by the processor's
// trap flag, until it is back there.

LibraryCode left_code;  // nobody writes it while a function is to be left
struct sigaction earlier_trap_action;
thread_local int steps_left = 0;

void land_after_interrupt() {
    stopping.tell("the host's code\n\n" + left_code.library.path +
                  text("\n%zx", fault.at - left_code.library.base));
    leave_call("");
}

// Whether the next instruction enters the system to block signals or to begin another process or
// thread: there a trap would end the process.
bool is_before_blocking(const greg_t* registers) {
    constexpr uint16_t syscall = 0x050F;
    if (*reinterpret_cast<const uint16_t*>(registers[REG_RIP]) != syscall) return false;
    for (const long number : {SYS_rt_sigprocmask, SYS_clone, SYS_clone3, SYS_fork, SYS_vfork,
                              SYS_execve, SYS_rt_sigreturn})
        if (registers[REG_RAX] == number) return true;
    return false;
}

void step_out_of_host(void* context) {
    constexpr greg_t trap = 0x100;
    auto& registers = static_cast<ucontext_t*>(context)->uc_mcontext.gregs;
    registers[REG_EFL] &= ~trap;
    if (!interrupts->leaves_host()) {
        steps_left = 0;
    } else if (left_code.holds(registers[REG_RIP])) {
        steps_left = 0;
        fault.at = registers[REG_RIP];
        go_on_at(context, land_after_interrupt, host_call.landing());
    } else if (steps_left && !is_before_blocking(registers)) {
        steps_left--;
        registers[REG_EFL] |= trap;
    } else {
        steps_left = 0;
    }
}

void on_trap(int signal, siginfo_t* info, void* context) {
    if (!steps_left) return pass_on(earlier_trap_action, signal, info, context);
    const int error = errno;
    step_out_of_host(context);
    errno = error;
}

// From the handler of `stop_signal`, in a thread that runs no kernel.
bool begin_to_leave_host(void* context) {
    if (steps_left || !host_call.stack || !interrupts->leaves_host()) return false;
    steps_left = 100'000;
    step_out_of_host(context);
    return true;
}

void prepare_to_leave_host(uintptr_t function) {
    left_code = code_around(reinterpret_cast<const void*>(function));
    catch_stops();
    struct sigaction action = {}, found;
    action.sa_sigaction = on_trap;
    action.sa_flags = SA_SIGINFO | SA_ONSTACK;
    sigaction(SIGTRAP, &action, &found);
    if (found.sa_sigaction != on_trap) earlier_trap_action = found;
}

// The entry of a function; itself where there can be none.
const void* entry_of(const void* function, int words) {
    static std::mutex mutex;
    static Entry* free = nullptr;
    static size_t left = 0;
    std::lock_guard<std::mutex> lock(mutex);
    const size_t page = sysconf(_SC_PAGESIZE);
    if (!left) {
        void* found = mmap(
            nullptr, page, PROT_READ | PROT_WRITE | PROT_EXEC, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
        if (found == MAP_FAILED) return function;
        free = static_cast<Entry*>(found);
        left = page / sizeof(Entry);
    }
    left--;
    return new (free++) Entry{.enter = simulator_enter, .words = words, .function = function};
}

bool may_leave() { return host_call.stack; }
bool is_fork_of_call() { return !landings.empty() && !host_call.stack; }
#else
const void* entry_of(const void* function, int) { return function; }
bool may_leave() { return false; }
bool is_fork_of_call() { return false; }
bool begin_to_leave_host(void*) { return false; }
void prepare_to_leave_host(uintptr_t) {}
[[noreturn]] void leave_call(const std::string&) { abort(); }
#endif

void end_call(const std::string& why) {
    if (may_leave()) leave_call(why);
}

std::terminate_handler earlier_terminate;

void on_terminate() {
    if (!may_leave() || (worker && worker->running)) return earlier_terminate();
    std::string said = "an exception that nobody catches";
    try {
        if (std::current_exception()) std::rethrow_exception(std::current_exception());
    } catch (const std::exception& error) {
        said += std::string(": ") + error.what();
    } catch (...) {
    }
    leave_call(said);
}

struct ForTerminate {
    ForTerminate() { earlier_terminate = std::set_terminate(on_terminate); }
} for_terminate;

}  // namespace
}  // namespace simulator
