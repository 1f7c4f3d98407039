// Every cudaError_t: SIMULATOR_ERROR(name, number, text), where the text is what
// cudaGetErrorString says. Included with that macro defined, by driver_types.h and the runtime.
SIMULATOR_ERROR(cudaSuccess, 0, "no error")
SIMULATOR_ERROR(cudaErrorInvalidValue, 1, "invalid argument")
SIMULATOR_ERROR(cudaErrorMemoryAllocation, 2, "out of memory")
SIMULATOR_ERROR(cudaErrorInitializationError, 3, "initialization error")
SIMULATOR_ERROR(cudaErrorCudartUnloading, 4, "driver shutting down")
SIMULATOR_ERROR(cudaErrorProfilerDisabled, 5,
                "profiler disabled while using external profiling tool")
SIMULATOR_ERROR(cudaErrorProfilerNotInitialized, 6,
                "profiler not initialized: call cudaProfilerInitialize()")
SIMULATOR_ERROR(cudaErrorProfilerAlreadyStarted, 7, "profiler already started")
SIMULATOR_ERROR(cudaErrorProfilerAlreadyStopped, 8, "profiler already stopped")
SIMULATOR_ERROR(cudaErrorInvalidConfiguration, 9, "invalid configuration argument")
SIMULATOR_ERROR(cudaErrorInvalidPitchValue, 12, "invalid pitch argument")
SIMULATOR_ERROR(cudaErrorInvalidSymbol, 13, "invalid device symbol")
SIMULATOR_ERROR(cudaErrorInvalidHostPointer, 16, "invalid host pointer")
SIMULATOR_ERROR(cudaErrorInvalidDevicePointer, 17, "invalid device pointer")
SIMULATOR_ERROR(cudaErrorInvalidTexture, 18, "invalid texture reference")
SIMULATOR_ERROR(cudaErrorInvalidTextureBinding, 19, "texture is not bound to a pointer")
SIMULATOR_ERROR(cudaErrorInvalidChannelDescriptor, 20, "invalid channel descriptor")
SIMULATOR_ERROR(cudaErrorInvalidMemcpyDirection, 21, "invalid copy direction for memcpy")
SIMULATOR_ERROR(cudaErrorAddressOfConstant, 22, "invalid address of constant")
SIMULATOR_ERROR(cudaErrorTextureFetchFailed, 23, "fetch from texture failed")
SIMULATOR_ERROR(cudaErrorTextureNotBound, 24, "cannot fetch from a texture that is not bound")
SIMULATOR_ERROR(cudaErrorSynchronizationError, 25, "incorrect use of __syncthreads()")
SIMULATOR_ERROR(cudaErrorInvalidFilterSetting, 26,
                "linear filtering not supported for non-float type")
SIMULATOR_ERROR(cudaErrorInvalidNormSetting, 27,
                "read as normalized float not supported for data type")
SIMULATOR_ERROR(cudaErrorMixedDeviceExecution, 28,
                "device emulation mode and device execution mode cannot be mixed")
SIMULATOR_ERROR(cudaErrorNotYetImplemented, 31, "feature not yet implemented")
SIMULATOR_ERROR(cudaErrorMemoryValueTooLarge, 32,
                "memory size or pointer value too large to fit in 32 bit")
SIMULATOR_ERROR(cudaErrorStubLibrary, 34, "CUDA driver is a stub library")
SIMULATOR_ERROR(cudaErrorInsufficientDriver, 35,
                "CUDA driver version is insufficient for CUDA runtime version")
SIMULATOR_ERROR(cudaErrorCallRequiresNewerDriver, 36,
                "API call is not supported in the installed CUDA driver")
SIMULATOR_ERROR(cudaErrorInvalidSurface, 37, "invalid surface reference")
SIMULATOR_ERROR(cudaErrorDuplicateVariableName, 43,
                "duplicate global variable looked up by string name")
SIMULATOR_ERROR(cudaErrorDuplicateTextureName, 44, "duplicate texture looked up by string name")
SIMULATOR_ERROR(cudaErrorDuplicateSurfaceName, 45, "duplicate surface looked up by string name")
SIMULATOR_ERROR(cudaErrorDevicesUnavailable, 46,
                "CUDA-capable device(s) is/are busy or unavailable")
SIMULATOR_ERROR(cudaErrorIncompatibleDriverContext, 49, "incompatible driver context")
SIMULATOR_ERROR(cudaErrorMissingConfiguration, 52, "__global__ function call is not configured")
SIMULATOR_ERROR(cudaErrorPriorLaunchFailure, 53, "unspecified launch failure in prior launch")
SIMULATOR_ERROR(cudaErrorLaunchMaxDepthExceeded, 65,
                "launch would exceed maximum depth of nested launches")
SIMULATOR_ERROR(cudaErrorLaunchFileScopedTex, 66,
                "launch failed because kernel uses unsupported, file-scoped textures (texture "
                "objects are supported)")
SIMULATOR_ERROR(cudaErrorLaunchFileScopedSurf, 67,
                "launch failed because kernel uses unsupported, file-scoped surfaces (surface "
                "objects are supported)")
SIMULATOR_ERROR(
    cudaErrorSyncDepthExceeded, 68,
    "cudaDeviceSynchronize failed because caller's grid depth exceeds cudaLimitDevRuntimeSyncDepth")
SIMULATOR_ERROR(cudaErrorLaunchPendingCountExceeded, 69,
                "launch failed because launch would exceed cudaLimitDevRuntimePendingLaunchCount")
SIMULATOR_ERROR(cudaErrorInvalidDeviceFunction, 98, "invalid device function")
SIMULATOR_ERROR(cudaErrorNoDevice, 100, "no CUDA-capable device is detected")
SIMULATOR_ERROR(cudaErrorInvalidDevice, 101, "invalid device ordinal")
SIMULATOR_ERROR(cudaErrorDeviceNotLicensed, 102, "device doesn't have valid Grid license")
SIMULATOR_ERROR(cudaErrorSoftwareValidityNotEstablished, 103, "integrity checks failed")
SIMULATOR_ERROR(cudaErrorStartupFailure, 127, "startup failure in cuda runtime")
SIMULATOR_ERROR(cudaErrorInvalidKernelImage, 200, "device kernel image is invalid")
SIMULATOR_ERROR(cudaErrorDeviceUninitialized, 201, "invalid device context")
SIMULATOR_ERROR(cudaErrorMapBufferObjectFailed, 205, "mapping of buffer object failed")
SIMULATOR_ERROR(cudaErrorUnmapBufferObjectFailed, 206, "unmapping of buffer object failed")
SIMULATOR_ERROR(cudaErrorArrayIsMapped, 207, "array is mapped")
SIMULATOR_ERROR(cudaErrorAlreadyMapped, 208, "resource already mapped")
SIMULATOR_ERROR(cudaErrorNoKernelImageForDevice, 209,
                "no kernel image is available for execution on the device")
SIMULATOR_ERROR(cudaErrorAlreadyAcquired, 210, "resource already acquired")
SIMULATOR_ERROR(cudaErrorNotMapped, 211, "resource not mapped")
SIMULATOR_ERROR(cudaErrorNotMappedAsArray, 212, "resource not mapped as array")
SIMULATOR_ERROR(cudaErrorNotMappedAsPointer, 213, "resource not mapped as pointer")
SIMULATOR_ERROR(cudaErrorECCUncorrectable, 214, "uncorrectable ECC error encountered")
SIMULATOR_ERROR(cudaErrorUnsupportedLimit, 215, "limit is not supported on this architecture")
SIMULATOR_ERROR(cudaErrorDeviceAlreadyInUse, 216,
                "exclusive-thread device already in use by a different thread")
SIMULATOR_ERROR(cudaErrorPeerAccessUnsupported, 217,
                "peer access is not supported between these two devices")
SIMULATOR_ERROR(cudaErrorInvalidPtx, 218, "a PTX JIT compilation failed")
SIMULATOR_ERROR(cudaErrorInvalidGraphicsContext, 219, "invalid OpenGL or DirectX context")
SIMULATOR_ERROR(cudaErrorNvlinkUncorrectable, 220,
                "uncorrectable NVLink error detected during the execution")
SIMULATOR_ERROR(cudaErrorJitCompilerNotFound, 221, "PTX JIT compiler library not found")
SIMULATOR_ERROR(cudaErrorUnsupportedPtxVersion, 222,
                "the provided PTX was compiled with an unsupported toolchain.")
SIMULATOR_ERROR(cudaErrorJitCompilationDisabled, 223, "PTX JIT compilation was disabled")
SIMULATOR_ERROR(cudaErrorUnsupportedExecAffinity, 224,
                "the provided execution affinity is not supported")
SIMULATOR_ERROR(cudaErrorUnsupportedDevSideSync, 225,
                "the provided PTX contains unsupported call to cudaDeviceSynchronize")
SIMULATOR_ERROR(cudaErrorContained, 226,
                "Invalid access of peer GPU memory over nvlink or a hardware error")
SIMULATOR_ERROR(cudaErrorInvalidSource, 300, "device kernel image is invalid")
SIMULATOR_ERROR(cudaErrorFileNotFound, 301, "file not found")
SIMULATOR_ERROR(cudaErrorSharedObjectSymbolNotFound, 302, "shared object symbol not found")
SIMULATOR_ERROR(cudaErrorSharedObjectInitFailed, 303, "shared object initialization failed")
SIMULATOR_ERROR(cudaErrorOperatingSystem, 304,
                "OS call failed or operation not supported on this OS")
SIMULATOR_ERROR(cudaErrorInvalidResourceHandle, 400, "invalid resource handle")
SIMULATOR_ERROR(cudaErrorIllegalState, 401,
                "the operation cannot be performed in the present state")
SIMULATOR_ERROR(cudaErrorLossyQuery, 402, "attempted introspection would be semantically lossy")
SIMULATOR_ERROR(cudaErrorSymbolNotFound, 500, "named symbol not found")
SIMULATOR_ERROR(cudaErrorNotReady, 600, "device not ready")
SIMULATOR_ERROR(cudaErrorIllegalAddress, 700, "an illegal memory access was encountered")
SIMULATOR_ERROR(cudaErrorLaunchOutOfResources, 701, "too many resources requested for launch")
SIMULATOR_ERROR(cudaErrorLaunchTimeout, 702, "the launch timed out and was terminated")
SIMULATOR_ERROR(cudaErrorLaunchIncompatibleTexturing, 703,
                "launch uses incompatible texturing mode")
SIMULATOR_ERROR(cudaErrorPeerAccessAlreadyEnabled, 704, "peer access is already enabled")
SIMULATOR_ERROR(cudaErrorPeerAccessNotEnabled, 705, "peer access has not been enabled")
SIMULATOR_ERROR(cudaErrorSetOnActiveProcess, 708,
                "cannot set while device is active in this process")
SIMULATOR_ERROR(cudaErrorContextIsDestroyed, 709, "context is destroyed")
SIMULATOR_ERROR(cudaErrorAssert, 710, "device-side assert triggered")
SIMULATOR_ERROR(cudaErrorTooManyPeers, 711, "peer mapping resources exhausted")
SIMULATOR_ERROR(cudaErrorHostMemoryAlreadyRegistered, 712,
                "part or all of the requested memory range is already mapped")
SIMULATOR_ERROR(cudaErrorHostMemoryNotRegistered, 713,
                "pointer does not correspond to a registered memory region")
SIMULATOR_ERROR(cudaErrorHardwareStackError, 714, "hardware stack error")
SIMULATOR_ERROR(cudaErrorIllegalInstruction, 715, "an illegal instruction was encountered")
SIMULATOR_ERROR(cudaErrorMisalignedAddress, 716, "misaligned address")
SIMULATOR_ERROR(cudaErrorInvalidAddressSpace, 717,
                "operation not supported on global/shared address space")
SIMULATOR_ERROR(cudaErrorInvalidPc, 718, "invalid program counter")
SIMULATOR_ERROR(cudaErrorLaunchFailure, 719, "unspecified launch failure")
SIMULATOR_ERROR(cudaErrorCooperativeLaunchTooLarge, 720, "too many blocks in cooperative launch")
SIMULATOR_ERROR(cudaErrorTensorMemoryLeak, 721, "tensor memory not completely freed")
SIMULATOR_ERROR(cudaErrorNotPermitted, 800, "operation not permitted")
SIMULATOR_ERROR(cudaErrorNotSupported, 801, "operation not supported")
SIMULATOR_ERROR(cudaErrorSystemNotReady, 802, "system not yet initialized")
SIMULATOR_ERROR(cudaErrorSystemDriverMismatch, 803,
                "system has unsupported display driver / cuda driver combination")
SIMULATOR_ERROR(cudaErrorCompatNotSupportedOnDevice, 804,
                "forward compatibility was attempted on non supported HW")
SIMULATOR_ERROR(cudaErrorMpsConnectionFailed, 805,
                "MPS client failed to connect to the MPS control daemon or the MPS server")
SIMULATOR_ERROR(cudaErrorMpsRpcFailure, 806,
                "the remote procedural call between the MPS server and the MPS client failed")
SIMULATOR_ERROR(cudaErrorMpsServerNotReady, 807,
                "MPS server is not ready to accept new MPS client requests")
SIMULATOR_ERROR(cudaErrorMpsMaxClientsReached, 808,
                "the hardware resources required to create MPS client have been exhausted")
SIMULATOR_ERROR(cudaErrorMpsMaxConnectionsReached, 809,
                "the hardware resources required to support device connections have been exhausted")
SIMULATOR_ERROR(cudaErrorMpsClientTerminated, 810,
                "the MPS client has been terminated by the server")
SIMULATOR_ERROR(cudaErrorCdpNotSupported, 811,
                "is using CUDA Dynamic Parallelism, but the current configuration, like MPS, does "
                "not support it")
SIMULATOR_ERROR(cudaErrorCdpVersionMismatch, 812,
                "unsupported interaction between different versions of CUDA Dynamic Parallelism")
SIMULATOR_ERROR(cudaErrorStreamCaptureUnsupported, 900,
                "operation not permitted when stream is capturing")
SIMULATOR_ERROR(cudaErrorStreamCaptureInvalidated, 901,
                "operation failed due to a previous error during capture")
SIMULATOR_ERROR(cudaErrorStreamCaptureMerge, 902,
                "operation would result in a merge of separate capture sequences")
SIMULATOR_ERROR(cudaErrorStreamCaptureUnmatched, 903,
                "capture was not ended in the same stream as it began")
SIMULATOR_ERROR(cudaErrorStreamCaptureUnjoined, 904, "capturing stream has unjoined work")
SIMULATOR_ERROR(cudaErrorStreamCaptureIsolation, 905,
                "dependency created on uncaptured work in another stream")
SIMULATOR_ERROR(cudaErrorStreamCaptureImplicit, 906,
                "operation would make the legacy stream depend on a capturing blocking stream")
SIMULATOR_ERROR(cudaErrorCapturedEvent, 907,
                "operation not permitted on an event last recorded in a capturing stream")
SIMULATOR_ERROR(cudaErrorStreamCaptureWrongThread, 908,
                "attempt to terminate a thread-local capture sequence from another thread")
SIMULATOR_ERROR(cudaErrorTimeout, 909, "wait operation timed out")
SIMULATOR_ERROR(cudaErrorGraphExecUpdateFailure, 910,
                "the graph update was not performed because it included changes which violated "
                "constraints specific to instantiated graph update")
SIMULATOR_ERROR(cudaErrorExternalDevice, 911,
                "an async error has occured in external entity outside of CUDA")
SIMULATOR_ERROR(cudaErrorInvalidClusterSize, 912,
                "a kernel launch error has occurred due to cluster misconfiguration")
SIMULATOR_ERROR(
    cudaErrorFunctionNotLoaded, 913,
    "the function handle is not loaded when calling an API that requires a loaded function")
SIMULATOR_ERROR(cudaErrorInvalidResourceType, 914,
                "one or more resources passed in are not valid resource types for the operation")
SIMULATOR_ERROR(cudaErrorInvalidResourceConfiguration, 915,
                "one or more resources are insufficient or non-applicable for the operation")
SIMULATOR_ERROR(cudaErrorUnknown, 999, "unknown error")
