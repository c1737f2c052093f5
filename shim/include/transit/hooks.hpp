#pragma once
// What the wrappers have in common: look, submit, note.
#include <cuda.h>

#include <utility>

#include "transit/device.hpp"
#include "transit/submission.hpp"

namespace transit {

/// To be told how the call ended that the notes below announced: a table that it would have
/// overwritten is remembered again if it failed. Answers `result`.
CUresult settled(CUresult result) noexcept;

struct Span {
    CUdeviceptr address;
    std::size_t bytes;
};

/// Opens copies and fills that have said all they name, makes the call, and closes them.
template <typename Call>
CUresult carry_out(Submission& work, Call&& call) noexcept {
    if (const CUresult refused = work.open(Submission::Operands::kInPlace)) return settled(refused);
    const CUresult result = settled(std::forward<Call>(call)());
    const CUresult verdict = work.close();
    return result == CUDA_SUCCESS ? verdict : result;
}

/// Forwards a copy or fill that touches `spans`, in stream order. Without a managed device it is
/// the bare call.
template <typename Call>
CUresult submit(CUstream stream, bool per_thread, std::initializer_list<Span> spans,
                Call&& call) noexcept {
    Device* device = Device::active();
    if (device == nullptr) return std::forward<Call>(call)();
    Submission work(*device, stream, per_thread);
    for (const Span& span : spans)
        work.range(span.address, span.bytes);
    return carry_out(work, std::forward<Call>(call));
}

struct KernelInfo;

/// Names every block that a launch's parameters, or its `extra` buffer, hold an address of;
/// everything, if the layout is unknown or the kernel is known to reach further.
void scan_parameters(Submission& work, const KernelInfo& kernel, void** params,
                     void** extra) noexcept;
/// For parameters that nobody can read: names everything, and counts the kernel as unknown.
void unseen_parameters(Submission& work, const KernelInfo& kernel) noexcept;

/// Remembers the addresses in host data that is about to be copied to `to` (16 MiB at most), or
/// that `to` held some.
void note_host_data(CUdeviceptr to, const void* from, std::size_t bytes) noexcept;
/// The same for a copy within the device: a copied table is a table, and what is copied from an
/// opaque block may hold addresses too.
void note_device_copy(CUdeviceptr to, CUdeviceptr from, std::size_t bytes) noexcept;
/// The same where only the driver knows which side is the host's.
void note_unified(CUdeviceptr to, CUdeviceptr from, std::size_t bytes) noexcept;
/// `to` is overwritten with what is no address.
void note_overwrite(CUdeviceptr to, std::size_t bytes) noexcept;

/// True if `address` lies in a library that exports its memory to peers (NCCL, NVSHMEM, UCX): its
/// allocations stay its own.
bool called_by_communication_library(const void* return_address) noexcept;
bool called_by(const void* return_address,
               std::initializer_list<const char*> library_prefixes) noexcept;

}  // namespace transit
