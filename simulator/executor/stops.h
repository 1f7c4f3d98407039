// A launch that is to end at once, wherever its threads stand: in a loop without an end, too.
//
// Each worker gets a signal. If that finds it in the kernel's own code, the block is given up, as
// after a fault. If it finds it elsewhere, in the C library with a lock in its hand or in the
// executor, it does nothing, and the next one comes soon. Only what prints could hide there for
// long, so printing looks whether it is to stop: the linker sends a kernel's calls of printf here.
#pragma once
#include <atomic>
#include <mutex>
#include <vector>
#include "faults.h"
#include "libraries.h"

namespace simulator {
namespace {

struct Stop {
    std::atomic<bool> asked{false};  // of the launch that runs

    std::mutex mutex;
    std::string where;  // what the first thread that was stopped was doing; see simulator_take_stop

    void tell(const std::string& what) {
        std::lock_guard<std::mutex> lock(mutex);
        if (where.empty()) where = what;
    }

    std::string take() {
        std::lock_guard<std::mutex> lock(mutex);
        return std::exchange(where, {});
    }
} stopping;

#ifdef __linux__
// Of those that a process ignores by default: one that comes late does no harm.
constexpr int stop_signal = SIGURG;

// That of the kernel that is to stop. Nobody writes it while it is asked to.
LibraryCode stopped_code;

// Where the thread stood, and where that was called from: a call of another library leads through
// an entry of the linker's table, which is of no line.
thread_local uintptr_t stopped_at, stopped_caller;

// Where a stopped thread goes on, on an empty stack.
void after_stop() {
    Worker& self = *worker;
    const std::string thread = describe_thread(self);
    stopping.tell(describe(*self.launch) +
                  text("\nblock (%u, %u, %u), ", self.index.x, self.index.y, self.index.z) +
                  thread + "\n" + stopped_code.library.path +
                  text("\n%zx\n%zx", stopped_at - stopped_code.library.base,
                       stopped_caller - stopped_code.library.base));
    self.tell_where(stopped_code.holds(stopped_at) ? stopped_at : stopped_caller);
    self.stacks.reset();
    self.fail(cudaErrorLaunchFailure, thread + " was interrupted");
}

bool begin_to_leave_host(void* context);  // host_calls.h

struct sigaction earlier_stop_action;

void on_stop(int signal, siginfo_t* info, void* context) {
    const uintptr_t at = program_counter(context);
    if (worker && worker->running && stopping.asked && stopped_code.holds(at)) {
        const uintptr_t caller = return_address(context) - 1;  // in the call, not behind it
        stopped_at = at;
        stopped_caller = stopped_code.holds(caller) ? caller : at;
        go_on_at(context, after_stop, worker->stacks.any());
    } else if (!(worker && worker->running) && !begin_to_leave_host(context)) {
        pass_on(earlier_stop_action, signal, info, context);
    }
}

void catch_stops() {
    struct sigaction action = {}, found;
    action.sa_sigaction = on_stop;
    action.sa_flags = SA_SIGINFO | SA_ONSTACK | SA_RESTART;
    sigaction(stop_signal, &action, &found);
    if (found.sa_sigaction != on_stop) earlier_stop_action = found;
}

// What has to be known before workers get the signal.
void prepare_stop(const Launch& launch) {
    stopped_code = code_around(reinterpret_cast<const void*>(launch.run_threads));
    catch_stops();
}

void send_stop(pthread_t thread) { pthread_kill(thread, stop_signal); }

}  // namespace

// For code of the runtime's, where no signal stops it.
void stop_if_asked(uintptr_t next) {
    if (!stopping.asked || !worker || !worker->running) return;
    stopped_at = stopped_caller = next - 1;
    after_stop();
}

namespace {

// The thread has printed, and is to go on at `address`.
void after_print(const void* address) { stop_if_asked(reinterpret_cast<uintptr_t>(address)); }
#else
// Blocks that have begun run to their end.
void prepare_stop(const Launch&) {}
void send_stop(pthread_t) {}
}  // namespace
void stop_if_asked(uintptr_t) {}
namespace {
#endif

}  // namespace

bool is_stopping() { return stopping.asked; }
bool is_dropped() { return stopping.asked && !time_limit.is_over; }

// Of a thread of a kernel in a launch that is repeated; the host's threads print all the same.
static bool has_printed_before() { return is_repeating && worker && worker->running; }

}  // namespace simulator

#ifdef __linux__
// What a compiler makes of printf.

// A wrong format may end the kernel while its text is made: before the file is locked for others.
static int print_text(const char* format, va_list arguments) {
    va_list again;
    va_copy(again, arguments);
    char few[512];
    const int count = vsnprintf(few, sizeof few, format, arguments);
    if (count < int(sizeof few)) {
        if (count > 0) fwrite(few, 1, count, stdout);
    } else {
        std::vector<char> all(count + 1);
        vsnprintf(all.data(), all.size(), format, again);
        fwrite(all.data(), 1, count, stdout);
    }
    va_end(again);
    return count;
}

extern "C" SIMULATOR_EXPORT int __wrap_printf(const char* format, ...) {
    if (simulator::has_printed_before()) return 0;
    va_list arguments;
    va_start(arguments, format);
    const int count = print_text(format, arguments);
    va_end(arguments);
    simulator::after_print(__builtin_return_address(0));
    return count;
}

extern "C" SIMULATOR_EXPORT int __wrap___printf_chk(int, const char* format, ...) {
    if (simulator::has_printed_before()) return 0;
    va_list arguments;
    va_start(arguments, format);
    const int count = print_text(format, arguments);
    va_end(arguments);
    simulator::after_print(__builtin_return_address(0));
    return count;
}

extern "C" SIMULATOR_EXPORT int __wrap_puts(const char* line) {
    if (simulator::has_printed_before()) return 0;
    const int count = fprintf(stdout, "%s\n", line);
    simulator::after_print(__builtin_return_address(0));
    return count;
}

extern "C" SIMULATOR_EXPORT int __wrap_putchar(int character) {
    if (simulator::has_printed_before()) return 0;
    const int written = fputc(character, stdout);
    simulator::after_print(__builtin_return_address(0));
    return written;
}
#endif
