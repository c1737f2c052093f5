#include "transit/verify.hpp"

#include <cstring>
#include <memory>

#include "transit/context.hpp"
#include "transit/device.hpp"
#include "transit/log.hpp"
#include "transit/options.hpp"
#include "transit/real.hpp"
#include "transit/stats.hpp"

namespace transit {

bool verifying() noexcept {
    static const bool on = options().verify;
    return on;
}

// Needs the mover's lock.
void Mover::hide_one(std::uint32_t e) noexcept {
    Extent& extent = device_.extents[e];
    const bool captured =
        (extent.pins.load(std::memory_order_relaxed) & kPinCaptured) != 0;  // replays name nothing
    if (extent.hidden || captured ||
        place_of(extent.word.load(std::memory_order_relaxed)) == Place::kNone)
        return;
    if (real_cuMemUnmap(device_.address_of(e), device_.extent_bytes()) != CUDA_SUCCESS) return;
    extent.hidden = true;
    if (extent.ever_hidden) return;
    extent.ever_hidden = true;
    counter(Counter::kUnmappedBytesVerified)
        .fetch_add(device_.extent_bytes(), std::memory_order_relaxed);
}

void Mover::show(const std::vector<ExtentRange>& ranges, bool everything) noexcept {
    const InContext home(device_.context());
    const std::lock_guard lock(mutex_);
    const auto show_one = [this](std::uint32_t e) {
        Extent& extent = device_.extents[e];
        ++extent.shown;
        if (!extent.hidden) return;
        const Place place = place_of(extent.word.load(std::memory_order_relaxed));
        if (place == Place::kNone) return;
        const CUdeviceptr address = device_.address_of(e);
        if (real_cuMemMap(address, device_.extent_bytes(), 0, pool(place).handle(extent.frame),
                          0) == CUDA_SUCCESS &&
            device_.access.apply(address, device_.extent_bytes()) == CUDA_SUCCESS)
            extent.hidden = false;
    };
    for (const ExtentRange range : ranges)
        for (std::uint32_t e = range.first; e <= range.last; ++e)
            show_one(e);
    if (!everything) return;
    const std::lock_guard ledger(device_.ledger_mutex);
    for (std::uint32_t e : device_.used)
        show_one(e);
}

CUresult Mover::hide(const std::vector<ExtentRange>& ranges, bool everything,
                     const char* name) noexcept {
    const InContext home(device_.context());
    const CUresult result = device_.synchronize();
    if (result != CUDA_SUCCESS) {
        static std::atomic<bool> said{false};
        if (!said.exchange(true)) {
            counter(Counter::kHiddenAccesses).fetch_add(1, std::memory_order_relaxed);
            count_named("hidden", name);
            log(LogLevel::kWarn,
                "verification: %s touched memory that nothing visible names (driver error %d)",
                name, static_cast<int>(result));
        }
        return result;
    }
    const std::lock_guard lock(mutex_);
    const auto hide_if_last = [this](std::uint32_t e) {
        // An extent that came into use after the launch was opened was never shown for it.
        Extent& extent = device_.extents[e];
        if (extent.shown == 0) return;
        --extent.shown;
        if (extent.shown == 0) hide_one(e);
    };
    for (const ExtentRange range : ranges)
        for (std::uint32_t e = range.first; e <= range.last; ++e)
            hide_if_last(e);
    if (!everything) return CUDA_SUCCESS;
    const std::lock_guard ledger(device_.ledger_mutex);
    for (std::uint32_t e : device_.used)
        hide_if_last(e);
    return CUDA_SUCCESS;
}

// A copy whose source changed while it ran means that somebody wrote without being seen.
bool Mover::same_bytes(const Flight& flight, Place from, Place to) noexcept {
    const std::size_t bytes = device_.extent_bytes();
    const auto first = std::make_unique<char[]>(bytes);
    const auto second = std::make_unique<char[]>(bytes);
    const CUdeviceptr source = pool(from).alias(device_.extents[flight.extent].frame);
    if (real_cuMemcpyDtoH_v2(first.get(), source, bytes) != CUDA_SUCCESS ||
        real_cuMemcpyDtoH_v2(second.get(), pool(to).alias(flight.frame), bytes) != CUDA_SUCCESS)
        return false;
    if (std::memcmp(first.get(), second.get(), bytes) == 0) return true;
    counter(Counter::kHiddenAccesses).fetch_add(1, std::memory_order_relaxed);
    count_named("hidden", "a write that nothing visible names, while its extent moved");
    log(LogLevel::kWarn,
        "verification: extent %u changed while it moved, and nothing visible names it",
        flight.extent);
    return false;
}

}  // namespace transit
