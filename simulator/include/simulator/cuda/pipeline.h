// cuda::pipeline: producers fill stages in turn, consumers wait for each to be full and give it
// back. A stage is two barriers. A pipeline of one thread has nobody to wait for.
#pragma once
#include "atomic.h"
#include "memcpy_async.h"

namespace cuda {

enum class pipeline_role { producer, consumer };

template <thread_scope Scope>
struct simulator_stage {
    barrier<Scope> produced, consumed;
};

template <thread_scope Scope, uint8_t Stages>
class pipeline_shared_state {
  public:
    pipeline_shared_state() = default;
    pipeline_shared_state(const pipeline_shared_state&) = delete;
    pipeline_shared_state& operator=(const pipeline_shared_state&) = delete;

    // Not for users.
    void simulator_init(uint32_t producers, uint32_t consumers, uint32_t threads) {
        for (auto& stage : stages) {
            init(&stage.produced, producers);
            init(&stage.consumed, consumers);
        }
        users.store(threads, memory_order_relaxed);
    }
    simulator_stage<Scope> stages[Stages];
    atomic<uint32_t, Scope> users;
};

template <thread_scope Scope>
class pipeline {
  public:
    template <uint8_t Stages>
    explicit pipeline(pipeline_shared_state<Scope, Stages>& state)
        : stages(state.stages), users(&state.users), count(Stages) {}
    pipeline(pipeline&& other)
        : stages(other.stages),
          users(other.users),
          count(other.count),
          head(other.head),
          tail(other.tail),
          consumed_parity(other.consumed_parity),
          produced_parity(other.produced_parity) {
        other.users = nullptr;
    }
    pipeline(const pipeline&) = delete;
    pipeline& operator=(const pipeline&) = delete;
    pipeline& operator=(pipeline&&) = delete;
    ~pipeline() { quit(); }

    // Whether this thread is the last to leave.
    bool quit() {
        if (!users) return false;
        const bool is_last = users->fetch_sub(1) == 1;
        users = nullptr;
        return is_last;
    }

    void producer_acquire(SIMULATOR_CALLER) {
        stages[head].consumed.wait_parity(consumed_parity, file, line);
    }
    void producer_commit(SIMULATOR_CALLER) {
        (void)stages[head].produced.arrive(1, file, line);
        if (++head == count) head = 0, consumed_parity = !consumed_parity;
    }
    void consumer_wait(SIMULATOR_CALLER) {
        stages[tail].produced.wait_parity(produced_parity, file, line);
    }
    template <class Duration>
    bool consumer_wait_for(const Duration&, SIMULATOR_CALLER) {
        return stages[tail].produced.try_wait_parity(produced_parity, file, line);
    }
    template <class Time>
    bool consumer_wait_until(const Time&, SIMULATOR_CALLER) {
        return stages[tail].produced.try_wait_parity(produced_parity, file, line);
    }
    void consumer_release(SIMULATOR_CALLER) {
        (void)stages[tail].consumed.arrive(1, file, line);
        if (++tail == count) tail = 0, produced_parity = !produced_parity;
    }

  private:
    simulator_stage<Scope>* stages;
    atomic<uint32_t, Scope>* users;
    uint8_t count, head = 0, tail = 0;
    bool consumed_parity = true, produced_parity = false;
};

template <>
class pipeline<thread_scope_thread> {
  public:
    pipeline() = default;
    pipeline(pipeline&&) = default;
    pipeline(const pipeline&) = delete;
    pipeline& operator=(const pipeline&) = delete;
    pipeline& operator=(pipeline&&) = delete;

    bool quit() { return true; }
    void producer_acquire() {}
    void producer_commit() {}
    void consumer_wait() {}
    template <class Duration>
    bool consumer_wait_for(const Duration&) {
        return true;
    }
    template <class Time>
    bool consumer_wait_until(const Time&) {
        return true;
    }
    void consumer_release() {}
};

inline pipeline<thread_scope_thread> make_pipeline() { return {}; }

// All of a group's threads produce and consume.
template <class Group, thread_scope Scope, uint8_t Stages>
pipeline<Scope> make_pipeline(const Group& group, pipeline_shared_state<Scope, Stages>* state) {
    const uint32_t threads = group.size();
    if (group.thread_rank() == 0) state->simulator_init(threads, threads, threads);
    group.sync();
    return pipeline<Scope>(*state);
}

template <class Group, thread_scope Scope, uint8_t Stages>
pipeline<Scope> make_pipeline(const Group& group, pipeline_shared_state<Scope, Stages>* state,
                              size_t producers) {
    const uint32_t threads = group.size();
    if (group.thread_rank() == 0) state->simulator_init(producers, threads - producers, threads);
    group.sync();
    return pipeline<Scope>(*state);
}

// Each thread has a role.
template <class Group, thread_scope Scope, uint8_t Stages>
pipeline<Scope> make_pipeline(const Group& group, pipeline_shared_state<Scope, Stages>* state,
                              pipeline_role role) {
    const uint32_t threads = group.size();
    if (group.thread_rank() == 0) state->users.store(0, memory_order_relaxed);
    group.sync();
    if (role == pipeline_role::producer) state->users.fetch_add(1, memory_order_relaxed);
    group.sync();
    if (group.thread_rank() == 0) {
        const uint32_t producers = state->users.load(memory_order_relaxed);
        state->simulator_init(producers, threads - producers, threads);
    }
    group.sync();
    return pipeline<Scope>(*state);
}

// Waits for all but the last `Prior` batches that this thread has committed.
template <uint8_t Prior>
void pipeline_consumer_wait_prior(pipeline<thread_scope_thread>&) {}

template <thread_scope Scope>
void pipeline_producer_commit(pipeline<thread_scope_thread>&, barrier<Scope>&) {}

}  // namespace cuda
