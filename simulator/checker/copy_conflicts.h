// Who touches memory that an asynchronous copy still reads or writes.
#pragma once
#include "recorder.h"

namespace simulator {
namespace {

void Asynchronous::look(uintptr_t address, unsigned size, Kind kind, const Site& site) {
    if (recorder.block->cluster) look_at_other_block(address, size, kind, site);
    if (!open_works) return;
    const Work* work = find(writes.find(address, size));
    const bool is_written = work;
    if (!work && kind != Kind::Read) work = find(reads.find(address, size));
    if (!work) return;
    if (is_atomic(kind) && is_atomic(work->asked->kind)) return;  // reductions
    const Site& asked = *work->asked;
    Finding finding = recorder.at("asynchronous race", site, recorder.region_at(address), address,
                                  size, recorder.block->rank);
    finding.other = {is_written ? "write" : "read", &asked, "", 0, work->block, work->thread};
    finding.hazard = !is_written          ? "write after read"
                     : kind == Kind::Read ? "read after write"
                                          : "write after write";
    finding.message = is_written ? "it has not been waited for, and may still write there"
                                 : "it has not been waited for, and may still read there";
    const Mine& it = mine();
    if (is_written && work->barrier && it.waited_at == work->barrier && it.was_stale &&
        it.works_before > first_work + unsigned(work - &works[0]) && kind == Kind::Read) {
        finding.kind = "wrong parity";
        finding.message =
            "the wait returned at once, for the phase of that parity had ended before the copy was "
            "asked for";
        finding.other = {"wait", it.wait, "", 0, recorder.serial, recorder.block->rank};
    }
    recorder.report(finding);
}

bool Asynchronous::is_own(const Region& region) const {
    const Block& block = *recorder.block;
    const auto p = reinterpret_cast<const char*>(region.begin);
    return size_t(p - block.dynamic_shared) < std::max<size_t>(1, block.launch->shared) ||
           (p >= block.static_begin && p < block.static_end);
}

// The shared memory of another block of the cluster, which may have ended.
void Asynchronous::look_at_other_block(uintptr_t address, unsigned size, Kind kind,
                                       const Site& site) {
    if (ended.empty()) return;
    const auto p = reinterpret_cast<const char*>(address);
    for (const Block* block : ended) {
        const size_t offset = p - block->dynamic_shared;
        const bool is_static = p >= block->static_begin && p < block->static_end;
        if (block == recorder.block || (offset >= block->launch->shared && !is_static)) continue;
        Finding finding = recorder.at(
            "ended block", site, recorder.region_at(address), address, size, recorder.block->rank);
        finding.message = text(
            "the block of rank %u has ended, and its shared memory with it: wait for the cluster "
            "before a block ends of which others use the memory",
            block->cluster_rank);
        recorder.report(finding);
    }
}

bool Asynchronous::is_race_of(const Site& site, const Site& other, Finding& finding) {
    if (site.role == Role::Thread && other.role == Role::Thread) return false;
    finding.message =
        site.role != Role::Thread ? "nothing orders that access before what is asked for here"
        : other.role == Role::Done
            ? "another thread has waited for it, and nothing orders that before this access"
            : "it has not been waited for";
    return true;
}

Finding* Asynchronous::say(const char* kind, std::string message, const Site& at, const Site* other,
                           const char* other_access, unsigned other_thread) {
    Finding finding{};
    finding.kind = kind;
    finding.message = std::move(message);
    finding.place = {at.what, &at, "", 0, recorder.serial, recorder.block->rank};
    if (other) finding.other = {other_access, other, "", 0, recorder.serial, other_thread};
    return recorder.report(finding);
}

}  // namespace
}  // namespace simulator
