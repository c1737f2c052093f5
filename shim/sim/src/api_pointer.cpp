// What the driver tells about a pointer.
#include <cstring>

#include "address_space.hpp"
#include "call.hpp"
#include "context.hpp"
#include "pool.hpp"

namespace transit::sim {
namespace {

template <class T>
CUresult put(void* data, T value) {
    std::memcpy(data, &value, sizeof(T));
    return CUDA_SUCCESS;
}

bool in_dram(const PointerInfo& info) {
    return info.kind == PointerInfo::Kind::host || info.frame->place() == Place::dram;
}

CUcontext context_of(const PointerInfo& info) {
    if (info.kind == PointerInfo::Kind::mapping) {
        return nullptr;  // VMM memory belongs to no context
    }
    Context* const current = current_context();
    const int device = info.kind == PointerInfo::Kind::host
                           ? (current != nullptr ? current->device() : 0)
                           : info.frame->device();
    Device* const owner = Devices::instance().at(device);
    return owner != nullptr && owner->primary != nullptr ? owner->primary->handle() : nullptr;
}

CUresult attribute(void* data, CUpointer_attribute which, CUdeviceptr address,
                   const PointerInfo& info) {
    const bool mapping = info.kind == PointerInfo::Kind::mapping;
    switch (which) {
    case CU_POINTER_ATTRIBUTE_CONTEXT:
        return put(data, context_of(info));
    case CU_POINTER_ATTRIBUTE_MEMORY_TYPE:
        // Host-located VMM memory says host, as on the real driver.
        return put<unsigned>(data, in_dram(info) ? CU_MEMORYTYPE_HOST : CU_MEMORYTYPE_DEVICE);
    case CU_POINTER_ATTRIBUTE_DEVICE_POINTER:
        return put(data, address);
    case CU_POINTER_ATTRIBUTE_HOST_POINTER:
        return in_dram(info) ? put(data, address) : CUDA_ERROR_INVALID_VALUE;
    case CU_POINTER_ATTRIBUTE_BUFFER_ID:
        return put(data, info.buffer_id);
    case CU_POINTER_ATTRIBUTE_IS_MANAGED:
        return put<char>(data, 0);
    case CU_POINTER_ATTRIBUTE_SYNC_MEMOPS:
        return put<unsigned>(data, 0);
    case CU_POINTER_ATTRIBUTE_DEVICE_ORDINAL:
        return put(data, info.frame == nullptr || info.frame->place() == Place::dram
                             ? 0
                             : info.frame->device());
    case CU_POINTER_ATTRIBUTE_IS_LEGACY_CUDA_IPC_CAPABLE:
        return put<char>(
            data, info.kind == PointerInfo::Kind::allocation && info.pool == nullptr ? 1 : 0);
    case CU_POINTER_ATTRIBUTE_RANGE_START_ADDR:
        return put(data, info.base);
    case CU_POINTER_ATTRIBUTE_RANGE_SIZE:
        return put(data, info.bytes);
    case CU_POINTER_ATTRIBUTE_MAPPED:
        return put<char>(data, 1);
    case CU_POINTER_ATTRIBUTE_ALLOWED_HANDLE_TYPES:
        return put<unsigned long long>(
            data,
            mapping ? static_cast<unsigned>(info.frame->properties.requestedHandleTypes) : 0U);
    case CU_POINTER_ATTRIBUTE_IS_GPU_DIRECT_RDMA_CAPABLE:
        return put<char>(data, 0);
    case CU_POINTER_ATTRIBUTE_ACCESS_FLAGS:
        return put<unsigned>(data, CU_POINTER_ATTRIBUTE_ACCESS_FLAG_READWRITE);
    case CU_POINTER_ATTRIBUTE_MEMPOOL_HANDLE:
        return put<void*>(data, info.pool);
    case CU_POINTER_ATTRIBUTE_MAPPING_SIZE:
        return put(data, info.bytes);
    case CU_POINTER_ATTRIBUTE_MAPPING_BASE_ADDR:
        return put(data, info.base);
    case CU_POINTER_ATTRIBUTE_MEMORY_BLOCK_ID:
        return put(data, info.buffer_id);
    default:
        return CUDA_ERROR_INVALID_VALUE;
    }
}

// Answers of cuPointerGetAttributes for what it does not know: null, not an error.
void clear(void* data, CUpointer_attribute which) {
    switch (which) {
    case CU_POINTER_ATTRIBUTE_MEMORY_TYPE:
    case CU_POINTER_ATTRIBUTE_SYNC_MEMOPS:
    case CU_POINTER_ATTRIBUTE_ACCESS_FLAGS:
        put<unsigned>(data, 0);
        break;
    case CU_POINTER_ATTRIBUTE_DEVICE_ORDINAL:
        put(data, -2);
        break;
    case CU_POINTER_ATTRIBUTE_IS_MANAGED:
    case CU_POINTER_ATTRIBUTE_IS_LEGACY_CUDA_IPC_CAPABLE:
    case CU_POINTER_ATTRIBUTE_MAPPED:
    case CU_POINTER_ATTRIBUTE_IS_GPU_DIRECT_RDMA_CAPABLE:
        put<char>(data, 0);
        break;
    default:
        put<std::uint64_t>(data, 0);
        break;
    }
}

}  // namespace
}  // namespace transit::sim

using namespace transit::sim;

extern "C" {

CUresult CUDAAPI cuPointerGetAttribute(void* data, CUpointer_attribute which, CUdeviceptr address) {
    Call call{"cuPointerGetAttribute", Needs::driver};
    call.note("attribute", static_cast<int>(which)).at("address", address);
    if (!call) {
        return call.result();
    }
    const auto info = AddressSpace::instance().find(address);
    if (data == nullptr || !info) {
        return call.end(CUDA_ERROR_INVALID_VALUE);
    }
    return call.end(attribute(data, which, address, *info));
}

CUresult CUDAAPI cuPointerGetAttributes(unsigned int count, CUpointer_attribute* which, void** data,
                                        CUdeviceptr address) {
    Call call{"cuPointerGetAttributes", Needs::driver};
    call.note("count", count).at("address", address);
    if (!call) {
        return call.result();
    }
    if (which == nullptr || data == nullptr) {
        return call.end(CUDA_ERROR_INVALID_VALUE);
    }
    const auto info = AddressSpace::instance().find(address);
    for (unsigned i = 0; i < count; ++i) {
        if (!info || attribute(data[i], which[i], address, *info) != CUDA_SUCCESS) {
            clear(data[i], which[i]);
        }
    }
    return call.end(CUDA_SUCCESS);
}

CUresult CUDAAPI cuPointerSetAttribute(const void*, CUpointer_attribute which,
                                       CUdeviceptr address) {
    Call call{"cuPointerSetAttribute", Needs::driver};
    call.note("attribute", static_cast<int>(which)).at("address", address);
    if (!call) {
        return call.result();
    }
    const bool known =
        which == CU_POINTER_ATTRIBUTE_SYNC_MEMOPS && AddressSpace::instance().find(address);
    return call.end(known ? CUDA_SUCCESS : CUDA_ERROR_INVALID_VALUE);
}

}  // extern "C"
