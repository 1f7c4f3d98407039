// How the threads of the traced block go on: in rounds, and the lanes of a warp together where they
// are at the same place.
#pragma once
#include <utility>
#include "../executor/libraries.h"
#include "recording.h"

extern "C" SIMULATOR_EXPORT bool simulator_trace_is_on;
bool simulator_trace_is_on = false;  // the traced block runs, and has not made all of its steps

namespace simulator {
namespace {

// A function that a thread is in.
struct Frame {
    uintptr_t at, rbp;
    const Place* place;          // the line that it runs
    std::vector<uint8_t> kept;   // its variables' bytes when they were last compared
    std::vector<uint8_t> known;  // whether they have been
};

struct TracedThread {
    std::vector<Frame> frames;
    uintptr_t base = 0;   // the first frame's address
    uint32_t step = ~0u;  // its last one that is recorded
    uint64_t pc = 0;
    size_t depth = 0;  // bytes of stack

    bool has_on_stack(uintptr_t address) const {
        return address - (base - (1 << 20)) < (1 << 20) + 4096;
    }
};

// A block that is traced.
struct TracedBlock {
    uint64_t number;
    unsigned slot;  // among those that are traced
    Block* running = nullptr;
    bool is_found = false, has_begun = false;
    uint64_t rounds = 0;
    uint32_t round = 0;  // the number of this one among those that are recorded
    uint3 index{};
    std::vector<TracedThread> threads;
    std::vector<std::string> said;  // for what each warp waits
};

class Tracer : public Stepper {
  public:
    // Of which launch, which blocks, and of each which rounds: from, to.
    uint64_t launch = 0;
    std::vector<TracedBlock> blocks;
    std::vector<std::pair<uint64_t, uint64_t>> spans;
    std::vector<uint32_t> watched_lines;  // of which `sightings` tells, with any round
    uint64_t launches = 0;
    Recording recording;
    std::vector<Place> places;
    std::vector<Variable> variables;
    std::unordered_map<uintptr_t, uint32_t> place_at;
    std::vector<uint32_t> bytes_kept;  // by function
    std::string kernel;
    dim3 grid, extent;
    unsigned stride = 0;  // of the numbers of two blocks' threads: whole warps

    bool& is_on = simulator_trace_is_on;

    bool runs_traced() {
        if (!of || of->running != &running_block()) {
            of = nullptr;
            for (TracedBlock& it : blocks)
                if (it.running == &running_block()) of = &it;
        }
        return of;
    }

    void begin_launch(const Launch&) override { launches++; }
    void forget_launch() override {
        if (launches-- != launch + 1) return;
        for (TracedBlock& it : blocks) it = {it.number, it.slot};
        recording = {};
        is_on = false;
        of = nullptr;
        unsettled = 0;
    }

    void begin_block(Block& begun) override {
        const dim3& all = begun.launch->grid;
        const uint64_t number =
            begun.index.x + uint64_t(all.x) * (begun.index.y + uint64_t(all.y) * begun.index.z);
        if (launches != launch + 1) return;
        for (TracedBlock& it : blocks) {
            if (it.is_found || it.number != number) continue;
            it.is_found = is_on = true;
            it.running = &begun;
            it.index = begun.index;
            it.threads.assign(begun.size, {});
            it.said.assign((begun.size + warp_size - 1) / warp_size, {});
            kernel = begun.launch->name;
            grid = all;
            extent = begun.launch->block;
            stride = it.said.size() * warp_size;
            of = &it;
            // A block's shared memory is known when it begins; that of its cluster's others, too.
            find_static_shared(begun, begun.launch->static_shared());
            for (unsigned n = 0; const uintptr_t at = simulator_check_shared(n); n++)
                if (const int number = recording.region_of(at); number >= 0 && is_own(begun, at))
                    recording.regions[number].block = it.slot;
            if (is_recording()) begin_recording(), next_round();
        }
    }
    void end_block(Block& ended) override {
        if (!is_on || !runs_traced()) return;
        settle();
        if (is_recording()) {
            recording.note_others(of->round);
            for (unsigned w = 0; w < of->said.size(); w++)
                recording.waits.push_back(
                    {last_round(), warp_number(*of, w), recording.word(""), 0});
        }
        for (MemoryRegion& region : recording.regions)
            if (region.is_shared && region.block == int(of->slot)) region.is_over = true;
        of->running = nullptr;
        of = nullptr;
        go_on_or_end();
    }

    void end_round(Block&) override {
        if (!is_on || !runs_traced()) return;
        if (!std::exchange(of->has_begun, true)) return;  // all have come to their first line
        settle();
        const bool was_recording = is_recording();
        if (was_recording) recording.note_others(of->round), note_waits(*of);
        of->rounds++;
        if (is_recording()) {
            if (!was_recording) begin_recording();
            next_round();
        }
        go_on_or_end();
    }

    // Those deepest in functions go first, and of them those that are the least far: so lanes that
    // have gone different ways meet again behind these.
    uint32_t lanes_to_step(const Block& at, unsigned warp) override {
        const uint32_t all = at.warps[warp].stepping;
        if (!is_on || !all || !runs_traced() || of->rounds % all_go == 0) return all;
        const TracedThread* first = nullptr;
        uint32_t lanes = 0;
        for (uint32_t left = all; left; left &= left - 1) {
            const unsigned lane = __builtin_ctz(left);
            const TracedThread& it = of->threads[warp * warp_size + lane];
            const bool same = first && it.depth == first->depth && it.pc == first->pc;
            if (!first || it.depth > first->depth ||
                (it.depth == first->depth && it.pc < first->pc)) {
                first = &it;
                lanes = 0;
            } else if (!same) {
                continue;
            }
            lanes |= 1u << lane;
        }
        return lanes;
    }

    void barrier() override {
        if (is_on && runs_traced()) recording.opened.push_back({of->slot, uint32_t(of->rounds)});
    }

    void copied(const void* to, const void* from, size_t bytes) override {
        if (from) touch(reinterpret_cast<uintptr_t>(from), bytes, Touched::Read);
        touch(reinterpret_cast<uintptr_t>(to), bytes, Touched::Write);
    }

    void is_read(uintptr_t address, size_t bytes) override {
        touch(address, bytes, Touched::Asked);
    }

    // The running thread touches memory.
    void touch(uintptr_t address, size_t size, Touched how) {
        if (!is_on || !runs_traced()) return;
        // Before its first thread begins, a block has the rank that another block left.
        if (of->running->rank >= of->threads.size()) return;
        settle();
        const TracedThread& thread = of->threads[of->running->rank];
        const int number = recording.region_of(address);
        const bool is_outside = number < 0 && !thread.has_on_stack(address);
        if (!thread.frames.empty())
            see(*thread.frames.back().place, address, size, how, is_outside);
        if (number < 0) {
            if (is_recording() && thread.step != ~0u && is_outside)
                recording.outside.push_back({address, thread.step, uint32_t(size)});
            return;
        }
        MemoryRegion& region = recording.regions[number];
        const size_t offset = address - region.begin;
        size = std::min(size, region.size - offset);
        const bool is_read = how == Touched::Read || how == Touched::Asked;
        if (region.is_shared && !is_read) std::fill_n(region.written.begin() + offset, size, true);
        if (!is_recording()) return;
        recording.note_before(number, offset, size);
        if (thread.step == ~0u) return;
        recording.touches.push_back(
            {thread.step, how, uint16_t(number), uint32_t(offset), uint32_t(size),
             recording.keep(reinterpret_cast<void*>(address), size)});
        if (!is_read) unsettled = recording.touches.size();
    }

    // ---- What is asynchronous

    void work_begins(uint32_t id, const char* what, const char* file, int line,
                     const uint64_t* barrier) override {
        if (!is_on || !runs_traced() || !is_recording()) return;
        in_flight[id] = recording.flights.size();
        recording.flights.push_back(
            {of->round, ~0u, thread_number(), recording.word(place_of(what, file, line)),
             reinterpret_cast<uint64_t>(barrier)});
    }
    void work_ends(uint32_t id) override {
        const auto found = in_flight.find(id);
        if (found == in_flight.end()) return;
        if (is_on && runs_traced()) recording.flights[found->second].until = of->round;
        in_flight.erase(found);
    }
    void tensor_use(const tensor_cores::TensorUse& use, uint32_t id) override {
        if (!is_on || !runs_traced()) return;
        const auto found = in_flight.find(id);
        const uint32_t flight = found == in_flight.end() ? ~0u : uint32_t(found->second);
        for (int i = 0; i < use.block_count; i++) {
            const int region = tensor_memory(use.blocks[i], uintptr_t(use.cells[i]));
            if (region < 0 || !is_recording()) continue;
            const uint16_t what = recording.word(place_of(use.what, use.file, use.line));
            const auto add = [&](const tensor_cores::ColumnRange* ranges, int count, bool is_read) {
                for (int k = 0; k < count; k++)
                    recording.tensor.push_back(
                        {of->round, flight, thread_number(), what, uint16_t(region), is_read,
                         uint16_t(ranges[k].first), uint16_t(ranges[k].count)});
            };
            add(use.written, use.written_count, false);
            add(use.read, use.read_count, true);
        }
    }
    void product(const tensor_cores::Tile& tile, const char* what, const char* file,
                 int line) override {
        if (!is_on || !runs_traced() || !is_recording()) return;
        const std::string shape =
            ' ' + std::string("m") + std::to_string(tile.m) + 'n' + std::to_string(tile.n) + 'k' +
            std::to_string(tile.k) + ' ' + std::to_string(int(tile.a)) + ' ' +
            std::to_string(int(tile.d));
        recording.flights.push_back({of->round, of->round, thread_number(),
                                     recording.word(place_of(what + shape, file, line)), 0});
    }
    void mbarrier_changes(const uint64_t* barrier, uint32_t count, int64_t bytes, uint32_t arriving,
                          bool has_ended, const char* what, const char* file, int line) override {
        if (!is_on || !runs_traced() || !is_recording()) return;
        recording.barriers.push_back(
            {of->round, count ? count : arriving, reinterpret_cast<uint64_t>(barrier), bytes,
             thread_number(), recording.word(place_of(what, file, line)), has_ended, count != 0});
    }

    // The running thread comes to a line. True: it has made a step.
    bool comes_to(uint64_t pc, uintptr_t rbp);

  private:
    static constexpr unsigned all_go = 64;  // every so many rounds, for those who wait for others
    static constexpr size_t most_sightings = 1 << 22;

    bool is_recording() const {
        if (!of) return false;
        for (const auto& [begin, end] : spans)
            if (of->rounds >= begin && of->rounds < end) return is_on;
        return false;
    }
    static bool is_own(const Block& block, uintptr_t shared) {
        const auto at = reinterpret_cast<const char*>(shared);
        return size_t(at - block.dynamic_shared) < std::max<size_t>(1, block.launch->shared) ||
               (at >= block.static_begin && at < block.static_end);
    }
    // As long as a block that runs has steps left to record.
    void go_on_or_end() {
        is_on = false;
        for (const TracedBlock& it : blocks) is_on |= it.running && it.rounds < spans.back().second;
    }
    uint16_t warp_number(const TracedBlock& it, unsigned warp) const {
        return it.slot * stride / warp_size + warp;
    }
    // Of any block: others may have had rounds since this one has.
    uint32_t last_round() const { return recording.rounds.size() - 1; }
    // What other blocks wait for meanwhile is known from here on.
    void next_round() {
        of->round = recording.rounds.size();
        recording.rounds.push_back({of->slot, uint32_t(of->rounds)});
        for (TracedBlock& it : blocks)
            if (&it != of && it.running && it.has_begun) note_waits(it);
    }
    // Of the block's shared memory it is known what lies there.
    void begin_recording() {
        for (unsigned number = 0; number < recording.regions.size(); number++) {
            const MemoryRegion& it = recording.regions[number];
            if (it.is_shared && it.block == int(of->slot))
                recording.note_before(number, 0, it.size);
        }
    }
    // The region that is a traced block's tensor memory, from its first use on; or -1.
    int tensor_memory(const Block* block, uintptr_t begin) {
        constexpr size_t bytes = 128 * 512 * sizeof(uint32_t);
        auto& regions = recording.regions;
        for (const TracedBlock& it : blocks) {
            if (it.running != block) continue;
            for (size_t i = regions.size(); i-- > 0;)
                if (regions[i].begin == begin && !regions[i].is_over) return i;
            MemoryRegion found{begin, bytes, true, "tensor memory"};
            found.block = it.slot;
            found.is_known.resize(bytes / stretch + 1);
            found.written.resize(bytes);
            const auto at = reinterpret_cast<const uint8_t*>(begin);
            found.initial.assign(at, at + bytes);
            regions.push_back(std::move(found));
            if (is_recording()) recording.note_before(regions.size() - 1, 0, bytes);
            return regions.size() - 1;
        }
        return -1;
    }
    uint16_t thread_number() const { return of->slot * stride + of->running->rank; }
    static std::string place_of(const std::string& what, const char* file, int line) {
        return what + " at " + file + ':' + std::to_string(line);
    }
    // Of a line that is looked for.
    void see(const Place& place, uintptr_t address, size_t size, Touched how, bool is_outside) {
        if (std::find(watched_lines.begin(), watched_lines.end(), place.line) ==
                watched_lines.end() ||
            recording.sightings.size() == most_sightings)
            return;
        recording.sightings.push_back({of->rounds, address, uint32_t(&place - places.data()),
                                       uint32_t(size), thread_number(), uint16_t(how), is_outside});
    }
    // What was written is there now.
    void settle() {
        if (!unsettled) return;
        const TouchedMemory& it = recording.touches[unsettled - 1];
        unsettled = 0;
        const auto at = recording.regions[it.region].begin + it.offset;
        memcpy(&recording.bytes[it.bytes_at], reinterpret_cast<void*>(at), it.size);
        recording.follow(it);
    }
    void note_waits(TracedBlock& it);
    // Of the variables in scope. DeclaredBefore: before the line that the function is in.
    void step(TracedThread& thread, const Place& place, uintptr_t at, bool has_returned);
    enum class Which { Parameters, DeclaredBefore, Declared };
    void compare(TracedThread& thread, Frame& frame, Which which);

    TracedBlock* of = nullptr;  // which runs
    size_t unsettled = 0;
    std::unordered_map<uint32_t, size_t> in_flight;
};

}  // namespace
}  // namespace simulator
