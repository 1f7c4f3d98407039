// Locks: words that a thread changes by an atomicCAS or atomicExch and later sets back.
//
// Whoever takes a lock comes after those who held it before, in this run; another run may have them
// in another order. So a lock alone orders nothing here. It keeps two accesses apart that are both
// made while it is held, with a fence after it was taken and one before it is given back; and who
// reads there what another has written comes after all that the other one has released. (Predictive
// race detection has such orders: Genç, Roemer, Xu, Bond: Dependence-Aware, Unbounded Sound
// Predictive Race Detection.)
#pragma once
#include <algorithm>
#include <unordered_map>
#include <vector>
#include "clocks.h"

namespace simulator {
namespace {

// What a strong access has made of a word. An Exchange is an atomicCAS or atomicExch, which may
// take a lock.
struct Change {
    enum How : uint8_t { None, Store, Update, Exchange } how = None;
    uint64_t before = 0, after = 0;

    bool is_one() const { return how == Store || (how != None && before != after); }
};

enum Reach { OwnBlock, Everybody };  // for whom a fence, or what was given away, is

// A lock, or what may turn out to be one, while a thread holds it.
struct Held {
    uintptr_t word;
    uint64_t free;  // the value when nobody holds it
    uint32_t begin;
    uint32_t fenced[2] = {};  // by Reach: when a fence followed; 0: none yet
    bool is_lock = false;
    ClockPointer before[2];       // what those have given away who held it before
    std::vector<unsigned> sites;  // volatile accesses meanwhile

    void fence(Reach reach, uint32_t now) {
        if (!fenced[reach]) fenced[reach] = now;
    }
};

// From taking a lock to giving it back.
struct Section {
    uint32_t serial, begin, end;
    uint32_t fenced[2];
    ClockPointer given[2];
};

// What keeps a lock from protecting an access.
enum class LockFault : uint8_t { None, OneSide, NoFenceAfter, NoFenceBefore, Scope };
constexpr const char* lock_fault_texts[] = {
    "", "only one of the two threads holds the lock",
    "no fence comes between taking the lock and the access",
    "no fence comes between the access and giving the lock back",
    "a fence of the lock has the scope of its block, and the other thread is in another block"};

struct Lock {
    uint64_t free;
    bool is_regular = true;         // taken and given back by its holder, and by nobody else
    std::vector<Section> sections;  // one after another

    const Section* at(uint32_t time, uint32_t serial) const {
        auto after =
            std::upper_bound(sections.begin(), sections.end(), time,
                             [](uint32_t t, const Section& section) { return t < section.begin; });
        if (after == sections.begin()) return nullptr;
        const Section& found = after[-1];
        return found.serial == serial && time < found.end ? &found : nullptr;
    }
};

// Of the running block, by thread. A thread's last few are enough: most are no locks.
class HeldLocks {
  public:
    static constexpr size_t most = 4;

    bool empty() const { return threads.empty(); }
    std::vector<Held>& of(unsigned thread, unsigned count) {
        if (threads.empty()) threads.resize(count);
        return threads[thread];
    }
    template <class Visit>
    void for_each_of(unsigned thread, Visit visit) {
        if (!threads.empty())
            for (Held& it : threads[thread]) visit(it);
    }
    template <class Visit>
    void for_each(Visit visit) {
        for (std::vector<Held>& held : threads)
            for (Held& it : held) visit(it);
    }

    std::vector<unsigned> holders;  // threads that hold what is known to be a lock

    void note_holder(unsigned thread) {
        if (std::find(holders.begin(), holders.end(), thread) == holders.end())
            holders.push_back(thread);
    }
    void forget(unsigned thread, uintptr_t word) {
        auto& held = threads[thread];
        held.erase(std::remove_if(
                       held.begin(), held.end(), [&](const Held& it) { return it.word == word; }),
                   held.end());
        const auto is_lock = [](const Held& it) { return it.is_lock; };
        if (std::none_of(held.begin(), held.end(), is_lock))
            holders.erase(std::remove(holders.begin(), holders.end(), thread), holders.end());
    }

  private:
    std::vector<std::vector<Held>> threads;  // empty until one of them holds something
};

}  // namespace
}  // namespace simulator
