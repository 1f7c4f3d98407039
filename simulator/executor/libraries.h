// Where the system has put a library.
#pragma once
#include <stdint.h>
#include <string>
#ifdef __linux__
#include <dlfcn.h>
#include <link.h>
#endif

namespace simulator {
namespace {

struct Library {
    std::string path;
    uintptr_t base;
};

#ifdef __linux__
Library library_of(const void* code) {
    Dl_info info = {};
    dladdr(code, &info);
    return {info.dli_fname ? info.dli_fname : "", reinterpret_cast<uintptr_t>(info.dli_fbase)};
}

// Looks at the headers of the loaded libraries until `is_found` is true of one.
template <class Predicate>
bool find_library(Predicate is_found) {
    return dl_iterate_phdr(
        [](dl_phdr_info* info, size_t, void* is_found) {
            return int((*static_cast<Predicate*>(is_found))(*info));
        },
        &is_found);
}

// 0 where it is not loaded.
uintptr_t base_of(const std::string& path) {
    uintptr_t base = 0;
    find_library([&](const dl_phdr_info& info) {
        if (info.dlpi_name != path) return false;
        base = info.dlpi_addr;
        return true;
    });
    return base;
}

template <class Visit>
void with_headers_of(const Library& library, Visit visit) {
    find_library([&](const dl_phdr_info& info) {
        if (info.dlpi_addr != library.base) return false;
        visit(info);
        return true;
    });
}

// The stretch of code that an address is in; 0 to 0 where it is in none.
struct CodeBounds {
    uintptr_t begin = 0, end = 0;

    bool holds(uintptr_t address) const { return address >= begin && address < end; }
};

CodeBounds bounds_around(uintptr_t address) {
    CodeBounds bounds;
    find_library([&](const dl_phdr_info& info) {
        for (int i = 0; i < info.dlpi_phnum; i++) {
            const auto& part = info.dlpi_phdr[i];
            const uintptr_t begin = info.dlpi_addr + part.p_vaddr;
            if (part.p_type != PT_LOAD || address - begin >= part.p_memsz) continue;
            bounds = {begin, begin + part.p_memsz};
            return true;
        }
        return false;
    });
    return bounds;
}

// And the library.
struct LibraryCode : CodeBounds {
    Library library;
};

LibraryCode code_around(const void* code) {
    return {bounds_around(reinterpret_cast<uintptr_t>(code)), library_of(code)};
}
#else
Library library_of(const void*) { return {}; }
uintptr_t base_of(const std::string&) { return 0; }
#endif

}  // namespace
}  // namespace simulator
