// The copies in bulk that have not been carried out yet, and what threads ask of mbarriers.
#pragma once
#include <deque>
#include <memory>
#include "../include/simulator/mbarrier.h"
#include "asynchronous.h"
#include "bulk_moves.h"
#include "clusters.h"

namespace simulator {
namespace {

// Of a thread, in groups that it commits and waits for.
struct Group {
    std::deque<std::pair<BulkCopy, size_t>> copies;  // each with the number of its group
    size_t groups = 0;
};

}  // namespace

// Of a block: those that are to tell one of its barriers. Other blocks of the cluster add to them.
struct BulkCopies {
    std::mutex mutex;
    std::deque<BulkCopy> waiting;
    std::map<unsigned, Group> groups;              // by the ranks of threads
    std::map<unsigned, const uint64_t*> waits_at;  // the barrier that a thread has asked last
};

namespace {

// In a cluster others ask for them too, so there they are made before it begins.
BulkCopies& copies_of(Worker& block) {
    if (!block.bulk_copies) block.bulk_copies = new BulkCopies;
    return *block.bulk_copies;
}

// What nobody has waited for. What was to tell a barrier is seen by nobody any more; what was to be
// written to global memory is.
void finish_copies(Worker& block) {
    if (!block.bulk_copies) return;
    for (auto& [rank, group] : block.bulk_copies->groups)
        for (const auto& [copy, number] : group.copies)
            if (!copy.is_done) carry_out(copy);
    forget_copies(block);
}
void forget_copies(Worker& block) {
    if (!block.bulk_copies) return;
    BulkCopies& all = *block.bulk_copies;
    std::lock_guard<std::mutex> lock(all.mutex);
    all.groups.clear();
    all.waits_at.clear();
    all.waiting.clear();
}

// "phase 3, 2 of 4 arrivals and 1024 bytes are missing"
std::string describe_mbarrier(Worker& block, unsigned rank) {
    if (!block.bulk_copies) return "";
    const auto found = block.bulk_copies->waits_at.find(rank);
    if (found == block.bulk_copies->waits_at.end()) return "";
    const MbarrierState now = state_of(found->second);
    std::string missing;
    if (now.awaited())
        missing = text("%llu of %llu arrivals", (unsigned long long)now.awaited(),
                       (unsigned long long)now.expected());
    if (now.bytes() > 0)
        missing += text("%s%lld bytes", missing.empty() ? "" : " and ", (long long)now.bytes());
    if (now.bytes() < 0)
        missing += text("%s%lld bytes have come that nobody has announced",
                        missing.empty() ? "" : " are missing, and ", -(long long)now.bytes());
    uint32_t at = 0;
    find_in(block, reinterpret_cast<const char*>(found->second), at);
    at &= 0xffffff;
    return text(" (mbarrier at 0x%x, phase %u: %s%s)", at, now.phase() & 1,
                missing.empty() ? "nothing" : missing.c_str(),
                now.bytes() < 0   ? ""
                : missing.empty() ? " is missing"
                                  : " are missing");
}

}  // namespace

// For a watcher: a copy that has just been asked for gets its number, and may be carried out.
namespace {
[[gnu::always_inline]] inline BulkCopy watched(const Block& of, BulkCopy copy) {
    if (WorkWatcher* work = watching_work()) {
        copy.asked_from = told_from;
        work->bulk_copy(of, copy);
        // What tensor memory is asked for is never early: who uses its columns looks for what is.
        copy.is_done = copy.kind != BulkCopy::Call && work->is_early();
        if (copy.is_done) carry_out(copy);
    }
    return copy;
}
}  // namespace

void add_copy(Block& of, const BulkCopy& copy) {
    auto& block = static_cast<Worker&>(of);
    BulkCopies& all = copies_of(block);
    {
        std::lock_guard<std::mutex> lock(all.mutex);
        all.waiting.push_back(watcher ? watched(of, copy) : copy);
    }
    if (worker->tracked) worker->wake_parked();
    if (block.team) block.team->change_for(block.cluster_rank);
}

bool take_due_copy(const uint64_t* barrier, BulkCopy& copy) {
    if (!worker->bulk_copies) return false;
    BulkCopies& all = *worker->bulk_copies;
    std::lock_guard<std::mutex> lock(all.mutex);
    for (auto it = all.waiting.begin(); it != all.waiting.end(); ++it) {
        if (it->barrier != barrier) continue;
        copy = *it;
        all.waiting.erase(it);
        return true;
    }
    return false;
}

void add_to_group(const BulkCopy& copy) {
    Group& mine = copies_of(*worker).groups[worker->rank];
    mine.copies.push_back({watcher ? watched(*worker, copy) : copy, mine.groups});
}

void commit_group() {
    if (WorkWatcher* work = watching_work()) work->commit_group();
    copies_of(*worker).groups[worker->rank].groups++;
}

namespace {
// The next of those due, if all but the last `prior` groups are to be complete.
bool take_due_of_group(size_t prior, BulkCopy& copy) {
    if (!worker->bulk_copies) return false;
    const auto found = worker->bulk_copies->groups.find(worker->rank);
    if (found == worker->bulk_copies->groups.end()) return false;
    Group& mine = found->second;
    if (mine.copies.empty() || mine.copies.front().second + prior >= mine.groups) return false;
    copy = mine.copies.front().first;
    mine.copies.pop_front();
    return true;
}
}  // namespace

void finish(const BulkCopy& copy) {
    if (!copy.is_done) carry_out(copy);
    if (WorkWatcher* work = watching_work()) work->bulk_copy_done(copy);
}
void wait_for_groups(size_t prior, bool until_read, const char* file, int line) {
    for (BulkCopy copy; take_due_of_group(prior, copy);)
        if (!copy.is_done) carry_out(copy);
    if (WorkWatcher* work = watching_work()) work->groups_done(prior, until_read, file, line);
}

void note_mbarrier(const uint64_t* barrier) {
    copies_of(*worker).waits_at[worker->rank] = barrier;
    if (WorkWatcher* work = watching_work()) work->mbarrier_awaited(barrier);
}

void fail_mbarrier(const char* what, uint64_t word, long long arriving, const char* file,
                   int line) {
    failed_from = __builtin_return_address(0);
    const MbarrierState state{word};
    const std::string reason =
        state.expected() == 0
            ? std::string("the mbarrier has not been initialised")
            : text(
                  "%lld arrive, and the phase awaits %llu more: has one thread initialised it with "
                  "the number of all that arrive, and a barrier followed?",
                  arriving, (unsigned long long)state.awaited());
    worker->fail(cudaErrorLaunchFailure,
                 text("%s:%d: thread %u: %s: %s", file, line, worker->rank, what, reason.c_str()));
}

}  // namespace simulator
