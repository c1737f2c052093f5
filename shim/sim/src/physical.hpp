// Physical memory: frames of one big sparse memfd, and how much of each kind is held.
#pragma once

#include <map>
#include <memory>
#include <mutex>
#include <vector>

#include "cuda_api.hpp"

namespace transit::sim {

enum class Place { hbm, dram };

// A piece of simulated physical memory. Lives as long as a handle or a mapping refers to it.
class Frame {
public:
    Frame(int fd, bool own_fd, std::uint64_t offset, std::size_t bytes, Place place, int device,
          bool counted);
    ~Frame();
    Frame(const Frame&) = delete;
    Frame& operator=(const Frame&) = delete;

    int fd() const { return fd_; }
    bool exportable() const { return own_fd_; }
    std::uint64_t offset() const { return offset_; }
    std::size_t bytes() const { return bytes_; }
    Place place() const { return place_; }
    int device() const { return device_; }  // ordinal; for DRAM the NUMA node

    CUmemAllocationProp properties{};  // of frames made by cuMemCreate

private:
    int fd_;
    bool own_fd_;  // a memfd of its own, so that a file descriptor can be handed to another process
    std::uint64_t offset_;
    std::size_t bytes_;
    Place place_;
    int device_;
    bool counted_;  // memory imported from another process is not ours to count
};

class PhysicalStore {
public:
    static PhysicalStore& instance();

    // Null when the device's capacity does not suffice.
    std::shared_ptr<Frame> allocate(std::size_t bytes, Place place, int device, bool exportable);
    std::shared_ptr<Frame> adopt(int fd, std::uint64_t offset, std::size_t bytes, bool own_fd);

    std::uint64_t bytes(Place place) const;
    std::uint64_t peak_bytes(Place place) const;
    std::uint64_t device_bytes(int device) const;

private:
    friend class Frame;
    bool take(std::size_t bytes, Place place, int device);
    void give_back(const Frame& frame, bool counted);
    std::uint64_t place_in_store(std::size_t bytes);

    struct Usage {
        std::uint64_t bytes = 0;
        std::uint64_t peak_bytes = 0;
    };

    mutable std::mutex mutex_;
    int store_fd_ = -1;
    std::uint64_t store_end_ = 0;
    std::map<std::size_t, std::vector<std::uint64_t>> free_offsets_;  // by size
    Usage usage_[2];
    std::map<int, std::uint64_t> device_bytes_;
};

}  // namespace transit::sim
