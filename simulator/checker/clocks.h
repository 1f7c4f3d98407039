// Until when a thread knows what others have done, as far as neither barriers nor meetings of its
// warp say so: what it has learnt through fences, flags, locks, barriers in memory.
//
// A clock is never changed, so threads that know the same share one.
#pragma once
#include <stdint.h>
#include <algorithm>
#include <memory>
#include <vector>
#include "../include/simulator/block.h"

namespace simulator {
namespace {

class Clock;
using ClockPointer = std::shared_ptr<const Clock>;

class Clock {
  public:
    // Threads of a block, and until when what they did is known.
    struct Span {
        uint32_t first, end, until;
    };
    // Of one block: all of its threads, and some that are known for longer, in ascending order.
    struct Part {
        uint32_t serial, all;
        std::vector<Span> some;

        uint32_t until(unsigned thread) const {
            auto after =
                std::upper_bound(some.begin(), some.end(), thread,
                                 [](unsigned t, const Span& span) { return t < span.first; });
            if (after == some.begin() || after[-1].end <= thread) return all;
            return std::max(all, after[-1].until);
        }
        bool covers(const Part& other) const {
            if (other.all > all) return false;
            for (const Span& span : other.some)
                for (unsigned thread = span.first; thread < span.end; thread++)
                    if (until(thread) < span.until) return false;
            return true;
        }
    };
    using PartPointer = std::shared_ptr<const Part>;

    Clock() = default;
    explicit Clock(Part part) : parts{std::make_shared<const Part>(std::move(part))} {}

    bool knows(uint32_t serial, unsigned thread, uint32_t time) const {
        const Part* part = of(serial);
        return part && time < part->until(thread);
    }
    const Part* of(uint32_t serial) const {
        const auto found = std::lower_bound(
            parts.begin(), parts.end(), serial,
            [](const PartPointer& part, uint32_t serial) { return part->serial < serial; });
        return found != parts.end() && (*found)->serial == serial ? found->get() : nullptr;
    }
    bool covers(const Clock& other) const {
        for (const PartPointer& theirs : other.parts) {
            const Part* mine = of(theirs->serial);
            if (mine != theirs.get() && !(mine && mine->covers(*theirs))) return false;
        }
        return true;
    }

    // Without what is known of a block; null if there is nothing else.
    ClockPointer without(uint32_t serial) const {
        auto rest = std::make_shared<Clock>();
        for (const PartPointer& part : parts)
            if (part->serial != serial) rest->parts.push_back(part);
        return rest->parts.empty() ? nullptr : rest;
    }

    // What is known to one of the two.
    static ClockPointer join(const ClockPointer& a, const ClockPointer& b) {
        if (!a || a == b) return b;
        if (!b || a->covers(*b)) return a;
        auto both = std::make_shared<Clock>();
        auto x = a->parts.begin(), y = b->parts.begin();
        while (x != a->parts.end() || y != b->parts.end()) {
            if (y == b->parts.end() || (x != a->parts.end() && (*x)->serial < (*y)->serial))
                both->parts.push_back(*x++);
            else if (x == a->parts.end() || (*y)->serial < (*x)->serial)
                both->parts.push_back(*y++);
            else
                both->parts.push_back(*x == *y ? *x : join_parts(**x, **y)), ++x, ++y;
        }
        return both;
    }
    // To one of so many. Halves are joined first: so each is copied a few times, not often.
    static ClockPointer join(const ClockPointer* clocks, size_t count) {
        if (count == 0) return nullptr;
        if (count == 1) return *clocks;
        return join(join(clocks, count / 2), join(clocks + count / 2, count - count / 2));
    }

  private:
    static PartPointer join_parts(const Part& a, const Part& b) {
        auto both = std::make_shared<Part>();
        both->serial = a.serial;
        both->all = std::max(a.all, b.all);
        auto x = a.some.begin(), y = b.some.begin();
        for (uint32_t at = 0; x != a.some.end() || y != b.some.end();) {
            // From here on to where one of the two begins or ends.
            const bool in_x = x != a.some.end() && x->first <= at;
            const bool in_y = y != b.some.end() && y->first <= at;
            uint32_t end = ~0u, until = both->all;
            if (x != a.some.end()) end = std::min(end, in_x ? x->end : x->first);
            if (y != b.some.end()) end = std::min(end, in_y ? y->end : y->first);
            if (in_x) until = std::max(until, x->until);
            if (in_y) until = std::max(until, y->until);
            if (until > both->all) {
                if (!both->some.empty() && both->some.back().end == at &&
                    both->some.back().until == until)
                    both->some.back().end = end;
                else
                    both->some.push_back({at, end, until});
            }
            at = end;
            if (in_x && x->end == at) ++x;
            if (in_y && y->end == at) ++y;
        }
        return both;
    }

    std::vector<PartPointer> parts;  // in ascending order of blocks
};

}  // namespace
}  // namespace simulator
