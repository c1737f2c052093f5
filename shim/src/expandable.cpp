// Expandable segments: PyTorch reserves a long range and maps 2 or 20 MiB pieces into it
// (cuMemCreate, cuMemMap).
//
// The range comes from our arena, the pieces are promises of ours: extents get frames when blocks
// in them come alive. Only with lifetimes: a tensor spans pieces, so without them no word would
// tell how far it reaches.
#include "transit/device.hpp"
#include "transit/hooks.hpp"
#include "transit/lifetimes.hpp"
#include "transit/real.hpp"
#include "transit/stats.hpp"

namespace transit {
namespace {

// Handles that the driver never gives: the rest of the number is the piece's size.
constexpr CUmemGenericAllocationHandle kOurHandle = std::uint64_t{0x7472} << 48;
constexpr CUmemGenericAllocationHandle kHandleMask = std::uint64_t{0xffff} << 48;

bool is_ours(CUmemGenericAllocationHandle handle) noexcept {
    return (handle & kHandleMask) == kOurHandle;
}
std::uint64_t bytes_of(CUmemGenericAllocationHandle handle) noexcept {
    return handle & ~kHandleMask;
}

bool called_by_pytorch(const void* return_address) noexcept {
    return called_by(return_address, {"libc10_cuda", "libtorch_cuda", "libtorch"});
}

}  // namespace

bool Device::reserve(CUdeviceptr* out, std::size_t bytes) noexcept {
    const std::lock_guard lock(ledger_mutex);
    const std::uint64_t wanted = (bytes + extent_bytes_ - 1) / extent_bytes_;
    if (next_zone_extent_ + wanted > arena_bytes_ / extent_bytes_) return false;
    *out = address_of(next_zone_extent_);
    next_zone_extent_ += static_cast<std::uint32_t>(wanted);
    reservations_.emplace(*out, bytes);
    return true;
}

bool Device::has_reservations() noexcept {
    const std::lock_guard lock(ledger_mutex);
    return !reservations_.empty();
}

bool Device::unreserve(CUdeviceptr address) noexcept {
    const std::lock_guard lock(ledger_mutex);
    return reservations_.erase(address) !=
           0;  // the addresses are not given out again: there are plenty
}

CUresult Device::promise(CUmemGenericAllocationHandle* out, std::size_t bytes) noexcept {
    const std::lock_guard lock(ledger_mutex);
    const std::uint64_t held = std::uint64_t{committed_extents_} * extent_bytes_ + promised_bytes_;
    // A piece may begin in one extent and end in the next: mapped, it holds both whole.
    const std::uint64_t most = (bytes + 2 * extent_bytes_ - 2) / extent_bytes_ * extent_bytes_;
    if (held + most > (std::uint64_t{hbm.limit()} + dram.limit()) * extent_bytes_) {
        counter(Counter::kRefusedBytes).fetch_add(bytes, std::memory_order_relaxed);
        return CUDA_ERROR_OUT_OF_MEMORY;
    }
    promised_bytes_ += bytes;
    *out = kOurHandle | bytes;
    return CUDA_SUCCESS;
}

bool Device::release(CUmemGenericAllocationHandle handle) noexcept {
    if (!is_ours(handle)) return false;
    const std::lock_guard lock(ledger_mutex);
    promised_bytes_ -= bytes_of(handle);
    return true;
}

CUresult Device::map_piece(CUdeviceptr address, std::size_t bytes,
                           CUmemGenericAllocationHandle handle) noexcept {
    if (!is_ours(handle) || !owns(address) || bytes != bytes_of(handle))
        return CUDA_ERROR_INVALID_VALUE;
    const std::lock_guard lock(ledger_mutex);
    if (ledger.allocation_at(address) != nullptr) return CUDA_ERROR_INVALID_VALUE;
    if (!commit(address, bytes)) return CUDA_ERROR_OUT_OF_MEMORY;
    promised_bytes_ -= bytes;  // a mapped piece is counted by its extents
    ledger.add_allocation(address, {bytes, bytes, true, kNoZone});
    add_with_peak(Counter::kManagedBytes, Counter::kManagedPeakBytes,
                  static_cast<std::int64_t>(bytes));
    wake_stocking();
    return CUDA_SUCCESS;
}

// PyTorch has waited for the streams that used the pieces; the frames wait for all of them anyway
// (see died).
CUresult Device::unmap_pieces(CUdeviceptr address, std::size_t bytes) noexcept {
    const std::lock_guard lock(ledger_mutex);
    std::vector<std::uint32_t> left;
    for (std::uint64_t at = address; at < address + bytes;) {
        const auto piece = ledger.remove_allocation(at);
        if (!piece) return CUDA_ERROR_INVALID_VALUE;
        ledger.remove_blocks(at, piece->span_bytes, left);
        uncommit(at, piece->span_bytes);
        counter(Counter::kManagedBytes).fetch_sub(piece->span_bytes, std::memory_order_relaxed);
        promised_bytes_ += piece->span_bytes;  // until its handle is released
        at += piece->span_bytes;
    }
    died(left);
    return CUDA_SUCCESS;
}

}  // namespace transit

extern "C" {

CUresult hook_cuMemAddressReserve(CUdeviceptr* out, size_t bytes, size_t alignment,
                                  CUdeviceptr wish, unsigned long long flags) {
    using namespace transit;
    if (out != nullptr && wish == 0 && called_by_pytorch(__builtin_return_address(0))) {
        attach_lifetimes();
        Device* device = lifetimes_attached() ? Device::for_reservation() : nullptr;
        if (device != nullptr && device->reserve(out, bytes)) return CUDA_SUCCESS;
        count_named("passed", "expandable segment without lifetimes");
    }
    return real_cuMemAddressReserve(out, bytes, alignment, wish, flags);
}

CUresult hook_cuMemAddressFree(CUdeviceptr address, size_t bytes) {
    transit::Device* device = transit::Device::active();
    if (device != nullptr && device->unreserve(address)) return CUDA_SUCCESS;
    return real_cuMemAddressFree(address, bytes);
}

CUresult hook_cuMemCreate(CUmemGenericAllocationHandle* out, size_t bytes,
                          const CUmemAllocationProp* prop, unsigned long long flags) {
    using namespace transit;
    Device* device = Device::active();
    const bool ours = device != nullptr && out != nullptr && prop != nullptr &&
                      lifetimes_attached() && prop->location.type == CU_MEM_LOCATION_TYPE_DEVICE &&
                      prop->location.id == device->ordinal() && device->has_reservations() &&
                      called_by_pytorch(__builtin_return_address(0));
    return ours ? device->promise(out, bytes) : real_cuMemCreate(out, bytes, prop, flags);
}

CUresult hook_cuMemRelease(CUmemGenericAllocationHandle handle) {
    transit::Device* device = transit::Device::active();
    if (device != nullptr && device->release(handle)) return CUDA_SUCCESS;
    return real_cuMemRelease(handle);
}

CUresult hook_cuMemMap(CUdeviceptr address, size_t bytes, size_t offset,
                       CUmemGenericAllocationHandle handle, unsigned long long flags) {
    transit::Device* device = transit::Device::active();
    if (device != nullptr && transit::is_ours(handle))
        return device->map_piece(address, bytes, handle);
    return real_cuMemMap(address, bytes, offset, handle, flags);
}

CUresult hook_cuMemUnmap(CUdeviceptr address, size_t bytes) {
    transit::Device* device = transit::Device::active();
    if (device != nullptr && device->owns(address)) return device->unmap_pieces(address, bytes);
    return real_cuMemUnmap(address, bytes);
}

CUresult hook_cuMemSetAccess(CUdeviceptr address, size_t bytes, const CUmemAccessDesc* wishes,
                             size_t count) {
    transit::Device* device = transit::Device::active();
    if (device == nullptr || !device->owns(address))
        return real_cuMemSetAccess(address, bytes, wishes, count);
    for (size_t i = 0; wishes != nullptr && i < count; ++i)
        if (wishes[i].location.type == CU_MEM_LOCATION_TYPE_DEVICE &&
            wishes[i].location.id != device->ordinal())
            device->mover.change_access(wishes[i].location.id, true);
    return CUDA_SUCCESS;
}

CUresult hook_cuMemExportToShareableHandle(void* out, CUmemGenericAllocationHandle handle,
                                           CUmemAllocationHandleType type,
                                           unsigned long long flags) {
    if (!transit::is_ours(handle))
        return real_cuMemExportToShareableHandle(out, handle, type, flags);
    transit::warn_once("the job exports device memory to another process, which Transit's memory "
                       "cannot do; run that part "
                       "without Transit, or share through the host");
    return CUDA_ERROR_NOT_SUPPORTED;
}

}  // extern "C"
