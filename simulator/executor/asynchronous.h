// What kernels under check tell of their asynchronous work, passed on to who watches.
#pragma once
#include "worker.h"

namespace simulator {

Watcher* watcher = nullptr;
Stepper* stepper = nullptr;
TimeLimit time_limit;
bool is_repeating = false;
uint64_t change_of_inactive = 0;
const void *told_from, *failed_from;

namespace {

[[gnu::always_inline]] inline WorkWatcher* watching_work() {
    told_from = __builtin_return_address(0);
    return watcher ? watcher->work() : nullptr;
}

}  // namespace

void tell_refused_map(const void* caller, const char* reason) {
    if (watcher) watcher->refused_map(caller, reason);
}
void tell_fence(ProxyFence fence) {
    if (auto* work = watching_work()) work->fence(fence);
}
void tell_mbarrier_init(const uint64_t* barrier, uint32_t count, const char* file, int line) {
    if (auto* work = watching_work()) work->mbarrier_init(barrier, count, file, line);
}
void tell_mbarrier_change(const uint64_t* barrier, int64_t bytes, uint32_t arriving, bool has_ended,
                          const char* what, const char* file, int line) {
    if (auto* work = watching_work())
        work->mbarrier_change(barrier, bytes, arriving, has_ended, what, file, line);
}
void tell_mbarrier_wait(const uint64_t* barrier, bool had_to_wait, const char* file, int line) {
    if (auto* work = watching_work()) work->mbarrier_wait(barrier, had_to_wait, file, line);
}
void tell_product(const tensor_cores::Tile& tile, const char* what, const char* file, int line) {
    if (auto* work = watching_work()) work->product(tile, what, file, line);
}
void tell_warpgroup_product(const tensor_cores::WarpgroupTile& tile, uint64_t a, uint64_t b,
                            const void* const* registers_of_a, void* const* d, int count,
                            const char* file, int line) {
    if (auto* work = watching_work())
        work->warpgroup_product(tile, a, b, registers_of_a, d, count, file, line);
}
void tell_warpgroup_fence() {
    if (auto* work = watching_work()) work->warpgroup_fence();
}
void tell_cta_group(int blocks, const char* what, const char* file, int line) {
    if (auto* work = watching_work()) work->cta_group(blocks, what, file, line);
}
void tell_pair_columns(const char* what, const char* file, int line) {
    if (auto* work = watching_work()) work->pair_columns(what, file, line);
}
void tell_tensor_use(const tensor_cores::TensorUse& use) {
    if (auto* work = watching_work()) work->tensor_use(use);
}
void tell_tensor_fence(bool is_before) {
    if (auto* work = watching_work()) work->tensor_fence(is_before);
}
void tell_narrow_arrival(const uint64_t* barrier, const char* file, int line) {
    if (auto* work = watching_work()) work->narrow_arrival(barrier, file, line);
}
void tell_tensor_columns(uint32_t first, uint32_t count, bool is_freed, const char* file,
                         int line) {
    if (auto* work = watching_work()) work->tensor_columns(first, count, is_freed, file, line);
}
void tell_tensor_conflict(const char* what, const char* file, int line, const char* other,
                          const char* other_file, int other_line) {
    if (auto* work = watching_work())
        work->tensor_conflict(what, file, line, other, other_file, other_line);
}
void tell_tensor_load(void* const* registers, int count, const char* file, int line) {
    told_from = __builtin_return_address(0);
    if (watcher) watcher->loaded(registers, count, file, line);
}
// The thread's copies of registers are on its stack, where this puts those in registers, too.
void tell_tensor_loads_done() {
    if (!watcher || !is_repeating) return;
    __builtin_unwind_init();
    watcher->loads_done(worker->stacks.end_of(__builtin_frame_address(0)));
    asm volatile("" ::: "memory");  // no tail call: the saved registers are in this frame
}
void tell_warpgroup_commit() {
    if (auto* work = watching_work()) work->warpgroup_commit();
}
void tell_warpgroup_wait(unsigned prior, const char* file, int line) {
    if (auto* work = watching_work()) work->warpgroup_done(prior, file, line);
}
unsigned groups_left(unsigned most) {
    auto* work = watching_work();
    return work ? work->groups_left(most) : most;
}
void tell_registers(unsigned count, bool is_more, const char* file, int line) {
    if (auto* work = watching_work()) work->registers(count, is_more, file, line);
}

}  // namespace simulator
