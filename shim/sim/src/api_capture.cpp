// Stream capture.
#include "call.hpp"
#include "capture.hpp"
#include "context.hpp"

namespace transit::sim {
namespace {

CUresult begin(const char* name, CUstream handle, CUstreamCaptureMode mode, CUgraph into,
               bool to_graph) {
    Call call{name, Needs::context};
    call.at("stream", handle).note("mode", static_cast<int>(mode));
    if (!call) {
        return call.result();
    }
    const StreamRef stream = resolve_stream(handle);
    if (stream == nullptr) {
        return call.end(CUDA_ERROR_INVALID_HANDLE);
    }
    Graph* const graph = to_graph ? find_graph(into) : nullptr;
    if (to_graph && graph == nullptr) {
        return call.end(CUDA_ERROR_INVALID_VALUE);
    }
    return call.end(Captures::instance().begin(stream, mode, graph));
}

CUresult info(const char* name, CUstream handle, CUstreamCaptureStatus* status, cuuint64_t* id,
              CUgraph* graph, const CUgraphNode** nodes, size_t* count) {
    Call call{name, Needs::context};
    call.at("stream", handle);
    if (!call) {
        return call.result();
    }
    const StreamRef stream = resolve_stream(handle);
    if (stream == nullptr || status == nullptr) {
        return call.end(stream == nullptr ? CUDA_ERROR_INVALID_HANDLE : CUDA_ERROR_INVALID_VALUE);
    }
    std::uint64_t found_id = 0;
    Graph* found_graph = nullptr;
    *status = Captures::instance().status(stream, &found_id, &found_graph);
    if (id != nullptr) {
        *id = found_id;
    }
    if (graph != nullptr) {
        *graph = reinterpret_cast<CUgraph>(found_graph);
    }
    if (nodes != nullptr) {
        *nodes = nullptr;  // dependencies are not tracked node by node
    }
    if (count != nullptr) {
        *count = 0;
    }
    return call.end(CUDA_SUCCESS);
}

}  // namespace
}  // namespace transit::sim

using namespace transit::sim;

extern "C" {

CUresult CUDAAPI cuStreamBeginCapture(CUstream stream) {
    return begin("cuStreamBeginCapture", stream, CU_STREAM_CAPTURE_MODE_GLOBAL, nullptr, false);
}

CUresult CUDAAPI cuStreamBeginCapture_v2(CUstream stream, CUstreamCaptureMode mode) {
    return begin("cuStreamBeginCapture_v2", stream, mode, nullptr, false);
}

CUresult CUDAAPI cuStreamBeginCaptureToGraph(CUstream stream, CUgraph graph, const CUgraphNode*,
                                             const CUgraphEdgeData*, size_t,
                                             CUstreamCaptureMode mode) {
    return begin("cuStreamBeginCaptureToGraph", stream, mode, graph, true);
}

CUresult CUDAAPI cuStreamEndCapture(CUstream handle, CUgraph* graph) {
    Call call{"cuStreamEndCapture", Needs::context};
    call.at("stream", handle);
    if (!call) {
        return call.result();
    }
    const StreamRef stream = resolve_stream(handle);
    if (stream == nullptr || graph == nullptr) {
        return call.end(stream == nullptr ? CUDA_ERROR_INVALID_HANDLE : CUDA_ERROR_INVALID_VALUE);
    }
    Graph* captured = nullptr;
    const CUresult result = Captures::instance().end(stream, &captured);
    *graph = reinterpret_cast<CUgraph>(captured);
    call.at("graph", *graph);
    return call.end(result);
}

CUresult CUDAAPI cuStreamIsCapturing(CUstream stream, CUstreamCaptureStatus* status) {
    return info("cuStreamIsCapturing", stream, status, nullptr, nullptr, nullptr, nullptr);
}

CUresult CUDAAPI cuStreamGetCaptureInfo(CUstream stream, CUstreamCaptureStatus* status,
                                        cuuint64_t* id) {
    return info("cuStreamGetCaptureInfo", stream, status, id, nullptr, nullptr, nullptr);
}

CUresult CUDAAPI cuStreamGetCaptureInfo_v2(CUstream stream, CUstreamCaptureStatus* status,
                                           cuuint64_t* id, CUgraph* graph,
                                           const CUgraphNode** nodes, size_t* count) {
    return info("cuStreamGetCaptureInfo_v2", stream, status, id, graph, nodes, count);
}

CUresult CUDAAPI cuStreamGetCaptureInfo_v3(CUstream stream, CUstreamCaptureStatus* status,
                                           cuuint64_t* id, CUgraph* graph,
                                           const CUgraphNode** nodes, const CUgraphEdgeData** edges,
                                           size_t* count) {
    if (edges != nullptr) {
        *edges = nullptr;
    }
    return info("cuStreamGetCaptureInfo_v3", stream, status, id, graph, nodes, count);
}

CUresult CUDAAPI cuThreadExchangeStreamCaptureMode(CUstreamCaptureMode* mode) {
    Call call{"cuThreadExchangeStreamCaptureMode", Needs::driver};
    if (!call) {
        return call.result();
    }
    if (mode == nullptr || *mode > CU_STREAM_CAPTURE_MODE_RELAXED) {
        return call.end(CUDA_ERROR_INVALID_VALUE);
    }
    call.note("mode", static_cast<int>(*mode));
    std::swap(*mode, Captures::thread_mode());
    return call.end(CUDA_SUCCESS);
}

}  // extern "C"
