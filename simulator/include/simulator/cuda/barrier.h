// cuda::barrier: threads arrive, and may wait much later for the phase to end in which they did.
#pragma once
#include <utility>
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

namespace simulator {

// How many are still to arrive, how many are expected in each phase, and the number of the phase,
// in a word that is replaced at once.
struct BarrierState {
    static constexpr unsigned bits = 20;
    static constexpr uint64_t most = (1 << bits) - 1;

    uint64_t word;

    BarrierState(uint64_t word) : word(word) {}
    BarrierState(uint64_t phase, uint64_t expected, uint64_t awaited)
        : word(phase << 2 * bits | expected << bits | awaited) {}
    uint64_t awaited() const { return word & most; }
    uint64_t expected() const { return word >> bits & most; }
    uint32_t phase() const { return word >> 2 * bits; }
};

}  // namespace simulator

namespace cuda {

template <thread_scope Scope, class Completion = std::__empty_completion>
class barrier {
    using State = simulator::BarrierState;

  public:
    class arrival_token {
        friend class barrier;
        explicit arrival_token(uint32_t phase) : phase(phase) {}
        uint32_t phase;
    };

    // In shared memory, where no constructor runs, one thread calls `init`.
    barrier() = default;
    explicit barrier(ptrdiff_t expected, Completion completion = {})
        : word(State(0, expected, expected).word), completion(::std::move(completion)) {}
    barrier(const barrier&) = delete;
    barrier& operator=(const barrier&) = delete;

    static constexpr ptrdiff_t max() { return State::most; }

    [[nodiscard]] arrival_token arrive(ptrdiff_t count = 1, SIMULATOR_CALLER) {
        return arrival_token(come(count, 0, "cuda::barrier::arrive", file, line));
    }

    void wait(arrival_token&& token, SIMULATOR_CALLER) const {
        await([&] { return has_ended(token); }, "cuda::barrier::wait", file, line);
    }
    void arrive_and_wait(SIMULATOR_CALLER) {
        const char* what = "cuda::barrier::arrive_and_wait";
        const arrival_token token(come(1, 0, what, file, line));
        await([&] { return has_ended(token); }, what, file, line);
    }
    // Later phases do not expect this thread.
    void arrive_and_drop(SIMULATOR_CALLER) {
        come(1, 1, "cuda::barrier::arrive_and_drop", file, line);
    }
    // The phases are even and odd by turns, and the first is even.
    void wait_parity(bool parity, SIMULATOR_CALLER) const {
        await([&] { return has_ended(parity); }, "cuda::barrier::wait_parity", file, line);
    }

    bool try_wait(arrival_token&& token, SIMULATOR_CALLER) const {
        return attempt([&] { return has_ended(token); }, "cuda::barrier::try_wait", file, line);
    }
    bool try_wait_parity(bool parity, SIMULATOR_CALLER) const {
        const char* what = "cuda::barrier::try_wait_parity";
        return attempt([&] { return has_ended(parity); }, what, file, line);
    }
    template <class Duration>
    bool try_wait_for(arrival_token&& token, const Duration&, SIMULATOR_CALLER) const {
        return attempt([&] { return has_ended(token); }, "cuda::barrier::try_wait_for", file, line);
    }
    template <class Duration>
    bool try_wait_parity_for(bool parity, const Duration&, SIMULATOR_CALLER) const {
        const char* what = "cuda::barrier::try_wait_parity_for";
        return attempt([&] { return has_ended(parity); }, what, file, line);
    }

    friend void init(barrier* it, ptrdiff_t expected, Completion completion = {}) {
        it->word = State(0, expected, expected).word;
        it->completion = ::std::move(completion);
    }

  private:
    State state() const { return __atomic_load_n(&word, __ATOMIC_SEQ_CST); }
    bool has_ended(const arrival_token& token) const { return state().phase() != token.phase; }
    bool has_ended(bool parity) const { return (state().phase() & 1) != parity; }

    // So many arrive, of whom some are to be expected no more. The last has the phase end.
    uint32_t come(ptrdiff_t count, ptrdiff_t dropped, const char* what, const char* file,
                  int line) {
        State old = state(), next = old;
        do {
            if (count < 1 || uint64_t(count) > old.awaited())
                simulator::fail_barrier(what, count, old.awaited(), file, line);
            next = {old.phase(), old.expected() - dropped, old.awaited() - count};
        } while (!__atomic_compare_exchange_n(
            &word, &old.word, next.word, true, __ATOMIC_SEQ_CST, __ATOMIC_SEQ_CST));
        const bool is_last = next.awaited() == 0;
        simulator::arrived(this, is_last);
        if (!is_last) return old.phase();
        completion();
        next = {old.phase() + 1ull, next.expected(), next.expected()};
        __atomic_store_n(&word, next.word, __ATOMIC_SEQ_CST);
        if (simulator::in_kernel()) simulator::current->wake_parked();
        return old.phase();
    }

    template <class HasEnded>
    void await(HasEnded has_ended, const char* what, const char* file, int line) const {
        while (!has_ended())
            if (Scope == thread_scope_block && simulator::in_kernel())
                simulator::park(what, file, line);
            else
                simulator::let_others_go(what, file, line);
        simulator::passed(this);
    }

    template <class HasEnded>
    bool attempt(HasEnded has_ended, const char* what, const char* file, int line) const {
        if (!has_ended()) simulator::let_others_go(what, file, line);
        if (!has_ended()) return false;
        simulator::passed(this);
        return true;
    }

    uint64_t word;
    [[no_unique_address]] Completion completion;
};

namespace std {
template <class Completion = __empty_completion>
using barrier = ::cuda::barrier<thread_scope_system, Completion>;
}

}  // namespace cuda
