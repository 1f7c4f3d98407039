// An error, and the words for it.
#pragma once
#include <stdarg.h>
#include <stdio.h>
#include <string>
#include "../include/simulator/runtime_api.h"

namespace simulator {

struct Error {
    cudaError_t code = cudaSuccess;
    std::string message;
    bool is_interrupt = false;  // the kernel is not to blame
    uint3 wanted = {0, 0, 0};   // the clusters in which the kernel is to be launched
};

namespace {

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
