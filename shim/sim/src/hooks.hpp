// What tests, workloads and the simulated NCCL may ask of the simulated driver beyond CUDA.
#pragma once

#include "cuda_api.hpp"

namespace transit::sim {

struct HiddenRange {
    CUdeviceptr address = 0;
    std::uint64_t bytes = 0;
};

HiddenRange hidden_range(std::uint32_t slot);

}  // namespace transit::sim

extern "C" {
// A kernel of the application's own; 0 on success. Parameters come packed at natural alignment.
int transit_sim_register_kernel(const char* name,
                                void (*body)(void* user, const void* packed, unsigned grid_x,
                                             unsigned grid_y, unsigned grid_z, unsigned block_x,
                                             unsigned block_y, unsigned block_z),
                                void* user, const unsigned* parameter_bytes, unsigned count);
// From now on the driver does not tell this kernel's parameter layout (NOT_SUPPORTED).
int transit_sim_set_opaque(const char* name);
// Where sim_hidden_writer(slot, value) writes.
int transit_sim_hide(std::uint32_t slot, unsigned long long address, unsigned long long bytes);
// Runs a host function on a stream in its order, as a kernel (it becomes a node under capture).
int transit_sim_enqueue(void* stream, void (*body)(void*), void* user);
// From inside a kernel: the context is lost, every later call returns this error.
void transit_sim_raise(int result);
// A line of the simulated NCCL in the truth log: "function key=value … -> result".
void transit_sim_truth(const char* text);
unsigned long long transit_sim_hbm_bytes();
unsigned long long transit_sim_peak_hbm_bytes();
unsigned long long transit_sim_dram_bytes();
unsigned long long transit_sim_peak_dram_bytes();
}
