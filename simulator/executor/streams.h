// Streams and events of CUDA's runtime API. A launch is over when it returns, so a stream is idle,
// and an event is a time.
#pragma once
#include "captures.h"

namespace simulator::api {

// A launch's failure is known when the launch returns; there is nothing to wait for.
cudaError_t cudaDeviceSynchronize() {
    if (watcher) watcher->synchronised();
    return ready_for_unsafe_call();
}

cudaError_t cudaStreamCreateWithPriority(cudaStream_t* stream, unsigned flags, int priority) {
    if (const cudaError_t error = broken()) return error;
    if (!stream || flags > cudaStreamNonBlocking) return record(cudaErrorInvalidValue);
    int least, greatest;
    cudaDeviceGetStreamPriorityRange(&least, &greatest);
    if (watcher) watcher->made_stream();
    *stream = streams.add(
        new CUstream_st{flags, std::min(std::max(priority, greatest), least), ++last_id, nullptr});
    return cudaSuccess;
}

cudaError_t cudaStreamCreateWithFlags(cudaStream_t* stream, unsigned flags) {
    return cudaStreamCreateWithPriority(stream, flags, 0);
}

cudaError_t cudaStreamCreate(cudaStream_t* stream) { return cudaStreamCreateWithFlags(stream, 0); }

cudaError_t cudaStreamDestroy(cudaStream_t stream) {
    if (is_default(stream)) return record(cudaErrorInvalidResourceHandle);
    if (const cudaError_t error = check_stream(stream)) return error;
    if (Capture* capture = capture_of(stream); capture && capture->origin == stream)
        end_capture(*capture);
    return record(streams.destroy(stream) ? cudaSuccess : cudaErrorInvalidResourceHandle);
}

cudaError_t cudaStreamSynchronize(cudaStream_t stream) {
    if (watcher) watcher->synchronised(handle_of(stream));
    if (const cudaError_t error = broken()) return error;
    if (const cudaError_t error = check_stream(stream)) return error;
    if (Capture* capture = capture_of(stream))
        return spoil(capture, cudaErrorStreamCaptureUnsupported);
    return is_default(stream) ? ready_for_default_stream(cudaErrorStreamCaptureImplicit)
                              : cudaSuccess;
}

cudaError_t cudaStreamQuery(cudaStream_t stream) { return cudaStreamSynchronize(stream); }

cudaError_t cudaStreamGetFlags(cudaStream_t stream, unsigned* flags) {
    if (const cudaError_t error = check_stream(stream)) return error;
    if (!flags) return record(cudaErrorInvalidValue);
    *flags = is_default(stream) ? cudaStreamDefault : stream->flags;
    return cudaSuccess;
}

cudaError_t cudaStreamGetPriority(cudaStream_t stream, int* priority) {
    if (const cudaError_t error = check_stream(stream)) return error;
    if (!priority) return record(cudaErrorInvalidValue);
    *priority = is_default(stream) ? 0 : stream->priority;
    return cudaSuccess;
}

cudaError_t cudaStreamGetId(cudaStream_t stream, unsigned long long* id) {
    if (const cudaError_t error = check_stream(stream)) return error;
    if (!id) return record(cudaErrorInvalidValue);
    *id = is_default(stream) ? 0 : stream->id;
    return cudaSuccess;
}

cudaError_t cudaStreamSetAttribute(cudaStream_t stream, cudaStreamAttrID attribute,
                                   const cudaStreamAttrValue* value) {
    if (const cudaError_t error = check_stream(stream)) return error;
    if (!value) return record(cudaErrorInvalidValue);
    if (attribute == cudaStreamAttributePriority) {
        if (is_default(stream)) return record(cudaErrorInvalidValue);
        stream->priority = value->priority;
        return cudaSuccess;
    }
    if (attribute == cudaStreamAttributeAccessPolicyWindow) {
        const cudaAccessPolicyWindow& window = value->accessPolicyWindow;
        if (!(window.hitRatio >= 0 && window.hitRatio <= 1) ||
            window.missProp == cudaAccessPropertyPersisting)
            return record(cudaErrorInvalidValue);
        if (!is_default(stream)) stream->window = window;
        return cudaSuccess;
    }
    if (attribute != cudaStreamAttributeSynchronizationPolicy ||
        value->syncPolicy < cudaSyncPolicyAuto || value->syncPolicy > cudaSyncPolicyBlockingSync)
        return record(cudaErrorInvalidValue);
    if (!is_default(stream)) stream->policy = value->syncPolicy;
    return cudaSuccess;
}

cudaError_t cudaStreamGetAttribute(cudaStream_t stream, cudaStreamAttrID attribute,
                                   cudaStreamAttrValue* value) {
    if (const cudaError_t error = check_stream(stream)) return error;
    if (!value || is_default(stream)) return record(cudaErrorInvalidValue);
    if (attribute == cudaStreamAttributePriority)
        value->priority = stream->priority;
    else if (attribute == cudaStreamAttributeAccessPolicyWindow)
        value->accessPolicyWindow = stream->window;
    else if (attribute == cudaStreamAttributeSynchronizationPolicy)
        value->syncPolicy = stream->policy;
    else
        return record(cudaErrorInvalidValue);
    return cudaSuccess;
}

cudaError_t cudaCtxResetPersistingL2Cache() { return broken(); }

// On the thread that asks for it.
cudaError_t cudaLaunchHostFunc(cudaStream_t stream, cudaHostFn_t function, void* data) {
    if (!function) return record(cudaErrorInvalidValue);
    return submit(stream, cudaGraphNodeTypeHost, [=] {
        function(data);
        return Error{};
    });
}

cudaError_t cudaStreamAddCallback(cudaStream_t stream, cudaStreamCallback_t callback, void* data,
                                  unsigned flags) {
    if (!callback || flags) return record(cudaErrorInvalidValue);
    if (const cudaError_t error = check_stream(stream)) return error;
    if (Capture* capture = capture_of(stream))
        return spoil(capture, cudaErrorStreamCaptureUnsupported);
    callback(stream, breakage.get().code, data);
    return cudaSuccess;
}

cudaError_t cudaEventCreateWithFlags(cudaEvent_t* event, unsigned flags) {
    if (const cudaError_t error = broken()) return error;
    if (!event || flags & ~7u) return record(cudaErrorInvalidValue);
    *event = events.add(new CUevent_st{});
    (*event)->flags = flags;
    return cudaSuccess;
}

cudaError_t cudaEventCreate(cudaEvent_t* event) { return cudaEventCreateWithFlags(event, 0); }

cudaError_t cudaEventDestroy(cudaEvent_t event) {
    return record(events.destroy(event) ? cudaSuccess : cudaErrorInvalidResourceHandle);
}

cudaError_t cudaEventRecordWithFlags(cudaEvent_t event, cudaStream_t stream, unsigned flags) {
    if (!events.has(event)) return record(cudaErrorInvalidResourceHandle);
    if (flags > cudaEventRecordExternal) return record(cudaErrorInvalidValue);
    if (const cudaError_t error = check_stream(stream)) return error;
    if (Capture* capture = capture_of(stream); capture && flags != cudaEventRecordExternal) {
        if (!capture->is_valid) return record(cudaErrorStreamCaptureInvalidated);
        event->is_captured = true;
        event->capture = stream->capture;
        event->stands_for = capture->last[stream];
        return cudaSuccess;
    }
    return submit(stream, cudaGraphNodeTypeEventRecord, [=] {
        if (watcher) watcher->recorded(event, handle_of(stream));
        event->is_captured = false;
        event->is_recorded = true;
        event->time = std::chrono::steady_clock::now();
        return Error{};
    });
}

cudaError_t cudaEventRecord(cudaEvent_t event, cudaStream_t stream) {
    return cudaEventRecordWithFlags(event, stream, cudaEventRecordDefault);
}

cudaError_t cudaEventSynchronize(cudaEvent_t event) {
    if (watcher) watcher->synchronised(event);
    if (const cudaError_t error = broken()) return error;
    if (!events.has(event)) return record(cudaErrorInvalidResourceHandle);
    return record(event->is_captured ? cudaErrorCapturedEvent : cudaSuccess);
}

cudaError_t cudaEventQuery(cudaEvent_t event) { return cudaEventSynchronize(event); }

cudaError_t cudaStreamWaitEvent(cudaStream_t stream, cudaEvent_t event, unsigned flags) {
    if (const cudaError_t error = broken()) return error;
    if (const cudaError_t error = check_stream(stream)) return error;
    if (!events.has(event)) return record(cudaErrorInvalidResourceHandle);
    if (flags > cudaEventWaitExternal) return record(cudaErrorInvalidValue);
    Capture* capture = capture_of(stream);
    if (watcher && !event->is_captured) watcher->waits(handle_of(stream), event);
    if (!event->is_captured)
        return capture && event->is_recorded && flags != cudaEventWaitExternal
                   ? spoil(capture, cudaErrorStreamCaptureIsolation)
                   : cudaSuccess;
    const std::shared_ptr<Capture> events_capture = event->capture.lock();
    if (!events_capture) return record(cudaErrorCapturedEvent);
    if (is_default(stream)) return spoil(events_capture.get(), cudaErrorStreamCaptureImplicit);
    if (capture && capture != events_capture.get()) {
        events_capture->is_valid = false;
        return spoil(capture, cudaErrorStreamCaptureMerge);
    }
    stream->capture = events_capture;
    auto& last = events_capture->last[stream];
    for (CUgraphNode_st* node : event->stands_for)
        if (std::find(last.begin(), last.end(), node) == last.end()) last.push_back(node);
    return cudaSuccess;
}

cudaError_t cudaEventElapsedTime(float* milliseconds, cudaEvent_t start, cudaEvent_t end) {
    if (const cudaError_t error = broken()) return error;
    if (!milliseconds) return record(cudaErrorInvalidValue);
    for (cudaEvent_t event : {start, end})
        if (!events.has(event) || !event->is_recorded || event->is_captured ||
            event->flags & cudaEventDisableTiming)
            return record(cudaErrorInvalidResourceHandle);
    *milliseconds = std::chrono::duration<float, std::milli>(end->time - start->time).count();
    return cudaSuccess;
}

}  // namespace simulator::api
