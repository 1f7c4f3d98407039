// CUB's iterators.
#pragma once
#include "util.h"

namespace cub {
namespace simulated {

// An iterator at any place of which a value can be had. `Self` has value_at(offset from its
// beginning).
template <class Self, class T, class Offset>
struct RandomAccess {
    using iterator_category = ::std::random_access_iterator_tag;
    using value_type = T;
    using difference_type = Offset;
    using pointer = T*;
    using reference = T;

    Offset at = 0;

    T operator*() const { return self().value_at(at); }
    T operator[](Offset n) const { return self().value_at(at + n); }
    Self operator+(Offset n) const {
        Self moved = self();
        moved.at += n;
        return moved;
    }
    Self operator-(Offset n) const { return *this + -n; }
    Offset operator-(const Self& other) const { return at - other.at; }
    Self& operator+=(Offset n) { return at += n, static_cast<Self&>(*this); }
    Self& operator-=(Offset n) { return *this += -n; }
    Self& operator++() { return *this += 1; }
    Self& operator--() { return *this += -1; }
    Self operator++(int) {
        const Self before = self();
        at++;
        return before;
    }
    bool operator==(const Self& other) const { return at == other.at; }
    bool operator!=(const Self& other) const { return at != other.at; }
    bool operator<(const Self& other) const { return at < other.at; }

  private:
    const Self& self() const { return static_cast<const Self&>(*this); }
};

}  // namespace simulated

template <class T, class Offset = ptrdiff_t>
class CountingInputIterator
    : public simulated::RandomAccess<CountingInputIterator<T, Offset>, T, Offset> {
  public:
    explicit CountingInputIterator(const T& first) : first(first) {}
    T value_at(Offset n) const { return first + T(n); }

  private:
    T first;
};

template <class T, class Offset = ptrdiff_t>
class ConstantInputIterator
    : public simulated::RandomAccess<ConstantInputIterator<T, Offset>, T, Offset> {
  public:
    ConstantInputIterator(T value, Offset = 0) : value(value) {}
    T value_at(Offset) const { return value; }

  private:
    T value;
};

template <class T, class Op, class It, class Offset = ptrdiff_t>
class TransformInputIterator
    : public simulated::RandomAccess<TransformInputIterator<T, Op, It, Offset>, T, Offset> {
  public:
    TransformInputIterator(It from, Op op) : from(from), op(op) {}
    T value_at(Offset n) const { return op(from[n]); }

  private:
    It from;
    mutable Op op;
};

// Each value with its index.
template <class It, class Offset = ptrdiff_t,
          class T = typename ::std::iterator_traits<It>::value_type>
class ArgIndexInputIterator : public simulated::RandomAccess<ArgIndexInputIterator<It, Offset, T>,
                                                             KeyValuePair<Offset, T>, ptrdiff_t> {
  public:
    ArgIndexInputIterator(It from) : from(from) {}
    KeyValuePair<Offset, T> value_at(ptrdiff_t n) const { return {Offset(n), T(from[n])}; }

  private:
    It from;
};

template <CacheLoadModifier, class T, class = ptrdiff_t>
using CacheModifiedInputIterator = const T*;
template <CacheStoreModifier, class T, class = ptrdiff_t>
using CacheModifiedOutputIterator = T*;

// Takes anything, and keeps nothing.
class DiscardOutputIterator {
  public:
    using iterator_category = ::std::random_access_iterator_tag;
    using value_type = void;
    using difference_type = ptrdiff_t;
    using pointer = void;
    using reference = void;

    struct Nothing {
        template <class T>
        const Nothing& operator=(const T&) const {
            return *this;
        }
    };
    Nothing operator*() const { return {}; }
    Nothing operator[](ptrdiff_t) const { return {}; }
    DiscardOutputIterator operator+(ptrdiff_t) const { return *this; }
    DiscardOutputIterator& operator++() { return *this; }
};

}  // namespace cub
