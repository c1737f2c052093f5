// Stream capture: operations become nodes of a graph instead of running, and what may not happen
// meanwhile is refused and invalidates the capture.
#pragma once

#include <atomic>
#include <functional>
#include <map>
#include <memory>
#include <mutex>
#include <optional>
#include <set>
#include <string>
#include <vector>

#include "cuda_api.hpp"
#include "event.hpp"
#include "stream.hpp"

namespace transit::sim {

struct KernelLaunch;

struct Node {
    CUgraphNodeType type = CU_GRAPH_NODE_TYPE_EMPTY;
    const char* name = "";
    std::function<void()> run;
    std::shared_ptr<const KernelLaunch> launch = nullptr;  // of kernel nodes
};

// Nodes in an order that respects their dependencies: the order of capture.
struct Graph {
    std::vector<std::shared_ptr<const Node>> nodes;
};

class Capture {
public:
    std::uint64_t id = 0;
    CUstreamCaptureMode mode = CU_STREAM_CAPTURE_MODE_GLOBAL;
    std::uint32_t owner_thread = 0;
    bool valid = true;
    Graph* graph = nullptr;
    StreamRef origin;
    std::map<Stream*, std::uint64_t> operations;  // captured so far, of each stream that takes part
    std::set<Stream*> unjoined;
    std::vector<StreamRef> members;
};

class Captures {
public:
    static Captures& instance();
    static CUstreamCaptureMode& thread_mode();

    CUresult begin(const StreamRef& stream, CUstreamCaptureMode mode, Graph* into);
    CUresult end(const StreamRef& stream, Graph** graph);
    CUstreamCaptureStatus status(const StreamRef& stream, std::uint64_t* id, Graph** graph);

    // Runs later, or becomes a node if the stream is capturing.
    CUresult dispatch(const StreamRef& stream, Node node, std::vector<Ticket> waits_for = {});
    CUresult record_event(const StreamRef& stream, Event& event);
    CUresult wait_event(const StreamRef& stream, Event& event);

    // For calls that may not happen while a capture is open (VMM, allocation, sync).
    CUresult check_unsafe();
    // For a sync or query of this stream (null: of the context).
    CUresult check_sync(const StreamRef& stream);
    CUresult check_event(const Event& event);
    bool capturing(const StreamRef& stream);

private:
    bool none_open() const { return open_count_.load(std::memory_order_acquire) == 0; }
    // Null: not capturing, go on. Else the answer.
    std::optional<CUresult> append(const StreamRef& stream, Node& node);
    std::optional<CUresult> refuse_legacy(const StreamRef& stream, bool any_capture);
    void join(const std::shared_ptr<Capture>& capture, const StreamRef& stream);

    std::mutex mutex_;
    std::vector<std::shared_ptr<Capture>> open_;
    std::atomic<int> open_count_{0};
    std::uint64_t next_id_ = 1;
};

Graph* new_graph();
Graph* find_graph(CUgraph handle);
bool delete_graph(CUgraph handle);

}  // namespace transit::sim
