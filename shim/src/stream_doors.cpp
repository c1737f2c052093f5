// Streams that end, and captures that begin and end.
#include "transit/capture.hpp"
#include "transit/device.hpp"
#include "transit/real.hpp"

namespace transit {
namespace {

template <typename Call>
CUresult begin_capture(CUstream stream, bool per_thread, Call&& call) noexcept {
    // Counted before the call: from its return on, no event of ours may be recorded on a captured
    // stream.
    capture_begins();
    const CUresult result = std::forward<Call>(call)();
    if (result == CUDA_SUCCESS)
        capture_began_on(named(stream, per_thread));
    else
        capture_failed();
    return result;
}

// An end that fails may have ended it (an invalidated capture) or not (a wrong thread): the stream
// tells.
template <typename Call>
CUresult end_capture(CUstream stream, bool per_thread, Call&& call) noexcept {
    const bool before = capturing(stream, per_thread);
    const CUresult result = std::forward<Call>(call)();
    if (result == CUDA_SUCCESS || (before && !capturing(stream, per_thread)))
        capture_ended_on(named(stream, per_thread));
    return result;
}

}  // namespace
}  // namespace transit

extern "C" {

// What the application waits for has passed: also for streams that no marker can be recorded on.
CUresult hook_cuCtxSynchronize() {
    transit::Device* device = transit::Device::for_current();
    return device == nullptr ? real_cuCtxSynchronize() : device->synchronize();
}

CUresult hook_cuStreamDestroy_v2(CUstream stream) {
    // Asked before: afterwards another thread's stream, and its capture, may have the handle.
    const bool ends_capture = transit::capture_open_on(stream);
    if (transit::Device* device = transit::Device::active()) device->retire_stream(stream);
    const CUresult result = real_cuStreamDestroy_v2(stream);
    if (ends_capture && result == CUDA_SUCCESS) transit::capture_ended_on(stream);
    return result;
}

CUresult hook_cuStreamBeginCapture(CUstream stream) {
    return transit::begin_capture(stream, false, [&] { return real_cuStreamBeginCapture(stream); });
}
CUresult hook_cuStreamBeginCapture_ptsz(CUstream stream) {
    return transit::begin_capture(stream, true,
                                  [&] { return real_cuStreamBeginCapture_ptsz(stream); });
}
CUresult hook_cuStreamBeginCapture_v2(CUstream stream, CUstreamCaptureMode mode) {
    return transit::begin_capture(stream, false,
                                  [&] { return real_cuStreamBeginCapture_v2(stream, mode); });
}
CUresult hook_cuStreamBeginCapture_v2_ptsz(CUstream stream, CUstreamCaptureMode mode) {
    return transit::begin_capture(stream, true,
                                  [&] { return real_cuStreamBeginCapture_v2_ptsz(stream, mode); });
}
CUresult hook_cuStreamBeginCaptureToGraph(CUstream stream, CUgraph graph,
                                          const CUgraphNode* dependencies,
                                          const CUgraphEdgeData* data, size_t count,
                                          CUstreamCaptureMode mode) {
    return transit::begin_capture(stream, false, [&] {
        return real_cuStreamBeginCaptureToGraph(stream, graph, dependencies, data, count, mode);
    });
}
CUresult hook_cuStreamBeginCaptureToGraph_ptsz(CUstream stream, CUgraph graph,
                                               const CUgraphNode* dependencies,
                                               const CUgraphEdgeData* data, size_t count,
                                               CUstreamCaptureMode mode) {
    return transit::begin_capture(stream, true, [&] {
        return real_cuStreamBeginCaptureToGraph_ptsz(stream, graph, dependencies, data, count,
                                                     mode);
    });
}
CUresult hook_cuStreamEndCapture(CUstream stream, CUgraph* graph) {
    return transit::end_capture(stream, false,
                                [&] { return real_cuStreamEndCapture(stream, graph); });
}
CUresult hook_cuStreamEndCapture_ptsz(CUstream stream, CUgraph* graph) {
    return transit::end_capture(stream, true,
                                [&] { return real_cuStreamEndCapture_ptsz(stream, graph); });
}

}  // extern "C"
