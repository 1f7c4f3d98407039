// tcgen05: tensor memory, and the products of compute capability 10.0 that are summed there.
#pragma once
#include "../tensor_memory.h"
#include "mbarriers.h"
#include "meeting.h"

namespace simulator::ptx {

using tensor_cores::ProductKind;
using tensor_cores::Shape;
using tensor_cores::TensorOperation;
using tensor_cores::Unpacking;
using __ptx_TensorOperation = TensorOperation;
SIMULATOR_NAMED(Shape, Lanes32x32)
SIMULATOR_NAMED(Shape, Lanes16x64)
SIMULATOR_NAMED(Shape, Lanes16x128)
SIMULATOR_NAMED(Shape, Lanes16x256)
SIMULATOR_NAMED(Shape, Lanes16x32x2)
SIMULATOR_NAMED(ProductKind, F16)
SIMULATOR_NAMED(ProductKind, TF32)
SIMULATOR_NAMED(ProductKind, F8F6F4)
SIMULATOR_NAMED(ProductKind, I8)
SIMULATOR_NAMED(ProductKind, MXF8F6F4)
SIMULATOR_NAMED(ProductKind, MXF4)
SIMULATOR_NAMED(ProductKind, MXF4NVF4)
SIMULATOR_NAMED(Unpacking, None)
SIMULATOR_NAMED(Unpacking, From6Bits)
SIMULATOR_NAMED(Unpacking, From4Bits)
SIMULATOR_NAMED(TensorOperation, Product)
SIMULATOR_NAMED(TensorOperation, Copy)
SIMULATOR_NAMED(TensorOperation, Shift)

// Under check, whether what it uses of tensor memory is under way.
template <class... Use>
SIMULATOR_INLINE bool tell_conflict(const char* what, const char* file, int line,
                                    const Use&... use) {
#if defined(__SANITIZE_THREAD__)
    const tensor_cores::Conflict found = tensor_cores::conflict_of(use...);
    if (found.file) tell_tensor_conflict(what, file, line, found.what, found.file, found.line);
    return found.file;
#else
    return false;
#endif
}
// And all that it uses.
template <class... Use>
SIMULATOR_INLINE void tell_use(const char* what, const char* file, int line, const Use&... use) {
#if defined(__SANITIZE_THREAD__)
    tensor_cores::TensorUse all = tensor_cores::use_of(use...);
    all.is_told = tell_conflict(what, file, line, use...);
    tell_tensor_use(all);
#endif
}

inline tensor_cores::Allocation columns(uint32_t address, uint32_t count,
                                        void (*run)(Meeting* const*, uint32_t), const char* what,
                                        const char* file, int line) {
    tensor_cores::Allocation mine;
    mine.run = run;
    mine.address = address;
    mine.count = count;
    mine.file = file;
    mine.line = line;
    meet(mine, what, file, line);
    return mine;
}

// The address of the columns is written to shared memory.
inline void __ptx_tensor_alloc(char* to, uint32_t count, int blocks, SIMULATOR_CALLER) {
    const char* what = "tcgen05.alloc";
    if (current->rank % 32 == 0) {
        tell_cta_group(blocks, what, file, line);
        if (blocks == 2) tell_pair_columns(what, file, line);
    }
    for (;;) {
        const auto mine = columns(0, count, tensor_cores::allocate, what, file, line);
        if (mine.is_granted) {
            if (mine.is_first) {
                *reinterpret_cast<uint32_t*>(to) = mine.address;
                tell_tensor_columns(mine.address, mine.count, false, file, line);
            }
            Meeting written{[](Meeting* const*, uint32_t) {}};
            return meet(written, what, file, line);
        }
        park(what, file, line);
    }
}
// blocks: that free it together, with a cta_group of 2.
inline void __ptx_tensor_dealloc(uint32_t address, uint32_t count, int blocks, SIMULATOR_CALLER) {
    if (current->rank % 32 == 0) {
        tell_cta_group(blocks, "tcgen05.dealloc", file, line);
        if (blocks == 2) tell_pair_columns("tcgen05.dealloc", file, line);
        tell_conflict("tcgen05.dealloc", file, line, address, count);
        tell_tensor_columns(address & 0xffff, count, true, file, line);
    }
    columns(address, count, tensor_cores::deallocate, "tcgen05.dealloc", file, line);
    if (current->tracked) current->wake_parked();
}
inline void __ptx_tensor_relinquish(SIMULATOR_CALLER) {
    columns(0, 0, tensor_cores::relinquish, "tcgen05.relinquish_alloc_permit", file, line);
}

inline void __ptx_tensor_wait(bool of_stores, SIMULATOR_CALLER) {
    tensor_cores::AccessWait mine;
    mine.run = tensor_cores::carry_out_accesses;
    mine.thread = current->rank;
    mine.of_stores = of_stores;
    meet(mine, of_stores ? "tcgen05.wait::st" : "tcgen05.wait::ld", file, line);
    if (!of_stores) tell_tensor_loads_done();
}
// `late`: whether a later instruction waits for it.
template <int count>
void __ptx_tensor_load(Shape shape, bool is_packed, bool late, uint32_t address, uint32_t split,
                       void* const (&registers)[count], SIMULATOR_CALLER) {
    const tensor_cores::TensorAccess access{shape, false, is_packed, address, split, file, line};
    if (current->rank % 32 == 0) tell_use("tcgen05.ld", file, line, access, count);
    tensor_cores::ask(access, registers, count);
    if (late)
        tell_tensor_load(registers, count, file, line);
    else
        __ptx_tensor_wait(false, file, line);
}
template <int count>
void __ptx_tensor_store(Shape shape, bool is_packed, uint32_t address, uint32_t split,
                        const uint32_t (&values)[count], SIMULATOR_CALLER) {
    void* registers[count];
    for (int i = 0; i < count; i++) registers[i] = const_cast<uint32_t*>(&values[i]);
    const tensor_cores::TensorAccess access{shape, true, is_packed, address, split, file, line};
    if (current->rank % 32 == 0) tell_use("tcgen05.st", file, line, access, count);
    tensor_cores::ask(access, registers, count);
}

inline void __ptx_tensor_operation(TensorOperation operation, SIMULATOR_CALLER) {
    operation.file = file;
    operation.line = line;
    operation.architecture = SIMULATOR_ARCHITECTURE;
    const char* what = tensor_cores::name_of(operation);
    tell_cta_group(operation.blocks, what, file, line);
    tell_use(what, file, line, operation);
    tensor_cores::ask(operation);
}

// The barrier at this address of shared memory, or at the same place in each block of a mask, is
// told of one arrival.
inline void __ptx_tensor_commit(uint64_t barrier, uint32_t mask, int blocks, SIMULATOR_CALLER) {
    barrier = shared_operand(barrier);
    BulkCopy done = tensor_cores::completion();
    done.what = "tcgen05.commit";
    done.file = file;
    done.line = line;
    tell_cta_group(blocks, done.what, file, line);
    const auto tell = [&](uint32_t address) {
        done.barrier = __ptx_barrier_at(__ptx_shared(address));
        add_copy(block_of(address), done);
    };
    if (!mask) return tell(barrier);
    for (unsigned rank = 0; mask >> rank; rank++)
        if (mask >> rank & 1) tell((barrier & 0xffffff) | rank << 24);
}

SIMULATOR_INLINE void __ptx_tensor_fence(bool is_before) { tell_tensor_fence(is_before); }

}  // namespace simulator::ptx
