#pragma once
// Which address a request gets: a deterministic best fit. Pure: the answer depends on the sequence
// of calls alone, so a training step that repeats its calls repeats its addresses.
#include <cstdint>
#include <map>
#include <optional>
#include <set>
#include <utility>

namespace transit {

class AddressSpace {
public:
    /// Manages [base, base + bytes). Sizes are rounded up to `granule`, a power of two, and so are
    /// addresses.
    AddressSpace(std::uint64_t base, std::uint64_t bytes, std::uint64_t granule);

    /// The lowest of the smallest free ranges that fit; nothing when none does. O(log n).
    std::optional<std::uint64_t> take(std::uint64_t bytes);

    /// Takes exactly [address, address + bytes); false if any of it is taken.
    bool take_at(std::uint64_t address, std::uint64_t bytes);

    /// Gives back what `take` gave, with the same size; joins its free neighbours. O(log n).
    void give(std::uint64_t address, std::uint64_t bytes);

    std::uint64_t rounded(std::uint64_t bytes) const {
        return (bytes + granule_ - 1) & ~(granule_ - 1);
    }
    std::uint64_t high_water() const { return high_water_; }

private:
    void add_free(std::uint64_t address, std::uint64_t bytes);
    void drop_free(std::map<std::uint64_t, std::uint64_t>::iterator range);

    std::uint64_t granule_;
    std::uint64_t high_water_ = 0;
    std::map<std::uint64_t, std::uint64_t> by_address_;          // start → bytes, never adjacent
    std::set<std::pair<std::uint64_t, std::uint64_t>> by_size_;  // (bytes, start)
};

}  // namespace transit
