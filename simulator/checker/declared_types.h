// What the compiler itself compares with the types that a source declares, before an access:
// indices with an array's extent (-fsanitize=bounds), which sees one member of a structure run into
// the next and a local array overrun, and pointers with their type's alignment
// (-fsanitize=alignment), and accesses with the end of the local array that they are made in
// (-fsanitize=object-size). It calls these where they do not fit; its own runtime is not linked.
#pragma once
#include "recorder.h"

namespace simulator {
namespace {

// As the compiler lays them out.
struct SourcePlace {
    const char* file;
    uint32_t line, column;
};
struct TypeOfSource {
    uint16_t kind, information;
    char name[1];  // and on: 'float [4]'
};
struct WrongIndex {
    SourcePlace place;
    const TypeOfSource *array, *index;
};

struct WrongPointer {
    SourcePlace place;
    const TypeOfSource* type;
    uint8_t log_alignment;
    uint8_t what;  // of these: a load, a store
};

// A member of what it points to may be aligned well. What is loaded or stored as a whole is not,
// also where the compiler here does so in pieces.
void Recorder::misaligned_for_type(const WrongPointer& wrong, uintptr_t pointer, const void* from) {
    misaligned_pointer = pointer;
    if (mode == Mode::Off || wrong.what > 1) return;
    Region* region = region_at(pointer);
    if (!region || region->type == Region::Private) return;
    const Kind kind = wrong.what ? Kind::Write : Kind::Read;
    const Site& site =
        asynchronous.site_of("", wrong.place.file, wrong.place.line, kind, true, from);
    report(at("misaligned", site, region, pointer, 1u << wrong.log_alignment, block->rank));
    stopped = true;
    stop_block("a misaligned access");
}

// An array ends before this, and what lies behind is nobody's but the thread's: a write there would
// spoil its stack, so it is not let happen. What lies in a tensor, or a shared array, the hooks
// know.
void Recorder::beyond_object(const WrongPointer& wrong, uintptr_t pointer, const void* from) {
    if (mode == Mode::Off || wrong.what > 1) return;
    const Region* region = region_at(pointer);
    if (!region || region->type != Region::Private) return;
    const Kind kind = wrong.what ? Kind::Write : Kind::Read;
    const Site& site =
        asynchronous.site_of("", wrong.place.file, wrong.place.line, kind, true, from);
    Finding finding = at("array end", site, nullptr, pointer, 0, block->rank);
    const auto frame = reinterpret_cast<uintptr_t>(__builtin_frame_address(0));
    finding.message = region == region_at(frame) ? "a local array" : "an array";
    report(finding);
    if (kind == Kind::Read) return;
    stopped = true;
    stop_block("a write past the end of an array");
}

void Recorder::beyond_array(const WrongIndex& wrong, uint64_t index, const void* from) {
    if (mode == Mode::Off || is_repeating) return;
    Finding finding{};
    finding.kind = "index";
    finding.place = {
        "index",
        &asynchronous.site_of("", wrong.place.file, wrong.place.line, Kind::Read, true, from),
        "",
        0,
        serial,
        block->rank};
    finding.column = wrong.place.column;
    finding.message = text("index %lld of %s", static_cast<long long>(index), wrong.array->name);
    report(finding);
}

}  // namespace
}  // namespace simulator

#define SIMULATOR_HOOK extern "C" SIMULATOR_EXPORT

SIMULATOR_HOOK void __ubsan_handle_out_of_bounds(simulator::WrongIndex* wrong, uintptr_t index) {
    simulator::recorder.beyond_array(*wrong, index, __builtin_return_address(0));
}
SIMULATOR_HOOK void __ubsan_handle_type_mismatch_v1(simulator::WrongPointer* wrong,
                                                    uintptr_t pointer) {
    if (pointer % (uintptr_t(1) << wrong->log_alignment))
        simulator::recorder.misaligned_for_type(*wrong, pointer, __builtin_return_address(0));
    else if (pointer)  // of -fsanitize=object-size
        simulator::recorder.beyond_object(*wrong, pointer, __builtin_return_address(0));
}

#undef SIMULATOR_HOOK
