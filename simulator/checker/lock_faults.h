// What is wrong with how threads take and give back a lock.
#pragma once
#include "happens_before.h"

namespace simulator {
namespace {

inline LockFault Order::fault_of(const Held& held, const Touch& before) const {
    const Lock& lock = locks.at(held.word);
    const uint32_t serial = serial_at(before.time);
    const Reach reach = serial == here.serial ? OwnBlock : Everybody;
    if (!lock.is_regular) {
        for (const ClockPointer& clock : held.before)
            if (clock && clock->knows(serial, before.thread, before.time)) return LockFault::None;
        return LockFault::OneSide;
    }
    const Section* section = lock.at(before.time, serial);
    if (!section) return LockFault::OneSide;
    const auto lacks = [&](bool also_in_block, LockFault fault) {
        return also_in_block ? fault : LockFault::Scope;
    };
    if (!held.fenced[reach]) return lacks(!held.fenced[OwnBlock], LockFault::NoFenceAfter);
    const auto is_after = [&](Reach reach) {
        return section->fenced[reach] && before.time >= section->fenced[reach];
    };
    if (!is_after(reach)) return lacks(!is_after(OwnBlock), LockFault::NoFenceAfter);
    const auto is_given = [&](Reach reach) {
        const ClockPointer& clock = section->given[reach];
        return clock && clock->knows(serial, before.thread, before.time);
    };
    if (!is_given(reach)) return lacks(!is_given(OwnBlock), LockFault::NoFenceBefore);
    return LockFault::None;
}

inline void Order::end_section(Held& own, unsigned thread, Scope scope) {
    Lock& lock = locks.insert({own.word, {own.free}}).first->second;
    if (lock.free != own.free) lock.is_regular = false;
    const auto given = [&](Reach reach) {
        return here.fenced[reach].empty() ? nullptr : here.fenced[reach][thread];
    };
    lock.sections.push_back(
        {here.serial,
         own.begin,
         ++now,
         {own.fenced[OwnBlock], own.fenced[Everybody]},
         {given(OwnBlock), scope == Scope::Block ? nullptr : given(Everybody)}});
    has_ended_section = true;
    sites_of_section = std::move(own.sites);
}

}  // namespace
}  // namespace simulator
