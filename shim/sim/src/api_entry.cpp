// The doors: cuInit, version, cuGetProcAddress in both ABIs, cuGetExportTable.
#include <algorithm>
#include <array>
#include <cstring>
#include <string>
#include <string_view>

#include "call.hpp"
#include "context.hpp"

namespace transit::sim {
namespace {

struct Entry {
    std::string_view name;
    void* address;
};

extern const Entry kEntries[];
extern const std::size_t kEntryCount;

void* address_of(std::string_view exported) {
    const Entry* const end = kEntries + kEntryCount;
    const Entry* found =
        std::find_if(kEntries, end, [&](const Entry& entry) { return entry.name == exported; });
    return found == end ? nullptr : found->address;
}

// Which ABI a name means from which version on; names not listed have one ABI, under their own
// name.
struct Abi {
    std::string_view name;
    std::string_view exported;
    int since;
};

constexpr std::array kAbis{
    Abi{"cuDeviceTotalMem", "cuDeviceTotalMem_v2", 3020},
    Abi{"cuDeviceGetUuid", "cuDeviceGetUuid", 9020},
    Abi{"cuDeviceGetUuid", "cuDeviceGetUuid_v2", 11040},
    Abi{"cuDevicePrimaryCtxRelease", "cuDevicePrimaryCtxRelease", 7000},
    Abi{"cuDevicePrimaryCtxRelease", "cuDevicePrimaryCtxRelease_v2", 11000},
    Abi{"cuDevicePrimaryCtxReset", "cuDevicePrimaryCtxReset", 7000},
    Abi{"cuDevicePrimaryCtxReset", "cuDevicePrimaryCtxReset_v2", 11000},
    Abi{"cuDevicePrimaryCtxSetFlags", "cuDevicePrimaryCtxSetFlags", 7000},
    Abi{"cuDevicePrimaryCtxSetFlags", "cuDevicePrimaryCtxSetFlags_v2", 11000},
    Abi{"cuCtxCreate", "cuCtxCreate_v2", 3020},
    Abi{"cuCtxCreate", "cuCtxCreate_v3", 11040},
    Abi{"cuCtxCreate", "cuCtxCreate_v4", 12050},
    Abi{"cuCtxDestroy", "cuCtxDestroy_v2", 4000},
    Abi{"cuCtxPushCurrent", "cuCtxPushCurrent_v2", 4000},
    Abi{"cuCtxPopCurrent", "cuCtxPopCurrent_v2", 4000},
    Abi{"cuModuleGetGlobal", "cuModuleGetGlobal_v2", 3020},
    Abi{"cuMemGetInfo", "cuMemGetInfo_v2", 3020},
    Abi{"cuMemAlloc", "cuMemAlloc_v2", 3020},
    Abi{"cuMemAllocPitch", "cuMemAllocPitch_v2", 3020},
    Abi{"cuMemFree", "cuMemFree_v2", 3020},
    Abi{"cuMemGetAddressRange", "cuMemGetAddressRange_v2", 3020},
    Abi{"cuMemAllocHost", "cuMemAllocHost_v2", 3020},
    Abi{"cuMemHostGetDevicePointer", "cuMemHostGetDevicePointer_v2", 3020},
    Abi{"cuMemHostRegister", "cuMemHostRegister_v2", 6050},
    Abi{"cuMemcpyHtoD", "cuMemcpyHtoD_v2", 3020},
    Abi{"cuMemcpyDtoH", "cuMemcpyDtoH_v2", 3020},
    Abi{"cuMemcpyDtoD", "cuMemcpyDtoD_v2", 3020},
    Abi{"cuMemcpyHtoDAsync", "cuMemcpyHtoDAsync_v2", 3020},
    Abi{"cuMemcpyDtoHAsync", "cuMemcpyDtoHAsync_v2", 3020},
    Abi{"cuMemcpyDtoDAsync", "cuMemcpyDtoDAsync_v2", 3020},
    Abi{"cuMemcpy2D", "cuMemcpy2D_v2", 3020},
    Abi{"cuMemcpy2DUnaligned", "cuMemcpy2DUnaligned_v2", 3020},
    Abi{"cuMemcpy2DAsync", "cuMemcpy2DAsync_v2", 3020},
    Abi{"cuMemcpy3D", "cuMemcpy3D_v2", 3020},
    Abi{"cuMemcpy3DAsync", "cuMemcpy3DAsync_v2", 3020},
    Abi{"cuMemcpyBatchAsync", "cuMemcpyBatchAsync", 12080},
    Abi{"cuMemcpyBatchAsync", "cuMemcpyBatchAsync_v2", 13000},
    Abi{"cuMemsetD8", "cuMemsetD8_v2", 3020},
    Abi{"cuMemsetD16", "cuMemsetD16_v2", 3020},
    Abi{"cuMemsetD32", "cuMemsetD32_v2", 3020},
    Abi{"cuMemsetD2D8", "cuMemsetD2D8_v2", 3020},
    Abi{"cuMemsetD2D16", "cuMemsetD2D16_v2", 3020},
    Abi{"cuMemsetD2D32", "cuMemsetD2D32_v2", 3020},
    Abi{"cuIpcOpenMemHandle", "cuIpcOpenMemHandle", 4010},
    Abi{"cuIpcOpenMemHandle", "cuIpcOpenMemHandle_v2", 11000},
    Abi{"cuStreamGetCtx", "cuStreamGetCtx", 9020},
    Abi{"cuStreamGetCtx", "cuStreamGetCtx_v2", 12050},
    Abi{"cuStreamDestroy", "cuStreamDestroy_v2", 4000},
    Abi{"cuEventDestroy", "cuEventDestroy_v2", 4000},
    Abi{"cuEventElapsedTime", "cuEventElapsedTime", 2000},
    Abi{"cuEventElapsedTime", "cuEventElapsedTime_v2", 12080},
    Abi{"cuStreamBeginCapture", "cuStreamBeginCapture", 10000},
    Abi{"cuStreamBeginCapture", "cuStreamBeginCapture_v2", 10010},
    Abi{"cuStreamGetCaptureInfo", "cuStreamGetCaptureInfo", 10010},
    Abi{"cuStreamGetCaptureInfo", "cuStreamGetCaptureInfo_v2", 11030},
    Abi{"cuStreamGetCaptureInfo", "cuStreamGetCaptureInfo_v3", 12030},
    Abi{"cuStreamWriteValue32", "cuStreamWriteValue32", 8000},
    Abi{"cuStreamWriteValue32", "cuStreamWriteValue32_v2", 11070},
    Abi{"cuStreamWriteValue64", "cuStreamWriteValue64", 9000},
    Abi{"cuStreamWriteValue64", "cuStreamWriteValue64_v2", 11070},
    Abi{"cuStreamWaitValue32", "cuStreamWaitValue32", 8000},
    Abi{"cuStreamWaitValue32", "cuStreamWaitValue32_v2", 11070},
    Abi{"cuStreamWaitValue64", "cuStreamWaitValue64", 9000},
    Abi{"cuStreamWaitValue64", "cuStreamWaitValue64_v2", 11070},
    Abi{"cuGraphInstantiate", "cuGraphInstantiate", 10000},
    Abi{"cuGraphInstantiate", "cuGraphInstantiate_v2", 11000},
    Abi{"cuGraphInstantiate", "cuGraphInstantiateWithFlags", 12000},
    Abi{"cuGraphKernelNodeGetParams", "cuGraphKernelNodeGetParams", 10000},
    Abi{"cuGraphKernelNodeGetParams", "cuGraphKernelNodeGetParams_v2", 12000},
    Abi{"cuCtxSynchronize", "cuCtxSynchronize", 2000},
    Abi{"cuCtxSynchronize", "cuCtxSynchronize_v2", 13000},
    Abi{"cuCtxGetDevice", "cuCtxGetDevice", 2000},
    Abi{"cuCtxGetDevice", "cuCtxGetDevice_v2", 13000},
    Abi{"cuGetProcAddress", "cuGetProcAddress", 11030},
    Abi{"cuGetProcAddress", "cuGetProcAddress_v2", 12000},
};

// Names that exist only since some version (single ABI).
constexpr std::array kSince{
    Abi{"cuLaunchKernelEx", "", 11060},
    Abi{"cuFuncGetParamInfo", "", 12040},
    Abi{"cuKernelGetParamInfo", "", 12040},
    Abi{"cuFuncGetName", "", 12030},
    Abi{"cuKernelGetName", "", 12030},
    Abi{"cuLibraryLoadData", "", 12000},
    Abi{"cuMemAllocAsync", "", 11020},
    Abi{"cuMemFreeAsync", "", 11020},
    Abi{"cuMemCreate", "", 10020},
    Abi{"cuMemMap", "", 10020},
    Abi{"cuGraphInstantiateWithParams", "", 12000},
    Abi{"cuStreamBeginCaptureToGraph", "", 12030},
};

struct Answer {
    void* address = nullptr;
    bool known = false;  // in some version
};

Answer look_up(std::string_view name, int version, bool per_thread) {
    Answer answer;
    std::string exported;
    for (const Abi& abi : kAbis) {
        if (abi.name == name) {
            answer.known = true;
            if (abi.since <= version) {
                exported = abi.exported;
            }
        }
    }
    if (!answer.known) {
        // A suffixed name is not a name for cuGetProcAddress.
        const bool suffixed = name.ends_with("_v2") || name.ends_with("_v3") ||
                              name.ends_with("_v4") || name.ends_with("_ptsz") ||
                              name.ends_with("_ptds");
        answer.known = !suffixed && address_of(name) != nullptr;
        const auto* since = std::find_if(kSince.begin(), kSince.end(),
                                         [&](const Abi& abi) { return abi.name == name; });
        if (answer.known && (since == kSince.end() || since->since <= version)) {
            exported = name;
        }
    }
    if (per_thread && !exported.empty()) {
        for (const char* suffix : {"_ptsz", "_ptds"}) {
            answer.address =
                answer.address != nullptr ? answer.address : address_of(exported + suffix);
        }
    }
    answer.address =
        answer.address != nullptr || exported.empty() ? answer.address : address_of(exported);
    return answer;
}

CUresult get_proc_address(const char* symbol, void** address, int version, cuuint64_t flags,
                          CUdriverProcAddressQueryResult* status) {
    const cuuint64_t both =
        CU_GET_PROC_ADDRESS_LEGACY_STREAM | CU_GET_PROC_ADDRESS_PER_THREAD_DEFAULT_STREAM;
    if (symbol == nullptr || address == nullptr || version > kDriverVersion ||
        (flags & ~both) != 0 || flags == both) {
        return CUDA_ERROR_INVALID_VALUE;
    }
    const Answer answer =
        look_up(symbol, version, flags == CU_GET_PROC_ADDRESS_PER_THREAD_DEFAULT_STREAM);
    *address = answer.address;
    if (status != nullptr) {
        *status = answer.address != nullptr ? CU_GET_PROC_ADDRESS_SUCCESS
                  : answer.known            ? CU_GET_PROC_ADDRESS_VERSION_NOT_SUFFICIENT
                                            : CU_GET_PROC_ADDRESS_SYMBOL_NOT_FOUND;
    }
    return answer.address != nullptr ? CUDA_SUCCESS : CUDA_ERROR_NOT_FOUND;
}

}  // namespace
}  // namespace transit::sim

using namespace transit::sim;

extern "C" {

CUresult CUDAAPI cuInit(unsigned int flags) {
    Call call{"cuInit", Needs::nothing};
    if (!call) {
        return call.result();
    }
    if (flags != 0) {
        return call.end(CUDA_ERROR_INVALID_VALUE);
    }
    if (Devices::instance().count() == 0) {
        return call.end(CUDA_ERROR_NO_DEVICE);
    }
    set_initialised();
    return call.end(initialised() ? CUDA_SUCCESS : CUDA_ERROR_NOT_INITIALIZED);
}

CUresult CUDAAPI cuDriverGetVersion(int* version) {
    Call call{"cuDriverGetVersion", Needs::nothing};
    if (call && version == nullptr) {
        return call.end(CUDA_ERROR_INVALID_VALUE);
    }
    if (call) {
        *version = kDriverVersion;
    }
    return call.result();
}

CUresult CUDAAPI cuGetProcAddress(const char* symbol, void** address, int version,
                                  cuuint64_t flags) {
    Call call{"cuGetProcAddress", Needs::nothing};
    call.text("symbol", symbol).note("version", version).note("flags", flags);
    return call ? call.end(get_proc_address(symbol, address, version, flags, nullptr))
                : call.result();
}

CUresult CUDAAPI cuGetProcAddress_v2(const char* symbol, void** address, int version,
                                     cuuint64_t flags, CUdriverProcAddressQueryResult* status) {
    Call call{"cuGetProcAddress_v2", Needs::nothing};
    call.text("symbol", symbol).note("version", version).note("flags", flags);
    return call ? call.end(get_proc_address(symbol, address, version, flags, status))
                : call.result();
}

CUresult CUDAAPI cuGetExportTable(const void** table, const CUuuid*) {
    Call call{"cuGetExportTable", Needs::nothing};
    if (call && table != nullptr) {
        *table = nullptr;
    }
    return call ? call.end(CUDA_ERROR_NOT_FOUND) : call.result();
}

}  // extern "C"

namespace transit::sim {
namespace {

const Entry kEntries[] = {
#include "entries.inc"
};
const std::size_t kEntryCount = std::size(kEntries);

}  // namespace
}  // namespace transit::sim
