#include "address_space.hpp"

#include <sys/mman.h>

#include <algorithm>

namespace transit::sim {
namespace {

constexpr std::size_t kPageBytes = 4096;
// Freed addresses come back only after a lap of the arena, so that use after free faults.
constexpr std::size_t kArenaBytes = std::size_t{1} << 42;
constexpr std::size_t kSmallestArenaBytes = std::size_t{1} << 30;
constexpr int kClosed = MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE;

void* pointer(CUdeviceptr address) { return reinterpret_cast<void*>(address); }

bool close_range_to_access(CUdeviceptr base, std::size_t bytes) {
    return mmap(pointer(base), bytes, PROT_NONE, kClosed | MAP_FIXED, -1, 0) != MAP_FAILED;
}

bool open_frame(CUdeviceptr base, std::size_t bytes, const Frame& frame, int protection) {
    return mmap(pointer(base), bytes, protection, MAP_SHARED | MAP_FIXED, frame.fd(),
                static_cast<off_t>(frame.offset())) != MAP_FAILED;
}

CUdeviceptr reserve_closed(std::size_t bytes, std::size_t alignment) {
    const std::size_t with_slack = bytes + alignment;
    void* at = mmap(nullptr, with_slack, PROT_NONE, kClosed, -1, 0);
    if (at == MAP_FAILED) {
        return 0;
    }
    const auto start = reinterpret_cast<CUdeviceptr>(at);
    const CUdeviceptr base = round_up(start, alignment);
    if (base > start) {
        munmap(at, base - start);
    }
    munmap(pointer(base + bytes), start + with_slack - base - bytes);
    return base;
}

std::pair<int, int> key_of(const CUmemLocation& location) {
    // All host-side locations name the same thing here: the CPU.
    return location.type == CU_MEM_LOCATION_TYPE_DEVICE ? std::pair{1, location.id}
                                                        : std::pair{2, 0};
}

int protection_of(const Mapping& mapping) {
    int protection = PROT_NONE;
    for (const auto& [location, flags] : mapping.access) {
        if (flags == CU_MEM_ACCESS_FLAGS_PROT_READWRITE) {
            protection |= PROT_READ | PROT_WRITE;
        } else if (flags == CU_MEM_ACCESS_FLAGS_PROT_READ) {
            protection |= PROT_READ;
        }
    }
    return protection;
}

template <class Ranges>
auto range_at(Ranges& ranges, CUdeviceptr address) {
    auto after = ranges.upper_bound(address);
    if (after == ranges.begin()) {
        return ranges.end();
    }
    --after;
    return address < after->first + after->second.bytes ? after : ranges.end();
}

}  // namespace

AddressSpace& AddressSpace::instance() {
    static AddressSpace* const kSpace = new AddressSpace;
    return *kSpace;
}

CUresult AddressSpace::reserve(CUdeviceptr* base, std::size_t bytes, std::size_t alignment,
                               CUdeviceptr wish) {
    if (base == nullptr || bytes == 0 || bytes % kGranularityBytes != 0 ||
        (alignment & (alignment - 1)) != 0) {
        return CUDA_ERROR_INVALID_VALUE;
    }
    std::lock_guard lock(mutex_);
    alignment = std::max(alignment, kGranularityBytes);
    CUdeviceptr at = 0;
    if (wish != 0 && wish % alignment == 0) {
        void* placed = mmap(pointer(wish), bytes, PROT_NONE, kClosed | MAP_FIXED_NOREPLACE, -1, 0);
        at = placed == MAP_FAILED ? 0 : reinterpret_cast<CUdeviceptr>(placed);
    }
    at = at != 0 ? at : reserve_closed(bytes, alignment);  // the wish is only a hint
    if (at == 0) {
        return CUDA_ERROR_OUT_OF_MEMORY;
    }
    reservations_[at] = bytes;
    *base = at;
    return CUDA_SUCCESS;
}

CUresult AddressSpace::free_reservation(CUdeviceptr base, std::size_t bytes) {
    std::lock_guard lock(mutex_);
    const auto found = reservations_.find(base);
    if (found == reservations_.end() || found->second != bytes) {
        return CUDA_ERROR_INVALID_VALUE;
    }
    const auto mapped = mappings_.lower_bound(base);
    if (mapped != mappings_.end() && mapped->first < base + bytes) {
        return CUDA_ERROR_INVALID_VALUE;
    }
    munmap(pointer(base), bytes);
    reservations_.erase(found);
    return CUDA_SUCCESS;
}

CUresult AddressSpace::map(CUdeviceptr base, std::size_t bytes, std::shared_ptr<Frame> frame) {
    if (bytes == 0 || base % kGranularityBytes != 0 || bytes % kGranularityBytes != 0 ||
        bytes > frame->bytes()) {
        return CUDA_ERROR_INVALID_VALUE;
    }
    std::lock_guard lock(mutex_);
    auto reservation = reservations_.upper_bound(base);
    if (reservation == reservations_.begin()) {
        return CUDA_ERROR_INVALID_VALUE;
    }
    --reservation;
    if (base + bytes > reservation->first + reservation->second) {
        return CUDA_ERROR_INVALID_VALUE;
    }
    const auto next = mappings_.lower_bound(base);
    const bool over_next = next != mappings_.end() && next->first < base + bytes;
    if (over_next || range_at(mappings_, base) != mappings_.end()) {
        return CUDA_ERROR_INVALID_VALUE;
    }
    mappings_[base] = Mapping{bytes, std::move(frame), next_buffer_id_++, {}};
    return CUDA_SUCCESS;
}

std::optional<std::pair<AddressSpace::Mappings::iterator, AddressSpace::Mappings::iterator>>
AddressSpace::whole_mappings(CUdeviceptr base, std::size_t bytes) {
    const auto first = mappings_.find(base);
    CUdeviceptr reached = base;
    auto last = first;
    while (last != mappings_.end() && last->first == reached && reached < base + bytes) {
        reached += last->second.bytes;
        ++last;
    }
    if (bytes == 0 || reached != base + bytes) {
        return std::nullopt;
    }
    return std::pair{first, last};
}

CUresult AddressSpace::unmap(CUdeviceptr base, std::size_t bytes) {
    Mappings gone;  // outlives the lock: the last reference to a frame gives its memory back
    std::lock_guard lock(mutex_);
    const auto range = whole_mappings(base, bytes);
    if (!range) {
        return CUDA_ERROR_INVALID_VALUE;
    }
    if (!close_range_to_access(base, bytes)) {
        return CUDA_ERROR_UNKNOWN;
    }
    for (auto at = range->first; at != range->second;) {
        gone.insert(mappings_.extract(at++));
    }
    return CUDA_SUCCESS;
}

CUresult AddressSpace::set_access(CUdeviceptr base, std::size_t bytes,
                                  const CUmemAccessDesc* wanted, std::size_t count) {
    std::lock_guard lock(mutex_);
    const auto range = whole_mappings(base, bytes);
    if (!range || wanted == nullptr || count == 0) {
        return CUDA_ERROR_INVALID_VALUE;
    }
    for (std::size_t i = 0; i < count; ++i) {
        const bool known = wanted[i].flags == CU_MEM_ACCESS_FLAGS_PROT_NONE ||
                           wanted[i].flags == CU_MEM_ACCESS_FLAGS_PROT_READ ||
                           wanted[i].flags == CU_MEM_ACCESS_FLAGS_PROT_READWRITE;
        if (!known) {
            return CUDA_ERROR_INVALID_VALUE;
        }
    }
    for (auto at = range->first; at != range->second; ++at) {
        Mapping& mapping = at->second;
        const int before = protection_of(mapping);
        for (std::size_t i = 0; i < count; ++i) {
            mapping.access[key_of(wanted[i].location)] = wanted[i].flags;
        }
        const int after = protection_of(mapping);
        const bool done =
            before == after ||
            (after == PROT_NONE ? close_range_to_access(at->first, mapping.bytes)
                                : open_frame(at->first, mapping.bytes, *mapping.frame, after));
        if (!done) {
            return CUDA_ERROR_OUT_OF_MEMORY;
        }
    }
    return CUDA_SUCCESS;
}

CUresult AddressSpace::get_access(CUdeviceptr address, CUmemLocation location,
                                  unsigned long long* flags) {
    std::lock_guard lock(mutex_);
    const auto found = range_at(mappings_, address);
    if (found == mappings_.end() || flags == nullptr) {
        return CUDA_ERROR_INVALID_VALUE;
    }
    const auto access = found->second.access.find(key_of(location));
    *flags = access == found->second.access.end() ? CU_MEM_ACCESS_FLAGS_PROT_NONE : access->second;
    return CUDA_SUCCESS;
}

std::shared_ptr<Frame> AddressSpace::frame_at(CUdeviceptr address) {
    std::lock_guard lock(mutex_);
    const auto found = range_at(mappings_, address);
    return found == mappings_.end() ? nullptr : found->second.frame;
}

CUdeviceptr AddressSpace::find_gap(std::size_t bytes) {
    // Less where address space is short (sanitizers, RLIMIT_AS).
    for (std::size_t wish = kArenaBytes; arena_base_ == 0 && wish >= kSmallestArenaBytes;
         wish /= 4) {
        arena_base_ = reserve_closed(wish, kGranularityBytes);
        arena_cursor_ = arena_base_;
        arena_bytes_ = wish;
    }
    if (arena_base_ == 0) {
        return 0;
    }
    const std::size_t alignment = bytes >= kGranularityBytes / 2 ? kGranularityBytes : kPageBytes;
    bool second_lap = false;
    while (true) {
        CUdeviceptr at = round_up(arena_cursor_, alignment);
        if (at + bytes > arena_base_ + arena_bytes_) {
            if (second_lap) {
                return 0;
            }
            second_lap = true;
            arena_cursor_ = arena_base_;
            continue;
        }
        auto next = allocations_.lower_bound(at);
        if (next != allocations_.begin()) {
            const auto before = std::prev(next);
            const CUdeviceptr end = before->first + before->second.mapped_bytes;
            if (end > at) {
                arena_cursor_ = end;
                continue;
            }
        }
        if (next != allocations_.end() && next->first < at + bytes) {
            arena_cursor_ = next->first + next->second.mapped_bytes;
            continue;
        }
        arena_cursor_ = at + bytes;
        return at;
    }
}

CUdeviceptr AddressSpace::add_allocation(std::shared_ptr<Frame> frame, std::size_t bytes,
                                         Pool* pool, bool imported) {
    std::lock_guard lock(mutex_);
    const std::size_t mapped_bytes = frame->bytes();
    const CUdeviceptr base = find_gap(mapped_bytes);
    if (base == 0 || !open_frame(base, mapped_bytes, *frame, PROT_READ | PROT_WRITE)) {
        return 0;
    }
    allocations_[base] =
        Allocation{bytes, mapped_bytes, std::move(frame), next_buffer_id_++, pool, imported};
    return base;
}

std::optional<PointerInfo> AddressSpace::allocation_starting_at(CUdeviceptr base) {
    std::lock_guard lock(mutex_);
    if (allocations_.find(base) == allocations_.end()) {
        return std::nullopt;
    }
    return find_locked(base);
}

bool AddressSpace::remove_allocation(CUdeviceptr base) {
    std::shared_ptr<Frame> gone;
    std::lock_guard lock(mutex_);
    const auto found = allocations_.find(base);
    if (found == allocations_.end()) {
        return false;
    }
    close_range_to_access(base, found->second.mapped_bytes);
    gone = std::move(found->second.frame);
    allocations_.erase(found);
    return true;
}

bool AddressSpace::add_host(CUdeviceptr base, std::size_t bytes, unsigned flags, bool registered) {
    std::lock_guard lock(mutex_);
    const auto next = host_ranges_.lower_bound(base);
    const bool over_next = next != host_ranges_.end() && next->first < base + bytes;
    if (over_next || range_at(host_ranges_, base) != host_ranges_.end()) {
        return false;
    }
    host_ranges_[base] = HostRange{bytes, flags, registered, next_buffer_id_++};
    return true;
}

std::optional<HostRange> AddressSpace::remove_host(CUdeviceptr base, bool registered) {
    std::lock_guard lock(mutex_);
    const auto found = host_ranges_.find(base);
    if (found == host_ranges_.end() || found->second.registered != registered) {
        return std::nullopt;
    }
    const HostRange range = found->second;
    host_ranges_.erase(found);
    return range;
}

std::optional<PointerInfo> AddressSpace::find_locked(CUdeviceptr address) {
    if (const auto at = range_at(allocations_, address); at != allocations_.end()) {
        const Allocation& found = at->second;
        return PointerInfo{PointerInfo::Kind::allocation,
                           at->first,
                           found.bytes,
                           found.buffer_id,
                           found.frame,
                           found.pool,
                           0,
                           found.imported};
    }
    if (const auto at = range_at(mappings_, address); at != mappings_.end()) {
        const Mapping& found = at->second;
        return PointerInfo{PointerInfo::Kind::mapping, at->first, found.bytes, found.buffer_id,
                           found.frame};
    }
    if (const auto at = range_at(host_ranges_, address); at != host_ranges_.end()) {
        const HostRange& found = at->second;
        return PointerInfo{PointerInfo::Kind::host,
                           at->first,
                           found.bytes,
                           found.buffer_id,
                           nullptr,
                           nullptr,
                           found.flags};
    }
    return std::nullopt;
}

std::optional<PointerInfo> AddressSpace::find(CUdeviceptr address) {
    std::lock_guard lock(mutex_);
    return find_locked(address);
}

bool AddressSpace::is_device_range(CUdeviceptr address, std::size_t bytes) {
    std::lock_guard lock(mutex_);
    const CUdeviceptr end = address + bytes;
    do {
        const auto info = find_locked(address);
        if (!info || info->kind == PointerInfo::Kind::host) {
            return false;
        }
        address = info->base + info->bytes;
    } while (address < end);
    return true;
}

bool AddressSpace::is_page_locked(CUdeviceptr address) {
    const auto info = find(address);
    return info && info->kind == PointerInfo::Kind::host;
}

}  // namespace transit::sim
