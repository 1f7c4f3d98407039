// Kernels by their addresses: what cudaLaunchKernel and graphs launch.
#pragma once
#include "launches.h"

namespace simulator {
namespace {

std::mutex entries_mutex;
auto& entries = *new std::map<const void*, Entry>;

// The launch, with memory of its own for the arguments; or why there can be none.
struct BoundLaunch {
    std::shared_ptr<KeptLaunch> kept;
    Error error;

    BoundLaunch(const void* kernel, dim3 grid, dim3 block, void** arguments, size_t shared,
                bool cooperative = false)
        : BoundLaunch(kernel, configured(grid, block, shared, cooperative), arguments) {}

    // As `wanted` says of extents, shared memory and clusters.
    BoundLaunch(const void* kernel, const Launch& wanted, void** arguments) {
        Entry entry;
        {
            std::lock_guard<std::mutex> lock(entries_mutex);
            const auto found = entries.find(kernel);
            if (found == entries.end()) {
                error = {kernel ? cudaErrorInvalidResourceHandle : cudaErrorInvalidDeviceFunction,
                         "the address of a launch is not known as a kernel's: write the cast where "
                         "the kernel's name stands, (void*)kernel"};
                return;
            }
            entry = found->second;
        }
        if (entry.parameters && !arguments) {
            error = {cudaErrorInvalidValue,
                     text("kernel %s has %zu parameters, and gets no arguments", entry.launch.name,
                          entry.parameters)};
            return;
        }
        entry.launch.grid = wanted.grid;
        entry.launch.block = wanted.block;
        entry.launch.shared = wanted.shared;
        entry.launch.cooperative = wanted.cooperative;
        entry.launch.cluster = wanted.cluster;
        entry.launch.body_bytes = entry.body_bytes;
        std::vector<char> body(entry.body_bytes + entry.body_alignment);
        void* place = body.data();
        size_t room = body.size();
        std::align(entry.body_alignment, entry.body_bytes, place, room);
        entry.bind(place, kernel, arguments);
        entry.launch.body = place;
        kept = std::make_shared<KeptLaunch>(entry.launch);
        error = check(kept->launch);
    }

    static Launch configured(dim3 grid, dim3 block, size_t shared, bool cooperative) {
        Launch launch{};
        launch.grid = grid;
        launch.block = block;
        launch.shared = shared;
        launch.cooperative = cooperative;
        return launch;
    }

    cudaError_t run_in(cudaStream_t stream) {
        if (error.code != cudaSuccess) return record(error);
        kept->launch.stream = stream;
        return kept->on_stack(run_or_capture);
    }
};

}  // namespace

void know_kernel(const Entry& entry) {
    std::lock_guard<std::mutex> lock(entries_mutex);
    entries[entry.launch.function] = entry;
}

namespace api {

cudaError_t cudaLaunchKernel(const void* kernel, dim3 grid, dim3 block, void** arguments,
                             size_t shared, cudaStream_t stream) {
    if (const cudaError_t error = broken()) return error;
    return BoundLaunch(kernel, grid, block, arguments, shared).run_in(stream);
}

cudaError_t cudaLaunchCooperativeKernel(const void* kernel, dim3 grid, dim3 block, void** arguments,
                                        size_t shared, cudaStream_t stream) {
    if (const cudaError_t error = broken()) return error;
    return BoundLaunch(kernel, grid, block, arguments, shared, true).run_in(stream);
}

}  // namespace api
}  // namespace simulator
