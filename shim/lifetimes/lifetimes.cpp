// The allocator-trace observer: PyTorch tells it of every block that is handed out or comes back.
//
// Built once against the installed torch by `transit run`, loaded by the shim. The interface is
// c10/cuda/CUDACachingAllocator.h, which PyTorch's own NCCL backend uses; it is public but not
// frozen, hence the build. Callbacks run under the allocator's mutex: they record and return (0.13
// microseconds measured).
#include <c10/cuda/CUDACachingAllocator.h>

#include <cstdint>

namespace {

using c10::cuda::CUDACachingAllocator::TraceEntry;

// Agreed with the shim (shim/src/lifetimes.cpp).
enum Event : int { kSegmentBorn = 0, kBlockBorn = 1, kBlockDied = 2, kSegmentDied = 3 };
using Observer = void (*)(int event, std::uint64_t address, std::uint64_t bytes);

Observer observer = nullptr;

void forward(const TraceEntry& entry) {
    const auto address = static_cast<std::uint64_t>(entry.addr_);
    const auto bytes = static_cast<std::uint64_t>(entry.size_);
    switch (entry.action_) {
    case TraceEntry::SEGMENT_ALLOC:
        return observer(kSegmentBorn, address, bytes);
    case TraceEntry::ALLOC:
        return observer(kBlockBorn, address, bytes);
    case TraceEntry::FREE_COMPLETED:
        return observer(kBlockDied, address, bytes);
    case TraceEntry::SEGMENT_FREE:
        return observer(kSegmentDied, address, bytes);
    default:
        return;
    }
}

}  // namespace

/// Returns 1 once attached; 0 if the allocator has no trace (another backend) or refuses.
extern "C" __attribute__((visibility("default"))) int transit_lifetimes_attach(Observer to) {
    namespace allocator = c10::cuda::CUDACachingAllocator;
    try {
        if (allocator::get()->name() != "native") return 0;
        observer = to;
        allocator::attachAllocatorTraceTracker(forward);
        return 1;
    } catch (...) {
        return 0;
    }
}
