// Where the system has put what a kernel touches and is no tensor: a library's variables and
// literals, and the stack of the thread that launches.
#pragma once
#include <vector>
#include "../executor/libraries.h"
#include "../executor/watcher.h"
#ifdef __linux__
#include <execinfo.h>
#include <pthread.h>

extern "C" void* __tls_get_addr(void*) __attribute__((weak));
#endif

namespace simulator {
namespace {

#ifdef __linux__
// The thread-local memory of a library, the running thread's; 0 if it has none.
uintptr_t thread_local_memory(const Library& library) {
    uintptr_t found = 0;
    with_headers_of(library, [&](const dl_phdr_info& info) {
        if (!info.dlpi_tls_modid || !__tls_get_addr) return;
        struct {
            unsigned long module, offset;
        } index{info.dlpi_tls_modid, 0};
        found = reinterpret_cast<uintptr_t>(__tls_get_addr(&index));
    });
    return found;
}

// What of a library nobody can write: its literals.
std::vector<Memory> constants(const Library& library) {
    std::vector<Memory> found;
    with_headers_of(library, [&](const dl_phdr_info& info) {
        for (int i = 0; i < info.dlpi_phnum; i++) {
            const auto& part = info.dlpi_phdr[i];
            if (part.p_type == PT_LOAD && !(part.p_flags & PF_W))
                found.push_back(
                    {reinterpret_cast<void*>(info.dlpi_addr + part.p_vaddr), part.p_memsz});
        }
    });
    return found;
}

// The host's functions that are under way, the innermost first: return addresses.
using Callers = std::vector<void*>;
Callers callers() {
    Callers found(64);
    found.resize(backtrace(found.data(), found.size()));
    return found;
}

// Of the running thread.
Memory find_host_stack() {
    pthread_attr_t attributes;
    void* stack;
    size_t size;
    pthread_getattr_np(pthread_self(), &attributes);
    pthread_attr_getstack(&attributes, &stack, &size);
    pthread_attr_destroy(&attributes);
    return {stack, size};
}
// To find it the C library reads a file, which takes as long as a small check.
Memory host_stack() {
    static thread_local const Memory found = find_host_stack();
    return found;
}
#else  // there is no checker here (lab/checker/run.py says so)
using Callers = std::vector<void*>;
Callers callers() { return {}; }
uintptr_t thread_local_memory(const Library&) { return 0; }
std::vector<Memory> constants(const Library&) { return {}; }
Memory host_stack() { return {}; }
#endif

}  // namespace
}  // namespace simulator
