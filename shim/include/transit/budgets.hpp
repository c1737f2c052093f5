#pragma once
// How much the application may have, before there is a device to hold it.
#include <cuda.h>

#include <cstdint>

namespace transit {

/// HBM for frames on the device whose context is current.
std::uint64_t hbm_budget() noexcept;
/// The NUMA node next to the device; INVALID where the driver cannot place frames on the host.
CUmemLocation dram_place(int ordinal) noexcept;

}  // namespace transit
