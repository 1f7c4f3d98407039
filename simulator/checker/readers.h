// Accesses of which many may go on at once: all that have read each cell, or changed it by an
// atomic, since the last plain write. Whoever writes there next must come after all of them.
//
// Mostly that is one thread. Of a crowd the lanes of each warp are noted, and of earlier blocks one
// thread stands for all.
#pragma once
#include <deque>
#include "happens_before.h"

namespace simulator {
namespace {

class Readers {
  public:
    bool empty() const { return latest.empty(); }
    void prefetch(size_t spot) const { latest.prefetch(spot); }
    void make(size_t cells, bool everywhere) {
        if (!latest.empty()) return;
        latest.make(cells, everywhere);
        of_past_blocks.make(cells, everywhere, false);
    }

    // `ratio` cells for each of before.
    void split(size_t cells, unsigned ratio, bool everywhere) {
        latest.split(cells, ratio, everywhere);
        of_past_blocks.split(cells, ratio, everywhere);
        if (crowds.empty()) return;
        const Table<uint64_t> before = std::move(crowds);
        crowds.make(cells, everywhere);
        for (size_t i = 0; i < cells; i++)
            if (const uint64_t crowd = before[i / ratio]) {
                members.push_back(members[crowd - 1]);
                crowds[i] = members.size();
            }
    }

    // `spot`: of a cell, scattered; `begin`: what was before does not count. These lanes of the
    // thread's warp do the same.
    SIMULATOR_INLINE void note(size_t spot, Touch touch, uint32_t lanes, const Order& order,
                               uint32_t begin, size_t cells) {
        Touch& before = latest.at(spot);
        const bool is_alone = !(lanes & (lanes - 1));
        const bool is_again =
            before.time >= order.block_begin && before.thread == touch.thread && !before.in_crowd;
        if (is_alone && (before.time < begin || is_again))
            before = touch;
        else
            note_another(spot, touch, lanes, order, begin, cells);
    }

    // The same of a run, if those who have touched its cells surely come before. Else nothing is
    // noted. Adds to `fresh` how many of the cells nobody has touched yet.
    SIMULATOR_INLINE bool note_in_order(const Run& run, const Known& known, size_t& fresh) {
        if (!latest.come_before(run, known)) return false;
        fresh += run.count - latest.count_since(run, settled);
        latest.put(run);
        return true;
    }

    // Whether all that count surely come before a run; then a plain write may stand for them.
    SIMULATOR_INLINE bool are_before(const Run& run, const Known& known) const {
        return latest.count_since(run, known.begin) == 0 ||
               (latest.come_before(run, known) &&
                of_past_blocks.count_since(run, known.begin) == 0);
    }
    void settle(const Run& run, int64_t begin) {
        if (latest.count_since(run, begin) == 0) return;
        if (latest.count_since(run, settled) < run.count ||
            of_past_blocks.count_since(run, settled)) {
            for (unsigned i = 0; i < run.count; i++) settle(run.spot + i);
            return;
        }
        Run nobodys = run;
        nobodys.first.time = settled;
        nobodys.values = 0;
        latest.put(nobodys);
    }

    // visit(touch) for those that do not come before what the thread does now: of each warp one.
    template <class Visit>
    void for_each_unordered(size_t spot, unsigned thread, const Order& order, uint32_t begin,
                            Visit visit) const {
        const Touch last = latest.get(spot);
        if (last.time < begin) return;
        if (!last.in_crowd) {
            if (!order.is_ordered(last, thread)) visit(last);
        } else if (!order.is_before_barrier(last.time)) {
            for (const Group& group : members[crowds.at(spot) - 1]) {
                uint32_t lanes = group.lanes;
                for (; lanes; lanes &= lanes - 1) {
                    Touch touch = group.touch;
                    touch.thread = touch.thread / warp_size * warp_size + __builtin_ctz(lanes);
                    if (order.is_ordered(touch, thread)) continue;
                    visit(touch);
                    break;
                }
            }
        }
        const Touch past = of_past_blocks.get(spot);
        if (past.time >= begin && !order.is_ordered(past, thread)) visit(past);
    }

    // Whoever has touched a cell at last, of the running block and of those before.
    template <class Visit>
    void for_each_last(size_t spot, Visit visit) const {
        visit(latest.get(spot));
        visit(of_past_blocks.get(spot));
    }

    // The thread's own last touch of a cell, if it is still known.
    Touch of(size_t spot, unsigned thread, uint32_t begin) const {
        const Touch last = latest.get(spot);
        if (last.time < begin) return {};
        if (!last.in_crowd) return last.thread == thread ? last : Touch();
        for (const Group& group : members[crowds.at(spot) - 1])
            if (group.touch.thread / warp_size == thread / warp_size &&
                group.lanes >> thread % warp_size & 1)
                return group.touch;
        return {};
    }

    // A plain write stands for all of them from now on.
    void settle(size_t spot) {
        if (latest.get(spot).time > settled) latest.at(spot).time = settled;
        if (of_past_blocks.get(spot).time > settled) of_past_blocks.at(spot).time = settled;
    }

    bool is_touched(size_t cell, uint32_t begin) const {
        return !latest.empty() && latest.get(scattered(cell)).time >= begin;
    }

    Touch last_of(size_t spot) const { return latest.get(spot); }

  private:
    struct Group {
        Touch touch;
        uint32_t lanes;
    };

    [[gnu::noinline]] void note_another(size_t spot, Touch touch, uint32_t lanes,
                                        const Order& order, uint32_t begin, size_t cells) {
        Touch& before = latest.at(spot);
        const bool is_alone = !(lanes & (lanes - 1));
        if (before.time >= begin && order.is_of_running_block(before.time)) {
            if (is_alone && !before.in_crowd && order.is_ordered(before, touch.thread)) {
                before = touch;
                return;
            }
            auto& crowd = crowd_at(spot, cells);
            if (!before.in_crowd)
                crowd.assign(1, {before, 1u << before.thread % warp_size});
            else if (order.is_before_barrier(before.time))
                crowd.clear();
            add(crowd, touch, lanes);
            before = touch;
            before.in_crowd = true;
            return;
        }
        if (before.time >= begin && !order.is_ordered(before, touch.thread)) {
            Touch& past = of_past_blocks.at(spot);
            if (past.time < begin || order.is_ordered(past, touch.thread)) {
                past = before;
                past.in_crowd = false;
            }
        }
        before = touch;
        if (is_alone) return;
        crowd_at(spot, cells).assign(1, {touch, lanes});
        before.in_crowd = true;
    }

    std::vector<Group>& crowd_at(size_t spot, size_t cells) {
        if (crowds.empty()) crowds.make(cells, false);
        uint64_t& crowd = crowds.at(spot);
        if (!crowd) {
            members.emplace_back();
            crowd = members.size();
        }
        return members[crowd - 1];
    }

    // What a thread does now stands for what it did before.
    static void add(std::vector<Group>& crowd, Touch touch, uint32_t lanes) {
        touch.in_crowd = false;
        bool is_noted = false;
        size_t kept = 0;
        for (Group& group : crowd) {
            if (group.touch.thread / warp_size == touch.thread / warp_size) {
                if (!is_noted && group.touch.time == touch.time && group.touch.site == touch.site &&
                    group.touch.strength == touch.strength && group.touch.value == touch.value) {
                    group.lanes |= lanes;
                    is_noted = true;
                } else {
                    group.lanes &= ~lanes;
                }
            }
            if (group.lanes) crowd[kept++] = group;
        }
        crowd.resize(kept);
        if (!is_noted) crowd.push_back({touch, lanes});
    }

    Touches latest, of_past_blocks;
    Table<uint64_t> crowds;  // of each cell, one more than the index of its
    std::deque<std::vector<Group>> members;
};

}  // namespace
}  // namespace simulator
