// Launches with attributes: cudaLaunchKernelEx. Of those the dimensions of clusters and the
// cooperative launch count here; a secondary kernel of a programmatic dependent launch begins when
// the primary one has ended. The rewriter includes this where a source speaks of them.
#pragma once
#include "cluster.h"
#include "kernel_address.h"
#include "stream_attributes.h"

struct cudaLaunchConfig_t {
    dim3 gridDim, blockDim;
    size_t dynamicSmemBytes;
    cudaStream_t stream;
    cudaLaunchAttribute* attrs;
    unsigned numAttrs;
};

namespace simulator {

// What the attributes say of a launch.
SIMULATOR_EXPORT cudaError_t apply_attributes(const cudaLaunchConfig_t* config, Launch& launch);
SIMULATOR_EXPORT cudaError_t run_with_attributes(const cudaLaunchConfig_t* config, Launch& launch);

// "kernel<T, 4>" of "kernel<T, 4>, x, n".
SIMULATOR_EXPORT const char* kernel_name(const char* arguments);

struct __LaunchEx {
    const char *name, *file;
    int line;

    template <class... Parameters, class... Arguments>
    cudaError_t operator()(const cudaLaunchConfig_t* config, void (*kernel)(Parameters...),
                           Arguments&&... arguments) const {
        const auto site = pointer(kernel).site();
        const auto body =
            Pointer<Parameters...>::bind(site, static_cast<Arguments&&>(arguments)...);
        Launch launch{};
        launch.name = kernel_name(name);
        launch.file = file;
        launch.line = line;
        launch.function = reinterpret_cast<const void*>(kernel);
        launch.body = &body;
        launch.body_bytes = sizeof body;
        set_code(launch, site);
        return run_with_attributes(config, launch);
    }
};
#define cudaLaunchKernelEx(config, ...) \
    (simulator::__LaunchEx{#__VA_ARGS__, __FILE__, __LINE__}(config, __VA_ARGS__))

namespace api {

#pragma GCC visibility push(default)
cudaError_t cudaLaunchKernelExC(const cudaLaunchConfig_t* config, const void* kernel,
                                void** arguments);
cudaError_t max_active_clusters(int* clusters, const cudaLaunchConfig_t* config);
cudaError_t max_potential_cluster_size(int* size, const void* kernel,
                                       const cudaLaunchConfig_t* config);
#pragma GCC visibility pop

template <class... Parameters>
cudaError_t cudaLaunchKernelExC(const cudaLaunchConfig_t* config, void (*kernel)(Parameters...),
                                void** arguments, SIMULATOR_CALLER) {
    return cudaLaunchKernelExC(config, know(kernel, "by its address", file, line), arguments);
}

template <class T>
cudaError_t cudaOccupancyMaxActiveClusters(int* clusters, T*, const cudaLaunchConfig_t* config) {
    return max_active_clusters(clusters, config);
}
template <class T>
cudaError_t cudaOccupancyMaxPotentialClusterSize(int* size, T* kernel,
                                                 const cudaLaunchConfig_t* config) {
    return max_potential_cluster_size(size, reinterpret_cast<const void*>(kernel), config);
}

}  // namespace api
}  // namespace simulator
