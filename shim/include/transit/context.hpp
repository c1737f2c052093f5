#pragma once
// Contexts: the managed device's own, and those of other devices that the process uses besides.
#include <cuda.h>

namespace transit {

/// This thread's current context; nullptr if it has none. About 10 ns.
CUcontext current_context() noexcept;

/// The context that a stream's work runs in.
CUcontext context_of(CUstream stream) noexcept;

/// `wanted` is this thread's current context while it lives. Streams, events and synchronisation
/// belong to one context, and the legacy stream's name means the current one's.
class InContext {
public:
    explicit InContext(CUcontext wanted) noexcept;
    ~InContext();
    InContext(const InContext&) = delete;
    InContext& operator=(const InContext&) = delete;

private:
    bool pushed_ = false;
};

}  // namespace transit
