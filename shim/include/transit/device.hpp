#pragma once
// The managed device of this process: arena, budgets, ledger, streams and mover. One device a
// process is managed (a training rank has one); allocations on another pass through and are
// counted.
#include <cuda.h>

#include <atomic>
#include <cstdint>
#include <map>
#include <memory>
#include <mutex>
#include <vector>

#include "transit/address_space.hpp"
#include "transit/extents.hpp"
#include "transit/frames.hpp"
#include "transit/huge_pages.hpp"
#include "transit/kernels.hpp"
#include "transit/ledger.hpp"
#include "transit/mover.hpp"
#include "transit/streams.hpp"

namespace transit {

/// A part of the arena with its own addresses: a kind of allocation, or the stream that allocates
/// from it.
struct Zone {
    AddressSpace space;
    std::uint64_t stream = 0;  // key of the stream it serves; 0: not stream-ordered
    bool small = false;        // lies in extents that never move
};

/// Memory freed on another stream than the one that will reuse it: reuse waits for this event.
struct Fence {
    std::uint64_t end = 0;
    std::shared_ptr<CUevent_st> event;  // pieces of the freed range share it
};

struct PoolUse {
    std::uint64_t reserved_bytes = 0;
    std::uint64_t reserved_peak_bytes = 0;
    std::uint64_t used_bytes = 0;
    std::uint64_t used_peak_bytes = 0;
};

class Device {
public:
    /// The managed device, or nullptr: before the first managed allocation, and in a forked child.
    /// One atomic load.
    static Device* active() noexcept { return active_.load(std::memory_order_acquire); }
    /// The device for an allocation made now, set up on first use; nullptr if this allocation is
    /// not ours to manage.
    static Device* for_allocation() noexcept;

    /// The managed device if the current context is its; sets nothing up.
    static Device* for_current() noexcept {
        Device* device = active();
        return device != nullptr && device->is_current() ? device : nullptr;
    }
    /// As for_allocation, for addresses alone: also while a graph is captured, and counting
    /// nothing.
    static Device* for_reservation() noexcept;
    /// What the application is told that a device has, also before the first allocation sets one
    /// up; 0 for a device that is not managed.
    static std::uint64_t total_bytes_of(int ordinal) noexcept;

    /// The managed context is about to be destroyed: its memory is given back, and no device is
    /// managed from now on.
    static void end() noexcept;

    /// cuMemAlloc. OUT_OF_MEMORY when the request exceeds what both budgets can hold.
    CUresult allocate(CUdeviceptr* out, std::size_t bytes) noexcept;
    /// cuMemFree; false if the address is not one of ours. Synchronises the context as the driver's
    /// does.
    bool free(CUdeviceptr address, CUresult* result) noexcept;
    bool owns(std::uint64_t address) const noexcept { return address - arena_ < arena_bytes_; }

    /// cuMemAllocAsync: addresses come from a zone of the stream's own, so reuse needs no ordering
    /// between streams.
    CUresult allocate_ordered(CUdeviceptr* out, std::size_t bytes, CUstream stream,
                              bool per_thread) noexcept;
    /// cuMemFreeAsync; false if the address is not one of ours.
    bool free_ordered(CUdeviceptr address, CUstream stream, bool per_thread,
                      CUresult* result) noexcept;
    /// Expandable segments: PyTorch reserves addresses and maps physical pieces into them as it
    /// grows.
    bool reserve(CUdeviceptr* out, std::size_t bytes) noexcept;
    bool unreserve(CUdeviceptr address) noexcept;
    CUresult promise(CUmemGenericAllocationHandle* out, std::size_t bytes) noexcept;
    bool release(CUmemGenericAllocationHandle handle) noexcept;
    CUresult map_piece(CUdeviceptr address, std::size_t bytes,
                       CUmemGenericAllocationHandle handle) noexcept;
    bool has_reservations() noexcept;
    CUresult unmap_pieces(CUdeviceptr address, std::size_t bytes) noexcept;

    /// Bytes that stream-ordered memory holds, and those of them in use: what pool attributes
    /// report.
    PoolUse pool_use() noexcept;
    void reset_pool_peaks() noexcept;

    /// What an allocator's observer announces; called under the allocator's own lock, so these only
    /// record.
    void segment_traced(CUdeviceptr address) noexcept;
    void block_born(CUdeviceptr address, std::size_t bytes) noexcept;
    void block_died(CUdeviceptr address) noexcept;

    /// Waits for all work of the context, and remembers that it has passed.
    CUresult synchronize() noexcept;
    /// Lets a thread do that; at once back.
    void request_synchronisation() noexcept;
    /// A stream is being destroyed: its zones serve no stream that gets the same handle.
    void retire_stream(CUstream stream) noexcept;
    /// A graph whose reach is unknown exists: nothing may move from now on.
    void freeze() noexcept;
    bool frozen() const noexcept { return frozen_.load(std::memory_order_seq_cst); }

    /// Memory that others allocated on this device counts against the HBM budget.
    void passed_through(std::int64_t bytes) noexcept;

    /// Recognises the end of a step: the first compute kernel after an optimizer's (or after the
    /// model was set up).
    void note_kernel(KernelClass kind) noexcept;
    std::uint32_t boundary() const noexcept { return boundary_.load(std::memory_order_relaxed); }

    std::uint64_t total_bytes() const noexcept;  // what the application is told the device has
    std::uint64_t available_bytes() noexcept;
    int ordinal() const noexcept { return ordinal_; }
    CUcontext context() const noexcept { return context_; }
    std::uint64_t extent_bytes() const noexcept { return extent_bytes_; }
    CUdeviceptr arena() const noexcept { return arena_; }
    std::uint64_t arena_bytes() const noexcept { return arena_bytes_; }
    CUdeviceptr address_of(std::uint32_t extent) const noexcept {
        return arena_ + extent * extent_bytes_;
    }

    // The parts, for those that work on them: submissions, the mover, and the wrappers that answer
    // queries.
    AccessList access;
    std::mutex ledger_mutex;  // taken under the mover's lock and under PyTorch's allocator lock;
                              // under it only those of streams and of the access list
    Ledger ledger;
    std::vector<std::uint32_t> pending;  // live extents without a usable frame; the ledger's lock
    std::atomic<std::uint32_t> pending_count{0};
    OnHugePages<Extent> extents;
    std::vector<std::uint32_t>
        used;  // extents that ever had an allocation, in that order; the ledger's lock
    Access
        everything;  // launches whose reach is unknown count as touching every extent, through this
    Streams streams;
    FramePool hbm;
    FramePool dram;
    Mover mover;

private:
    struct Setup;
    explicit Device(const Setup& setup);
    static Device* create() noexcept;
    bool is_current() const noexcept;

    CUresult take(CUdeviceptr* out, std::size_t bytes, std::uint32_t zone,
                  bool lifetime_known) noexcept;
    void give(CUdeviceptr address, const Allocation& allocation) noexcept;
    void bury(CUdeviceptr address, const Allocation& allocation) noexcept;
    std::uint32_t zone_of(CUstream stream, bool per_thread, bool small) noexcept;
    void wait_for_fences(CUdeviceptr address, std::uint64_t bytes, CUstream stream) noexcept;
    void add_zone(std::uint32_t extents_wanted, std::uint64_t granule, std::uint64_t stream,
                  bool small);
    bool commit(std::uint64_t address, std::uint64_t bytes) noexcept;
    void uncommit(std::uint64_t address, std::uint64_t bytes) noexcept;
    void come_alive(const Block& block) noexcept;
    void born(ExtentRange range, const std::vector<std::uint32_t>& reached) noexcept;
    void died(const std::vector<std::uint32_t>& extents) noexcept;
    bool refuse_once(std::uint64_t bytes) noexcept;
    void start_stocking() noexcept;
    void start_forced_moves(std::uint64_t seed) noexcept;
    void wake_stocking() noexcept;
    void give_back() noexcept;

    static std::atomic<Device*> active_;

    int ordinal_;
    CUcontext context_;
    CUdeviceptr arena_;
    std::uint64_t extent_bytes_;
    std::uint64_t arena_bytes_;
    std::uint64_t hbm_budget_bytes_;
    std::uint64_t passed_bytes_ = 0;
    std::vector<Zone> zones_;  // the ledger's lock, like what follows
    std::vector<std::pair<CUdeviceptr, Allocation>> kept_back_;  // freed while a capture was open
    std::map<std::uint64_t, Fence> fences_;                      // by start of the freed range
    std::uint32_t committed_extents_ = 0;
    std::uint32_t next_zone_extent_ = 0;
    PoolUse pool_use_;
    std::map<std::uint64_t, std::uint64_t> reservations_;  // start → bytes
    std::uint64_t promised_bytes_ = 0;                     // pieces made but not mapped
    bool refused_this_episode_ = false;
    std::atomic<bool> frozen_{false};
    std::atomic<bool> synchronising_{false};
    std::atomic<bool> ended_{false};
    std::atomic<bool> after_optimizer_{true};
    std::atomic<std::uint32_t> boundary_{0};
    std::atomic<std::uint32_t> stock_target_{0};
};

}  // namespace transit
