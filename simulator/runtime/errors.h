// What went wrong, for the host thread that asked for it.
#pragma once
#include <stdarg.h>
#include <stdio.h>
#include <string>
#include "../include/simulator/api.h"

namespace simulator {
namespace {

struct Error {
    cudaError_t code = cudaSuccess;
    std::string message;
    bool is_interrupt = false;  // the kernel is not to blame
};

thread_local Error pending;  // what cudaGetLastError is going to return
thread_local Error
    detailed;  // the last one that came with a message of its own, for cudaGetErrorString

cudaError_t record(cudaError_t code) {
    if (code == cudaSuccess) return code;
    detailed = {};
    pending = {code, cudaGetErrorString(code)};
    return code;
}

void record(const Error& error) { pending = detailed = error; }

__attribute__((format(printf, 1, 2))) std::string text(const char* format, ...) {
    char buffer[2048];
    va_list arguments;
    va_start(arguments, format);
    vsnprintf(buffer, sizeof buffer, format, arguments);
    va_end(arguments);
    return buffer;
}

std::string describe(const Launch& launch) {
    return text("kernel %s, launched at %s:%d", launch.name, launch.file, launch.line);
}

}  // namespace
}  // namespace simulator
