// One move: copy, claim, remap, release. Every step can fail and leave the extent where it was.
#include <cstdlib>

#include "transit/capture.hpp"
#include "transit/context.hpp"
#include "transit/device.hpp"
#include "transit/log.hpp"
#include "transit/mover.hpp"
#include "transit/real.hpp"
#include "transit/stats.hpp"
#include "transit/verify.hpp"

namespace transit {
namespace {

constexpr std::size_t kFlights =
    8;  // copies queued ahead of the remaps: enough to keep the copy engine busy

constexpr std::uint64_t place_delta(Place from, Place to) {
    return static_cast<std::uint64_t>(to) - static_cast<std::uint64_t>(from);
}

}  // namespace

bool Mover::prepare() noexcept {
    if (ended_) return false;
    if (!events_.empty()) return true;
    if (out_ == nullptr && real_cuStreamCreate(&out_, CU_STREAM_NON_BLOCKING) != CUDA_SUCCESS)
        return false;
    if (in_ == nullptr && real_cuStreamCreate(&in_, CU_STREAM_NON_BLOCKING) != CUDA_SUCCESS)
        return false;
    std::vector<CUevent> made;
    for (CUevent event = nullptr; made.size() < kFlights; made.push_back(event)) {
        if (real_cuEventCreate(&event, CU_EVENT_DISABLE_TIMING) == CUDA_SUCCESS) continue;
        for (CUevent each : made)
            real_cuEventDestroy_v2(each);
        return false;
    }
    events_ = std::move(made);
    return true;
}

bool Mover::map(std::uint32_t e, Place place, std::uint32_t frame) noexcept {
    const CUdeviceptr address = device_.address_of(e);
    const std::uint64_t bytes = device_.extent_bytes();
    CUresult result = CUDA_SUCCESS;
    if (verifying()) {
        device_.extents[e].hidden = true;
    } else {
        result = real_cuMemMap(address, bytes, 0, pool(place).handle(frame), 0);
    }
    if (result == CUDA_SUCCESS && !verifying()) {
        result = device_.access.apply(address, bytes);
        if (result != CUDA_SUCCESS) real_cuMemUnmap(address, bytes);
    }
    if (result != CUDA_SUCCESS) {
        pool(place).give(frame);
        log(LogLevel::kWarn, "mapping an extent failed with driver error %d",
            static_cast<int>(result));
        return false;
    }
    device_.extents[e].frame = frame;
    device_.extents[e].word.fetch_add(place_delta(Place::kNone, place), std::memory_order_seq_cst);
    return true;
}

// Takes the frame of a dead extent. Its content is nobody's, so nothing is copied.
bool Mover::drop(std::uint32_t e) noexcept {
    Extent& extent = device_.extents[e];
    std::uint64_t word = extent.word.load(std::memory_order_seq_cst);
    const Place place = place_of(word);
    if (place == Place::kNone || claimed(word) || held(word) || !passed(extent, word)) return false;
    claims_.fetch_add(1, std::memory_order_seq_cst);
    bool dropped =
        extent.word.compare_exchange_strong(word, word | kClaimed, std::memory_order_seq_cst);
    if (dropped) {
        const std::lock_guard lock(device_.ledger_mutex);
        // Whoever revives it from here on finds no place and queues it for a frame, behind the
        // mover's lock.
        dropped = place == Place::kDram || !device_.ledger.live(e);
        extent.word.fetch_add(dropped ? place_delta(place, Place::kNone)
                                      : std::uint64_t{0} - kClaimed,
                              std::memory_order_seq_cst);
    }
    // An extent that the driver keeps mapped keeps its frame.
    if (dropped && !extent.hidden &&
        real_cuMemUnmap(device_.address_of(e), device_.extent_bytes()) != CUDA_SUCCESS) {
        extent.word.fetch_add(place_delta(Place::kNone, place) - kClaimed,
                              std::memory_order_seq_cst);
        dropped = false;
    }
    if (dropped) {
        extent.hidden = false;
        extent.word.fetch_sub(kClaimed, std::memory_order_seq_cst);
        pool(place).give(extent.frame);
        counter(Counter::kDrops).fetch_add(1, std::memory_order_relaxed);
        counter(Counter::kDroppedBytes)
            .fetch_add(device_.extent_bytes(), std::memory_order_relaxed);
    }
    claims_.fetch_sub(1, std::memory_order_seq_cst);
    return dropped;
}

bool Mover::start(std::uint32_t e, Place to, Flight& flight) noexcept {
    Extent& extent = device_.extents[e];
    flight.everything = device_.everything.word.load(std::memory_order_seq_cst);
    flight.word = extent.word.load(std::memory_order_seq_cst);
    const Place from = place_of(flight.word);
    if (from == to || from == Place::kNone || claimed(flight.word) || !idle(extent, flight.word))
        return false;
    const auto frame = pool(to).take();
    if (!frame) return false;
    flight.extent = e;
    flight.frame = *frame;
    const CUstream stream = to == Place::kDram ? out_ : in_;
    if (real_cuMemcpyAsync(pool(to).alias(*frame), pool(from).alias(extent.frame),
                           device_.extent_bytes(), stream) == CUDA_SUCCESS &&
        real_cuEventRecord(flight.copied, stream) == CUDA_SUCCESS)
        return true;
    real_cuStreamSynchronize(stream);  // a copy that was queued still writes to the frame
    pool(to).give(*frame);
    return false;
}

bool Mover::remap(std::uint32_t e, CUmemGenericAllocationHandle to,
                  CUmemGenericAllocationHandle back) noexcept {
    const CUdeviceptr address = device_.address_of(e);
    const std::uint64_t bytes = device_.extent_bytes();
    if (device_.extents[e].hidden) return true;  // it gets its new frame when it is shown again
    if (real_cuMemUnmap(address, bytes) != CUDA_SUCCESS) return false;
    if (real_cuMemMap(address, bytes, 0, to, 0) == CUDA_SUCCESS) {
        if (device_.access.apply(address, bytes) == CUDA_SUCCESS) return true;
        real_cuMemUnmap(address, bytes);
    }
    // The old frame still holds the same bytes: put it back.
    if (real_cuMemMap(address, bytes, 0, back, 0) == CUDA_SUCCESS &&
        device_.access.apply(address, bytes) == CUDA_SUCCESS)
        return false;
    log(LogLevel::kWarn,
        "the driver refuses to map memory back after a failed move; ending the process, "
        "since going on would fault or compute on missing data");
    std::abort();
}

// Between the copy's start and the claim a transient block may have been born in the extent, and
// written unseen. One that is born after this look finds the claim and makes every launch wait
// (Device::born).
bool Mover::still_may_move(std::uint32_t extent) noexcept {
    const std::lock_guard lock(device_.ledger_mutex);
    return may_move(extent);
}

bool Mover::finish(const Flight& flight, Place to) noexcept {
    Extent& extent = device_.extents[flight.extent];
    const Place from = place_of(flight.word);
    bool moved = real_cuEventSynchronize(flight.copied) == CUDA_SUCCESS;
    if (!moved) real_cuStreamSynchronize(to == Place::kDram ? out_ : in_);
    claims_.fetch_add(1, std::memory_order_seq_cst);
    std::uint64_t expected = flight.word;
    // The same word means that no operation was announced, and nothing held, since the copy began.
    moved = moved && extent.word.compare_exchange_strong(expected, flight.word | kClaimed,
                                                         std::memory_order_seq_cst);
    if (moved) {
        moved =
            device_.everything.word.load(std::memory_order_seq_cst) == flight.everything &&
            still_may_move(flight.extent) && (!verifying() || same_bytes(flight, from, to)) &&
            remap(flight.extent, pool(to).handle(flight.frame), pool(from).handle(extent.frame));
        const std::uint32_t left = moved ? extent.frame : flight.frame;
        if (moved) extent.frame = flight.frame;
        extent.word.fetch_add((moved ? place_delta(from, to) : 0) - kClaimed,
                              std::memory_order_seq_cst);
        pool(moved ? from : to).give(left);
    } else {
        pool(to).give(flight.frame);
    }
    claims_.fetch_sub(1, std::memory_order_seq_cst);
    const bool out = to == Place::kDram;
    if (moved) {
        counter(out ? Counter::kOffloads : Counter::kPrefetches)
            .fetch_add(1, std::memory_order_relaxed);
        counter(out ? Counter::kOffloadBytes : Counter::kPrefetchBytes)
            .fetch_add(device_.extent_bytes());
    } else {
        counter(Counter::kAbortedMoves).fetch_add(1, std::memory_order_relaxed);
    }
    return moved;
}

std::uint32_t Mover::move(const std::vector<std::uint32_t>& extents, Place to) noexcept {
    if (!prepare()) return 0;
    std::uint32_t moved = 0;
    Flight flights[kFlights];
    for (std::size_t next = 0; next < extents.size();) {
        std::size_t flying = 0;
        for (; next < extents.size() && flying < kFlights; ++next) {
            flights[flying].copied = events_[flying];
            if (start(extents[next], to, flights[flying])) ++flying;
        }
        for (std::size_t i = 0; i < flying; ++i)
            moved += finish(flights[i], to) ? 1 : 0;
    }
    return moved;
}

void Mover::change_access(int peer, bool granted) noexcept {
    const InContext home(device_.context());
    const OutsideCapture outside;
    const std::lock_guard lock(mutex_);
    if (!granted) {
        device_.access.remove(peer);  // mappings made so far keep it, which harms nobody
        return;
    }
    device_.access.add(peer);
    const std::lock_guard ledger(device_.ledger_mutex);
    for (std::uint32_t e : device_.used) {
        const Extent& extent = device_.extents[e];
        if (place_of(extent.word.load(std::memory_order_relaxed)) == Place::kNone || extent.hidden)
            continue;
        if (device_.access.apply(device_.address_of(e), device_.extent_bytes()) != CUDA_SUCCESS)
            log(LogLevel::kWarn, "device %d cannot be given access to extent %u", peer, e);
    }
}

}  // namespace transit
