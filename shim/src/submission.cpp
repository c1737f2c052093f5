#include "transit/submission.hpp"

#include <algorithm>
#include <array>
#include <cstring>
#include <deque>
#include <utility>

#include "transit/capture.hpp"
#include "transit/clock.hpp"
#include "transit/device.hpp"
#include "transit/per_thread.hpp"
#include "transit/recorder.hpp"
#include "transit/stats.hpp"
#include "transit/verify.hpp"

namespace transit {
namespace {

constexpr unsigned kMostAttempts = 1000;

// Submissions of one thread that are open together (a group of collectives, a driver callback) must
// not share their ranges. They end in the reverse order of their beginning.
thread_local unsigned t_depth = 0;

std::vector<ExtentRange>& ranges_of_depth(unsigned depth) noexcept {
    // A deque: it grows without moving what open submissions hold.
    static thread_local PerThread<std::deque<std::vector<ExtentRange>>> kept;
    std::deque<std::vector<ExtentRange>>& buffers = *kept;
    while (buffers.size() <= depth)
        buffers.emplace_back();
    std::vector<ExtentRange>& chosen = buffers[depth];
    chosen.clear();
    return chosen;
}

}  // namespace

Submission::Submission(Device& device, CUstream stream, bool per_thread) noexcept
    : device_(device), stream_(stream), per_thread_(per_thread),
      scanning_(device.ledger_mutex, std::defer_lock), ranges_(ranges_of_depth(t_depth++)) {}

Submission::~Submission() {
    if (open_) close();
    --t_depth;
}

void Submission::scan_lock() noexcept {
    if (!scanning_.owns_lock()) scanning_.lock();
}

void Submission::add(ExtentRange range) noexcept {
    // Announcements are locked operations, which wait for their cache line one by one.
    for (std::uint32_t e = range.first; e <= range.last; ++e)
        __builtin_prefetch(&device_.extents[e], 1);
    // Kernels name the same block several times in a row, and optimizers neighbours; anything else
    // that repeats is only announced twice.
    if (!ranges_.empty()) {
        ExtentRange& last = ranges_.back();
        if (range.first <= last.last + 1 && last.first <= range.last + 1) {
            last = {std::min(last.first, range.first), std::max(last.last, range.last)};
            return;
        }
    }
    ranges_.push_back(range);
}

void Submission::hit(std::uint64_t value) noexcept {
    scan_lock();
    if (!device_.owns(value)) {
        device_.ledger.reach_of_tables(value, 1, ranges_);
        return;
    }
    const bool plain = !makes_opaque_ && !copies_ && !recording();
    if (const ExtentRange* known = plain ? device_.ledger.recall(value) : nullptr) {
        add(*known);
        return;
    }
    const Ledger::Listed* listed = device_.ledger.look_up(value);
    if (listed == nullptr) return;
    const ExtentRange extents =
        device_.ledger.extents_of(listed->start, listed->end - listed->start);
    add(extents);
    if (recording()) {
        record_operand(listed->start, value - listed->start);
    } else {
        last_start_ = listed->start;
        last_bytes_ = listed->end - listed->start;
    }
    if (plain && !listed->holds_addresses) {
        device_.ledger.remember(value, extents);
        return;
    }
    if (makes_opaque_ || copies_ || listed->holds_addresses) spread(*listed->block);
    if (listed->block->has_tables &&
        device_.ledger.reach_of_tables(listed->start, listed->end - listed->start, ranges_) > 0)
        counter(Counter::kTableTouches).fetch_add(1, std::memory_order_relaxed);
}

// Needs the ledger's lock. Which parameter is written is not known, so every block named becomes
// opaque; for a copy only once one of them holds addresses, and then those named before it too.
void Submission::spread(Block& block) noexcept {
    source_holds_addresses_ = source_holds_addresses_ || block.has_tables || block.opaque;
    if (block.opaque) everything_ = true;
    if (makes_opaque_ || (copies_ && source_holds_addresses_)) device_.ledger.make_opaque(block);
    if (copies_ && !source_holds_addresses_) named_.push_back(&block);
    if (!copies_ || !source_holds_addresses_) return;
    for (Block* earlier : named_)
        device_.ledger.make_opaque(*earlier);
    named_.clear();
}

// Few words are addresses. Those that are go through in batches, so that what is read of each is on
// its way while the others are looked at: an optimizer's list names a hundred.
void Submission::words(const void* from, std::size_t bytes) noexcept {
    constexpr std::size_t kBatch = 32;
    std::array<std::uint64_t, kBatch> found;
    std::size_t count = 0;
    const std::uint64_t arena = device_.arena();
    const std::uint64_t arena_bytes = device_.arena_bytes();
    const bool foreign = device_.ledger.has_foreign_tables();
    const char* const at = static_cast<const char*>(from);
    const auto through = [&] {
        for (std::size_t i = 0; i < count; ++i)
            word(found[i]);
        count = 0;
    };
    for (std::size_t i = 0; i + 8 <= bytes; i += 8) {
        std::uint64_t value = 0;
        std::memcpy(&value, at + i, 8);
        const bool ours = value - arena < arena_bytes;
        if (!ours && (!foreign || value == 0)) continue;
        if (ours) device_.ledger.prefetch(value);
        found[count++] = value;
        if (count == kBatch) through();
    }
    through();
}

void Submission::range(CUdeviceptr address, std::size_t bytes) noexcept {
    if (!device_.owns(address) || bytes == 0) return;
    if (recording()) {
        scan_lock();
        const Block* block = device_.ledger.find(address);
        if (block != nullptr) record_operand(block->start, address - block->start);
        copied_bytes_ = bytes;
    }
    add(device_.ledger.extents_of(address, bytes));
}

// What `enter` would answer, found without a trace: an announcement counts as an access, and an
// extent that is to be moved first would have to wait for the stream to come to this launch.
Submission::Taken Submission::look() noexcept {
    if (everything_ && device_.mover.claims_open()) return Taken::kClaimed;
    in_dram_ = false;
    for (const ExtentRange range : ranges_)
        for (std::uint32_t e = range.first; e <= range.last; ++e)
            if (!usable(e, device_.extents[e].word.load(std::memory_order_acquire)))
                return blocked_by_;
    return Taken::kAll;
}

bool Submission::usable(std::uint32_t extent, std::uint64_t word) noexcept {
    in_dram_ = in_dram_ || place_of(word) == Place::kDram;
    if (!claimed(word) && place_of(word) != Place::kNone) return true;
    blocked_on_ = extent;
    blocked_by_ = claimed(word) ? Taken::kClaimed : Taken::kUnmapped;
    return false;
}

// Announces the operation, or takes the holds. What stays behind where it fails is an announcement
// of an operation that was abandoned: it passes with its stream.
Submission::Taken Submission::enter() noexcept {
    const std::uint64_t mask = std::uint64_t{1} << slot_;
    const auto take = [&](Access& access) {
        return captured_ ? access.hold() : access.announce(sequence_, mask);
    };
    if (everything_) {
        take(device_.everything);
        if (device_.mover.claims_open()) {
            if (captured_) device_.everything.release();
            return Taken::kClaimed;
        }
    }
    in_dram_ = false;
    for (std::size_t i = 0; i < ranges_.size(); ++i) {
        for (std::uint32_t e = ranges_[i].first; e <= ranges_[i].last; ++e) {
            if (usable(e, take(device_.extents[e]))) continue;
            if (captured_) release_holds(i, e + 1);
            return blocked_by_;
        }
    }
    return Taken::kAll;
}

// The holds of the first `whole_ranges` ranges, and of the next one up to extent `end`.
void Submission::release_holds(std::size_t whole_ranges, std::uint32_t end) noexcept {
    for (std::size_t i = 0; i < whole_ranges; ++i)
        for (std::uint32_t e = ranges_[i].first; e <= ranges_[i].last; ++e)
            device_.extents[e].release();
    if (whole_ranges < ranges_.size())
        for (std::uint32_t e = ranges_[whole_ranges].first; e < end; ++e)
            device_.extents[e].release();
    if (everything_) device_.everything.release();
}

// Stale addresses: where nothing lives and nothing is mapped there is nothing to protect, and the
// driver will judge the access.
void Submission::leave_out_the_dead() noexcept {
    const std::lock_guard lock(device_.ledger_mutex);
    std::vector<ExtentRange> left;
    for (const ExtentRange range : ranges_) {
        for (std::uint32_t e = range.first; e <= range.last; ++e) {
            const Place place = place_of(device_.extents[e].word.load(std::memory_order_acquire));
            if (place == Place::kNone && !device_.ledger.live(e)) continue;
            if (!left.empty() && left.back().last + 1 == e)
                left.back().last = e;
            else
                left.push_back({e, e});
        }
    }
    ranges_.swap(left);
}

// Whatever there is to wait for, wait holding nothing.
CUresult Submission::wait_for(Taken taken, unsigned attempt) noexcept {
    const std::int64_t start = now_ns();
    if (taken == Taken::kAll) {
        device_.mover.bring_in(ranges_);
    } else if (taken == Taken::kClaimed && everything_) {
        device_.mover.wait_no_claims();
    } else if (taken == Taken::kClaimed) {
        device_.mover.wait_unclaimed(device_.extents[blocked_on_]);
    } else if (attempt > kMostAttempts) {
        return CUDA_ERROR_OUT_OF_MEMORY;
    } else {
        leave_out_the_dead();
    }
    waited_ns_ += now_ns() - start;
    return CUDA_SUCCESS;
}

CUresult Submission::open(Operands operands) noexcept {
    if (scanning_.owns_lock()) scanning_.unlock();
    captured_ = captured_ || capturing(stream_, per_thread_);
    bool brought_in = operands == Operands::kInPlace;
    for (unsigned attempt = 0;; ++attempt) {
        if (device_.pending_count.load(std::memory_order_acquire) != 0) {
            const std::int64_t start = now_ns();
            if (!device_.mover.place_pending()) return CUDA_ERROR_OUT_OF_MEMORY;
            waited_ns_ += now_ns() - start;
        }
        Taken taken = look();
        if (taken == Taken::kAll && (!in_dram_ || brought_in)) {
            if (!captured_) {
                slot_ = device_.streams.slot_of(stream_, per_thread_);
                sequence_ = device_.streams.begin(slot_);
            }
            taken = enter();
            if (taken == Taken::kAll && (!in_dram_ || brought_in)) break;
            if (!captured_)
                device_.streams.abandon(slot_);
            else if (taken == Taken::kAll)
                release_holds(ranges_.size(), 0);
        }
        brought_in = brought_in || taken == Taken::kAll;
        if (const CUresult refused = wait_for(taken, attempt)) return refused;
    }
    open_ = true;
    if (verifying()) device_.mover.show(ranges_, everything_);
    return CUDA_SUCCESS;
}

CUresult Submission::close() noexcept {
    if (!open_) return CUDA_SUCCESS;
    if (captured_) {
        if (everything_) device_.freeze();
        pin(kPinCaptured, "captured in a CUDA graph");
        return CUDA_SUCCESS;
    }
    open_ = false;
    const CUresult verdict =
        verifying() ? device_.mover.hide(ranges_, everything_, name_) : CUDA_SUCCESS;
    if (recording()) record_operation(name_, copied_bytes_, named(stream_, per_thread_), slot_);
    device_.streams.end(slot_, !captures_open());
    return verdict;
}

void Submission::pin(std::uint32_t reason, const char* name) noexcept {
    const bool holds = std::exchange(open_, false);
    std::uint64_t fresh = 0;
    for (const ExtentRange range : ranges_) {
        for (std::uint32_t e = range.first; e <= range.last; ++e) {
            if ((device_.extents[e].pins.fetch_or(reason, std::memory_order_seq_cst) & reason) == 0)
                ++fresh;
        }
    }
    if (holds) release_holds(ranges_.size(), 0);
    if (fresh == 0) return;
    counter(Counter::kPinnedExtents).fetch_add(fresh, std::memory_order_relaxed);
    count_named("pinned", name, fresh);
}

}  // namespace transit
