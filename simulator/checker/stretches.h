// How often each stretch of a kernel's code (basic block) runs, for lab.predict:
// -fsanitize-coverage calls at its beginning. A warp runs it as often as the lane that does so most
// often.
#pragma once
#include <stdint.h>
#include <algorithm>
#include <map>
#include <unordered_map>
#include <vector>
#include "shadow.h"

namespace simulator {
namespace {

class Stretches {
  public:
    uint64_t calls = 0;  // since this launch began

    void begin_launch() { calls = 0, std::fill(totals.begin(), totals.end(), 0); }

    void ran(unsigned rank, uintptr_t at) {
        Slot& slot = slots[at % count_of_slots];
        if (slot.at != at) slot = {at, index_of(at)};
        counts[size_t(slot.index) * max_threads + rank]++;
        calls++;
    }

    void end_block(unsigned threads) {
        for (size_t index = 0; index < totals.size(); index++)
            for (unsigned first = 0; first < threads; first += warp_size) {
                uint32_t* const lanes = &counts[index * max_threads + first];
                totals[index] += *std::max_element(lanes, lanes + warp_size);
                std::fill_n(lanes, warp_size, 0);
            }
    }

    // By address, of warps in the blocks of this launch that are recorded.
    std::map<uintptr_t, uint64_t> of_launch() const {
        std::map<uintptr_t, uint64_t> found;
        for (const auto& [at, index] : indices)
            if (totals[index]) found[at] = totals[index];
        return found;
    }

  private:
    struct Slot {
        uintptr_t at = 0;
        uint32_t index = 0;
    };

    uint32_t index_of(uintptr_t at) {
        const auto [it, is_new] = indices.emplace(at, indices.size());
        if (is_new) totals.push_back(0), counts.resize(indices.size() * max_threads);
        return it->second;
    }

    static constexpr size_t count_of_slots = 1024;
    Slot slots[count_of_slots];
    std::unordered_map<uintptr_t, uint32_t> indices;
    std::vector<uint64_t> totals;  // of warps, by index
    std::vector<uint32_t> counts;  // of each thread of the running block
};

}  // namespace
}  // namespace simulator
