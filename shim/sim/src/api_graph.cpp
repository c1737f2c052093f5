// Graphs: what was captured, replayed as one operation. Nodes cannot be edited one by one.
#include <algorithm>
#include <map>
#include <mutex>

#include "call.hpp"
#include "capture.hpp"
#include "context.hpp"
#include "kernels.hpp"

namespace transit::sim {
namespace {

using Nodes = std::vector<std::shared_ptr<const Node>>;

std::mutex executables_mutex;

// An instantiated graph is a copy: destroying the graph does not touch it.
std::map<CUgraphExec, std::shared_ptr<const Nodes>>& executables() {
    static auto* const kExecutables = new std::map<CUgraphExec, std::shared_ptr<const Nodes>>;
    return *kExecutables;
}

CUresult instantiate(const char* name, CUgraphExec* executable, CUgraph handle) {
    Call call{name, Needs::context};
    call.at("graph", handle);
    if (!call) {
        return call.result();
    }
    const Graph* const graph = find_graph(handle);
    if (graph == nullptr || executable == nullptr) {
        return call.end(CUDA_ERROR_INVALID_VALUE);
    }
    auto nodes = std::make_shared<const Nodes>(graph->nodes);
    *executable = reinterpret_cast<CUgraphExec>(const_cast<Nodes*>(nodes.get()));
    call.note("nodes", nodes->size()).at("exec", *executable);
    std::lock_guard lock(executables_mutex);
    executables()[*executable] = std::move(nodes);
    return call.end(CUDA_SUCCESS);
}

std::shared_ptr<const Nodes> find(CUgraphExec handle) {
    std::lock_guard lock(executables_mutex);
    const auto found = executables().find(handle);
    return found == executables().end() ? nullptr : found->second;
}

// A node handle is the node's address; the graph it belongs to must still exist.
const Node* node_of(CUgraphNode handle) { return reinterpret_cast<const Node*>(handle); }

template <class Params>
CUresult kernel_params(const char* name, CUgraphNode handle, Params* params) {
    Call call{name, Needs::driver};
    if (!call) {
        return call.result();
    }
    const Node* const node = node_of(handle);
    if (node == nullptr || params == nullptr || node->launch == nullptr) {
        return call.end(CUDA_ERROR_INVALID_VALUE);
    }
    const KernelLaunch& launch = *node->launch;
    *params = Params{};
    params->func = launch.function;
    params->gridDimX = launch.grid[0];
    params->gridDimY = launch.grid[1];
    params->gridDimZ = launch.grid[2];
    params->blockDimX = launch.block[0];
    params->blockDimY = launch.block[1];
    params->blockDimZ = launch.block[2];
    params->sharedMemBytes = launch.shared_bytes;
    // Valid until the next call on this thread, as little as the documentation promises.
    thread_local std::vector<void*> pointers;
    pointers.clear();
    for (const Parameter& parameter : launch.kernel->parameters) {
        pointers.push_back(const_cast<std::byte*>(launch.packed.data() + parameter.offset));
    }
    params->kernelParams = pointers.data();
    return call.end(CUDA_SUCCESS);
}

}  // namespace
}  // namespace transit::sim

using namespace transit::sim;

extern "C" {

CUresult CUDAAPI cuGraphCreate(CUgraph* graph, unsigned int flags) {
    Call call{"cuGraphCreate", Needs::driver};
    if (!call) {
        return call.result();
    }
    if (graph == nullptr || flags != 0) {
        return call.end(CUDA_ERROR_INVALID_VALUE);
    }
    *graph = reinterpret_cast<CUgraph>(new_graph());
    return call.end(CUDA_SUCCESS);
}

CUresult CUDAAPI cuGraphDestroy(CUgraph graph) {
    Call call{"cuGraphDestroy", Needs::driver};
    call.at("graph", graph);
    return call ? call.end(delete_graph(graph) ? CUDA_SUCCESS : CUDA_ERROR_INVALID_VALUE)
                : call.result();
}

CUresult CUDAAPI cuGraphClone(CUgraph* clone, CUgraph original) {
    Call call{"cuGraphClone", Needs::driver};
    if (!call) {
        return call.result();
    }
    const Graph* const from = find_graph(original);
    if (from == nullptr || clone == nullptr) {
        return call.end(CUDA_ERROR_INVALID_VALUE);
    }
    Graph* const made = new_graph();
    made->nodes = from->nodes;
    *clone = reinterpret_cast<CUgraph>(made);
    return call.end(CUDA_SUCCESS);
}

CUresult CUDAAPI cuGraphGetNodes(CUgraph handle, CUgraphNode* nodes, size_t* count) {
    Call call{"cuGraphGetNodes", Needs::driver};
    call.at("graph", handle);
    if (!call) {
        return call.result();
    }
    const Graph* const graph = find_graph(handle);
    if (graph == nullptr || count == nullptr) {
        return call.end(CUDA_ERROR_INVALID_VALUE);
    }
    if (nodes == nullptr) {
        *count = graph->nodes.size();
        return call.end(CUDA_SUCCESS);
    }
    *count = std::min(*count, graph->nodes.size());
    for (size_t i = 0; i < *count; ++i) {
        nodes[i] = reinterpret_cast<CUgraphNode>(const_cast<Node*>(graph->nodes[i].get()));
    }
    return call.end(CUDA_SUCCESS);
}

CUresult CUDAAPI cuGraphNodeGetType(CUgraphNode node, CUgraphNodeType* type) {
    Call call{"cuGraphNodeGetType", Needs::driver};
    if (!call) {
        return call.result();
    }
    if (node == nullptr || type == nullptr) {
        return call.end(CUDA_ERROR_INVALID_VALUE);
    }
    *type = node_of(node)->type;
    return call.end(CUDA_SUCCESS);
}

CUresult CUDAAPI cuGraphKernelNodeGetParams(CUgraphNode node, CUDA_KERNEL_NODE_PARAMS_v1* params) {
    return kernel_params("cuGraphKernelNodeGetParams", node, params);
}

CUresult CUDAAPI cuGraphKernelNodeGetParams_v2(CUgraphNode node, CUDA_KERNEL_NODE_PARAMS* params) {
    return kernel_params("cuGraphKernelNodeGetParams_v2", node, params);
}

CUresult CUDAAPI cuGraphInstantiate(CUgraphExec* executable, CUgraph graph, CUgraphNode*, char*,
                                    size_t) {
    return instantiate("cuGraphInstantiate", executable, graph);
}

CUresult CUDAAPI cuGraphInstantiate_v2(CUgraphExec* executable, CUgraph graph, CUgraphNode*, char*,
                                       size_t) {
    return instantiate("cuGraphInstantiate_v2", executable, graph);
}

CUresult CUDAAPI cuGraphInstantiateWithFlags(CUgraphExec* executable, CUgraph graph,
                                             unsigned long long) {
    return instantiate("cuGraphInstantiateWithFlags", executable, graph);
}

CUresult CUDAAPI cuGraphInstantiateWithParams(CUgraphExec* executable, CUgraph graph,
                                              CUDA_GRAPH_INSTANTIATE_PARAMS* params) {
    const CUresult result = instantiate("cuGraphInstantiateWithParams", executable, graph);
    if (params != nullptr) {
        params->result_out =
            result == CUDA_SUCCESS ? CUDA_GRAPH_INSTANTIATE_SUCCESS : CUDA_GRAPH_INSTANTIATE_ERROR;
    }
    return result;
}

CUresult CUDAAPI cuGraphUpload(CUgraphExec executable, CUstream stream) {
    Call call{"cuGraphUpload", Needs::context};
    call.at("exec", executable).at("stream", stream);
    return call ? call.end(find(executable) != nullptr ? CUDA_SUCCESS : CUDA_ERROR_INVALID_VALUE)
                : call.result();
}

CUresult CUDAAPI cuGraphLaunch(CUgraphExec executable, CUstream handle) {
    Call call{"cuGraphLaunch", Needs::context};
    call.at("exec", executable).at("stream", handle);
    if (!call) {
        return call.result();
    }
    const auto nodes = find(executable);
    const StreamRef stream = resolve_stream(handle);
    if (nodes == nullptr || stream == nullptr) {
        return call.end(nodes == nullptr ? CUDA_ERROR_INVALID_VALUE : CUDA_ERROR_INVALID_HANDLE);
    }
    return call.end(Captures::instance().dispatch(
        stream, {CU_GRAPH_NODE_TYPE_GRAPH, "graph", [nodes] {
                     for (const auto& node : *nodes) {
                         if (node->run && sticky_error() == CUDA_SUCCESS) {
                             node->run();
                         }
                     }
                 }}));
}

CUresult CUDAAPI cuGraphExecDestroy(CUgraphExec executable) {
    Call call{"cuGraphExecDestroy", Needs::driver};
    call.at("exec", executable);
    if (!call) {
        return call.result();
    }
    std::lock_guard lock(executables_mutex);
    return call.end(executables().erase(executable) != 0 ? CUDA_SUCCESS : CUDA_ERROR_INVALID_VALUE);
}

}  // extern "C"
