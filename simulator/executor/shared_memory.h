// The dynamic shared memory of the block that runs, and how much of it a launch may ask for.
#pragma once
#include <algorithm>
#include <map>
#include <mutex>
#include "../include/simulator/shared_window.h"
#include "errors.h"
#include "libraries.h"

namespace simulator {
namespace {

constexpr size_t default_shared = 48 << 10;  // bytes that any launch may ask for
constexpr size_t most_shared =
    227 << 10;  // and with cudaFuncSetAttribute, as on compute capability 9.0

// What cudaFuncSetAttribute has allowed each kernel, by its address.
std::mutex allowances_mutex;
std::map<const void*, size_t> allowances;

// The kernels that may have clusters of more than 8 blocks.
std::map<const void*, bool> large_clusters;

bool allows_large_clusters(const void* function) {
    std::lock_guard<std::mutex> lock(allowances_mutex);
    const auto found = large_clusters.find(function);
    return found != large_clusters.end() && found->second;
}

size_t allowed_shared(const void* function) {
    std::lock_guard<std::mutex> lock(allowances_mutex);
    size_t allowed = default_shared;
    for (const auto& [allowed_function, bytes] : allowances)
        if (allowed_function == function || !function) allowed = std::max(allowed, bytes);
    return allowed;
}

}  // namespace

namespace api {

cudaError_t set_attribute(const void* function, cudaFuncAttribute attribute, int value) {
    if (!function) return record(cudaErrorInvalidDeviceFunction);
    if (attribute == cudaFuncAttributePreferredSharedMemoryCarveout)  // a hint, in percent
        return record(value < -1 || value > 100 ? cudaErrorInvalidValue : cudaSuccess);
    if (attribute == cudaFuncAttributeNonPortableClusterSizeAllowed) {
        std::lock_guard<std::mutex> lock(allowances_mutex);
        large_clusters[function] = value != 0;
        return cudaSuccess;
    }
    if (attribute == cudaFuncAttributeClusterSchedulingPolicyPreference) return cudaSuccess;
    if (attribute != cudaFuncAttributeMaxDynamicSharedMemorySize)
        return record(cudaErrorNotSupported);  // a cluster's size that a kernel requires
    if (value < 0 || size_t(value) > most_shared) return record(cudaErrorInvalidValue);
    std::lock_guard<std::mutex> lock(allowances_mutex);
    allowances[function] = value;
    return cudaSuccess;
}

// A kernel here has no registers of its own: it is said to have as many as full occupancy leaves
// it. Its static shared memory is unknown.
cudaError_t get_attributes(cudaFuncAttributes* attributes, const void* function) {
    if (!attributes) return record(cudaErrorInvalidValue);
    if (!function) return record(cudaErrorInvalidDeviceFunction);
    *attributes = {};
    attributes->maxThreadsPerBlock = max_threads;
    attributes->numRegs = 32;
    attributes->ptxVersion = attributes->binaryVersion = 90;
    attributes->maxDynamicSharedSizeBytes = int(allowed_shared(function));
    attributes->preferredShmemCarveout = cudaSharedmemCarveoutDefault;
    return cudaSuccess;
}

}  // namespace api

// They are the thread's own storage of one library, of which the loader knows the bounds. Where it
// is not asked, what is near counts: something else may lie there, too. In the low 18 bits of the
// addresses 96 KB lie behind the variable.
void find_static_shared(Block& block, char* among_them) {
    block.static_shared = among_them;
    block.static_begin = among_them - static_window / 2;
    block.static_end = among_them + static_window / 2 + (96 << 10);
#ifdef __linux__
    find_library([&](const dl_phdr_info& library) {
        const auto begin = static_cast<const char*>(library.dlpi_tls_data);
        for (int i = 0; begin && i < library.dlpi_phnum; i++) {
            const auto& part = library.dlpi_phdr[i];
            if (part.p_type != PT_TLS) continue;
            const char* const end = begin + part.p_memsz;
            if (among_them < begin || among_them >= end) continue;
            block.static_begin = begin;
            block.static_end = end;
            block.static_alignment = std::max<uint32_t>(1024, part.p_align);
            return true;
        }
        return false;
    });
#endif
}

}  // namespace simulator

// Of the block on this operating-system thread: each `extern __shared__` array of every kernel is
// this one. It lies 1 KB behind a multiple of 256 KB: see shared_window.h.
extern "C" {
#ifdef __linux__
static_assert(simulator::first_shared == 1024);
__attribute__((visibility("hidden"))) __thread char
    simulator_shared_window[simulator::first_shared + simulator::most_shared]
    __attribute__((aligned(simulator::window)));
extern SIMULATOR_EXPORT __thread char simulator_dynamic_shared[simulator::most_shared];
__asm__(
    ".globl simulator_dynamic_shared\n"
    ".type simulator_dynamic_shared, @tls_object\n"
    ".set simulator_dynamic_shared, simulator_shared_window + 1024\n");
#else
SIMULATOR_EXPORT __thread char simulator_dynamic_shared[simulator::most_shared]
    __attribute__((aligned(1024)));
#endif
}
