// Graphs that can be launched, and the work of their nodes.
#pragma once
#include "kernel_addresses.h"
#include "pools.h"

struct CUgraphExec_st {
    struct Step {
        const CUgraphNode_st* node;  // of the graph that it was made of, perhaps no more there
        cudaGraphNodeType type;
        std::vector<size_t> needs;  // the numbers of earlier steps
        std::function<Error()> work;
        std::shared_ptr<void> memory;
        std::shared_ptr<CUgraphExec_st> child;
    };
    std::vector<Step> steps;

    Error launch() const {
        for (const Step& step : steps)
            if (Error error = step.child ? step.child->launch() : step.work();
                error.code != cudaSuccess)
                return error;
        return {};
    }

    Step* step_of(const CUgraphNode_st* node) {
        for (Step& step : steps)
            if (step.node == node) return &step;
        return nullptr;
    }
};

namespace simulator {
namespace {

auto& execs = *new Handles<CUgraphExec_st>;

// In an order that the dependencies allow: of those that may come next, the one made first. Null if
// they go in a circle.
std::shared_ptr<CUgraphExec_st> arrange(const CUgraph_st& graph) {
    auto exec = std::make_shared<CUgraphExec_st>();
    std::map<const CUgraphNode_st*, size_t> numbers;
    const size_t count = graph.nodes.size();
    while (exec->steps.size() < count) {
        const size_t before = exec->steps.size();
        for (const auto& node : graph.nodes) {
            if (numbers.count(node.get())) continue;
            CUgraphExec_st::Step step{
                node.get(), node->type, {}, node->work, node->memory, nullptr};
            bool is_next = true;
            for (const CUgraphNode_st* need : node->needs) {
                const auto found = numbers.find(need);
                is_next &= found != numbers.end();
                if (is_next) step.needs.push_back(found->second);
            }
            if (!is_next) continue;
            if (node->child && !(step.child = arrange(*node->child))) return nullptr;
            numbers[node.get()] = exec->steps.size();
            exec->steps.push_back(std::move(step));
        }
        if (exec->steps.size() == before) return nullptr;
    }
    return exec;
}

std::unique_ptr<CUgraph_st> clone(const CUgraph_st& graph) {
    auto copy = std::make_unique<CUgraph_st>();
    std::map<const CUgraphNode_st*, CUgraphNode_st*> copies;
    for (const auto& node : graph.nodes) {
        copy->nodes.push_back(std::make_unique<CUgraphNode_st>(*node));
        CUgraphNode_st* twin = copies[node.get()] = copy->nodes.back().get();
        twin->graph = copy.get();
        twin->original = node.get();
        if (node->child) twin->child = clone(*node->child);
    }
    for (const auto& node : copy->nodes)
        for (CUgraphNode_st*& need : node->needs) need = copies[need];
    return copy;
}

bool has_node(CUgraph_st* graph, const CUgraphNode_st* node) {
    for (const auto& it : graph->nodes)
        if (it.get() == node) return true;
    return false;
}

// The work of a node, or why there can be none.
struct Work {
    cudaGraphNodeType type;
    std::function<Error()> work;
    Error error;
    std::shared_ptr<void> memory;
    cudaKernelNodeParams kernel = {};
};

Work work_of(const cudaKernelNodeParams* parameters) {
    if (!parameters)
        return {cudaGraphNodeTypeKernel, {}, {cudaErrorInvalidValue, "invalid argument"}};
    if (parameters->extra)
        return {cudaGraphNodeTypeKernel,
                {},
                {cudaErrorNotSupported, "a kernel node's arguments are given by kernelParams"}};
    BoundLaunch bound(parameters->func, parameters->gridDim, parameters->blockDim,
                      parameters->kernelParams, parameters->sharedMemBytes);
    if (bound.error.code != cudaSuccess) return {cudaGraphNodeTypeKernel, {}, bound.error};
    Work work{cudaGraphNodeTypeKernel, *bound.kept, {}, bound.kept, *parameters};
    work.kernel.kernelParams = nullptr;  // they may be gone when somebody asks
    return work;
}

Work refuse(cudaGraphNodeType type, cudaError_t code) {
    return {type, {}, {code, words_for(code)}};
}

Work work_of(const Copy3D& copy_) {
    if (copy_.error.code != cudaSuccess) return {cudaGraphNodeTypeMemcpy, {}, copy_.error};
    return {cudaGraphNodeTypeMemcpy, [copy_] {
                copy(copy_.to, copy_.from, copy_.extent);
                return Error{};
            }};
}

Work work_of(const cudaMemcpy3DParms* parameters) { return work_of(Copy3D(parameters)); }

cudaMemcpy3DParms line(void* to, const void* from, size_t bytes, cudaMemcpyKind kind) {
    cudaMemcpy3DParms copy{};
    copy.srcPtr = {const_cast<void*>(from), bytes, bytes, 1};
    copy.dstPtr = {to, bytes, bytes, 1};
    copy.extent = {bytes, 1, 1};
    copy.kind = kind;
    return copy;
}

Work work_of(const cudaMemsetParams* parameters) {
    if (!parameters) return refuse(cudaGraphNodeTypeMemset, cudaErrorInvalidValue);
    const Fill fill{box_of(parameters->dst, parameters->pitch),
                    {parameters->width * parameters->elementSize, parameters->height, 1},
                    parameters->value,
                    parameters->elementSize};
    if (const Error error = fill.check(); error.code) return {cudaGraphNodeTypeMemset, {}, error};
    return {cudaGraphNodeTypeMemset, [fill] {
                fill();
                return Error{};
            }};
}

Work work_of(const cudaHostNodeParams* parameters) {
    if (!parameters || !parameters->fn) return refuse(cudaGraphNodeTypeHost, cudaErrorInvalidValue);
    return {cudaGraphNodeTypeHost, [call = *parameters] {
                call.fn(call.userData);
                return Error{};
            }};
}

cudaError_t add_node(cudaGraphNode_t* node, cudaGraph_t graph, const cudaGraphNode_t* needs,
                     size_t count, Work work) {
    if (!node || !graphs.has(graph) || (count && !needs)) return record(cudaErrorInvalidValue);
    if (work.error.code != cudaSuccess) return record(work.error);
    std::vector<cudaGraphNode_t> all;
    for (size_t i = 0; i < count; i++) {
        if (!has_node(graph, needs[i])) return record(cudaErrorInvalidValue);
        all.push_back(needs[i]);
    }
    *node = graph->add(work.type, all, work.work);
    (*node)->memory = work.memory;
    (*node)->kernel = work.kernel;
    return cudaSuccess;
}

// Gives a node, or a step of a graph that can be launched, other work of the same type.
template <class Holder>
cudaError_t set_work(Holder* holder, Work work) {
    if (!holder || holder->type != work.type) return record(cudaErrorInvalidValue);
    if (work.error.code != cudaSuccess) return record(work.error);
    holder->work = work.work;
    holder->memory = work.memory;
    if constexpr (std::is_same_v<Holder, CUgraphNode_st>) holder->kernel = work.kernel;
    return cudaSuccess;
}

template <class Parameters>
cudaError_t set_step(cudaGraphExec_t exec, cudaGraphNode_t node, Parameters parameters) {
    if (!execs.has(exec)) return record(cudaErrorInvalidValue);
    return set_work(exec->step_of(node), work_of(parameters));
}

// Whether every node leads to those that the origin's next node would need.
bool is_joined(const Capture& capture) {
    std::set<const CUgraphNode_st*> reached;
    const auto found = capture.last.find(capture.origin);
    std::vector<CUgraphNode_st*> open =
        found == capture.last.end() ? std::vector<CUgraphNode_st*>() : found->second;
    while (!open.empty()) {
        CUgraphNode_st* node = open.back();
        open.pop_back();
        if (reached.insert(node).second)
            open.insert(open.end(), node->needs.begin(), node->needs.end());
    }
    return reached.size() == capture.graph->nodes.size();
}

cudaError_t list(const std::vector<cudaGraphNode_t>& all, cudaGraphNode_t* nodes, size_t* count) {
    if (!count) return record(cudaErrorInvalidValue);
    if (!nodes) {
        *count = all.size();
        return cudaSuccess;
    }
    for (size_t i = 0; i < *count; i++) nodes[i] = i < all.size() ? all[i] : nullptr;
    *count = std::min(*count, all.size());
    return cudaSuccess;
}

}  // namespace

}  // namespace simulator
