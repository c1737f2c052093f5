#include "transit/policy.hpp"

#include <algorithm>
#include <tuple>

namespace transit {

std::vector<std::uint32_t> least_recently_touched(std::vector<Candidate> candidates,
                                                  std::size_t count) {
    std::sort(candidates.begin(), candidates.end(), [](const Candidate& a, const Candidate& b) {
        return std::tie(a.last_touch, a.extent) < std::tie(b.last_touch, b.extent);
    });
    std::vector<std::uint32_t> chosen;
    for (std::size_t i = 0; i < std::min(count, candidates.size()); ++i)
        chosen.push_back(candidates[i].extent);
    return chosen;
}

std::uint32_t must_leave(const FrameDemand& demand) {
    const std::uint64_t needed = std::uint64_t{demand.live_in_hbm} + demand.wanted;
    return needed <= demand.limit ? 0 : static_cast<std::uint32_t>(needed - demand.limit);
}

}  // namespace transit
