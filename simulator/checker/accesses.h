// What the hooks tell the checker: accesses, fences, atomics, memory, and that the host waits.
#pragma once
#include "recorder.h"

namespace simulator {
namespace {

template <Kind kind>
SIMULATOR_INLINE void Recorder::access(uintptr_t address, unsigned size, uintptr_t pc) {
    if (mode == Mode::Off)
        return host.may_watch(address) ? host_access(address, size, kind, pc) : void();
    const Slot& slot = table[pc % slots];  // where it nearly always is
    if (slot.pc != pc || !slot.takes(address, size))
        return access_elsewhere<kind>(address, size, pc);
    access_at<kind>(slot, address, size);
}

template <Kind kind>
SIMULATOR_INLINE void Recorder::access_at(const Slot& slot, uintptr_t address, unsigned size) {
    if (undefined.is_too_long()) give_up_repeating(sites[slot.id], address, size);
    if (mode == Mode::Bounds)
        return slot.is_private ? void() : note_in_bounds<kind>(address, size, slot);
    access_in_trace<kind>(slot, address, size);
}

template <Kind kind>
[[gnu::noinline]] void Recorder::access_in_trace(const Slot& slot, uintptr_t address,
                                                 unsigned size) {
    if (slot.is_private) {
        if (asynchronous.watches_registers && !undefined.is_filling)
            asynchronous.look_at_register(address, size, kind, sites[slot.id]);
        return;
    }
    if (asynchronous.is_watching) asynchronous.look(address, size, kind, sites[slot.id]);
    const Access access(address, size, slot.id);
    if (is_atomic(kind)) last_address = 0;
    if (is_strong(kind)) sites[slot.id].scope = next_scope;
    if (!only_reads(kind)) note_value();
    const Access* const added = trace->add(block->rank, access);
    if (kind == Kind::Swap) last_swap = slot.id;
    if (!added)
        inspect_at_once(access);
    else if (kind == Kind::Write || kind == Kind::VolatileWrite)
        last_write = {added, address, size};
    else if (kind == Kind::VolatileRead && spins[block->rank].what == access.bits &&
             spins[block->rank].is_waiting())
        wait(slot.id);  // as before other blocks had their turn
}

template <Kind kind>
void Recorder::access_range(uintptr_t address, size_t bytes, uintptr_t pc) {
    const size_t piece = std::min<size_t>(
        {bytes & -bytes, address & -address,
         bytes > 16   ? 16u
         : bytes == 8 ? 4u
                      : 8u});
    for (size_t i = 0; i < bytes; i += piece) access<kind>(address + i, piece, pc);
}

template <Kind kind>
SIMULATOR_INLINE void Recorder::note_in_bounds(uintptr_t address, unsigned size, const Slot& slot) {
    if (kind != Kind::Read) written_to[slot.id] = std::max(written_to[slot.id], address + size);
    if (address != last_address) {
        last_address = address;
        repeats = 0;
    } else if (++repeats > waits_after) {
        wait(slot.id);
    }
}

template <Kind kind>
[[gnu::noinline]] void Recorder::access_elsewhere(uintptr_t address, unsigned size, uintptr_t pc) {
    if (const Slot& slot = slot_of(pc); slot.pc == pc && slot.takes(address, size))
        return access_at<kind>(slot, address, size);
    if (!look(pc, address, size, kind)) return;
    if (!(address & (size - 1))) return access_at<kind>(slot_of(pc), address, size);
    // A structure of 16 bytes whose type wants only 8 of alignment comes as one access.
    if (size != 16 || address & 7 || address - misaligned_pointer < pointed_to)
        return misaligned(pc, address, size);
    access<kind>(address, 8, pc);
    access<kind>(address + 8, 8, pc);
}

inline void Recorder::loaded(uintptr_t address, uintptr_t pc) {
    if (mode == Mode::Off) return;
    if (address != last_address)
        last_address = address, repeats = 0;
    else if (++repeats > waits_after)
        wait_for_load(pc);
}

inline void Recorder::fence() {
    const Scope scope = std::exchange(next_scope, Scope::Device);
    if (mode != Mode::Full) return;
    settle_store();
    inspect_rest(block->rank, 0);
    order.fence(block->rank, scope);
    fences.own[block->rank] = true;
    if (scope != Scope::Block) fences.for_all[block->rank] = true;
}

inline void Recorder::note_store(uintptr_t address, unsigned size, uintptr_t pc) {
    const unsigned rank = block ? block->rank : 0;
    if (mode != Mode::Full || !(fences.own[rank] || fences.for_all[rank])) return;
    const Slot& slot = slot_of(pc);
    if (slot.pc != pc) return;
    sites[slot.id].tells |= fences.own[rank];
    sites[slot.id].tells_blocks |= fences.for_all[rank];
    last_store = {address, size, rank, slot.id};
}

inline void* Recorder::took(void* memory, size_t bytes) {
    if (!memory || !is_on()) return memory;
    if (mode == Mode::Off) {
        std::lock_guard<std::mutex> lock(host_mutex);
        of_host[reinterpret_cast<uintptr_t>(memory)] = bytes;
        return memory;
    }
    uses_heap = true;
    heap[reinterpret_cast<uintptr_t>(memory)] = bytes;
    return memory;
}

inline void Recorder::gave_back(void* memory) {
    if (mode == Mode::Off && is_on()) {
        std::lock_guard<std::mutex> lock(host_mutex);
        of_host.erase(reinterpret_cast<uintptr_t>(memory));
        for (auto& it : host.blocks)
            if (it.begin == reinterpret_cast<uintptr_t>(memory)) it = {};
    }
    if (!heap.empty() && heap.erase(reinterpret_cast<uintptr_t>(memory))) forget_places();
}

// realloc. What the heap has stays there.
inline void* Recorder::took_again(void* memory, size_t bytes, const void* caller) {
    const auto at = reinterpret_cast<uintptr_t>(memory);
    if (memory && at - host.heap >= host.heap_end - host.heap) {
        gave_back(memory);
        return took(realloc(memory, bytes), bytes);
    }
    void* const guarded = take_for_host(bytes);
    void* const larger = took(guarded ? guarded : malloc(bytes), bytes);
    if (!memory || !larger) return larger;
    memcpy(larger, memory, std::min(bytes, guarded_memory_at(at).second));
    gave_back(memory);
    free(give_back_host_memory(memory, "realloc()", caller));
    return larger;
}

SIMULATOR_INLINE unsigned Recorder::digest(uintptr_t address, unsigned size) {
    const auto at = [&](auto type) { return *reinterpret_cast<decltype(type)*>(address); };
    uint64_t value = size == 1   ? at(uint8_t())
                     : size == 2 ? at(uint16_t())
                     : size == 4 ? at(uint32_t())
                                 : at(uint64_t());
    if (size == 16) {
        address += 8;
        value = value * 31 + at(uint64_t());
    }
    const unsigned few = (value * 0x9E3779B97F4A7C15) >> 57;
    return few ? few : 1;
}

SIMULATOR_INLINE void Recorder::note_value() {
    if (!last_write.access) return;
    trace->value_of(last_write.access) = digest(last_write.address, last_write.size);
    last_write.access = nullptr;
}

inline void Recorder::synchronise(uintptr_t address, unsigned size, bool takes, bool gives,
                                  const Change& change) {
    const Scope scope = std::exchange(next_scope, Scope::Device);
    const bool acquires = std::exchange(next_acquires, false);
    changes_made += change.how == Change::None ? gives : change.is_one();
    if (mode != Mode::Full) return;
    settle_store();
    for (unsigned i = 0; i < size; i += 4) {
        if (order.is_synchronising(address + i, block->rank))
            hand_over(address + i, takes, gives, scope, i ? Change() : change, acquires);
        else if (!i)
            order.follow_lock(address, block->rank, scope, change, acquires), note_section();
    }
}

inline void Recorder::note_host_wait() {
    host.waited = order.now;
    size_t over = launches.size();
    for (const Streams::Work& it : streams.works) over = std::min(over, it.launch);
    host_waits.push_back({launches.size(), over});
}

}  // namespace
}  // namespace simulator
