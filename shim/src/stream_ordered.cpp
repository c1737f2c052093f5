// Stream-ordered memory: an address is given back where the stream stands, not where the host does.
//
// Each stream allocates from a zone of its own, so what it frees it may have again at once, and the
// address a request gets depends on the order of calls alone. Memory freed on another stream is
// fenced: its next user waits for that point.
#include <algorithm>

#include "transit/capture.hpp"
#include "transit/device.hpp"
#include "transit/real.hpp"
#include "transit/stats.hpp"

namespace transit {
namespace {

constexpr std::uint64_t kSmallBytes = std::uint64_t{1} << 20;  // below: in extents that never move
constexpr std::uint64_t kGranule = 512;
constexpr std::uint32_t kFirstStreamExtents = 8192;  // the compute stream's, nearly always
constexpr std::uint32_t kStreamExtents = 1024;
constexpr std::uint32_t kFirstSmallExtents = 128;
constexpr std::uint32_t kSmallExtents = 32;

}  // namespace

void Device::add_zone(std::uint32_t wanted, std::uint64_t granule, std::uint64_t stream,
                      bool small) {
    const std::uint64_t base = address_of(next_zone_extent_);
    if (small)
        for (std::uint32_t e = next_zone_extent_; e < next_zone_extent_ + wanted; ++e)
            extents[e].pins.store(kPinSmall, std::memory_order_relaxed);
    next_zone_extent_ += wanted;
    zones_.push_back({AddressSpace(base, wanted * extent_bytes_, granule), stream, small});
}

// Needs the ledger's lock. A stream's two zones are made when it first allocates; kNoZone when the
// arena is spent.
std::uint32_t Device::zone_of(CUstream stream, bool per_thread, bool small) noexcept {
    const std::uint64_t key = streams.key_of(stream, per_thread);
    bool first = true;
    for (std::uint32_t i = 0; i < zones_.size(); ++i) {
        if (zones_[i].stream == key && zones_[i].small == small) return i;
        first = first && zones_[i].stream == 0;
    }
    const std::uint32_t small_wanted = first ? kFirstSmallExtents : kSmallExtents;
    const std::uint32_t wanted = first ? kFirstStreamExtents : kStreamExtents;
    if (next_zone_extent_ + small_wanted + wanted > arena_bytes_ / extent_bytes_) return kNoZone;
    add_zone(small_wanted, kGranule, key, true);
    add_zone(wanted, kGranule, key, false);
    return static_cast<std::uint32_t>(zones_.size()) - (small ? 2 : 1);
}

void Device::retire_stream(CUstream stream) noexcept {
    streams.retire(stream);
    const std::lock_guard lock(ledger_mutex);
    // What lives there is freed as on a foreign stream, behind a fence; the addresses are not given
    // out again.
    for (Zone& zone : zones_)
        if (zone.stream == streams.key_of(stream, false)) zone.stream = ~std::uint64_t{0};
}

CUresult Device::allocate_ordered(CUdeviceptr* out, std::size_t bytes, CUstream stream,
                                  bool per_thread) noexcept {
    if (bytes > arena_bytes_) return CUDA_ERROR_OUT_OF_MEMORY;
    const std::lock_guard lock(ledger_mutex);
    const std::uint32_t zone = zone_of(stream, per_thread, bytes < kSmallBytes);
    if (zone == kNoZone) return CUDA_ERROR_NOT_SUPPORTED;
    const CUresult result = take(out, bytes, zone, true);
    if (result != CUDA_SUCCESS) return result;
    const std::uint64_t span = zones_[zone].space.rounded(bytes);
    if (!fences_.empty()) wait_for_fences(*out, span, named(stream, per_thread));
    pool_use_.used_bytes += span;
    pool_use_.used_peak_bytes = std::max(pool_use_.used_peak_bytes, pool_use_.used_bytes);
    return CUDA_SUCCESS;
}

bool Device::free_ordered(CUdeviceptr address, CUstream stream, bool per_thread,
                          CUresult* result) noexcept {
    if (!owns(address)) return false;
    std::unique_lock lock(ledger_mutex);
    const Allocation* found = ledger.allocation_at(address);
    const std::uint64_t zone_stream =
        found == nullptr || found->zone == kNoZone ? 0 : zones_[found->zone].stream;
    if (zone_stream == 0) {  // cuMemAlloc memory may be freed this way too
        lock.unlock();
        return free(address, result);
    }
    *result = CUDA_SUCCESS;
    if (zone_stream != streams.key_of(stream, per_thread)) {
        CUevent event = nullptr;
        *result = real_cuEventCreate(&event, CU_EVENT_DISABLE_TIMING);
        if (*result != CUDA_SUCCESS) return true;
        // Destroyed with the last piece; the driver keeps it until those who wait have passed it.
        const std::shared_ptr<CUevent_st> owned(event, real_cuEventDestroy_v2);
        *result = real_cuEventRecord(event, named(stream, per_thread));
        if (*result != CUDA_SUCCESS) return true;
        fences_[address] = {address + found->span_bytes, owned};
    }
    const Allocation removed = *found;
    ledger.remove_allocation(address);
    pool_use_.used_bytes -= removed.span_bytes;
    give(address, removed);
    return true;
}

void Device::wait_for_fences(CUdeviceptr address, std::uint64_t bytes, CUstream stream) noexcept {
    auto at = fences_.lower_bound(address);
    if (at != fences_.begin() && std::prev(at)->second.end > address) --at;
    while (at != fences_.end() && at->first < address + bytes) {
        if (real_cuStreamWaitEvent(stream, at->second.event.get(), 0) != CUDA_SUCCESS) {
            const OutsideCapture outside;
            real_cuEventSynchronize(at->second.event.get());
        }
        // A part of the freed range may still be free: it keeps its fence.
        if (at->second.end > address + bytes) {
            fences_.emplace(address + bytes, Fence{at->second.end, at->second.event});
            at->second.end = address + bytes;
        }
        if (at->first < address) {
            at->second.end = address;
            ++at;
        } else {
            at = fences_.erase(at);
        }
    }
}

PoolUse Device::pool_use() noexcept {
    const std::lock_guard lock(ledger_mutex);
    pool_use_.reserved_bytes = std::uint64_t{committed_extents_} * extent_bytes_;
    pool_use_.reserved_peak_bytes =
        std::max(pool_use_.reserved_peak_bytes, pool_use_.reserved_bytes);
    return pool_use_;
}

void Device::reset_pool_peaks() noexcept {
    const std::lock_guard lock(ledger_mutex);
    pool_use_.used_peak_bytes = pool_use_.used_bytes;
    pool_use_.reserved_peak_bytes = std::uint64_t{committed_extents_} * extent_bytes_;
}

}  // namespace transit
