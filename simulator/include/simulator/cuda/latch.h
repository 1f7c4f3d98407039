// cuda::latch: a barrier for once.
#pragma once
#include "atomic.h"

namespace cuda {

template <thread_scope Scope>
class latch {
  public:
    explicit constexpr latch(ptrdiff_t expected) : left(expected) {}
    latch(const latch&) = delete;
    latch& operator=(const latch&) = delete;

    static constexpr ptrdiff_t max() { return PTRDIFF_MAX; }

    void count_down(ptrdiff_t count = 1) { left.fetch_sub(count, memory_order_release); }
    bool try_wait(SIMULATOR_CALLER) const {
        return left.load(memory_order_acquire, file, line) == 0;
    }
    void wait(SIMULATOR_CALLER) const {
        while (left.load(memory_order_acquire))
            simulator::let_others_go("cuda::latch::wait", file, line);
    }
    void arrive_and_wait(ptrdiff_t count = 1, SIMULATOR_CALLER) {
        count_down(count);
        wait(file, line);
    }

  private:
    atomic<ptrdiff_t, Scope> left;
};

namespace std {
using latch = ::cuda::latch<thread_scope_system>;
}

}  // namespace cuda
