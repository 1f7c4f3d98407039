// Streams, and what happens to work that is put into one: it is done at once, or, while the stream
// is being captured, becomes a node of a graph.
#pragma once
#include <algorithm>
#include <chrono>
#include <functional>
#include <map>
#include <memory>
#include <set>
#include <vector>
#include "../include/simulator/graphs.h"
#include "../include/simulator/stream_attributes.h"
#include "errors.h"

using simulator::Error;

// A node does its work without recording an error: whoever launches it does.
struct CUgraphNode_st {
    cudaGraphNodeType type;
    std::vector<CUgraphNode_st*> needs;
    std::function<Error()> work;
    CUgraph_st* graph = nullptr;
    CUgraphNode_st* original = nullptr;  // of which this is a clone
    std::shared_ptr<CUgraph_st> child;   // of a Graph node
    std::shared_ptr<void> memory;        // that it works on and owns
    cudaKernelNodeParams kernel = {};    // of a Kernel node that was not captured
};

struct CUgraph_st {
    std::vector<std::unique_ptr<CUgraphNode_st>> nodes;  // each after those that were made before

    CUgraphNode_st* add(cudaGraphNodeType type, std::vector<CUgraphNode_st*> needs,
                        std::function<Error()> work) {
        nodes.push_back(std::make_unique<CUgraphNode_st>());
        CUgraphNode_st* node = nodes.back().get();
        node->type = type;
        node->needs = std::move(needs);
        node->work = std::move(work);
        node->graph = this;
        return node;
    }
};

namespace simulator {

// From cudaStreamBeginCapture to cudaStreamEndCapture.
struct Capture {
    unsigned long long id;
    cudaStream_t origin;
    std::unique_ptr<CUgraph_st> graph = std::make_unique<CUgraph_st>();
    std::map<cudaStream_t, std::vector<CUgraphNode_st*>> last;  // that the next node of it needs
    bool is_valid = true;
};

}  // namespace simulator

struct CUstream_st {
    unsigned flags;
    int priority;
    unsigned long long id;
    std::shared_ptr<simulator::Capture> capture;
    cudaAccessPolicyWindow window{};
    cudaSynchronizationPolicy policy = cudaSyncPolicyAuto;
};

struct CUevent_st {
    unsigned flags;
    bool is_recorded = false;
    std::chrono::steady_clock::time_point time;
    // Recorded in a capture, it stands for these nodes.
    std::weak_ptr<simulator::Capture> capture;
    std::vector<CUgraphNode_st*> stands_for;
    bool is_captured = false;
};

namespace simulator {
namespace {

// The handles of one kind that are alive: any other is cudaErrorInvalidResourceHandle.
template <class T>
class Handles {
  public:
    T* add(T* handle) {
        std::lock_guard<std::mutex> lock(mutex);
        alive.insert(handle);
        return handle;
    }
    bool has(T* handle) {
        std::lock_guard<std::mutex> lock(mutex);
        return alive.count(handle);
    }
    bool destroy(T* handle) {
        {
            std::lock_guard<std::mutex> lock(mutex);
            if (!alive.erase(handle)) return false;
        }
        delete handle;
        return true;
    }

  private:
    std::mutex mutex;
    std::set<T*> alive;
};

// Never destroyed: a program may give handles back in its destructors.
auto& streams = *new Handles<CUstream_st>;
auto& events = *new Handles<CUevent_st>;
auto& graphs = *new Handles<CUgraph_st>;

std::atomic<int> captures_under_way;
std::atomic<unsigned long long> last_id;

bool is_default(cudaStream_t stream) {
    return !stream || stream == cudaStreamLegacy || stream == cudaStreamPerThread;
}

cudaError_t check_stream(cudaStream_t stream) {
    return is_default(stream) || streams.has(stream)
               ? cudaSuccess
               : record(cudaErrorInvalidResourceHandle);
}

Capture* capture_of(cudaStream_t stream) {
    return captures_under_way && !is_default(stream) ? stream->capture.get() : nullptr;
}

// A call that a capture cannot hold, such as one that waits: it spoils the captures under way.
cudaError_t spoil(Capture* capture, cudaError_t code) {
    if (capture) capture->is_valid = false;
    return record(code);
}

// Whether the default stream is of use: not while a stream that waits for it is captured.
auto& blocking_captures = *new std::set<Capture*>;
std::mutex blocking_captures_mutex;

cudaError_t ready_for_default_stream(cudaError_t code) {
    if (!captures_under_way) return cudaSuccess;
    std::lock_guard<std::mutex> lock(blocking_captures_mutex);
    if (blocking_captures.empty()) return cudaSuccess;
    for (Capture* capture : blocking_captures) capture->is_valid = false;
    return record(code);
}

// The streams that have joined in are free again.
void end_capture(Capture& capture) {
    for (auto& [stream, last] : capture.last)
        if (streams.has(stream) && stream->capture.get() == &capture && stream != capture.origin)
            stream->capture = nullptr;
    captures_under_way--;
    std::lock_guard<std::mutex> lock(blocking_captures_mutex);
    blocking_captures.erase(&capture);
}

// For calls that wait for the device, or allocate.
cudaError_t ready_for_unsafe_call() {
    if (const cudaError_t error = broken()) return error;
    return ready_for_default_stream(cudaErrorStreamCaptureUnsupported);
}

// Of the default stream null, for whoever watches.
const void* handle_of(cudaStream_t stream) { return is_default(stream) ? nullptr : stream; }

// Tells whoever watches that work is put into a stream.
void tell_of_work(cudaStream_t stream) {
    const bool is_blocking = is_default(stream) || !(stream->flags & cudaStreamNonBlocking);
    if (watcher) watcher->put(handle_of(stream), is_blocking);
}

// Does `work`, which a stream has been given, or keeps it for the graph that captures the stream.
template <class Work>
cudaError_t submit(cudaStream_t stream, cudaGraphNodeType type, Work work,
                   std::shared_ptr<void> memory = nullptr) {
    if (const cudaError_t error = broken()) return error;
    if (const cudaError_t error = check_stream(stream)) return error;
    if (is_default(stream))
        if (const cudaError_t error = ready_for_default_stream(cudaErrorStreamCaptureImplicit))
            return error;
    if (Capture* capture = capture_of(stream)) {
        if (!capture->is_valid) return record(cudaErrorStreamCaptureInvalidated);
        auto& last = capture->last[stream];
        last = {capture->graph->add(type, last, work)};
        last[0]->memory = std::move(memory);
        return cudaSuccess;
    }
    tell_of_work(stream);
    return record(work());
}

}  // namespace
}  // namespace simulator
