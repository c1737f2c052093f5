// Allocation and free, and every query whose answer must agree with them.
#include <dlfcn.h>

#include <cstring>
#include <mutex>
#include <unordered_map>

#include "transit/hooks.hpp"
#include "transit/lifetimes.hpp"
#include "transit/log.hpp"
#include "transit/real.hpp"
#include "transit/stats.hpp"

namespace transit {
namespace {

// Sizes of what we let through, so that a free gives the budget back.
class PassedThrough {
public:
    void add(CUdeviceptr address, std::size_t bytes) {
        const std::lock_guard lock(mutex_);
        sizes_[address] = bytes;
    }
    std::size_t remove(CUdeviceptr address) {
        const std::lock_guard lock(mutex_);
        const auto found = sizes_.find(address);
        if (found == sizes_.end()) return 0;
        const std::size_t bytes = found->second;
        sizes_.erase(found);
        return bytes;
    }

private:
    std::mutex mutex_;
    std::unordered_map<CUdeviceptr, std::size_t> sizes_;
};

PassedThrough& passed_through() noexcept {
    static auto* leaked = new PassedThrough;
    return *leaked;
}

CUresult pass_allocation(CUdeviceptr* out, std::size_t bytes) noexcept {
    const CUresult result = real_cuMemAlloc_v2(out, bytes);
    Device* device = Device::active();
    CUdevice current = -1;
    if (result != CUDA_SUCCESS || device == nullptr ||
        real_cuCtxGetDevice(&current) != CUDA_SUCCESS || current != device->ordinal())
        return result;
    passed_through().add(*out, bytes);
    device->passed_through(static_cast<std::int64_t>(bytes));
    return result;
}

struct Around {
    CUdeviceptr start;
    std::size_t bytes;
};

std::optional<Around> allocation_around(CUdeviceptr address) noexcept {
    Device* device = Device::active();
    if (device == nullptr || !device->owns(address)) return std::nullopt;
    const std::lock_guard lock(device->ledger_mutex);
    const auto found = device->ledger.allocation_around(address);
    if (!found) return std::nullopt;
    return Around{found->first, found->second.bytes};
}

template <typename Value>
CUresult answer(void* out, Value value) noexcept {
    std::memcpy(out, &value, sizeof(Value));
    return CUDA_SUCCESS;
}

// What the driver says of cuMemAlloc memory, wherever the frames are now. Its own answer would name
// the chunk (and memory type HOST for one in DRAM), which makes programs dereference it on the CPU.
CUresult managed_attribute(void* out, CUpointer_attribute attribute, CUdeviceptr address,
                           const Around& place, const Device& device) noexcept {
    switch (attribute) {
    case CU_POINTER_ATTRIBUTE_CONTEXT:
        return answer(out, device.context());
    case CU_POINTER_ATTRIBUTE_MEMORY_TYPE:
        return answer(out, static_cast<unsigned>(CU_MEMORYTYPE_DEVICE));
    case CU_POINTER_ATTRIBUTE_DEVICE_POINTER:
        return answer(out, address);
    case CU_POINTER_ATTRIBUTE_IS_MANAGED:
        return answer(out, 0U);
    case CU_POINTER_ATTRIBUTE_DEVICE_ORDINAL:
        return answer(out, device.ordinal());
    case CU_POINTER_ATTRIBUTE_BUFFER_ID:
    case CU_POINTER_ATTRIBUTE_MEMORY_BLOCK_ID:
        return answer(out, static_cast<unsigned long long>(place.start));
    case CU_POINTER_ATTRIBUTE_IS_LEGACY_CUDA_IPC_CAPABLE:
        return answer(out, 0U);
    case CU_POINTER_ATTRIBUTE_RANGE_START_ADDR:
    case CU_POINTER_ATTRIBUTE_MAPPING_BASE_ADDR:
        return answer(out, place.start);
    case CU_POINTER_ATTRIBUTE_RANGE_SIZE:
    case CU_POINTER_ATTRIBUTE_MAPPING_SIZE:
        return answer(out, place.bytes);
    case CU_POINTER_ATTRIBUTE_MAPPED:
        return answer(out, 1U);
    case CU_POINTER_ATTRIBUTE_IS_GPU_DIRECT_RDMA_CAPABLE:
        return answer(out, 0U);
    // Before its first launch a block is mapped nowhere, and the driver would know nothing of it.
    case CU_POINTER_ATTRIBUTE_SYNC_MEMOPS:
        return answer(out, 0U);
    case CU_POINTER_ATTRIBUTE_ALLOWED_HANDLE_TYPES:
        return answer(out, 0ULL);
    case CU_POINTER_ATTRIBUTE_ACCESS_FLAGS:
        return answer(out, CU_POINTER_ATTRIBUTE_ACCESS_FLAG_READWRITE);
    case CU_POINTER_ATTRIBUTE_HOST_POINTER:
        return CUDA_ERROR_INVALID_VALUE;
    default:
        return real_cuPointerGetAttribute(out, attribute, address);
    }
}

// The current context gets (or loses) access to `peer`'s memory, which is ours if it is the managed
// context.
void change_peer(CUcontext peer, bool granted) noexcept {
    Device* device = Device::active();
    int current = 0;
    if (device == nullptr || peer != device->context() ||
        real_cuCtxGetDevice(&current) != CUDA_SUCCESS)
        return;
    device->mover.change_access(current, granted);
}

}  // namespace

bool called_by(const void* return_address,
               std::initializer_list<const char*> library_prefixes) noexcept {
    Dl_info info{};
    if (dladdr(return_address, &info) == 0 || info.dli_fname == nullptr) return false;
    const char* slash = std::strrchr(info.dli_fname, '/');
    const char* base = slash == nullptr ? info.dli_fname : slash + 1;
    for (const char* prefix : library_prefixes)
        if (std::strncmp(base, prefix, std::strlen(prefix)) == 0) return true;
    return false;
}

bool called_by_communication_library(const void* return_address) noexcept {
    return called_by(return_address, {"libnccl", "libnvshmem", "libucp", "libuct", "libucm",
                                      "libucs", "libtransit_sim_nccl"});
}

}  // namespace transit

extern "C" {

CUresult hook_cuMemAlloc_v2(CUdeviceptr* out, size_t bytes) {
    using namespace transit;
    if (out == nullptr || bytes == 0) return real_cuMemAlloc_v2(out, bytes);
    if (called_by_communication_library(__builtin_return_address(0)))
        return pass_allocation(out, bytes);
    attach_lifetimes();
    Device* device = Device::for_allocation();
    return device == nullptr ? pass_allocation(out, bytes) : device->allocate(out, bytes);
}

CUresult hook_cuMemFree_v2(CUdeviceptr address) {
    using namespace transit;
    Device* device = Device::active();
    CUresult result = CUDA_SUCCESS;
    if (device != nullptr && device->free(address, &result)) return result;
    // Before the driver frees it: another thread may get the address at once.
    const std::size_t bytes = device == nullptr ? 0 : passed_through().remove(address);
    result = real_cuMemFree_v2(address);
    if (bytes == 0) return result;
    if (result == CUDA_SUCCESS)
        device->passed_through(-static_cast<std::int64_t>(bytes));
    else
        passed_through().add(address, bytes);
    return result;
}

CUresult hook_cuMemGetInfo_v2(size_t* free_bytes, size_t* total_bytes) {
    using namespace transit;
    Device* device = Device::for_current();
    std::uint64_t ours = device == nullptr ? 0 : device->total_bytes();
    std::uint64_t available = device == nullptr ? 0 : device->available_bytes();
    // Asking makes no device the managed one: a job may look at all of them first.
    CUdevice here = 0;
    if (Device::active() == nullptr && real_cuCtxGetDevice(&here) == CUDA_SUCCESS)
        ours = available = Device::total_bytes_of(here);
    if (ours == 0) return real_cuMemGetInfo_v2(free_bytes, total_bytes);
    if (free_bytes != nullptr) *free_bytes = available;
    if (total_bytes != nullptr) *total_bytes = ours;
    return CUDA_SUCCESS;
}

CUresult hook_cuDeviceTotalMem_v2(size_t* bytes, CUdevice ordinal) {
    using namespace transit;
    const CUresult result = real_cuDeviceTotalMem_v2(bytes, ordinal);
    if (result != CUDA_SUCCESS || bytes == nullptr) return result;
    if (const std::uint64_t ours = Device::total_bytes_of(ordinal); ours != 0) *bytes = ours;
    return result;
}

CUresult hook_cuMemGetAddressRange_v2(CUdeviceptr* base, size_t* bytes, CUdeviceptr address) {
    const auto place = transit::allocation_around(address);
    if (!place) return real_cuMemGetAddressRange_v2(base, bytes, address);
    if (base != nullptr) *base = place->start;
    if (bytes != nullptr) *bytes = place->bytes;
    return CUDA_SUCCESS;
}

CUresult hook_cuPointerGetAttribute(void* out, CUpointer_attribute attribute, CUdeviceptr address) {
    const auto place = transit::allocation_around(address);
    if (!place || out == nullptr) return real_cuPointerGetAttribute(out, attribute, address);
    return transit::managed_attribute(out, attribute, address, *place, *transit::Device::active());
}

CUresult hook_cuPointerGetAttributes(unsigned count, CUpointer_attribute* attributes, void** out,
                                     CUdeviceptr address) {
    const auto place = transit::allocation_around(address);
    if (!place || attributes == nullptr || out == nullptr)
        return real_cuPointerGetAttributes(count, attributes, out, address);
    for (unsigned i = 0; i < count; ++i) {
        // The plural form never fails for one attribute: what does not apply comes back as zero.
        if (transit::managed_attribute(out[i], attributes[i], address, *place,
                                       *transit::Device::active()) != CUDA_SUCCESS)
            std::memset(out[i], 0,
                        attributes[i] == CU_POINTER_ATTRIBUTE_IS_MANAGED ? sizeof(int)
                                                                         : sizeof(void*));
    }
    return CUDA_SUCCESS;
}

CUresult hook_cuIpcGetMemHandle(CUipcMemHandle* handle, CUdeviceptr address) {
    if (!transit::allocation_around(address)) return real_cuIpcGetMemHandle(handle, address);
    transit::warn_once("the job exports device memory to another process (CUDA IPC), which "
                       "Transit's memory cannot do; "
                       "run that part without Transit, or share through the host");
    return CUDA_ERROR_NOT_SUPPORTED;
}

// As for any memory that cuMemAlloc returned: it has no handle to give away.
CUresult hook_cuMemRetainAllocationHandle(CUmemGenericAllocationHandle* handle, void* address) {
    if (!transit::allocation_around(reinterpret_cast<CUdeviceptr>(address)))
        return real_cuMemRetainAllocationHandle(handle, address);
    return CUDA_ERROR_INVALID_VALUE;
}

CUresult hook_cuMemGetHandleForAddressRange(void* handle, CUdeviceptr address, size_t bytes,
                                            CUmemRangeHandleType type, unsigned long long flags) {
    if (!transit::allocation_around(address))
        return real_cuMemGetHandleForAddressRange(handle, address, bytes, type, flags);
    return CUDA_ERROR_NOT_SUPPORTED;  // a dma-buf would go on naming the frame after a move
}

// Driver allocations obey cuCtxEnablePeerAccess; mappings like ours need the access spelled out for
// each.
CUresult hook_cuCtxEnablePeerAccess(CUcontext peer, unsigned flags) {
    const CUresult result = real_cuCtxEnablePeerAccess(peer, flags);
    if (result == CUDA_SUCCESS) transit::change_peer(peer, true);
    return result;
}

CUresult hook_cuCtxDisablePeerAccess(CUcontext peer) {
    const CUresult result = real_cuCtxDisablePeerAccess(peer);
    if (result == CUDA_SUCCESS) transit::change_peer(peer, false);
    return result;
}

}  // extern "C"
