// cuda::atomic and cuda::atomic_ref. Blocks run on several cores, so they are atomic in earnest; of
// the order that is asked for nothing is left out, for it is always the strongest.
#pragma once
#include <type_traits>
#include "scopes.h"
#include "waiting.h"

namespace simulator {

// ---- Memory order and scope, for the checker.

constexpr Scope scope_of(::cuda::std::thread_scope scope) {
    return scope == ::cuda::std::thread_scope_block || scope == ::cuda::std::thread_scope_thread
               ? Scope::Block
               : Scope::Device;
}

SIMULATOR_INLINE void before(::cuda::std::memory_order order, Scope scope) {
    order >= ::cuda::std::memory_order_release ? before_release(scope) : announce(scope);
    if (order != ::cuda::std::memory_order_relaxed && order != ::cuda::std::memory_order_release)
        announce_acquire();
}

template <class T>
SIMULATOR_INLINE T atomic_load(const T* address, Scope scope) {
    announce(scope);
    return __atomic_load_n(address, of_kernel);
}

template <size_t size>
struct AtomicBits;
template <>
struct AtomicBits<1> {
    using type = uint8_t;
};
template <>
struct AtomicBits<2> {
    using type = uint16_t;
};
template <>
struct AtomicBits<4> {
    using type = uint32_t;
};
template <>
struct AtomicBits<8> {
    using type = uint64_t;
};

// How far a pointer moves for each that is added to it.
template <class T>
struct Step {
    using type = T;
    static constexpr uint64_t bytes = 0;
};
template <class T>
struct Step<T*> {
    using type = ptrdiff_t;
    static constexpr uint64_t bytes = sizeof(T);
};

// What an atomic object and a reference to one can do. `Self` knows the address.
template <class Self, class T>
class AtomicOperations {
    static_assert(__is_trivially_copyable(T),
                  "cuda::atomic holds types that are copied bit by bit");
    static_assert(sizeof(T) == 1 || sizeof(T) == 2 || sizeof(T) == 4 || sizeof(T) == 8,
                  "the simulator has cuda::atomic for types of 1, 2, 4 and 8 bytes");
    using Bits = typename AtomicBits<sizeof(T)>::type;
    using Order = ::cuda::std::memory_order;
    using Difference = typename Step<T>::type;
    static constexpr Order strongest = ::cuda::std::memory_order_seq_cst;

  public:
    using value_type = T;
    static constexpr bool is_always_lock_free = true;
    bool is_lock_free() const { return true; }

    T load(Order order = strongest, SIMULATOR_CALLER) const {
        const Bits bits = atomic_load(word(), scope());
        let_others_change(word(), bits, "cuda::atomic::load", file, line);
        return bit_cast<T>(bits);
    }
    operator T() const { return load(); }

    void store(T value, Order order = strongest) const {
        before(order, scope());
        __atomic_store_n(word(), bit_cast<Bits>(value), __ATOMIC_SEQ_CST);
    }

    // Whoever finds what he puts there himself may be waiting for a lock.
    T exchange(T value, Order order = strongest, SIMULATOR_CALLER) const {
        before(order, scope());
        const Bits wanted = bit_cast<Bits>(value);
        const Bits old = __atomic_exchange_n(word(), wanted, __ATOMIC_SEQ_CST);
        if (old == wanted) let_others_go("cuda::atomic::exchange", file, line);
        return bit_cast<T>(old);
    }

    bool compare_exchange_strong(T& expected, T value, Order success, Order,
                                 SIMULATOR_CALLER) const {
        before(success, scope());
        Bits found = bit_cast<Bits>(expected);
        if (__atomic_compare_exchange_n(
                word(), &found, bit_cast<Bits>(value), false, __ATOMIC_SEQ_CST, __ATOMIC_SEQ_CST))
            return true;
        expected = bit_cast<T>(found);
        let_others_go("cuda::atomic::compare_exchange", file, line);
        return false;
    }
    bool compare_exchange_strong(T& expected, T value, Order order = strongest,
                                 SIMULATOR_CALLER) const {
        return compare_exchange_strong(expected, value, order, order, file, line);
    }
    bool compare_exchange_weak(T& expected, T value, Order success, Order failure,
                               SIMULATOR_CALLER) const {
        return compare_exchange_strong(expected, value, success, failure, file, line);
    }
    bool compare_exchange_weak(T& expected, T value, Order order = strongest,
                               SIMULATOR_CALLER) const {
        return compare_exchange_strong(expected, value, order, order, file, line);
    }

    // Returns when the value is another than `old`.
    void wait(T old, Order order = strongest, SIMULATOR_CALLER) const {
        while (atomic_load(word(), scope()) == bit_cast<Bits>(old))
            let_others_go("cuda::atomic::wait", file, line);
    }
    void notify_one() const {}
    void notify_all() const {}

    T fetch_add(Difference value, Order order = strongest) const {
        before(order, scope());
        if constexpr (Step<T>::bytes)
            return bit_cast<T>(
                __atomic_fetch_add(word(), value * Step<T>::bytes, __ATOMIC_SEQ_CST));
        else if constexpr (std::is_integral_v<T>)
            return bit_cast<T>(__atomic_fetch_add(word(), Bits(value), __ATOMIC_SEQ_CST));
        else
            return update<told_by_order>([=](T old) { return T(old + value); });
    }
    T fetch_sub(Difference value, Order order = strongest) const {
        before(order, scope());
        if constexpr (Step<T>::bytes)
            return bit_cast<T>(
                __atomic_fetch_sub(word(), value * Step<T>::bytes, __ATOMIC_SEQ_CST));
        else if constexpr (std::is_integral_v<T>)
            return bit_cast<T>(__atomic_fetch_sub(word(), Bits(value), __ATOMIC_SEQ_CST));
        else
            return update<told_by_order>([=](T old) { return T(old - value); });
    }
    T fetch_and(T value, Order order = strongest) const {
        before(order, scope());
        return T(__atomic_fetch_and(word(), Bits(value), __ATOMIC_SEQ_CST));
    }
    T fetch_or(T value, Order order = strongest) const {
        before(order, scope());
        return T(__atomic_fetch_or(word(), Bits(value), __ATOMIC_SEQ_CST));
    }
    T fetch_xor(T value, Order order = strongest) const {
        before(order, scope());
        return T(__atomic_fetch_xor(word(), Bits(value), __ATOMIC_SEQ_CST));
    }
    T fetch_min(T value, Order order = strongest) const {
        before(order, scope());
        return update([=](T old) { return value < old ? value : old; });
    }
    T fetch_max(T value, Order order = strongest) const {
        before(order, scope());
        return update([=](T old) { return old < value ? value : old; });
    }

    T operator++(int) const { return fetch_add(1); }
    T operator--(int) const { return fetch_sub(1); }
    T operator++() const { return fetch_add(1) + 1; }
    T operator--() const { return fetch_sub(1) - 1; }
    T operator+=(Difference value) const { return fetch_add(value) + value; }
    T operator-=(Difference value) const { return fetch_sub(value) - value; }
    T operator&=(T value) const { return fetch_and(value) & value; }
    T operator|=(T value) const { return fetch_or(value) | value; }
    T operator^=(T value) const { return fetch_xor(value) ^ value; }

  private:
    static constexpr Scope scope() { return Self::simulator_scope; }
    Bits* word() const {
        return reinterpret_cast<Bits*>(
            const_cast<T*>(static_cast<const Self*>(this)->simulator_address()));
    }

    template <int order = __ATOMIC_SEQ_CST, class Change>
    T update(Change change) const {
        return atomic_update<order>(reinterpret_cast<T*>(word()), change);
    }
};

}  // namespace simulator

namespace cuda {

template <class T, thread_scope Scope = thread_scope_system>
class atomic : public simulator::AtomicOperations<atomic<T, Scope>, T> {
  public:
    static constexpr simulator::Scope simulator_scope = simulator::scope_of(Scope);
    atomic() = default;
    constexpr atomic(T value) : value(value) {}
    atomic(const atomic&) = delete;
    atomic& operator=(const atomic&) = delete;
    T operator=(T other) {
        this->store(other);
        return other;
    }
    const T* simulator_address() const { return &value; }

  private:
    alignas(sizeof(T)) T value;
};

template <class T, thread_scope Scope = thread_scope_system>
class atomic_ref : public simulator::AtomicOperations<atomic_ref<T, Scope>, T> {
  public:
    static constexpr simulator::Scope simulator_scope = simulator::scope_of(Scope);
    static constexpr size_t required_alignment = sizeof(T);
    explicit atomic_ref(T& value) : value(&value) {}
    atomic_ref(const atomic_ref&) = default;
    atomic_ref& operator=(const atomic_ref&) = delete;
    T operator=(T other) const {
        this->store(other);
        return other;
    }
    const T* simulator_address() const { return value; }

  private:
    T* value;
};

template <thread_scope Scope>
class simulator_flag {
  public:
    simulator_flag() = default;
    constexpr simulator_flag(bool value) : value(value) {}
    simulator_flag(const simulator_flag&) = delete;
    simulator_flag& operator=(const simulator_flag&) = delete;

    bool test_and_set(memory_order order = memory_order_seq_cst, SIMULATOR_CALLER) {
        return value.exchange(true, order, file, line);
    }
    void clear(memory_order order = memory_order_seq_cst) { value.store(false, order); }
    bool test(memory_order order = memory_order_seq_cst, SIMULATOR_CALLER) const {
        return value.load(order, file, line);
    }
    void wait(bool old, memory_order order = memory_order_seq_cst, SIMULATOR_CALLER) const {
        value.wait(old, order, file, line);
    }
    void notify_one() {}
    void notify_all() {}

  private:
    atomic<bool, Scope> value;
};
using atomic_flag = simulator_flag<thread_scope_system>;

SIMULATOR_INLINE void atomic_thread_fence(memory_order, thread_scope scope = thread_scope_system) {
    simulator::fence(simulator::scope_of(scope));
}
SIMULATOR_INLINE void atomic_signal_fence(memory_order) { __atomic_signal_fence(__ATOMIC_SEQ_CST); }

namespace std {

template <class T>
using atomic = ::cuda::atomic<T, thread_scope_system>;
template <class T>
using atomic_ref = ::cuda::atomic_ref<T, thread_scope_system>;
using atomic_flag = ::cuda::atomic_flag;
using ::cuda::atomic_signal_fence;
SIMULATOR_INLINE void atomic_thread_fence(memory_order) {
    simulator::fence(simulator::Scope::Device);
}

}  // namespace std
}  // namespace cuda
