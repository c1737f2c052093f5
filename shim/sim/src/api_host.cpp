// Page-locked host memory.
#include <sys/mman.h>

#include "address_space.hpp"
#include "call.hpp"
#include "capture.hpp"

namespace transit::sim {
namespace {

constexpr std::size_t kPageBytes = 4096;

CUresult allocate(void** pointer, std::size_t bytes, unsigned flags) {
    if (pointer == nullptr || bytes == 0) {
        return CUDA_ERROR_INVALID_VALUE;
    }
    if (const CUresult refused = Captures::instance().check_unsafe(); refused != CUDA_SUCCESS) {
        return refused;
    }
    void* const at = mmap(nullptr, round_up(bytes, kPageBytes), PROT_READ | PROT_WRITE,
                          MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
    if (at == MAP_FAILED) {
        return CUDA_ERROR_OUT_OF_MEMORY;
    }
    AddressSpace::instance().add_host(reinterpret_cast<CUdeviceptr>(at), bytes, flags, false);
    *pointer = at;
    return CUDA_SUCCESS;
}

}  // namespace
}  // namespace transit::sim

using namespace transit::sim;

extern "C" {

CUresult CUDAAPI cuMemHostAlloc(void** pointer, size_t bytes, unsigned int flags) {
    Call call{"cuMemHostAlloc", Needs::context};
    call.note("bytes", bytes);
    if (!call) {
        return call.result();
    }
    const CUresult result = allocate(pointer, bytes, flags);
    call.at("address", result == CUDA_SUCCESS ? *pointer : nullptr);
    return call.end(result);
}

CUresult CUDAAPI cuMemAllocHost_v2(void** pointer, size_t bytes) {
    Call call{"cuMemAllocHost_v2", Needs::context};
    call.note("bytes", bytes);
    if (!call) {
        return call.result();
    }
    const CUresult result = allocate(pointer, bytes, 0);
    call.at("address", result == CUDA_SUCCESS ? *pointer : nullptr);
    return call.end(result);
}

CUresult CUDAAPI cuMemFreeHost(void* pointer) {
    Call call{"cuMemFreeHost", Needs::context};
    call.at("address", pointer);
    if (!call) {
        return call.result();
    }
    if (const CUresult refused = Captures::instance().check_unsafe(); refused != CUDA_SUCCESS) {
        return call.end(refused);
    }
    const auto range =
        AddressSpace::instance().remove_host(reinterpret_cast<CUdeviceptr>(pointer), false);
    if (!range) {
        return call.end(CUDA_ERROR_INVALID_VALUE);
    }
    munmap(pointer, round_up(range->bytes, kPageBytes));
    return call.end(CUDA_SUCCESS);
}

CUresult CUDAAPI cuMemHostRegister_v2(void* pointer, size_t bytes, unsigned int flags) {
    Call call{"cuMemHostRegister_v2", Needs::context};
    call.at("address", pointer).note("bytes", bytes);
    if (!call) {
        return call.result();
    }
    if (pointer == nullptr || bytes == 0) {
        return call.end(CUDA_ERROR_INVALID_VALUE);
    }
    const bool added = AddressSpace::instance().add_host(reinterpret_cast<CUdeviceptr>(pointer),
                                                         bytes, flags, true);
    return call.end(added ? CUDA_SUCCESS : CUDA_ERROR_HOST_MEMORY_ALREADY_REGISTERED);
}

CUresult CUDAAPI cuMemHostUnregister(void* pointer) {
    Call call{"cuMemHostUnregister", Needs::context};
    call.at("address", pointer);
    if (!call) {
        return call.result();
    }
    const auto range =
        AddressSpace::instance().remove_host(reinterpret_cast<CUdeviceptr>(pointer), true);
    return call.end(range ? CUDA_SUCCESS : CUDA_ERROR_HOST_MEMORY_NOT_REGISTERED);
}

CUresult CUDAAPI cuMemHostGetDevicePointer_v2(CUdeviceptr* address, void* pointer,
                                              unsigned int flags) {
    Call call{"cuMemHostGetDevicePointer_v2", Needs::context};
    call.at("address", pointer);
    if (!call) {
        return call.result();
    }
    const auto host = reinterpret_cast<CUdeviceptr>(pointer);
    if (address == nullptr || flags != 0 || !AddressSpace::instance().is_page_locked(host)) {
        return call.end(CUDA_ERROR_INVALID_VALUE);
    }
    *address = host;  // unified addressing
    return call.end(CUDA_SUCCESS);
}

CUresult CUDAAPI cuMemHostGetFlags(unsigned int* flags, void* pointer) {
    Call call{"cuMemHostGetFlags", Needs::context};
    if (!call) {
        return call.result();
    }
    const auto info = AddressSpace::instance().find(reinterpret_cast<CUdeviceptr>(pointer));
    if (!info || info->kind != PointerInfo::Kind::host || flags == nullptr) {
        return call.end(CUDA_ERROR_INVALID_VALUE);
    }
    *flags = info->host_flags;
    return call.end(CUDA_SUCCESS);
}

}  // extern "C"
