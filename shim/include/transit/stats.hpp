#pragma once
// Counters of this process in a mapped file (docs/formats.md), so that they outlive a killed rank.
#include <array>
#include <atomic>
#include <cstdint>
#include <string_view>

#include "transit/log.hpp"

namespace transit {

enum class Counter : unsigned {
    kHbmBudgetBytes,
    kDramBudgetBytes,
    kHbmBytes,
    kHbmPeakBytes,
    kDramBytes,
    kDramPeakBytes,
    kManagedBytes,
    kManagedPeakBytes,
    kLiveBytes,
    kLivePeakBytes,
    kOffloadBytes,
    kPrefetchBytes,
    kDroppedBytes,
    kOffloads,
    kPrefetches,
    kDrops,
    kAbortedMoves,
    kInPlaceLaunches,
    kWaitFramesNs,
    kWaitClaimNs,
    kWaitPrefetchNs,
    kPinnedExtents,
    kLaunches,
    kManagedLaunches,
    kUnknownLaunches,
    kHookNs,
    kHookSamples,
    kHookP50Ns,
    kHookP99Ns,
    kTables,
    kTableTouches,
    kCopies,
    kCollectives,
    kSteps,
    kLifetimes,
    kRefusedBytes,
    kRefusedOnceBytes,
    kDevice,
    kExtentBytes,
    kSmallestBudgetBytes,
    kUnmappedBytesVerified,
    kHiddenAccesses,
    kCount
};

inline constexpr std::array<std::string_view, static_cast<unsigned>(Counter::kCount)>
    kCounterNames = {"hbm_budget_bytes",
                     "dram_budget_bytes",
                     "hbm_bytes",
                     "hbm_peak_bytes",
                     "dram_bytes",
                     "dram_peak_bytes",
                     "managed_bytes",
                     "managed_peak_bytes",
                     "live_bytes",
                     "live_peak_bytes",
                     "offload_bytes",
                     "prefetch_bytes",
                     "dropped_bytes",
                     "offloads",
                     "prefetches",
                     "drops",
                     "aborted_moves",
                     "in_place_launches",
                     "wait_frames_ns",
                     "wait_claim_ns",
                     "wait_prefetch_ns",
                     "pinned_extents",
                     "launches",
                     "managed_launches",
                     "unknown_launches",
                     "hook_ns",
                     "hook_samples",
                     "hook_p50_ns",
                     "hook_p99_ns",
                     "tables",
                     "table_touches",
                     "copies",
                     "collectives",
                     "steps",
                     "lifetimes",
                     "refused_bytes",
                     "refused_once_bytes",
                     "device",
                     "extent_bytes",
                     "smallest_budget_bytes",
                     "unmapped_bytes_verified",
                     "hidden_accesses"};

/// Maps the statistics file (or anonymous memory where there is no run folder). Called once, by the
/// device.
void open_stats() noexcept;

/// A counter's cell. One relaxed add a call; before open_stats the cell is a scratch one.
std::atomic<std::uint64_t>& counter(Counter which) noexcept;

/// Adds and keeps the highest value seen in `peak`.
void add_with_peak(Counter which, Counter peak, std::int64_t delta) noexcept;

/// Counts an event under a name, e.g. ("unknown", kernel). Takes a lock: not for fast paths.
void count_named(const char* kind, const char* name, std::uint64_t count = 1) noexcept;

/// Says a sentence to the user once: standard error now, the summary later. `kQuiet` is for what
/// users who asked for quiet have to know too: that Transit does nothing for them.
void warn_once(const char* sentence, LogLevel level = LogLevel::kWarn) noexcept;

}  // namespace transit
