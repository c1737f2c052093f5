#pragma once
// CUDA graph captures that are open in this process. While one is, no VMM call, no sync and no
// event of ours may run in the application's capture mode, or the capture is lost.
#include <cuda.h>

namespace transit {

/// Before the driver is told; `capture_failed` if it refuses.
void capture_begins() noexcept;
void capture_failed() noexcept;
/// Of the stream that began it; others only join.
void capture_began_on(CUstream stream) noexcept;
/// True if one that began there has not ended.
bool capture_open_on(CUstream stream) noexcept;
/// Nothing if none began there.
void capture_ended_on(CUstream stream) noexcept;
/// The handle that the driver knows a stream by: without one, a call of the per-thread kind means
/// the thread's own.
CUstream named(CUstream stream, bool per_thread) noexcept;
/// One relaxed load.
bool captures_open() noexcept;
/// True if work submitted to `stream` now goes into a graph instead of the GPU. A driver call only
/// while a capture is open.
bool capturing(CUstream stream, bool per_thread) noexcept;

/// Around the record of an event of ours: a capture that begins meanwhile waits for its end. Not
/// allowed while one is open, since it may be of the legacy stream, or in global mode.
class Marking {
public:
    Marking() noexcept;
    ~Marking();
    Marking(const Marking&) = delete;
    Marking& operator=(const Marking&) = delete;
    bool allowed() const noexcept { return allowed_; }

private:
    bool allowed_ = false;
};

/// This thread's calls do not take part in any capture while it lives, nor in one that another
/// thread begins meanwhile. Two driver calls: not for launches.
class OutsideCapture {
public:
    OutsideCapture() noexcept;
    ~OutsideCapture();
    OutsideCapture(const OutsideCapture&) = delete;
    OutsideCapture& operator=(const OutsideCapture&) = delete;

private:
    bool exchanged_ = false;
    CUstreamCaptureMode previous_ = CU_STREAM_CAPTURE_MODE_RELAXED;
};

}  // namespace transit
