#pragma once
// Physical memory. A frame is one extent's worth of HBM or DRAM, created once, kept, and mapped for
// good at an alias address through which copies run, whatever the application's mapping of it.
#include <cuda.h>

#include <atomic>
#include <cstdint>
#include <mutex>
#include <optional>
#include <vector>

namespace transit {

enum class Place : std::uint8_t { kNone, kHbm, kDram };

/// Devices that may reach a mapping: the owner and the peers that were granted access.
class AccessList {
public:
    explicit AccessList(int device) { add(device); }
    void add(int device);
    void remove(int device);
    CUresult apply(CUdeviceptr address, std::size_t bytes) const noexcept;

private:
    mutable std::mutex mutex_;
    std::vector<CUmemAccessDesc> devices_;
};

class FramePool {
public:
    /// Reserves alias addresses for `most` frames. `place` is where the frames' memory is.
    FramePool(CUmemLocation place, std::uint64_t extent_bytes, std::uint32_t most,
              const AccessList& access);

    bool usable() const noexcept { return alias_base_ != 0; }
    /// A frame that nobody uses, made now if none is at hand and the limit allows.
    std::optional<std::uint32_t> take() noexcept;
    /// As take, but never makes one.
    std::optional<std::uint32_t> take_ready() noexcept;
    void give(std::uint32_t frame) noexcept;
    /// Makes one more for later; false at the limit or when the driver refuses.
    bool make_ahead() noexcept;
    /// Frames that `take` could still give.
    std::uint32_t available() noexcept;
    /// Destroys frames in stock beyond `limit` made in all.
    void set_limit(std::uint32_t limit) noexcept;
    /// Destroys all frames, used or not; none is made after that.
    void end() noexcept;

    CUmemGenericAllocationHandle handle(std::uint32_t frame) const noexcept {
        return handles_[frame];
    }
    CUdeviceptr alias(std::uint32_t frame) const noexcept {
        return alias_base_ + frame * extent_bytes_;
    }
    std::uint32_t made() const noexcept { return made_.load(std::memory_order_acquire); }
    std::uint32_t limit() const noexcept { return limit_.load(std::memory_order_acquire); }

private:
    std::optional<std::uint32_t> make() noexcept;
    void count_bytes(std::int64_t delta) const noexcept;

    CUmemLocation place_;
    std::uint64_t extent_bytes_;
    const AccessList& access_;
    CUdeviceptr alias_base_ = 0;
    std::atomic<std::uint32_t> limit_;
    std::atomic<std::uint32_t> made_{0};
    std::mutex make_mutex_;  // making takes milliseconds: not under mutex_
    std::mutex mutex_;
    std::vector<CUmemGenericAllocationHandle> handles_;
    std::vector<std::uint32_t> free_;
    std::vector<std::uint32_t> unused_;  // alias slots without a frame
};

}  // namespace transit
