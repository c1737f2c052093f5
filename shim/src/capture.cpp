#include "transit/capture.hpp"

#include <atomic>

#include "transit/real.hpp"

namespace transit {
namespace {

std::atomic<int> g_open{0};

}  // namespace

void capture_began() noexcept { g_open.fetch_add(1, std::memory_order_acq_rel); }
void capture_ended() noexcept { g_open.fetch_sub(1, std::memory_order_acq_rel); }
bool captures_open() noexcept { return g_open.load(std::memory_order_acquire) > 0; }

bool capturing(CUstream stream) noexcept {
    if (!captures_open()) return false;
    CUstreamCaptureStatus status = CU_STREAM_CAPTURE_STATUS_NONE;
    return real_cuStreamIsCapturing(stream, &status) == CUDA_SUCCESS &&
           status != CU_STREAM_CAPTURE_STATUS_NONE;
}

OutsideCapture::OutsideCapture() noexcept {
    exchanged_ = real_cuThreadExchangeStreamCaptureMode(&previous_) == CUDA_SUCCESS;
}

OutsideCapture::~OutsideCapture() {
    if (exchanged_) real_cuThreadExchangeStreamCaptureMode(&previous_);
}

}  // namespace transit
