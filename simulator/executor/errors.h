// What went wrong, for the host thread that asked for it.
#pragma once
#include <atomic>
#include <mutex>
#include <string>
#include "messages.h"
#include "watcher.h"

namespace simulator {

namespace {

thread_local Error pending;  // what cudaGetLastError is going to return
thread_local Error
    detailed;  // the last one that came with a message of its own, for cudaGetErrorString

// The first that the program has not been told of: of a launch, which returns nothing, or of a call
// whose error it has dropped.
thread_local Error untold;

struct ErrorText {
    cudaError_t code;
    const char *name, *text;
};
constexpr ErrorText error_texts[] = {
#define SIMULATOR_ERROR(name, number, text) {name, #name, text},
#include "../include/simulator/error_codes.h"
#undef SIMULATOR_ERROR
};

const char* words_for(cudaError_t code) {
    for (const ErrorText& error : error_texts)
        if (error.code == code) return error.text;
    return "unrecognized error code";
}

cudaError_t record(cudaError_t code) {
    if (code == cudaSuccess) return code;
    detailed = {};
    pending = {code, words_for(code)};
    return code;
}

cudaError_t record(const Error& error) {
    if (error.code != cudaSuccess) pending = detailed = error;
    return error.code;
}

// What a call of the host's asks for is wrong, which a program that asks for no error never learns.
cudaError_t refuse(const Error& error) {
    if (watcher) watcher->refused_call(error);
    return record(error);
}

// A kernel that fails while it runs leaves no usable device to CUDA: from then on every call that
// needs one returns that error. It is over when Python has raised it.
struct Breakage {
    std::atomic<bool> is_there{false};
    std::atomic<bool> is_named{false};  // whether somebody has asked for its name or its words
    std::mutex mutex;
    Error error;

    void set(const Error& to) {
        std::lock_guard<std::mutex> lock(mutex);
        if (is_there) return;
        error = to;
        is_named = false;
        is_there = true;
    }

    void mend() {
        if (!is_there) return;
        std::lock_guard<std::mutex> lock(mutex);
        is_there = false;
    }

    Error get() {
        std::lock_guard<std::mutex> lock(mutex);
        return is_there ? error : Error{};
    }

    // For a program's end: a return code alone, which many programs drop, names no line.
    Error unnamed() { return is_named ? Error{} : get(); }
} breakage;

// For calls that need the device: what has broken it, or cudaSuccess.
cudaError_t broken() {
    if (!breakage.is_there) return cudaSuccess;
    untold = {};
    return record(breakage.get());
}

// What has failed, and what had failed before, if that is something else.
std::string with_earlier(const Error& error) {
    const bool is_later = untold.code != cudaSuccess && untold.message != error.message;
    return error.message + (is_later ? "\n  before that, " + untold.message : "");
}

}  // namespace

namespace api {

void tell_dropped(const Dropped& it, cudaError_t error) {
    if (error == cudaErrorNotReady || breakage.is_there || pending.code != error) return;
    pending.message = text("%s:%d: %s: ", it.file, it.line, it.call) + pending.message;
    if (untold.code == cudaSuccess) untold = pending;
}

cudaError_t cudaPeekAtLastError() {
    const bool is_broken = pending.code == cudaSuccess && breakage.is_there;
    const cudaError_t code = is_broken ? breakage.get().code : pending.code;
    if (code != cudaSuccess) untold = {};
    return code;
}

cudaError_t cudaGetLastError() {
    const cudaError_t code = cudaPeekAtLastError();
    pending = {};
    return code;
}

const char* cudaGetErrorName(cudaError_t code) {
    if (code == breakage.get().code) breakage.is_named = true;
    for (const ErrorText& error : error_texts)
        if (error.code == code) return error.name;
    return "unrecognized error code";
}

const char* cudaGetErrorString(cudaError_t code) {
    if (code == breakage.get().code) breakage.is_named = true;
    if (code != cudaSuccess && code == detailed.code) return detailed.message.c_str();
    return words_for(code);
}

}  // namespace api
}  // namespace simulator

// The message of this host thread's pending error, or null. The next launch has a clean slate.
extern "C" SIMULATOR_EXPORT const char* simulator_take_error() {
    static thread_local std::string message;
    simulator::breakage.mend();
    message = simulator::with_earlier(simulator::pending);
    simulator::untold = {};
    if (simulator::pending.code == cudaSuccess) return nullptr;
    simulator::pending = {};
    return message.c_str();
}

// For the end of a program: the message of the kernel that failed while it ran, unless the program
// has asked for that; or of an error of this host thread that the program was never told of, by a
// launch or by a call whose error it drops; or null.
extern "C" SIMULATOR_EXPORT const char* simulator_untold_error() {
    static thread_local std::string message;
    simulator::Error error = simulator::breakage.unnamed();
    if (error.code == cudaSuccess) error = simulator::untold;
    message = simulator::with_earlier(error);
    return error.code == cudaSuccess ? nullptr : message.c_str();
}
