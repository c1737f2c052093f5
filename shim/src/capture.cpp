#include "transit/capture.hpp"

#include <sched.h>

#include <algorithm>
#include <atomic>
#include <mutex>
#include <vector>

#include "transit/real.hpp"

namespace transit {
namespace {

std::atomic<int> g_open{0};
std::atomic<int> g_marking{0};

// Streams whose capture is open. Per-thread default streams all have the name that is theirs.
std::mutex& origins_mutex() noexcept {
    static auto* leaked = new std::mutex;
    return *leaked;
}
std::vector<CUstream>& origins() noexcept {
    static auto* leaked = new std::vector<CUstream>;
    return *leaked;
}

}  // namespace

// Either a marker sees the capture, or the capture sees the marker: both write before they look.
void capture_begins() noexcept {
    g_open.fetch_add(1, std::memory_order_seq_cst);
    while (g_marking.load(std::memory_order_seq_cst) != 0)
        sched_yield();
}

void capture_failed() noexcept { g_open.fetch_sub(1, std::memory_order_acq_rel); }

void capture_began_on(CUstream stream) noexcept {
    const std::lock_guard lock(origins_mutex());
    origins().push_back(stream);
}

bool capture_open_on(CUstream stream) noexcept {
    const std::lock_guard lock(origins_mutex());
    return std::find(origins().begin(), origins().end(), stream) != origins().end();
}

void capture_ended_on(CUstream stream) noexcept {
    const std::lock_guard lock(origins_mutex());
    const auto found = std::find(origins().begin(), origins().end(), stream);
    if (found == origins().end()) return;
    origins().erase(found);
    g_open.fetch_sub(1, std::memory_order_acq_rel);
}

Marking::Marking() noexcept {
    g_marking.fetch_add(1, std::memory_order_seq_cst);
    allowed_ = g_open.load(std::memory_order_seq_cst) == 0;
}

Marking::~Marking() { g_marking.fetch_sub(1, std::memory_order_release); }

bool captures_open() noexcept { return g_open.load(std::memory_order_acquire) > 0; }

CUstream named(CUstream stream, bool per_thread) noexcept {
    return stream == nullptr && per_thread ? CU_STREAM_PER_THREAD : stream;
}

bool capturing(CUstream stream, bool per_thread) noexcept {
    if (!captures_open()) return false;
    CUstreamCaptureStatus status = CU_STREAM_CAPTURE_STATUS_NONE;
    return real_cuStreamIsCapturing(named(stream, per_thread), &status) == CUDA_SUCCESS &&
           status != CU_STREAM_CAPTURE_STATUS_NONE;
}

OutsideCapture::OutsideCapture() noexcept {
    exchanged_ = real_cuThreadExchangeStreamCaptureMode(&previous_) == CUDA_SUCCESS;
}

OutsideCapture::~OutsideCapture() {
    if (exchanged_) real_cuThreadExchangeStreamCaptureMode(&previous_);
}

}  // namespace transit
