// The report of a deadlock: which threads of a block wait, and where.
#pragma once
#include "worker.h"

namespace simulator {
namespace {

// "0-30, 64" from ranks that come in ascending order.
class Ranges {
  public:
    void add(unsigned rank) {
        if (count++ && rank == last + 1) {
            last = rank;
            return;
        }
        flush();
        first = last = rank;
    }

    std::string str() {
        flush();
        return written;
    }

    unsigned count = 0;

  private:
    void flush() {
        if (first > last) return;
        written +=
            text(first == last ? "%s%u" : "%s%u-%u", written.empty() ? "" : ", ", first, last);
        first = 1, last = 0;
    }

    unsigned first = 1, last = 0;
    std::string written;
};

void Worker::report_deadlock() {
    error = {cudaErrorLaunchFailure, describe_deadlock()};
    stacks.reset();
}

// What a thread waits for.
std::string Worker::describe_wait(unsigned rank) {
    const Warp& it = warps[rank / warp_size];
    const unsigned lane = rank % warp_size;
    const Thread& thread = threads[rank];
    std::string what = thread.what;
    const bool at_mbarrier = strstr(thread.what, "mbarrier") || strstr(thread.what, "::barrier");
    if ((it.parked | it.pausing) >> lane & 1 && at_mbarrier) what += describe_mbarrier(*this, rank);
    if (it.named >> lane & 1) {
        const NamedBarrier& barrier = named[it.key[lane]];
        what +=
            text(" (barrier %llu: %u of %u threads have come)", (unsigned long long)it.key[lane],
                 barrier.arrived, barrier.expected ? barrier.expected : alive);
    }
    if (it.exchange >> lane & 1) what += text(" (mask 0x%08x)", uint32_t(it.key[lane]));
    return what;
}

// For the watcher whose time is over. `at`: the next instruction of the thread that runs, or 0 if
// all wait.
void Worker::tell_where(uintptr_t at) {
    if (!watched_by || !time_limit.is_over) return;
    std::vector<Standing> groups;
    std::vector<Ranges> ranges;
    std::vector<bool> has_begun(size);
    for (unsigned i = 0; i < next; i++) has_begun[order ? order[i] : i] = true;
    for (unsigned rank = 0; rank < size; rank++) {
        Standing it{"has not begun", "", 0, 0, 0, ""};
        if (at && rank == this->rank) {
            it.doing = "runs";
            it.at = at;
        } else if (has_begun[rank]) {
            it.doing = "has returned";
            if (tracked && warps[rank / warp_size].alive >> rank % warp_size & 1)
                it.doing = describe_wait(rank), it.file = threads[rank].file,
                it.line = threads[rank].line;
        }
        size_t i = 0;
        while (i < groups.size() && (groups[i].doing != it.doing || groups[i].file != it.file ||
                                     groups[i].line != it.line))
            i++;
        if (i == groups.size()) groups.push_back(it), ranges.emplace_back();
        ranges[i].add(rank);
    }
    for (size_t i = 0; i < groups.size(); i++) {
        groups[i].count = ranges[i].count;
        groups[i].threads = ranges[i].str();
    }
    watched_by->stood(*this, groups);
}

// One line for each place at which threads wait.
std::string Worker::describe_deadlock() {
    std::vector<std::pair<std::string, Ranges>> places;
    for (unsigned rank = 0; rank < size; rank++) {
        const Warp& it = warps[rank / warp_size];
        const unsigned lane = rank % warp_size;
        if (!(it.alive >> lane & 1)) continue;
        const Thread& thread = threads[rank];
        const std::string place = text("%s:%d: ", thread.file, thread.line) + describe_wait(rank);
        size_t i = 0;
        while (i < places.size() && places[i].first != place) i++;
        if (i == places.size()) places.push_back({place, {}});
        places[i].second.add(rank);
    }
    std::string message =
        text("%s, block (%u, %u, %u): %u of %u threads wait for others that never come",
             describe(*launch).c_str(), index.x, index.y, index.z, alive, size);
    for (auto& [place, ranks] : places)
        message += text("\n  %s: %u thread%s (%s)", place.c_str(), ranks.count,
                        ranks.count == 1 ? "" : "s", ranks.str().c_str());
    return message;
}

}  // namespace
}  // namespace simulator
