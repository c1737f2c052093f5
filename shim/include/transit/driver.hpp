#pragma once
// The door: where the real driver is, what each of its functions is called, and which of them we
// stand in for.
#include <cstddef>

namespace transit {

/// Opens the real driver once, by absolute path. False where the machine has none.
bool open_driver() noexcept;

/// The wrapper for an address that the real driver handed out, or that address itself.
/// Substituting by the *returned* pointer needs no table of names, versions and flags, so an ABI we
/// have never heard of passes through instead of being mis-mapped.
void* substitute(void* entry) noexcept;

}  // namespace transit
