// The part of the runtime that small programs and the tracer's tests use. A cudaError_t is the
// driver's code where the two agree, which they do for every code returned here.
#include <cstdio>

#include "driver.hpp"

namespace transit::sim::cudart {
namespace {

CUresult& last_error() {
    thread_local CUresult last = CUDA_SUCCESS;
    return last;
}

int remember(CUresult result) {
    if (result != CUDA_SUCCESS && result != CUDA_ERROR_NOT_READY) {
        last_error() = result;
    }
    return result;
}

// With a context: calls the driver and keeps the error for cudaGetLastError.
template <class Prototype, class... Arguments>
int forward(const char* name, Arguments... arguments) {
    const CUresult ready = ensure_context();
    return remember(ready != CUDA_SUCCESS ? ready : driver<Prototype>(name, arguments...));
}

CUdeviceptr address(const void* pointer) { return reinterpret_cast<CUdeviceptr>(pointer); }

enum CopyKind { host_to_host, host_to_device, device_to_host, device_to_device, infer };

int copy(void* dst, const void* src, std::size_t bytes, int kind) {
    switch (kind) {
    case host_to_device:
        return forward<decltype(&cuMemcpyHtoD_v2)>("cuMemcpyHtoD", address(dst), src, bytes);
    case device_to_host:
        return forward<decltype(&cuMemcpyDtoH_v2)>("cuMemcpyDtoH", dst, address(src), bytes);
    case device_to_device:
        return forward<decltype(&cuMemcpyDtoD_v2)>("cuMemcpyDtoD", address(dst), address(src),
                                                   bytes);
    default:
        return forward<decltype(&cuMemcpy)>("cuMemcpy", address(dst), address(src), bytes);
    }
}

int copy_async(void* dst, const void* src, std::size_t bytes, int kind, CUstream stream) {
    switch (kind) {
    case host_to_device:
        return forward<decltype(&cuMemcpyHtoDAsync_v2)>("cuMemcpyHtoDAsync", address(dst), src,
                                                        bytes, stream);
    case device_to_host:
        return forward<decltype(&cuMemcpyDtoHAsync_v2)>("cuMemcpyDtoHAsync", dst, address(src),
                                                        bytes, stream);
    case device_to_device:
        return forward<decltype(&cuMemcpyDtoDAsync_v2)>("cuMemcpyDtoDAsync", address(dst),
                                                        address(src), bytes, stream);
    default:
        return forward<decltype(&cuMemcpyAsync)>("cuMemcpyAsync", address(dst), address(src), bytes,
                                                 stream);
    }
}

const char* text(const char* which, int error) {
    const char* found = nullptr;
    driver<decltype(&cuGetErrorString)>(which, static_cast<CUresult>(error), &found);
    return found != nullptr ? found : "unrecognized error code";
}

struct Dim3 {
    unsigned x, y, z;
};

}  // namespace
}  // namespace transit::sim::cudart

using namespace transit::sim::cudart;

extern "C" {

// What a compiled program's registration does: the function to give to cudaLaunchKernel.
const void* transit_sim_cudart_function(const char* name) {
    static CUmodule module = nullptr;
    if (module == nullptr) {
        forward<decltype(&cuModuleLoadData)>("cuModuleLoadData", &module,
                                             static_cast<const void*>("simulated image"));
    }
    CUfunction function = nullptr;
    forward<decltype(&cuModuleGetFunction)>("cuModuleGetFunction", &function, module, name);
    return function;
}

int cudaRuntimeGetVersion(int* version) {
    *version = transit::sim::kDriverVersion;
    return 0;
}
int cudaDriverGetVersion(int* version) {
    return remember(driver<decltype(&cuDriverGetVersion)>("cuDriverGetVersion", version));
}
int cudaGetDeviceCount(int* count) {
    return forward<decltype(&cuDeviceGetCount)>("cuDeviceGetCount", count);
}
int cudaGetDevice(int* device) {
    *device = thread_device();
    return 0;
}
int cudaSetDevice(int device) {
    const int before = thread_device();
    thread_device() = device;
    const CUresult result = ensure_context();
    thread_device() = result == CUDA_SUCCESS ? device : before;
    return remember(result);
}
int cudaDeviceSynchronize() {
    // At this version the name means the ABI that takes a context; NULL is not the current one.
    CUcontext context = nullptr;
    const int found = forward<decltype(&cuCtxGetCurrent)>("cuCtxGetCurrent", &context);
    return found != 0 ? found
                      : forward<decltype(&cuCtxSynchronize_v2)>("cuCtxSynchronize", context);
}
int cudaGetLastError() {
    const CUresult last = last_error();
    last_error() = CUDA_SUCCESS;
    return last;
}
int cudaPeekAtLastError() { return last_error(); }
const char* cudaGetErrorString(int error) { return text("cuGetErrorString", error); }
const char* cudaGetErrorName(int error) { return text("cuGetErrorName", error); }

int cudaMalloc(void** pointer, size_t bytes) {
    return forward<decltype(&cuMemAlloc_v2)>("cuMemAlloc", reinterpret_cast<CUdeviceptr*>(pointer),
                                             bytes);
}
int cudaFree(void* pointer) {
    return forward<decltype(&cuMemFree_v2)>("cuMemFree", address(pointer));
}
int cudaMallocAsync(void** pointer, size_t bytes, CUstream stream) {
    return forward<decltype(&cuMemAllocAsync)>(
        "cuMemAllocAsync", reinterpret_cast<CUdeviceptr*>(pointer), bytes, stream);
}
int cudaFreeAsync(void* pointer, CUstream stream) {
    return forward<decltype(&cuMemFreeAsync)>("cuMemFreeAsync", address(pointer), stream);
}
int cudaMallocHost(void** pointer, size_t bytes) {
    return forward<decltype(&cuMemHostAlloc)>("cuMemHostAlloc", pointer, bytes, 0U);
}
int cudaHostAlloc(void** pointer, size_t bytes, unsigned flags) {
    return forward<decltype(&cuMemHostAlloc)>("cuMemHostAlloc", pointer, bytes, flags);
}
int cudaFreeHost(void* pointer) {
    return forward<decltype(&cuMemFreeHost)>("cuMemFreeHost", pointer);
}
int cudaMemGetInfo(size_t* free_bytes, size_t* total_bytes) {
    return forward<decltype(&cuMemGetInfo_v2)>("cuMemGetInfo", free_bytes, total_bytes);
}

int cudaMemcpy(void* dst, const void* src, size_t bytes, int kind) {
    return copy(dst, src, bytes, kind);
}
int cudaMemcpyAsync(void* dst, const void* src, size_t bytes, int kind, CUstream stream) {
    return copy_async(dst, src, bytes, kind, stream);
}
int cudaMemset(void* dst, int value, size_t bytes) {
    return forward<decltype(&cuMemsetD8_v2)>("cuMemsetD8", address(dst),
                                             static_cast<unsigned char>(value), bytes);
}
int cudaMemsetAsync(void* dst, int value, size_t bytes, CUstream stream) {
    return forward<decltype(&cuMemsetD8Async)>("cuMemsetD8Async", address(dst),
                                               static_cast<unsigned char>(value), bytes, stream);
}

int cudaStreamCreateWithFlags(CUstream* stream, unsigned flags) {
    return forward<decltype(&cuStreamCreate)>("cuStreamCreate", stream, flags);
}
int cudaStreamCreate(CUstream* stream) { return cudaStreamCreateWithFlags(stream, 0); }
int cudaStreamDestroy(CUstream stream) {
    return forward<decltype(&cuStreamDestroy_v2)>("cuStreamDestroy", stream);
}
int cudaStreamSynchronize(CUstream stream) {
    return forward<decltype(&cuStreamSynchronize)>("cuStreamSynchronize", stream);
}
int cudaStreamQuery(CUstream stream) {
    return forward<decltype(&cuStreamQuery)>("cuStreamQuery", stream);
}
int cudaStreamWaitEvent(CUstream stream, CUevent event, unsigned flags) {
    return forward<decltype(&cuStreamWaitEvent)>("cuStreamWaitEvent", stream, event, flags);
}
int cudaEventCreateWithFlags(CUevent* event, unsigned flags) {
    return forward<decltype(&cuEventCreate)>("cuEventCreate", event, flags);
}
int cudaEventCreate(CUevent* event) { return cudaEventCreateWithFlags(event, 0); }
int cudaEventRecord(CUevent event, CUstream stream) {
    return forward<decltype(&cuEventRecord)>("cuEventRecord", event, stream);
}
int cudaEventSynchronize(CUevent event) {
    return forward<decltype(&cuEventSynchronize)>("cuEventSynchronize", event);
}
int cudaEventQuery(CUevent event) {
    return forward<decltype(&cuEventQuery)>("cuEventQuery", event);
}
int cudaEventDestroy(CUevent event) {
    return forward<decltype(&cuEventDestroy_v2)>("cuEventDestroy", event);
}

int cudaLaunchKernel(const void* function, Dim3 grid, Dim3 block, void** arguments,
                     size_t shared_bytes, CUstream stream) {
    return forward<decltype(&cuLaunchKernel)>(
        "cuLaunchKernel", reinterpret_cast<CUfunction>(const_cast<void*>(function)), grid.x, grid.y,
        grid.z, block.x, block.y, block.z, static_cast<unsigned>(shared_bytes), stream, arguments,
        static_cast<void**>(nullptr));
}

}  // extern "C"
