// A launch from CUDA's verdict on it to the error that it leaves; and how a kernel ends its own.
#pragma once
#include <alloca.h>
#include "copies.h"
#include "damage.h"
#include "device.h"
#include "interrupts.h"

namespace simulator {
namespace {

// Instead of the process, the call that Python has made of the host's code, if it has made one.
void end_call(const std::string& why);  // host_calls.h

bool within(const dim3& extent, const dim3& limit) {
    return extent.x - 1 < limit.x && extent.y - 1 < limit.y &&
           extent.z - 1 < limit.z;  // 0 - 1 is large
}

// The blocks that a cluster may have: more than 8 if the kernel has been allowed them.
int largest_cluster(const void* function) { return allows_large_clusters(function) ? 16 : 8; }

Error check_cluster(const Launch& launch) {
    const dim3 &grid = launch.grid, &of = launch.cluster;
    const auto refuse = [&](cudaError_t code, const std::string& reason) {
        return Error{code, describe(launch) + ": " + reason};
    };
    if (of.x == 0 && of.y == 0 && of.z == 0) return {};
    const uint64_t size = uint64_t(of.x) * of.y * of.z;
    const uint64_t most = largest_cluster(launch.function);
    if (size == 0 || size > most)
        return refuse(
            cudaErrorInvalidClusterSize,
            text("a cluster of (%u, %u, %u) blocks; it has at least 1 and at most 8, or 16 after "
                 "cudaFuncSetAttribute(kernel, cudaFuncAttributeNonPortableClusterSizeAllowed, 1)",
                 of.x, of.y, of.z));
    if (grid.x % of.x || grid.y % of.y || grid.z % of.z)
        return refuse(cudaErrorInvalidClusterSize,
                      text("a grid of (%u, %u, %u) blocks is not divisible into clusters of "
                           "(%u, %u, %u)",
                           grid.x, grid.y, grid.z, of.x, of.y, of.z));
    return {};
}

// CUDA's verdict on a launch, with the reason. It is cudaErrorInvalidValue to all of them, as seen
// with CUDA 13.0; its documentation, and CUDA 12, say cudaErrorInvalidConfiguration to the first
// two.
Error check(const Launch& launch) {
    const dim3 &grid = launch.grid, &block = launch.block;
    const auto refuse = [&](const std::string& reason) {
        return Error{
            cudaErrorInvalidValue, "cudaErrorInvalidValue: " + describe(launch) + ": " + reason};
    };
    if (!within(grid, largest_grid))
        return refuse(text(
            "a grid of (%u, %u, %u) blocks; each extent is at least 1, at most (%u, %u, %u)",
            grid.x, grid.y, grid.z, largest_grid.x, largest_grid.y, largest_grid.z));
    if (!within(block, largest_block) || uint64_t(block.x) * block.y * block.z > max_threads)
        return refuse(text(
            "a block of (%u, %u, %u) threads; each extent is at least 1, at most "
            "(%u, %u, %u), and "
            "their product at most %u",
            block.x, block.y, block.z, largest_block.x, largest_block.y, largest_block.z,
            max_threads));
    if (const size_t allowed = allowed_shared(launch.function); launch.shared > allowed)
        return refuse(text(
            "%zu bytes of dynamic shared memory; %zu are allowed, and at most %zu after "
            "cudaFuncSetAttribute(kernel, cudaFuncAttributeMaxDynamicSharedMemorySize, bytes)",
            launch.shared, allowed, most_shared));
    if (const Error refusal = check_cluster(launch); refusal.code != cudaSuccess) return refusal;
    if (launch.cooperative) {
        int fit = 0;
        api::occupancy(&fit, int(block.x * block.y * block.z), launch.shared);
        cudaDeviceProp device;
        api::cudaGetDeviceProperties(&device, 0);
        const uint64_t blocks = uint64_t(grid.x) * grid.y * grid.z;
        const uint64_t most = uint64_t(fit) * device.multiProcessorCount;
        if (blocks > most)
            return {cudaErrorCooperativeLaunchTooLarge,
                    "cudaErrorCooperativeLaunchTooLarge: " + describe(launch) +
                        text(": %llu blocks that may wait for each other; %llu of this size run at "
                             "once, cudaOccupancyMaxActiveBlocksPerMultiprocessor times "
                             "multiProcessorCount",
                             (unsigned long long)blocks, (unsigned long long)most)};
    }
    return {};
}

std::atomic<uint64_t> launches_so_far;

// Runs a grid that has passed the check. What it leaves broken stays so.
Error execute(const Launch& launch) {
    if (watcher && time_limit.is_over) return Pool::time_is_over(launch);
    launches_so_far.fetch_add(1, std::memory_order_relaxed);
    if (const Error damage = damage_beside(launch, Damage::ByHost); damage.code != cudaSuccess)
        return damage;
    told_fault.take();
    interrupts->enter();
    Error error = pool->run(launch);
    if (error.code == cudaErrorInvalidClusterSize && error.wanted.x) {
        Launch in_clusters = launch;
        in_clusters.cluster = {error.wanted.x, error.wanted.y, error.wanted.z};
        error = check(in_clusters);
        if (error.code == cudaSuccess) error = pool->run(in_clusters);
    }
    const bool explain = error.code == cudaSuccess && !watcher;
    const Error damage = damage_beside(launch, explain ? Damage::ToExplain : Damage::ByKernel);
    interrupts->leave();
    if (interrupts->leaves_host()) send_stop(pthread_self());
    if (error.code == cudaSuccess) error = damage;
    fflush(stdout);                                             // what the kernel printed
    const bool is_late = error.code == cudaErrorLaunchTimeout;  // the kernel may be right
    if (error.code != cudaSuccess && !error.is_interrupt && !is_late) breakage.set(error);
    if (error.is_interrupt && interrupts->will_raise()) return {};
    return error;
}

// A launch that outlives its arguments, which a GPU copies byte by byte.
struct KeptLaunch {
    Launch launch;
    std::shared_ptr<void> body;

    explicit KeptLaunch(const Launch& to_keep) : launch(to_keep) {
        void* memory = nullptr;
        if (posix_memalign(&memory, memory_alignment, std::max<size_t>(launch.body_bytes, 1)))
            throw std::bad_alloc();
        body = {memory, free};
        memcpy(memory, to_keep.body, launch.body_bytes);
        launch.body = memory;
    }

    // Its arguments lie on the stack, as other launches' do: there the checker knows whose they
    // are.
    template <class Start>
    auto on_stack(Start start) const {
        const size_t room = launch.body_bytes + memory_alignment;
        const uintptr_t begin = reinterpret_cast<uintptr_t>(alloca(room));
        Launch to_start = launch;
        to_start.body = reinterpret_cast<void*>(round_up(begin, memory_alignment));
        memcpy(const_cast<void*>(to_start.body), launch.body, launch.body_bytes);
        return start(to_start);
    }

    Error operator()() const { return on_stack(execute); }
};

cudaError_t run_or_capture(const Launch& launch) {
    if (worker && worker->running)
        worker->fail(cudaErrorNotSupported,
                     "it launches " + describe(launch) +
                         ": the simulator does not launch kernels from kernels");
    if (const cudaError_t error = broken()) return error;
    if (const cudaError_t error = check_stream(launch.stream)) return error;
    if (const Error refusal = check(launch); refusal.code != cudaSuccess) {
        if (watcher) watcher->refused(launch, refusal);
        return record(refusal);
    }
    if (captures_under_way)
        return submit(launch.stream, cudaGraphNodeTypeKernel, KeptLaunch(launch));
    tell_of_work(launch.stream);
    return record(execute(launch));
}

}  // namespace

void run(const Launch& launch) {
    const bool is_refused = run_or_capture(launch) != cudaSuccess;  // <<<>>> returns nothing
    if (is_refused && untold.code == cudaSuccess) untold = pending;
}

void trap(const char* file, int line) {
    worker->fail(
        cudaErrorLaunchFailure, text("%s:%d: thread %u: __trap", file, line, worker->rank));
}

void fail(const char* reason, const char* what, const char* file, int line) {
    if (!worker || !worker->running) {
        const std::string said = text("%s:%d: %s: %s", file, line, what, reason);
        end_call(said);
        fprintf(stderr, "%s\n", said.c_str());
        abort();
    }
    failed_from = __builtin_return_address(0);
    worker->fail(cudaErrorLaunchFailure,
                 text("%s:%d: thread %u: %s: %s", file, line, worker->rank, what, reason));
}

// The first thing that any thread of such a kernel does: nothing has been done yet.
void want_clusters(unsigned x, unsigned y, unsigned z) {
    Error error{cudaErrorInvalidClusterSize,
                describe(*worker->launch) +
                    text(": the kernel is compiled for clusters of (%u, %u, %u), and launched in "
                         "others",
                         x, y, z)};
    if (!worker->launch->in_clusters()) error.wanted = {x, y, z};
    worker->give_up(error);
}

void fail_bounds(unsigned threads, const char* file, int line) {
    worker->fail(cudaErrorInvalidConfiguration,
                 text("%s:%d: %u threads in a block, and the kernel's __launch_bounds__ allow %u",
                      file, line, worker->size, threads));
}

void fail_assertion(const char* condition, const char* file, int line) {
    if (worker && worker->running)
        worker->fail(cudaErrorAssert, text("%s:%d: thread %u: assertion failed: %s", file, line,
                                           worker->rank, condition));
    const std::string what = text("%s:%d: assertion failed: %s", file, line, condition);
    end_call(what);
    fprintf(stderr, "%s\n", what.c_str());
    abort();
}

}  // namespace simulator

// Whether a launch is under way.
extern "C" SIMULATOR_EXPORT bool simulator_is_running() { return simulator::pool->is_running(); }

// How many kernels this process has launched: a measurement asks before a call and after it.
extern "C" SIMULATOR_EXPORT uint64_t simulator_launches() {
    return simulator::launches_so_far.load(std::memory_order_relaxed);
}
