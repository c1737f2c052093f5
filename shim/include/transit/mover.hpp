#pragma once
// Gives extents their frames and moves them between HBM and DRAM. Copies run alias to alias while
// the application's mapping stays; only then is the extent claimed, remapped and released, and only
// if nobody touched it meanwhile.
#include <cuda.h>

#include <atomic>
#include <cstdint>
#include <mutex>
#include <vector>

#include "transit/frames.hpp"
#include "transit/ledger.hpp"

namespace transit {

class Device;
struct Extent;
struct Access;

class Mover {
public:
    explicit Mover(Device& device) : device_(device) {}

    /// Maps every live extent that has no frame yet: HBM if it can be had, else DRAM. Before any
    /// submit, so that live memory is always mapped. False only if neither has a frame left.
    bool place_pending() noexcept;

    /// Brings the ranges into HBM for a launch that reads them many times. Bounded; what does not
    /// make it stays usable.
    void bring_in(const std::vector<ExtentRange>& ranges) noexcept;

    /// Moves one idle extent the other way, if it may move at all (stress tests). True if it moved.
    bool swap_place(std::uint32_t extent) noexcept;

    /// Waits for the move that is under way, takes every mapping away, and moves nothing more.
    void end(const std::vector<std::uint32_t>& extents) noexcept;

    /// Grants or takes away a peer's access to every mapping there is; later ones get it from the
    /// access list.
    void change_access(int device, bool granted) noexcept;

    /// Verification: maps what a launch names, for as long as it is open.
    void show(const std::vector<ExtentRange>& ranges, bool everything) noexcept;
    /// Waits for the launch and takes its mappings away again. The launch's own error, if it had
    /// one: then it touched what it did not name, and `name` is reported.
    CUresult hide(const std::vector<ExtentRange>& ranges, bool everything,
                  const char* name) noexcept;

    /// Waits, holding nothing, until no move is remapping `extent`.
    void wait_unclaimed(const Extent& extent) noexcept;
    void wait_no_claims() noexcept;
    bool claims_open() const noexcept { return claims_.load(std::memory_order_seq_cst) != 0; }

private:
    struct Flight {
        std::uint32_t extent;
        std::uint64_t word;
        std::uint64_t everything;
        std::uint32_t frame;
        CUevent copied;
    };
    class Keep;

    std::vector<std::uint32_t> frames_for(std::uint32_t count, const Keep& keep) noexcept;
    std::uint32_t drop_dead(std::uint32_t count) noexcept;
    bool drop(std::uint32_t extent) noexcept;
    std::uint32_t offload(std::uint32_t count, const Keep& keep) noexcept;
    std::uint32_t move(const std::vector<std::uint32_t>& extents, Place to) noexcept;
    bool start(std::uint32_t extent, Place to, Flight& flight) noexcept;
    bool finish(const Flight& flight, Place to) noexcept;
    bool remap(std::uint32_t extent, CUmemGenericAllocationHandle to,
               CUmemGenericAllocationHandle back) noexcept;
    bool map(std::uint32_t extent, Place place, std::uint32_t frame) noexcept;
    bool map_anywhere(std::uint32_t extent) noexcept;
    bool idle(const Extent& extent, std::uint64_t word) const noexcept;
    bool passed(const Access& access, std::uint64_t word) const noexcept;
    bool still_may_move(std::uint32_t extent) noexcept;
    bool wait_idle(const std::vector<std::uint32_t>& extents, std::int64_t limit_ns) noexcept;
    bool dead_memory_will_pass(bool dram_too) noexcept;
    std::uint32_t live_in_hbm() noexcept;
    bool may_move(std::uint32_t extent) noexcept;
    std::vector<std::uint32_t> take_pending() noexcept;
    bool prepare() noexcept;
    FramePool& pool(Place place) noexcept;
    bool same_bytes(const Flight& flight, Place from, Place to) noexcept;
    void hide_one(std::uint32_t extent) noexcept;
    void settle_budget_advice(std::uint32_t wanted) noexcept;

    Device& device_;
    std::mutex
        mutex_;  // outermost of ours: held through a move, never across an application's submit
    std::atomic<std::uint32_t> claims_{0};
    bool ended_ = false;  // under mutex_
    CUstream out_ = nullptr;
    CUstream in_ = nullptr;
    std::vector<CUevent> events_;
};

}  // namespace transit
