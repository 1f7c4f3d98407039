// Launches with attributes.
#pragma once
#include "../include/simulator/launch_ex.h"
#include "graphs.h"

namespace simulator {

// A GPU groups blocks into larger clusters where it has room for them: here, where they fill the
// grid. Without the dimensions of regular clusters they count for nothing.
cudaError_t prefer_cluster(const dim3& preferred, Launch& launch) {
    if (!preferred.x || !launch.in_clusters()) return cudaSuccess;
    const auto divides = [](const dim3& small, const dim3& large) {
        return small.x && small.y && small.z && large.x % small.x == 0 && large.y % small.y == 0 &&
               large.z % small.z == 0;
    };
    if (!preferred.y || !preferred.z || !divides(launch.cluster, preferred))
        return cudaErrorInvalidValue;
    if (divides(preferred, launch.grid)) launch.cluster = preferred;
    return cudaSuccess;
}

cudaError_t apply_attributes(const cudaLaunchConfig_t* config, Launch& launch) {
    if (!config || (config->numAttrs && !config->attrs)) return cudaErrorInvalidValue;
    launch.grid = config->gridDim;
    launch.block = config->blockDim;
    launch.shared = config->dynamicSmemBytes;
    launch.stream = config->stream;
    dim3 preferred{0, 0, 0};
    for (unsigned i = 0; i < config->numAttrs; i++) {
        const cudaLaunchAttributeValue& value = config->attrs[i].val;
        switch (config->attrs[i].id) {
            case cudaLaunchAttributeClusterDimension:
                launch.cluster = {value.clusterDim.x, value.clusterDim.y, value.clusterDim.z};
                break;
            case cudaLaunchAttributePreferredClusterDimension:
                preferred = {value.preferredClusterDim.x, value.preferredClusterDim.y,
                             value.preferredClusterDim.z};
                break;
            case cudaLaunchAttributeCooperative:
                launch.cooperative = value.cooperative != 0;
                break;
            default:
                break;
        }
    }
    return prefer_cluster(preferred, launch);
}

cudaError_t run_with_attributes(const cudaLaunchConfig_t* config, Launch& launch) {
    if (const cudaError_t error = apply_attributes(config, launch)) return record(error);
    return run_or_capture(launch);
}

const char* kernel_name(const char* arguments) {
    int depth = 0;
    const char* end = arguments;
    for (; *end && (depth || *end != ','); end++)
        depth += (*end == '<' || *end == '(') - (*end == '>' || *end == ')');
    static std::mutex mutex;
    static auto& names = *new std::map<std::string, int>;  // whose keys stay where they are
    std::lock_guard<std::mutex> lock(mutex);
    return names.emplace(std::string(arguments, end), 0).first->first.c_str();
}

namespace api {

cudaError_t cudaLaunchKernelExC(const cudaLaunchConfig_t* config, const void* kernel,
                                void** arguments) {
    if (const cudaError_t error = broken()) return error;
    Launch attributes{};
    if (const cudaError_t error = apply_attributes(config, attributes)) return record(error);
    return BoundLaunch(kernel, attributes, arguments).run_in(attributes.stream);
}

// Clusters run one after another here; as many are said to run at once as a GPU of this size has
// room for.
cudaError_t max_active_clusters(int* clusters, const cudaLaunchConfig_t* config) {
    Launch launch{};
    if (!clusters) return record(cudaErrorInvalidValue);
    if (const cudaError_t error = apply_attributes(config, launch)) return record(error);
    if (const Error refusal = check_cluster(launch); refusal.code != cudaSuccess)
        return record(refusal);
    int fit = 0, processors = 0;
    const dim3 &block = launch.block, &extent = launch.cluster;
    occupancy(&fit, int(block.x * block.y * block.z), launch.shared);
    cudaDeviceGetAttribute(&processors, cudaDevAttrMultiProcessorCount, 0);
    const int size = launch.in_clusters() ? int(extent.x * extent.y * extent.z) : 1;
    *clusters = fit ? std::max(1, fit * processors / size) : 0;
    return cudaSuccess;
}

cudaError_t max_potential_cluster_size(int* size, const void* kernel,
                                       const cudaLaunchConfig_t* config) {
    if (!size || !config) return record(cudaErrorInvalidValue);
    *size = largest_cluster(kernel);
    return cudaSuccess;
}

}  // namespace api
}  // namespace simulator
