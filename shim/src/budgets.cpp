// How much the application may have, before there is a device to hold it.
#include "transit/budgets.hpp"

#include "transit/options.hpp"
#include "transit/real.hpp"

namespace transit {
namespace {

constexpr std::uint64_t kAutoReserveBytes = std::uint64_t{2}
                                            << 30;  // for modules, workspaces, NCCL

std::optional<std::uint64_t> hbm_budget(bool& cut) noexcept {
    std::size_t free_bytes = 0;
    std::size_t total_bytes = 0;
    if (real_cuMemGetInfo_v2(&free_bytes, &total_bytes) != CUDA_SUCCESS) return std::nullopt;
    const std::uint64_t most =
        free_bytes > kAutoReserveBytes ? free_bytes - kAutoReserveBytes : free_bytes / 2;
    const Options& wish = options();
    std::uint64_t budget = most;
    if (wish.hbm_bytes != 0) budget = wish.hbm_bytes;
    if (wish.hbm_percent > 0)
        budget =
            static_cast<std::uint64_t>(wish.hbm_percent / 100 * static_cast<double>(total_bytes));
    cut = budget > free_bytes;
    return cut ? most : budget;
}

// The NUMA node next to the device; INVALID where the driver cannot place frames on the host.
CUmemLocation dram_place(int ordinal) noexcept {
    CUmemLocation place{};
    int supported = 0;
    int node = 0;
    place.type = CU_MEM_LOCATION_TYPE_HOST_NUMA;
    real_cuDeviceGetAttribute(
        &supported, CU_DEVICE_ATTRIBUTE_HOST_NUMA_VIRTUAL_MEMORY_MANAGEMENT_SUPPORTED, ordinal);
    if (supported == 0) {
        place.type = CU_MEM_LOCATION_TYPE_INVALID;
        return place;
    }
    if (real_cuDeviceGetAttribute(&node, CU_DEVICE_ATTRIBUTE_HOST_NUMA_ID, ordinal) ==
            CUDA_SUCCESS &&
        node > 0)
        place.id = node;
    return place;
}

}  // namespace

std::optional<Budgets> budgets(int ordinal) noexcept {
    Budgets found{};
    const auto hbm_bytes = hbm_budget(found.hbm_cut);
    if (!hbm_bytes) return std::nullopt;
    found.hbm_bytes = *hbm_bytes;
    found.dram_bytes = options().dram_bytes;
    found.dram_place = dram_place(ordinal);
    found.dram_cut = found.dram_bytes != 0 && found.dram_place.type == CU_MEM_LOCATION_TYPE_INVALID;
    if (found.dram_cut) found.dram_bytes = 0;
    return found;
}

std::uint64_t total_of(const Budgets& budgets) noexcept {
    const std::uint64_t extent = options().extent_bytes;
    return (budgets.hbm_bytes / extent + budgets.dram_bytes / extent) * extent;
}

}  // namespace transit
