// The doors of stream-ordered memory: the default pool is ours, pools that the application makes
// are its own.
#include <atomic>

#include "transit/hooks.hpp"
#include "transit/real.hpp"
#include "transit/stats.hpp"

namespace transit {
namespace {

bool is_default_pool(CUmemoryPool pool) noexcept {
    Device* device = Device::active();
    CUmemoryPool usual = nullptr;
    return device != nullptr &&
           real_cuDeviceGetDefaultMemPool(&usual, device->ordinal()) == CUDA_SUCCESS &&
           pool == usual;
}

// The device's current pool is the default one unless the application set another.
bool uses_default_pool(const Device& device) noexcept {
    CUmemoryPool usual = nullptr;
    CUmemoryPool current = nullptr;
    return real_cuDeviceGetDefaultMemPool(&usual, device.ordinal()) == CUDA_SUCCESS &&
           real_cuDeviceGetMemPool(&current, device.ordinal()) == CUDA_SUCCESS && usual == current;
}

template <typename Pass>
CUresult allocate(CUdeviceptr* out, std::size_t bytes, CUstream stream, bool per_thread,
                  const void* caller, CUmemoryPool pool, Pass&& pass) noexcept {
    if (out == nullptr || bytes == 0 || called_by_communication_library(caller)) return pass();
    Device* device = Device::for_allocation();
    if (device == nullptr) return pass();
    if (pool == nullptr ? !uses_default_pool(*device) : !is_default_pool(pool)) {
        count_named("passed", "allocation from a pool of the application's");
        return pass();
    }
    const CUresult result = device->allocate_ordered(out, bytes, stream, per_thread);
    return result == CUDA_ERROR_NOT_SUPPORTED ? pass() : result;
}

template <typename Pass>
CUresult release(CUdeviceptr address, CUstream stream, bool per_thread, Pass&& pass) noexcept {
    Device* device = Device::active();
    CUresult result = CUDA_SUCCESS;
    return device != nullptr && device->free_ordered(address, stream, per_thread, &result) ? result
                                                                                           : pass();
}

}  // namespace
}  // namespace transit

extern "C" {

CUresult hook_cuMemAllocAsync(CUdeviceptr* out, size_t bytes, CUstream stream) {
    return transit::allocate(out, bytes, stream, false, __builtin_return_address(0), nullptr,
                             [&] { return real_cuMemAllocAsync(out, bytes, stream); });
}
CUresult hook_cuMemAllocAsync_ptsz(CUdeviceptr* out, size_t bytes, CUstream stream) {
    return transit::allocate(out, bytes, stream, true, __builtin_return_address(0), nullptr,
                             [&] { return real_cuMemAllocAsync_ptsz(out, bytes, stream); });
}
CUresult hook_cuMemAllocFromPoolAsync(CUdeviceptr* out, size_t bytes, CUmemoryPool pool,
                                      CUstream stream) {
    return transit::allocate(out, bytes, stream, false, __builtin_return_address(0), pool, [&] {
        return real_cuMemAllocFromPoolAsync(out, bytes, pool, stream);
    });
}
CUresult hook_cuMemAllocFromPoolAsync_ptsz(CUdeviceptr* out, size_t bytes, CUmemoryPool pool,
                                           CUstream stream) {
    return transit::allocate(out, bytes, stream, true, __builtin_return_address(0), pool, [&] {
        return real_cuMemAllocFromPoolAsync_ptsz(out, bytes, pool, stream);
    });
}
CUresult hook_cuMemFreeAsync(CUdeviceptr address, CUstream stream) {
    return transit::release(address, stream, false,
                            [&] { return real_cuMemFreeAsync(address, stream); });
}
CUresult hook_cuMemFreeAsync_ptsz(CUdeviceptr address, CUstream stream) {
    return transit::release(address, stream, true,
                            [&] { return real_cuMemFreeAsync_ptsz(address, stream); });
}

CUresult hook_cuMemPoolGetAttribute(CUmemoryPool pool, CUmemPool_attribute attribute, void* value) {
    const bool figure = attribute >= CU_MEMPOOL_ATTR_RESERVED_MEM_CURRENT &&
                        attribute <= CU_MEMPOOL_ATTR_USED_MEM_HIGH;
    if (!figure || value == nullptr || !transit::is_default_pool(pool))
        return real_cuMemPoolGetAttribute(pool, attribute, value);
    const transit::PoolUse use = transit::Device::active()->pool_use();
    auto& out = *static_cast<cuuint64_t*>(value);
    if (attribute == CU_MEMPOOL_ATTR_RESERVED_MEM_CURRENT) out = use.reserved_bytes;
    if (attribute == CU_MEMPOOL_ATTR_RESERVED_MEM_HIGH) out = use.reserved_peak_bytes;
    if (attribute == CU_MEMPOOL_ATTR_USED_MEM_CURRENT) out = use.used_bytes;
    if (attribute == CU_MEMPOOL_ATTR_USED_MEM_HIGH) out = use.used_peak_bytes;
    return CUDA_SUCCESS;
}

CUresult hook_cuMemPoolSetAttribute(CUmemoryPool pool, CUmemPool_attribute attribute, void* value) {
    if (attribute >= CU_MEMPOOL_ATTR_RESERVED_MEM_CURRENT && transit::is_default_pool(pool))
        transit::Device::active()->reset_pool_peaks();
    return real_cuMemPoolSetAttribute(pool, attribute, value);
}

CUresult hook_cuMemPoolSetAccess(CUmemoryPool pool, const CUmemAccessDesc* wishes, size_t count) {
    const CUresult result = real_cuMemPoolSetAccess(pool, wishes, count);
    if (result != CUDA_SUCCESS || !transit::is_default_pool(pool)) return result;
    transit::Device& device = *transit::Device::active();
    for (size_t i = 0; i < count; ++i) {
        const CUmemLocation& where = wishes[i].location;
        if (where.type != CU_MEM_LOCATION_TYPE_DEVICE || where.id == device.ordinal()) continue;
        // Leave to read counts as access: our mappings have one kind.
        device.mover.change_access(where.id, wishes[i].flags != CU_MEM_ACCESS_FLAGS_PROT_NONE);
    }
    return CUDA_SUCCESS;
}

}  // extern "C"
