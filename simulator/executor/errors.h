// What went wrong, for the host thread that asked for it.
#pragma once
#include <stdarg.h>
#include <stdio.h>
#include <string>
#include "../include/simulator/runtime_api.h"

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

struct ErrorText {
    cudaError_t code;
    const char *name, *text;
};
constexpr ErrorText error_texts[] = {
    {cudaSuccess, "cudaSuccess", "no error"},
    {cudaErrorInvalidValue, "cudaErrorInvalidValue", "invalid argument"},
    {cudaErrorMemoryAllocation, "cudaErrorMemoryAllocation", "out of memory"},
    {cudaErrorInvalidConfiguration, "cudaErrorInvalidConfiguration",
     "invalid configuration argument"},
    {cudaErrorInvalidMemcpyDirection, "cudaErrorInvalidMemcpyDirection",
     "invalid copy direction for memcpy"},
    {cudaErrorInvalidDeviceFunction, "cudaErrorInvalidDeviceFunction", "invalid device function"},
    {cudaErrorInvalidDevice, "cudaErrorInvalidDevice", "invalid device ordinal"},
    {cudaErrorInvalidResourceHandle, "cudaErrorInvalidResourceHandle", "invalid resource handle"},
    {cudaErrorNotReady, "cudaErrorNotReady", "device not ready"},
    {cudaErrorIllegalAddress, "cudaErrorIllegalAddress",
     "an illegal memory access was encountered"},
    {cudaErrorAssert, "cudaErrorAssert", "device-side assert triggered"},
    {cudaErrorIllegalInstruction, "cudaErrorIllegalInstruction",
     "an illegal instruction was encountered"},
    {cudaErrorLaunchFailure, "cudaErrorLaunchFailure", "unspecified launch failure"},
    {cudaErrorCooperativeLaunchTooLarge, "cudaErrorCooperativeLaunchTooLarge",
     "too many blocks in cooperative launch"},
    {cudaErrorNotSupported, "cudaErrorNotSupported", "operation not supported"},
    {cudaErrorUnknown, "cudaErrorUnknown", "unknown error"},
};

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

namespace api {

cudaError_t cudaGetLastError() {
    const cudaError_t code = pending.code;
    pending = {};
    return code;
}

cudaError_t cudaPeekAtLastError() { return pending.code; }

const char* cudaGetErrorName(cudaError_t code) {
    for (const ErrorText& error : error_texts)
        if (error.code == code) return error.name;
    return "unrecognized error code";
}

const char* cudaGetErrorString(cudaError_t code) {
    if (code != cudaSuccess && code == detailed.code) return detailed.message.c_str();
    for (const ErrorText& error : error_texts)
        if (error.code == code) return error.text;
    return "unrecognized error code";
}

}  // namespace api
}  // namespace simulator

// The message of this host thread's pending error, or null. Clears it.
extern "C" SIMULATOR_EXPORT const char* simulator_take_error() {
    static thread_local std::string message;
    if (simulator::pending.code == cudaSuccess) return nullptr;
    message = simulator::pending.message;
    simulator::pending = {};
    return message.c_str();
}
