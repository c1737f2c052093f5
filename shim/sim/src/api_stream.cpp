// Streams and host functions.
#include "call.hpp"
#include "capture.hpp"
#include "context.hpp"

namespace transit::sim {
namespace {

CUresult create(const char* name, CUstream* stream, unsigned flags, int priority) {
    Call call{name, Needs::context};
    call.note("flags", flags);
    if (!call) {
        return call.result();
    }
    if (stream == nullptr || (flags & ~static_cast<unsigned>(CU_STREAM_NON_BLOCKING)) != 0) {
        return call.end(CUDA_ERROR_INVALID_VALUE);
    }
    *stream = reinterpret_cast<CUstream>(current_context()->create_stream(flags, priority).get());
    call.at("stream", *stream);
    return call.end(CUDA_SUCCESS);
}

// The stream, or null with the call ended.
StreamRef stream_of(Call& call, CUstream handle) {
    call.at("stream", handle);
    if (!call) {
        return nullptr;
    }
    StreamRef found = resolve_stream(handle);
    if (found == nullptr) {
        call.end(CUDA_ERROR_INVALID_HANDLE);
    }
    return found;
}

}  // namespace
}  // namespace transit::sim

using namespace transit::sim;

extern "C" {

CUresult CUDAAPI cuStreamCreate(CUstream* stream, unsigned int flags) {
    return create("cuStreamCreate", stream, flags, 0);
}

CUresult CUDAAPI cuStreamCreateWithPriority(CUstream* stream, unsigned int flags, int priority) {
    return create("cuStreamCreateWithPriority", stream, flags, priority);
}

CUresult CUDAAPI cuStreamDestroy_v2(CUstream handle) {
    Call call{"cuStreamDestroy_v2", Needs::driver};
    const StreamRef stream = stream_of(call, handle);
    if (stream == nullptr) {
        return call.result();
    }
    // A capture that begins on the stream ends with it, and what it gathered is lost.
    Graph* gathered = nullptr;
    if (Captures::instance().end(stream, &gathered) == CUDA_SUCCESS) {
        delete_graph(reinterpret_cast<CUgraph>(gathered));
    }
    return call.end(stream->context().destroy_stream(handle) ? CUDA_SUCCESS
                                                             : CUDA_ERROR_INVALID_HANDLE);
}

CUresult CUDAAPI cuStreamSynchronize(CUstream handle) {
    Call call{"cuStreamSynchronize", Needs::context};
    const StreamRef stream = stream_of(call, handle);
    if (stream == nullptr) {
        return call.result();
    }
    if (const CUresult refused = Captures::instance().check_sync(stream); refused != CUDA_SUCCESS) {
        return call.end(refused);
    }
    return call.end(wait_all(stream->context().outstanding(stream)));
}

CUresult CUDAAPI cuStreamQuery(CUstream handle) {
    Call call{"cuStreamQuery", Needs::context};
    const StreamRef stream = stream_of(call, handle);
    if (stream == nullptr) {
        return call.result();
    }
    if (const CUresult refused = Captures::instance().check_sync(stream); refused != CUDA_SUCCESS) {
        return call.end(refused);
    }
    const bool passed = all_passed(stream->context().outstanding(stream));
    return call.end(passed ? sticky_error() : CUDA_ERROR_NOT_READY);
}

CUresult CUDAAPI cuStreamGetFlags(CUstream handle, unsigned int* flags) {
    Call call{"cuStreamGetFlags", Needs::context};
    const StreamRef stream = stream_of(call, handle);
    if (stream != nullptr) {
        *flags = stream->flags();
    }
    return call.result();
}

CUresult CUDAAPI cuStreamGetPriority(CUstream handle, int* priority) {
    Call call{"cuStreamGetPriority", Needs::context};
    const StreamRef stream = stream_of(call, handle);
    if (stream != nullptr) {
        *priority = stream->priority();
    }
    return call.result();
}

CUresult CUDAAPI cuStreamGetId(CUstream handle, unsigned long long* id) {
    Call call{"cuStreamGetId", Needs::context};
    const StreamRef stream = stream_of(call, handle);
    if (stream != nullptr) {
        *id = stream->id();
    }
    return call.result();
}

CUresult CUDAAPI cuStreamGetCtx(CUstream handle, CUcontext* context) {
    Call call{"cuStreamGetCtx", Needs::context};
    const StreamRef stream = stream_of(call, handle);
    if (stream != nullptr) {
        *context = stream->context().handle();
    }
    return call.result();
}

CUresult CUDAAPI cuStreamGetCtx_v2(CUstream handle, CUcontext* context, CUgreenCtx* green) {
    if (green != nullptr) {
        *green = nullptr;
    }
    return cuStreamGetCtx(handle, context);
}

CUresult CUDAAPI cuStreamGetDevice(CUstream handle, CUdevice* device) {
    Call call{"cuStreamGetDevice", Needs::context};
    const StreamRef stream = stream_of(call, handle);
    if (stream != nullptr) {
        *device = stream->context().device();
    }
    return call.result();
}

CUresult CUDAAPI cuLaunchHostFunc(CUstream handle, CUhostFn function, void* user) {
    Call call{"cuLaunchHostFunc", Needs::context};
    const StreamRef stream = stream_of(call, handle);
    if (stream == nullptr) {
        return call.result();
    }
    if (function == nullptr) {
        return call.end(CUDA_ERROR_INVALID_VALUE);
    }
    return call.end(Captures::instance().dispatch(
        stream, {CU_GRAPH_NODE_TYPE_HOST, "host_function", [function, user] { function(user); }}));
}

CUresult CUDAAPI cuStreamAddCallback(CUstream handle, CUstreamCallback callback, void* user,
                                     unsigned int flags) {
    Call call{"cuStreamAddCallback", Needs::context};
    const StreamRef stream = stream_of(call, handle);
    if (stream == nullptr) {
        return call.result();
    }
    if (callback == nullptr || flags != 0) {
        return call.end(CUDA_ERROR_INVALID_VALUE);
    }
    if (Captures::instance().capturing(stream)) {
        return call.end(CUDA_ERROR_STREAM_CAPTURE_UNSUPPORTED);
    }
    return call.end(
        Captures::instance().dispatch(stream, {CU_GRAPH_NODE_TYPE_HOST, "callback",
                                               [=] { callback(handle, sticky_error(), user); }}));
}

}  // extern "C"
