// Ctrl-C, or a notebook's stop button, while a launch runs.
//
// Python's own handler only notes the signal, for the interpreter to see when the call is over. So
// while there are launches another one stands before it. It tells a thread, which stops the launch
// (stops.h) and has Python raise the interrupt when the call returns, with the place where the
// kernel stood. A launch that is stopped so reports no error: the interrupt takes its place.
//
// Putting a handler up for each launch would cost more than a small launch. It is put up for the
// first one, and taken down when there has been none for a while. The thread looks now and then
// whether it still stands: Python replaces it when a program, or Jupyter before a cell, sets one.
//
// A signal that comes just before a launch finds no launch, and goes to Python's handler; Python
// would look at what that has noted after the launch, which may be endless. So a launch that begins
// after such a signal asks Python, and takes the interrupt over.
//
// A function of the host that Python calls is interrupted like a launch. If it does not end soon,
// as one that launches on after its first launch was stopped does, it is left where it stands in
// its own code (host_calls.h).
#pragma once
#include <errno.h>
#include <fcntl.h>
#include <poll.h>
#include <sys/syscall.h>
#include <unistd.h>
#include "pool.h"

namespace simulator {
namespace {

// What is called by name in Python's C API, and a function of Python's that raises the interrupt.
struct {
    int (*Py_AddPendingCall)(int (*)(void*), void*) = nullptr;
    void* (*PyObject_CallNoArgs)(void*);
    int (*PyGILState_Ensure)();
    void (*PyGILState_Release)(int);
    int (*PyOS_InterruptOccurred)();
    void* raise;
} python;

bool is_main_thread() {
#ifdef __APPLE__
    return pthread_main_np();
#else
    return syscall(SYS_gettid) == getpid();
#endif
}
thread_local const bool on_main_thread = is_main_thread();

void prepare_to_leave_host(uintptr_t function);  // host_calls.h
void send_stop(pthread_t thread);                // stops.h

struct sigaction earlier_interrupt;  // what stood there before ours
void on_interrupt(int signal, siginfo_t* info, void* context);

class Interrupts {
  public:
    // A launch begins, and ends.
    void enter() {
        on_main_thread ? void(in_main = true) : void(in_others++);
        if (!awake) wake();
        if (on_main_thread) {
            while (in_handler) std::this_thread::yield();  // on another thread
            if (may_be_noted && may_be_noted.exchange(false)) take_over();
        }
    }

    void leave() {
        on_main_thread ? in_main.store(false, std::memory_order_release) : void(in_others--);
    }

    // A function of the host that Python calls begins; and it ends, with another one (or none: 0)
    // that has called it by way of Python.
    void enter_host(uintptr_t function) {
        if (!on_main_thread) return;
        main_thread = pthread_self();
        in_host = function;
        if (!awake) wake();
    }

    void leave_host(uintptr_t outer) {
        if (on_main_thread) in_host = outer;
    }

    // Whether the thread is in a function that is to be left, and not in a launch, which has locks.
    bool leaves_host() const { return on_main_thread && is_leaving && !in_main && in_host; }

    // Whether Python is about to raise an interrupt in this thread.
    bool will_raise() const { return on_main_thread && is_pending; }

    // Python raises it now.
    void raised() { is_pending = false; }

    // From the handler. It is Python's, too, unless the main thread launches, waits for others to
    // have launched, or is in a function of the host's.
    void notice(int signal, siginfo_t* info, void* context) {
        in_handler++;
        if ((in_main || in_host) && python.raise) {
            tell(Main);
        } else {
            if (is_there_any()) tell(Other);
            pass_on(earlier_interrupt, signal, info, context);
            may_be_noted = true;
        }
        in_handler--;
    }

  private:
    enum News : char { Wake, Main, Other };
    static constexpr int tick = 20;  // ms
    static constexpr int patience = 1000 / tick;
    static constexpr int long_launch = 10;  // seconds
    static constexpr int grace = 2000;      // turns of 100 us in which a function may end by itself

    void wake() {
        std::lock_guard<std::mutex> lock(mutex);
        if (awake) return;
        if (channel[0] < 0) {
            if (pipe(channel) != 0) return;  // out of files: this launch cannot be stopped
            for (int end : channel) {
                fcntl(end, F_SETFD, FD_CLOEXEC);
                fcntl(end, F_SETFL, O_NONBLOCK);
            }
            std::thread([this] { listen(); }).detach();
        }
        put_up();
        awake = true;
        tell(Wake);
    }

    void tell(News news) { [[maybe_unused]] const auto written = write(channel[1], &news, 1); }

    // An interrupt that Python has noted and not yet raised is one of the launch that begins.
    void take_over() {
        if (!python.raise) return;
        const int state = python.PyGILState_Ensure();
        const bool is_noted = python.PyOS_InterruptOccurred();  // and Python forgets it
        python.PyGILState_Release(state);
        if (is_noted) tell(Main);
    }

    // Before a handler of Python's or another's; not where the signal is ignored or ends the
    // process.
    void put_up() {
        struct sigaction found;
        sigaction(SIGINT, nullptr, &found);
        if (found.sa_sigaction == on_interrupt || found.sa_handler == SIG_DFL ||
            found.sa_handler == SIG_IGN)
            return;
        struct sigaction action = {};
        action.sa_sigaction = on_interrupt;
        action.sa_flags = SA_SIGINFO | SA_ONSTACK | (found.sa_flags & SA_RESTART);
        earlier_interrupt = found;
        sigaction(SIGINT, &action, nullptr);
        may_be_noted = true;
    }

    static void take_down() {
        struct sigaction found;
        sigaction(SIGINT, nullptr, &found);
        if (found.sa_sigaction == on_interrupt) sigaction(SIGINT, &earlier_interrupt, nullptr);
    }

    void listen() {
        sigset_t all;
        sigfillset(&all);
        pthread_sigmask(SIG_BLOCK, &all, nullptr);
        pollfd news{channel[0], POLLIN, 0};
        for (;;) {
            poll(&news, 1, awake ? tick : -1);
            for (char byte; read(channel[0], &byte, 1) == 1;)
                if (byte != Wake) stop_launches(byte == Main);
            if (awake) look_around();
        }
    }

    bool is_there_any() const { return in_main || in_others || in_host; }

    // Of a check whose time is over.
    void stop_late_launch() {
        const uint64_t changes = pool->changes();
        if (!time_limit.is_exceeded()) return;
        time_limit.is_over = true;
        while (pool->is_running() && pool->changes() == changes) {
            pool->stop();
            usleep(100);
        }
    }

    // A kernel that never ends would run in silence.
    void tell_of_long_launch() {
        const auto now = std::chrono::steady_clock::now();
        if (pool->changes() != running) {
            running = pool->changes(), running_from = now, is_told = false;
        } else if (!is_told && !watcher && now - running_from > std::chrono::seconds(long_launch)) {
            is_told = true;
            if (const std::string launch = pool->running_since(running); !launch.empty())
                fprintf(
                    stderr, "%s: it has run for %d seconds; %s it\n", launch.c_str(), long_launch,
                    python.raise ? "Ctrl-C, or the notebook's Stop button, ends" : "Ctrl-C ends");
        }
    }

    void look_around() {
        stop_late_launch();
        tell_of_long_launch();
        pool->relieve(400 / tick);
        std::lock_guard<std::mutex> lock(mutex);
        const bool is_idle = pool->changes() == seen && !is_there_any();
        seen = pool->changes();
        idle = is_idle ? idle + 1 : 0;
        if (idle < patience) return put_up();
        awake = false;
        if (!is_there_any()) return take_down();
        awake = true;  // one that has come meanwhile, and has not woken us
        put_up();
    }

    // With the main thread in a launch, whatever it launches is stopped until Python has it back: a
    // call may launch more than once. Elsewhere one launch is, and its host thread gets an error.
    void stop_launches(bool is_mains) {
        stopping.take();
        if (is_mains) {
            is_pending = true;
            const auto raise = [](void*) {
                return python.PyObject_CallNoArgs(python.raise) ? 0 : -1;
            };
            if (python.Py_AddPendingCall(raise, nullptr) != 0) {  // its queue is full
                is_pending = is_mains = false;
                pass_on(earlier_interrupt, SIGINT, nullptr, nullptr);
            }
        }
        const uint64_t changes = pool->changes();
        for (int turn = 0; is_mains ? bool(is_pending) : pool->changes() == changes; turn++) {
            pool->stop();
            if (is_mains) leave_host_after(turn);
            usleep(100);
        }
        is_leaving = false;
    }

    void leave_host_after(int turn) {
        const uintptr_t function = in_host;
        if (!function || turn < grace || turn % 10) return;
        if (!is_leaving) prepare_to_leave_host(function);
        is_leaving = true;
        send_stop(main_thread);
    }

    std::atomic<bool> in_main{false}, awake{false}, is_pending{false}, may_be_noted{false};
    std::atomic<bool> is_leaving{false};
    std::atomic<uintptr_t> in_host{0};  // the main thread's function of the host's
    pthread_t main_thread{};
    std::atomic<int> in_others{0}, in_handler{0};
    int channel[2] = {-1, -1};

    std::mutex mutex;
    uint64_t seen = 0;
    int idle = 0;

    uint64_t running = ~uint64_t(0);  // the changes of the pool when a launch was first seen
    std::chrono::steady_clock::time_point running_from;
    bool is_told = false;
};

// Never destroyed, as the pool; and a forked child has a new one.
Interrupts* interrupts = new Interrupts;

struct AtLoad {
    AtLoad() {
        catch_faults();
        // A forked child has none of its parent's threads. It gets a new pool, made when no launch
        // is under way.
        pthread_atfork(
            [] {
                pool->launching.lock();
                guarded.lock();
            },
            [] {
                guarded.unlock();
                pool->launching.unlock();
            },
            [] {
                guarded.unlock();
                pool = new Pool;
                interrupts = new Interrupts;
                host_call = {};  // what its code does ends it, and leaves no second notebook
            });
    }
} at_load;

void on_interrupt(int signal, siginfo_t* info, void* context) {
    static thread_local bool is_inside = false;  // the one before ours may have put ours before it
    if (is_inside) return;
    is_inside = true;
    const int error = errno;
    interrupts->notice(signal, info, context);
    errno = error;
    is_inside = false;
}

}  // namespace
}  // namespace simulator

// How Python is told of an interrupt.
extern "C" SIMULATOR_EXPORT void simulator_interrupt(
    int (*Py_AddPendingCall)(int (*)(void*), void*), void* (*PyObject_CallNoArgs)(void*),
    int (*PyGILState_Ensure)(), void (*PyGILState_Release)(int), int (*PyOS_InterruptOccurred)(),
    void* raise) {
    simulator::python = {Py_AddPendingCall,  PyObject_CallNoArgs,    PyGILState_Ensure,
                         PyGILState_Release, PyOS_InterruptOccurred, raise};
}

// For Python, when it raises an interrupt: the launch that was stopped for it, and on lines below
// that the block and the thread of it that was found first, its library, and the offsets there of
// its next instruction and, where that may be of no line, of its caller. Empty if none was.
extern "C" SIMULATOR_EXPORT const char* simulator_take_stop() {
    static std::string said;
    said = simulator::stopping.take();
    simulator::interrupts->raised();
    return said.c_str();
}
