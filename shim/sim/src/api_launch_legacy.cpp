// The oldest launches: parameters and block shape are set on the function beforehand. And one
// launch a device, in one call.
#include <cstring>
#include <map>
#include <mutex>

#include "call.hpp"
#include "kernels.hpp"

namespace transit::sim {
namespace {

struct Prepared {
    unsigned block[3] = {1, 1, 1};
    std::vector<std::byte> packed;
};

std::mutex prepared_mutex;

// Lasts as long as the process; handles are never used twice.
Prepared& prepared(CUfunction function) {
    static auto* const kPrepared = new std::map<CUfunction, Prepared>;
    return (*kPrepared)[function];
}

CUresult set(const char* name, CUfunction function, std::size_t offset, const void* value,
             std::size_t bytes) {
    Call call{name, Needs::context};
    call.at("function", function).note("offset", offset).note("bytes", bytes);
    if (!call) {
        return call.result();
    }
    if (find_function(function) == nullptr) {
        return call.end(CUDA_ERROR_INVALID_HANDLE);
    }
    std::lock_guard lock(prepared_mutex);
    std::vector<std::byte>& packed = prepared(function).packed;
    if (packed.size() < offset + bytes) {
        packed.resize(offset + bytes);
    }
    if (bytes > 0) {
        std::memcpy(packed.data() + offset, value, bytes);
    }
    return call.end(CUDA_SUCCESS);
}

CUresult launch(CUfunction function, int width, int height, CUstream stream) {
    Prepared now;
    {
        std::lock_guard lock(prepared_mutex);
        now = prepared(function);
    }
    std::size_t bytes = now.packed.size();
    void* extra[] = {CU_LAUNCH_PARAM_BUFFER_POINTER, now.packed.data(), CU_LAUNCH_PARAM_BUFFER_SIZE,
                     &bytes, CU_LAUNCH_PARAM_END};
    return cuLaunchKernel(function, static_cast<unsigned>(width), static_cast<unsigned>(height), 1,
                          now.block[0], now.block[1], now.block[2], 0, stream, nullptr, extra);
}

}  // namespace
}  // namespace transit::sim

using namespace transit::sim;

extern "C" {

CUresult CUDAAPI cuFuncSetBlockShape(CUfunction function, int x, int y, int z) {
    const CUresult known = set("cuFuncSetBlockShape", function, 0, nullptr, 0);
    if (known == CUDA_SUCCESS) {
        std::lock_guard lock(prepared_mutex);
        const int shape[3] = {x, y, z};
        std::memcpy(prepared(function).block, shape, sizeof shape);
    }
    return known;
}
CUresult CUDAAPI cuParamSetSize(CUfunction function, unsigned int bytes) {
    return set("cuParamSetSize", function, bytes, nullptr, 0);
}
CUresult CUDAAPI cuParamSetv(CUfunction function, int offset, void* value, unsigned int bytes) {
    return set("cuParamSetv", function, static_cast<std::size_t>(offset), value, bytes);
}
CUresult CUDAAPI cuLaunch(CUfunction function) { return launch(function, 1, 1, nullptr); }
CUresult CUDAAPI cuLaunchGrid(CUfunction function, int width, int height) {
    return launch(function, width, height, nullptr);
}
CUresult CUDAAPI cuLaunchGridAsync(CUfunction function, int width, int height, CUstream stream) {
    return launch(function, width, height, stream);
}
CUresult CUDAAPI cuLaunchCooperativeKernelMultiDevice(CUDA_LAUNCH_PARAMS* launches,
                                                      unsigned int count, unsigned int) {
    CUresult result = launches != nullptr ? CUDA_SUCCESS : CUDA_ERROR_INVALID_VALUE;
    for (unsigned i = 0; i < count && result == CUDA_SUCCESS; ++i) {
        const CUDA_LAUNCH_PARAMS& one = launches[i];
        result = cuLaunchCooperativeKernel(one.function, one.gridDimX, one.gridDimY, one.gridDimZ,
                                           one.blockDimX, one.blockDimY, one.blockDimZ,
                                           one.sharedMemBytes, one.hStream, one.kernelParams);
    }
    return result;
}

}  // extern "C"
