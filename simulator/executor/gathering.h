// Where the blocks of a cooperative grid wait for each other. Each has an operating-system thread
// of its own, which it leaves idle while it waits.
//
// What is instrumented runs one block at a time: a block that waits hands its turn to the next. So
// do the blocks of any other watched grid from where one of them waits for those that are still to
// come.
#pragma once
#include <condition_variable>
#include <mutex>
#include <vector>
#include "errors.h"

namespace simulator {
namespace {

class Gathering {
  public:
    enum class Outcome { Met, Deadlock, GivenUp };

    void begin(const Launch& to_run) {
        launch = &to_run;
        const dim3& grid = launch->grid;
        blocks.assign(launch->cooperative ? size_t(grid.x) * grid.y * grid.z : 0, {});
        arrived = idle = turn = 0;
        round = 0;
        given_up = false;
        in_turns = launch->cooperative && launch->instrumented;
    }
    // From here on the block that runs and so many from the first one on that has not begun take
    // turns, and when one of these ends the next may begin.
    void begin_turns(size_t count, size_t running, size_t first, size_t others) {
        std::lock_guard<std::mutex> lock(mutex);
        blocks.assign(count, {State::Absent});
        begun = first + others;
        for (size_t n = 0; n < begun; n++)
            blocks[n].state = n < first ? State::Ended : State::Ready;
        blocks[running].state = State::Ready;
        idle = first - 1;
        turn = running;
        in_turns = true;
    }
    bool takes_turns() const { return in_turns; }

    // The n-th block begins, unless nobody is to any more; and ends.
    bool enter(size_t n, uint3 index) {
        std::unique_lock<std::mutex> lock(mutex);
        blocks[n].index = index;
        take_turn(lock, n);
        return !given_up;
    }
    void leave(size_t n) {
        std::lock_guard<std::mutex> lock(mutex);
        if (!launch->cooperative && begun < blocks.size()) blocks[begun++].state = State::Ready;
        become(n, State::Ended);
    }

    // A block tells the others that it has come so far, and is told for which round to wait. True
    // if it is the last.
    bool arrive(uint64_t& mine) {
        std::lock_guard<std::mutex> lock(mutex);
        mine = round;
        if (++arrived < blocks.size()) return false;
        arrived = idle = 0;
        round++;
        for (Member& block : blocks) {
            if (block.state == State::Waiting) block.state = State::Ready;
            if (block.state == State::Ended) idle++;
        }
        changed.notify_all();
        return true;
    }

    // Until all blocks have arrived in that round.
    Outcome wait(size_t n, uint64_t mine, const Thread& at) {
        std::unique_lock<std::mutex> lock(mutex);
        if (round == mine) {
            blocks[n].at = &at;
            become(n, State::Waiting);
        }
        changed.wait(lock, [&] { return round != mine || given_up || is_stuck(); });
        if (round == mine && !given_up) return Outcome::Deadlock;
        if (!given_up) take_turn(lock, n);
        return given_up ? Outcome::GivenUp : Outcome::Met;
    }

    // The threads of a block spin: others go first. False if the launch is to end.
    bool yield(size_t n) {
        std::unique_lock<std::mutex> lock(mutex);
        pass_turn(n);
        if (turn != n) changed.notify_all();
        take_turn(lock, n);
        return !given_up;
    }

    // The launch has failed, or is to stop: nobody waits any longer.
    void give_up() {
        std::lock_guard<std::mutex> lock(mutex);
        given_up = true;
        changed.notify_all();
    }

    // After a deadlock: who waits where, and who has returned.
    std::string describe_deadlock() {
        std::lock_guard<std::mutex> lock(mutex);
        struct Place {
            std::string name;
            uint3 first;
            size_t count;
        };
        std::vector<Place> places;
        const auto add = [&](const std::string& name, const uint3& index) {
            for (Place& place : places)
                if (place.name == name) return void(place.count++);
            places.push_back({name, index, 1});
        };
        size_t waiting = 0;
        for (const Member& block : blocks) {
            if (block.state != State::Waiting) continue;
            waiting++;
            add(text("%s:%d: %s", block.at->file, block.at->line, block.at->what), block.index);
        }
        for (const Member& block : blocks)
            if (block.state == State::Ended) add("returned", block.index);
        const dim3& grid = launch->grid;
        std::string message =
            text("%s, grid (%u, %u, %u): %zu of %zu blocks wait for others that never come",
                 describe(*launch).c_str(), grid.x, grid.y, grid.z, waiting, blocks.size());
        for (const auto& [name, first, count] : places)
            message += text(
                "\n  %s: %zu block%s (%s(%u, %u, %u))", name.c_str(), count, count == 1 ? "" : "s",
                count == 1 ? "" : "the first is ", first.x, first.y, first.z);
        return message;
    }

  private:
    enum class State : uint8_t { Ready, Waiting, Ended, Absent };
    struct Member {
        State state = State::Ready;
        uint3 index{};
        const Thread* at = nullptr;  // one of its threads, where it waits
    };

    bool is_stuck() const { return idle == blocks.size(); }

    void become(size_t n, State state) {
        blocks[n].state = state;
        idle++;
        if (launch->instrumented) pass_turn(n);
        if (launch->instrumented || is_stuck()) changed.notify_all();
    }

    void pass_turn(size_t n) {
        for (size_t k = 1; k <= blocks.size(); k++) {
            turn = (n + k) % blocks.size();
            if (blocks[turn].state == State::Ready) return;
        }
    }

    void take_turn(std::unique_lock<std::mutex>& lock, size_t n) {
        if (launch->instrumented) changed.wait(lock, [&] { return turn == n || given_up; });
    }

    std::mutex mutex;
    std::condition_variable changed;
    const Launch* launch = nullptr;
    std::vector<Member> blocks;
    size_t arrived, idle;  // idle: those that wait, and those that have ended
    size_t turn;           // whose it is, where one block runs at a time
    size_t begun = 0;      // where they take turns and are not of one cooperative grid
    uint64_t round;
    bool given_up, in_turns = false;
};

Gathering gathering;

}  // namespace
}  // namespace simulator
