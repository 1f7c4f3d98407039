// A block's shared arrays, so kept that an index beyond them harms nobody.
//
// What is declared `__shared__` is a library's thread-local memory, which the dynamic linker takes
// from the heap. Before a block's first access it is moved to guarded memory, by way of the table
// in which glibc notes where each library's is.
#pragma once
#include <vector>
#include "guarded_memory.h"
#include "shared_memory.h"

namespace simulator {
namespace {

#if defined(__linux__) && defined(__GLIBC__) && defined(__x86_64__)
// glibc's note of a library's thread-local memory (its dtv_t).
struct ThreadLocalNote {
    void* memory;
    void* to_free;  // null where it is no memory of its own
};

ThreadLocalNote* notes_of_thread() {
    ThreadLocalNote** thread;
    __asm__("mov %%fs:0, %0" : "=r"(thread));
    return thread[1];
}

// Given back when the thread ends.
struct OfThread {
    std::vector<void*> memory;
    ~OfThread() {
        for (void* it : memory) guarded.release(it);
    }
};
thread_local OfThread of_thread;
thread_local const char* left_alone;  // it cannot be moved

void move_thread_local(const char* among) {
    find_library([&](const dl_phdr_info& library) {
        const auto* begin = static_cast<const char*>(library.dlpi_tls_data);
        for (int i = 0; begin && i < library.dlpi_phnum; i++) {
            const auto& part = library.dlpi_phdr[i];
            if (part.p_type != PT_TLS) continue;
            if (size_t(among - begin) >= part.p_memsz) continue;
            ThreadLocalNote* notes = notes_of_thread();
            ThreadLocalNote& note = notes[library.dlpi_tls_modid];
            if (library.dlpi_tls_modid > reinterpret_cast<size_t&>(notes[-1]) ||
                note.memory != begin || !note.to_free)
                return true;
            // Nothing but its last bytes lies between its end and the guard, and its address in
            // shared memory has the low bits of the pointer: see shared_window.h.
            if (void* memory = guarded.allocate(part.p_memsz, part.p_align, true)) {
                memcpy(memory, begin, part.p_memsz);
                of_thread.memory.push_back(memory);
                note = {memory, nullptr};
            }
            return true;
        }
        return false;
    });
}

char* guard_shared(const Launch& launch) {
    char* const among = launch.static_shared();
    if (guarded.owns(among) || among == left_alone || launch.instrumented) return among;
    move_thread_local(among);
    char* const moved = launch.static_shared();
    if (moved == among) left_alone = among;
    return moved;
}
#else
char* guard_shared(const Launch& launch) { return launch.static_shared(); }
#endif

// What lies behind the shared memory that this thread's blocks have, from here on.
class SharedEnds {
  public:
    explicit SharedEnds(const Launch& launch)
        : launch(launch),
          size(launch.instrumented ? 0 : std::min(most, most_shared - launch.shared)) {
        memset(simulator_dynamic_shared + launch.shared, filling, size);
    }

    // What was done to it, in words.
    const char* damage() const {
        const auto end = uintptr_t(simulator_dynamic_shared) + launch.shared;
        if (first_other(end, end + size, filling))
            return "it writes past the end of its dynamic shared memory";
        GuardedMemory::Island of;
        char* const among = launch.instrumented ? nullptr : launch.static_shared();
        if (guarded.damage(uintptr_t(among), of)) return "it writes beside a __shared__ array";
        return nullptr;
    }

  private:
    static constexpr char filling = 0x5A;
    static constexpr size_t most = 256;
    const Launch& launch;
    const size_t size;
};

}  // namespace
}  // namespace simulator
