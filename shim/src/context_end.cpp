// The end of the managed context: cudaDeviceReset, or a context that is destroyed. What lay in the
// arena dies with it, as it would without Transit.
#include <vector>

#include "transit/context.hpp"
#include "transit/device.hpp"
#include "transit/real.hpp"
#include "transit/stats.hpp"

namespace transit {

void Mover::end(const std::vector<std::uint32_t>& extents) noexcept {
    const std::lock_guard lock(mutex_);
    ended_ = true;
    for (std::uint32_t e : extents) {
        Extent& extent = device_.extents[e];
        if (place_of(extent.word.load(std::memory_order_seq_cst)) == Place::kNone) continue;
        if (!extent.hidden) real_cuMemUnmap(device_.address_of(e), device_.extent_bytes());
    }
}

// Before the reset, because only then can its work be waited for; frames do not die with a context.
// The object itself stays, since threads may still look at it; so do the reserved addresses, so
// that no later allocation gets one that the application may have kept.
void Device::give_back() noexcept {
    ended_.store(true, std::memory_order_release);
    const InContext home(context_);
    real_cuCtxSynchronize();
    std::vector<std::uint32_t> had;
    {
        const std::lock_guard lock(ledger_mutex);
        had = used;
    }
    mover.end(had);
    hbm.end();
    dram.end();
    counter(Counter::kManagedBytes).store(0, std::memory_order_relaxed);
    counter(Counter::kLiveBytes).store(0, std::memory_order_relaxed);
}

namespace {

void end_of_primary(CUdevice ordinal) noexcept {
    const Device* device = Device::active();
    if (device != nullptr && device->ordinal() == ordinal) Device::end();
}

}  // namespace
}  // namespace transit

extern "C" {

CUresult hook_cuDevicePrimaryCtxReset(CUdevice ordinal) {
    transit::end_of_primary(ordinal);
    return real_cuDevicePrimaryCtxReset(ordinal);
}

CUresult hook_cuDevicePrimaryCtxReset_v2(CUdevice ordinal) {
    transit::end_of_primary(ordinal);
    return real_cuDevicePrimaryCtxReset_v2(ordinal);
}

}  // extern "C"
