// A memory pool: stream-ordered allocations. A freed block may be used again at once by the same
// stream, by others when the free has run; what is unused goes back to the device at a sync.
#pragma once

#include <list>
#include <memory>
#include <mutex>

#include "cuda_api.hpp"
#include "stream.hpp"

namespace transit::sim {

class Pool {
public:
    explicit Pool(int device) : device_(device) {}

    int device() const { return device_; }
    CUresult allocate(CUdeviceptr* address, std::size_t bytes, const StreamRef& stream);
    CUresult free(CUdeviceptr address, const StreamRef& stream);  // in stream order
    void forget(CUdeviceptr address, std::size_t bytes);          // freed by cuMemFree instead
    void trim(std::uint64_t keep_bytes);                          // gives unused memory back
    void trim_to_threshold();
    CUresult set(CUmemPool_attribute attribute, const void* value);
    CUresult get(CUmemPool_attribute attribute, void* value);

private:
    struct Unused {
        CUdeviceptr address;
        std::size_t bytes;  // of memory behind it
        StreamRef stream;   // that freed it
        std::uint64_t ticket;
    };

    CUdeviceptr reuse(std::size_t bytes, const StreamRef& stream);

    const int device_;
    std::mutex mutex_;
    std::list<Unused> unused_;
    std::uint64_t release_threshold_bytes_ = 0;
    std::uint64_t reserved_bytes_ = 0;
    std::uint64_t reserved_high_bytes_ = 0;
    std::uint64_t used_bytes_ = 0;
    std::uint64_t used_high_bytes_ = 0;
    int reuse_flags_[3] = {1, 1, 1};
};

}  // namespace transit::sim
