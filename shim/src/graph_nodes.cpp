// Graphs built node by node. What their nodes reach is pinned where it is: a graph that is replayed
// later names nothing.
#include "transit/kernels.hpp"
#include "transit/pinning.hpp"
#include "transit/real.hpp"

namespace transit {
namespace {

constexpr char kInGraph[] = "in a CUDA graph";

// The oldest form has no CUkernel.
template <typename Params>
CUfunction function_of(const Params& params) noexcept {
    if constexpr (requires { params.kern; })
        if (params.func == nullptr) return reinterpret_cast<CUfunction>(params.kern);
    return params.func;
}

template <typename Params>
void pin_kernel(const Params* params) noexcept {
    if (params == nullptr) return;
    pin(kPinCaptured, kInGraph, [&](Submission& work) {
        scan_parameters(work, kernel_info(function_of(*params)), params->kernelParams,
                        params->extra);
    });
}

void pin_copy(const CUDA_MEMCPY3D* copy) noexcept {
    if (copy == nullptr) return;
    pin(kPinCaptured, kInGraph, [&](Submission& work) {
        // The whole blocks: what a pitched copy spans inside them does not matter for a pin.
        work.word(copy->srcDevice);
        work.word(copy->dstDevice);
    });
}

template <typename Params>
void pin_fill(const Params* params) noexcept {
    if (params == nullptr) return;
    pin(kPinCaptured, kInGraph, [&](Submission& work) { work.word(params->dst); });
}

template <typename Params>
void pin_operations(const Params* params) noexcept {
    if (params != nullptr) pin_polled(params->paramArray, params->count);
}

template <typename Params>
void pin_copies(const Params& params) noexcept {
    pin(kPinCaptured, kInGraph, [&](Submission& work) {
        for (std::size_t i = 0; i < params.count; ++i) {
            work.range(params.dsts[i], params.sizes[i]);
            work.range(params.srcs[i], params.sizes[i]);
        }
    });
}

template <typename Params>
void pin_fabric_copies(const Params& params) noexcept {
    constexpr int kPointer = 1;  // CU_FABRIC_COPY_OPERAND_TYPE_POINTER
    pin(kPinCaptured, kInGraph, [&](Submission& work) {
        for (std::size_t i = 0; i < params.numOps; ++i)
            for (const auto* side : {&params.opList[i].src, &params.opList[i].dst})
                if (static_cast<int>(side->type) == kPointer)
                    work.range(side->op.ptr.ptr, params.opList[i].size);
    });
}

// A template, so that kinds of nodes which this cuda.h does not know are left out. Child graphs
// hold nodes that were pinned when they were added.
template <typename Params>
void pin_node(const Params* params) noexcept {
    if (params == nullptr) return;
    constexpr int kCopyBatch = 14;    // CU_GRAPH_NODE_TYPE_MEMCPY_BATCH
    constexpr int kFabricBatch = 18;  // CU_GRAPH_NODE_TYPE_FABRIC_CPY_BATCH
    const int type = params->type;
    if (type == CU_GRAPH_NODE_TYPE_KERNEL) pin_kernel(&params->kernel);
    if (type == CU_GRAPH_NODE_TYPE_MEMCPY) pin_copy(&params->memcpy.copyParams);
    if (type == CU_GRAPH_NODE_TYPE_MEMSET) pin_fill(&params->memset);
    if (type == CU_GRAPH_NODE_TYPE_BATCH_MEM_OP) pin_operations(&params->memOp);
    if constexpr (requires { params->memcpyBatch; })
        if (type == kCopyBatch) pin_copies(params->memcpyBatch);
    if constexpr (requires { params->fabricCpyBatch; })
        if (type == kFabricBatch) pin_fabric_copies(params->fabricCpyBatch);
}

}  // namespace
}  // namespace transit

extern "C" {

CUresult hook_cuGraphAddKernelNode_v2(CUgraphNode* node, CUgraph graph, const CUgraphNode* after,
                                      size_t count, const CUDA_KERNEL_NODE_PARAMS* params) {
    transit::pin_kernel(params);
    return real_cuGraphAddKernelNode_v2(node, graph, after, count, params);
}

CUresult hook_cuGraphAddMemcpyNode(CUgraphNode* node, CUgraph graph, const CUgraphNode* after,
                                   size_t count, const CUDA_MEMCPY3D* copy, CUcontext context) {
    transit::pin_copy(copy);
    return real_cuGraphAddMemcpyNode(node, graph, after, count, copy, context);
}

CUresult hook_cuGraphAddMemsetNode(CUgraphNode* node, CUgraph graph, const CUgraphNode* after,
                                   size_t count, const CUDA_MEMSET_NODE_PARAMS* params,
                                   CUcontext context) {
    transit::pin_fill(params);
    return real_cuGraphAddMemsetNode(node, graph, after, count, params, context);
}

CUresult hook_cuGraphAddNode_v2(CUgraphNode* node, CUgraph graph, const CUgraphNode* after,
                                const CUgraphEdgeData* edges, size_t count,
                                CUgraphNodeParams* params) {
    transit::pin_node(params);
    return real_cuGraphAddNode_v2(node, graph, after, edges, count, params);
}

CUresult hook_cuGraphKernelNodeSetParams_v2(CUgraphNode node,
                                            const CUDA_KERNEL_NODE_PARAMS* params) {
    transit::pin_kernel(params);
    return real_cuGraphKernelNodeSetParams_v2(node, params);
}

CUresult hook_cuGraphExecKernelNodeSetParams_v2(CUgraphExec graph, CUgraphNode node,
                                                const CUDA_KERNEL_NODE_PARAMS* params) {
    transit::pin_kernel(params);
    return real_cuGraphExecKernelNodeSetParams_v2(graph, node, params);
}

CUresult hook_cuGraphExecMemcpyNodeSetParams(CUgraphExec graph, CUgraphNode node,
                                             const CUDA_MEMCPY3D* copy, CUcontext context) {
    transit::pin_copy(copy);
    return real_cuGraphExecMemcpyNodeSetParams(graph, node, copy, context);
}

CUresult hook_cuGraphExecMemsetNodeSetParams(CUgraphExec graph, CUgraphNode node,
                                             const CUDA_MEMSET_NODE_PARAMS* params,
                                             CUcontext context) {
    transit::pin_fill(params);
    return real_cuGraphExecMemsetNodeSetParams(graph, node, params, context);
}

CUresult hook_cuGraphNodeSetParams(CUgraphNode node, CUgraphNodeParams* params) {
    transit::pin_node(params);
    return real_cuGraphNodeSetParams(node, params);
}

CUresult hook_cuGraphExecNodeSetParams(CUgraphExec graph, CUgraphNode node,
                                       CUgraphNodeParams* params) {
    transit::pin_node(params);
    return real_cuGraphExecNodeSetParams(graph, node, params);
}

CUresult hook_cuGraphAddKernelNode(CUgraphNode* node, CUgraph graph, const CUgraphNode* after,
                                   size_t count, const CUDA_KERNEL_NODE_PARAMS_v1* params) {
    transit::pin_kernel(params);
    return real_cuGraphAddKernelNode(node, graph, after, count, params);
}

CUresult hook_cuGraphKernelNodeSetParams(CUgraphNode node,
                                         const CUDA_KERNEL_NODE_PARAMS_v1* params) {
    transit::pin_kernel(params);
    return real_cuGraphKernelNodeSetParams(node, params);
}

CUresult hook_cuGraphExecKernelNodeSetParams(CUgraphExec graph, CUgraphNode node,
                                             const CUDA_KERNEL_NODE_PARAMS_v1* params) {
    transit::pin_kernel(params);
    return real_cuGraphExecKernelNodeSetParams(graph, node, params);
}

CUresult hook_cuGraphAddNode(CUgraphNode* node, CUgraph graph, const CUgraphNode* after,
                             size_t count, CUgraphNodeParams* params) {
    transit::pin_node(params);
    return real_cuGraphAddNode(node, graph, after, count, params);
}

CUresult hook_cuGraphAddNode_v3(CUgraphNode* node, CUgraph graph, const CUgraphNode* after,
                                const CUgraphEdgeData* edges, size_t count,
                                CUgraphNodeParams* params) {
    transit::pin_node(params);
    return real_cuGraphAddNode_v3(node, graph, after, edges, count, params);
}

CUresult hook_cuGraphNodeSetParams_v2(CUgraphNode node, CUgraphNodeParams* params) {
    transit::pin_node(params);
    return real_cuGraphNodeSetParams_v2(node, params);
}

CUresult hook_cuGraphMemcpyNodeSetParams(CUgraphNode node, const CUDA_MEMCPY3D* copy) {
    transit::pin_copy(copy);
    return real_cuGraphMemcpyNodeSetParams(node, copy);
}

CUresult hook_cuGraphMemsetNodeSetParams(CUgraphNode node, const CUDA_MEMSET_NODE_PARAMS* params) {
    transit::pin_fill(params);
    return real_cuGraphMemsetNodeSetParams(node, params);
}

CUresult hook_cuGraphAddBatchMemOpNode(CUgraphNode* node, CUgraph graph, const CUgraphNode* after,
                                       size_t count, const CUDA_BATCH_MEM_OP_NODE_PARAMS* params) {
    transit::pin_operations(params);
    return real_cuGraphAddBatchMemOpNode(node, graph, after, count, params);
}

CUresult hook_cuGraphBatchMemOpNodeSetParams(CUgraphNode node,
                                             const CUDA_BATCH_MEM_OP_NODE_PARAMS* params) {
    transit::pin_operations(params);
    return real_cuGraphBatchMemOpNodeSetParams(node, params);
}

CUresult hook_cuGraphExecBatchMemOpNodeSetParams(CUgraphExec graph, CUgraphNode node,
                                                 const CUDA_BATCH_MEM_OP_NODE_PARAMS* params) {
    transit::pin_operations(params);
    return real_cuGraphExecBatchMemOpNodeSetParams(graph, node, params);
}

}  // extern "C"
