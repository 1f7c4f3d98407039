// Tensor memory: who has which columns, and what warps load and store.
#pragma once
#include <map>
#include <memory>
#include <mutex>
#include <utility>
#include "../../include/simulator/tensor_memory.h"
#include "warpgroups.h"

namespace simulator::tensor_cores {
namespace {

constexpr uint32_t all_lanes = 128, all_columns = 512, granule = 32;

// What a thread has not waited for. A store is carried out then. A load has been already: C++ may
// copy its registers before the wait, and nvcc makes no instruction of that.
struct PendingAccess {
    TensorAccess access;
    int count;
    std::vector<uint32_t> values;  // of a store
};

// Of one thread, in its order: operations from `done` on have still to be carried out.
struct AskedOfMemory {
    std::vector<PendingAccess> accesses;
    std::vector<TensorOperation> operations;
    size_t done = 0;
};

// Of one block.
struct TensorMemory {
    uint64_t block = 0;  // which of those that its operating-system thread runs
    uint32_t cells[all_lanes][all_columns];
    uint32_t sizes[all_columns / granule] = {};  // of the allocations, where they begin
    bool is_taken[all_columns / granule] = {};
    bool has_relinquished = false;
    std::map<unsigned, AskedOfMemory> asked;  // by the ranks of threads
    std::recursive_mutex mutex;               // the other block of a pair may carry out, too

    uint32_t* row(uint32_t lane) { return cells[lane % all_lanes]; }
    bool has(uint32_t column, uint32_t count) const {
        for (uint32_t i = column / granule; i * granule < column + count; i++)
            if (i >= all_columns / granule || !is_taken[i]) return false;
        return true;
    }
};

// The memory of a block. Blocks are few, one for each operating-system thread, and stay.
TensorMemory& memory_of(const Block& block) {
    static std::mutex mutex;
    static std::map<const Block*, std::unique_ptr<TensorMemory>> memories;
    std::lock_guard<std::mutex> lock(mutex);
    std::unique_ptr<TensorMemory>& found = memories[&block];
    if (!found) found = std::make_unique<TensorMemory>();
    if (found->block != block.serial) {
        found->block = block.serial;
        for (auto& lane : found->cells)
            for (uint32_t& cell : lane) cell = 0xffa5a5a5;  // no number, as nobody has written it
        for (uint32_t& size : found->sizes) size = 0;
        for (bool& taken : found->is_taken) taken = false;
        found->has_relinquished = false;
        found->asked.clear();
    }
    return *found;
}

// The lock under which the thread carries out operations. An error ends the block without unwinding
// the stack, so it is released before.
thread_local std::recursive_mutex* held = nullptr;
[[noreturn]] void fail_unlocked(const char* reason, const char* what, const char* file, int line) {
    if (std::recursive_mutex* const mutex = std::exchange(held, nullptr)) mutex->unlock();
    fail(reason, what, file, line);
}

// An error whose reason has numbers in it.
template <class... Numbers>
[[noreturn]] void fail_with(const char* what, const char* file, int line, const char* format,
                            Numbers... numbers) {
    thread_local char reason[300];
    snprintf(reason, sizeof reason, format, numbers...);
    fail_unlocked(reason, what, file, line);
}

void want_columns(const TensorMemory& memory, uint32_t address, uint32_t count, const char* what,
                  const char* file, int line) {
    const uint32_t column = address & 0xffff;
    if (!memory.has(column, count))
        fail_with(what, file, line,
                  "columns %u to %u of tensor memory have not been allocated, at least in part",
                  column, column + count - 1);
}

// Of the shape, the place of a thread's register: a lane from the address's on, and a column.
struct Place {
    uint32_t lane, column;
};

Place place_of(Shape shape, uint32_t thread, uint32_t i, uint32_t split) {
    switch (shape) {
        case Shape::Lanes32x32:
            return {thread, i};
        case Shape::Lanes16x64:
            return {thread / 4 + thread / 2 % 2 * 8, i * 2 + thread % 2};
        case Shape::Lanes16x128:
            return {thread / 4 + i % 2 * 8, i / 2 * 4 + thread % 4};
        case Shape::Lanes16x256:
            return {thread / 4 + i / 2 % 2 * 8, i / 4 * 8 + thread % 4 * 2 + i % 2};
        default:
            return {thread % 16, i + thread / 16 * split};
    }
}

void carry_out(TensorMemory& memory, const TensorAccess& access, void* const* registers, int count,
               unsigned thread) {
    const char* what = access.is_store ? "tcgen05.st" : "tcgen05.ld";
    // A GPU ignores the bits of the warp in the lane, which is of its own 32 in any case: so says
    // DeepGEMM's sm100_bf16_gemm.cuh, whose addresses have 0 there. PTX leaves it undefined, and
    // lab.check notes it.
    const uint32_t given = access.address >> 16, column = access.address & 0xffff;
    const uint32_t own = thread / 32 % 4 * 32, step = access.shape == Shape::Lanes32x32 ? 32 : 16;
    if (given % step)
        fail_with(what, access.file, access.line,
                  "its address has lane %u; it begins at a multiple of %u", given, step);
    const uint32_t lane = own + given % 32;
    const uint32_t width = access.is_packed ? 2 : 1;
    for (int i = 0; i < count; i++) {
        const Place at = place_of(access.shape, thread % 32, uint32_t(i), access.split / width);
        const uint32_t first = column + at.column * width;
        if (!memory.has(first, width))
            want_columns(memory, first, width, what, access.file, access.line);
        uint32_t* const cell = &memory.row(lane + at.lane)[first];
        if (access.is_store) {
            uint32_t value;
            memcpy(&value, registers[i], sizeof value);
            cell[0] = access.is_packed ? value & 0xffff : value;
            if (access.is_packed) cell[1] = value >> 16;
        } else {
            const uint32_t value = access.is_packed ? (cell[0] & 0xffff) | cell[1] << 16 : cell[0];
            memcpy(registers[i], &value, sizeof value);
        }
    }
}

const Allocation& first_of(Meeting* const* lanes, uint32_t which) {
    return *static_cast<Allocation*>(lanes[__builtin_ctz(which)]);
}

}  // namespace

void allocate(Meeting* const* lanes, uint32_t which) {
    const Allocation& first = first_of(lanes, which);
    const char* what = "tcgen05.alloc";
    const uint32_t count = first.count;
    if (count < granule || count > all_columns || (count & (count - 1)))
        fail_with(what, first.file, first.line, "nCols is %u: it is a power of two from 32 to 512",
                  count);
    TensorMemory& memory = memory_of(running_block());
    if (memory.has_relinquished)
        fail("the block has given up the right to allocate (tcgen05.relinquish_alloc_permit)", what,
             first.file, first.line);
    uint32_t at = 0;
    const auto is_free = [&] {
        for (uint32_t i = at; i < at + count; i += granule)
            if (memory.is_taken[i / granule]) return false;
        return true;
    };
    while (at < all_columns && !is_free()) at += count;
    const bool is_granted = at < all_columns;
    if (is_granted) {
        for (uint32_t i = at; i < at + count; i += granule) memory.is_taken[i / granule] = true;
        memory.sizes[at / granule] = count;
    }
    for (int lane = 0; lane < 32; lane++) {
        if (!(which >> lane & 1)) continue;
        auto& mine = *static_cast<Allocation*>(lanes[lane]);
        mine.address = at;
        mine.is_granted = is_granted;
        mine.is_first = &mine == &first;
    }
}

namespace {
// A product that is under way in columns that are freed. (lab.check finds it before, and goes on.)
// A load of them has given its values: ptxas makes the first use of a register wait for it, so the
// missing wait is a finding of lab.check's alone.
void want_no_product_under_way(const TensorMemory& memory, const Allocation& freed) {
    for (const auto& [rank, asked] : memory.asked) {
        for (size_t i = asked.done; i < asked.operations.size(); i++) {
            const TensorOperation& it = asked.operations[i];
            if (it.kind == TensorOperation::Product &&
                (it.to & 0xffff) - freed.address < freed.count)
                fail_with("tcgen05.dealloc", freed.file, freed.line,
                          "nobody has waited for the product of thread %u in these columns, at "
                          "an mbarrier that this thread names in tcgen05.commit. The tcgen05.mma "
                          "is %s:%d",
                          rank, it.file, it.line);
        }
    }
}
}  // namespace

void deallocate(Meeting* const* lanes, uint32_t which) {
    const Allocation& first = first_of(lanes, which);
    TensorMemory& memory = memory_of(running_block());
    const uint32_t at = first.address;
    if (at % granule || at >= all_columns || memory.sizes[at / granule] != first.count)
        fail_with("tcgen05.dealloc", first.file, first.line,
                  "no tcgen05.alloc has returned %u for nCols of %u, or they are free again", at,
                  first.count);
    if (!running_block().launch->instrumented) want_no_product_under_way(memory, first);
    memory.sizes[at / granule] = 0;
    for (uint32_t i = at; i < at + first.count; i += granule) memory.is_taken[i / granule] = false;
}

void relinquish(Meeting* const*, uint32_t) { memory_of(running_block()).has_relinquished = true; }

void ask(const TensorAccess& access, void* const* registers, int count) {
    const Block& block = running_block();
    TensorMemory& memory = memory_of(block);
    PendingAccess pending{access, count, {}};
    if (access.is_store)
        for (int i = 0; i < count; i++)
            pending.values.push_back(*static_cast<const uint32_t*>(registers[i]));
    else
        carry_out(memory, access, registers, count, block.rank);
    memory.asked[block.rank].accesses.push_back(std::move(pending));
}

void carry_out_accesses(Meeting* const* lanes, uint32_t which) {
    TensorMemory& memory = memory_of(running_block());
    for (int lane = 0; lane < 32; lane++) {
        if (!(which >> lane & 1)) continue;
        const auto& mine = *static_cast<AccessWait*>(lanes[lane]);
        std::vector<PendingAccess>& all = memory.asked[mine.thread].accesses;
        std::vector<PendingAccess> later;
        for (PendingAccess& each : all) {
            if (each.access.is_store != mine.of_stores) {
                later.push_back(std::move(each));
            } else if (mine.of_stores) {
                std::vector<void*> registers;
                for (uint32_t& value : each.values) registers.push_back(&value);
                carry_out(memory, each.access, registers.data(), each.count, mine.thread);
            }
        }
        all = std::move(later);
    }
}

}  // namespace simulator::tensor_cores
