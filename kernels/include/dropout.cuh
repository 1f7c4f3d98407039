// Which elements a dropout keeps. The mask is computed again wherever it is needed, so it is never
// stored.
//
// Element i of a tensor, counted row by row, has 16 random bits of its own: of the four words
// Philox::draw(seed, offset, i / 8) it takes word i % 8 / 2, and of that the lower half if i is
// even, the upper one if it is odd. It is dropped if they, read as a number, are below 65536 * p.
//
// So p counts in steps of 1 / 65536, and one draw, some 60 instructions, serves eight elements.
// With 32 bits for each it would serve four, and memory would be 3 to 10% slower.
#pragma once

#include "philox.cuh"
#include "vec.cuh"

template <class A>
struct Dropout {
    const int64_t* seed;  // on the device: a captured graph draws another one at each replay
    uint64_t offset;
    uint32_t least;  // that is kept, of bits in the upper half of a word
    A scale;         // of what is kept

    Dropout(const int64_t* seed, int64_t offset, double p) : seed(seed), offset(offset) {
        const int dropped = int(p * 65536 + 0.5);  // of 65536
        least = dropped == 65536 ? 0 : uint32_t(dropped) << 16;
        scale = dropped == 65536 ? 0 : A(65536.0 / (65536 - dropped));  // p = 1 keeps all, times 0
    }
};

// The random bits of V neighbours, 1, 2, 4 or 8 of them, from element i on, a multiple of V.
template <int V>
struct Draw {
    uint32_t words[V < 2 ? 1 : V / 2];

    Draw() = default;
    template <class A>
    __device__ Draw(const Dropout<A>& dropout, uint64_t seed, int64_t i) {
        uint4 all = Philox::draw(seed, dropout.offset, uint64_t(i) / 8);
        if (V < 8 && (i & 4) != 0) all.x = all.z, all.y = all.w;
        if (V < 4 && (i & 2) != 0) all.x = all.y;
        if (V < 2 && (i & 1) == 0) all.x <<= 16;
        words[0] = all.x;
        if constexpr (V >= 4) words[1] = all.y;
        if constexpr (V == 8) words[2] = all.z, words[3] = all.w;
    }

    template <class A>
    __device__ bool keeps(const Dropout<A>& dropout, int k) const {
        return (k % 2 != 0 || V == 1 ? words[k / 2] : words[k / 2] << 16) >= dropout.least;
    }
    // What the k-th of them is multiplied by.
    template <class A>
    __device__ A factor(const Dropout<A>& dropout, int k) const {
        return keeps(dropout, k) ? dropout.scale : A(0);
    }
};

// What element i is multiplied by.
template <class A>
__device__ A factor_of(const Dropout<A>& dropout, uint64_t seed, int64_t i) {
    return Draw<1>(dropout, seed, i).factor(dropout, 0);
}

// What draws came to, for `count` vectors of V elements: a bit each, where the draws have 16.
template <int count, int V>
class Kept {
  public:
    // Keeps what was drawn for vector n.
    template <class A>
    __device__ void note(int n, const Draw<V>& draw, const Dropout<A>& dropout) {
        uint32_t bits = 0;
        for (int k = 0; k < V; ++k) bits |= uint32_t(draw.keeps(dropout, k)) << k;
        words_[word(n)] |= bits << n * V % 32;
    }
    // Bit k is set if element k of the vector is kept.
    __device__ uint32_t operator[](int n) const { return words_[word(n)] >> n * V % 32; }

  private:
    // (A register has no index: nvcc must see that there is one word alone.)
    __device__ static int word(int n) { return count * V <= 32 ? 0 : n * V / 32; }
    uint32_t words_[(count * V + 31) / 32] = {};
};
