// TRANSIT_SIM_FAIL="cuMemCreate:17:2,cuMemMap:3:1": the Nth call of a function returns that
// CUresult.
#pragma once

#include <string_view>

#include "cuda_api.hpp"

namespace transit::sim {

// The name without ABI suffixes (_v2, _ptsz, …): all variants of a function count together.
std::string_view base_name(std::string_view name);

// Counts this call; CUDA_SUCCESS unless it is one that must fail. Free when nothing is injected.
CUresult injected_failure(std::string_view function);

}  // namespace transit::sim
