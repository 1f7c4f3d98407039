// What CUB's collectives share: storage, operators, and small helpers that people call by name.
#pragma once
#include <stdio.h>
#include <iterator>
#include <type_traits>
#include <utility>
#include "../../cuda_runtime.h"

#define CUB_VERSION 300000
#define CUB_PTX_WARP_THREADS 32
#define CUB_MAX(a, b) (((a) > (b)) ? (a) : (b))
#define CUB_MIN(a, b) (((a) < (b)) ? (a) : (b))
#define CUB_QUOTIENT_FLOOR(x, y) ((x) / (y))
#define CUB_QUOTIENT_CEILING(x, y) (((x) + (y) - 1) / (y))
#define CUB_ROUND_UP_NEAREST(x, y) (CUB_QUOTIENT_CEILING(x, y) * (y))
#define CUB_ROUND_DOWN_NEAREST(x, y) (((x) / (y)) * (y))
#define CUB_RUNTIME_FUNCTION
#define CUB_NAMESPACE_BEGIN namespace cub {
#define CUB_NAMESPACE_END }
#define CubDebug(e) (cub::Debug((cudaError_t)(e), __FILE__, __LINE__))
#define CubDebugExit(e) \
    if (cub::Debug((cudaError_t)(e), __FILE__, __LINE__)) exit(1)

namespace cub {

inline cudaError_t Debug(cudaError_t error, const char* file, int line) {
    if (error) fprintf(stderr, "%s:%d: %s\n", file, line, cudaGetErrorString(error));
    return error;
}

struct NullType {
    template <class T>
    NullType& operator=(const T&) {
        return *this;
    }
    bool operator==(const NullType&) const { return true; }
    bool operator!=(const NullType&) const { return false; }
};

template <class K, class V>
struct KeyValuePair {
    using Key = K;
    using Value = V;
    Key key;
    Value value;

    KeyValuePair() = default;
    KeyValuePair(const Key& key, const Value& value) : key(key), value(value) {}
    bool operator==(const KeyValuePair& other) const {
        return key == other.key && value == other.value;
    }
    bool operator!=(const KeyValuePair& other) const { return !(*this == other); }
};

template <class T>
struct DoubleBuffer {
    T* d_buffers[2] = {};
    int selector = 0;

    DoubleBuffer() = default;
    DoubleBuffer(T* current, T* alternate) : d_buffers{current, alternate} {}
    T* Current() { return d_buffers[selector]; }
    T* Alternate() { return d_buffers[selector ^ 1]; }
};

template <int N>
struct Int2Type {
    enum { VALUE = N };
};
template <int N, int CURRENT_VAL = N, int COUNT = 0>
struct Log2 {
    enum { VALUE = Log2<N, (CURRENT_VAL >> 1), COUNT + 1>::VALUE };
};
template <int N, int COUNT>
struct Log2<N, 0, COUNT> {
    enum { VALUE = (1 << (COUNT - 1) < N) ? COUNT : COUNT - 1 };
};
template <int N>
struct PowerOfTwo {
    enum { VALUE = (N & (N - 1)) == 0 };
};
template <class T>
T DivideAndRoundUp(T a, T b) {
    return (a + b - 1) / b;
}

// ---- Operators

struct Sum {
    template <class T, class U>
    auto operator()(const T& a, const U& b) const {
        return a + b;
    }
};
struct Difference {
    template <class T, class U>
    auto operator()(const T& a, const U& b) const {
        return a - b;
    }
};
struct Division {
    template <class T, class U>
    auto operator()(const T& a, const U& b) const {
        return a / b;
    }
};
struct Max {
    template <class T, class U>
    ::std::common_type_t<T, U> operator()(const T& a, const U& b) const {
        return a < b ? b : a;
    }
};
struct Min {
    template <class T, class U>
    ::std::common_type_t<T, U> operator()(const T& a, const U& b) const {
        return b < a ? b : a;
    }
};
struct ArgMax {
    template <class K, class V>
    KeyValuePair<K, V> operator()(const KeyValuePair<K, V>& a, const KeyValuePair<K, V>& b) const {
        return b.value > a.value || (b.value == a.value && b.key < a.key) ? b : a;
    }
};
struct ArgMin {
    template <class K, class V>
    KeyValuePair<K, V> operator()(const KeyValuePair<K, V>& a, const KeyValuePair<K, V>& b) const {
        return b.value < a.value || (b.value == a.value && b.key < a.key) ? b : a;
    }
};
struct Equality {
    template <class T, class U>
    bool operator()(const T& a, const U& b) const {
        return a == b;
    }
};
struct Inequality {
    template <class T, class U>
    bool operator()(const T& a, const U& b) const {
        return a != b;
    }
};
template <class B>
struct CastOp {
    template <class A>
    B operator()(A&& a) const {
        return B(a);
    }
};

// ---- Threads

inline unsigned LaneId() { return simulator::lane_id(); }
inline unsigned WarpId() { return simulator::current->rank / 32; }
inline int RowMajorTid(int x, int y, int) {
    return (int(threadIdx.z) * y + int(threadIdx.y)) * x + int(threadIdx.x);
}
template <int Lanes>
unsigned WarpMask(unsigned warp) {
    return (Lanes == 32 ? ~0u : (1u << Lanes % 32) - 1) << (Lanes == 32 ? 0 : warp * Lanes);
}
inline void CTA_SYNC(SIMULATOR_CALLER) { __syncthreads(file, line); }
inline void WARP_SYNC(unsigned mask, SIMULATOR_CALLER) { __syncwarp(mask, file, line); }

// How a load or a store treats the caches, which the simulator does not have.
enum CacheLoadModifier {
    LOAD_DEFAULT,
    LOAD_CA,
    LOAD_CG,
    LOAD_CS,
    LOAD_CV,
    LOAD_LDG,
    LOAD_VOLATILE,
};
enum CacheStoreModifier { STORE_DEFAULT, STORE_WB, STORE_CG, STORE_CS, STORE_WT, STORE_VOLATILE };

template <CacheLoadModifier = LOAD_DEFAULT, class Iterator>
auto ThreadLoad(Iterator from) {
    return *from;
}
template <CacheStoreModifier = STORE_DEFAULT, class Iterator, class T>
void ThreadStore(Iterator to, T value) {
    *to = value;
}

template <int N, class T, class Op>
auto ThreadReduce(const T (&items)[N], Op op) {
    auto total = items[0];
    for (int i = 1; i < N; i++) total = op(total, items[i]);
    return total;
}

// ---- For the simulator's own use

namespace simulated {

// Shared memory for values, which nobody constructs.
template <class T, int Count>
struct Room {
    alignas(T) unsigned char bytes[sizeof(T) * (Count > 0 ? Count : 1)];

    T& operator[](int i) { return reinterpret_cast<T*>(bytes)[i]; }
};

// Where a collective is made without storage, it has its own.
template <class Storage>
Storage& own() {
    __shared__ Storage storage;
    return storage;
}

// Of a block collective, which its template says the number of threads of. There may be fewer if
// they have all of the items that are `valid`.
template <int Threads>
unsigned rank_in_block(const char* file, int line, int valid = Threads) {
    const int size = simulator::current->size;
    if (size != Threads && (size > Threads || valid > size))
        simulator::fail_assertion(
            "the block has as many threads as the template of CUB's collective says", file, line);
    return simulator::current->rank;
}

// The value of another lane, whatever its size.
template <class T>
T from_lane(unsigned mask, const T& value, unsigned lane, const char* what, const char* file,
            int line) {
    static_assert(__is_trivially_copyable(T), "CUB exchanges types that are copied bit by bit");
    constexpr unsigned words = (sizeof(T) + 7) / 8;
    uint64_t bits[words] = {};
    __builtin_memcpy(bits, &value, sizeof(T));
    for (uint64_t& word : bits) word = simulator::shuffle(mask, word, lane, what, file, line);
    T result = value;
    __builtin_memcpy(static_cast<void*>(&result), bits, sizeof(T));
    return result;
}

template <class Op, class A, class B>
using Result =
    ::std::decay_t<decltype(::std::declval<Op&>()(::std::declval<A>(), ::std::declval<B>()))>;
template <class Iterator>
using Value = typename ::std::iterator_traits<Iterator>::value_type;
// What an iterator of an output holds; of one that takes anything, `Else`.
template <class Iterator, class Else>
using ValueOr = ::std::conditional_t<::std::is_void_v<Value<Iterator>>, Else, Value<Iterator>>;

// In the order of the values, and as a tree, so that the error of a sum stays small.
template <class T, class Get, class Op>
T fold(int begin, int end, Get get, Op& op) {
    if (end - begin == 1) return get(begin);
    const int middle = begin + (end - begin + 1) / 2;
    const T left = fold<T>(begin, middle, get, op);
    return op(left, fold<T>(middle, end, get, op));
}

}  // namespace simulated

template <int Lanes, class T>
T ShuffleUp(T value, int offset, int first, unsigned mask, SIMULATOR_CALLER) {
    const int lane = int(LaneId()) - offset;
    return simulated::from_lane(
        mask, value, lane >= first ? lane : LaneId(), "cub::ShuffleUp", file, line);
}
template <int Lanes, class T>
T ShuffleDown(T value, int offset, int last, unsigned mask, SIMULATOR_CALLER) {
    const int lane = int(LaneId()) + offset;
    return simulated::from_lane(
        mask, value, lane <= last ? lane : LaneId(), "cub::ShuffleDown", file, line);
}
template <int Lanes, class T>
T ShuffleIndex(T value, int source, unsigned mask, SIMULATOR_CALLER) {
    const unsigned first = LaneId() / Lanes * Lanes;
    return simulated::from_lane(
        mask, value, first + source % Lanes, "cub::ShuffleIndex", file, line);
}

}  // namespace cub
