// A kernel that touches what it must not ends its launch with an error, and not the process.
#pragma once
#include <signal.h>
#include <unwind.h>
#include "asynchronous.h"
#include "guarded_memory.h"
#include "host_stacks.h"
#include "libraries.h"
#ifdef __linux__
#include <ucontext.h>
#endif

namespace simulator {
namespace {

constexpr uintptr_t no_address = ~uintptr_t(0);
// Bytes: a fault so near to the end of the stack overflows it, and so near to address 0 it is at an
// element of a null pointer.
constexpr uintptr_t near = 64 << 10;

// In words, with the memory that it is nearest to.
std::string where_is(uintptr_t address) {
    if (address == no_address) return " at an address that no memory has";
    if (!address) return " at the null pointer";
    const std::string at = text(" at address 0x%zx", address);
    if (address < near) return at + ": an element of a null pointer";
    if (const size_t bytes = guarded.closed_at(address))
        return at + text(", in memory of %zu bytes that has been freed", bytes);
    const GuardedMemory::Island nearest = guarded.find(address);
    constexpr size_t far = size_t(1) << 30;
    if (!nearest.bytes || GuardedMemory::distance(nearest, address) > far)
        return at + ", far from all memory that a kernel is given";
    const size_t past = address - nearest.begin - nearest.bytes;
    if (address >= nearest.begin + nearest.bytes)
        return at + text(", %zu bytes past the end of memory of %zu bytes", past, nearest.bytes);
    return at +
           text(", %zu bytes before memory of %zu bytes", nearest.begin - address, nearest.bytes);
}

// What is known of the first fault that nobody has asked for: see simulator_take_fault.
class ToldFault {
  public:
    // `access`: "reads", "writes" or "uses"; "" where it is no access.
    void tell(const char* access, uintptr_t address, const std::string& library, size_t offset) {
        std::lock_guard<std::mutex> lock(mutex);
        if (said.empty()) said = text("%s\n%zx\n%s\n%zx", access, address, library.c_str(), offset);
        is_there = true;
    }

    std::string take() {
        if (!is_there.exchange(false)) return {};
        std::lock_guard<std::mutex> lock(mutex);
        return std::exchange(said, {});
    }

  private:
    std::mutex mutex;
    std::atomic<bool> is_there{false};
    std::string said;
} told_fault;

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

uintptr_t stack_pointer(void* context) {
    auto& registers = static_cast<ucontext_t*>(context)->uc_mcontext;
#if defined(__x86_64__)
    return registers.gregs[REG_RSP];
#else
    return registers.sp;
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

// The interrupted thread goes on with `function`, on a stack that ends at `top`.
void go_on_at(void* context, void (*function)(), char* top) {
    auto& registers = static_cast<ucontext_t*>(context)->uc_mcontext;
#if defined(__x86_64__)
    registers.gregs[REG_RSP] = reinterpret_cast<greg_t>(top) - 8;  // as after a call
    registers.gregs[REG_RIP] = reinterpret_cast<greg_t>(function);
#else
    registers.sp = reinterpret_cast<uintptr_t>(top);
    registers.pc = reinterpret_cast<uintptr_t>(function);
#endif
}

// Whether it was about to write, as far as the processor tells.
const char* access_of([[maybe_unused]] void* context) {
#if defined(__x86_64__)
    const bool writes = static_cast<ucontext_t*>(context)->uc_mcontext.gregs[REG_ERR] & 2;
    return writes ? "writes" : "reads";
#else
    return "uses";
#endif
}

// Whether the instruction is one that returns from a function.
bool returns([[maybe_unused]] uintptr_t at) {
#if defined(__x86_64__)
    return *reinterpret_cast<const unsigned char*>(at) == 0xC3;
#else
    return false;
#endif
}

constexpr int fault_signals[] = {SIGSEGV, SIGBUS, SIGFPE, SIGILL, SIGABRT};
struct sigaction earlier_action[NSIG];

struct Fault {
    int signal;
    void* address;           // all ones where the processor does not tell
    uintptr_t at, stack_at;  // the instruction, and the end of the stack then
    const char* access;
    bool is_wild_call, is_too_large, is_above_stack;
    uintptr_t stack[512];  // what was on it
    unsigned on_stack;
    uintptr_t recursion;  // a call that has been made again and again, and is open; 0 if none
};
thread_local Fault fault;

// From a handler: calls visit(at, stack) for what is interrupted at fault.at and who has called it,
// outwards, while it returns true: the next instruction there, and where its part of the stack
// ends. A word on the stack does not do: what earlier calls have left is there still.
template <class Visit>
void for_each_open_call(Visit visit) {
    struct Walk {
        Visit& visit;
        bool is_there;  // the handler's own calls come first
    } walk{visit, false};
    _Unwind_Backtrace(
        [](_Unwind_Context* frame, void* data) {
            auto& walk = *static_cast<Walk*>(data);
            const uintptr_t at = _Unwind_GetIP(frame);
            walk.is_there = walk.is_there || at == fault.at;
            const bool goes_on = !walk.is_there || walk.visit(at, _Unwind_GetCFA(frame));
            return goes_on ? _URC_NO_REASON : _URC_END_OF_STACK;
        },
        &walk);
}

// From a handler. `code`: some of the user's library.
void note_recursion(uintptr_t code) {
    const CodeBounds bounds = bounds_around(code);
    struct {
        uintptr_t returns_to;
        unsigned count;
    } seen[8] = {};
    unsigned own = 0, others = 0;
    for_each_open_call([&](uintptr_t at, uintptr_t) {
        if (!bounds.holds(at))
            return own == 0 && ++others < 64;  // what they call, or who they are called by
        for (auto& it : seen)
            if (it.returns_to == at || !it.returns_to) {
                it.returns_to = at, it.count++;
                break;
            }
        return ++own < 512;
    });
    constexpr unsigned many = 8;
    for (const auto& it : seen)
        if (it.count >= many) fault.recursion = it.returns_to - 1;
}

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

// The kernel's own instruction that faulted, or called what did: the first address of its code on
// the stack is nearly always that to which the call returns.
uintptr_t place_of_fault(const LibraryCode& code) {
    if (code.holds(fault.at)) return fault.at;
    for (unsigned i = 0; i < fault.on_stack; i++)
        if (code.holds(fault.stack[i])) return fault.stack[i] - 1;
    return 0;
}

// What has filled a stack. Of a recursion its call, in the user's file, becomes the place.
std::string what_overflowed(const std::string& stack) {
    if (!fault.recursion)
        return "the local variables take more than " + stack +
               ". A large array belongs into memory that the function is given";
    fault.at = fault.recursion;
    return "recursion: a function calls itself, directly or by another one, until " + stack +
           " is full. Give it a condition that ends it, or write a loop";
}

// What to say of the fault. overflow: what filled the stack; "" where nothing has.
Error what_failed(const std::string& overflow) {
    if (!overflow.empty()) return {cudaErrorLaunchFailure, "stack overflow: " + overflow};
    if (fault.signal == SIGFPE)
        return {cudaErrorLaunchFailure,
                fault.is_too_large ? "integer division of the least number of a type by -1: the "
                                     "result is no number of that type"
                                   : "integer division by zero"};
    if (fault.signal == SIGABRT)
        return {cudaErrorLaunchFailure,
                "it was aborted, by a failed assertion or by the C library, which prints why"};
    if (fault.signal == SIGILL) return {cudaErrorIllegalInstruction, "illegal instruction"};
    if (fault.is_wild_call && uintptr_t(fault.address) == no_address)
        return {cudaErrorIllegalAddress,
                "a return to an address that no memory has: a local array was written past its "
                "end"};
    if (fault.is_wild_call)
        return {cudaErrorIllegalAddress,
                text("a call of a function at %s0x%zx, where there is none: a wrong pointer, or a "
                     "local array was written past its end",
                     fault.address ? "address " : "the null pointer, ", uintptr_t(fault.address))};
    const auto address = uintptr_t(fault.address);
    if (fault.is_above_stack)
        return {cudaErrorIllegalAddress,
                text("illegal memory access at address 0x%zx, past the end of the stack: an index "
                     "past the end of a local array",
                     address)};
    return {cudaErrorIllegalAddress, "illegal memory access" + where_is(address)};
}

// Tells Python of it.
void tell_fault(const LibraryCode& code, bool is_overflow) {
    const uintptr_t place = place_of_fault(code);
    const bool is_access =
        !is_overflow && !fault.is_wild_call && (fault.signal == SIGSEGV || fault.signal == SIGBUS);
    told_fault.tell(is_access ? fault.access : "", uintptr_t(is_access ? fault.address : nullptr),
                    place ? code.library.path : "", place - code.library.base);
}

// Where a faulting thread of a kernel goes on, on an empty stack.
void after_fault() {
    const bool is_overflow = worker->stacks.is_guard(fault.address);
    const auto of_kernel = code_around(reinterpret_cast<const void*>(worker->launch->run_threads));
    const std::string overflow =
        is_overflow ? what_overflowed(text("a thread's stack of %zu KiB", Stacks::size >> 10)) : "";
    tell_fault(of_kernel, is_overflow);
    worker->stacks.reset();
    const auto [code, message, _, __] = what_failed(overflow);
    worker->fail(code, describe_thread(*worker) + ": " + message);
}

// The host's function that Python has called on this thread, if it may be left in its middle.
struct HostCall {
    uintptr_t stack = 0;  // of the caller: what leaves the call runs there
    void (*after_fault)();
    uintptr_t function;
    HostStack on;  // the function's own

    char* landing() const { return reinterpret_cast<char*>(stack & ~15ul); }
    uintptr_t top() const { return on.top ? on.top : stack + near; }
};
thread_local HostCall host_call;

// Of that function; empty if it runs on its thread's.
Memory own_stack() { return host_call.on.memory(); }

// The bytes from a local variable of that function to where the part of the stack begins that is
// not its own; of other memory, all that there are.
size_t left_on_stack(const void* at) {
    const uintptr_t end = host_call.top();
    const bool is_local = host_call.stack && at > __builtin_frame_address(0);
    return is_local && uintptr_t(at) < end ? end - uintptr_t(at) : SIZE_MAX;
}

void note_fault(int signal, const siginfo_t* info, void* context) {
    const uintptr_t at = program_counter(context);
    const bool is_memory = signal == SIGSEGV || signal == SIGBUS;
    const bool is_untold = is_memory && info->si_code == SI_KERNEL;
    fault.signal = signal;
    fault.address = is_untold ? reinterpret_cast<void*>(no_address) : info->si_addr;
    fault.access = access_of(context);
    fault.is_wild_call =
        signal == SIGSEGV &&
        (at == reinterpret_cast<uintptr_t>(fault.address) || (is_untold && returns(at)));
    fault.is_too_large = signal == SIGFPE && divides_least_number(context);
    fault.is_above_stack =
        !(worker && worker->running) && host_call.on.is_above(uintptr_t(fault.address));
    fault.at = fault.is_wild_call ? return_address(context) - 1 : at;
    fault.stack_at = stack_pointer(context);
    fault.on_stack = 0;
    fault.recursion = 0;
}

// Of a fault in a function of the host.
bool overflows_host_stack() {
    const auto address = uintptr_t(fault.address);
    if (fault.signal != SIGSEGV) return false;
    return host_call.on.top ? host_call.on.is_below(address)
                            : address - fault.stack_at + near < 2 * near;
}

// Whether the stack has come as far as the page that is closed: else something else got there,
// which may have spoilt what an unwinder reads.
bool is_at_end_of_stack() {
    constexpr uintptr_t page = 4096;
    return fault.stack_at - uintptr_t(fault.address) / page * page < 2 * page;
}

template <class IsOn>
void note_stack(IsOn is_on) {
    const auto* word = reinterpret_cast<const uintptr_t*>(fault.stack_at);
    while (fault.on_stack < std::size(fault.stack) && is_on(word))
        fault.stack[fault.on_stack++] = *word++;
}

void on_fault(int signal, siginfo_t* info, void* context) {
    if (worker && worker->running) {
        note_fault(signal, info, context);
        note_stack([](const void* at) { return worker->stacks.is_on(at); });
        if (worker->stacks.is_guard(fault.address) && is_at_end_of_stack())
            note_recursion(uintptr_t(worker->launch->run_threads));
        if (watcher) failed_from = reinterpret_cast<void*>(fault.at + 1);
        go_on_at(context, after_fault, worker->stacks.any());
        return;
    }
    if (host_call.stack) {
        note_fault(signal, info, context);
        if (overflows_host_stack())
            note_recursion(host_call.function);
        else
            note_stack([](const uintptr_t* at) { return uintptr_t(at) < host_call.top(); });
        go_on_at(context, host_call.after_fault, host_call.landing());
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
    static thread_local bool is_there = false;  // to ask the system takes a tenth of a launch
    if (std::exchange(is_there, true)) return;
    stack_t current;
    if (sigaltstack(nullptr, &current) == 0 && !(current.ss_flags & SS_DISABLE)) return;
    stack_t stack = {};
    stack.ss_size = 64 << 10;
    stack.ss_sp = malloc(stack.ss_size);
    sigaltstack(&stack, nullptr);
}
#else
void catch_faults() {}
Memory own_stack() { return {}; }
size_t left_on_stack(const void*) { return SIZE_MAX; }
void provide_signal_stack() {}
#endif

}  // namespace
}  // namespace simulator

// The access that failed first ("reads", "writes", "uses" or nothing), its address, and the library
// and the offset there of the instruction, each on a line; empty if nothing has.
extern "C" SIMULATOR_EXPORT const char* simulator_take_fault() {
    static thread_local std::string said;
    said = simulator::told_fault.take();
    return said.c_str();
}
