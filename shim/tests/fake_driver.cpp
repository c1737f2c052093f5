#include "fake_driver.hpp"

#include <memory>
#include <mutex>

namespace {

struct Event {
    std::atomic<fake::Queue*> queue{nullptr};
    std::atomic<std::uint64_t> covers{0};
};

fake::Kernel& kernel_at(const void* handle) {
    return *static_cast<fake::Kernel*>(const_cast<void*>(handle));
}

CUresult parameter(const fake::Kernel& kernel, std::size_t i, std::size_t* offset,
                   std::size_t* bytes) {
    if (i >= kernel.parameters.size()) return kernel.end;
    *offset = kernel.parameters[i].first;
    *bytes = kernel.parameters[i].second;
    return CUDA_SUCCESS;
}

}  // namespace

extern "C" {

CUresult real_cuFuncGetName(const char** name, CUfunction function) {
    if (kernel_at(function).as_kernel) return CUDA_ERROR_INVALID_HANDLE;
    *name = kernel_at(function).name.c_str();
    return CUDA_SUCCESS;
}
CUresult real_cuKernelGetName(const char** name, CUkernel kernel) {
    *name = kernel_at(kernel).name.c_str();
    return CUDA_SUCCESS;
}
CUresult real_cuFuncGetParamInfo(CUfunction function, size_t i, size_t* offset, size_t* bytes) {
    if (kernel_at(function).as_kernel) return CUDA_ERROR_INVALID_HANDLE;
    return parameter(kernel_at(function), i, offset, bytes);
}
CUresult real_cuKernelGetParamInfo(CUkernel kernel, size_t i, size_t* offset, size_t* bytes) {
    return parameter(kernel_at(kernel), i, offset, bytes);
}

CUresult real_cuEventCreate(CUevent* event, unsigned) {
    static std::mutex mutex;
    static std::vector<std::unique_ptr<Event>> all;
    const std::lock_guard lock(mutex);
    all.push_back(std::make_unique<Event>());
    *event = reinterpret_cast<CUevent>(all.back().get());
    return CUDA_SUCCESS;
}
CUresult real_cuEventRecord(CUevent event, CUstream stream) {
    auto* queue = reinterpret_cast<fake::Queue*>(stream);
    auto* recorded = reinterpret_cast<Event*>(event);
    recorded->queue = queue;
    recorded->covers = queue->submitted.load();
    return CUDA_SUCCESS;
}
CUresult real_cuEventDestroy_v2(CUevent) { return CUDA_SUCCESS; }
CUresult real_cuEventQuery(CUevent event) {
    const auto* recorded = reinterpret_cast<const Event*>(event);
    return recorded->queue.load()->finished.load() >= recorded->covers.load()
               ? CUDA_SUCCESS
               : CUDA_ERROR_NOT_READY;
}

// There is one context, and it has no name.
CUresult real_cuCtxGetCurrent(CUcontext* context) {
    *context = nullptr;
    return CUDA_SUCCESS;
}
CUresult real_cuStreamGetCtx(CUstream, CUcontext* context) { return real_cuCtxGetCurrent(context); }
CUresult real_cuCtxPushCurrent_v2(CUcontext) { return CUDA_SUCCESS; }
CUresult real_cuCtxPopCurrent_v2(CUcontext* context) { return real_cuCtxGetCurrent(context); }

// No stream is ever captured here.
CUresult real_cuThreadExchangeStreamCaptureMode(CUstreamCaptureMode*) { return CUDA_SUCCESS; }
CUresult real_cuStreamIsCapturing(CUstream, CUstreamCaptureStatus* status) {
    *status = CU_STREAM_CAPTURE_STATUS_NONE;
    return CUDA_SUCCESS;
}

}  // extern "C"
