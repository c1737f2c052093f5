#pragma once
// The state of each extent, in one word that launches and the mover agree on without a lock.
//
//   bits 0-1   Place: where its frame is
//   bit  2     claimed: the mover is remapping it; a launch waits, holding nothing
//   bits 4-15  holds: calls under way that reach it and have no number, since no stream runs them
//   bits 16-25 births of blocks in it, so that the mover sees one that came while it copied; what
//              they spill over makes the number below one too great, which is safe
//   bits 26-63 newest: no operation that may access it has a greater number. It grows with every
//              one. 2^38 operations are 31 days at 100,000 a second.
//
// An operation needs no hold: it writes its number here before it submits, and its stream has not
// passed that number before the driver has it (Streams).
#include <algorithm>
#include <atomic>
#include <cstdint>

#include "transit/frames.hpp"

namespace transit {

inline constexpr std::uint64_t kPlaceMask = 3;
inline constexpr std::uint64_t kClaimed = 4;
inline constexpr unsigned kNewestShift = 26;
inline constexpr std::uint64_t kHold = std::uint64_t{1} << 4;
inline constexpr std::uint64_t kStateMask = (std::uint64_t{1} << kNewestShift) - 1;
inline constexpr std::uint64_t kBirth = std::uint64_t{1} << 16;
inline constexpr std::uint64_t kHoldMask = (kBirth - 1) & ~(kHold - 1);

constexpr Place place_of(std::uint64_t word) { return static_cast<Place>(word & kPlaceMask); }
constexpr bool claimed(std::uint64_t word) { return (word & kClaimed) != 0; }
constexpr bool held(std::uint64_t word) { return (word & kHoldMask) != 0; }
constexpr std::uint64_t newest_of(std::uint64_t word) { return word >> kNewestShift; }

/// Why an extent may not move; bits of Extent::pins.
enum Pin : std::uint32_t { kPinSmall = 1, kPinCaptured = 2, kPinSemaphore = 16 };

/// Who may access a piece of memory: the operations on their way, and those submitted.
struct Access {
    std::atomic<std::uint64_t> word{0};
    std::atomic<std::uint64_t> streams{0};  // slots whose operations may

    /// The operation of that number, on the streams in `mask`, is about to be submitted. Answers
    /// the word before. One locked operation an extent: 7 ns.
    std::uint64_t announce(std::uint64_t number, std::uint64_t mask) noexcept {
        note_streams(mask);
        return raise(number, 0);
    }

    /// Until `release`: for what goes into a graph, or outlives its call. Answers the word before.
    std::uint64_t hold() noexcept { return raise(0, kHold); }
    void release() noexcept { word.fetch_sub(kHold, std::memory_order_release); }

    /// A block has come alive in it.
    void count_birth() noexcept { word.fetch_add(kBirth, std::memory_order_seq_cst); }

    /// An access that nobody announced, up to that number.
    void note(std::uint64_t number, std::uint64_t mask) noexcept {
        note_streams(mask);
        std::uint64_t seen = word.load(std::memory_order_relaxed);
        while (number > newest_of(seen) &&
               !word.compare_exchange_weak(seen, with_newest(seen, number),
                                           std::memory_order_seq_cst)) {
        }
    }

private:
    std::uint64_t raise(std::uint64_t number, std::uint64_t holds) noexcept {
        std::uint64_t seen = word.load(std::memory_order_relaxed);
        while (!word.compare_exchange_weak(
            seen, with_newest(seen, std::max(number, newest_of(seen) + 1)) + holds,
            std::memory_order_seq_cst)) {
        }
        return seen;
    }
    static constexpr std::uint64_t with_newest(std::uint64_t word, std::uint64_t number) {
        return (word & kStateMask) | number << kNewestShift;
    }
    void note_streams(std::uint64_t mask) noexcept {
        if ((streams.load(std::memory_order_relaxed) & mask) != mask)
            streams.fetch_or(mask, std::memory_order_acq_rel);
    }
};

/// One cache line each: a launch over a large block walks hundreds of them.
struct alignas(64) Extent : Access {
    std::atomic<std::uint32_t> pins{0};
    std::uint32_t frame = 0;        // index in the pool of its place; the mover's lock
    std::uint32_t allocations = 0;  // that overlap it; the ledger's lock
    bool hidden = false;            // verification has taken its mapping away; the mover's lock
    bool ever_hidden = false;
    std::uint32_t shown = 0;  // open launches that name it; the mover's lock
    bool listed = false;      // among the device's used extents; the ledger's lock
    bool charged = false;     // counts against the budgets; the ledger's lock
};

/// Small memory never moves, but dead it has no content to keep; what replays or polling may still
/// reach has.
inline bool keeps_when_dead(const Extent& extent) noexcept {
    return (extent.pins.load(std::memory_order_relaxed) & ~std::uint32_t{kPinSmall}) != 0;
}

}  // namespace transit
