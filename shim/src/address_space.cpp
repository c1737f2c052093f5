#include "transit/address_space.hpp"

#include <algorithm>
#include <iterator>

namespace transit {

AddressSpace::AddressSpace(std::uint64_t base, std::uint64_t bytes, std::uint64_t granule)
    : granule_(granule), high_water_(base) {
    add_free(base, bytes);
}

void AddressSpace::add_free(std::uint64_t address, std::uint64_t bytes) {
    by_address_.emplace(address, bytes);
    by_size_.emplace(bytes, address);
}

void AddressSpace::drop_free(std::map<std::uint64_t, std::uint64_t>::iterator range) {
    by_size_.erase({range->second, range->first});
    by_address_.erase(range);
}

std::optional<std::uint64_t> AddressSpace::take(std::uint64_t bytes) {
    if (bytes > ~std::uint64_t{0} - granule_) return std::nullopt;  // rounding up would wrap around
    const std::uint64_t wanted = std::max(rounded(bytes), granule_);
    const auto fit = by_size_.lower_bound({wanted, 0});
    if (fit == by_size_.end()) return std::nullopt;
    const auto [size, address] = *fit;
    drop_free(by_address_.find(address));
    if (size > wanted) add_free(address + wanted, size - wanted);
    high_water_ = std::max(high_water_, address + wanted);
    return address;
}

bool AddressSpace::take_at(std::uint64_t address, std::uint64_t bytes) {
    auto range = by_address_.upper_bound(address);
    if (range == by_address_.begin()) return false;
    --range;
    const auto [start, size] = *range;
    const std::uint64_t end = address + rounded(bytes);
    if (end > start + size) return false;
    drop_free(range);
    if (address > start) add_free(start, address - start);
    if (start + size > end) add_free(end, start + size - end);
    high_water_ = std::max(high_water_, end);
    return true;
}

void AddressSpace::give(std::uint64_t address, std::uint64_t bytes) {
    std::uint64_t size = std::max(rounded(bytes), granule_);
    auto after = by_address_.lower_bound(address);
    if (after != by_address_.end() && after->first == address + size) {
        size += after->second;
        drop_free(after);
        after = by_address_.lower_bound(address);
    }
    if (after != by_address_.begin()) {
        const auto before = std::prev(after);
        if (before->first + before->second == address) {
            address = before->first;
            size += before->second;
            drop_free(before);
        }
    }
    add_free(address, size);
}

}  // namespace transit
