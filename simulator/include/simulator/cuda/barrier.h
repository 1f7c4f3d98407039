// cuda::barrier: threads arrive, and may wait much later for the phase to end in which they did.
// Its word is an mbarrier's, as on a GPU: copies in bulk may complete at it.
#pragma once
#include <utility>
#include "../mbarrier.h"
#include "scopes.h"
#include "waiting.h"

#if __has_include(<cuda/std/__barrier/empty_completion.h>)
#include <cuda/std/__barrier/empty_completion.h>
#else
namespace cuda::std {
struct __empty_completion {
    void operator()() const noexcept {}
};
}  // namespace cuda::std
#endif

namespace cuda {

template <thread_scope Scope, class Completion = std::__empty_completion>
class barrier {
    using State = simulator::MbarrierState;

  public:
    // What an arrival returns: the mbarrier's state before it.
    using arrival_token = uint64_t;

    // In shared memory, where no constructor runs, one thread calls `init`.
    barrier() = default;
    explicit barrier(ptrdiff_t expected, Completion completion = {})
        : word(State::of(0, 0, expected, expected).word), completion(::std::move(completion)) {}
    barrier(const barrier&) = delete;
    barrier& operator=(const barrier&) = delete;

    static constexpr ptrdiff_t max() { return State::most; }

    [[nodiscard]] arrival_token arrive(ptrdiff_t count = 1, SIMULATOR_CALLER) {
        return come(count, 0, 0, "cuda::barrier::arrive", file, line);
    }

    void wait(arrival_token&& token, SIMULATOR_CALLER) const {
        await(Since{token}, "cuda::barrier::wait", file, line);
    }
    void arrive_and_wait(SIMULATOR_CALLER) {
        const char* what = "cuda::barrier::arrive_and_wait";
        await(Since{come(1, 0, 0, what, file, line)}, what, file, line);
    }
    // Later phases do not expect this thread.
    void arrive_and_drop(SIMULATOR_CALLER) {
        come(1, 1, 0, "cuda::barrier::arrive_and_drop", file, line);
    }
    // The phases are even and odd by turns, and the first is even.
    void wait_parity(bool parity, SIMULATOR_CALLER) const {
        await(Parity{parity}, "cuda::barrier::wait_parity", file, line);
    }

    bool try_wait(arrival_token&& token, SIMULATOR_CALLER) const {
        return attempt(Since{token}, "cuda::barrier::try_wait", file, line);
    }
    bool try_wait_parity(bool parity, SIMULATOR_CALLER) const {
        const char* what = "cuda::barrier::try_wait_parity";
        return attempt(Parity{parity}, what, file, line);
    }
    template <class Duration>
    bool try_wait_for(arrival_token&& token, const Duration&, SIMULATOR_CALLER) const {
        return attempt(Since{token}, "cuda::barrier::try_wait_for", file, line);
    }
    template <class Duration>
    bool try_wait_parity_for(bool parity, const Duration&, SIMULATOR_CALLER) const {
        const char* what = "cuda::barrier::try_wait_parity_for";
        return attempt(Parity{parity}, what, file, line);
    }

    friend void init(barrier* it, ptrdiff_t expected, Completion completion = {},
                     SIMULATOR_CALLER) {
        simulator::tell_mbarrier_init(&it->word, expected, file, line);
        it->word = State::of(0, 0, expected, expected).word;
        it->completion = ::std::move(completion);
    }

    // Not for users: the mbarrier, and an arrival that announces bytes.
    uint64_t* simulator_native() { return &word; }
    arrival_token simulator_arrive_tx(ptrdiff_t count, ptrdiff_t bytes, const char* file,
                                      int line) {
        return come(count, 0, bytes, "cuda::device::barrier_arrive_tx", file, line);
    }

  private:
    // Whether the phase has ended in which a token was given, or one of this parity.
    struct Since {
        arrival_token token;
        bool operator()(State now) const { return now.phase() != State{token}.phase(); }
    };
    struct Parity {
        bool parity;
        bool operator()(State now) const { return (now.phase() & 1) != parity; }
    };

    // So many arrive, of whom some are to be expected no more, and announce so many bytes. The last
    // has the phase end, unless bytes are still to come. Returns the state before.
    arrival_token come(ptrdiff_t count, ptrdiff_t dropped, ptrdiff_t bytes, const char* what,
                       const char* file, int line) {
        State old = simulator::state_of(&word), next = old;
        simulator::tell_mbarrier_change(&word, bytes, count, false, what, file, line);
        do {
            if (count < 1 || uint64_t(count) > old.awaited())
                simulator::fail_barrier(what, count, old.awaited(), file, line);
            next = State::of(
                old.phase(), old.bytes() + bytes, old.awaited() - count, old.expected() - dropped);
        } while (!__atomic_compare_exchange_n(
            &word, &old.word, next.word, true, __ATOMIC_SEQ_CST, __ATOMIC_SEQ_CST));
        const bool is_last = next.awaited() == 0 && next.bytes() == 0;
        simulator::arrived(this, is_last);
        if (!is_last) return old.word;
        simulator::tell_mbarrier_change(&word, 0, 0, true, what, file, line);
        completion();
        next = State::of(old.phase() + 1u, 0, next.expected(), next.expected());
        __atomic_store_n(&word, next.word, __ATOMIC_SEQ_CST);
        if (simulator::in_kernel()) {
            simulator::current->wake_parked();
            if (simulator::current->cluster) simulator::tell_cluster();
        }
        return old.word;
    }

    // Only the threads of a block can be told when a phase of their own barrier ends.
    static bool is_of_block() { return Scope == thread_scope_block && simulator::in_kernel(); }

    template <class HasEnded>
    void await(HasEnded has_ended, const char* what, const char* file, int line) const {
        if (is_of_block()) return simulator::mbarrier_wait(&word, has_ended, what, file, line);
        while (!has_ended(simulator::state_of(&word))) simulator::let_others_go(what, file, line);
        simulator::passed(this);
    }

    template <class HasEnded>
    bool attempt(HasEnded has_ended, const char* what, const char* file, int line) const {
        if (is_of_block()) return simulator::mbarrier_test(&word, has_ended, what, file, line);
        if (!has_ended(simulator::state_of(&word))) simulator::let_others_go(what, file, line);
        if (!has_ended(simulator::state_of(&word))) return false;
        simulator::passed(this);
        return true;
    }

    mutable uint64_t word;
    [[no_unique_address]] Completion completion;
};

namespace std {
template <class Completion = __empty_completion>
using barrier = ::cuda::barrier<thread_scope_system, Completion>;
}

}  // namespace cuda
