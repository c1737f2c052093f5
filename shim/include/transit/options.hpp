#pragma once
// What `transit run` told us, read once from TRANSIT_* (docs/formats.md).
#include <cstddef>
#include <cstdint>
#include <string>

namespace transit {

struct Options {
    std::uint64_t hbm_bytes = 0;   // 0: use hbm_percent
    double hbm_percent = 0;        // 0 with hbm_bytes 0: all of the device less a reserve
    std::uint64_t dram_bytes = 0;  // a rank's share
    std::uint64_t extent_bytes = 0;
    std::string run_dir;
    std::string lifetimes;
    bool verify = false;
    std::int64_t record_step = -1;
    std::uint64_t force_moves_seed = 0;  // 0: off
};

/// Parses the environment; what cannot be understood is said and left at its default.
const Options& options() noexcept;

}  // namespace transit
