// Calls of other ops from a binding, by name: one that Python has defined may call the newest build
// of another kernel.
#pragma once

#include <array>

#include "binding.h"

// What an op without arguments says.
inline std::string text_of(const char* op) {
    using torch::stable::detail::to;
    StableIValue result;
    size_t length;
    const char* letters;
    if (torch_call_dispatcher(op, "", &result, TORCH_ABI_VERSION) != TORCH_SUCCESS) {
        fail(std::string(op), " failed; called by itself it says why");
    }
    const StringHandle handle = to<StringHandle>(result);  // to<std::string> leaves memory behind
    torch_string_length(handle, &length);
    torch_string_c_str(handle, &letters);
    const std::string text(letters, length);
    torch_delete_string(handle);
    return text;
}

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
