// The simulated driver, found among the libraries already loaded.
#pragma once

#include "nccl_api.hpp"

namespace transit::sim::nccl {

// All return a CUresult.
int enqueue(cudaStream_t stream, void (*body)(void*), void* user);
int current_device(int* device);
// The device is this thread's current one while it lives.
class OnDevice {
public:
    explicit OnDevice(int device);
    ~OnDevice();
    OnDevice(const OnDevice&) = delete;
    OnDevice& operator=(const OnDevice&) = delete;

private:
    bool pushed_ = false;
};
bool capturing(cudaStream_t stream);
// A line in the driver's truth log: "function key=value … -> result".
void truth(const char* text);

}  // namespace transit::sim::nccl
