#pragma once
// The state of each extent, in one word that launches and the mover agree on without a lock.
//
//   bits 0-1   Place: where its frame is
//   bit  2     claimed: the mover is remapping it; a launch waits, holding nothing
//   bits 8-31  open tickets: launches between their scan and the driver's return
//   bits 32-63 version: counts tickets ever taken, so that the mover sees if one came while it
//   copied
#include <atomic>
#include <cstdint>

#include "transit/frames.hpp"

namespace transit {

inline constexpr std::uint64_t kPlaceMask = 3;
inline constexpr std::uint64_t kClaimed = 4;
inline constexpr std::uint64_t kTicket = std::uint64_t{1} << 8;
inline constexpr std::uint64_t kOpenMask = std::uint64_t{0xffffff} << 8;
inline constexpr std::uint64_t kVersion = std::uint64_t{1} << 32;

constexpr Place place_of(std::uint64_t word) { return static_cast<Place>(word & kPlaceMask); }
constexpr bool claimed(std::uint64_t word) { return (word & kClaimed) != 0; }
constexpr bool has_tickets(std::uint64_t word) { return (word & kOpenMask) != 0; }

/// Why an extent may not move; bits of Extent::pins.
enum Pin : std::uint32_t { kPinSmall = 1, kPinCaptured = 2, kPinSemaphore = 16 };

struct Touch {
    std::atomic<std::uint64_t> sequence{0};  // newest operation that may access it
    std::atomic<std::uint64_t> streams{0};   // slots whose operations may

    void note(std::uint64_t number, std::uint64_t mask) noexcept {
        if ((streams.load(std::memory_order_relaxed) & mask) == 0)
            streams.fetch_or(mask, std::memory_order_acq_rel);
        std::uint64_t seen = sequence.load(std::memory_order_relaxed);
        while (number > seen &&
               !sequence.compare_exchange_weak(seen, number, std::memory_order_acq_rel)) {
        }
    }
};

/// One cache line each: a launch over a large block walks hundreds of them.
struct alignas(64) Extent {
    std::atomic<std::uint64_t> word{0};
    Touch touch;
    std::atomic<std::uint32_t> pins{0};
    std::uint32_t frame = 0;        // index in the pool of its place; the mover's lock
    std::uint32_t allocations = 0;  // that overlap it; the ledger's lock
    bool hidden = false;            // verification has taken its mapping away; the mover's lock
    bool ever_hidden = false;
    std::uint32_t shown = 0;  // open launches that name it; the mover's lock
    bool listed = false;      // among the device's used extents; the ledger's lock

    /// Takes a ticket and answers the word before it.
    std::uint64_t open() noexcept {
        return word.fetch_add(kTicket + kVersion, std::memory_order_seq_cst);
    }
    void close() noexcept { word.fetch_sub(kTicket, std::memory_order_release); }
};

/// Launches whose reach is unknown: they count as touching every extent, through this one record.
struct Everything {
    std::atomic<std::uint64_t> word{0};  // tickets and version as above
    Touch touch;
};

}  // namespace transit
