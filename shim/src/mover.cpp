// Who gets the HBM frames: newly live extents, operands that must come in, and what makes room for
// them.
#include "transit/mover.hpp"

#include <algorithm>
#include <cstdio>

#include "transit/capture.hpp"
#include "transit/clock.hpp"
#include "transit/context.hpp"
#include "transit/device.hpp"
#include "transit/log.hpp"
#include "transit/policy.hpp"
#include "transit/real.hpp"
#include "transit/stats.hpp"

namespace transit {
namespace {

// A launch waits this long for memory that the GPU has yet to pass before it settles for DRAM.
constexpr std::int64_t kFrameWaitNs = 10'000'000'000;
constexpr std::int64_t kIdleWaitNs = 2'000'000'000;
constexpr long kPollNs = 20'000;

class Timed {
public:
    explicit Timed(Counter counter) : counter_(counter), start_(now_ns()) {}
    ~Timed() {
        counter(counter_).fetch_add(static_cast<std::uint64_t>(now_ns() - start_),
                                    std::memory_order_relaxed);
    }
    Timed(const Timed&) = delete;
    Timed& operator=(const Timed&) = delete;

private:
    Counter counter_;
    std::int64_t start_;
};

}  // namespace

/// The extents a launch is about to use: they must not make room for themselves.
class Mover::Keep {
public:
    explicit Keep(const std::vector<ExtentRange>* ranges) : ranges_(ranges) {}
    bool holds(std::uint32_t extent) const {
        return ranges_ != nullptr &&
               std::any_of(ranges_->begin(), ranges_->end(), [extent](ExtentRange r) {
                   return r.first <= extent && extent <= r.last;
               });
    }

private:
    const std::vector<ExtentRange>* ranges_;
};

FramePool& Mover::pool(Place place) noexcept {
    return place == Place::kHbm ? device_.hbm : device_.dram;
}

// Enough for dead memory: every launch that could reach it, seen or unseen, came before its end,
// which noted all streams.
bool Mover::passed(const Access& access, std::uint64_t word) const noexcept {
    return device_.streams.passed(access.streams.load(std::memory_order_acquire), newest_of(word));
}

bool Mover::idle(const Extent& extent, std::uint64_t word) const noexcept {
    const std::uint64_t everything = device_.everything.word.load(std::memory_order_seq_cst);
    return !held(word) && !held(everything) && passed(extent, word) &&
           passed(device_.everything, everything);
}

// Needs the ledger's lock. Transient memory stays put: its scan has not been shown to be complete.
bool Mover::may_move(std::uint32_t extent) noexcept {
    if (device_.frozen() || device_.extents[extent].pins.load(std::memory_order_acquire) != 0)
        return false;
    const std::uint32_t boundary = device_.boundary();
    const auto& blocks = device_.ledger.blocks_in(extent);
    return !blocks.empty() &&
           std::all_of(blocks.begin(), blocks.end(), [boundary](const Ledger::Listed& listed) {
               // Without lifetimes a block is a whole segment, transient contents included: one
               // that a table has listed may hold what kernels reach unseen, and stays
               // (docs/decisions/0003).
               return listed.block->born_boundary < boundary &&
                      (listed.block->lifetime_known || !listed.block->listed);
           });
}

std::vector<std::uint32_t> Mover::take_pending() noexcept {
    const std::lock_guard lock(device_.ledger_mutex);
    std::vector<std::uint32_t> wanted;
    for (std::uint32_t e : device_.pending)
        if (device_.ledger.live(e)) wanted.push_back(e);
    device_.pending.clear();
    std::sort(wanted.begin(), wanted.end());
    wanted.erase(std::unique(wanted.begin(), wanted.end()), wanted.end());
    return wanted;
}

bool Mover::map_anywhere(std::uint32_t e) noexcept {
    for (const Place place : {Place::kDram, Place::kHbm})
        if (const auto frame = pool(place).take(); frame && map(e, place, *frame)) return true;
    return false;
}

bool Mover::place_pending() noexcept {
    const InContext home(device_.context());
    const OutsideCapture outside;
    const std::lock_guard lock(mutex_);
    if (device_.pending_count.load(std::memory_order_acquire) == 0) return true;
    if (ended_) return false;
    const Timed timed(Counter::kWaitFramesNs);
    bool placed = true;
    while (const std::uint32_t seen = device_.pending_count.load(std::memory_order_acquire)) {
        std::vector<std::uint32_t> wanted = take_pending();
        // An extent reborn on DRAM holds nothing anybody wants: it is free to start in HBM.
        std::erase_if(wanted, [this](std::uint32_t e) {
            const Place place = place_of(device_.extents[e].word.load(std::memory_order_acquire));
            // What is pinned stays: replays and polling reach it without a number.
            const bool pinned = device_.extents[e].pins.load(std::memory_order_acquire) != 0;
            return place == Place::kHbm || (place == Place::kDram && (pinned || !drop(e)));
        });
        std::vector<std::uint32_t> frames =
            frames_for(static_cast<std::uint32_t>(wanted.size()), Keep(nullptr));
        std::size_t done = 0;
        for (; done < wanted.size() && placed; done += placed ? 1 : 0) {
            placed = done < frames.size() && map(wanted[done], Place::kHbm, frames[done]);
            for (int attempt = 0; attempt < 2 && !placed; ++attempt)
                placed = map_anywhere(wanted[done]);
        }
        if (!placed) {
            // Nothing is forgotten: the next launch tries again. A frame that could not be mapped
            // is back in its pool.
            for (std::size_t i = done + 1; i < frames.size(); ++i)
                device_.hbm.give(frames[i]);
            const std::lock_guard ledger(device_.ledger_mutex);
            device_.pending.insert(device_.pending.end(),
                                   wanted.begin() + static_cast<std::ptrdiff_t>(done),
                                   wanted.end());
            return false;
        }
        device_.pending_count.fetch_sub(seen, std::memory_order_acq_rel);
    }
    return true;
}

std::uint32_t Mover::live_in_hbm() noexcept {
    const std::lock_guard lock(device_.ledger_mutex);
    std::uint32_t count = 0;
    for (std::uint32_t e : device_.used)
        if (device_.ledger.live(e) &&
            place_of(device_.extents[e].word.load(std::memory_order_relaxed)) == Place::kHbm)
            ++count;
    return count;
}

// True if some dead memory still has an HBM frame, or a DRAM one if those count, so that waiting
// for the GPU will yield one.
bool Mover::dead_memory_will_pass(bool dram_too) noexcept {
    const std::lock_guard lock(device_.ledger_mutex);
    for (std::uint32_t e : device_.used) {
        const Extent& extent = device_.extents[e];
        const Place place = place_of(extent.word.load(std::memory_order_relaxed));
        if ((place == Place::kHbm || (place == Place::kDram && dram_too)) &&
            !device_.ledger.live(e) && !keeps_when_dead(extent))
            return true;
    }
    return false;
}

std::vector<std::uint32_t> Mover::frames_for(std::uint32_t count, const Keep& keep) noexcept {
    std::vector<std::uint32_t> frames;
    std::int64_t deadline = 0;
    while (true) {
        while (frames.size() < count) {
            const auto frame = device_.hbm.take();
            if (!frame) break;
            frames.push_back(*frame);
        }
        const auto missing = static_cast<std::uint32_t>(count - frames.size());
        if (missing == 0) return frames;
        device_.streams.poll();
        if (drop_dead(missing) > 0) continue;
        const FrameDemand demand{live_in_hbm(), count, device_.hbm.limit()};
        if (const std::uint32_t leave = must_leave(demand);
            leave > 0 && offload(std::min(leave, missing), keep) > 0)
            continue;
        if (!dead_memory_will_pass(device_.dram.available() < missing)) break;
        device_.streams.flush(~std::uint64_t{0});
        if (device_.streams.needs_synchronisation()) device_.request_synchronisation();
        if (deadline == 0) deadline = now_ns() + kFrameWaitNs;
        if (now_ns() > deadline) break;
        nap_ns(kPollNs);
    }
    settle_budget_advice(count);
    return frames;
}

// Once: the user asked for less HBM than the job's transient memory needs at once.
void Mover::settle_budget_advice(std::uint32_t wanted) noexcept {
    // A reserve for small allocations and the moves in flight: sixteen extents, or an eighth of a
    // job that is smaller than that.
    const std::uint64_t used = std::uint64_t{live_in_hbm()} + wanted;
    const std::uint64_t bytes =
        (used + std::min<std::uint64_t>(16, used / 8 + 1)) * device_.extent_bytes();
    std::uint64_t seen = counter(Counter::kSmallestBudgetBytes).load(std::memory_order_relaxed);
    if (bytes <= seen) return;
    counter(Counter::kSmallestBudgetBytes).store(bytes, std::memory_order_relaxed);
    if (seen != 0) return;
    // Memory that nothing uses just now may be what DRAM has no room for.
    const bool dram_full = device_.dram.limit() != 0 && device_.dram.available() < wanted;
    char sentence[200];
    std::snprintf(
        sentence, sizeof sentence,
        "the HBM budget is below what this job uses at once: it runs, partly from DRAM and slowly; "
        "try %s--hbm %lluMiB or more",  // whole, as extents are: a rounded figure may be too small
        dram_full ? "more --dram, which is nearly full, or " : "",
        static_cast<unsigned long long>(bytes >> 20));
    warn_once(sentence);
}

std::uint32_t Mover::drop_dead(std::uint32_t count) noexcept {
    std::vector<Candidate> candidates;
    {
        const std::lock_guard lock(device_.ledger_mutex);
        for (std::uint32_t e : device_.used) {
            const Extent& extent = device_.extents[e];
            const std::uint64_t word = extent.word.load(std::memory_order_relaxed);
            if (place_of(word) == Place::kNone || device_.ledger.live(e) || keeps_when_dead(extent))
                continue;
            candidates.push_back({e, newest_of(word)});
        }
    }
    std::uint32_t gained = 0;
    for (std::uint32_t e : least_recently_touched(std::move(candidates), ~std::size_t{0})) {
        const bool hbm =
            place_of(device_.extents[e].word.load(std::memory_order_relaxed)) == Place::kHbm;
        if (drop(e) && hbm && ++gained == count) break;
    }
    return gained;
}

std::uint32_t Mover::offload(std::uint32_t count, const Keep& keep) noexcept {
    std::vector<Candidate> candidates;
    {
        const std::lock_guard lock(device_.ledger_mutex);
        for (std::uint32_t e : device_.used) {
            const Extent& extent = device_.extents[e];
            const std::uint64_t word = extent.word.load(std::memory_order_relaxed);
            if (place_of(word) != Place::kHbm) continue;
            if (keep.holds(e) || !may_move(e)) continue;
            candidates.push_back({e, newest_of(word)});
        }
    }
    const std::vector<std::uint32_t> victims = least_recently_touched(std::move(candidates), count);
    wait_idle(victims, kIdleWaitNs);
    return move(victims, Place::kDram);
}

void Mover::bring_in(const std::vector<ExtentRange>& ranges) noexcept {
    const InContext home(device_.context());
    const OutsideCapture outside;
    const std::lock_guard lock(mutex_);
    if (!prepare()) return;
    const Timed timed(Counter::kWaitPrefetchNs);
    std::vector<std::uint32_t> wanted;
    for (const ExtentRange range : ranges)
        for (std::uint32_t e = range.first; e <= range.last; ++e)
            if (place_of(device_.extents[e].word.load(std::memory_order_acquire)) == Place::kDram)
                wanted.push_back(e);
    std::sort(wanted.begin(), wanted.end());
    wanted.erase(std::unique(wanted.begin(), wanted.end()), wanted.end());
    {
        const std::lock_guard ledger(device_.ledger_mutex);
        std::erase_if(wanted, [this](std::uint32_t e) { return !may_move(e); });
    }
    if (wanted.empty()) return;
    // The frames go back to the pool's stock, from where the moves take them.
    for (std::uint32_t frame : frames_for(static_cast<std::uint32_t>(wanted.size()), Keep(&ranges)))
        device_.hbm.give(frame);
    wait_idle(wanted, kIdleWaitNs);
    move(wanted, Place::kHbm);
}

bool Mover::swap_place(std::uint32_t e) noexcept {
    const InContext home(device_.context());
    const OutsideCapture outside;
    const std::lock_guard lock(mutex_);
    if (!prepare()) return false;
    const Place place = place_of(device_.extents[e].word.load(std::memory_order_acquire));
    if (place == Place::kNone) return false;
    {
        const std::lock_guard ledger(device_.ledger_mutex);
        if (!may_move(e)) return false;
    }
    device_.streams.poll();
    return move({e}, place == Place::kHbm ? Place::kDram : Place::kHbm) == 1;
}

bool Mover::wait_idle(const std::vector<std::uint32_t>& extents, std::int64_t limit_ns) noexcept {
    const std::int64_t deadline = now_ns() + limit_ns;
    const auto idle_now = [this](std::uint32_t e) {
        const Extent& extent = device_.extents[e];
        return idle(extent, extent.word.load(std::memory_order_seq_cst));
    };
    for (std::uint32_t e : extents) {
        while (!idle_now(e)) {
            if (now_ns() > deadline) return false;
            device_.streams.flush(~std::uint64_t{0});
            device_.streams.poll();
            if (idle_now(e)) break;
            if (device_.streams.needs_synchronisation()) device_.request_synchronisation();
            nap_ns(kPollNs);
        }
    }
    return true;
}

void Mover::wait_unclaimed(const Extent& extent) noexcept {
    if (!claimed(extent.word.load(std::memory_order_acquire))) return;
    const Timed timed(Counter::kWaitClaimNs);
    while (claimed(extent.word.load(std::memory_order_acquire)))
        nap_ns(kPollNs);
}

void Mover::wait_no_claims() noexcept {
    const Timed timed(Counter::kWaitClaimNs);
    while (claims_open())
        nap_ns(kPollNs);
}

}  // namespace transit
