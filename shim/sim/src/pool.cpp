#include "pool.hpp"

#include <algorithm>

#include "address_space.hpp"
#include "context.hpp"

namespace transit::sim {
namespace {

constexpr std::size_t kUnitBytes = 4096;

}  // namespace

CUdeviceptr Pool::reuse(std::size_t bytes, const StreamRef& stream) {
    for (auto at = unused_.begin(); at != unused_.end(); ++at) {
        if (at->bytes == bytes && (at->stream == stream || at->stream->passed(at->ticket))) {
            const CUdeviceptr address = at->address;
            unused_.erase(at);
            return address;
        }
    }
    return 0;
}

CUresult Pool::allocate(CUdeviceptr* address, std::size_t bytes, const StreamRef& stream) {
    if (address == nullptr || bytes == 0) {
        return CUDA_ERROR_INVALID_VALUE;
    }
    const std::size_t whole_bytes = round_up(bytes, kUnitBytes);
    std::lock_guard lock(mutex_);
    CUdeviceptr at = reuse(whole_bytes, stream);
    if (at == 0) {
        auto frame = PhysicalStore::instance().allocate(whole_bytes, Place::hbm, device_, false);
        if (frame == nullptr) {
            return CUDA_ERROR_OUT_OF_MEMORY;
        }
        at = AddressSpace::instance().add_allocation(std::move(frame), whole_bytes, this);
        if (at == 0) {
            return CUDA_ERROR_OUT_OF_MEMORY;
        }
        reserved_bytes_ += whole_bytes;
        reserved_high_bytes_ = std::max(reserved_high_bytes_, reserved_bytes_);
    }
    used_bytes_ += whole_bytes;
    used_high_bytes_ = std::max(used_high_bytes_, used_bytes_);
    *address = at;
    return CUDA_SUCCESS;
}

CUresult Pool::free(CUdeviceptr address, const StreamRef& stream) {
    const auto info = AddressSpace::instance().allocation_starting_at(address);
    if (!info || info->pool != this) {
        return CUDA_ERROR_INVALID_VALUE;
    }
    {
        std::lock_guard lock(mutex_);
        const bool twice = std::any_of(unused_.begin(), unused_.end(), [&](const Unused& block) {
            return block.address == address;
        });
        if (twice) {
            return CUDA_ERROR_INVALID_VALUE;
        }
    }
    const std::uint64_t ticket = stream->context().submit(stream, {"free", [] {}});
    std::lock_guard lock(mutex_);
    used_bytes_ -= info->bytes;
    unused_.push_back({address, info->bytes, stream, ticket});
    return CUDA_SUCCESS;
}

void Pool::forget(CUdeviceptr address, std::size_t bytes) {
    std::lock_guard lock(mutex_);
    const auto before = unused_.size();
    unused_.remove_if([&](const Unused& block) { return block.address == address; });
    used_bytes_ -= before == unused_.size() ? bytes : 0;
    reserved_bytes_ -= bytes;
}

void Pool::trim(std::uint64_t keep_bytes) {
    std::lock_guard lock(mutex_);
    for (auto at = unused_.begin(); at != unused_.end() && reserved_bytes_ > keep_bytes;) {
        if (!at->stream->passed(at->ticket)) {
            ++at;
            continue;
        }
        reserved_bytes_ -= at->bytes;
        AddressSpace::instance().remove_allocation(at->address);
        at = unused_.erase(at);
    }
}

void Pool::trim_to_threshold() { trim(release_threshold_bytes_); }

CUresult Pool::set(CUmemPool_attribute attribute, const void* value) {
    if (value == nullptr) {
        return CUDA_ERROR_INVALID_VALUE;
    }
    std::lock_guard lock(mutex_);
    switch (attribute) {
    case CU_MEMPOOL_ATTR_REUSE_FOLLOW_EVENT_DEPENDENCIES:
    case CU_MEMPOOL_ATTR_REUSE_ALLOW_OPPORTUNISTIC:
    case CU_MEMPOOL_ATTR_REUSE_ALLOW_INTERNAL_DEPENDENCIES:
        reuse_flags_[attribute - CU_MEMPOOL_ATTR_REUSE_FOLLOW_EVENT_DEPENDENCIES] =
            *static_cast<const int*>(value);
        return CUDA_SUCCESS;
    case CU_MEMPOOL_ATTR_RELEASE_THRESHOLD:
        release_threshold_bytes_ = *static_cast<const cuuint64_t*>(value);
        return CUDA_SUCCESS;
    case CU_MEMPOOL_ATTR_RESERVED_MEM_HIGH:  // can only be reset
        reserved_high_bytes_ = reserved_bytes_;
        return CUDA_SUCCESS;
    case CU_MEMPOOL_ATTR_USED_MEM_HIGH:
        used_high_bytes_ = used_bytes_;
        return CUDA_SUCCESS;
    default:
        return CUDA_ERROR_INVALID_VALUE;
    }
}

CUresult Pool::get(CUmemPool_attribute attribute, void* value) {
    if (value == nullptr) {
        return CUDA_ERROR_INVALID_VALUE;
    }
    std::lock_guard lock(mutex_);
    auto& bytes = *static_cast<cuuint64_t*>(value);
    switch (attribute) {
    case CU_MEMPOOL_ATTR_REUSE_FOLLOW_EVENT_DEPENDENCIES:
    case CU_MEMPOOL_ATTR_REUSE_ALLOW_OPPORTUNISTIC:
    case CU_MEMPOOL_ATTR_REUSE_ALLOW_INTERNAL_DEPENDENCIES:
        *static_cast<int*>(value) =
            reuse_flags_[attribute - CU_MEMPOOL_ATTR_REUSE_FOLLOW_EVENT_DEPENDENCIES];
        return CUDA_SUCCESS;
    case CU_MEMPOOL_ATTR_RELEASE_THRESHOLD:
        bytes = release_threshold_bytes_;
        return CUDA_SUCCESS;
    case CU_MEMPOOL_ATTR_RESERVED_MEM_CURRENT:
        bytes = reserved_bytes_;
        return CUDA_SUCCESS;
    case CU_MEMPOOL_ATTR_RESERVED_MEM_HIGH:
        bytes = reserved_high_bytes_;
        return CUDA_SUCCESS;
    case CU_MEMPOOL_ATTR_USED_MEM_CURRENT:
        bytes = used_bytes_;
        return CUDA_SUCCESS;
    case CU_MEMPOOL_ATTR_USED_MEM_HIGH:
        bytes = used_high_bytes_;
        return CUDA_SUCCESS;
    default:
        return CUDA_ERROR_INVALID_VALUE;
    }
}

}  // namespace transit::sim
