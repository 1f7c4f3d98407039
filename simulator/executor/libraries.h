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

// 0 where it is not loaded.
uintptr_t base_of(const std::string& path) {
    std::pair<const std::string&, uintptr_t> search{path, 0};
    dl_iterate_phdr(
        [](dl_phdr_info* info, size_t, void* data) {
            auto& [path, base] = *static_cast<std::pair<const std::string&, uintptr_t>*>(data);
            if (info->dlpi_name != path) return 0;
            base = info->dlpi_addr;
            return 1;
        },
        &search);
    return search.second;
}

template <class Visit>
void with_headers_of(const Library& library, Visit visit) {
    struct Search {
        uintptr_t base;
        Visit& visit;
    } search{library.base, visit};
    dl_iterate_phdr(
        [](dl_phdr_info* info, size_t, void* data) {
            auto& search = *static_cast<Search*>(data);
            if (info->dlpi_addr != search.base) return 0;
            search.visit(*info);
            return 1;
        },
        &search);
}

// The stretch of a library that some code of it is in.
struct LibraryCode {
    Library library;
    uintptr_t begin = 0, end = 0;

    bool holds(uintptr_t address) const { return address >= begin && address < end; }
};

LibraryCode code_around(const void* function) {
    LibraryCode code{library_of(function)};
    const auto at = reinterpret_cast<uintptr_t>(function);
    with_headers_of(code.library, [&](const dl_phdr_info& info) {
        for (int i = 0; i < info.dlpi_phnum; i++) {
            const auto& header = info.dlpi_phdr[i];
            const uintptr_t begin = info.dlpi_addr + header.p_vaddr;
            if (header.p_type == PT_LOAD && at - begin < header.p_memsz)
                code.begin = begin, code.end = begin + header.p_memsz;
        }
    });
    return code;
}
#else
Library library_of(const void*) { return {}; }
uintptr_t base_of(const std::string&) { return 0; }
#endif

}  // namespace
}  // namespace simulator
