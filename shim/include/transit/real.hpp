#pragma once
// The driver functions the shim itself calls, as the real driver has them: each is a jump through
// the slot table (symbols/emit.py), so a call costs one indirect jump and never comes back through
// our own doors.
#include <cuda.h>

extern "C" {
#define TRANSIT_REAL(name) extern decltype(::name) real_##name
#define TRANSIT_REAL_AS(name, like) extern decltype(::like) real_##name
// clang-format off
TRANSIT_REAL(cuCtxGetCurrent); TRANSIT_REAL(cuCtxSetCurrent); TRANSIT_REAL(cuCtxPushCurrent_v2); TRANSIT_REAL(cuCtxPopCurrent_v2); TRANSIT_REAL(cuStreamGetCtx); TRANSIT_REAL(cuEventDestroy_v2); TRANSIT_REAL(cuCtxGetDevice);
TRANSIT_REAL(cuCtxSynchronize); TRANSIT_REAL(cuDevicePrimaryCtxRetain);
TRANSIT_REAL_AS(cuDevicePrimaryCtxRelease_v2, cuDevicePrimaryCtxRelease); TRANSIT_REAL(cuDevicePrimaryCtxGetState);
TRANSIT_REAL_AS(cuDevicePrimaryCtxReset, cuDevicePrimaryCtxReset); TRANSIT_REAL_AS(cuDevicePrimaryCtxReset_v2, cuDevicePrimaryCtxReset);
TRANSIT_REAL(cuDeviceGetAttribute); TRANSIT_REAL(cuDeviceTotalMem_v2);
TRANSIT_REAL(cuMemAlloc_v2); TRANSIT_REAL(cuMemFree_v2); TRANSIT_REAL(cuMemGetInfo_v2);
TRANSIT_REAL(cuMemGetAddressRange_v2); TRANSIT_REAL(cuPointerGetAttribute); TRANSIT_REAL(cuPointerGetAttributes);
TRANSIT_REAL(cuIpcGetMemHandle); TRANSIT_REAL(cuMemRetainAllocationHandle); TRANSIT_REAL(cuMemGetHandleForAddressRange);
TRANSIT_REAL(cuCtxEnablePeerAccess); TRANSIT_REAL(cuCtxDisablePeerAccess);
TRANSIT_REAL(cuMemAllocAsync); TRANSIT_REAL_AS(cuMemAllocAsync_ptsz, cuMemAllocAsync);
TRANSIT_REAL(cuMemAllocFromPoolAsync); TRANSIT_REAL_AS(cuMemAllocFromPoolAsync_ptsz, cuMemAllocFromPoolAsync);
TRANSIT_REAL(cuMemFreeAsync); TRANSIT_REAL_AS(cuMemFreeAsync_ptsz, cuMemFreeAsync);
TRANSIT_REAL(cuDeviceGetDefaultMemPool); TRANSIT_REAL(cuDeviceGetMemPool);
TRANSIT_REAL(cuMemPoolGetAttribute); TRANSIT_REAL(cuMemPoolSetAttribute); TRANSIT_REAL(cuStreamWaitEvent);
TRANSIT_REAL(cuMemAddressFree); TRANSIT_REAL(cuMemExportToShareableHandle); TRANSIT_REAL(cuMemPoolSetAccess);
CUresult real_cuEventElapsedTime(float* ms, CUevent start, CUevent end);
TRANSIT_REAL(cuModuleUnload); TRANSIT_REAL(cuLibraryUnload);
TRANSIT_REAL(cuFuncGetName); TRANSIT_REAL(cuKernelGetName); TRANSIT_REAL(cuFuncGetParamInfo); TRANSIT_REAL(cuKernelGetParamInfo);
TRANSIT_REAL(cuMemAddressReserve); TRANSIT_REAL(cuMemCreate); TRANSIT_REAL(cuMemRelease); TRANSIT_REAL(cuMemMap);
TRANSIT_REAL(cuMemUnmap); TRANSIT_REAL(cuMemSetAccess);
TRANSIT_REAL(cuStreamCreate); TRANSIT_REAL(cuStreamSynchronize); TRANSIT_REAL(cuStreamIsCapturing); TRANSIT_REAL(cuStreamDestroy_v2);
TRANSIT_REAL(cuEventCreate); TRANSIT_REAL(cuEventRecord); TRANSIT_REAL(cuEventQuery); TRANSIT_REAL(cuEventSynchronize);
TRANSIT_REAL(cuThreadExchangeStreamCaptureMode);
TRANSIT_REAL(cuLaunchKernel); TRANSIT_REAL_AS(cuLaunchKernel_ptsz, cuLaunchKernel);
TRANSIT_REAL(cuLaunchKernelEx); TRANSIT_REAL_AS(cuLaunchKernelEx_ptsz, cuLaunchKernelEx);
TRANSIT_REAL(cuLaunchCooperativeKernel); TRANSIT_REAL_AS(cuLaunchCooperativeKernel_ptsz, cuLaunchCooperativeKernel);
TRANSIT_REAL(cuMemcpy); TRANSIT_REAL_AS(cuMemcpy_ptds, cuMemcpy);
TRANSIT_REAL(cuMemcpyAsync); TRANSIT_REAL_AS(cuMemcpyAsync_ptsz, cuMemcpyAsync);
TRANSIT_REAL(cuMemcpyPeer); TRANSIT_REAL_AS(cuMemcpyPeer_ptds, cuMemcpyPeer);
TRANSIT_REAL(cuMemcpyPeerAsync); TRANSIT_REAL_AS(cuMemcpyPeerAsync_ptsz, cuMemcpyPeerAsync);
TRANSIT_REAL(cuMemcpyHtoD_v2); TRANSIT_REAL_AS(cuMemcpyHtoD_v2_ptds, cuMemcpyHtoD_v2);
TRANSIT_REAL(cuMemcpyDtoH_v2); TRANSIT_REAL_AS(cuMemcpyDtoH_v2_ptds, cuMemcpyDtoH_v2);
TRANSIT_REAL(cuMemcpyDtoD_v2); TRANSIT_REAL_AS(cuMemcpyDtoD_v2_ptds, cuMemcpyDtoD_v2);
TRANSIT_REAL(cuMemcpyHtoDAsync_v2); TRANSIT_REAL_AS(cuMemcpyHtoDAsync_v2_ptsz, cuMemcpyHtoDAsync_v2);
TRANSIT_REAL(cuMemcpyDtoHAsync_v2); TRANSIT_REAL_AS(cuMemcpyDtoHAsync_v2_ptsz, cuMemcpyDtoHAsync_v2);
TRANSIT_REAL(cuMemcpyDtoDAsync_v2); TRANSIT_REAL_AS(cuMemcpyDtoDAsync_v2_ptsz, cuMemcpyDtoDAsync_v2);
TRANSIT_REAL(cuMemcpy2D_v2); TRANSIT_REAL_AS(cuMemcpy2D_v2_ptds, cuMemcpy2D_v2);
TRANSIT_REAL(cuMemcpy2DUnaligned_v2); TRANSIT_REAL_AS(cuMemcpy2DUnaligned_v2_ptds, cuMemcpy2DUnaligned_v2);
TRANSIT_REAL(cuMemcpy2DAsync_v2); TRANSIT_REAL_AS(cuMemcpy2DAsync_v2_ptsz, cuMemcpy2DAsync_v2);
TRANSIT_REAL(cuMemcpy3D_v2); TRANSIT_REAL_AS(cuMemcpy3D_v2_ptds, cuMemcpy3D_v2);
TRANSIT_REAL(cuMemcpy3DAsync_v2); TRANSIT_REAL_AS(cuMemcpy3DAsync_v2_ptsz, cuMemcpy3DAsync_v2);
TRANSIT_REAL(cuMemcpy3DPeer); TRANSIT_REAL_AS(cuMemcpy3DPeer_ptds, cuMemcpy3DPeer);
TRANSIT_REAL(cuMemcpy3DPeerAsync); TRANSIT_REAL_AS(cuMemcpy3DPeerAsync_ptsz, cuMemcpy3DPeerAsync);
TRANSIT_REAL(cuMemcpyAtoD_v2); TRANSIT_REAL_AS(cuMemcpyAtoD_v2_ptds, cuMemcpyAtoD_v2);
TRANSIT_REAL(cuMemcpyDtoA_v2); TRANSIT_REAL_AS(cuMemcpyDtoA_v2_ptds, cuMemcpyDtoA_v2);
TRANSIT_REAL(cuMemsetD8_v2); TRANSIT_REAL_AS(cuMemsetD8_v2_ptds, cuMemsetD8_v2);
TRANSIT_REAL(cuMemsetD16_v2); TRANSIT_REAL_AS(cuMemsetD16_v2_ptds, cuMemsetD16_v2);
TRANSIT_REAL(cuMemsetD32_v2); TRANSIT_REAL_AS(cuMemsetD32_v2_ptds, cuMemsetD32_v2);
TRANSIT_REAL(cuMemsetD8Async); TRANSIT_REAL_AS(cuMemsetD8Async_ptsz, cuMemsetD8Async);
TRANSIT_REAL(cuMemsetD16Async); TRANSIT_REAL_AS(cuMemsetD16Async_ptsz, cuMemsetD16Async);
TRANSIT_REAL(cuMemsetD32Async); TRANSIT_REAL_AS(cuMemsetD32Async_ptsz, cuMemsetD32Async);
TRANSIT_REAL(cuMemsetD2D8_v2); TRANSIT_REAL_AS(cuMemsetD2D8_v2_ptds, cuMemsetD2D8_v2);
TRANSIT_REAL(cuMemsetD2D16_v2); TRANSIT_REAL_AS(cuMemsetD2D16_v2_ptds, cuMemsetD2D16_v2);
TRANSIT_REAL(cuMemsetD2D32_v2); TRANSIT_REAL_AS(cuMemsetD2D32_v2_ptds, cuMemsetD2D32_v2);
TRANSIT_REAL(cuMemsetD2D8Async); TRANSIT_REAL_AS(cuMemsetD2D8Async_ptsz, cuMemsetD2D8Async);
TRANSIT_REAL(cuMemsetD2D16Async); TRANSIT_REAL_AS(cuMemsetD2D16Async_ptsz, cuMemsetD2D16Async);
TRANSIT_REAL(cuMemsetD2D32Async); TRANSIT_REAL_AS(cuMemsetD2D32Async_ptsz, cuMemsetD2D32Async);
TRANSIT_REAL_AS(cuStreamBeginCapture_v2, cuStreamBeginCapture); TRANSIT_REAL_AS(cuStreamBeginCapture_v2_ptsz, cuStreamBeginCapture);
TRANSIT_REAL(cuStreamBeginCaptureToGraph); TRANSIT_REAL_AS(cuStreamBeginCaptureToGraph_ptsz, cuStreamBeginCaptureToGraph);
TRANSIT_REAL(cuStreamEndCapture); TRANSIT_REAL_AS(cuStreamEndCapture_ptsz, cuStreamEndCapture);
// Nodes and polled memory.
TRANSIT_REAL_AS(cuGraphAddKernelNode_v2, cuGraphAddKernelNode);
TRANSIT_REAL(cuGraphAddMemcpyNode);
TRANSIT_REAL(cuGraphAddMemsetNode);
TRANSIT_REAL_AS(cuGraphAddNode_v2, cuGraphAddNode); TRANSIT_REAL_AS(cuGraphAddNode_v3, cuGraphAddNode);
TRANSIT_REAL_AS(cuGraphKernelNodeSetParams_v2, cuGraphKernelNodeSetParams);
TRANSIT_REAL_AS(cuGraphExecKernelNodeSetParams_v2, cuGraphExecKernelNodeSetParams);
TRANSIT_REAL(cuGraphExecMemcpyNodeSetParams);
TRANSIT_REAL(cuGraphExecMemsetNodeSetParams);
TRANSIT_REAL(cuGraphNodeSetParams);
TRANSIT_REAL_AS(cuGraphNodeSetParams_v2, cuGraphNodeSetParams);
TRANSIT_REAL(cuGraphMemcpyNodeSetParams);
TRANSIT_REAL(cuGraphMemsetNodeSetParams);
TRANSIT_REAL(cuGraphAddBatchMemOpNode);
TRANSIT_REAL(cuGraphBatchMemOpNodeSetParams);
TRANSIT_REAL(cuGraphExecBatchMemOpNodeSetParams);
TRANSIT_REAL(cuGraphExecNodeSetParams);
TRANSIT_REAL_AS(cuStreamWaitValue32, cuStreamWaitValue32);
TRANSIT_REAL_AS(cuStreamWaitValue32_ptsz, cuStreamWaitValue32);
TRANSIT_REAL_AS(cuStreamWaitValue32_v2, cuStreamWaitValue32);
TRANSIT_REAL_AS(cuStreamWaitValue32_v2_ptsz, cuStreamWaitValue32);
TRANSIT_REAL_AS(cuStreamWaitValue64, cuStreamWaitValue64);
TRANSIT_REAL_AS(cuStreamWaitValue64_ptsz, cuStreamWaitValue64);
TRANSIT_REAL_AS(cuStreamWaitValue64_v2, cuStreamWaitValue64);
TRANSIT_REAL_AS(cuStreamWaitValue64_v2_ptsz, cuStreamWaitValue64);
TRANSIT_REAL_AS(cuStreamWriteValue32, cuStreamWriteValue32);
TRANSIT_REAL_AS(cuStreamWriteValue32_ptsz, cuStreamWriteValue32);
TRANSIT_REAL_AS(cuStreamWriteValue32_v2, cuStreamWriteValue32);
TRANSIT_REAL_AS(cuStreamWriteValue32_v2_ptsz, cuStreamWriteValue32);
TRANSIT_REAL_AS(cuStreamWriteValue64, cuStreamWriteValue64);
TRANSIT_REAL_AS(cuStreamWriteValue64_ptsz, cuStreamWriteValue64);
TRANSIT_REAL_AS(cuStreamWriteValue64_v2, cuStreamWriteValue64);
TRANSIT_REAL_AS(cuStreamWriteValue64_v2_ptsz, cuStreamWriteValue64);
TRANSIT_REAL_AS(cuStreamBatchMemOp, cuStreamBatchMemOp);
TRANSIT_REAL_AS(cuStreamBatchMemOp_ptsz, cuStreamBatchMemOp);
TRANSIT_REAL_AS(cuStreamBatchMemOp_v2, cuStreamBatchMemOp);
TRANSIT_REAL_AS(cuStreamBatchMemOp_v2_ptsz, cuStreamBatchMemOp);
// clang-format on
#undef TRANSIT_REAL
#undef TRANSIT_REAL_AS

// ABIs that cuda.h no longer declares, deprecates, or declares under one name for several versions.
CUresult real_cuLaunch(CUfunction f);
CUresult real_cuLaunchGrid(CUfunction f, int width, int height);
CUresult real_cuLaunchGridAsync(CUfunction f, int width, int height, CUstream stream);
CUresult real_cuLaunchCooperativeKernelMultiDevice(CUDA_LAUNCH_PARAMS* launches, unsigned count,
                                                   unsigned flags);
CUresult real_cuStreamBeginCapture(CUstream stream);
CUresult real_cuStreamBeginCapture_ptsz(CUstream stream);
CUresult real_cuGraphAddKernelNode(CUgraphNode* node, CUgraph graph, const CUgraphNode* after,
                                   size_t count, const CUDA_KERNEL_NODE_PARAMS_v1* params);
CUresult real_cuGraphKernelNodeSetParams(CUgraphNode node,
                                         const CUDA_KERNEL_NODE_PARAMS_v1* params);
CUresult real_cuGraphExecKernelNodeSetParams(CUgraphExec graph, CUgraphNode node,
                                             const CUDA_KERNEL_NODE_PARAMS_v1* params);
CUresult real_cuGraphAddNode(CUgraphNode* node, CUgraph graph, const CUgraphNode* after,
                             size_t count, CUgraphNodeParams* params);
CUresult real_cuMemcpyBatchAsync(CUdeviceptr* dsts, CUdeviceptr* srcs, size_t* sizes, size_t count,
                                 CUmemcpyAttributes* attrs, size_t* attrs_idxs, size_t num_attrs,
                                 size_t* fail_idx, CUstream stream);
CUresult real_cuMemcpyBatchAsync_ptsz(CUdeviceptr* dsts, CUdeviceptr* srcs, size_t* sizes,
                                      size_t count, CUmemcpyAttributes* attrs, size_t* attrs_idxs,
                                      size_t num_attrs, size_t* fail_idx, CUstream stream);
CUresult real_cuMemcpyBatchAsync_v2(CUdeviceptr* dsts, CUdeviceptr* srcs, size_t* sizes,
                                    size_t count, CUmemcpyAttributes* attrs, size_t* attrs_idxs,
                                    size_t num_attrs, CUstream stream);
CUresult real_cuMemcpyBatchAsync_v2_ptsz(CUdeviceptr* dsts, CUdeviceptr* srcs, size_t* sizes,
                                         size_t count, CUmemcpyAttributes* attrs,
                                         size_t* attrs_idxs, size_t num_attrs, CUstream stream);
CUresult real_cuMemcpyWithAttributesAsync(CUdeviceptr to, CUdeviceptr from, size_t bytes,
                                          CUmemcpyAttributes* attributes, CUstream stream);
CUresult real_cuMemcpy3DWithAttributesAsync(CUDA_MEMCPY3D_BATCH_OP* copy, unsigned long long flags,
                                            CUstream stream);
CUresult real_cuMemcpy3DBatchAsync(size_t count, CUDA_MEMCPY3D_BATCH_OP* copies, size_t* failed,
                                   unsigned long long flags, CUstream stream);
CUresult real_cuMemcpy3DBatchAsync_v2(size_t count, CUDA_MEMCPY3D_BATCH_OP* copies,
                                      unsigned long long flags, CUstream stream);
CUresult real_cuMemcpyWithAttributesAsync_ptsz(CUdeviceptr to, CUdeviceptr from, size_t bytes,
                                               CUmemcpyAttributes* attributes, CUstream stream);
CUresult real_cuMemcpy3DWithAttributesAsync_ptsz(CUDA_MEMCPY3D_BATCH_OP* copy,
                                                 unsigned long long flags, CUstream stream);
CUresult real_cuMemcpy3DBatchAsync_ptsz(size_t count, CUDA_MEMCPY3D_BATCH_OP* copies,
                                        size_t* failed, unsigned long long flags, CUstream stream);
CUresult real_cuMemcpy3DBatchAsync_v2_ptsz(size_t count, CUDA_MEMCPY3D_BATCH_OP* copies,
                                           unsigned long long flags, CUstream stream);
CUresult real_cuGetProcAddress(const char* symbol, void** entry, int version, cuuint64_t flags);
CUresult real_cuGetProcAddress_v2(const char* symbol, void** entry, int version, cuuint64_t flags,
                                  CUdriverProcAddressQueryResult* status);
}
