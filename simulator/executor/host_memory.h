// What functions of the host allocate while Python calls them: memory of malloc, and of new.
//
// It has guards as tensors have (guarded_memory.h), for an index beyond it would spoil the heap of
// the process, which then ends somewhere else.
#pragma once
#include <set>
#include "host_calls.h"

namespace simulator {
namespace {

#ifdef __linux__
class HostMemory {
  public:
    // Null where it is to be the heap's.
    void* take(size_t bytes) {
        if (!host_call.stack || (worker && worker->running)) return nullptr;
        std::lock_guard<std::mutex> lock(mutex);
        if (given.size() >= most) return nullptr;
        void* memory = guarded.allocate(bytes, alignof(max_align_t));
        if (memory) given.insert(memory);
        return memory;
    }

    bool holds(void* memory) {
        std::lock_guard<std::mutex> lock(mutex);
        return given.count(memory);
    }

    bool give_back(void* memory) {
        std::lock_guard<std::mutex> lock(mutex);
        if (!given.erase(memory)) return false;
        GuardedMemory::Island of;
        if (const uintptr_t at = guarded.damage(uintptr_t(memory), of); at && !watcher)
            record({cudaErrorIllegalAddress,
                    "the host's code: illegal memory access: it writes" + where_is(at)});
        guarded.release(memory);
        return true;
    }

  private:
    static constexpr size_t most = 1024;  // there is room for so many thousand, of tensors, too
    std::mutex mutex;
    std::set<void*> given;
};

// Never destroyed: a library may free in its destructors.
HostMemory& host_memory = *new HostMemory;

// What is watched is the watcher's to guard: what else is called then keeps to the heap.
void* take_unwatched(size_t bytes) { return watcher ? nullptr : host_memory.take(bytes); }

void* host_malloc(size_t bytes) {
    void* memory = take_unwatched(bytes);
    return memory ? memory : malloc(bytes);
}

void* host_calloc(size_t count, size_t size) {
    size_t bytes;
    void* memory = __builtin_mul_overflow(count, size, &bytes) ? nullptr : take_unwatched(bytes);
    return memory ? memset(memory, 0, bytes) : calloc(count, size);
}

// `memory`, unless it is of the heap and for the heap's own function to take back.
void* given_back(void* memory, const char* function, const void* caller) {
    if (!memory || host_memory.give_back(memory)) return nullptr;
    if (!guarded.owns(memory)) return memory;
    const LibraryCode code = code_around(caller);
    told_fault.take();
    told_fault.tell("", 0, code.library.path, uintptr_t(caller) - 1 - code.library.base);
    end_call(text("%s of memory that was not allocated so, or has been freed before", function));
    return nullptr;
}

void host_free(void* memory) { free(given_back(memory, "free()", __builtin_return_address(0))); }

void* host_realloc(void* memory, size_t bytes) {
    if (!memory) return host_malloc(bytes);
    if (!host_memory.holds(memory)) return realloc(memory, bytes);
    void* larger = host_malloc(bytes);
    if (!larger) return nullptr;
    memcpy(larger, memory, std::min(bytes, guarded.find(uintptr_t(memory)).bytes));
    host_memory.give_back(memory);
    return larger;
}

void* host_new(size_t bytes) {
    void* memory = take_unwatched(bytes);
    return memory ? memory : operator new[](bytes);
}

void host_delete(void* memory) {
    operator delete[](given_back(memory, "delete", __builtin_return_address(0)));
}

void host_delete_sized(void* memory, size_t) {
    operator delete[](given_back(memory, "delete", __builtin_return_address(0)));
}

// What the C++ library frees: some objects that the user's code has made, as strings.
void free_object(void* memory) {
    guarded.owns(memory) ? void(host_memory.give_back(memory)) : free(memory);
}

// Whether it frees them so from here on. Else single objects of new stay on the heap.
bool frees_objects() {
    const Library library =
        library_of(reinterpret_cast<void*>(static_cast<void (*)(void*)>(operator delete)));
    if (library.path.find("/libstdc++.so") == std::string::npos) return false;
    with_headers_of(library, [](const dl_phdr_info& info) {
        redirect(info, "free", reinterpret_cast<void*>(free_object));
    });
    return true;
}

// Has the library that a function is of allocate so.
void guard_heap_of(const void* function) {
    static const bool guards_objects = frees_objects();
    static std::mutex mutex;
    static std::set<std::pair<uintptr_t, std::string>> done;
    const Library library = library_of(function);
    std::lock_guard<std::mutex> lock(mutex);
    if (!library.base || !done.insert({library.base, library.path}).second) return;
    const std::pair<const char*, const void*> ours[] = {
        {"malloc", reinterpret_cast<void*>(host_malloc)},
        {"calloc", reinterpret_cast<void*>(host_calloc)},
        {"realloc", reinterpret_cast<void*>(host_realloc)},
        {"free", reinterpret_cast<void*>(host_free)},
        {"_Znam", reinterpret_cast<void*>(host_new)},
        {"_ZdaPv", reinterpret_cast<void*>(host_delete)},
        {"_ZdaPvm", reinterpret_cast<void*>(host_delete_sized)},
        {"_Znwm", reinterpret_cast<void*>(host_new)},
        {"_ZdlPv", reinterpret_cast<void*>(host_delete)},
        {"_ZdlPvm", reinterpret_cast<void*>(host_delete_sized)}};
    with_headers_of(library, [&](const dl_phdr_info& info) {
        for (const auto& [name, function] : ours)
            if (guards_objects || !strstr(name, "_Znw")) redirect(info, name, function);
    });
}
#else
void guard_heap_of(const void*) {}
#endif

}  // namespace

#ifdef __linux__
void* take_host_memory(size_t bytes) { return host_memory.take(bytes); }
void* give_back_host_memory(void* memory, const char* function, const void* caller) {
    return given_back(memory, function, caller);
}
Memory guarded_memory_at(uintptr_t address) {
    const GuardedMemory::Island found = guarded.find(address);
    return {reinterpret_cast<const void*>(found.begin), found.bytes};
}
Memory guarded_range() {
    uint64_t range[2];
    guarded.bounds(range);
    return {reinterpret_cast<const void*>(range[0]), range[1] - range[0]};
}
#endif

}  // namespace simulator

// The entry by which Python calls a library's function. words: of its arguments, at most; or -1 for
// a function that runs on its caller's stack.
extern "C" SIMULATOR_EXPORT const void* simulator_entry(const void* function, int words) {
    simulator::guard_heap_of(function);
    return simulator::entry_of(function, words);
}
