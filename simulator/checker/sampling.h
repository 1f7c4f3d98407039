// Which blocks of a launch are recorded in full. The others are only kept within bounds.
//
// All of them, where that takes little time. Of a larger launch a sample, spread evenly, the first
// and the last block among them. It is of neighbours, in the row and in the column of a grid that
// has rows, since one block may write what belongs to the next.
#pragma once
#include <stdint.h>
#include <algorithm>

namespace simulator {
namespace {

class Sample {
  public:
    // Of so many blocks, in rows of `row`, with so many threads each. `most`: threads that are
    // recorded; 0: as many as it pays. `counts`: for lab.predict, which counts and finds no
    // mistakes: a few long blocks stand for the others.
    void begin(uint64_t of, uint64_t in_row, uint64_t threads, uint64_t most, bool counts) {
        blocks = of;
        row = in_row > 1 && in_row < blocks ? in_row : 0;
        is_counting = counts;
        least = counts ? 4 * group() : few_threads / threads;
        cheap = counts ? counted_accesses : cheap_accesses;
        some = counts ? counted_accesses : some_accesses;
        is_free = !most;
        if (is_free) most = blocks * threads <= cheap_threads ? cheap_threads : some_threads;
        divide(most / threads);
    }

    // The first block has made so many accesses: loops make a launch of few threads a long one.
    void learn(uint64_t accesses) {
        if (is_counting && accesses > some) least = 2 * group();
        if (is_free && blocks * accesses > cheap)
            divide(std::min(allowed, std::max(least, some / accesses)));
    }

    bool leaves_out() const { return blocks > std::max<uint64_t>(allowed, 2 * group()); }

    bool takes(uint64_t block) const {
        return !leaves_out() || begins(block) || (block && begins(block - 1)) ||
               (row && block >= row && begins(block - row));
    }

  private:
    // Measured on one core: docs/programs/checker_cost.py. To record an access takes about 10 ns.
    static constexpr uint64_t cheap_threads = 1000 * 1000, some_threads = 1 << 17,
                              few_threads = 1 << 15;
    static constexpr uint64_t cheap_accesses = 1 << 24, some_accesses = 1 << 25,
                              counted_accesses = 1 << 23;

    uint64_t group() const { return row ? 3 : 2; }

    void divide(uint64_t into) {
        allowed = into;
        gaps = std::max<uint64_t>(2, allowed / group()) - 1;
    }

    // Whether one of the groups begins there: group k at k * last / gaps.
    bool begins(uint64_t block) const {
        const uint64_t last = blocks - 2;
        if (block > last) return false;
        const uint64_t k = (block * gaps + last - 1) / last;
        return k <= gaps && k * last / gaps == block;
    }

    uint64_t blocks = 0, row = 0, least = 0, allowed = 0, gaps = 1;
    uint64_t cheap = cheap_accesses, some = some_accesses;
    bool is_free = false, is_counting = false;
};

}  // namespace
}  // namespace simulator
