#pragma once
// Exact lifetimes of the blocks inside PyTorch's segments, from its own allocator-trace observer: a
// small extension built against the installed torch (lifetimes/lifetimes.cpp), loaded here when its
// allocator first asks for memory.

namespace transit {

/// Tries once a process; cheap afterwards. Called from the first allocation, when PyTorch is loaded
/// for certain.
void attach_lifetimes() noexcept;
bool lifetimes_attached() noexcept;

}  // namespace transit
