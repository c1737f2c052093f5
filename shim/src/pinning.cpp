// Graphs built node by node, and memory that the GPU's front end polls: addresses that outlive the
// call which names them. What they reach is pinned where it is; a graph that is replayed later
// names nothing.
#include "transit/hooks.hpp"
#include "transit/kernels.hpp"
#include "transit/real.hpp"

namespace transit {
namespace {

template <typename Name>
void pin(std::uint32_t reason, const char* words, Name&& name_extents) noexcept {
    Device* device = Device::active();
    if (device == nullptr) return;
    Submission work(*device, nullptr, false);
    name_extents(work);
    if (work.open_for_graph() != CUDA_SUCCESS) return;
    if (work.names_everything()) device->freeze();
    work.pin(reason, words);
}

template <typename Params>
void pin_kernel(const Params* params) noexcept {
    if (params == nullptr) return;
    pin(kPinCaptured, "in a CUDA graph", [&](Submission& work) {
        const auto function =
            params->func != nullptr ? params->func : reinterpret_cast<CUfunction>(params->kern);
        scan_parameters(work, kernel_info(function), params->kernelParams, params->extra);
    });
}

void pin_copy(const CUDA_MEMCPY3D* copy) noexcept {
    if (copy == nullptr) return;
    pin(kPinCaptured, "in a CUDA graph", [&](Submission& work) {
        // The whole blocks: what a pitched copy spans inside them does not matter for a pin.
        work.word(copy->srcDevice);
        work.word(copy->dstDevice);
    });
}

void pin_address(CUdeviceptr address, std::uint32_t reason, const char* words) noexcept {
    pin(reason, words, [&](Submission& work) { work.word(address); });
}

// A stream waits for or writes the word: the front end reaches it by address, whenever it comes to
// it.
void pin_polled(CUdeviceptr address) noexcept {
    pin_address(address, kPinSemaphore, "polled by the GPU's front end");
}

void pin_polled(const CUstreamBatchMemOpParams* operations, unsigned count) noexcept {
    for (unsigned i = 0; operations != nullptr && i < count; ++i)
        pin_polled(operations[i].waitValue.address);
}

void pin_node(const CUgraphNodeParams* params) noexcept {
    if (params == nullptr) return;
    if (params->type == CU_GRAPH_NODE_TYPE_KERNEL) pin_kernel(&params->kernel);
    if (params->type == CU_GRAPH_NODE_TYPE_MEMCPY) pin_copy(&params->memcpy.copyParams);
    if (params->type == CU_GRAPH_NODE_TYPE_MEMSET)
        pin_address(params->memset.dst, kPinCaptured, "in a CUDA graph");
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
    if (params != nullptr)
        transit::pin_address(params->dst, transit::kPinCaptured, "in a CUDA graph");
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
    if (params != nullptr)
        transit::pin_address(params->dst, transit::kPinCaptured, "in a CUDA graph");
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

CUresult hook_cuStreamWaitValue32(CUstream stream, CUdeviceptr address, cuuint32_t value,
                                  unsigned flags) {
    transit::pin_polled(address);
    return real_cuStreamWaitValue32(stream, address, value, flags);
}

CUresult hook_cuStreamWaitValue32_ptsz(CUstream stream, CUdeviceptr address, cuuint32_t value,
                                       unsigned flags) {
    transit::pin_polled(address);
    return real_cuStreamWaitValue32_ptsz(stream, address, value, flags);
}

CUresult hook_cuStreamWaitValue32_v2(CUstream stream, CUdeviceptr address, cuuint32_t value,
                                     unsigned flags) {
    transit::pin_polled(address);
    return real_cuStreamWaitValue32_v2(stream, address, value, flags);
}

CUresult hook_cuStreamWaitValue32_v2_ptsz(CUstream stream, CUdeviceptr address, cuuint32_t value,
                                          unsigned flags) {
    transit::pin_polled(address);
    return real_cuStreamWaitValue32_v2_ptsz(stream, address, value, flags);
}

CUresult hook_cuStreamWaitValue64(CUstream stream, CUdeviceptr address, cuuint64_t value,
                                  unsigned flags) {
    transit::pin_polled(address);
    return real_cuStreamWaitValue64(stream, address, value, flags);
}

CUresult hook_cuStreamWaitValue64_ptsz(CUstream stream, CUdeviceptr address, cuuint64_t value,
                                       unsigned flags) {
    transit::pin_polled(address);
    return real_cuStreamWaitValue64_ptsz(stream, address, value, flags);
}

CUresult hook_cuStreamWaitValue64_v2(CUstream stream, CUdeviceptr address, cuuint64_t value,
                                     unsigned flags) {
    transit::pin_polled(address);
    return real_cuStreamWaitValue64_v2(stream, address, value, flags);
}

CUresult hook_cuStreamWaitValue64_v2_ptsz(CUstream stream, CUdeviceptr address, cuuint64_t value,
                                          unsigned flags) {
    transit::pin_polled(address);
    return real_cuStreamWaitValue64_v2_ptsz(stream, address, value, flags);
}

CUresult hook_cuStreamWriteValue32(CUstream stream, CUdeviceptr address, cuuint32_t value,
                                   unsigned flags) {
    transit::pin_polled(address);
    return real_cuStreamWriteValue32(stream, address, value, flags);
}

CUresult hook_cuStreamWriteValue32_ptsz(CUstream stream, CUdeviceptr address, cuuint32_t value,
                                        unsigned flags) {
    transit::pin_polled(address);
    return real_cuStreamWriteValue32_ptsz(stream, address, value, flags);
}

CUresult hook_cuStreamWriteValue32_v2(CUstream stream, CUdeviceptr address, cuuint32_t value,
                                      unsigned flags) {
    transit::pin_polled(address);
    return real_cuStreamWriteValue32_v2(stream, address, value, flags);
}

CUresult hook_cuStreamWriteValue32_v2_ptsz(CUstream stream, CUdeviceptr address, cuuint32_t value,
                                           unsigned flags) {
    transit::pin_polled(address);
    return real_cuStreamWriteValue32_v2_ptsz(stream, address, value, flags);
}

CUresult hook_cuStreamWriteValue64(CUstream stream, CUdeviceptr address, cuuint64_t value,
                                   unsigned flags) {
    transit::pin_polled(address);
    return real_cuStreamWriteValue64(stream, address, value, flags);
}

CUresult hook_cuStreamWriteValue64_ptsz(CUstream stream, CUdeviceptr address, cuuint64_t value,
                                        unsigned flags) {
    transit::pin_polled(address);
    return real_cuStreamWriteValue64_ptsz(stream, address, value, flags);
}

CUresult hook_cuStreamWriteValue64_v2(CUstream stream, CUdeviceptr address, cuuint64_t value,
                                      unsigned flags) {
    transit::pin_polled(address);
    return real_cuStreamWriteValue64_v2(stream, address, value, flags);
}

CUresult hook_cuStreamWriteValue64_v2_ptsz(CUstream stream, CUdeviceptr address, cuuint64_t value,
                                           unsigned flags) {
    transit::pin_polled(address);
    return real_cuStreamWriteValue64_v2_ptsz(stream, address, value, flags);
}

CUresult hook_cuStreamBatchMemOp(CUstream stream, unsigned count,
                                 CUstreamBatchMemOpParams* operations, unsigned flags) {
    transit::pin_polled(operations, count);
    return real_cuStreamBatchMemOp(stream, count, operations, flags);
}

CUresult hook_cuStreamBatchMemOp_ptsz(CUstream stream, unsigned count,
                                      CUstreamBatchMemOpParams* operations, unsigned flags) {
    transit::pin_polled(operations, count);
    return real_cuStreamBatchMemOp_ptsz(stream, count, operations, flags);
}

CUresult hook_cuStreamBatchMemOp_v2(CUstream stream, unsigned count,
                                    CUstreamBatchMemOpParams* operations, unsigned flags) {
    transit::pin_polled(operations, count);
    return real_cuStreamBatchMemOp_v2(stream, count, operations, flags);
}

CUresult hook_cuStreamBatchMemOp_v2_ptsz(CUstream stream, unsigned count,
                                         CUstreamBatchMemOpParams* operations, unsigned flags) {
    transit::pin_polled(operations, count);
    return real_cuStreamBatchMemOp_v2_ptsz(stream, count, operations, flags);
}

}  // extern "C"
