// Random numbers that need no state: Philox4x32-10.
//
// J. K. Salmon, M. A. Moraes, R. O. Dror, D. E. Shaw, "Parallel random numbers: as easy as 1, 2,
// 3", SC 2011. A counter goes through ten rounds of a keyed mixing, and comes out as four random
// words. The same key and counter always give the same words, so a backward pass can draw
// again what the forward pass drew. The words are those of cuRAND's and PyTorch's generators for
// the same key and counter.
#pragma once

#include <stdint.h>

struct Philox {
    uint32_t key[2];

    // Four words, each uniform over all 2^32 values.
    __host__ __device__ uint4 operator()(uint4 counter) const {
        uint32_t k0 = key[0], k1 = key[1];
        for (int i = 0; i < 10; ++i) {
            const uint64_t p0 = uint64_t(0xD2511F53) * counter.x;
            const uint64_t p1 = uint64_t(0xCD9E8D57) * counter.z;
            counter = make_uint4(uint32_t(p1 >> 32) ^ counter.y ^ k0, uint32_t(p1),
                                 uint32_t(p0 >> 32) ^ counter.w ^ k1, uint32_t(p0));
            k0 += 0x9E3779B9;  // the golden ratio
            k1 += 0xBB67AE85;  // sqrt(3) - 1
        }
        return counter;
    }

    // The `index`-th four words of stream `stream` of a seed.
    __host__ __device__ static uint4 draw(uint64_t seed, uint64_t stream, uint64_t index) {
        const Philox philox{{uint32_t(seed), uint32_t(seed >> 32)}};
        return philox(make_uint4(
            uint32_t(index), uint32_t(index >> 32), uint32_t(stream), uint32_t(stream >> 32)));
    }
};

// A float in [0, 1), a multiple of 2^-24, from a random word.
__host__ __device__ inline float uniform(uint32_t word) { return float(word >> 8) * 0x1p-24f; }
