#pragma once
// Which extents leave HBM. Pure: no clock, no CUDA. The first policy is least-recently-touched; a
// planned one takes its place behind the same two functions.
#include <cstdint>
#include <vector>

namespace transit {

struct Candidate {
    std::uint32_t extent;
    std::uint64_t last_touch;  // number of the newest operation that names it
};

/// The `count` candidates touched longest ago, oldest first; ties by address, so that runs repeat.
/// O(n log n).
std::vector<std::uint32_t> least_recently_touched(std::vector<Candidate> candidates,
                                                  std::size_t count);

struct FrameDemand {
    std::uint32_t live_in_hbm;  // live extents with an HBM frame
    std::uint32_t wanted;       // more that want one now
    std::uint32_t limit;        // HBM frames the budget allows
};

/// How many live extents must leave: what does not fit even when all dead memory has been dropped.
std::uint32_t must_leave(const FrameDemand& demand);

}  // namespace transit
