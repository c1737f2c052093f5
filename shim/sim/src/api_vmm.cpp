// Virtual memory management: physical handles, reservations, mappings, access.
#include <sys/stat.h>
#include <unistd.h>

#include <fcntl.h>

#include <map>
#include <mutex>

#include "address_space.hpp"
#include "call.hpp"
#include "capture.hpp"
#include "context.hpp"
#include "options.hpp"

namespace transit::sim {
namespace {

struct Handle {
    std::shared_ptr<Frame> frame;
    unsigned users = 1;
};

// Handles are numbers that never come back, so a stale one is always recognised.
class Handles {
public:
    static Handles& instance() {
        static Handles* const kHandles = new Handles;
        return *kHandles;
    }

    CUmemGenericAllocationHandle add(std::shared_ptr<Frame> frame) {
        std::lock_guard lock(mutex_);
        const auto handle = next_++;
        handles_[handle] = Handle{std::move(frame)};
        return handle;
    }

    // The same memory keeps its handle while that is alive, as the driver answers a retain.
    CUmemGenericAllocationHandle retain(const std::shared_ptr<Frame>& frame) {
        {
            std::lock_guard lock(mutex_);
            for (auto& [number, handle] : handles_) {
                if (handle.frame == frame) {
                    ++handle.users;
                    return number;
                }
            }
        }
        return add(frame);
    }

    std::shared_ptr<Frame> find(CUmemGenericAllocationHandle number) {
        std::lock_guard lock(mutex_);
        const auto found = handles_.find(number);
        return found == handles_.end() ? nullptr : found->second.frame;
    }

    bool release(CUmemGenericAllocationHandle number) {
        std::shared_ptr<Frame> gone;  // given back after the lock
        std::lock_guard lock(mutex_);
        const auto found = handles_.find(number);
        if (found == handles_.end()) {
            return false;
        }
        if (--found->second.users == 0) {
            gone = std::move(found->second.frame);
            handles_.erase(found);
        }
        return true;
    }

private:
    std::mutex mutex_;
    std::map<CUmemGenericAllocationHandle, Handle> handles_;
    CUmemGenericAllocationHandle next_ = 0x51000001;
};

bool on_host(const CUmemLocation& location) {
    return location.type == CU_MEM_LOCATION_TYPE_HOST ||
           location.type == CU_MEM_LOCATION_TYPE_HOST_NUMA ||
           location.type == CU_MEM_LOCATION_TYPE_HOST_NUMA_CURRENT;
}

CUresult check_properties(const CUmemAllocationProp* properties) {
    if (properties == nullptr || properties->type != CU_MEM_ALLOCATION_TYPE_PINNED) {
        return CUDA_ERROR_INVALID_VALUE;
    }
    const CUmemLocation& location = properties->location;
    if (on_host(location)) {
        return options().host_numa ? CUDA_SUCCESS : CUDA_ERROR_NOT_SUPPORTED;
    }
    if (location.type != CU_MEM_LOCATION_TYPE_DEVICE) {
        return CUDA_ERROR_INVALID_VALUE;
    }
    return Devices::instance().at(location.id) != nullptr ? CUDA_SUCCESS
                                                          : CUDA_ERROR_INVALID_DEVICE;
}

CUresult create(CUmemGenericAllocationHandle* handle, std::size_t bytes,
                const CUmemAllocationProp* properties, unsigned long long flags) {
    if (handle == nullptr || bytes == 0 || bytes % kGranularityBytes != 0 || flags != 0) {
        return CUDA_ERROR_INVALID_VALUE;
    }
    if (const CUresult error = check_properties(properties); error != CUDA_SUCCESS) {
        return error;
    }
    const Place place = on_host(properties->location) ? Place::dram : Place::hbm;
    const bool exportable = properties->requestedHandleTypes != CU_MEM_HANDLE_TYPE_NONE;
    auto frame =
        PhysicalStore::instance().allocate(bytes, place, properties->location.id, exportable);
    if (frame == nullptr) {
        return CUDA_ERROR_OUT_OF_MEMORY;
    }
    frame->properties = *properties;
    *handle = Handles::instance().add(std::move(frame));
    return CUDA_SUCCESS;
}

// Every VMM call may be refused while a capture is open.
CUresult checked(Call& call) {
    return call ? call.end(Captures::instance().check_unsafe()) : call.result();
}

}  // namespace
}  // namespace transit::sim

using namespace transit::sim;

extern "C" {

CUresult CUDAAPI cuMemGetAllocationGranularity(size_t* bytes, const CUmemAllocationProp* properties,
                                               CUmemAllocationGranularity_flags) {
    Call call{"cuMemGetAllocationGranularity", Needs::driver};
    if (!call) {
        return call.result();
    }
    if (bytes == nullptr) {
        return call.end(CUDA_ERROR_INVALID_VALUE);
    }
    if (const CUresult error = check_properties(properties); error != CUDA_SUCCESS) {
        return call.end(error);
    }
    *bytes = kGranularityBytes;
    return call.end(CUDA_SUCCESS);
}

CUresult CUDAAPI cuMemCreate(CUmemGenericAllocationHandle* handle, size_t bytes,
                             const CUmemAllocationProp* properties, unsigned long long flags) {
    Call call{"cuMemCreate", Needs::driver};
    call.note("bytes", bytes);
    if (properties != nullptr) {
        call.note("location", static_cast<int>(properties->location.type))
            .note("id", properties->location.id);
    }
    if (checked(call) != CUDA_SUCCESS) {
        return call.result();
    }
    const CUresult result = create(handle, bytes, properties, flags);
    call.at("handle", result == CUDA_SUCCESS ? *handle : 0);
    return call.end(result);
}

CUresult CUDAAPI cuMemRelease(CUmemGenericAllocationHandle handle) {
    Call call{"cuMemRelease", Needs::driver};
    call.at("handle", handle);
    if (checked(call) != CUDA_SUCCESS) {
        return call.result();
    }
    return call.end(Handles::instance().release(handle) ? CUDA_SUCCESS : CUDA_ERROR_INVALID_VALUE);
}

CUresult CUDAAPI cuMemAddressReserve(CUdeviceptr* base, size_t bytes, size_t alignment,
                                     CUdeviceptr wish, unsigned long long flags) {
    Call call{"cuMemAddressReserve", Needs::driver};
    call.note("bytes", bytes);
    if (checked(call) != CUDA_SUCCESS) {
        return call.result();
    }
    if (flags != 0) {
        return call.end(CUDA_ERROR_INVALID_VALUE);
    }
    const CUresult result = AddressSpace::instance().reserve(base, bytes, alignment, wish);
    call.at("address", result == CUDA_SUCCESS ? *base : 0);
    return call.end(result);
}

CUresult CUDAAPI cuMemAddressFree(CUdeviceptr base, size_t bytes) {
    Call call{"cuMemAddressFree", Needs::driver};
    call.at("address", base).note("bytes", bytes);
    if (checked(call) != CUDA_SUCCESS) {
        return call.result();
    }
    return call.end(AddressSpace::instance().free_reservation(base, bytes));
}

CUresult CUDAAPI cuMemMap(CUdeviceptr base, size_t bytes, size_t offset,
                          CUmemGenericAllocationHandle handle, unsigned long long flags) {
    Call call{"cuMemMap", Needs::driver};
    call.at("address", base).note("bytes", bytes).note("offset", offset).at("handle", handle);
    if (checked(call) != CUDA_SUCCESS) {
        return call.result();
    }
    auto frame = Handles::instance().find(handle);
    if (frame == nullptr || offset != 0 || flags != 0) {
        return call.end(CUDA_ERROR_INVALID_VALUE);
    }
    return call.end(AddressSpace::instance().map(base, bytes, std::move(frame)));
}

CUresult CUDAAPI cuMemUnmap(CUdeviceptr base, size_t bytes) {
    Call call{"cuMemUnmap", Needs::driver};
    call.at("address", base).note("bytes", bytes);
    if (checked(call) != CUDA_SUCCESS) {
        return call.result();
    }
    return call.end(AddressSpace::instance().unmap(base, bytes));
}

CUresult CUDAAPI cuMemSetAccess(CUdeviceptr base, size_t bytes, const CUmemAccessDesc* wanted,
                                size_t count) {
    Call call{"cuMemSetAccess", Needs::driver};
    call.at("address", base).note("bytes", bytes).note("count", count);
    if (wanted != nullptr && count > 0) {
        call.note("id", wanted[0].location.id).note("access", static_cast<int>(wanted[0].flags));
    }
    if (checked(call) != CUDA_SUCCESS) {
        return call.result();
    }
    for (std::size_t i = 0; wanted != nullptr && i < count; ++i) {
        const CUmemLocation& location = wanted[i].location;
        const bool known = location.type == CU_MEM_LOCATION_TYPE_DEVICE
                               ? Devices::instance().at(location.id) != nullptr
                               : on_host(location);
        if (!known) {
            return call.end(CUDA_ERROR_INVALID_DEVICE);
        }
    }
    return call.end(AddressSpace::instance().set_access(base, bytes, wanted, count));
}

CUresult CUDAAPI cuMemGetAccess(unsigned long long* flags, const CUmemLocation* location,
                                CUdeviceptr address) {
    Call call{"cuMemGetAccess", Needs::driver};
    call.at("address", address);
    if (!call) {
        return call.result();
    }
    if (location == nullptr) {
        return call.end(CUDA_ERROR_INVALID_VALUE);
    }
    return call.end(AddressSpace::instance().get_access(address, *location, flags));
}

CUresult CUDAAPI cuMemRetainAllocationHandle(CUmemGenericAllocationHandle* handle, void* address) {
    Call call{"cuMemRetainAllocationHandle", Needs::driver};
    call.at("address", address);
    if (!call) {
        return call.result();
    }
    const auto frame = AddressSpace::instance().frame_at(reinterpret_cast<CUdeviceptr>(address));
    if (frame == nullptr || handle == nullptr) {
        return call.end(CUDA_ERROR_INVALID_VALUE);
    }
    *handle = Handles::instance().retain(frame);
    call.at("handle", *handle);
    return call.end(CUDA_SUCCESS);
}

CUresult CUDAAPI cuMemGetAllocationPropertiesFromHandle(CUmemAllocationProp* properties,
                                                        CUmemGenericAllocationHandle handle) {
    Call call{"cuMemGetAllocationPropertiesFromHandle", Needs::driver};
    call.at("handle", handle);
    if (!call) {
        return call.result();
    }
    const auto frame = Handles::instance().find(handle);
    if (frame == nullptr || properties == nullptr) {
        return call.end(CUDA_ERROR_INVALID_VALUE);
    }
    *properties = frame->properties;
    return call.end(CUDA_SUCCESS);
}

CUresult CUDAAPI cuMemExportToShareableHandle(void* shareable, CUmemGenericAllocationHandle handle,
                                              CUmemAllocationHandleType type,
                                              unsigned long long flags) {
    Call call{"cuMemExportToShareableHandle", Needs::driver};
    call.at("handle", handle);
    if (!call) {
        return call.result();
    }
    const auto frame = Handles::instance().find(handle);
    if (frame == nullptr || shareable == nullptr || flags != 0 || !frame->exportable() ||
        type != CU_MEM_HANDLE_TYPE_POSIX_FILE_DESCRIPTOR) {
        return call.end(CUDA_ERROR_INVALID_VALUE);
    }
    *static_cast<int*>(shareable) = fcntl(frame->fd(), F_DUPFD_CLOEXEC, 0);
    return call.end(CUDA_SUCCESS);
}

CUresult CUDAAPI cuMemImportFromShareableHandle(CUmemGenericAllocationHandle* handle,
                                                void* shareable, CUmemAllocationHandleType type) {
    Call call{"cuMemImportFromShareableHandle", Needs::driver};
    if (!call) {
        return call.result();
    }
    const int fd = static_cast<int>(reinterpret_cast<std::intptr_t>(shareable));
    struct stat status{};
    if (handle == nullptr || type != CU_MEM_HANDLE_TYPE_POSIX_FILE_DESCRIPTOR ||
        fstat(fd, &status) != 0) {
        return call.end(CUDA_ERROR_INVALID_VALUE);
    }
    const int own = fcntl(fd, F_DUPFD_CLOEXEC, 0);  // the caller closes his own
    auto frame =
        PhysicalStore::instance().adopt(own, 0, static_cast<std::size_t>(status.st_size), true);
    frame->properties.type = CU_MEM_ALLOCATION_TYPE_PINNED;
    frame->properties.location = {CU_MEM_LOCATION_TYPE_DEVICE, 0};
    *handle = Handles::instance().add(std::move(frame));
    call.at("handle", *handle);
    return call.end(CUDA_SUCCESS);
}

}  // extern "C"
