// tcgen05.ld.red: a load of tensor memory, and the least or greatest of what a thread loads.
#pragma once
#include "arithmetic.h"
#include "floating_point.h"
#include "tcgen05.h"

namespace simulator::ptx {

// The last register is for the result. `kept`: the bits of each word that is compared.
template <uint32_t (*function)(uint32_t, uint32_t), int count>
void __ptx_tensor_load_reduced(Shape shape, bool is_packed, bool late, uint32_t address,
                               uint32_t split, uint32_t kept, void* const (&registers)[count],
                               SIMULATOR_CALLER) {
    const tensor_cores::TensorAccess access{shape, false, is_packed, address, split, file, line};
    if (current->rank % 32 == 0) tell_use("tcgen05.ld.red", file, line, access, count - 1);
    tensor_cores::ask(access, registers, count - 1);
    const auto word = [&](int i) { return *static_cast<const uint32_t*>(registers[i]) & kept; };
    uint32_t result = word(0);
    for (int i = 1; i < count - 1; i++) result = function(result, word(i));
    *static_cast<uint32_t*>(registers[count - 1]) = result;
    if (late)
        tell_tensor_load(registers, count, file, line);
    else
        __ptx_tensor_wait(false, file, line);
}

}  // namespace simulator::ptx
