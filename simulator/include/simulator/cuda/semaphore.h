// cuda::counting_semaphore and cuda::binary_semaphore.
#pragma once
#include "atomic.h"

namespace cuda {

template <thread_scope Scope, ptrdiff_t Most = PTRDIFF_MAX>
class counting_semaphore {
  public:
    explicit constexpr counting_semaphore(ptrdiff_t count = 0) : left(count) {}
    counting_semaphore(const counting_semaphore&) = delete;
    counting_semaphore& operator=(const counting_semaphore&) = delete;

    static constexpr ptrdiff_t max() { return Most; }

    void release(ptrdiff_t count = 1) { left.fetch_add(count, memory_order_release); }
    bool try_acquire(SIMULATOR_CALLER) {
        ptrdiff_t seen = left.load(memory_order_acquire, file, line);
        return seen > 0 && left.compare_exchange_strong(seen, seen - 1, memory_order_acq_rel,
                                                        memory_order_acquire, file, line);
    }
    template <class Duration>
    bool try_acquire_for(const Duration&, SIMULATOR_CALLER) {
        return try_acquire(file, line);
    }
    void acquire(SIMULATOR_CALLER) {
        while (!try_acquire(file, line))
            simulator::let_others_go("cuda::semaphore::acquire", file, line);
    }

  private:
    atomic<ptrdiff_t, Scope> left;
};

template <thread_scope Scope>
using binary_semaphore = counting_semaphore<Scope, 1>;

namespace std {
template <ptrdiff_t Most = PTRDIFF_MAX>
using counting_semaphore = ::cuda::counting_semaphore<thread_scope_system, Most>;
using binary_semaphore = ::cuda::binary_semaphore<thread_scope_system>;
}  // namespace std

}  // namespace cuda
