// CUDA's functions for graphs: capture, nodes, instantiation, updates and launches.
#pragma once
#include "graphs.h"

namespace simulator {

namespace api {

cudaError_t cudaStreamBeginCapture(cudaStream_t stream, cudaStreamCaptureMode mode) {
    if (const cudaError_t error = broken()) return error;
    if (const cudaError_t error = check_stream(stream)) return error;
    if (mode < cudaStreamCaptureModeGlobal || mode > cudaStreamCaptureModeRelaxed)
        return record(cudaErrorInvalidValue);
    if (is_default(stream)) return record(cudaErrorStreamCaptureUnsupported);
    if (stream->capture) return record(cudaErrorIllegalState);
    auto capture = std::make_shared<Capture>();
    capture->id = ++last_id;
    capture->origin = stream;
    capture->last[stream];
    stream->capture = capture;
    captures_under_way++;
    if (!(stream->flags & cudaStreamNonBlocking) && mode != cudaStreamCaptureModeRelaxed) {
        std::lock_guard<std::mutex> lock(blocking_captures_mutex);
        blocking_captures.insert(capture.get());
    }
    return cudaSuccess;
}

cudaError_t cudaStreamEndCapture(cudaStream_t stream, cudaGraph_t* graph) {
    if (!graph) return record(cudaErrorInvalidValue);
    *graph = nullptr;
    if (const cudaError_t error = check_stream(stream)) return error;
    if (!capture_of(stream)) return record(cudaErrorIllegalState);
    if (stream->capture->origin != stream) return record(cudaErrorStreamCaptureUnmatched);
    const std::shared_ptr<Capture> capture = std::exchange(stream->capture, nullptr);
    end_capture(*capture);
    if (!capture->is_valid) return record(cudaErrorStreamCaptureInvalidated);
    if (!is_joined(*capture)) return record(cudaErrorStreamCaptureUnjoined);
    *graph = graphs.add(capture->graph.release());
    return cudaSuccess;
}

cudaError_t cudaStreamGetCaptureInfo(cudaStream_t stream, cudaStreamCaptureStatus* status,
                                     unsigned long long* id) {
    if (const cudaError_t error = check_stream(stream)) return error;
    if (!status) return record(cudaErrorInvalidValue);
    const Capture* capture = capture_of(stream);
    *status = !capture            ? cudaStreamCaptureStatusNone
              : capture->is_valid ? cudaStreamCaptureStatusActive
                                  : cudaStreamCaptureStatusInvalidated;
    if (id && capture) *id = capture->id;
    return cudaSuccess;
}

cudaError_t cudaStreamIsCapturing(cudaStream_t stream, cudaStreamCaptureStatus* status) {
    return cudaStreamGetCaptureInfo(stream, status, nullptr);
}

cudaError_t cudaThreadExchangeStreamCaptureMode(cudaStreamCaptureMode* mode) {
    static thread_local cudaStreamCaptureMode current_mode = cudaStreamCaptureModeGlobal;
    if (!mode) return record(cudaErrorInvalidValue);
    std::swap(*mode, current_mode);
    return cudaSuccess;
}

cudaError_t cudaGraphCreate(cudaGraph_t* graph, unsigned flags) {
    if (!graph || flags) return record(cudaErrorInvalidValue);
    *graph = graphs.add(new CUgraph_st);
    return cudaSuccess;
}

cudaError_t cudaGraphDestroy(cudaGraph_t graph) {
    return record(graphs.destroy(graph) ? cudaSuccess : cudaErrorInvalidValue);
}

cudaError_t cudaGraphClone(cudaGraph_t* copy, cudaGraph_t graph) {
    if (!copy || !graphs.has(graph)) return record(cudaErrorInvalidValue);
    *copy = graphs.add(clone(*graph).release());
    return cudaSuccess;
}

cudaError_t cudaGraphNodeFindInClone(cudaGraphNode_t* node, cudaGraphNode_t original,
                                     cudaGraph_t copy) {
    if (!node || !graphs.has(copy)) return record(cudaErrorInvalidValue);
    for (const auto& it : copy->nodes)
        if (it->original == original) {
            *node = it.get();
            return cudaSuccess;
        }
    return record(cudaErrorInvalidValue);
}

cudaError_t cudaGraphGetNodes(cudaGraph_t graph, cudaGraphNode_t* nodes, size_t* count) {
    if (!graphs.has(graph)) return record(cudaErrorInvalidValue);
    std::vector<cudaGraphNode_t> all;
    for (const auto& node : graph->nodes) all.push_back(node.get());
    return list(all, nodes, count);
}

cudaError_t cudaGraphGetRootNodes(cudaGraph_t graph, cudaGraphNode_t* nodes, size_t* count) {
    if (!graphs.has(graph)) return record(cudaErrorInvalidValue);
    std::vector<cudaGraphNode_t> roots;
    for (const auto& node : graph->nodes)
        if (node->needs.empty()) roots.push_back(node.get());
    return list(roots, nodes, count);
}

cudaError_t cudaGraphNodeGetType(cudaGraphNode_t node, cudaGraphNodeType* type) {
    if (!node || !type) return record(cudaErrorInvalidValue);
    *type = node->type;
    return cudaSuccess;
}

cudaError_t cudaGraphDestroyNode(cudaGraphNode_t node) {
    if (!node || !graphs.has(node->graph)) return record(cudaErrorInvalidValue);
    auto& nodes = node->graph->nodes;
    for (const auto& it : nodes) {
        auto& needs = it->needs;
        needs.erase(std::remove(needs.begin(), needs.end(), node), needs.end());
    }
    nodes.erase(std::remove_if(
                    nodes.begin(), nodes.end(), [&](const auto& it) { return it.get() == node; }),
                nodes.end());
    return cudaSuccess;
}

cudaError_t cudaGraphAddKernelNode(cudaGraphNode_t* node, cudaGraph_t graph,
                                   const cudaGraphNode_t* needs, size_t count,
                                   const cudaKernelNodeParams* parameters) {
    return add_node(node, graph, needs, count, work_of(parameters));
}

cudaError_t cudaGraphAddMemcpyNode(cudaGraphNode_t* node, cudaGraph_t graph,
                                   const cudaGraphNode_t* needs, size_t count,
                                   const cudaMemcpy3DParms* copy) {
    return add_node(node, graph, needs, count, work_of(copy));
}

cudaError_t cudaGraphAddMemcpyNode1D(cudaGraphNode_t* node, cudaGraph_t graph,
                                     const cudaGraphNode_t* needs, size_t count, void* to,
                                     const void* from, size_t bytes, cudaMemcpyKind kind) {
    const cudaMemcpy3DParms copy = line(to, from, bytes, kind);
    return add_node(node, graph, needs, count, work_of(&copy));
}

cudaError_t cudaGraphAddMemsetNode(cudaGraphNode_t* node, cudaGraph_t graph,
                                   const cudaGraphNode_t* needs, size_t count,
                                   const cudaMemsetParams* parameters) {
    return add_node(node, graph, needs, count, work_of(parameters));
}

cudaError_t cudaGraphAddHostNode(cudaGraphNode_t* node, cudaGraph_t graph,
                                 const cudaGraphNode_t* needs, size_t count,
                                 const cudaHostNodeParams* parameters) {
    return add_node(node, graph, needs, count, work_of(parameters));
}

cudaError_t cudaGraphAddEmptyNode(cudaGraphNode_t* node, cudaGraph_t graph,
                                  const cudaGraphNode_t* needs, size_t count) {
    return add_node(node, graph, needs, count, {cudaGraphNodeTypeEmpty, [] { return Error{}; }});
}

cudaError_t cudaGraphAddChildGraphNode(cudaGraphNode_t* node, cudaGraph_t graph,
                                       const cudaGraphNode_t* needs, size_t count,
                                       cudaGraph_t child) {
    if (!graphs.has(child)) return record(cudaErrorInvalidValue);
    const cudaError_t error =
        add_node(node, graph, needs, count, {cudaGraphNodeTypeGraph, [] { return Error{}; }});
    if (error == cudaSuccess) (*node)->child = clone(*child);
    return error;
}

cudaError_t cudaGraphAddMemAllocNode(cudaGraphNode_t* node, cudaGraph_t graph,
                                     const cudaGraphNode_t* needs, size_t count,
                                     cudaMemAllocNodeParams* parameters) {
    if (!parameters) return record(cudaErrorInvalidValue);
    const std::shared_ptr<void> memory = graphs_memory(parameters->bytesize);
    if (!memory)
        return record(parameters->bytesize ? cudaErrorMemoryAllocation : cudaErrorInvalidValue);
    parameters->dptr = memory.get();
    return add_node(
        node, graph, needs, count, {cudaGraphNodeTypeMemAlloc, [] { return Error{}; }, {}, memory});
}

cudaError_t cudaGraphAddMemFreeNode(cudaGraphNode_t* node, cudaGraph_t graph,
                                    const cudaGraphNode_t* needs, size_t count, void* address) {
    const Allocations::Found found = allocations.find(address);
    if (!found.is_known || !found.allocation.is_graphs || found.offset)
        return record(cudaErrorInvalidValue);
    return add_node(node, graph, needs, count, {cudaGraphNodeTypeMemFree, [] { return Error{}; }});
}

cudaError_t cudaDeviceGetGraphMemAttribute(int device, cudaGraphMemAttributeType attribute,
                                           void* value) {
    if (device != 0) return record(cudaErrorInvalidDevice);
    if (!value) return record(cudaErrorInvalidValue);
    std::lock_guard<std::mutex> lock(graphs_pool.mutex);
    const bool is_high =
        attribute == cudaGraphMemAttrUsedMemHigh || attribute == cudaGraphMemAttrReservedMemHigh;
    *static_cast<unsigned long long*>(value) = is_high ? graphs_pool.used_high : graphs_pool.used;
    return cudaSuccess;
}

cudaError_t cudaDeviceSetGraphMemAttribute(int device, cudaGraphMemAttributeType attribute,
                                           void* value) {
    if (device != 0) return record(cudaErrorInvalidDevice);
    if (!value || *static_cast<unsigned long long*>(value) ||
        (attribute != cudaGraphMemAttrUsedMemHigh && attribute != cudaGraphMemAttrReservedMemHigh))
        return record(cudaErrorInvalidValue);
    std::lock_guard<std::mutex> lock(graphs_pool.mutex);
    graphs_pool.used_high = graphs_pool.used;
    return cudaSuccess;
}

// A graph that is destroyed has given its memory back.
cudaError_t cudaDeviceGraphMemTrim(int device) {
    return record(device == 0 ? cudaSuccess : cudaErrorInvalidDevice);
}

cudaError_t cudaGraphAddEventRecordNode(cudaGraphNode_t* node, cudaGraph_t graph,
                                        const cudaGraphNode_t* needs, size_t count,
                                        cudaEvent_t event) {
    if (!events.has(event)) return record(cudaErrorInvalidResourceHandle);
    return add_node(node, graph, needs, count, {cudaGraphNodeTypeEventRecord, [=] {
                                                    event->is_captured = false;
                                                    event->is_recorded = true;
                                                    event->time = std::chrono::steady_clock::now();
                                                    return Error{};
                                                }});
}

cudaError_t cudaGraphAddEventWaitNode(cudaGraphNode_t* node, cudaGraph_t graph,
                                      const cudaGraphNode_t* needs, size_t count,
                                      cudaEvent_t event) {
    if (!events.has(event)) return record(cudaErrorInvalidResourceHandle);
    return add_node(
        node, graph, needs, count, {cudaGraphNodeTypeWaitEvent, [] { return Error{}; }});
}

cudaError_t cudaGraphAddDependencies(cudaGraph_t graph, const cudaGraphNode_t* from,
                                     const cudaGraphNode_t* to, size_t count) {
    if (!graphs.has(graph)) return record(cudaErrorInvalidValue);
    for (size_t i = 0; i < count; i++)
        if (!has_node(graph, from[i]) || !has_node(graph, to[i]))
            return record(cudaErrorInvalidValue);
    for (size_t i = 0; i < count; i++) to[i]->needs.push_back(from[i]);
    return cudaSuccess;
}

cudaError_t cudaGraphAddDependencies(cudaGraph_t graph, const cudaGraphNode_t* from,
                                     const cudaGraphNode_t* to, const cudaGraphEdgeData* edges,
                                     size_t count) {
    for (size_t i = 0; edges && i < count; i++)
        if (edges[i].from_port || edges[i].to_port || edges[i].type)
            return record(cudaErrorNotSupported);
    return cudaGraphAddDependencies(graph, from, to, count);
}

cudaError_t cudaGraphKernelNodeGetParams(cudaGraphNode_t node, cudaKernelNodeParams* parameters) {
    if (!node || !parameters || node->type != cudaGraphNodeTypeKernel)
        return record(cudaErrorInvalidValue);
    // The arguments of a captured launch are not kept one by one.
    if (!node->kernel.func) return record(cudaErrorNotSupported);
    *parameters = node->kernel;
    return cudaSuccess;
}

cudaError_t cudaGraphKernelNodeSetParams(cudaGraphNode_t node,
                                         const cudaKernelNodeParams* parameters) {
    return set_work(node, work_of(parameters));
}
cudaError_t cudaGraphMemcpyNodeSetParams(cudaGraphNode_t node, const cudaMemcpy3DParms* copy) {
    return set_work(node, work_of(copy));
}
cudaError_t cudaGraphMemsetNodeSetParams(cudaGraphNode_t node, const cudaMemsetParams* parameters) {
    return set_work(node, work_of(parameters));
}
cudaError_t cudaGraphHostNodeSetParams(cudaGraphNode_t node, const cudaHostNodeParams* parameters) {
    return set_work(node, work_of(parameters));
}

cudaError_t cudaGraphInstantiate(cudaGraphExec_t* exec, cudaGraph_t graph,
                                 unsigned long long flags) {
    if (!exec || !graphs.has(graph)) return record(cudaErrorInvalidValue);
    if (flags & cudaGraphInstantiateFlagDeviceLaunch) return record(cudaErrorNotSupported);
    const std::shared_ptr<CUgraphExec_st> arranged = arrange(*graph);
    if (!arranged) return record(cudaErrorInvalidValue);
    *exec = execs.add(new CUgraphExec_st(*arranged));
    return cudaSuccess;
}

cudaError_t cudaGraphInstantiateWithFlags(cudaGraphExec_t* exec, cudaGraph_t graph,
                                          unsigned long long flags) {
    return cudaGraphInstantiate(exec, graph, flags);
}

cudaError_t cudaGraphInstantiate(cudaGraphExec_t* exec, cudaGraph_t graph, cudaGraphNode_t* culprit,
                                 char* log, size_t log_bytes) {
    if (culprit) *culprit = nullptr;
    if (log && log_bytes) *log = 0;
    return cudaGraphInstantiate(exec, graph, 0);
}

cudaError_t cudaGraphExecDestroy(cudaGraphExec_t exec) {
    return record(execs.destroy(exec) ? cudaSuccess : cudaErrorInvalidValue);
}

cudaError_t cudaGraphUpload(cudaGraphExec_t exec, cudaStream_t stream) {
    if (const cudaError_t error = check_stream(stream)) return error;
    return record(execs.has(exec) ? cudaSuccess : cudaErrorInvalidValue);
}

cudaError_t cudaGraphLaunch(cudaGraphExec_t exec, cudaStream_t stream) {
    if (!execs.has(exec)) return record(cudaErrorInvalidValue);
    if (capture_of(stream)) {
        const auto kept = std::make_shared<CUgraphExec_st>(*exec);
        return submit(stream, cudaGraphNodeTypeGraph, [kept] { return kept->launch(); });
    }
    return submit(stream, cudaGraphNodeTypeGraph, [exec] { return exec->launch(); });
}

cudaError_t cudaGraphExecUpdate(cudaGraphExec_t exec, cudaGraph_t graph,
                                cudaGraphExecUpdateResultInfo* info) {
    if (!execs.has(exec) || !graphs.has(graph) || !info) return record(cudaErrorInvalidValue);
    const auto differ = [&](cudaGraphExecUpdateResult how, const CUgraphNode_st* node) {
        *info = {how, const_cast<CUgraphNode_st*>(node), nullptr};
        return record(cudaErrorGraphExecUpdateFailure);
    };
    *info = {};
    const std::shared_ptr<CUgraphExec_st> fresh = arrange(*graph);
    if (!fresh || fresh->steps.size() != exec->steps.size())
        return differ(cudaGraphExecUpdateErrorTopologyChanged, nullptr);
    for (size_t i = 0; i < fresh->steps.size(); i++) {
        const auto &before = exec->steps[i], &after = fresh->steps[i];
        if (before.type != after.type)
            return differ(cudaGraphExecUpdateErrorNodeTypeChanged, after.node);
        if (before.needs != after.needs)
            return differ(cudaGraphExecUpdateErrorTopologyChanged, after.node);
    }
    for (size_t i = 0; i < fresh->steps.size(); i++) {
        fresh->steps[i].node = exec->steps[i].node;
        exec->steps[i] = fresh->steps[i];
    }
    return cudaSuccess;
}

cudaError_t cudaGraphExecKernelNodeSetParams(cudaGraphExec_t exec, cudaGraphNode_t node,
                                             const cudaKernelNodeParams* parameters) {
    return set_step(exec, node, parameters);
}
cudaError_t cudaGraphExecMemcpyNodeSetParams(cudaGraphExec_t exec, cudaGraphNode_t node,
                                             const cudaMemcpy3DParms* copy) {
    return set_step(exec, node, copy);
}
cudaError_t cudaGraphExecMemcpyNodeSetParams1D(cudaGraphExec_t exec, cudaGraphNode_t node, void* to,
                                               const void* from, size_t bytes,
                                               cudaMemcpyKind kind) {
    const cudaMemcpy3DParms copy = line(to, from, bytes, kind);
    return set_step(exec, node, &copy);
}
cudaError_t cudaGraphExecMemsetNodeSetParams(cudaGraphExec_t exec, cudaGraphNode_t node,
                                             const cudaMemsetParams* parameters) {
    return set_step(exec, node, parameters);
}
cudaError_t cudaGraphExecHostNodeSetParams(cudaGraphExec_t exec, cudaGraphNode_t node,
                                           const cudaHostNodeParams* parameters) {
    return set_step(exec, node, parameters);
}

}  // namespace api
}  // namespace simulator
