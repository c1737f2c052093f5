// Setting up the managed device, its budgets, and the allocations made on it.
#include "transit/device.hpp"

#include <pthread.h>

#include <algorithm>
#include <cstdlib>
#include <new>

#include "transit/budgets.hpp"
#include "transit/capture.hpp"
#include "transit/context.hpp"
#include "transit/lifetimes.hpp"
#include "transit/log.hpp"
#include "transit/options.hpp"
#include "transit/per_thread.hpp"
#include "transit/real.hpp"
#include "transit/recorder.hpp"
#include "transit/stats.hpp"

namespace transit {
namespace {

constexpr std::uint32_t kExtentCount = 131072;  // 4 TiB of addresses at 32 MiB
constexpr std::uint32_t kNativeExtents = 8192;  // of which for cuMemAlloc
constexpr std::uint32_t kSmallExtents = 512;    // of which for allocations that never move
constexpr std::uint64_t kSmallBytes = std::uint64_t{2}
                                      << 20;  // PyTorch's small-pool segments are exactly this
constexpr std::uint32_t kNativeSmallZone = 0;
constexpr std::uint32_t kNativeZone = 1;
constexpr std::uint64_t kGranule = std::uint64_t{2} << 20;

std::mutex g_create_mutex;
std::atomic<bool> g_gave_up{false};

}  // namespace

struct Device::Setup {
    int ordinal;
    CUcontext context;
    CUdeviceptr arena;
    std::uint64_t extent_bytes;
    Budgets budgets;
};

std::atomic<Device*> Device::active_{nullptr};

Device::Device(const Setup& setup)
    : access(setup.ordinal), ledger(setup.arena, kExtentCount, setup.extent_bytes),
      extents(kExtentCount), streams(setup.context),
      hbm({CU_MEM_LOCATION_TYPE_DEVICE, {setup.ordinal}}, setup.extent_bytes,
          static_cast<std::uint32_t>(setup.budgets.hbm_bytes / setup.extent_bytes), access),
      dram(setup.budgets.dram_place, setup.extent_bytes,
           static_cast<std::uint32_t>(setup.budgets.dram_bytes / setup.extent_bytes), access),
      mover(*this), ordinal_(setup.ordinal), context_(setup.context), arena_(setup.arena),
      extent_bytes_(setup.extent_bytes), arena_bytes_(kExtentCount * setup.extent_bytes),
      hbm_budget_bytes_(setup.budgets.hbm_bytes) {
    add_zone(kSmallExtents, kGranule, 0, true);
    add_zone(kNativeExtents, kGranule, 0, false);
    counter(Counter::kHbmBudgetBytes) = setup.budgets.hbm_bytes;
    counter(Counter::kDramBudgetBytes) = dram.usable() ? setup.budgets.dram_bytes : 0;
    counter(Counter::kDevice) = static_cast<std::uint64_t>(setup.ordinal);
    counter(Counter::kExtentBytes) = setup.extent_bytes;
}

Device* Device::create() noexcept {
    Setup setup{};
    if (real_cuCtxGetDevice(&setup.ordinal) != CUDA_SUCCESS) return nullptr;
    if (real_cuDevicePrimaryCtxRetain(&setup.context, setup.ordinal) != CUDA_SUCCESS)
        return nullptr;
    open_stats();
    counter(Counter::kLifetimes).store(lifetimes_attached() ? 1 : 0, std::memory_order_relaxed);
    setup.extent_bytes = options().extent_bytes;
    const auto found = budgets(setup.ordinal);
    if (!found) {
        warn_once("the driver does not say how much memory is free");
        return nullptr;
    }
    setup.budgets = *found;
    if (setup.budgets.hbm_cut)
        warn_once(
            "the HBM budget is more than this device has free; using what is free less a reserve");
    if (setup.budgets.dram_cut)
        warn_once(
            "this driver or container cannot place device-mapped memory on the host (HOST_NUMA); "
            "running within the HBM budget alone");
    if (real_cuMemAddressReserve(&setup.arena, kExtentCount * setup.extent_bytes,
                                 setup.extent_bytes, 0, 0) != CUDA_SUCCESS) {
        warn_once("this driver cannot reserve an address range (no VMM)");
        return nullptr;
    }
    auto* device = new (std::nothrow) Device(setup);
    if (device == nullptr) return nullptr;
    const std::uint64_t extent = setup.extent_bytes;
    if (!device->hbm.usable()) {
        warn_once(setup.budgets.hbm_bytes < extent
                      ? "the HBM budget is less than one extent, the least that can move"
                      : "the driver cannot reserve an address range for GPU memory");
        delete device;
        real_cuMemAddressFree(setup.arena, kExtentCount * setup.extent_bytes);
        return nullptr;
    }
    if (setup.budgets.dram_bytes != 0 && !device->dram.usable())
        warn_once(setup.budgets.dram_bytes < extent
                      ? "the DRAM budget is less than one extent, the least that can move; "
                        "running within the HBM budget alone"
                      : "the driver cannot reserve an address range for CPU memory; running within "
                        "the HBM budget alone");
    device->start_stocking();
    if (options().force_moves_seed != 0) device->start_forced_moves(options().force_moves_seed);
    pthread_atfork(nullptr, nullptr, [] { active_.store(nullptr, std::memory_order_release); });
    log(LogLevel::kInfo,
        "device %d: HBM budget %.2f GiB, DRAM budget %.2f GiB, extents of %llu MiB", setup.ordinal,
        static_cast<double>(setup.budgets.hbm_bytes) / (1 << 30),
        static_cast<double>(setup.budgets.dram_bytes) / (1 << 30),
        static_cast<unsigned long long>(setup.extent_bytes >> 20));
    return device;
}

bool Device::is_current() const noexcept { return current_context() == context_; }

namespace {

// The context of the device that a first allocation now would make the managed one.
bool primary_is_current(int ordinal) noexcept {
    CUdevice here = -1;
    CUcontext primary = nullptr;
    unsigned flags = 0;
    int active = 0;
    if (real_cuCtxGetDevice(&here) != CUDA_SUCCESS || here != ordinal ||
        real_cuDevicePrimaryCtxGetState(ordinal, &flags, &active) != CUDA_SUCCESS || active == 0 ||
        real_cuDevicePrimaryCtxRetain(&primary, ordinal) != CUDA_SUCCESS)
        return false;
    real_cuDevicePrimaryCtxRelease_v2(ordinal);
    return primary == current_context();
}

}  // namespace

std::uint64_t Device::total_bytes_of(int ordinal) noexcept {
    if (const Device* device = active())
        return device->ordinal() == ordinal ? device->total_bytes() : 0;
    if (g_gave_up.load(std::memory_order_acquire) || !primary_is_current(ordinal)) return 0;
    const auto found = budgets(ordinal);
    return found ? total_of(*found) : 0;
}

Device* Device::for_reservation() noexcept {
    Device* device = active();
    if (device != nullptr) return device->is_current() ? device : nullptr;
    if (g_gave_up.load(std::memory_order_acquire) || current_context() == nullptr) return nullptr;
    const std::lock_guard lock(g_create_mutex);
    device = active();
    // An application's own context is not ours to manage; a primary one may still come.
    int ordinal = 0;
    if (device == nullptr &&
        (real_cuCtxGetDevice(&ordinal) != CUDA_SUCCESS || !primary_is_current(ordinal)))
        return nullptr;
    if (device == nullptr) {
        device = create();
        if (device == nullptr) {
            warn_once("Transit cannot manage this device: running without Transit",
                      LogLevel::kQuiet);
            g_gave_up.store(true, std::memory_order_release);
        }
        active_.store(device, std::memory_order_release);
    }
    return device != nullptr && device->is_current() ? device : nullptr;
}

void Device::end() noexcept {
    const std::lock_guard lock(g_create_mutex);
    Device* device = active_.exchange(nullptr, std::memory_order_acq_rel);
    g_gave_up.store(true, std::memory_order_release);
    if (device == nullptr) return;
    warn_once("the job destroys the device's context; Transit manages nothing from now on",
              LogLevel::kQuiet);
    device->give_back();
}

Device* Device::for_allocation() noexcept {
    Device* device = for_reservation();
    if (device == nullptr && active() != nullptr)
        count_named("passed", "allocation on another device or context");
    if (device != nullptr && captures_open()) {
        count_named("passed", "allocation during a graph capture");
        return nullptr;
    }
    return device;
}

bool Device::commit(std::uint64_t address, std::uint64_t bytes) noexcept {
    const ExtentRange range = ledger.extents_of(address, bytes);
    std::uint32_t fresh = 0;
    for (std::uint32_t e = range.first; e <= range.last; ++e)
        fresh += extents[e].charged ? 0 : 1;
    if (committed_extents_ + fresh > hbm.limit() + dram.limit()) return false;
    for (std::uint32_t e = range.first; e <= range.last; ++e) {
        ++extents[e].allocations;
        extents[e].charged = true;
        if (extents[e].listed) continue;
        extents[e].listed = true;
        used.push_back(e);
    }
    committed_extents_ += fresh;
    return true;
}

// What keeps its frame goes on being charged: else launches would be refused memory that their
// allocation was granted.
void Device::uncommit(std::uint64_t address, std::uint64_t bytes) noexcept {
    const ExtentRange range = ledger.extents_of(address, bytes);
    for (std::uint32_t e = range.first; e <= range.last; ++e) {
        if (--extents[e].allocations != 0 || keeps_when_dead(extents[e])) continue;
        extents[e].charged = false;
        --committed_extents_;
    }
}

// Segments whose lifetimes are hidden must all lie in frames. The first that does not fit in HBM is
// refused, so that the caching allocator gives back what it holds in vain; then it may have DRAM.
bool Device::refuse_once(std::uint64_t bytes) noexcept {
    const bool fits = committed_extents_ * extent_bytes_ + bytes <= hbm.limit() * extent_bytes_;
    if (fits || lifetimes_attached()) {
        refused_this_episode_ = false;
        return false;
    }
    refused_this_episode_ = !refused_this_episode_;
    return refused_this_episode_;
}

CUresult Device::allocate(CUdeviceptr* out, std::size_t bytes) noexcept {
    if (bytes > arena_bytes_) return CUDA_ERROR_OUT_OF_MEMORY;
    const bool small = bytes <= kSmallBytes;
    const std::lock_guard lock(ledger_mutex);
    if (!small && refuse_once(zones_[kNativeZone].space.rounded(bytes))) {
        counter(Counter::kRefusedOnceBytes).fetch_add(bytes, std::memory_order_relaxed);
        return CUDA_ERROR_OUT_OF_MEMORY;
    }
    return take(out, bytes, small ? kNativeSmallZone : kNativeZone, false);
}

// Needs the ledger's lock.
CUresult Device::take(CUdeviceptr* out, std::size_t bytes, std::uint32_t zone,
                      bool lifetime_known) noexcept {
    AddressSpace& space = zones_[zone].space;
    const std::uint64_t span = space.rounded(bytes);
    const auto address = space.take(span);
    if (!address || !commit(*address, span)) {
        if (address) space.give(*address, span);
        counter(Counter::kRefusedBytes).fetch_add(bytes, std::memory_order_relaxed);
        return CUDA_ERROR_OUT_OF_MEMORY;
    }
    ledger.add_allocation(*address, {bytes, span, false, zone});
    add_with_peak(Counter::kManagedBytes, Counter::kManagedPeakBytes,
                  static_cast<std::int64_t>(span));
    Block whole;
    whole.start = *address;
    whole.bytes = span;
    whole.born_boundary = boundary();
    whole.lifetime_known = lifetime_known;
    come_alive(whole);
    wake_stocking();
    *out = *address;
    return CUDA_SUCCESS;
}

// Needs the ledger's lock. The addresses can be given out again at once: who may use them when is
// the caller's matter.
void Device::give(CUdeviceptr address, const Allocation& allocation) noexcept {
    bury(address, allocation);
    zones_[allocation.zone].space.give(address, allocation.span_bytes);
}

// The same, but the addresses are not given out again.
void Device::bury(CUdeviceptr address, const Allocation& allocation) noexcept {
    std::vector<std::uint32_t> left;
    const std::uint64_t before = ledger.live_bytes();
    ledger.remove_blocks(address, allocation.span_bytes, left);
    if (recording()) record_free(address);
    died(left);
    uncommit(address, allocation.span_bytes);
    counter(Counter::kManagedBytes).fetch_sub(allocation.span_bytes, std::memory_order_relaxed);
    counter(Counter::kLiveBytes).fetch_sub(before - ledger.live_bytes(), std::memory_order_relaxed);
}

bool Device::free(CUdeviceptr address, CUresult* result) noexcept {
    if (!owns(address)) return false;
    *result = CUDA_ERROR_INVALID_VALUE;
    {
        const std::lock_guard lock(ledger_mutex);
        const Allocation* found = ledger.allocation_at(address);
        if (found == nullptr || found->zone == kNoZone)
            return true;  // double free, or inside a block
    }
    // The driver's own free waits for the GPU; programs rely on it, and so does reusing the address
    // on any stream. While a graph is captured nobody may wait so: the address is kept back.
    const bool unwaited = captures_open();
    *result = unwaited ? CUDA_SUCCESS : synchronize();
    if (*result != CUDA_SUCCESS) return true;
    const std::lock_guard lock(ledger_mutex);
    const auto removed = ledger.remove_allocation(address);
    if (!removed) {
        *result = CUDA_ERROR_INVALID_VALUE;
        return true;
    }
    if (zones_[removed->zone].stream != 0) pool_use_.used_bytes -= removed->span_bytes;
    if (unwaited) {
        bury(address, *removed);
        kept_back_.push_back({address, *removed});
        return true;
    }
    give(address, *removed);
    for (const auto& [kept, allocation] : kept_back_)
        zones_[allocation.zone].space.give(kept, allocation.span_bytes);
    kept_back_.clear();
    return true;
}

// Needs the ledger's lock. `range` is the new block's, `reached` those of its extents that were
// dead before: they need a frame, or may have a better one. While an extent is being remapped it
// only counts: then every launch waits for the move to end, also one that reaches the block in ways
// no scan shows. Its other blocks' bytes are wanted, so it must not be queued.
void Device::born(ExtentRange range, const std::vector<std::uint32_t>& reached) noexcept {
    std::uint32_t counted = 0;
    // A move that began before must see it: nobody may name the block before it is moved.
    for (std::uint32_t e = range.first; e <= range.last; ++e)
        extents[e].count_birth();
    for (std::uint32_t e : reached) {
        if (place_of(extents[e].word.load(std::memory_order_seq_cst)) == Place::kHbm) continue;
        pending.push_back(e);
        ++counted;
    }
    for (std::uint32_t e = range.first; e <= range.last; ++e)
        counted += claimed(extents[e].word.load(std::memory_order_seq_cst)) ? 1 : 0;
    if (counted != 0) pending_count.fetch_add(counted, std::memory_order_seq_cst);
}

// Work submitted before the free may still be running, and may reach the memory in ways no scan
// shows: the frame is free only when every stream has passed this moment.
void Device::died(const std::vector<std::uint32_t>& reached) noexcept {
    const std::uint64_t now = streams.newest();
    const std::uint64_t all = streams.used_mask();
    for (std::uint32_t e : reached)
        extents[e].note(now, all);
}

void Device::segment_traced(CUdeviceptr address) noexcept {
    if (!owns(address)) return;
    const std::lock_guard lock(ledger_mutex);
    Allocation* allocation = ledger.allocation_at(address);
    if (allocation == nullptr || allocation->traced) return;
    allocation->traced = true;
    std::vector<std::uint32_t> left;
    ledger.remove_block(address, left);
    died(left);
    counter(Counter::kLiveBytes).fetch_sub(allocation->span_bytes, std::memory_order_relaxed);
}

void Device::block_born(CUdeviceptr address, std::size_t bytes) noexcept {
    if (!owns(address)) return;
    Block block;
    block.start = address;
    block.bytes =
        (bytes + 511) / 512 * 512;  // the allocator's own rounding; it announces what was asked for
    block.lifetime_known = true;
    block.born_boundary = boundary();
    const std::lock_guard lock(ledger_mutex);
    come_alive(block);
}

// Needs the ledger's lock.
void Device::come_alive(const Block& block) noexcept {
    static thread_local PerThread<std::vector<std::uint32_t>> kept_reached;
    static thread_local PerThread<std::vector<std::uint32_t>> kept_left;
    std::vector<std::uint32_t>& reached = *kept_reached;
    std::vector<std::uint32_t>& left = *kept_left;
    reached.clear();
    left.clear();
    const std::uint64_t before = ledger.live_bytes();
    ledger.add_block(block, reached, &left);
    died(left);
    if (recording()) record_allocation(block.start, block.bytes);
    born(ledger.extents_of(block.start, block.bytes), reached);
    add_with_peak(Counter::kLiveBytes, Counter::kLivePeakBytes,
                  static_cast<std::int64_t>(ledger.live_bytes() - before));
}

void Device::block_died(CUdeviceptr address) noexcept {
    if (!owns(address)) return;
    static thread_local PerThread<std::vector<std::uint32_t>> kept_left;
    std::vector<std::uint32_t>& left = *kept_left;
    left.clear();
    const std::lock_guard lock(ledger_mutex);
    const auto removed = ledger.remove_block(address, left);
    if (!removed) return;
    if (recording()) record_free(address);
    died(left);
    counter(Counter::kLiveBytes).fetch_sub(removed->bytes, std::memory_order_relaxed);
}

void Device::passed_through(std::int64_t bytes) noexcept {
    add_with_peak(Counter::kHbmBytes, Counter::kHbmPeakBytes, bytes);
    const std::lock_guard lock(ledger_mutex);
    passed_bytes_ += static_cast<std::uint64_t>(bytes);
    const std::uint64_t left =
        hbm_budget_bytes_ > passed_bytes_ ? hbm_budget_bytes_ - passed_bytes_ : 0;
    const auto within = static_cast<std::uint32_t>(left / extent_bytes_);
    // What has been promised must have frames, or a launch would be refused memory that its
    // allocation was granted.
    const std::uint32_t promised =
        committed_extents_ > dram.limit() ? committed_extents_ - dram.limit() : 0;
    if (promised > within)
        warn_once("a library took device memory after the budgets were given out in full; HBM use "
                  "goes beyond --hbm by that much: give more --dram, or less --hbm");
    hbm.set_limit(std::max(within, promised));
}

CUresult Device::synchronize() noexcept {
    const InContext home(context_);
    const Streams::Snapshot before = streams.snapshot();
    const CUresult result = real_cuCtxSynchronize();
    if (result == CUDA_SUCCESS) streams.synchronized(before);
    return result;
}

void Device::freeze() noexcept {
    if (frozen_.exchange(true, std::memory_order_seq_cst)) return;
    warn_once(
        "a CUDA graph holds a kernel whose reach is unknown; memory stays where it is from now on");
}

void Device::note_kernel(KernelClass kind) noexcept {
    if (kind == KernelClass::kOptimizer) {
        if (!after_optimizer_.load(std::memory_order_relaxed))
            after_optimizer_.store(true, std::memory_order_relaxed);
    } else if (kind == KernelClass::kCompute && after_optimizer_.load(std::memory_order_relaxed) &&
               after_optimizer_.exchange(false, std::memory_order_acq_rel)) {
        const std::uint32_t steps_done = boundary_.fetch_add(1, std::memory_order_acq_rel);
        counter(Counter::kSteps).store(steps_done, std::memory_order_relaxed);
        record_boundary(steps_done, *this);
    }
}

std::uint64_t Device::total_bytes() const noexcept {
    return (std::uint64_t{hbm.limit()} + dram.limit()) * extent_bytes_ + passed_bytes_;
}

std::uint64_t Device::available_bytes() noexcept {
    const std::lock_guard lock(ledger_mutex);
    return (std::uint64_t{hbm.limit()} + dram.limit() - committed_extents_) * extent_bytes_;
}

}  // namespace transit
