#include "transit/streams.hpp"

#include <unistd.h>

#include <algorithm>
#include <bit>
#include <iterator>

#include "transit/capture.hpp"
#include "transit/context.hpp"
#include "transit/per_thread.hpp"
#include "transit/real.hpp"

namespace transit {
namespace {

constexpr std::size_t kMaxMarkers = 256;

constexpr std::uint64_t kLegacyKey = 1;
// No stream has it: look-ups must not stop at a retired slot as they do at an empty one.
constexpr std::uint64_t kNoKey = ~std::uint64_t{0};
constexpr std::uint64_t kThreadKeys = std::uint64_t{1} << 63;
constexpr unsigned kContextShift = 48;  // handles are addresses, and threads are numbers: both fit

// A per-thread default stream has no handle of its own: the thread's identity stands for it.
// Numbers are never used again: a new thread must not inherit what an ended one left in the queue.
class ThreadStream {
public:
    std::uint64_t number() noexcept {
        static std::atomic<std::uint64_t> threads{1};
        if (number_ == 0) number_ = threads.fetch_add(1, std::memory_order_relaxed);
        return number_;
    }
    void used_by(Streams& streams) noexcept {
        streams_ = &streams;
        process_ = getpid();
    }
    ~ThreadStream() {  // in a forked child the locks may be held by nobody
        if (streams_ != nullptr && process_ == getpid()) streams_->retire_thread(number_);
    }

private:
    std::uint64_t number_ = 0;
    Streams* streams_ = nullptr;
    pid_t process_ = 0;
};

ThreadStream& thread_stream() noexcept {
    static thread_local PerThread<ThreadStream> mine;
    return *mine;
}

// Which thread's default stream a key stands for; 0 if none's.
std::uint64_t thread_of(std::uint64_t key) noexcept {
    constexpr std::uint64_t kNumbers = (std::uint64_t{1} << kContextShift) - 1;
    return key != kNoKey && (key & kThreadKeys) != 0 ? key & kNumbers : 0;
}

void raise(std::atomic<std::uint64_t>& value, std::uint64_t to) noexcept {
    std::uint64_t seen = value.load(std::memory_order_relaxed);
    while (to > seen && !value.compare_exchange_weak(seen, to, std::memory_order_acq_rel)) {
    }
}

}  // namespace

// Zero at home, nearly always.
std::uint64_t Streams::context_number() noexcept {
    const CUcontext current = current_context();
    if (current == home_) return 0;
    const std::lock_guard lock(contexts_mutex_);
    const auto found = std::find(contexts_.begin(), contexts_.end(), current);
    const auto number = static_cast<std::uint64_t>(found - contexts_.begin()) + 1;
    if (found == contexts_.end()) contexts_.push_back(current);
    return number;
}

std::uint64_t Streams::key_of(CUstream stream, bool per_thread) noexcept {
    if (stream == CU_STREAM_PER_THREAD || (stream == nullptr && per_thread))
        return kThreadKeys | context_number() << kContextShift | thread_stream().number();
    if (stream == nullptr || stream == CU_STREAM_LEGACY)
        return kLegacyKey | context_number() << kContextShift;
    return reinterpret_cast<std::uint64_t>(stream);
}

unsigned Streams::slot_of(CUstream stream, bool per_thread) noexcept {
    const std::uint64_t key = key_of(stream, per_thread);
    static thread_local unsigned last = 0;
    if (slots_[last].key.load(std::memory_order_acquire) == key) return last;
    for (unsigned i = 0; i < kSlots; ++i) {
        const std::uint64_t here = slots_[i].key.load(std::memory_order_acquire);
        if (here == key) return last = i;
        if (here == 0) break;
    }
    return last = new_slot(key, stream);
}

unsigned Streams::new_slot(std::uint64_t key, CUstream stream) noexcept {
    const std::lock_guard lock(registry_mutex_);
    poll();
    for (unsigned i = 0; i < kOverflowSlot; ++i)
        if (slots_[i].key.load(std::memory_order_relaxed) == key) return i;
    unsigned chosen = kOverflowSlot;
    for (unsigned i = 0; i < kOverflowSlot; ++i) {
        Slot& slot = slots_[i];
        const std::uint64_t here = slot.key.load(std::memory_order_relaxed);
        const bool empty = here == 0;
        // A destroyed stream's slot serves again once its last marker has passed.
        const bool reusable =
            slot.retired.load(std::memory_order_relaxed) &&
            passed(std::uint64_t{1} << i, slot.newest.load(std::memory_order_relaxed));
        if (!empty && !reusable) continue;
        const std::lock_guard slot_lock(slot.mutex);
        {
            const OutsideCapture outside;
            poll_slot(slot);  // markers that a synchronisation overtook belong to the old context
        }
        if (!slot.markers.empty()) continue;
        slot.context.store(context_of(stream), std::memory_order_relaxed);
        slot.of_a_thread = thread_of(key) != 0;
        slot.stream = slot.of_a_thread    ? CU_STREAM_PER_THREAD
                      : stream == nullptr ? CU_STREAM_LEGACY
                                          : stream;
        if (slot.of_a_thread) thread_stream().used_by(*this);
        slot.retired.store(false, std::memory_order_relaxed);
        chosen = i;
        slot.key.store(key, std::memory_order_release);
        break;
    }
    if (chosen == kOverflowSlot) join_overflow(context_of(stream));
    used_.fetch_or(std::uint64_t{1} << chosen, std::memory_order_acq_rel);
    return chosen;
}

// Needs the registry's lock. The last slot passes when its context is synchronised; once it holds
// streams of another one, it never does.
void Streams::join_overflow(CUcontext context) noexcept {
    Slot& shared = slots_[kOverflowSlot];
    const bool fresh = (used_mask() >> kOverflowSlot & 1) == 0;
    if (fresh || shared.context.load(std::memory_order_relaxed) == context)
        shared.context.store(context, std::memory_order_relaxed);
    else
        overflow_mixed_.store(true, std::memory_order_release);
}

std::uint64_t Streams::begin(unsigned slot_index) noexcept {
    Slot& slot = slots_[slot_index];
    slot.begun.fetch_add(1, std::memory_order_seq_cst);
    const std::uint64_t sequence = sequence_.fetch_add(1, std::memory_order_seq_cst) + 1;
    raise(slot.newest, sequence);
    return sequence;
}

void Streams::end(unsigned slot_index, bool may_mark) noexcept {
    Slot& slot = slots_[slot_index];
    slot.ended.fetch_add(1, std::memory_order_seq_cst);
    const std::uint32_t since = slot.since_marker.fetch_add(1, std::memory_order_relaxed) + 1;
    if (since < kMarkerEvery || !may_mark || slot_index == kOverflowSlot) return;
    std::unique_lock lock(slot.mutex, std::try_to_lock);
    if (lock.owns_lock() && !slot.retired.load(std::memory_order_relaxed)) mark(slot);
}

void Streams::abandon(unsigned slot) noexcept {
    slots_[slot].ended.fetch_add(1, std::memory_order_seq_cst);
}

void Streams::mark(Slot& slot) noexcept {
    const std::uint64_t covered = sequence_.load(std::memory_order_seq_cst);
    const std::uint64_t ended = slot.ended.load(std::memory_order_seq_cst);
    if (ended != slot.begun.load(std::memory_order_seq_cst))
        return;  // somebody is between number and submit
    const Marking marking;
    if (!marking.allowed()) return;
    if (slot.markers.size() >= kMaxMarkers) poll_slot(slot);
    if (slot.markers.size() >= kMaxMarkers) return;
    const CUcontext context = slot.context.load(std::memory_order_relaxed);
    const InContext inside(context);
    const CUevent event = take_event(context);
    if (event == nullptr) return;
    if (real_cuEventRecord(event, slot.stream) != CUDA_SUCCESS) {
        real_cuEventDestroy_v2(event);
        return;
    }
    slot.since_marker.store(0, std::memory_order_relaxed);
    slot.marked.store(covered, std::memory_order_release);
    slot.markers.push_back({event, covered});
}

bool Streams::passed(std::uint64_t mask, std::uint64_t sequence) const noexcept {
    for (mask &= used_mask(); mask != 0; mask &= mask - 1) {
        const Slot& slot = slots_[static_cast<unsigned>(std::countr_zero(mask))];
        const std::uint64_t reached = slot.passed.load(std::memory_order_acquire);
        if (reached >= sequence) continue;
        const std::uint64_t ended = slot.ended.load(std::memory_order_seq_cst);
        if (ended != slot.begun.load(std::memory_order_seq_cst)) return false;
        if (slot.newest.load(std::memory_order_acquire) > reached) return false;
    }
    return true;
}

void Streams::poll_slot(Slot& slot) noexcept {
    bool gone = false;  // the context was destroyed, and all its work with it
    const auto passed = [&](std::size_t i) {
        const CUresult result = real_cuEventQuery(slot.markers[i].event);
        gone = gone || result == CUDA_ERROR_CONTEXT_IS_DESTROYED;
        return result == CUDA_SUCCESS || gone;
    };
    if (slot.markers.empty() || !passed(0)) return;
    // They pass in order, so the first that has not is found by bisection: a query costs 1.4 µs,
    // and there may be 256.
    std::size_t first_open = 1;
    for (std::size_t end = slot.markers.size(); first_open < end;) {
        const std::size_t middle = first_open + (end - first_open) / 2;
        if (passed(middle))
            first_open = middle + 1;
        else
            end = middle;
    }
    raise(slot.passed, slot.markers[first_open - 1].sequence);
    const auto spent = slot.markers.begin() + static_cast<std::ptrdiff_t>(first_open);
    if (!gone)
        give_events(slot.context.load(std::memory_order_relaxed), slot.markers.begin(), spent);
    slot.markers.erase(slot.markers.begin(), spent);
}

void Streams::poll() noexcept {
    const OutsideCapture outside;
    for (std::uint64_t mask = used_mask(); mask != 0; mask &= mask - 1) {
        Slot& slot = slots_[static_cast<unsigned>(std::countr_zero(mask))];
        const std::lock_guard lock(slot.mutex);
        poll_slot(slot);
    }
}

void Streams::flush(std::uint64_t mask) noexcept {
    if (captures_open()) return;
    for (mask &= used_mask(); mask != 0; mask &= mask - 1) {
        const unsigned index = static_cast<unsigned>(std::countr_zero(mask));
        Slot& slot = slots_[index];
        const std::lock_guard lock(slot.mutex);
        if (index == kOverflowSlot || slot.retired.load(std::memory_order_relaxed)) continue;
        if (slot.of_a_thread &&
            thread_of(slot.key.load(std::memory_order_relaxed)) != thread_stream().number())
            continue;
        if (slot.newest.load(std::memory_order_acquire) >
            slot.marked.load(std::memory_order_relaxed))
            mark(slot);
    }
}

bool Streams::synchronises(unsigned index) const noexcept {
    return slots_[index].context.load(std::memory_order_relaxed) == home_ &&
           (index != kOverflowSlot || !overflow_mixed_.load(std::memory_order_acquire));
}

Streams::Snapshot Streams::snapshot() const noexcept {
    Snapshot now{newest(), 0};
    for (unsigned i = 0; i < kSlots; ++i) {
        if (!synchronises(i)) continue;
        const std::uint64_t ended = slots_[i].ended.load(std::memory_order_seq_cst);
        if (ended == slots_[i].begun.load(std::memory_order_seq_cst))
            now.quiet_slots |= std::uint64_t{1} << i;
    }
    return now;
}

void Streams::synchronized(const Snapshot& before) noexcept {
    for (std::uint64_t mask = before.quiet_slots; mask != 0; mask &= mask - 1)
        raise(slots_[static_cast<unsigned>(std::countr_zero(mask))].passed, before.sequence);
}

void Streams::retire(CUstream stream) noexcept {
    retire_key(key_of(stream, false), !capturing(stream, false));
}

bool Streams::needs_synchronisation() const noexcept {
    for (std::uint64_t mask = used_mask(); mask != 0; mask &= mask - 1) {
        const auto index = static_cast<unsigned>(std::countr_zero(mask));
        const Slot& slot = slots_[index];
        const std::uint64_t thread = thread_of(slot.key.load(std::memory_order_acquire));
        const bool of_another = thread != 0 && thread != thread_stream().number();
        if (index != kOverflowSlot && !of_another && !slot.retired.load(std::memory_order_acquire))
            continue;
        if (!synchronises(index)) continue;
        const std::uint64_t newest = slot.newest.load(std::memory_order_acquire);
        if (newest > slot.passed.load(std::memory_order_acquire) &&
            newest > slot.marked.load(std::memory_order_acquire))
            return true;
    }
    return false;
}

void Streams::retire_thread(std::uint64_t number) noexcept {
    for (const Slot& slot : slots_)
        if (const std::uint64_t key = slot.key.load(std::memory_order_acquire);
            thread_of(key) == number)
            retire_key(key, false);
}

void Streams::retire_key(std::uint64_t key, bool can_mark) noexcept {
    const std::lock_guard registry(registry_mutex_);
    for (Slot& slot : slots_) {
        if (slot.key.load(std::memory_order_relaxed) != key) continue;
        const std::lock_guard lock(slot.mutex);
        if (can_mark && slot.newest.load(std::memory_order_acquire) >
                            slot.marked.load(std::memory_order_relaxed))
            mark(slot);
        slot.key.store(kNoKey, std::memory_order_release);
        slot.retired.store(true, std::memory_order_release);
        return;
    }
}

// In `context`, which is current.
CUevent Streams::take_event(CUcontext context) noexcept {
    const std::lock_guard lock(events_mutex_);
    std::vector<CUevent>& unused = events_[context];
    if (!unused.empty()) {
        const CUevent event = unused.back();
        unused.pop_back();
        return event;
    }
    CUevent event = nullptr;
    return real_cuEventCreate(&event, CU_EVENT_DISABLE_TIMING) == CUDA_SUCCESS ? event : nullptr;
}

void Streams::give_events(CUcontext context, const std::deque<Marker>::const_iterator& first,
                          const std::deque<Marker>::const_iterator& end) noexcept {
    const std::lock_guard lock(events_mutex_);
    std::vector<CUevent>& unused = events_[context];
    std::transform(first, end, std::back_inserter(unused),
                   [](const Marker& marker) { return marker.event; });
}

}  // namespace transit
