#pragma once
// How much the application may have, before there is a device to hold it.
#include <cuda.h>

#include <cstdint>
#include <optional>

namespace transit {

struct Budgets {
    std::uint64_t hbm_bytes;
    std::uint64_t dram_bytes;
    CUmemLocation dram_place;  // the NUMA node next to the device
    bool hbm_cut;              // more was asked for than is free
    bool dram_cut;             // the driver cannot place frames on the host
};

/// Of the device whose context is current; nothing if the driver does not say what is free.
std::optional<Budgets> budgets(int ordinal) noexcept;
/// What the application will be told that the device has: whole extents of both.
std::uint64_t total_of(const Budgets& budgets) noexcept;

}  // namespace transit
