#pragma once
// What each stream has passed. Host time is not GPU time: the host runs hundreds of milliseconds
// ahead, so progress is learned from events ("markers") recorded behind every few operations.
#include <cuda.h>

#include <array>
#include <atomic>
#include <cstdint>
#include <deque>
#include <mutex>
#include <unordered_map>
#include <vector>

namespace transit {

/// Names streams by small numbers, numbers the operations submitted to them, and knows which have
/// been passed.
///
/// Invariants behind `passed`: an operation raises `begun` before it takes its sequence number and
/// `ended` after the driver has it. So whoever reads a number n, and then finds ended == begun,
/// knows that every operation of that stream numbered n or less is in the driver's queue; an event
/// recorded then covers them all.

class Streams {
public:
    /// `home`: the managed device's context. Streams of other contexts are followed too: peers may
    /// reach its memory.
    explicit Streams(CUcontext home) noexcept : home_(home) {}

    /// What identifies a stream: its handle. Default streams have none of their own: there is one
    /// legacy one a context, and one a thread and context.
    std::uint64_t key_of(CUstream stream, bool per_thread) noexcept;

    static constexpr unsigned kSlots = 64;
    static constexpr unsigned kOverflowSlot =
        kSlots - 1;  // shared, never known to have passed while in use
    static constexpr unsigned kMarkerEvery =
        32;  // an event costs 1.5 to 3 µs; so 0.1 µs an operation

    /// The slot of a stream. Lock-free when known.
    unsigned slot_of(CUstream stream, bool per_thread) noexcept;
    /// The stream is about to be destroyed: a last marker, then the handle may come back as another
    /// stream.
    void retire(CUstream stream) noexcept;
    /// The same for a thread's default streams, which cannot be marked any more (their name may
    /// already mean a new stream): the slot passes at the next synchronisation.
    void retire_thread(std::uint64_t number) noexcept;

    /// What a synchronisation that begins now will have waited for; `synchronized` once it
    /// succeeded.
    struct Snapshot {
        std::uint64_t sequence;
        std::uint64_t quiet_slots;  // no operation of theirs was between number and driver
    };
    /// Of the home context: it does not wait for others.
    Snapshot snapshot() const noexcept;
    void synchronized(const Snapshot& before) noexcept;

    /// Around the driver call that submits. `begin` answers the operation's number.
    std::uint64_t begin(unsigned slot) noexcept;
    void end(unsigned slot, bool may_mark) noexcept;
    void abandon(unsigned slot) noexcept;  // begun, but not submitted

    std::uint64_t newest() const noexcept { return sequence_.load(std::memory_order_seq_cst); }
    /// True if every stream in `mask` has passed every operation numbered `sequence` or less.
    bool passed(std::uint64_t mask, std::uint64_t sequence) const noexcept;
    /// All slots that ever submitted.
    std::uint64_t used_mask() const noexcept { return used_.load(std::memory_order_acquire); }

    /// True if some work is only known to have passed after a synchronisation: of streams beyond
    /// the slots, and of threads other than this one, living or not.
    bool needs_synchronisation() const noexcept;

    /// Looks at the markers' events. Cheap; called by whoever waits.
    void poll() noexcept;
    /// Records a marker on each stream in `mask` whose newest operation has none yet. Not while a
    /// capture is open.
    void flush(std::uint64_t mask) noexcept;

private:
    struct Marker {
        CUevent event;
        std::uint64_t sequence;
    };
    struct Slot {
        std::atomic<std::uint64_t> key{0};
        std::atomic<std::uint64_t> begun{0};
        std::atomic<std::uint64_t> ended{0};
        std::atomic<std::uint64_t> newest{0};  // number of the newest operation submitted here
        std::atomic<std::uint64_t> passed{0};
        std::atomic<std::uint64_t> marked{0};
        std::atomic<std::uint32_t> since_marker{0};
        std::atomic<bool> retired{false};
        std::atomic<CUcontext> context{nullptr};
        CUstream stream = nullptr;
        bool of_a_thread = false;  // a per-thread stream: only its own thread can record on it
        std::mutex mutex;          // guards markers
        std::deque<Marker> markers;
    };

    void mark(Slot& slot) noexcept;
    void poll_slot(Slot& slot) noexcept;
    unsigned new_slot(std::uint64_t key, CUstream stream) noexcept;
    CUevent take_event(CUcontext context) noexcept;
    void give_events(CUcontext context, const std::deque<Marker>::const_iterator& first,
                     const std::deque<Marker>::const_iterator& end) noexcept;
    std::uint64_t context_number() noexcept;
    void retire_key(std::uint64_t key, bool can_mark) noexcept;
    void join_overflow(CUcontext context) noexcept;
    bool synchronises(unsigned slot) const noexcept;

    std::atomic<std::uint64_t> sequence_{0};
    std::atomic<std::uint64_t> used_{0};
    std::atomic<bool> overflow_mixed_{false};
    std::array<Slot, kSlots> slots_;
    std::mutex registry_mutex_;
    CUcontext home_;
    std::mutex contexts_mutex_;        // a leaf
    std::vector<CUcontext> contexts_;  // other than home, in the order of their first use
    std::mutex events_mutex_;          // a leaf
    std::unordered_map<CUcontext, std::vector<CUevent>> events_;  // to use again
};

}  // namespace transit
