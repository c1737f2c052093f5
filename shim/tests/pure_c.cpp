// A C interface to the pure parts, for property tests in Python (tests/property).
#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <vector>

#include "transit/address_space.hpp"
#include "transit/ledger.hpp"
#include "transit/policy.hpp"

#define TRANSIT_C extern "C" __attribute__((visibility("default")))

namespace {

using transit::AddressSpace;
using transit::Ledger;

constexpr std::uint64_t kNothing = ~std::uint64_t{0};

/// Copies to `out`, which has room for every extent of the ledger.
std::size_t copied(const std::vector<std::uint32_t>& extents, std::uint32_t* out) {
    std::copy(extents.begin(), extents.end(), out);
    return extents.size();
}

}  // namespace

TRANSIT_C AddressSpace* transit_space_new(std::uint64_t base, std::uint64_t bytes,
                                          std::uint64_t granule) {
    return new AddressSpace(base, bytes, granule);
}
TRANSIT_C void transit_space_delete(AddressSpace* space) { delete space; }
TRANSIT_C std::uint64_t transit_space_take(AddressSpace* space, std::uint64_t bytes) {
    return space->take(bytes).value_or(kNothing);
}
TRANSIT_C int transit_space_take_at(AddressSpace* space, std::uint64_t address,
                                    std::uint64_t bytes) {
    return space->take_at(address, bytes) ? 1 : 0;
}
TRANSIT_C void transit_space_give(AddressSpace* space, std::uint64_t address, std::uint64_t bytes) {
    space->give(address, bytes);
}

TRANSIT_C Ledger* transit_ledger_new(std::uint64_t base, std::uint32_t extents,
                                     std::uint64_t extent_bytes) {
    return new Ledger(base, extents, extent_bytes);
}
TRANSIT_C void transit_ledger_delete(Ledger* ledger) { delete ledger; }
TRANSIT_C std::size_t transit_ledger_add_block(Ledger* ledger, std::uint64_t start,
                                               std::uint64_t bytes, std::uint32_t* born) {
    transit::Block block;
    block.start = start;
    block.bytes = bytes;
    std::vector<std::uint32_t> extents;
    ledger->add_block(block, extents);
    return copied(extents, born);
}
TRANSIT_C int transit_ledger_remove_block(Ledger* ledger, std::uint64_t start, std::uint32_t* died,
                                          std::size_t* count) {
    std::vector<std::uint32_t> extents;
    const bool removed = ledger->remove_block(start, extents).has_value();
    *count = copied(extents, died);
    return removed ? 1 : 0;
}
TRANSIT_C std::size_t transit_ledger_remove_blocks(Ledger* ledger, std::uint64_t address,
                                                   std::uint64_t bytes, std::uint32_t* died) {
    std::vector<std::uint32_t> extents;
    ledger->remove_blocks(address, bytes, extents);
    return copied(extents, died);
}
TRANSIT_C std::uint64_t transit_ledger_find(Ledger* ledger, std::uint64_t address) {
    const transit::Block* block = ledger->find(address);
    return block == nullptr ? kNothing : block->start;
}
/// What a launch does with an address: recall it, or look it up and remember.
TRANSIT_C int transit_ledger_touch(Ledger* ledger, std::uint64_t address, std::uint32_t* first,
                                   std::uint32_t* last) {
    const auto* listed = ledger->look_up(address);
    const transit::ExtentRange* known = ledger->recall(address);
    if (known == nullptr && listed == nullptr) return 0;
    const transit::ExtentRange extents =
        known != nullptr ? *known : ledger->extents_of(listed->start, listed->end - listed->start);
    if (known == nullptr) ledger->remember(address, extents);
    *first = extents.first;
    *last = extents.last;
    return known != nullptr ? 2 : 1;
}
TRANSIT_C int transit_ledger_live(const Ledger* ledger, std::uint32_t extent) {
    return ledger->live(extent) ? 1 : 0;
}
TRANSIT_C std::uint64_t transit_ledger_live_bytes(const Ledger* ledger) {
    return ledger->live_bytes();
}
TRANSIT_C void transit_ledger_add_table(Ledger* ledger, std::uint64_t address, std::uint64_t bytes,
                                        std::uint32_t first, std::uint32_t last) {
    ledger->add_table(address, {bytes, {{first, last}}});
}
TRANSIT_C std::size_t transit_ledger_drop_tables(Ledger* ledger, std::uint64_t address,
                                                 std::uint64_t bytes) {
    return ledger->drop_tables(address, bytes);
}
/// The extents reached, each once, in order.
TRANSIT_C std::size_t transit_ledger_reach(const Ledger* ledger, std::uint64_t address,
                                           std::uint64_t bytes, std::uint32_t* out) {
    std::vector<transit::ExtentRange> ranges;
    ledger->reach_of_tables(address, bytes, ranges);
    std::vector<std::uint32_t> extents;
    for (const transit::ExtentRange range : ranges)
        for (std::uint32_t e = range.first; e <= range.last; ++e)
            extents.push_back(e);
    std::sort(extents.begin(), extents.end());
    extents.erase(std::unique(extents.begin(), extents.end()), extents.end());
    return copied(extents, out);
}

TRANSIT_C std::size_t transit_least_recently_touched(const std::uint32_t* extents,
                                                     const std::uint64_t* touches,
                                                     std::size_t candidates, std::size_t count,
                                                     std::uint32_t* out) {
    std::vector<transit::Candidate> all;
    for (std::size_t i = 0; i < candidates; ++i)
        all.push_back({extents[i], touches[i]});
    return copied(transit::least_recently_touched(std::move(all), count), out);
}
TRANSIT_C std::uint32_t transit_must_leave(std::uint32_t live_in_hbm, std::uint32_t wanted,
                                           std::uint32_t limit) {
    return transit::must_leave({live_in_hbm, wanted, limit});
}
