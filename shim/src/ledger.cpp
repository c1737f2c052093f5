#include "transit/ledger.hpp"

#include <algorithm>
#include <bit>
#include <iterator>
#include <utility>

namespace transit {
namespace {

bool starts_after(std::uint64_t address, const Ledger::Listed& listed) {
    return address < listed.start;
}

}  // namespace

void keep_each_once(std::vector<ExtentRange>& ranges) {
    const auto bounds = [](const ExtentRange& range) { return std::pair(range.first, range.last); };
    std::ranges::sort(ranges, {}, bounds);
    const auto rest = std::ranges::unique(ranges, {}, bounds);
    ranges.erase(rest.begin(), rest.end());
}

Ledger::Ledger(std::uint64_t base, std::uint32_t extents, std::uint64_t extent_bytes)
    : base_(base), span_(extents * extent_bytes),
      extent_shift_(static_cast<unsigned>(std::countr_zero(extent_bytes))), by_extent_(extents),
      changes_(extents), known_(std::size_t{1} << kMemoBits) {}

ExtentRange Ledger::extents_of(std::uint64_t address, std::uint64_t bytes) const {
    const std::uint64_t offset = address - base_;
    const std::uint64_t last = offset + (bytes == 0 ? 0 : bytes - 1);
    return {static_cast<std::uint32_t>(offset >> extent_shift_),
            static_cast<std::uint32_t>(std::min(last, span_ - 1) >> extent_shift_)};
}

void Ledger::add_allocation(std::uint64_t address, const Allocation& allocation) {
    allocations_.insert_or_assign(address, allocation);
}

std::optional<Allocation> Ledger::remove_allocation(std::uint64_t address) {
    const auto found = allocations_.find(address);
    if (found == allocations_.end()) return std::nullopt;
    const Allocation removed = found->second;
    allocations_.erase(found);
    return removed;
}

Allocation* Ledger::allocation_at(std::uint64_t address) {
    const auto found = allocations_.find(address);
    return found == allocations_.end() ? nullptr : &found->second;
}

std::optional<std::pair<std::uint64_t, Allocation>>
Ledger::allocation_around(std::uint64_t address) const {
    auto after = allocations_.upper_bound(address);
    if (after == allocations_.begin()) return std::nullopt;
    --after;
    if (address >= after->first + after->second.span_bytes) return std::nullopt;
    return *after;
}

void Ledger::add_block(const Block& block, std::vector<std::uint32_t>& born,
                       std::vector<std::uint32_t>* died) {
    if (block.bytes == 0) return;
    std::vector<std::uint32_t> lost;
    remove_blocks(block.start, block.bytes, died == nullptr ? lost : *died);
    auto owned = std::make_unique<Block>(block);
    owned->extents = extents_of(block.start, block.bytes);
    for (std::uint32_t e = owned->extents.first; e <= owned->extents.last; ++e) {
        std::vector<Listed>& here = by_extent_[e];
        if (here.empty()) born.push_back(e);
        here.insert(std::upper_bound(here.begin(), here.end(), block.start, starts_after),
                    {block.start, block.end(), owned.get(), owned->has_tables || owned->opaque});
    }
    live_bytes_ += block.bytes;
    blocks_.emplace(block.start, std::move(owned));
}

void Ledger::unlink(Block& block, std::vector<std::uint32_t>& died) {
    for (std::uint32_t e = block.extents.first; e <= block.extents.last; ++e) {
        ++changes_[e];
        std::vector<Listed>& here = by_extent_[e];
        here.erase(
            std::prev(std::upper_bound(here.begin(), here.end(), block.start, starts_after)));
        if (here.empty()) died.push_back(e);
    }
    live_bytes_ -= block.bytes;
    if (block.has_tables) drop_tables(block.start, block.bytes);
}

std::optional<Block> Ledger::remove_block(std::uint64_t address, std::vector<std::uint32_t>& died) {
    const auto found = blocks_.find(address);
    if (found == blocks_.end()) return std::nullopt;
    const Block removed = *found->second;
    unlink(*found->second, died);
    blocks_.erase(found);
    return removed;
}

// The first block that ends after `address`.
Ledger::Blocks::const_iterator Ledger::first_reaching(std::uint64_t address) const {
    auto at = blocks_.upper_bound(address);
    if (at != blocks_.begin() && std::prev(at)->second->end() > address) --at;
    return at;
}

bool Ledger::opaque_in(std::uint64_t address, std::uint64_t bytes) const {
    for (auto at = first_reaching(address); at != blocks_.end() && at->first < address + bytes;
         ++at)
        if (at->second->opaque) return true;
    return false;
}

void Ledger::make_opaque(std::uint64_t address, std::uint64_t bytes) {
    for (auto at = first_reaching(address); at != blocks_.end() && at->first < address + bytes;
         ++at)
        make_opaque(*at->second);
}

void Ledger::remove_blocks(std::uint64_t address, std::uint64_t bytes,
                           std::vector<std::uint32_t>& died) {
    auto at = first_reaching(address);
    while (at != blocks_.end() && at->first < address + bytes) {
        unlink(*at->second, died);
        at = blocks_.erase(at);
    }
}

const Ledger::Listed* Ledger::look_up(std::uint64_t address) const {
    if (!contains(address)) return nullptr;
    const std::vector<Listed>& here = by_extent_[extent_of(address)];
    const auto after = std::upper_bound(here.begin(), here.end(), address, starts_after);
    if (after == here.begin()) return nullptr;
    const Listed& listed = *std::prev(after);
    return address < listed.end ? &listed : nullptr;
}

void Ledger::list_as_holder(const Block& block) {
    for (std::uint32_t e = block.extents.first; e <= block.extents.last; ++e) {
        ++changes_[e];
        for (Listed& listed : by_extent_[e])
            if (listed.block == &block) listed.holds_addresses = true;
    }
}

void Ledger::make_opaque(Block& block) {
    if (block.opaque) return;
    block.opaque = true;
    list_as_holder(block);
}

void Ledger::add_table(std::uint64_t address, Table table, bool beside) {
    if (!beside) drop_tables(address, table.bytes);
    // What is left overlaps in part, and keeps addresses outside the new one: the two become one
    // table.
    const std::size_t fresh = table.reaches.size();
    auto at = tables_.upper_bound(address + (table.bytes == 0 ? 0 : table.bytes - 1));
    while (at != tables_.begin() && std::prev(at)->first + std::prev(at)->second.bytes > address) {
        --at;
        const std::uint64_t end = std::max(address + table.bytes, at->first + at->second.bytes);
        table.reaches.insert(table.reaches.end(), at->second.reaches.begin(),
                             at->second.reaches.end());
        address = std::min(address, at->first);
        table.bytes = end - address;
        if (at->second.foreign) --foreign_tables_;
        at = tables_.erase(at);
    }
    // Copies that join the same table step after step must not make it longer each time.
    if (table.reaches.size() != fresh) keep_each_once(table.reaches);
    table.foreign = find(address) == nullptr;
    for (auto at_block = first_reaching(address);
         at_block != blocks_.end() && at_block->first < address + table.bytes; ++at_block) {
        if (std::exchange(at_block->second->has_tables, true)) continue;
        list_as_holder(*at_block->second);
    }
    if (table.foreign) ++foreign_tables_;
    tables_.insert_or_assign(address, std::move(table));
}

std::size_t Ledger::drop_tables(std::uint64_t address, std::uint64_t bytes,
                                std::vector<std::pair<std::uint64_t, Table>>* dropped_tables) {
    std::size_t dropped = 0;
    for (auto at = tables_.lower_bound(address);
         at != tables_.end() && at->first + at->second.bytes <= address + bytes; ++dropped) {
        if (at->second.foreign) --foreign_tables_;
        if (dropped_tables != nullptr)
            dropped_tables->emplace_back(at->first, std::move(at->second));
        at = tables_.erase(at);
    }
    return dropped;
}

std::size_t Ledger::reach_of_tables(std::uint64_t address, std::uint64_t bytes,
                                    std::vector<ExtentRange>& out) const {
    std::size_t found = 0;
    auto at = tables_.upper_bound(address);
    if (at != tables_.begin() && std::prev(at)->first + std::prev(at)->second.bytes > address) --at;
    for (; at != tables_.end() && at->first < address + bytes; ++at, ++found)
        out.insert(out.end(), at->second.reaches.begin(), at->second.reaches.end());
    return found;
}

}  // namespace transit
