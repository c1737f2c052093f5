// Setting up the managed device, its budgets, and the allocations made on it.
#include "transit/device.hpp"

#include <pthread.h>
#include <signal.h>

#include <algorithm>
#include <cstdlib>
#include <new>
#include <thread>

#include "transit/capture.hpp"
#include "transit/clock.hpp"
#include "transit/lifetimes.hpp"
#include "transit/log.hpp"
#include "transit/options.hpp"
#include "transit/real.hpp"
#include "transit/stats.hpp"

namespace transit {
namespace {

constexpr std::uint32_t kExtentCount = 16384;  // 512 GiB of addresses at 32 MiB
constexpr std::uint32_t kSmallExtents = 512;   // of which for allocations that never move
constexpr std::uint64_t kSmallBytes = std::uint64_t{2}
                                      << 20;  // PyTorch's small-pool segments are exactly this
constexpr std::uint64_t kGranule = std::uint64_t{2} << 20;
constexpr std::uint64_t kAutoReserveBytes = std::uint64_t{2}
                                            << 30;  // for modules, workspaces, NCCL
constexpr std::uint32_t kStockAhead = 16;

std::mutex g_create_mutex;
std::atomic<bool> g_gave_up{false};

}  // namespace

struct Device::Setup {
    int ordinal;
    CUcontext context;
    CUdeviceptr arena;
    std::uint64_t extent_bytes;
    std::uint64_t hbm_bytes;
    std::uint64_t dram_bytes;
    CUmemLocation dram_place;
};

std::atomic<Device*> Device::active_{nullptr};

namespace {

std::uint64_t hbm_budget() noexcept {
    std::size_t free_bytes = 0;
    std::size_t total_bytes = 0;
    if (real_cuMemGetInfo_v2(&free_bytes, &total_bytes) != CUDA_SUCCESS) return 0;
    const std::uint64_t most =
        free_bytes > kAutoReserveBytes ? free_bytes - kAutoReserveBytes : free_bytes / 2;
    const Options& wish = options();
    std::uint64_t budget = most;
    if (wish.hbm_bytes != 0) budget = wish.hbm_bytes;
    if (wish.hbm_percent > 0)
        budget =
            static_cast<std::uint64_t>(wish.hbm_percent / 100 * static_cast<double>(total_bytes));
    if (budget > free_bytes) {
        warn_once(
            "the HBM budget is more than this device has free; using what is free less a reserve");
        budget = most;
    }
    return budget;
}

// The NUMA node next to the device where the driver can place frames there, else plain pinned host
// memory.
CUmemLocation dram_place(int ordinal) noexcept {
    CUmemLocation place{};
    int supported = 0;
    int node = 0;
    place.type = CU_MEM_LOCATION_TYPE_HOST_NUMA;
    real_cuDeviceGetAttribute(
        &supported, CU_DEVICE_ATTRIBUTE_HOST_NUMA_VIRTUAL_MEMORY_MANAGEMENT_SUPPORTED, ordinal);
    if (supported == 0) {
        place.type = CU_MEM_LOCATION_TYPE_INVALID;
        return place;
    }
    if (real_cuDeviceGetAttribute(&node, CU_DEVICE_ATTRIBUTE_HOST_NUMA_ID, ordinal) ==
            CUDA_SUCCESS &&
        node > 0)
        place.id = node;
    return place;
}

}  // namespace

Device::Device(const Setup& setup)
    : access(setup.ordinal), ledger(setup.arena, kExtentCount, setup.extent_bytes),
      extents(std::make_unique<Extent[]>(kExtentCount)), extent_count(kExtentCount),
      hbm({CU_MEM_LOCATION_TYPE_DEVICE, {setup.ordinal}}, setup.extent_bytes,
          static_cast<std::uint32_t>(setup.hbm_bytes / setup.extent_bytes), access),
      dram(setup.dram_place, setup.extent_bytes,
           static_cast<std::uint32_t>(setup.dram_bytes / setup.extent_bytes), access),
      mover(*this), ordinal_(setup.ordinal), context_(setup.context), arena_(setup.arena),
      extent_bytes_(setup.extent_bytes), arena_bytes_(kExtentCount * setup.extent_bytes),
      hbm_budget_bytes_(setup.hbm_bytes),
      small_space_(setup.arena, kSmallExtents * setup.extent_bytes, kGranule),
      space_(setup.arena + kSmallExtents * setup.extent_bytes,
             (kExtentCount - kSmallExtents) * setup.extent_bytes, kGranule) {
    for (std::uint32_t e = 0; e < kSmallExtents; ++e)
        extents[e].pins.store(kPinSmall, std::memory_order_relaxed);
    counter(Counter::kHbmBudgetBytes) = setup.hbm_bytes;
    counter(Counter::kDramBudgetBytes) = dram.usable() ? setup.dram_bytes : 0;
    counter(Counter::kDevice) = static_cast<std::uint64_t>(setup.ordinal);
    counter(Counter::kExtentBytes) = setup.extent_bytes;
}

Device* Device::create() noexcept {
    Setup setup{};
    CUcontext current = nullptr;
    if (real_cuCtxGetDevice(&setup.ordinal) != CUDA_SUCCESS ||
        real_cuCtxGetCurrent(&current) != CUDA_SUCCESS)
        return nullptr;
    if (real_cuDevicePrimaryCtxRetain(&setup.context, setup.ordinal) != CUDA_SUCCESS ||
        setup.context != current)
        return nullptr;  // an application's own context: not ours to manage
    open_stats();
    counter(Counter::kLifetimes).store(lifetimes_attached() ? 1 : 0, std::memory_order_relaxed);
    setup.extent_bytes = options().extent_bytes;
    setup.hbm_bytes = hbm_budget();
    setup.dram_bytes = options().dram_bytes;
    setup.dram_place = dram_place(setup.ordinal);
    if (setup.dram_bytes != 0 && setup.dram_place.type == CU_MEM_LOCATION_TYPE_INVALID) {
        warn_once(
            "this driver or container cannot place device-mapped memory on the host (HOST_NUMA); "
            "running within the HBM budget alone");
        setup.dram_bytes = 0;
    }
    if (real_cuMemAddressReserve(&setup.arena, kExtentCount * setup.extent_bytes,
                                 setup.extent_bytes, 0, 0) != CUDA_SUCCESS) {
        warn_once("this driver cannot reserve an address range (no VMM); running without Transit");
        return nullptr;
    }
    auto* device = new (std::nothrow) Device(setup);
    if (device == nullptr) return nullptr;
    device->start_stocking();
    if (options().force_moves_seed != 0) device->start_forced_moves(options().force_moves_seed);
    pthread_atfork(nullptr, nullptr, [] { active_.store(nullptr, std::memory_order_release); });
    log(LogLevel::kInfo,
        "device %d: HBM budget %.2f GiB, DRAM budget %.2f GiB, extents of %llu MiB", setup.ordinal,
        static_cast<double>(setup.hbm_bytes) / (1 << 30),
        static_cast<double>(setup.dram_bytes) / (1 << 30),
        static_cast<unsigned long long>(setup.extent_bytes >> 20));
    return device;
}

Device* Device::for_allocation() noexcept {
    Device* device = active();
    if (device == nullptr) {
        if (g_gave_up.load(std::memory_order_acquire)) return nullptr;
        const std::lock_guard lock(g_create_mutex);
        device = active();
        if (device == nullptr) {
            device = create();
            if (device == nullptr) g_gave_up.store(true, std::memory_order_release);
            active_.store(device, std::memory_order_release);
        }
        if (device == nullptr) return nullptr;
    }
    CUcontext current = nullptr;
    const bool ours = real_cuCtxGetCurrent(&current) == CUDA_SUCCESS && current == device->context_;
    if (!ours) count_named("passed", "allocation on another device or context");
    return ours && !captures_open() ? device : nullptr;
}

bool Device::commit(std::uint64_t address, std::uint64_t bytes) noexcept {
    const ExtentRange range = ledger.extents_of(address, bytes);
    std::uint32_t fresh = 0;
    for (std::uint32_t e = range.first; e <= range.last; ++e)
        fresh += extents[e].allocations == 0 ? 1 : 0;
    if (committed_extents_ + fresh > hbm.limit() + dram.limit()) return false;
    for (std::uint32_t e = range.first; e <= range.last; ++e)
        ++extents[e].allocations;
    committed_extents_ += fresh;
    return true;
}

void Device::uncommit(std::uint64_t address, std::uint64_t bytes) noexcept {
    const ExtentRange range = ledger.extents_of(address, bytes);
    for (std::uint32_t e = range.first; e <= range.last; ++e)
        if (--extents[e].allocations == 0) --committed_extents_;
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
    const bool small = bytes <= kSmallBytes;
    const std::lock_guard lock(ledger_mutex);
    AddressSpace& space = small ? small_space_ : space_;
    const std::uint64_t span = space.rounded(bytes);
    const auto address = small || !refuse_once(span) ? space.take(span) : std::nullopt;
    if (!address || !commit(*address, span)) {
        if (address) space.give(*address, span);
        counter(Counter::kRefusedBytes).fetch_add(bytes, std::memory_order_relaxed);
        return CUDA_ERROR_OUT_OF_MEMORY;
    }
    ledger.add_allocation(*address, {bytes, span, false, small});
    add_with_peak(Counter::kManagedBytes, Counter::kManagedPeakBytes,
                  static_cast<std::int64_t>(span));
    Block whole;
    whole.start = *address;
    whole.bytes = span;
    whole.born_boundary = boundary();
    std::vector<std::uint32_t> reached;
    ledger.add_block(whole, reached);
    born(reached);
    add_with_peak(Counter::kLiveBytes, Counter::kLivePeakBytes, static_cast<std::int64_t>(span));
    wake_stocking();
    *out = *address;
    return CUDA_SUCCESS;
}

bool Device::free(CUdeviceptr address, CUresult* result) noexcept {
    if (!owns(address)) return false;
    *result = CUDA_ERROR_INVALID_VALUE;
    {
        const std::lock_guard lock(ledger_mutex);
        if (ledger.allocation_at(address) == nullptr)
            return true;  // double free, or inside a block
    }
    // The driver's own free waits for the GPU; programs rely on it, and so does reusing the address
    // on any stream.
    *result = real_cuCtxSynchronize();
    if (*result != CUDA_SUCCESS) return true;
    const std::lock_guard lock(ledger_mutex);
    const auto removed = ledger.remove_allocation(address);
    if (!removed) {
        *result = CUDA_ERROR_INVALID_VALUE;
        return true;
    }
    std::vector<std::uint32_t> left;
    const std::uint64_t before = ledger.live_bytes();
    ledger.remove_blocks(address, removed->span_bytes, left);
    died(left);
    uncommit(address, removed->span_bytes);
    (removed->pinned ? small_space_ : space_).give(address, removed->span_bytes);
    counter(Counter::kManagedBytes).fetch_sub(removed->span_bytes, std::memory_order_relaxed);
    counter(Counter::kLiveBytes).fetch_sub(before - ledger.live_bytes(), std::memory_order_relaxed);
    return true;
}

void Device::born(const std::vector<std::uint32_t>& reached) noexcept {
    std::uint32_t queued = 0;
    for (std::uint32_t e : reached) {
        if (place_of(extents[e].word.load(std::memory_order_seq_cst)) == Place::kHbm) continue;
        pending.push_back(e);
        ++queued;
    }
    if (queued != 0) pending_count.fetch_add(queued, std::memory_order_seq_cst);
}

// Work submitted before the free may still be running, and may reach the memory in ways no scan
// shows: the frame is free only when every stream has passed this moment.
void Device::died(const std::vector<std::uint32_t>& reached) noexcept {
    const std::uint64_t now = streams.newest();
    const std::uint64_t all = streams.used_mask();
    for (std::uint32_t e : reached)
        extents[e].touch.note(now, all);
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
    static thread_local std::vector<std::uint32_t> reached;
    reached.clear();
    const std::lock_guard lock(ledger_mutex);
    ledger.add_block(block, reached);
    born(reached);
    add_with_peak(Counter::kLiveBytes, Counter::kLivePeakBytes,
                  static_cast<std::int64_t>(block.bytes));
}

void Device::block_died(CUdeviceptr address) noexcept {
    if (!owns(address)) return;
    static thread_local std::vector<std::uint32_t> left;
    left.clear();
    const std::lock_guard lock(ledger_mutex);
    const auto removed = ledger.remove_block(address, left);
    if (!removed) return;
    died(left);
    counter(Counter::kLiveBytes).fetch_sub(removed->bytes, std::memory_order_relaxed);
}

void Device::passed_through(std::int64_t bytes) noexcept {
    add_with_peak(Counter::kHbmBytes, Counter::kHbmPeakBytes, bytes);
    {
        const std::lock_guard lock(ledger_mutex);
        passed_bytes_ += static_cast<std::uint64_t>(bytes);
    }
    const std::uint64_t left =
        hbm_budget_bytes_ > passed_bytes_ ? hbm_budget_bytes_ - passed_bytes_ : 0;
    hbm.set_limit(static_cast<std::uint32_t>(left / extent_bytes_));
}

void Device::note_kernel(KernelClass kind) noexcept {
    if (kind == KernelClass::kOptimizer) {
        if (!after_optimizer_.load(std::memory_order_relaxed))
            after_optimizer_.store(true, std::memory_order_relaxed);
    } else if (kind == KernelClass::kCompute && after_optimizer_.load(std::memory_order_relaxed) &&
               after_optimizer_.exchange(false, std::memory_order_acq_rel)) {
        counter(Counter::kSteps)
            .store(boundary_.fetch_add(1, std::memory_order_acq_rel), std::memory_order_relaxed);
    }
}

std::uint64_t Device::space_high_water() noexcept {
    const std::lock_guard lock(ledger_mutex);
    return space_.high_water();
}

std::uint64_t Device::total_bytes() const noexcept {
    return (std::uint64_t{hbm.limit()} + dram.limit()) * extent_bytes_ + passed_bytes_;
}

std::uint64_t Device::available_bytes() noexcept {
    const std::lock_guard lock(ledger_mutex);
    return (std::uint64_t{hbm.limit()} + dram.limit() - committed_extents_) * extent_bytes_;
}

// DRAM frames cost 10 ms each, so a thread makes them ahead: as many as commitments exceed HBM by,
// and a few.
void Device::start_stocking() noexcept {
    if (!dram.usable()) return;
    sigset_t all;
    sigset_t before;
    sigfillset(&all);
    pthread_sigmask(SIG_BLOCK, &all, &before);  // the application's signals are not for this thread
    static std::atomic<bool> stop{false};
    static std::atomic<bool> stopped{false};
    std::thread([this] {
        real_cuCtxSetCurrent(context_);
        while (!stop.load(std::memory_order_acquire)) {
            const std::uint32_t target = stock_target_.load(std::memory_order_acquire);
            if (dram.made() >= target || !dram.make_ahead()) nap_ns(2'000'000);
        }
        stopped.store(true, std::memory_order_release);
    }).detach();
    pthread_sigmask(SIG_SETMASK, &before, nullptr);
    // The driver tears down at exit; a frame in the making then would crash it.
    std::atexit([] {
        stop.store(true, std::memory_order_release);
        for (int i = 0;
             i < 100 && Device::active() != nullptr && !stopped.load(std::memory_order_acquire);
             ++i)
            nap_ns(1'000'000);
    });
}

// Stress: moves whatever may move, all the time, in an order that the seed decides.
void Device::start_forced_moves(std::uint64_t seed) noexcept {
    std::thread([this, seed] {
        real_cuCtxSetCurrent(context_);
        for (std::uint64_t state = seed;;) {
            state ^= state << 13;  // xorshift64
            state ^= state >> 7;
            state ^= state << 17;
            const auto used = ledger.extents_of(arena_, space_high_water() - arena_).last + 1;
            if (!mover.swap_place(static_cast<std::uint32_t>(state % used)))
                nap_ns(static_cast<long>(state >> 50));
        }
    }).detach();
}

// Needs the ledger's lock.
void Device::wake_stocking() noexcept {
    const std::uint32_t most = hbm.limit();
    const std::uint32_t beyond =
        committed_extents_ > most ? committed_extents_ - most + kStockAhead : 0;
    stock_target_.store(std::min(beyond, dram.limit()), std::memory_order_release);
}

}  // namespace transit
