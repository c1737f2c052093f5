#include "transit/frames.hpp"

#include <algorithm>

#include "transit/log.hpp"
#include "transit/real.hpp"
#include "transit/stats.hpp"

namespace transit {

void AccessList::add(int device) {
    const std::lock_guard lock(mutex_);
    for (const CUmemAccessDesc& one : devices_)
        if (one.location.id == device) return;
    CUmemAccessDesc one{};
    one.location.type = CU_MEM_LOCATION_TYPE_DEVICE;
    one.location.id = device;
    one.flags = CU_MEM_ACCESS_FLAGS_PROT_READWRITE;
    devices_.push_back(one);
}

void AccessList::remove(int device) {
    const std::lock_guard lock(mutex_);
    std::erase_if(devices_,
                  [device](const CUmemAccessDesc& one) { return one.location.id == device; });
}

CUresult AccessList::apply(CUdeviceptr address, std::size_t bytes) const noexcept {
    const std::lock_guard lock(mutex_);
    return real_cuMemSetAccess(address, bytes, devices_.data(), devices_.size());
}

FramePool::FramePool(CUmemLocation place, std::uint64_t extent_bytes, std::uint32_t most,
                     const AccessList& access)
    : place_(place), extent_bytes_(extent_bytes), access_(access), limit_(most), handles_(most) {
    if (most == 0) return;
    if (real_cuMemAddressReserve(&alias_base_, most * extent_bytes, extent_bytes, 0, 0) !=
        CUDA_SUCCESS) {
        alias_base_ = 0;
        limit_ = 0;
        return;
    }
    unused_.reserve(most);
    for (std::uint32_t i = most; i > 0; --i)
        unused_.push_back(i - 1);
}

std::optional<std::uint32_t> FramePool::take_ready() noexcept {
    const std::lock_guard lock(mutex_);
    if (free_.empty()) return std::nullopt;
    const std::uint32_t frame = free_.back();
    free_.pop_back();
    return frame;
}

std::optional<std::uint32_t> FramePool::take() noexcept {
    if (const auto frame = take_ready()) return frame;
    const std::lock_guard making(make_mutex_);
    if (const auto frame = take_ready()) return frame;  // somebody else was making one
    return make();
}

void FramePool::give(std::uint32_t frame) noexcept {
    bool surplus = false;
    {
        const std::lock_guard lock(mutex_);
        surplus = made() > limit();
        if (!surplus) free_.push_back(frame);
    }
    if (!surplus) return;
    real_cuMemUnmap(alias(frame), extent_bytes_);
    real_cuMemRelease(handles_[frame]);
    handles_[frame] = 0;
    made_.fetch_sub(1, std::memory_order_acq_rel);
    count_bytes(-static_cast<std::int64_t>(extent_bytes_));
    const std::lock_guard lock(mutex_);
    unused_.push_back(frame);
}

void FramePool::count_bytes(std::int64_t delta) const noexcept {
    const bool hbm = place_.type == CU_MEM_LOCATION_TYPE_DEVICE;
    add_with_peak(hbm ? Counter::kHbmBytes : Counter::kDramBytes,
                  hbm ? Counter::kHbmPeakBytes : Counter::kDramPeakBytes, delta);
}

std::uint32_t FramePool::available() noexcept {
    const std::lock_guard lock(mutex_);
    const std::uint32_t most = limit();
    return static_cast<std::uint32_t>(free_.size()) + (most > made() ? most - made() : 0);
}

bool FramePool::make_ahead() noexcept {
    const std::lock_guard making(make_mutex_);
    const auto frame = make();
    if (frame) give(*frame);
    return frame.has_value();
}

void FramePool::set_limit(std::uint32_t limit) noexcept {
    limit_.store(std::min<std::uint32_t>(limit, static_cast<std::uint32_t>(handles_.size())),
                 std::memory_order_release);
    while (made() > this->limit()) {
        const auto frame = take_ready();
        if (!frame) return;
        give(*frame);  // above the limit, so it is destroyed
    }
}

void FramePool::end() noexcept {
    const std::lock_guard making(make_mutex_);
    limit_.store(0, std::memory_order_release);
    const std::lock_guard lock(mutex_);
    for (std::uint32_t frame = 0; frame < handles_.size(); ++frame) {
        if (handles_[frame] == 0) continue;
        real_cuMemUnmap(alias(frame), extent_bytes_);
        real_cuMemRelease(handles_[frame]);
        handles_[frame] = 0;
        count_bytes(-static_cast<std::int64_t>(extent_bytes_));
    }
    free_.clear();
    made_.store(0, std::memory_order_release);
}

// Needs make_mutex_. A frame that cannot be mapped or reached is released again: nothing is half
// made.
std::optional<std::uint32_t> FramePool::make() noexcept {
    if (made() >= limit()) return std::nullopt;
    std::uint32_t slot = 0;
    {
        const std::lock_guard lock(mutex_);
        if (unused_.empty()) return std::nullopt;
        slot = unused_.back();
        unused_.pop_back();
    }
    CUmemAllocationProp prop{};
    prop.type = CU_MEM_ALLOCATION_TYPE_PINNED;
    prop.location = place_;
    CUmemGenericAllocationHandle made_handle = 0;
    CUresult result = real_cuMemCreate(&made_handle, extent_bytes_, &prop, 0);
    if (result == CUDA_SUCCESS) {
        result = real_cuMemMap(alias(slot), extent_bytes_, 0, made_handle, 0);
        if (result == CUDA_SUCCESS) {
            result = access_.apply(alias(slot), extent_bytes_);
            if (result != CUDA_SUCCESS) real_cuMemUnmap(alias(slot), extent_bytes_);
        }
        if (result != CUDA_SUCCESS) real_cuMemRelease(made_handle);
    }
    if (result != CUDA_SUCCESS) {
        const std::lock_guard lock(mutex_);
        unused_.push_back(slot);
        return std::nullopt;
    }
    handles_[slot] = made_handle;
    made_.fetch_add(1, std::memory_order_acq_rel);
    count_bytes(static_cast<std::int64_t>(extent_bytes_));
    return slot;
}

}  // namespace transit
