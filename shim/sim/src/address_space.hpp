// Virtual addresses: reservations and their mappings (VMM), allocations, page-locked host ranges.
#pragma once

#include <map>
#include <memory>
#include <mutex>
#include <optional>
#include <vector>

#include "cuda_api.hpp"
#include "physical.hpp"

namespace transit::sim {

class Pool;

struct Mapping {
    std::size_t bytes = 0;
    std::shared_ptr<Frame> frame;
    std::uint64_t buffer_id = 0;
    // Access per location; a new mapping has none, and any access to it is a real fault.
    std::map<std::pair<int, int>, CUmemAccess_flags> access;
};

struct Allocation {
    std::size_t bytes = 0;  // as asked for
    std::size_t mapped_bytes = 0;
    std::shared_ptr<Frame> frame;
    std::uint64_t buffer_id = 0;
    Pool* pool = nullptr;   // of stream-ordered allocations
    bool imported = false;  // by cuIpcOpenMemHandle
};

struct HostRange {
    std::size_t bytes = 0;
    unsigned flags = 0;
    bool registered = false;  // by cuMemHostRegister: the memory is the application's
    std::uint64_t buffer_id = 0;
};

// What a pointer is; base and size of what it lies in.
struct PointerInfo {
    enum class Kind { mapping, allocation, host } kind;
    CUdeviceptr base;
    std::size_t bytes;
    std::uint64_t buffer_id;
    std::shared_ptr<Frame> frame;  // null for host ranges
    Pool* pool = nullptr;
    unsigned host_flags = 0;
    bool imported = false;
};

class AddressSpace {
public:
    static AddressSpace& instance();

    // VMM
    CUresult reserve(CUdeviceptr* base, std::size_t bytes, std::size_t alignment, CUdeviceptr wish);
    CUresult free_reservation(CUdeviceptr base, std::size_t bytes);
    CUresult map(CUdeviceptr base, std::size_t bytes, std::shared_ptr<Frame> frame);
    CUresult unmap(CUdeviceptr base, std::size_t bytes);
    CUresult set_access(CUdeviceptr base, std::size_t bytes, const CUmemAccessDesc* wanted,
                        std::size_t count);
    CUresult get_access(CUdeviceptr address, CUmemLocation location, unsigned long long* flags);
    std::shared_ptr<Frame> frame_at(CUdeviceptr address);

    // cuMemAlloc and pools: mapped readable and writable at once.
    CUdeviceptr add_allocation(std::shared_ptr<Frame> frame, std::size_t bytes, Pool* pool,
                               bool imported = false);
    std::optional<PointerInfo> allocation_starting_at(CUdeviceptr base);
    bool remove_allocation(CUdeviceptr base);

    // Host
    bool add_host(CUdeviceptr base, std::size_t bytes, unsigned flags, bool registered);
    std::optional<HostRange> remove_host(CUdeviceptr base, bool registered);

    std::optional<PointerInfo> find(CUdeviceptr address);
    // True when every byte is allocated or mapped device memory (readable or not).
    bool is_device_range(CUdeviceptr address, std::size_t bytes);
    bool is_page_locked(CUdeviceptr address);

private:
    using Mappings = std::map<CUdeviceptr, Mapping>;
    std::optional<PointerInfo> find_locked(CUdeviceptr address);
    // The mappings that cover exactly [base, base+bytes), or nothing.
    std::optional<std::pair<Mappings::iterator, Mappings::iterator>>
    whole_mappings(CUdeviceptr base, std::size_t bytes);
    CUdeviceptr find_gap(std::size_t bytes);

    std::mutex mutex_;
    std::map<CUdeviceptr, std::size_t> reservations_;
    Mappings mappings_;
    std::map<CUdeviceptr, Allocation> allocations_;
    std::map<CUdeviceptr, HostRange> host_ranges_;
    CUdeviceptr arena_base_ = 0;
    CUdeviceptr arena_cursor_ = 0;
    std::size_t arena_bytes_ = 0;
    std::uint64_t next_buffer_id_ = 1;
};

}  // namespace transit::sim
