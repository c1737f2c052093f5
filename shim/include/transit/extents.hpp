#pragma once
// The state of each extent, in one word that launches and the mover agree on without a lock.
//
//   bits 0-1   Place: where its frame is
//   bit  2     claimed: the mover is remapping it; a launch waits, holding nothing
//   bits 4-23  open tickets: launches between their scan and the driver's return
//   bits 24-63 newest: no operation that may access it has a greater number. It grows with every
//              ticket, so the mover also sees by it if a ticket came while it copied. 2^40
//              operations are 127 days at 100,000 a second.
#include <algorithm>
#include <atomic>
#include <cstdint>

#include "transit/frames.hpp"

namespace transit {

inline constexpr std::uint64_t kPlaceMask = 3;
inline constexpr std::uint64_t kClaimed = 4;
inline constexpr unsigned kNewestShift = 24;
inline constexpr std::uint64_t kTicket = std::uint64_t{1} << 4;
inline constexpr std::uint64_t kStateMask = (std::uint64_t{1} << kNewestShift) - 1;
inline constexpr std::uint64_t kOpenMask = kStateMask & ~(kTicket - 1);

constexpr Place place_of(std::uint64_t word) { return static_cast<Place>(word & kPlaceMask); }
constexpr bool claimed(std::uint64_t word) { return (word & kClaimed) != 0; }
constexpr bool has_tickets(std::uint64_t word) { return (word & kOpenMask) != 0; }
constexpr std::uint64_t newest_of(std::uint64_t word) { return word >> kNewestShift; }

/// Why an extent may not move; bits of Extent::pins.
enum Pin : std::uint32_t { kPinSmall = 1, kPinCaptured = 2, kPinSemaphore = 16 };

/// Who may access a piece of memory: the operations on their way, and those submitted.
struct Access {
    std::atomic<std::uint64_t> word{0};
    std::atomic<std::uint64_t> streams{0};  // slots whose operations may

    /// Takes a ticket for the operation of that number on the streams in `mask`, and answers the
    /// word before it. Two locked operations an extent, with `close`: 13 ns.
    std::uint64_t open(std::uint64_t number, std::uint64_t mask) noexcept {
        note_streams(mask);
        std::uint64_t seen = word.load(std::memory_order_relaxed);
        while (!word.compare_exchange_weak(
            seen, with_newest(seen, std::max(number, newest_of(seen) + 1)) + kTicket,
            std::memory_order_seq_cst)) {
        }
        return seen;
    }
    void close() noexcept { word.fetch_sub(kTicket, std::memory_order_release); }

    /// An access that no ticket showed, up to that number.
    void note(std::uint64_t number, std::uint64_t mask) noexcept {
        note_streams(mask);
        std::uint64_t seen = word.load(std::memory_order_relaxed);
        while (number > newest_of(seen) &&
               !word.compare_exchange_weak(seen, with_newest(seen, number),
                                           std::memory_order_seq_cst)) {
        }
    }

private:
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
};

}  // namespace transit
