// Elementwise reduction in any of NCCL's data types.
#pragma once

#include "nccl_api.hpp"

namespace transit::sim::nccl {

std::size_t bytes_of(ncclDataType_t type);  // 0 for unknown types

// out[i] = reduction over inputs[0..ranks)[i], in the order of ranks: every rank gets the same
// bits. `out` may not be one of the inputs.
void reduce(void* out, const void* const* inputs, int ranks, std::size_t count, ncclDataType_t type,
            ncclRedOp_t op);

}  // namespace transit::sim::nccl
