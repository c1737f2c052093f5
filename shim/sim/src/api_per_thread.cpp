// The _ptsz forms: a NULL stream means the calling thread's own. They log under the plain name.
#include "cuda_api.hpp"

namespace transit::sim {
namespace {

CUstream own(CUstream stream) { return stream == nullptr ? CU_STREAM_PER_THREAD : stream; }

}  // namespace
}  // namespace transit::sim

using namespace transit::sim;

extern "C" {

CUresult CUDAAPI cuStreamBeginCapture_ptsz(CUstream stream) {
    return cuStreamBeginCapture(own(stream));
}
CUresult CUDAAPI cuStreamBeginCapture_v2_ptsz(CUstream stream, CUstreamCaptureMode mode) {
    return cuStreamBeginCapture_v2(own(stream), mode);
}
CUresult CUDAAPI cuStreamBeginCaptureToGraph_ptsz(CUstream stream, CUgraph graph,
                                                  const CUgraphNode* a, const CUgraphEdgeData* b,
                                                  size_t c, CUstreamCaptureMode mode) {
    return cuStreamBeginCaptureToGraph(own(stream), graph, a, b, c, mode);
}
CUresult CUDAAPI cuStreamEndCapture_ptsz(CUstream handle, CUgraph* graph) {
    return cuStreamEndCapture(own(handle), graph);
}
CUresult CUDAAPI cuStreamIsCapturing_ptsz(CUstream stream, CUstreamCaptureStatus* status) {
    return cuStreamIsCapturing(own(stream), status);
}
CUresult CUDAAPI cuStreamGetCaptureInfo_ptsz(CUstream stream, CUstreamCaptureStatus* status,
                                             cuuint64_t* id) {
    return cuStreamGetCaptureInfo(own(stream), status, id);
}
CUresult CUDAAPI cuStreamGetCaptureInfo_v2_ptsz(CUstream stream, CUstreamCaptureStatus* status,
                                                cuuint64_t* id, CUgraph* graph,
                                                const CUgraphNode** nodes, size_t* count) {
    return cuStreamGetCaptureInfo_v2(own(stream), status, id, graph, nodes, count);
}
CUresult CUDAAPI cuStreamGetCaptureInfo_v3_ptsz(CUstream stream, CUstreamCaptureStatus* status,
                                                cuuint64_t* id, CUgraph* graph,
                                                const CUgraphNode** nodes,
                                                const CUgraphEdgeData** edges, size_t* count) {
    return cuStreamGetCaptureInfo_v3(own(stream), status, id, graph, nodes, edges, count);
}
CUresult CUDAAPI cuMemcpyAsync_ptsz(CUdeviceptr dst, CUdeviceptr src, size_t bytes,
                                    CUstream stream) {
    return cuMemcpyAsync(dst, src, bytes, own(stream));
}
CUresult CUDAAPI cuMemcpyPeerAsync_ptsz(CUdeviceptr dst, CUcontext a, CUdeviceptr src, CUcontext b,
                                        size_t bytes, CUstream stream) {
    return cuMemcpyPeerAsync(dst, a, src, b, bytes, own(stream));
}
CUresult CUDAAPI cuMemcpyHtoDAsync_v2_ptsz(CUdeviceptr dst, const void* src, size_t bytes,
                                           CUstream stream) {
    return cuMemcpyHtoDAsync_v2(dst, src, bytes, own(stream));
}
CUresult CUDAAPI cuMemcpyDtoHAsync_v2_ptsz(void* dst, CUdeviceptr src, size_t bytes,
                                           CUstream stream) {
    return cuMemcpyDtoHAsync_v2(dst, src, bytes, own(stream));
}
CUresult CUDAAPI cuMemcpyDtoDAsync_v2_ptsz(CUdeviceptr dst, CUdeviceptr src, size_t bytes,
                                           CUstream stream) {
    return cuMemcpyDtoDAsync_v2(dst, src, bytes, own(stream));
}
CUresult CUDAAPI cuMemcpy2DAsync_v2_ptsz(const CUDA_MEMCPY2D* copy, CUstream stream) {
    return cuMemcpy2DAsync_v2(copy, own(stream));
}
CUresult CUDAAPI cuMemcpy3DAsync_v2_ptsz(const CUDA_MEMCPY3D* copy, CUstream stream) {
    return cuMemcpy3DAsync_v2(copy, own(stream));
}
CUresult CUDAAPI cuMemcpyBatchAsync_ptsz(CUdeviceptr* dsts, CUdeviceptr* srcs, size_t* sizes,
                                         size_t count, CUmemcpyAttributes* a, size_t* b, size_t c,
                                         size_t* failed_at, CUstream stream) {
    return cuMemcpyBatchAsync(dsts, srcs, sizes, count, a, b, c, failed_at, own(stream));
}
CUresult CUDAAPI cuMemcpyBatchAsync_v2_ptsz(CUdeviceptr* dsts, CUdeviceptr* srcs, size_t* sizes,
                                            size_t count, CUmemcpyAttributes* a, size_t* b,
                                            size_t c, CUstream stream) {
    return cuMemcpyBatchAsync_v2(dsts, srcs, sizes, count, a, b, c, own(stream));
}
CUresult CUDAAPI cuMemcpy3DPeerAsync_ptsz(const CUDA_MEMCPY3D_PEER* copy, CUstream stream) {
    return cuMemcpy3DPeerAsync(copy, own(stream));
}
CUresult CUDAAPI cuMemcpy3DBatchAsync_ptsz(size_t count, CUDA_MEMCPY3D_BATCH_OP* copies,
                                           size_t* failed_at, unsigned long long flags,
                                           CUstream stream) {
    return cuMemcpy3DBatchAsync(count, copies, failed_at, flags, own(stream));
}
CUresult CUDAAPI cuMemcpy3DBatchAsync_v2_ptsz(size_t count, CUDA_MEMCPY3D_BATCH_OP* copies,
                                              unsigned long long flags, CUstream stream) {
    return cuMemcpy3DBatchAsync_v2(count, copies, flags, own(stream));
}
CUresult CUDAAPI cuMemcpy3DWithAttributesAsync_ptsz(CUDA_MEMCPY3D_BATCH_OP* copy,
                                                    unsigned long long flags, CUstream stream) {
    return cuMemcpy3DWithAttributesAsync(copy, flags, own(stream));
}
CUresult CUDAAPI cuMemcpyWithAttributesAsync_ptsz(CUdeviceptr dst, CUdeviceptr src, size_t bytes,
                                                  CUmemcpyAttributes* a, CUstream stream) {
    return cuMemcpyWithAttributesAsync(dst, src, bytes, a, own(stream));
}
CUresult CUDAAPI cuEventRecord_ptsz(CUevent event, CUstream stream) {
    return cuEventRecord(event, own(stream));
}
CUresult CUDAAPI cuEventRecordWithFlags_ptsz(CUevent event, CUstream stream, unsigned int a) {
    return cuEventRecordWithFlags(event, own(stream), a);
}
CUresult CUDAAPI cuStreamWaitEvent_ptsz(CUstream stream_handle, CUevent handle, unsigned int a) {
    return cuStreamWaitEvent(own(stream_handle), handle, a);
}
CUresult CUDAAPI cuGraphUpload_ptsz(CUgraphExec executable, CUstream stream) {
    return cuGraphUpload(executable, own(stream));
}
CUresult CUDAAPI cuGraphLaunch_ptsz(CUgraphExec executable, CUstream handle) {
    return cuGraphLaunch(executable, own(handle));
}
CUresult CUDAAPI cuLaunchKernel_ptsz(CUfunction function, unsigned int grid_x, unsigned int grid_y,
                                     unsigned int grid_z, unsigned int block_x,
                                     unsigned int block_y, unsigned int block_z,
                                     unsigned int shared_bytes, CUstream stream, void** parameters,
                                     void** extra) {
    return cuLaunchKernel(function, grid_x, grid_y, grid_z, block_x, block_y, block_z, shared_bytes,
                          own(stream), parameters, extra);
}
CUresult CUDAAPI cuLaunchCooperativeKernel_ptsz(CUfunction function, unsigned int grid_x,
                                                unsigned int grid_y, unsigned int grid_z,
                                                unsigned int block_x, unsigned int block_y,
                                                unsigned int block_z, unsigned int shared_bytes,
                                                CUstream stream, void** parameters) {
    return cuLaunchCooperativeKernel(function, grid_x, grid_y, grid_z, block_x, block_y, block_z,
                                     shared_bytes, own(stream), parameters);
}
CUresult CUDAAPI cuStreamWriteValue32_ptsz(CUstream stream, CUdeviceptr address, cuuint32_t value,
                                           unsigned int a) {
    return cuStreamWriteValue32(own(stream), address, value, a);
}
CUresult CUDAAPI cuStreamWriteValue32_v2_ptsz(CUstream stream, CUdeviceptr address,
                                              cuuint32_t value, unsigned int a) {
    return cuStreamWriteValue32_v2(own(stream), address, value, a);
}
CUresult CUDAAPI cuStreamWriteValue64_ptsz(CUstream stream, CUdeviceptr address, cuuint64_t value,
                                           unsigned int a) {
    return cuStreamWriteValue64(own(stream), address, value, a);
}
CUresult CUDAAPI cuStreamWriteValue64_v2_ptsz(CUstream stream, CUdeviceptr address,
                                              cuuint64_t value, unsigned int a) {
    return cuStreamWriteValue64_v2(own(stream), address, value, a);
}
CUresult CUDAAPI cuStreamWaitValue32_ptsz(CUstream stream, CUdeviceptr address, cuuint32_t value,
                                          unsigned int flags) {
    return cuStreamWaitValue32(own(stream), address, value, flags);
}
CUresult CUDAAPI cuStreamWaitValue32_v2_ptsz(CUstream stream, CUdeviceptr address, cuuint32_t value,
                                             unsigned int flags) {
    return cuStreamWaitValue32_v2(own(stream), address, value, flags);
}
CUresult CUDAAPI cuStreamWaitValue64_ptsz(CUstream stream, CUdeviceptr address, cuuint64_t value,
                                          unsigned int flags) {
    return cuStreamWaitValue64(own(stream), address, value, flags);
}
CUresult CUDAAPI cuStreamWaitValue64_v2_ptsz(CUstream stream, CUdeviceptr address, cuuint64_t value,
                                             unsigned int flags) {
    return cuStreamWaitValue64_v2(own(stream), address, value, flags);
}
CUresult CUDAAPI cuMemsetD8Async_ptsz(CUdeviceptr dst, unsigned char value, size_t count,
                                      CUstream stream) {
    return cuMemsetD8Async(dst, value, count, own(stream));
}
CUresult CUDAAPI cuMemsetD2D8Async_ptsz(CUdeviceptr dst, size_t pitch, unsigned char value,
                                        size_t width, size_t height, CUstream stream) {
    return cuMemsetD2D8Async(dst, pitch, value, width, height, own(stream));
}
CUresult CUDAAPI cuMemsetD16Async_ptsz(CUdeviceptr dst, unsigned short value, size_t count,
                                       CUstream stream) {
    return cuMemsetD16Async(dst, value, count, own(stream));
}
CUresult CUDAAPI cuMemsetD2D16Async_ptsz(CUdeviceptr dst, size_t pitch, unsigned short value,
                                         size_t width, size_t height, CUstream stream) {
    return cuMemsetD2D16Async(dst, pitch, value, width, height, own(stream));
}
CUresult CUDAAPI cuMemsetD32Async_ptsz(CUdeviceptr dst, unsigned int value, size_t count,
                                       CUstream stream) {
    return cuMemsetD32Async(dst, value, count, own(stream));
}
CUresult CUDAAPI cuMemsetD2D32Async_ptsz(CUdeviceptr dst, size_t pitch, unsigned int value,
                                         size_t width, size_t height, CUstream stream) {
    return cuMemsetD2D32Async(dst, pitch, value, width, height, own(stream));
}
CUresult CUDAAPI cuMemAllocAsync_ptsz(CUdeviceptr* address, size_t bytes, CUstream stream) {
    return cuMemAllocAsync(address, bytes, own(stream));
}
CUresult CUDAAPI cuMemAllocFromPoolAsync_ptsz(CUdeviceptr* address, size_t bytes,
                                              CUmemoryPool handle, CUstream stream) {
    return cuMemAllocFromPoolAsync(address, bytes, handle, own(stream));
}
CUresult CUDAAPI cuMemFreeAsync_ptsz(CUdeviceptr address, CUstream stream) {
    return cuMemFreeAsync(address, own(stream));
}
CUresult CUDAAPI cuStreamSynchronize_ptsz(CUstream handle) {
    return cuStreamSynchronize(own(handle));
}
CUresult CUDAAPI cuStreamQuery_ptsz(CUstream handle) { return cuStreamQuery(own(handle)); }
CUresult CUDAAPI cuStreamGetFlags_ptsz(CUstream handle, unsigned int* flags) {
    return cuStreamGetFlags(own(handle), flags);
}
CUresult CUDAAPI cuStreamGetPriority_ptsz(CUstream handle, int* priority) {
    return cuStreamGetPriority(own(handle), priority);
}
CUresult CUDAAPI cuStreamGetId_ptsz(CUstream handle, unsigned long long* id) {
    return cuStreamGetId(own(handle), id);
}
CUresult CUDAAPI cuStreamGetCtx_ptsz(CUstream handle, CUcontext* context) {
    return cuStreamGetCtx(own(handle), context);
}
CUresult CUDAAPI cuStreamGetCtx_v2_ptsz(CUstream handle, CUcontext* context, CUgreenCtx* green) {
    return cuStreamGetCtx_v2(own(handle), context, green);
}
CUresult CUDAAPI cuStreamGetDevice_ptsz(CUstream handle, CUdevice* device) {
    return cuStreamGetDevice(own(handle), device);
}
CUresult CUDAAPI cuLaunchHostFunc_ptsz(CUstream handle, CUhostFn function, void* user) {
    return cuLaunchHostFunc(own(handle), function, user);
}
CUresult CUDAAPI cuStreamAddCallback_ptsz(CUstream handle, CUstreamCallback callback, void* user,
                                          unsigned int flags) {
    return cuStreamAddCallback(own(handle), callback, user, flags);
}
CUresult CUDAAPI cuLaunchKernelEx_ptsz(const CUlaunchConfig* config, CUfunction function,
                                       void** parameters, void** extra) {
    if (config == nullptr) {
        return CUDA_ERROR_INVALID_VALUE;
    }
    CUlaunchConfig changed = *config;
    changed.hStream = own(config->hStream);
    return cuLaunchKernelEx(&changed, function, parameters, extra);
}

}  // extern "C"
