// What kernels that are built for the tracer call: at each line, and before each access of memory.
#pragma once
#include "steps.h"

#define SIMULATOR_HOOK extern "C" SIMULATOR_EXPORT

// ---- At each line: tracer/insert_calls.sh

#if defined(__x86_64__)
// The compiler does not know of the call: all registers stay as they are. Those of vectors are
// saved only where a thread comes to another line.
asm(R"(
    .globl simulator_trace_line
    .type simulator_trace_line, @function
simulator_trace_line:
    pushfq
    pushq %rax
    pushq %rcx
    pushq %rdx
    pushq %rsi
    pushq %rdi
    pushq %r8
    pushq %r9
    pushq %r10
    pushq %r11
    pushq %rbx
    movq simulator_trace_is_on@GOTPCREL(%rip), %rax
    cmpb $0, (%rax)
    je 1f
    movq 88(%rsp), %rdi
    movq %rbp, %rsi
    movq %rsp, %rbx
    subq $4096, %rsp
    andq $-64, %rsp
    movl $8, %ecx
    xorl %eax, %eax
    movq %rdi, %r8
    leaq 512(%rsp), %rdi
    rep stosq
    movq %r8, %rdi
    movl $0xe7, %eax
    xorl %edx, %edx
    xsave64 (%rsp)
    call simulator_trace_comes_to@PLT
    movl $0xe7, %eax
    xorl %edx, %edx
    xrstor64 (%rsp)
    movq %rbx, %rsp
1:  popq %rbx
    popq %r11
    popq %r10
    popq %r9
    popq %r8
    popq %rdi
    popq %rsi
    popq %rdx
    popq %rcx
    popq %rax
    popfq
    ret
    .size simulator_trace_line, .-simulator_trace_line
)");
#endif

SIMULATOR_HOOK void simulator_trace_comes_to(uint64_t pc, uintptr_t rbp) {
    simulator::Tracer* const tracer = simulator::tracer;
    if (tracer && tracer->is_on && tracer->runs_traced()) tracer->comes_to(pc, rbp);
}

// ---- Before each access: the linker sends here what is the checker's, which is called then

using simulator::Touched;
inline void simulator_touch(const volatile void* address, size_t size, Touched how) {
    if (simulator::tracer)
        simulator::tracer->touch(reinterpret_cast<uintptr_t>(address), size, how);
}

#define SIMULATOR_TAIL __attribute__((optimize("optimize-sibling-calls")))
#define SIMULATOR_ACCESS(name, size, how)                                    \
    extern "C" void __tsan_##name(void* address);                            \
    SIMULATOR_HOOK SIMULATOR_TAIL void __wrap___tsan_##name(void* address) { \
        simulator_touch(address, size, Touched::how);                        \
        return __tsan_##name(address);                                       \
    }
#define SIMULATOR_ACCESSES(size)                                \
    SIMULATOR_ACCESS(read##size, size, Read)                    \
    SIMULATOR_ACCESS(write##size, size, Write)                  \
    SIMULATOR_ACCESS(unaligned_read##size, size, Read)          \
    SIMULATOR_ACCESS(unaligned_write##size, size, Write)        \
    SIMULATOR_ACCESS(volatile_read##size, size, Read)           \
    SIMULATOR_ACCESS(volatile_write##size, size, Write)         \
    SIMULATOR_ACCESS(unaligned_volatile_read##size, size, Read) \
    SIMULATOR_ACCESS(unaligned_volatile_write##size, size, Write)
SIMULATOR_ACCESSES(1)
SIMULATOR_ACCESSES(2)
SIMULATOR_ACCESSES(4)
SIMULATOR_ACCESSES(8)
SIMULATOR_ACCESSES(16)
#undef SIMULATOR_ACCESSES
#undef SIMULATOR_ACCESS

#define SIMULATOR_RANGE(name, how)                                                                 \
    extern "C" void __tsan_##name##_range(void* address, size_t bytes);                            \
    SIMULATOR_HOOK SIMULATOR_TAIL void __wrap___tsan_##name##_range(void* address, size_t bytes) { \
        simulator_touch(address, bytes, Touched::how);                                             \
        return __tsan_##name##_range(address, bytes);                                              \
    }
SIMULATOR_RANGE(read, Read)
SIMULATOR_RANGE(write, Write)
#undef SIMULATOR_RANGE

#define SIMULATOR_UPDATE(bits, T, name)                                  \
    extern "C" T __tsan_atomic##bits##_##name(volatile T*, T, int);      \
    SIMULATOR_HOOK SIMULATOR_TAIL T __wrap___tsan_atomic##bits##_##name( \
        volatile T* address, T value, int order) {                       \
        simulator_touch(address, sizeof(T), Touched::Atomic);            \
        return __tsan_atomic##bits##_##name(address, value, order);      \
    }
#define SIMULATOR_COMPARE(bits, T, name)                                                         \
    extern "C" bool __tsan_atomic##bits##_compare_exchange_##name(volatile T*, T*, T, int, int); \
    SIMULATOR_HOOK SIMULATOR_TAIL bool __wrap___tsan_atomic##bits##_compare_exchange_##name(     \
        volatile T* address, T* expected, T value, int order, int other) {                       \
        simulator_touch(address, sizeof(T), Touched::Atomic);                                    \
        return __tsan_atomic##bits##_compare_exchange_##name(                                    \
            address, expected, value, order, other);                                             \
    }
#define SIMULATOR_ATOMICS(bits, T)       \
    SIMULATOR_UPDATE(bits, T, exchange)  \
    SIMULATOR_UPDATE(bits, T, fetch_add) \
    SIMULATOR_UPDATE(bits, T, fetch_sub) \
    SIMULATOR_UPDATE(bits, T, fetch_and) \
    SIMULATOR_UPDATE(bits, T, fetch_or)  \
    SIMULATOR_UPDATE(bits, T, fetch_xor) \
    SIMULATOR_COMPARE(bits, T, strong)   \
    SIMULATOR_COMPARE(bits, T, weak)
SIMULATOR_ATOMICS(8, unsigned char)
SIMULATOR_ATOMICS(16, unsigned short)
SIMULATOR_ATOMICS(32, unsigned int)
SIMULATOR_ATOMICS(64, unsigned long)
#undef SIMULATOR_ATOMICS
#undef SIMULATOR_COMPARE
#undef SIMULATOR_UPDATE
#undef SIMULATOR_TAIL

// ---- For lab/tracer/record.py

// From here on blocks of a launch are traced, by their numbers: of each the rounds in these spans
// (pairs: from, to). Of lines that are watched each run and access is told.
SIMULATOR_HOOK void simulator_trace_begin(uint64_t launch, const uint64_t* blocks, size_t count,
                                          const uint64_t* spans, size_t span_count,
                                          const uint32_t* lines, size_t line_count) {
    delete simulator::tracer;
    simulator::tracer = new simulator::Tracer;
    simulator::tracer->launch = launch;
    for (unsigned slot = 0; slot < count; slot++)
        simulator::tracer->blocks.push_back({blocks[slot], slot});
    for (size_t i = 0; i < span_count; i++)
        simulator::tracer->spans.push_back({spans[2 * i], spans[2 * i + 1]});
    simulator::tracer->watched_lines.assign(lines, lines + line_count);
    simulator::stepper = simulator::tracer;
}

// Of a library that is open: the calls of the tracer in it, the variables that these name by their
// positions, and how many bytes those of each function take. `code`: an address in the library.
SIMULATOR_HOOK void simulator_trace_library(
    const char* path, const simulator::Place* places, size_t count,
    const simulator::Variable* variables, size_t variable_count, const uint32_t* bytes,
    size_t functions) {
    simulator::Tracer& tracer = *simulator::tracer;
    const uintptr_t base = simulator::base_of(path);
    const uint32_t first = tracer.variables.size(), function = tracer.bytes_kept.size();
    tracer.variables.insert(tracer.variables.end(), variables, variables + variable_count);
    tracer.bytes_kept.insert(tracer.bytes_kept.end(), bytes, bytes + functions);
    for (size_t i = 0; i < count; i++) {
        simulator::Place place = places[i];
        place.pc += base;
        place.first += first;
        place.function += function;
        tracer.place_at[place.pc] = tracer.places.size();
        tracer.places.push_back(place);
    }
}

// Nothing is traced from here on; what was stays until the next begins.
SIMULATOR_HOOK void simulator_trace_end() {
    simulator::stepper = nullptr;
    simulator_trace_is_on = false;
    for (simulator::MemoryRegion& region : simulator::tracer->recording.regions) {
        uintptr_t begin;
        size_t bytes;
        bool is_shared;
        const char* name;
        if (!region.is_shared &&
            simulator_check_region(region.begin, &begin, &bytes, &is_shared, &name))
            region.name = name;
    }
}

// One of the tables of what was recorded: where it lies, and its bytes.
SIMULATOR_HOOK const void* simulator_trace_table(unsigned which, size_t* bytes) {
    const simulator::Recording& it = simulator::tracer->recording;
    const auto table = [&](const auto& rows) -> const void* {
        *bytes = rows.size() * sizeof rows[0];
        return rows.data();
    };
    switch (which) {
        case 0:
            return table(it.steps);
        case 1:
            return table(it.changes);
        case 2:
            return table(it.touches);
        case 3:
            return table(it.waits);
        case 4:
            return table(it.before);
        case 5:
            return table(it.flights);
        case 6:
            return table(it.barriers);
        case 7:
            return table(it.sightings);
        case 8:
            return table(it.rounds);
        case 9:
            return table(it.opened);
        case 10:
            return table(it.outside);
        case 11:
            return table(it.tensor);
        default:
            return table(it.bytes);
    }
}

// The rest, as JSON.
SIMULATOR_HOOK const char* simulator_trace_facts() {
    static std::string json;
    const simulator::Tracer& it = *simulator::tracer;
    const auto quoted = [](const std::string& text) {
        std::string said = "\"";
        for (const char letter : text) {
            if (letter == '"' || letter == '\\') said += '\\';
            said += letter;
        }
        return said + '"';
    };
    const auto list = [](const auto& of, auto say) {
        std::string said;
        for (const auto& item : of) said += (said.empty() ? "" : ", ") + say(item);
        return '[' + said + ']';
    };
    const auto three = [](const auto& of) {
        return '[' + std::to_string(of.x) + ", " + std::to_string(of.y) + ", " +
               std::to_string(of.z) + ']';
    };
    json =
        "{\"launches\": " + std::to_string(it.launches) + ", \"kernel\": " + quoted(it.kernel) +
        ", \"grid\": " + three(it.grid) + ", \"extent\": " + three(it.extent) + ", \"blocks\": " +
        list(it.blocks,
             [&](const simulator::TracedBlock& block) {
                 return "{\"found\": " + std::string(block.is_found ? "true" : "false") +
                        ", \"index\": " + three(block.index) +
                        ", \"rounds\": " + std::to_string(block.rounds) + "}";
             }) +
        ", \"words\": " + list(it.recording.words, quoted) + ", \"regions\": " +
        list(it.recording.regions,
             [&](const simulator::MemoryRegion& region) {
                 return "{\"begin\": " + std::to_string(region.begin) +
                        ", \"size\": " + std::to_string(region.size) +
                        ", \"shared\": " + (region.is_shared ? "true" : "false") + ", \"block\": " +
                        std::to_string(region.block) + ", \"name\": " + quoted(region.name) + "}";
             }) +
        "}";
    return json.c_str();
}
#undef SIMULATOR_HOOK
