// Stream-ordered allocation and memory pools.
#include "address_space.hpp"
#include "call.hpp"
#include "capture.hpp"
#include "context.hpp"
#include "pool.hpp"

namespace transit::sim {
namespace {

CUmemoryPool handle_of(Pool* pool) { return reinterpret_cast<CUmemoryPool>(pool); }

Pool* pool_of(CUmemoryPool handle) {
    auto* const pool = reinterpret_cast<Pool*>(handle);
    return Devices::instance().is_pool(pool) ? pool : nullptr;
}

CUresult allocate(CUdeviceptr* address, std::size_t bytes, Pool* pool, CUstream handle) {
    const StreamRef stream = resolve_stream(handle);
    if (stream == nullptr) {
        return CUDA_ERROR_INVALID_HANDLE;
    }
    CUresult result = pool->allocate(address, bytes, stream);
    if (result == CUDA_ERROR_OUT_OF_MEMORY) {
        // Before refusing, the driver waits for pending frees and takes unused memory back.
        if (!Captures::instance().capturing(stream)) {
            wait_all(stream->context().outstanding());
        }
        for (Pool* other : Devices::instance().pools()) {
            other->trim(0);
        }
        result = pool->allocate(address, bytes, stream);
    }
    return result;
}

CUresult free_in_order(CUdeviceptr address, CUstream handle) {
    const StreamRef stream = resolve_stream(handle);
    if (stream == nullptr) {
        return CUDA_ERROR_INVALID_HANDLE;
    }
    const auto info = AddressSpace::instance().allocation_starting_at(address);
    if (!info || info->pool == nullptr) {
        return CUDA_ERROR_INVALID_VALUE;
    }
    if (Captures::instance().capturing(stream)) {
        // A graph keeps its memory between launches; here for good.
        return Captures::instance().dispatch(stream, {CU_GRAPH_NODE_TYPE_MEM_FREE, "free", [] {}});
    }
    return info->pool->free(address, stream);
}

}  // namespace
}  // namespace transit::sim

using namespace transit::sim;

extern "C" {

CUresult CUDAAPI cuMemAllocAsync(CUdeviceptr* address, size_t bytes, CUstream stream) {
    Call call{"cuMemAllocAsync", Needs::context};
    call.note("bytes", bytes).at("stream", stream);
    if (!call) {
        return call.result();
    }
    Pool* const pool = Devices::instance().at(current_context()->device())->pool;
    const CUresult result = allocate(address, bytes, pool, stream);
    call.at("address", result == CUDA_SUCCESS ? *address : 0);
    return call.end(result);
}

CUresult CUDAAPI cuMemAllocFromPoolAsync(CUdeviceptr* address, size_t bytes, CUmemoryPool handle,
                                         CUstream stream) {
    Call call{"cuMemAllocFromPoolAsync", Needs::context};
    call.note("bytes", bytes).at("stream", stream).at("pool", handle);
    if (!call) {
        return call.result();
    }
    Pool* const pool = pool_of(handle);
    if (pool == nullptr) {
        return call.end(CUDA_ERROR_INVALID_VALUE);
    }
    const CUresult result = allocate(address, bytes, pool, stream);
    call.at("address", result == CUDA_SUCCESS ? *address : 0);
    return call.end(result);
}

CUresult CUDAAPI cuMemFreeAsync(CUdeviceptr address, CUstream stream) {
    Call call{"cuMemFreeAsync", Needs::context};
    call.at("address", address).at("stream", stream);
    if (!call) {
        return call.result();
    }
    return call.end(address == 0 ? CUDA_SUCCESS : free_in_order(address, stream));
}

CUresult CUDAAPI cuDeviceGetDefaultMemPool(CUmemoryPool* pool, CUdevice ordinal) {
    Call call{"cuDeviceGetDefaultMemPool", Needs::driver};
    if (!call) {
        return call.result();
    }
    Device* const device = Devices::instance().at(ordinal);
    if (device == nullptr || pool == nullptr) {
        return call.end(device == nullptr ? CUDA_ERROR_INVALID_DEVICE : CUDA_ERROR_INVALID_VALUE);
    }
    *pool = handle_of(device->default_pool.get());
    return call.end(CUDA_SUCCESS);
}

CUresult CUDAAPI cuDeviceGetMemPool(CUmemoryPool* pool, CUdevice ordinal) {
    Call call{"cuDeviceGetMemPool", Needs::driver};
    if (!call) {
        return call.result();
    }
    Device* const device = Devices::instance().at(ordinal);
    if (device == nullptr || pool == nullptr) {
        return call.end(device == nullptr ? CUDA_ERROR_INVALID_DEVICE : CUDA_ERROR_INVALID_VALUE);
    }
    *pool = handle_of(device->pool);
    return call.end(CUDA_SUCCESS);
}

CUresult CUDAAPI cuDeviceSetMemPool(CUdevice ordinal, CUmemoryPool handle) {
    Call call{"cuDeviceSetMemPool", Needs::driver};
    if (!call) {
        return call.result();
    }
    Device* const device = Devices::instance().at(ordinal);
    Pool* const pool = pool_of(handle);
    if (device == nullptr || pool == nullptr) {
        return call.end(device == nullptr ? CUDA_ERROR_INVALID_DEVICE : CUDA_ERROR_INVALID_VALUE);
    }
    device->pool = pool;
    return call.end(CUDA_SUCCESS);
}

CUresult CUDAAPI cuMemPoolCreate(CUmemoryPool* pool, const CUmemPoolProps* properties) {
    Call call{"cuMemPoolCreate", Needs::driver};
    if (!call) {
        return call.result();
    }
    if (pool == nullptr || properties == nullptr ||
        properties->location.type != CU_MEM_LOCATION_TYPE_DEVICE ||
        Devices::instance().at(properties->location.id) == nullptr) {
        return call.end(CUDA_ERROR_INVALID_VALUE);
    }
    *pool = handle_of(Devices::instance().add_pool(properties->location.id));
    return call.end(CUDA_SUCCESS);
}

CUresult CUDAAPI cuMemPoolDestroy(CUmemoryPool pool) {
    Call call{"cuMemPoolDestroy", Needs::driver};
    call.at("pool", pool);
    if (!call) {
        return call.result();
    }
    Pool* const gone = pool_of(pool);
    if (gone == nullptr || !Devices::instance().remove_pool(gone)) {
        return call.end(CUDA_ERROR_INVALID_VALUE);
    }
    gone->trim(0);
    return call.end(CUDA_SUCCESS);
}

CUresult CUDAAPI cuMemPoolTrimTo(CUmemoryPool handle, size_t keep_bytes) {
    Call call{"cuMemPoolTrimTo", Needs::driver};
    call.at("pool", handle).note("bytes", keep_bytes);
    if (!call) {
        return call.result();
    }
    Pool* const pool = pool_of(handle);
    if (pool == nullptr) {
        return call.end(CUDA_ERROR_INVALID_VALUE);
    }
    pool->trim(keep_bytes);
    return call.end(CUDA_SUCCESS);
}

CUresult CUDAAPI cuMemPoolSetAttribute(CUmemoryPool handle, CUmemPool_attribute attribute,
                                       void* value) {
    Call call{"cuMemPoolSetAttribute", Needs::driver};
    call.at("pool", handle).note("attribute", static_cast<int>(attribute));
    if (!call) {
        return call.result();
    }
    Pool* const pool = pool_of(handle);
    return call.end(pool == nullptr ? CUDA_ERROR_INVALID_VALUE : pool->set(attribute, value));
}

CUresult CUDAAPI cuMemPoolGetAttribute(CUmemoryPool handle, CUmemPool_attribute attribute,
                                       void* value) {
    Call call{"cuMemPoolGetAttribute", Needs::driver};
    call.at("pool", handle).note("attribute", static_cast<int>(attribute));
    if (!call) {
        return call.result();
    }
    Pool* const pool = pool_of(handle);
    return call.end(pool == nullptr ? CUDA_ERROR_INVALID_VALUE : pool->get(attribute, value));
}

// Recorded in the truth log; one process maps its memory once, so peers can always reach it.
CUresult CUDAAPI cuMemPoolSetAccess(CUmemoryPool handle, const CUmemAccessDesc* wanted,
                                    size_t count) {
    Call call{"cuMemPoolSetAccess", Needs::driver};
    call.at("pool", handle).note("count", count);
    if (wanted != nullptr && count > 0) {
        call.note("id", wanted[0].location.id).note("access", static_cast<int>(wanted[0].flags));
    }
    return call ? call.end(pool_of(handle) == nullptr ? CUDA_ERROR_INVALID_VALUE : CUDA_SUCCESS)
                : call.result();
}

CUresult CUDAAPI cuMemPoolGetAccess(CUmemAccess_flags* flags, CUmemoryPool handle, CUmemLocation*) {
    Call call{"cuMemPoolGetAccess", Needs::driver};
    if (!call) {
        return call.result();
    }
    if (flags == nullptr || pool_of(handle) == nullptr) {
        return call.end(CUDA_ERROR_INVALID_VALUE);
    }
    *flags = CU_MEM_ACCESS_FLAGS_PROT_READWRITE;
    return call.end(CUDA_SUCCESS);
}

}  // extern "C"
