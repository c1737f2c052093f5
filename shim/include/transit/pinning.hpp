#pragma once
// Pins for what outlives the call that names it: nodes of graphs, and words that the GPU's front
// end polls.
#include "transit/hooks.hpp"

namespace transit {

/// What `name_extents` names in a submission stays where it is from now on.
template <typename Name>
void pin(std::uint32_t reason, const char* words, Name&& name_extents) noexcept {
    Device* device = Device::active();
    if (device == nullptr) return;
    Submission work(*device, nullptr, false);
    name_extents(work);
    // Where the holds cannot be had (no frame is left for some new block) the pins alone must do:
    // no move begins from now on, and one under way keeps the addresses.
    static_cast<void>(work.open_for_graph());
    if (work.names_everything()) device->freeze();
    work.pin(reason, words);
}

/// A stream waits for or writes the word: the front end reaches it by address, whenever it comes to
/// it.
void pin_polled(CUdeviceptr address) noexcept;
/// The words of each operation of a batch.
void pin_polled(const CUstreamBatchMemOpParams* operations, unsigned count) noexcept;

}  // namespace transit
