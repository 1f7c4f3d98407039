// How the generators of curand_kernel.h go ahead by any number of steps: libraries/curand.cpp has
// the powers of their recurrences, once for the process.
#pragma once
#include "block.h"

namespace simulator {

// XORWOW's five words of shift register, by n * 2^power steps; power is 0 or 67.
SIMULATOR_EXPORT void skip_xorwow(uint32_t words[5], uint64_t n, unsigned power);

// MRG32k3a's two recurrences of three words, by n * 2^power steps; power is 0, 76 or 127.
SIMULATOR_EXPORT void skip_mrg32k3a(uint32_t first[3], uint32_t second[3], uint64_t n,
                                    unsigned power);

}  // namespace simulator
