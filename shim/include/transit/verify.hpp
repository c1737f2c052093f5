#pragma once
// A verification run (`transit run --verify`): shows that the scan of touches is complete for this
// job.
//
// Launches are serialised, and every extent is unmapped except while an open launch names it: an
// access that no scan shows faults, and the kernel that made it is named. Moved frames are compared
// byte for byte before the remap.

namespace transit {

/// One load of a constant.
bool verifying() noexcept;

}  // namespace transit
