// The device that CUDA's runtime API tells of: this computer's processor, with the limits of a GPU.
#pragma once
#include "device_memory.h"
#include "pool.h"
#include "shared_memory.h"

namespace simulator {
namespace {

constexpr size_t shared_per_processor = 228 << 10, reserved_shared = 1 << 10;
constexpr dim3 largest_block = {1024, 1024, 64}, largest_grid = {0x7fffffff, 65535, 65535};

// In kHz: of the processor, where the system tells it.
int read_clock_rate() {
    int rate = 0;
    if (FILE* file = fopen("/sys/devices/system/cpu/cpu0/cpufreq/cpuinfo_max_freq", "r")) {
        if (fscanf(file, "%d", &rate) != 1) rate = 0;
        fclose(file);
    }
    char line[256];
    if (FILE* file = rate ? nullptr : fopen("/proc/cpuinfo", "r")) {
        float megahertz;
        while (!rate && fgets(line, sizeof line, file))
            if (sscanf(line, "cpu MHz : %f", &megahertz) == 1) rate = int(megahertz * 1000);
        fclose(file);
    }
    return rate;
}

int clock_rate() {
    static const int rate = read_clock_rate();  // once: launchers ask for attributes at each call
    return rate;
}

}  // namespace

namespace api {

cudaError_t cudaGetDevice(int* device) {
    *device = 0;
    return cudaSuccess;
}

cudaError_t cudaSetDevice(int device) {
    return record(device == 0 ? cudaSuccess : cudaErrorInvalidDevice);
}

cudaError_t cudaGetDeviceCount(int* count) {
    *count = 1;
    return cudaSuccess;
}

cudaError_t cudaInitDevice(int device, unsigned, unsigned) { return cudaSetDevice(device); }

cudaError_t cudaGetDeviceProperties(cudaDeviceProp* properties, int device) {
    return device_properties(properties, device, 900);
}
cudaError_t cudaDeviceGetAttribute(int* value, cudaDeviceAttr attribute, int device) {
    return device_attribute(value, attribute, device, 900);
}

cudaError_t device_properties(cudaDeviceProp* properties, int device, int architecture) {
    if (!properties) return record(cudaErrorInvalidValue);
    if (device != 0) return record(cudaErrorInvalidDevice);
    cudaDeviceProp& it = *properties = {};
    const auto set = [](int* to, std::initializer_list<int> values) {
        std::copy(values.begin(), values.end(), to);
    };
    strcpy(it.name, "CPU (simulator)");
    it.totalGlobalMem = size_t(sysconf(_SC_PAGESIZE)) * sysconf(_SC_PHYS_PAGES);
    it.sharedMemPerBlock = default_shared;
    const bool has_less =
        architecture >= 1200;  // shared memory and threads, than data centres' GPUs
    it.sharedMemPerBlockOptin = has_less ? size_t(99) << 10 : most_shared;
    it.sharedMemPerMultiprocessor = has_less ? size_t(100) << 10 : shared_per_processor;
    it.reservedSharedMemPerBlock = reserved_shared;
    it.totalConstMem = 64 << 10;
    it.regsPerBlock = it.regsPerMultiprocessor = 64 << 10;
    it.warpSize = warp_size;
    it.memPitch = INT_MAX;
    it.maxThreadsPerBlock = max_threads;
    it.maxThreadsPerMultiProcessor = has_less ? 1536 : threads_per_processor;
    it.maxBlocksPerMultiProcessor = has_less ? 24 : blocks_per_processor;
    set(it.maxThreadsDim, {int(largest_block.x), int(largest_block.y), int(largest_block.z)});
    set(it.maxGridSize, {int(largest_grid.x), int(largest_grid.y), int(largest_grid.z)});
    it.major = architecture / 100;
    it.minor = architecture % 100 / 10;
    it.multiProcessorCount = watcher ? watcher->processors() : pool->cores;
    it.l2CacheSize = 1 << 20;
    it.textureAlignment = memory_alignment;
    it.texturePitchAlignment = 32;
    it.surfaceAlignment = 512;
    it.maxTexture1D = it.maxSurface1D = 131072;
    it.maxTexture1DLinear = 1 << 28;
    set(it.maxTexture2D, {131072, 65536});
    set(it.maxTexture2DLinear, {131072, 65000, 2097120});
    set(it.maxTexture2DGather, {32768, 32768});
    set(it.maxTexture3D, {16384, 16384, 16384});
    set(it.maxTexture3DAlt, {8192, 8192, 32768});
    it.maxTextureCubemap = it.maxSurfaceCubemap = 32768;
    set(it.maxTexture1DLayered, {32768, 2048});
    set(it.maxTexture2DLayered, {32768, 32768, 2048});
    set(it.maxTextureCubemapLayered, {32768, 2046});
    set(it.maxSurface2D, {131072, 65536});
    set(it.maxSurface3D, {16384, 16384, 16384});
    set(it.maxSurface1DLayered, {32768, 2048});
    set(it.maxSurface2DLayered, {32768, 32768, 2048});
    set(it.maxSurfaceCubemapLayered, {32768, 2046});
    it.integrated = it.canMapHostMemory = 1;
    it.cooperativeLaunch = it.clusterLaunch = 1;
    it.concurrentKernels = it.deviceOverlap = it.asyncEngineCount = 1;
    it.managedMemory = it.unifiedAddressing = it.pageableMemoryAccess = 1;
    it.concurrentManagedAccess = it.hostNativeAtomicSupported = 1;
    it.directManagedMemAccessFromHost = it.pageableMemoryAccessUsesHostPageTables = 1;
    it.canUseHostPointerForRegisteredMem = it.hostRegisterSupported = 1;
    it.streamPrioritiesSupported = it.memoryPoolsSupported = 1;
    it.globalL1CacheSupported = it.localL1CacheSupported = 1;
    it.computeMode = cudaComputeModeDefault;
    it.singleToDoublePrecisionPerfRatio = 2;
    it.clockRate = clock_rate();
    return cudaSuccess;
}

cudaError_t device_attribute(int* value, cudaDeviceAttr attribute, int device, int architecture) {
    cudaDeviceProp it;
    if (!value) return record(cudaErrorInvalidValue);
    if (const cudaError_t error = device_properties(&it, device, architecture)) return error;
    switch (attribute) {
#define SIMULATOR_ATTRIBUTE(name, is) \
    case cudaDevAttr##name:           \
        *value = is;                  \
        return cudaSuccess;
        SIMULATOR_ATTRIBUTE(MaxThreadsPerBlock, it.maxThreadsPerBlock)
        SIMULATOR_ATTRIBUTE(MaxBlockDimX, it.maxThreadsDim[0])
        SIMULATOR_ATTRIBUTE(MaxBlockDimY, it.maxThreadsDim[1])
        SIMULATOR_ATTRIBUTE(MaxBlockDimZ, it.maxThreadsDim[2])
        SIMULATOR_ATTRIBUTE(MaxGridDimX, it.maxGridSize[0])
        SIMULATOR_ATTRIBUTE(MaxGridDimY, it.maxGridSize[1])
        SIMULATOR_ATTRIBUTE(MaxGridDimZ, it.maxGridSize[2])
        SIMULATOR_ATTRIBUTE(MaxSharedMemoryPerBlock, int(it.sharedMemPerBlock))
        SIMULATOR_ATTRIBUTE(TotalConstantMemory, int(it.totalConstMem))
        SIMULATOR_ATTRIBUTE(WarpSize, it.warpSize)
        SIMULATOR_ATTRIBUTE(MaxPitch, int(it.memPitch))
        SIMULATOR_ATTRIBUTE(MaxRegistersPerBlock, it.regsPerBlock)
        SIMULATOR_ATTRIBUTE(ClockRate, it.clockRate)
        SIMULATOR_ATTRIBUTE(TextureAlignment, int(it.textureAlignment))
        SIMULATOR_ATTRIBUTE(GpuOverlap, it.deviceOverlap)
        SIMULATOR_ATTRIBUTE(MultiProcessorCount, it.multiProcessorCount)
        SIMULATOR_ATTRIBUTE(KernelExecTimeout, it.kernelExecTimeoutEnabled)
        SIMULATOR_ATTRIBUTE(Integrated, it.integrated)
        SIMULATOR_ATTRIBUTE(CanMapHostMemory, it.canMapHostMemory)
        SIMULATOR_ATTRIBUTE(ComputeMode, it.computeMode)
        SIMULATOR_ATTRIBUTE(MaxTexture1DWidth, it.maxTexture1D)
        SIMULATOR_ATTRIBUTE(MaxTexture2DWidth, it.maxTexture2D[0])
        SIMULATOR_ATTRIBUTE(MaxTexture2DHeight, it.maxTexture2D[1])
        SIMULATOR_ATTRIBUTE(MaxTexture3DWidth, it.maxTexture3D[0])
        SIMULATOR_ATTRIBUTE(MaxTexture3DHeight, it.maxTexture3D[1])
        SIMULATOR_ATTRIBUTE(MaxTexture3DDepth, it.maxTexture3D[2])
        SIMULATOR_ATTRIBUTE(MaxTexture2DLayeredWidth, it.maxTexture2DLayered[0])
        SIMULATOR_ATTRIBUTE(MaxTexture2DLayeredHeight, it.maxTexture2DLayered[1])
        SIMULATOR_ATTRIBUTE(MaxTexture2DLayeredLayers, it.maxTexture2DLayered[2])
        SIMULATOR_ATTRIBUTE(SurfaceAlignment, int(it.surfaceAlignment))
        SIMULATOR_ATTRIBUTE(ConcurrentKernels, it.concurrentKernels)
        SIMULATOR_ATTRIBUTE(EccEnabled, it.ECCEnabled)
        SIMULATOR_ATTRIBUTE(PciBusId, it.pciBusID)
        SIMULATOR_ATTRIBUTE(PciDeviceId, it.pciDeviceID)
        SIMULATOR_ATTRIBUTE(TccDriver, it.tccDriver)
        SIMULATOR_ATTRIBUTE(MemoryClockRate, it.memoryClockRate)
        SIMULATOR_ATTRIBUTE(GlobalMemoryBusWidth, it.memoryBusWidth)
        SIMULATOR_ATTRIBUTE(L2CacheSize, it.l2CacheSize)
        SIMULATOR_ATTRIBUTE(MaxThreadsPerMultiProcessor, it.maxThreadsPerMultiProcessor)
        SIMULATOR_ATTRIBUTE(AsyncEngineCount, it.asyncEngineCount)
        SIMULATOR_ATTRIBUTE(UnifiedAddressing, it.unifiedAddressing)
        SIMULATOR_ATTRIBUTE(MaxTexture1DLayeredWidth, it.maxTexture1DLayered[0])
        SIMULATOR_ATTRIBUTE(MaxTexture1DLayeredLayers, it.maxTexture1DLayered[1])
        SIMULATOR_ATTRIBUTE(MaxTexture2DGatherWidth, it.maxTexture2DGather[0])
        SIMULATOR_ATTRIBUTE(MaxTexture2DGatherHeight, it.maxTexture2DGather[1])
        SIMULATOR_ATTRIBUTE(MaxTexture3DWidthAlt, it.maxTexture3DAlt[0])
        SIMULATOR_ATTRIBUTE(MaxTexture3DHeightAlt, it.maxTexture3DAlt[1])
        SIMULATOR_ATTRIBUTE(MaxTexture3DDepthAlt, it.maxTexture3DAlt[2])
        SIMULATOR_ATTRIBUTE(PciDomainId, it.pciDomainID)
        SIMULATOR_ATTRIBUTE(TexturePitchAlignment, int(it.texturePitchAlignment))
        SIMULATOR_ATTRIBUTE(MaxTextureCubemapWidth, it.maxTextureCubemap)
        SIMULATOR_ATTRIBUTE(MaxTextureCubemapLayeredWidth, it.maxTextureCubemapLayered[0])
        SIMULATOR_ATTRIBUTE(MaxTextureCubemapLayeredLayers, it.maxTextureCubemapLayered[1])
        SIMULATOR_ATTRIBUTE(MaxSurface1DWidth, it.maxSurface1D)
        SIMULATOR_ATTRIBUTE(MaxSurface2DWidth, it.maxSurface2D[0])
        SIMULATOR_ATTRIBUTE(MaxSurface2DHeight, it.maxSurface2D[1])
        SIMULATOR_ATTRIBUTE(MaxSurface3DWidth, it.maxSurface3D[0])
        SIMULATOR_ATTRIBUTE(MaxSurface3DHeight, it.maxSurface3D[1])
        SIMULATOR_ATTRIBUTE(MaxSurface3DDepth, it.maxSurface3D[2])
        SIMULATOR_ATTRIBUTE(MaxSurface1DLayeredWidth, it.maxSurface1DLayered[0])
        SIMULATOR_ATTRIBUTE(MaxSurface1DLayeredLayers, it.maxSurface1DLayered[1])
        SIMULATOR_ATTRIBUTE(MaxSurface2DLayeredWidth, it.maxSurface2DLayered[0])
        SIMULATOR_ATTRIBUTE(MaxSurface2DLayeredHeight, it.maxSurface2DLayered[1])
        SIMULATOR_ATTRIBUTE(MaxSurface2DLayeredLayers, it.maxSurface2DLayered[2])
        SIMULATOR_ATTRIBUTE(MaxSurfaceCubemapWidth, it.maxSurfaceCubemap)
        SIMULATOR_ATTRIBUTE(MaxSurfaceCubemapLayeredWidth, it.maxSurfaceCubemapLayered[0])
        SIMULATOR_ATTRIBUTE(MaxSurfaceCubemapLayeredLayers, it.maxSurfaceCubemapLayered[1])
        SIMULATOR_ATTRIBUTE(MaxTexture1DLinearWidth, it.maxTexture1DLinear)
        SIMULATOR_ATTRIBUTE(MaxTexture2DLinearWidth, it.maxTexture2DLinear[0])
        SIMULATOR_ATTRIBUTE(MaxTexture2DLinearHeight, it.maxTexture2DLinear[1])
        SIMULATOR_ATTRIBUTE(MaxTexture2DLinearPitch, it.maxTexture2DLinear[2])
        SIMULATOR_ATTRIBUTE(ComputeCapabilityMajor, it.major)
        SIMULATOR_ATTRIBUTE(ComputeCapabilityMinor, it.minor)
        SIMULATOR_ATTRIBUTE(StreamPrioritiesSupported, it.streamPrioritiesSupported)
        SIMULATOR_ATTRIBUTE(GlobalL1CacheSupported, it.globalL1CacheSupported)
        SIMULATOR_ATTRIBUTE(LocalL1CacheSupported, it.localL1CacheSupported)
        SIMULATOR_ATTRIBUTE(MaxSharedMemoryPerMultiprocessor, int(it.sharedMemPerMultiprocessor))
        SIMULATOR_ATTRIBUTE(MaxRegistersPerMultiprocessor, it.regsPerMultiprocessor)
        SIMULATOR_ATTRIBUTE(ManagedMemory, it.managedMemory)
        SIMULATOR_ATTRIBUTE(IsMultiGpuBoard, it.isMultiGpuBoard)
        SIMULATOR_ATTRIBUTE(MultiGpuBoardGroupID, it.multiGpuBoardGroupID)
        SIMULATOR_ATTRIBUTE(HostNativeAtomicSupported, it.hostNativeAtomicSupported)
        SIMULATOR_ATTRIBUTE(SingleToDoublePrecisionPerfRatio, it.singleToDoublePrecisionPerfRatio)
        SIMULATOR_ATTRIBUTE(PageableMemoryAccess, it.pageableMemoryAccess)
        SIMULATOR_ATTRIBUTE(ConcurrentManagedAccess, it.concurrentManagedAccess)
        SIMULATOR_ATTRIBUTE(ComputePreemptionSupported, it.computePreemptionSupported)
        SIMULATOR_ATTRIBUTE(CanUseHostPointerForRegisteredMem, it.canUseHostPointerForRegisteredMem)
        SIMULATOR_ATTRIBUTE(CooperativeLaunch, it.cooperativeLaunch)
        SIMULATOR_ATTRIBUTE(CooperativeMultiDeviceLaunch, it.cooperativeMultiDeviceLaunch)
        SIMULATOR_ATTRIBUTE(MaxSharedMemoryPerBlockOptin, int(it.sharedMemPerBlockOptin))
        SIMULATOR_ATTRIBUTE(CanFlushRemoteWrites, 0)
        SIMULATOR_ATTRIBUTE(HostRegisterSupported, it.hostRegisterSupported)
        SIMULATOR_ATTRIBUTE(
            PageableMemoryAccessUsesHostPageTables, it.pageableMemoryAccessUsesHostPageTables)
        SIMULATOR_ATTRIBUTE(DirectManagedMemAccessFromHost, it.directManagedMemAccessFromHost)
        SIMULATOR_ATTRIBUTE(MaxBlocksPerMultiprocessor, it.maxBlocksPerMultiProcessor)
        SIMULATOR_ATTRIBUTE(MaxPersistingL2CacheSize, it.persistingL2CacheMaxSize)
        SIMULATOR_ATTRIBUTE(MaxAccessPolicyWindowSize, it.accessPolicyMaxWindowSize)
        SIMULATOR_ATTRIBUTE(ReservedSharedMemoryPerBlock, int(it.reservedSharedMemPerBlock))
        SIMULATOR_ATTRIBUTE(SparseCudaArraySupported, it.sparseCudaArraySupported)
        SIMULATOR_ATTRIBUTE(HostRegisterReadOnlySupported, it.hostRegisterReadOnlySupported)
        SIMULATOR_ATTRIBUTE(TimelineSemaphoreInteropSupported, it.timelineSemaphoreInteropSupported)
        SIMULATOR_ATTRIBUTE(MemoryPoolsSupported, it.memoryPoolsSupported)
        SIMULATOR_ATTRIBUTE(GPUDirectRDMASupported, it.gpuDirectRDMASupported)
        SIMULATOR_ATTRIBUTE(ClusterLaunch, it.clusterLaunch)
        SIMULATOR_ATTRIBUTE(DeferredMappingCudaArraySupported, it.deferredMappingCudaArraySupported)
        SIMULATOR_ATTRIBUTE(IpcEventSupport, it.ipcEventSupported)
        SIMULATOR_ATTRIBUTE(MemSyncDomainCount, 1)
        SIMULATOR_ATTRIBUTE(MpsEnabled, it.mpsEnabled)
        SIMULATOR_ATTRIBUTE(HostNumaId, it.hostNumaId)
#undef SIMULATOR_ATTRIBUTE
        default:
            break;
    }
    return record(cudaErrorInvalidValue);
}

cudaError_t cudaChooseDevice(int* device, const cudaDeviceProp* wanted) {
    if (!device || !wanted) return record(cudaErrorInvalidValue);
    return cudaGetDevice(device);
}

namespace {
std::atomic<unsigned> device_flags;
std::mutex limits_mutex;
size_t limits[] = {Stacks::size, 1 << 20, 8 << 20, 2, 2048, 128, 0};
}  // namespace

cudaError_t cudaSetDeviceFlags(unsigned flags) {
    if (flags & ~cudaDeviceMask) return record(cudaErrorInvalidValue);
    device_flags = flags;
    return cudaSuccess;
}

cudaError_t cudaGetDeviceFlags(unsigned* flags) {
    if (!flags) return record(cudaErrorInvalidValue);
    *flags = device_flags | cudaDeviceMapHost;
    return cudaSuccess;
}

// What is allocated stays: the host may hold pointers to it.
cudaError_t cudaDeviceReset() { return broken(); }

// A thread's stack is as large as it is. The other limits are of no consequence: printf and malloc
// in a kernel are the host's.
cudaError_t cudaDeviceSetLimit(cudaLimit limit, size_t value) {
    if (limit < cudaLimitStackSize || limit > cudaLimitPersistingL2CacheSize)
        return record(cudaErrorUnsupportedLimit);
    if (limit == cudaLimitStackSize && value > Stacks::size) return record(cudaErrorInvalidValue);
    std::lock_guard<std::mutex> lock(limits_mutex);
    limits[limit] = value;
    return cudaSuccess;
}

cudaError_t cudaDeviceGetLimit(size_t* value, cudaLimit limit) {
    if (!value) return record(cudaErrorInvalidValue);
    if (limit < cudaLimitStackSize || limit > cudaLimitPersistingL2CacheSize)
        return record(cudaErrorUnsupportedLimit);
    std::lock_guard<std::mutex> lock(limits_mutex);
    *value = limits[limit];
    return cudaSuccess;
}

// Hints about caches, which the processor manages alone.
cudaError_t cudaDeviceGetCacheConfig(cudaFuncCache* config) {
    *config = cudaFuncCachePreferNone;
    return cudaSuccess;
}
cudaError_t cudaDeviceSetCacheConfig(cudaFuncCache) { return cudaSuccess; }
cudaError_t cudaDeviceGetSharedMemConfig(cudaSharedMemConfig* config) {
    *config = cudaSharedMemBankSizeFourByte;
    return cudaSuccess;
}
cudaError_t cudaDeviceSetSharedMemConfig(cudaSharedMemConfig) { return cudaSuccess; }

cudaError_t cudaDeviceGetStreamPriorityRange(int* least, int* greatest) {
    if (least) *least = 0;
    if (greatest) *greatest = -5;
    return cudaSuccess;
}

cudaError_t cudaDeviceGetPCIBusId(char* id, int length, int device) {
    if (device != 0) return record(cudaErrorInvalidDevice);
    if (!id || length < 13) return record(cudaErrorInvalidValue);
    strcpy(id, "0000:00:00.0");
    return cudaSuccess;
}

cudaError_t cudaDeviceGetByPCIBusId(int* device, const char* id) {
    if (!device || !id || strcmp(id, "0000:00:00.0")) return record(cudaErrorInvalidValue);
    *device = 0;
    return cudaSuccess;
}

cudaError_t cudaDeviceCanAccessPeer(int* can, int device, int peer) {
    if (device != 0 || peer != 0) return record(cudaErrorInvalidDevice);
    *can = 0;
    return cudaSuccess;
}
cudaError_t cudaDeviceEnablePeerAccess(int, unsigned) { return record(cudaErrorInvalidDevice); }
cudaError_t cudaDeviceDisablePeerAccess(int peer) {
    return record(peer == 0 ? cudaErrorPeerAccessNotEnabled : cudaErrorInvalidDevice);
}
cudaError_t cudaDeviceGetP2PAttribute(int*, cudaDeviceP2PAttr, int, int) {
    return record(cudaErrorInvalidDevice);  // there is one, and no pair
}

cudaError_t cudaDriverGetVersion(int* version) {
    if (!version) return record(cudaErrorInvalidValue);
    *version = CUDART_VERSION;
    return cudaSuccess;
}
cudaError_t cudaRuntimeGetVersion(int* version) { return cudaDriverGetVersion(version); }

cudaError_t occupancy(int* blocks, int threads, size_t shared) {
    if (threads <= 0) return record(cudaErrorInvalidValue);
    const int warps = (threads + warp_size - 1) / warp_size;
    *blocks = threads > int(max_threads) || shared > most_shared
                  ? 0
                  : std::min({blocks_per_processor, threads_per_processor / int(warp_size) / warps,
                              int(shared_per_processor / (shared + reserved_shared))});
    return cudaSuccess;
}

// The largest block that leaves the most threads on a processor.
cudaError_t potential_block_size(int* blocks, int* threads, size_t (*shared_of)(void*, int),
                                 void* data, int limit) {
    if (!blocks || !threads) return record(cudaErrorInvalidValue);
    int most = 0, processors = 0;
    *blocks = *threads = 0;
    cudaDeviceGetAttribute(&processors, cudaDevAttrMultiProcessorCount, 0);
    if (limit <= 0 || limit > int(max_threads)) limit = max_threads;
    for (int size = limit; size > 0; size = (size - 1) / int(warp_size) * int(warp_size)) {
        int count = 0;
        if (occupancy(&count, size, shared_of(data, size)) || count * size <= most) continue;
        most = count * size;
        *threads = size;
        *blocks = count * processors;
    }
    return cudaSuccess;
}

}  // namespace api
}  // namespace simulator
