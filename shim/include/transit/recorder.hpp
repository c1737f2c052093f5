#pragma once
// `transit run --record-step N`: one step's touches, allocations and GPU times, as text
// (docs/formats.md), in the form of the recorded steps that policies are developed on. GPU times
// come from events, so no profiler is involved.
#include <cuda.h>

#include <atomic>
#include <cstdint>

namespace transit {

class Device;

extern std::atomic<bool> g_recording;
/// True while the step is being recorded; one relaxed load.
inline bool recording() noexcept { return g_recording.load(std::memory_order_relaxed); }

/// Step boundaries, as the device counts them: starts at step N, ends and writes the file at N + 1.
/// The caller holds no lock.
void record_boundary(std::uint32_t steps_done, Device& device) noexcept;

void record_allocation(CUdeviceptr address, std::uint64_t bytes) noexcept;
void record_free(CUdeviceptr address) noexcept;
/// An address found in the operation that this thread is about to submit.
void record_operand(CUdeviceptr block, std::uint64_t offset) noexcept;
/// The operation is with the driver. `bytes` is that of a copy or fill, 0 for a launch.
void record_operation(const char* name, std::uint64_t bytes, CUstream stream,
                      unsigned slot) noexcept;

}  // namespace transit
