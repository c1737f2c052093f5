#pragma once
// The few driver calls that the sources under test make, without a driver: kernels with names and
// parameters that a test sets, and events that pass when a test says so.
#include <cuda.h>

#include <atomic>
#include <cstddef>
#include <cstdint>
#include <string>
#include <utility>
#include <vector>

namespace fake {

struct Kernel {
    std::string name;
    std::vector<std::pair<std::size_t, std::size_t>> parameters;  // offset, bytes
    bool as_kernel = false;  // a CUkernel: the CUfunction getters refuse it
    CUresult end = CUDA_ERROR_INVALID_VALUE;

    CUfunction handle() { return reinterpret_cast<CUfunction>(this); }
};

/// A queue that finishes what it is told to. Its address is its CUstream.
struct Queue {
    std::atomic<std::uint64_t> submitted{0};
    std::atomic<std::uint64_t> finished{0};

    CUstream handle() { return reinterpret_cast<CUstream>(this); }
};

}  // namespace fake
