// What goes wrong with tensor memory: who uses its columns when, which matrices in shared memory
// its operations read until somebody has waited for them, and the fences and barriers around them.
#pragma once
#include "../include/simulator/tensor_memory.h"
#include "recorder.h"

namespace simulator {
namespace {

using tensor_cores::ColumnRange;
using tensor_cores::TensorUse;

// The other block may not have begun yet, or free what this one still uses.
void Asynchronous::pair_columns(const char* what, const char* file, int line) {
    if (simulator::cluster_barriers(*recorder.block) != of_block().cluster_barriers) return;
    Finding* const told =
        say("missing cluster barrier",
            "two blocks share this tensor memory, and they have come to no barrier of the cluster "
            "since they began",
            site_of(what, file, line));
    if (told) told->severity = Severity::Note;
}

void Asynchronous::cta_group(int blocks, const char* what, const char* file, int line) {
    OfBlock& of = of_block();
    const Site& at = site_of(what, file, line);
    if (!of.cta_group) of.cta_group = blocks, of.said_group = &at;
    if (of.cta_group == blocks) return;
    say("cta_group",
        text("it says cta_group::%d, and another of the kernel's instructions on tensor memory "
             "says cta_group::%d: all of them say the same",
             blocks, of.cta_group),
        at, of.said_group, of.said_group->what);
}

void Asynchronous::tensor_columns(uint32_t first, uint32_t count, bool is_freed, const char* file,
                                  int line) {
    for (uint32_t c = first; c < first + count && c < 512; c++)
        of_block().is_allocated[c] = !is_freed;
    auto& all = of_block().tensor_columns;
    if (is_freed)
        all.erase(first);
    else
        all[first] = &site_of("tcgen05.alloc", file, line);
}

void Asynchronous::tensor_conflict(const char* what, const char* file, int line, const char* other,
                                   const char* other_file, int other_line) {
    say("tensor memory in use",
        text("%s uses columns of a %s that nobody has waited for", what, other),
        site_of(what, file, line),
        &site_of(other, other_file, other_line, Kind::Read, true, nullptr), other);
}

void Asynchronous::tensor_fence(bool is_before) {
    Mine& it = mine();
    (is_before ? it.fenced_before : it.fenced_after) = ++tensor_time;
}

void Asynchronous::tensor_use(const TensorUse& use) {
    Site& asked = site_of(use.what, use.file, use.line);
    look_for_scales(use, asked);
    look_for_order(use, asked);
    order_columns(use, asked);
    note_scales(use, asked);
    if (stepper && !use.matrix_count) stepper->tensor_use(use, 0);
    if (use.is_access) return look_at_lane(use, asked);
    Mine& it = mine();
    it.tensor_operations++;
    if (!use.matrix_count) return;
    Reads reading{{}, it.tensor_operations, begin(asked, nullptr), &asked};
    if (stepper) stepper->tensor_use(use, reading.id);
    for (int i = 0; i < use.matrix_count; i++) {
        const tensor_cores::SharedMatrix& of = use.matrices[i];
        read_matrix(*of.block, of.descriptor, of.is_transposed, 0, of.lines, of.row_bytes,
                    of.element_bytes, reading, asked);
    }
    it.tensor_reads.push_back(std::move(reading));
}

void Asynchronous::look_at_lane(const TensorUse& use, const Site& at) {
    const uint32_t own = recorder.block->rank / warp_size % 4 * 32;
    if (use.lane / 32 * 32 == own) return;
    Finding* const told =
        say("tensor memory lanes",
            text("its address has lane %u, and this warp reaches lanes %u to %u: PTX leaves it "
                 "undefined. GPUs are said to ignore these bits, and so does the simulator",
                 use.lane, own, own + 31),
            at);
    if (told) told->severity = Severity::Note;
}

// tcgen05.commit: somebody knows that the first operations of a thread are done.
void Asynchronous::tensor_done(const BulkCopy& completion) {
    const auto found = blocks.find(reinterpret_cast<const Block*>(completion.from));
    if (found == blocks.end()) return;
    auto& all = found->second.threads[unsigned(completion.words[0])].tensor_reads;
    while (!all.empty() && all.front().group <= completion.words[1]) {
        for (const Range& range : all.front().ranges)
            reads.clear(range.begin, range.bytes, all.front().id);
        end(all.front().id);
        all.pop_front();
    }
}

// Columns that nobody has written in any lane. A load may leave out what it does not need: a note.
void Asynchronous::look_for_unwritten(const TensorUse& use, const OfBlock& of, const Site& at) {
    const auto& writes = of.columns->writes;
    const auto look = [&](const ColumnRange& range, const char* what) {
        for (uint32_t c = range.first; c < range.first + range.count && c < 512; c++) {
            if (!of.is_allocated[c] || writes[0][c].time || writes[1][c].time ||
                writes[2][c].time || writes[3][c].time)
                continue;
            Finding* const told = say(
                "uninitialised",
                text("it %s column %u of tensor memory, which nobody has written", what, c), at);
            if (told && use.is_access) told->severity = Severity::Note;
            return;
        }
    };
    if (use.accumulates) look(use.written[0], "adds to");
    for (int i = 0; i < use.read_count; i++) {
        bool are_scales = false;  // which have findings of their own
        for (int k = 0; k < use.scale_count; k++) are_scales |= use.read[i] == use.scales[k];
        if (!are_scales) look(use.read[i], "reads");
    }
}

// tcgen05.fence: between an access of one warp and what another does with the same columns there
// are a fence of the one, a barrier, and a fence of the other. What is told here is certain: there
// was no such fence at all since then, or nothing by which the thread knows of that access.
// Products and copies are fenced by their commit.
void Asynchronous::order_columns(const TensorUse& use, const Site& at) {
    const Block* const me = recorder.block;
    const unsigned rank = me->rank;
    const uint32_t now = ++tensor_time, fenced = mine().fenced_after;
    recorder.inspect_rest(rank, 0);
    const uint32_t ordered_at = recorder.order.now++;
    // Whether this thread knows that a warp has made an access: one of its lanes has told.
    const auto is_known = [&](const ColumnUse& before) {
        const unsigned first = before.thread / warp_size * warp_size;
        for (unsigned lane = first; lane < first + warp_size && lane < me->size; lane++)
            if (has_happened(before.ordered_at, lane)) return true;
        return false;
    };
    const auto look = [&](const ColumnUse& before) {
        if (!before.time || use.is_told ||
            (before.block == me && before.thread / warp_size == rank / warp_size))
            return true;
        if (!use.is_access && !before.is_access) return true;  // operations come in their order
        const auto of = blocks.find(before.block);
        if (of == blocks.end()) return true;
        if (before.is_access) {
            const auto thread = of->second.threads.find(before.thread);
            if (thread == of->second.threads.end()) return true;
            if (thread->second.fenced_before < before.time) {
                say("missing tcgen05 fence",
                    text("%s uses columns that another warp has used by %s, and that warp has "
                         "executed no tcgen05.fence::before_thread_sync since",
                         use.what, before.site->what),
                    at, before.site, before.site->what, before.thread);
                return false;
            }
        }
        if (fenced > before.time) {
            if (before.block != me || is_known(before)) return true;
            say("tensor memory in use",
                text("%s uses columns that another warp has used by %s, and %s", use.what,
                     before.site->what,
                     before.is_access ? "no barrier orders the one before the other: fences alone "
                                        "do not"
                                      : "this thread knows of no tcgen05.commit that followed"),
                at, before.site, before.site->what, before.thread);
            return false;
        }
        say("missing tcgen05 fence",
            text("%s uses columns that another warp has used by %s, and no "
                 "tcgen05.fence::after_thread_sync of this thread has followed",
                 use.what, before.site->what),
            at, before.site, before.site->what, before.thread);
        return false;
    };
    const unsigned quarter = rank / warp_size % 4;
    for (int i = 0; i < use.block_count; i++) {
        const auto of = blocks.find(use.blocks[i]);
        if (of == blocks.end()) continue;
        if (!of->second.columns) of->second.columns = std::make_unique<Columns>();
        Columns& columns = *of->second.columns;
        const auto for_each = [&](const ColumnRange& range, auto visit) {
            for (unsigned q = 0; q < 4; q++)
                for (uint32_t c = range.first; c < range.first + range.count && c < 512; c++)
                    if ((!use.is_access || q == quarter) && !visit(q, c)) return;
        };
        if (!use.is_told) look_for_unwritten(use, of->second, at);
        const ColumnUse mine_now{now, ordered_at, me, rank, &at, use.is_access};
        for (int k = 0; k < use.written_count; k++) {
            for_each(use.written[k], [&](unsigned q, uint32_t c) {
                return look(columns.writes[q][c]) && look(columns.reads[q][c]);
            });
            for_each(use.written[k], [&](unsigned q, uint32_t c) {
                columns.writes[q][c] = mine_now;
                columns.reads[q][c] = {};
                return true;
            });
        }
        for (int k = 0; k < use.read_count; k++) {
            for_each(
                use.read[k], [&](unsigned q, uint32_t c) { return look(columns.writes[q][c]); });
            for_each(use.read[k], [&](unsigned q, uint32_t c) {
                columns.reads[q][c] = mine_now;
                return true;
            });
        }
    }
}

void Asynchronous::narrow_arrival(const uint64_t* barrier, const char* file, int line) {
    const auto found = mbarriers.find(barrier);
    if (found == mbarriers.end() || found->second.of == recorder.block) return;
    say("mbarrier scope",
        "it arrives at a barrier of another block with the scope .cta: what it has done before is "
        "not released to that block",
        site_of("mbarrier.arrive", file, line), found->second.init, "mbarrier.init",
        found->second.thread);
}

}  // namespace
}  // namespace simulator
