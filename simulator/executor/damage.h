// Writes beside the memory that a launch is given, within its last page or its first: nothing
// faults there, so they are found when the launch has ended (guarded_memory.h).
//
// Whose they were is found by another run, on copies of the memory, of which the damaged one ends,
// or begins, where access does. The launch has failed, so its time does not matter.
#pragma once
#include "on_copies.h"

namespace simulator {
namespace {

enum class Damage { ByHost, ByKernel, ToExplain };

// The error of the thread that writes to `at`, beside `damaged`; no error if another run does not.
// Its access is noted for simulator_take_fault.
Error explain_damage(const Launch& launch, const Island& damaged, uintptr_t at) {
    constexpr size_t near_by = 4096, most_bytes = size_t(64) << 20;
    const Side side = at >= damaged.begin + damaged.bytes ? Side::Behind : Side::Before;
    LaunchOnCopies on_copies(launch, most_bytes, [&](const Island& it) {
        return it.begin == damaged.begin ? side : Side::None;
    });
    if (!on_copies.is_whole) return {};
    const Error error = on_copies.run(launch, 1.0, [](uintptr_t&) {});
    const Told told = Told::take();
    const uintptr_t original = on_copies.original(told.address, near_by);
    if (error.is_interrupt || !original || original - (at - near_by) > 2 * near_by) return {};
    return told.again_at(error, original);
}

// An error if what lies beside the memory of a launch was written to; the memory there is mended.
Error damage_beside(const Launch& launch, Damage how) {
    const bool by_host = how == Damage::ByHost;
    const char* const what =
        by_host ? ", finds that the host wrote" : ": illegal memory access: it writes";
    Error error;
    const auto* words = static_cast<const uintptr_t*>(launch.body);
    for (size_t i = 0; i < launch.body_bytes / sizeof *words; i++) {
        Island of;
        const uintptr_t at = guarded.damage(words[i], of, by_host ? guarded.few : guarded.all);
        if (!at || error.code != cudaSuccess) continue;
        if (how == Damage::ToExplain) error = explain_damage(launch, of, at);
        if (error.code != cudaSuccess) continue;
        error = {cudaErrorIllegalAddress, describe(launch) + what + where_is(at)};
        told_fault.tell("writes", at, "", 0);
    }
    return error;
}

}  // namespace
}  // namespace simulator
