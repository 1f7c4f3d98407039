// Calls of other ops from a binding, by name: one that Python has defined may call the newest build
// of another kernel.
#pragma once

#include <array>

#include "binding.h"

template <size_t results, class... Arguments>
std::array<Tensor, results> call(const char* op, const Arguments&... arguments) {
    StableIValue stack[] = {torch::stable::detail::from(arguments)...};
    static_assert(results <= sizeof...(arguments), "results take the places of arguments");
    if (torch_call_dispatcher(op, "", stack, TORCH_ABI_VERSION) != TORCH_SUCCESS) {
        fail(std::string(op), " failed; what it calls, called by itself, says why");
    }
    std::array<Tensor, results> made;
    for (size_t i = 0; i < results; ++i) made[i] = torch::stable::detail::to<Tensor>(stack[i]);
    return made;
}
