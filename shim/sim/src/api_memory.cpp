// cuMemAlloc and friends, and what they say about themselves.
#include "address_space.hpp"
#include "call.hpp"
#include "capture.hpp"
#include "context.hpp"
#include "options.hpp"
#include "pool.hpp"

namespace transit::sim {
namespace {

constexpr std::size_t kUnitBytes = 4096;
constexpr std::size_t kPitchBytes = 512;

CUresult allocate(CUdeviceptr* address, std::size_t bytes) {
    if (address == nullptr || bytes == 0) {
        return CUDA_ERROR_INVALID_VALUE;
    }
    if (bytes > options().hbm_bytes) {
        return CUDA_ERROR_OUT_OF_MEMORY;
    }
    const int device = current_context()->device();
    const std::size_t whole_bytes = round_up(bytes, kUnitBytes);
    auto frame = PhysicalStore::instance().allocate(whole_bytes, Place::hbm, device, false);
    if (frame == nullptr) {
        // As the driver: what the pools hold unused is given back before a request is refused.
        for (Pool* pool : Devices::instance().pools()) {
            pool->trim(0);
        }
        frame = PhysicalStore::instance().allocate(whole_bytes, Place::hbm, device, false);
    }
    if (frame == nullptr) {
        return CUDA_ERROR_OUT_OF_MEMORY;
    }
    const CUdeviceptr base =
        AddressSpace::instance().add_allocation(std::move(frame), bytes, nullptr);
    *address = base;
    return base != 0 ? CUDA_SUCCESS : CUDA_ERROR_OUT_OF_MEMORY;
}

}  // namespace
}  // namespace transit::sim

using namespace transit::sim;

extern "C" {

CUresult CUDAAPI cuMemAlloc_v2(CUdeviceptr* address, size_t bytes) {
    Call call{"cuMemAlloc_v2", Needs::context};
    call.note("bytes", bytes);
    if (!call) {
        return call.result();
    }
    if (const CUresult refused = Captures::instance().check_unsafe(); refused != CUDA_SUCCESS) {
        return call.end(refused);
    }
    const CUresult result = allocate(address, bytes);
    call.at("address", result == CUDA_SUCCESS ? *address : 0);
    return call.end(result);
}

CUresult CUDAAPI cuMemAllocPitch_v2(CUdeviceptr* address, size_t* pitch, size_t width,
                                    size_t height, unsigned int element_bytes) {
    Call call{"cuMemAllocPitch_v2", Needs::context};
    call.note("width", width).note("height", height);
    if (!call) {
        return call.result();
    }
    if (pitch == nullptr || (element_bytes != 4 && element_bytes != 8 && element_bytes != 16)) {
        return call.end(CUDA_ERROR_INVALID_VALUE);
    }
    if (const CUresult refused = Captures::instance().check_unsafe(); refused != CUDA_SUCCESS) {
        return call.end(refused);
    }
    *pitch = round_up(width, kPitchBytes);
    const CUresult result = allocate(address, *pitch * height);
    call.at("address", result == CUDA_SUCCESS ? *address : 0);
    return call.end(result);
}

CUresult CUDAAPI cuMemFree_v2(CUdeviceptr address) {
    Call call{"cuMemFree_v2", Needs::context};
    call.at("address", address);
    if (!call) {
        return call.result();
    }
    if (address == 0) {
        return call.end(CUDA_SUCCESS);
    }
    if (const CUresult refused = Captures::instance().check_unsafe(); refused != CUDA_SUCCESS) {
        return call.end(refused);
    }
    AddressSpace& space = AddressSpace::instance();
    const auto info = space.allocation_starting_at(address);
    if (!info || info->imported) {
        return call.end(CUDA_ERROR_INVALID_VALUE);
    }
    call.note("bytes", info->bytes);
    // Programs rely on it: work already queued may still use the memory.
    if (const CUresult error = wait_all(current_context()->outstanding()); error != CUDA_SUCCESS) {
        return call.end(error);
    }
    if (info->pool != nullptr) {
        info->pool->forget(address, info->bytes);
    }
    return call.end(space.remove_allocation(address) ? CUDA_SUCCESS : CUDA_ERROR_INVALID_VALUE);
}

CUresult CUDAAPI cuMemGetInfo_v2(size_t* free_bytes, size_t* total_bytes) {
    Call call{"cuMemGetInfo_v2", Needs::context};
    if (!call) {
        return call.result();
    }
    const std::uint64_t used = PhysicalStore::instance().device_bytes(current_context()->device());
    if (free_bytes != nullptr) {
        *free_bytes = options().hbm_bytes - used;
    }
    if (total_bytes != nullptr) {
        *total_bytes = options().hbm_bytes;
    }
    return call.end(CUDA_SUCCESS);
}

CUresult CUDAAPI cuMemGetAddressRange_v2(CUdeviceptr* base, size_t* bytes, CUdeviceptr address) {
    Call call{"cuMemGetAddressRange_v2", Needs::context};
    call.at("address", address);
    if (!call) {
        return call.result();
    }
    const auto info = AddressSpace::instance().find(address);
    if (!info) {
        return call.end(CUDA_ERROR_NOT_FOUND);
    }
    if (base != nullptr) {
        *base = info->base;
    }
    if (bytes != nullptr) {
        *bytes = info->bytes;
    }
    return call.end(CUDA_SUCCESS);
}

// No dma-buf: there is no network card to give one to.
CUresult CUDAAPI cuMemGetHandleForAddressRange(void*, CUdeviceptr address, size_t bytes,
                                               CUmemRangeHandleType, unsigned long long) {
    Call call{"cuMemGetHandleForAddressRange", Needs::context};
    call.at("address", address).note("bytes", bytes);
    return call ? call.end(CUDA_ERROR_NOT_SUPPORTED) : call.result();
}

// Managed memory is not simulated: nothing migrates here.
CUresult CUDAAPI cuMemAllocManaged(CUdeviceptr*, size_t bytes, unsigned int) {
    Call call{"cuMemAllocManaged", Needs::context};
    call.note("bytes", bytes);
    return call ? call.end(CUDA_ERROR_NOT_SUPPORTED) : call.result();
}

}  // extern "C"
