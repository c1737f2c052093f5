// TRANSIT_SIM_*: everything a test can set, read once.
#pragma once

#include <cstdint>
#include <string>

namespace transit::sim {

struct Options {
    std::uint64_t hbm_bytes;   // TRANSIT_SIM_HBM_BYTES: capacity of each device
    unsigned devices;          // TRANSIT_SIM_DEVICES, less what CUDA_VISIBLE_DEVICES hides
    std::uint64_t seed;        // TRANSIT_SIM_SEED: of the latencies
    std::uint64_t latency_us;  // TRANSIT_SIM_LATENCY_US: most an operation is delayed
    bool host_numa;            // TRANSIT_SIM_HOST_NUMA: DRAM frames can be created
    bool poison;               // TRANSIT_SIM_POISON: fresh memory reads as 0xFF, not as zero
    bool illegal_address;  // TRANSIT_SIM_ILLEGAL_ADDRESS: faults of built-in kernels become error
                           // 700
    std::string truth_directory;  // TRANSIT_SIM_TRUTH
    std::string failures;         // TRANSIT_SIM_FAIL
};

const Options& options();

}  // namespace transit::sim
