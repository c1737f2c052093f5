// The simulated driver, found among the libraries already loaded.
#pragma once

#include "nccl_api.hpp"

namespace transit::sim::nccl {

// All return a CUresult.
int enqueue(cudaStream_t stream, void (*body)(void*), void* user);
int current_device(int* device);
bool capturing(cudaStream_t stream);
// A line in the driver's truth log: "function key=value … -> result".
void truth(const char* text);

}  // namespace transit::sim::nccl
