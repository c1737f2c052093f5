#include "capture.hpp"

#include <algorithm>

#include "context.hpp"
#include "truth_log.hpp"

namespace transit::sim {
namespace {

std::mutex graphs_mutex;

std::map<CUgraph, std::unique_ptr<Graph>>& graphs() {
    static auto* const kGraphs = new std::map<CUgraph, std::unique_ptr<Graph>>;
    return *kGraphs;
}

}  // namespace

Graph* new_graph() {
    auto made = std::make_unique<Graph>();
    Graph* const graph = made.get();
    std::lock_guard lock(graphs_mutex);
    graphs()[reinterpret_cast<CUgraph>(graph)] = std::move(made);
    return graph;
}

Graph* find_graph(CUgraph handle) {
    std::lock_guard lock(graphs_mutex);
    const auto found = graphs().find(handle);
    return found == graphs().end() ? nullptr : found->second.get();
}

bool delete_graph(CUgraph handle) {
    std::lock_guard lock(graphs_mutex);
    return graphs().erase(handle) != 0;
}

Captures& Captures::instance() {
    static Captures* const kCaptures = new Captures;
    return *kCaptures;
}

CUstreamCaptureMode& Captures::thread_mode() {
    thread_local CUstreamCaptureMode mode = CU_STREAM_CAPTURE_MODE_GLOBAL;
    return mode;
}

CUresult Captures::begin(const StreamRef& stream, CUstreamCaptureMode mode, Graph* into) {
    if (mode != CU_STREAM_CAPTURE_MODE_GLOBAL && mode != CU_STREAM_CAPTURE_MODE_THREAD_LOCAL &&
        mode != CU_STREAM_CAPTURE_MODE_RELAXED) {
        return CUDA_ERROR_INVALID_VALUE;
    }
    if (stream == stream->context().legacy()) {
        return CUDA_ERROR_STREAM_CAPTURE_UNSUPPORTED;
    }
    std::lock_guard lock(mutex_);
    if (stream->capture != nullptr) {
        return CUDA_ERROR_ILLEGAL_STATE;
    }
    auto capture = std::make_shared<Capture>();
    capture->id = next_id_++;
    capture->mode = mode;
    capture->owner_thread = thread_id();
    capture->graph = into != nullptr ? into : new_graph();
    capture->origin = stream;
    capture->members.push_back(stream);
    capture->operations[stream.get()] = 0;
    stream->capture = capture;
    open_.push_back(std::move(capture));
    ++open_count_;
    return CUDA_SUCCESS;
}

CUresult Captures::end(const StreamRef& stream, Graph** graph) {
    std::lock_guard lock(mutex_);
    const std::shared_ptr<Capture> capture = stream->capture;
    *graph = nullptr;
    if (capture == nullptr) {
        return CUDA_ERROR_ILLEGAL_STATE;
    }
    if (capture->origin != stream) {
        return CUDA_ERROR_STREAM_CAPTURE_UNMATCHED;
    }
    if (capture->mode != CU_STREAM_CAPTURE_MODE_RELAXED && capture->owner_thread != thread_id()) {
        return CUDA_ERROR_STREAM_CAPTURE_WRONG_THREAD;
    }
    for (const StreamRef& member : capture->members) {
        member->capture = nullptr;
    }
    std::erase(open_, capture);
    --open_count_;
    capture->members.clear();
    capture->origin = nullptr;
    if (!capture->valid || !capture->unjoined.empty()) {
        delete_graph(reinterpret_cast<CUgraph>(capture->graph));
        return capture->valid ? CUDA_ERROR_STREAM_CAPTURE_UNJOINED
                              : CUDA_ERROR_STREAM_CAPTURE_INVALIDATED;
    }
    *graph = capture->graph;
    return CUDA_SUCCESS;
}

CUstreamCaptureStatus Captures::status(const StreamRef& stream, std::uint64_t* id, Graph** graph) {
    std::lock_guard lock(mutex_);
    const auto& capture = stream->capture;
    if (capture == nullptr) {
        return CU_STREAM_CAPTURE_STATUS_NONE;
    }
    *id = capture->id;
    *graph = capture->graph;
    return capture->valid ? CU_STREAM_CAPTURE_STATUS_ACTIVE : CU_STREAM_CAPTURE_STATUS_INVALIDATED;
}

void Captures::join(const std::shared_ptr<Capture>& capture, const StreamRef& stream) {
    if (stream->capture == nullptr) {
        stream->capture = capture;
        capture->members.push_back(stream);
        capture->operations[stream.get()] = 0;
    }
    if (stream != capture->origin) {
        capture->unjoined.insert(stream.get());
    }
}

std::optional<CUresult> Captures::append(const StreamRef& stream, Node& node) {
    const std::shared_ptr<Capture>& capture = stream->capture;
    if (capture == nullptr) {
        return std::nullopt;
    }
    if (!capture->valid) {
        return CUDA_ERROR_STREAM_CAPTURE_INVALIDATED;
    }
    join(capture, stream);
    ++capture->operations[stream.get()];
    capture->graph->nodes.push_back(std::make_shared<const Node>(std::move(node)));
    return CUDA_SUCCESS;
}

std::optional<CUresult> Captures::refuse_legacy(const StreamRef& stream, bool any_capture) {
    if (stream != stream->context().legacy()) {
        return std::nullopt;
    }
    bool refused = false;
    for (const auto& capture : open_) {
        // Work on the legacy stream would depend on what a blocking stream is capturing.
        if (any_capture || capture->origin->blocking()) {
            capture->valid = false;
            refused = true;
        }
    }
    return refused ? std::optional(CUDA_ERROR_STREAM_CAPTURE_IMPLICIT) : std::nullopt;
}

CUresult Captures::dispatch(const StreamRef& stream, Node node, std::vector<Ticket> waits_for) {
    if (!none_open()) {
        std::lock_guard lock(mutex_);
        if (const auto refused = refuse_legacy(stream, false)) {
            return *refused;
        }
        if (const auto captured = append(stream, node)) {
            return *captured;
        }
    }
    stream->context().submit(stream, {node.name, std::move(node.run), std::move(waits_for)});
    return CUDA_SUCCESS;
}

CUresult Captures::record_event(const StreamRef& stream, Event& event) {
    if (!none_open()) {
        std::lock_guard lock(mutex_);
        // Stricter than the driver, which allows it while only non-blocking streams capture:
        // Transit promises not to do it at all.
        if (const auto refused = refuse_legacy(stream, true)) {
            return *refused;
        }
        if (const auto& capture = stream->capture; capture != nullptr) {
            if (!capture->valid) {
                return CUDA_ERROR_STREAM_CAPTURE_INVALIDATED;
            }
            event.capture = capture;
            event.captured_on = stream;
            event.captured_at = capture->operations[stream.get()];
            return CUDA_SUCCESS;
        }
    }
    auto record = std::make_shared<EventRecord>();
    const auto number = stream->context().submit(
        stream, {"event", [record] { record->passed_at_ns = now_ns(); }, {}, true});
    record->ticket = {stream, number};
    event.record = std::move(record);
    event.capture = nullptr;
    event.captured_on = nullptr;
    return CUDA_SUCCESS;
}

CUresult Captures::wait_event(const StreamRef& stream, Event& event) {
    if (!none_open()) {
        std::lock_guard lock(mutex_);
        const auto& capture = stream->capture;
        const bool event_captured =
            event.capture != nullptr && event.captured_on->capture == event.capture;
        if (event_captured) {
            if (stream == stream->context().legacy()) {
                event.capture->valid = false;
                return CUDA_ERROR_STREAM_CAPTURE_IMPLICIT;
            }
            if (capture != nullptr && capture != event.capture) {
                capture->valid = event.capture->valid = false;
                return CUDA_ERROR_STREAM_CAPTURE_MERGE;
            }
            join(event.capture, stream);
            if (stream != event.captured_on &&
                event.captured_at == event.capture->operations[event.captured_on.get()]) {
                event.capture->unjoined.erase(event.captured_on.get());
            }
            return CUDA_SUCCESS;
        }
        if (capture != nullptr) {
            capture->valid = false;
            return CUDA_ERROR_STREAM_CAPTURE_ISOLATION;
        }
    }
    if (event.record == nullptr) {
        return CUDA_SUCCESS;  // never recorded: nothing to wait for
    }
    return dispatch(stream, {CU_GRAPH_NODE_TYPE_WAIT_EVENT, "wait_event", [] {}},
                    {event.record->ticket});
}

CUresult Captures::check_unsafe() {
    if (none_open() || thread_mode() == CU_STREAM_CAPTURE_MODE_RELAXED) {
        return CUDA_SUCCESS;
    }
    std::lock_guard lock(mutex_);
    bool refused = false;
    for (const auto& capture : open_) {
        if (capture->mode == CU_STREAM_CAPTURE_MODE_RELAXED) {
            continue;
        }
        const bool own = capture->owner_thread == thread_id();
        const bool global = thread_mode() == CU_STREAM_CAPTURE_MODE_GLOBAL &&
                            capture->mode == CU_STREAM_CAPTURE_MODE_GLOBAL;
        if (own || global) {
            capture->valid = false;
            refused = true;
        }
    }
    return refused ? CUDA_ERROR_STREAM_CAPTURE_UNSUPPORTED : CUDA_SUCCESS;
}

CUresult Captures::check_sync(const StreamRef& stream) {
    if (none_open()) {
        return CUDA_SUCCESS;
    }
    {
        std::lock_guard lock(mutex_);
        if (stream != nullptr) {
            if (const auto refused = refuse_legacy(stream, false)) {
                return *refused;
            }
        }
        if (stream == nullptr || stream->capture != nullptr) {
            for (const auto& capture : open_) {
                if (stream == nullptr || stream->capture == capture) {
                    capture->valid = false;
                }
            }
            return CUDA_ERROR_STREAM_CAPTURE_UNSUPPORTED;
        }
    }
    return check_unsafe();
}

CUresult Captures::check_event(const Event& event) {
    if (event.capture != nullptr) {
        std::lock_guard lock(mutex_);
        event.capture->valid = false;
        return CUDA_ERROR_CAPTURED_EVENT;
    }
    return check_unsafe();
}

bool Captures::capturing(const StreamRef& stream) {
    if (none_open()) {
        return false;
    }
    std::lock_guard lock(mutex_);
    return stream->capture != nullptr;
}

}  // namespace transit::sim
