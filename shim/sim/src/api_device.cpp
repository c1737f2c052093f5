// Devices: count, name, attributes, memory size, primary contexts.
#include <algorithm>
#include <cstdio>
#include <cstdlib>
#include <cstring>

#include "call.hpp"
#include "context.hpp"
#include "options.hpp"
#include "pool.hpp"

namespace transit::sim {
namespace {

int attribute(CUdevice_attribute which, int device) {
    switch (which) {
    case CU_DEVICE_ATTRIBUTE_MAX_THREADS_PER_BLOCK:
        return 1024;
    case CU_DEVICE_ATTRIBUTE_MAX_BLOCK_DIM_X:
        return 1024;
    case CU_DEVICE_ATTRIBUTE_MAX_BLOCK_DIM_Y:
        return 1024;
    case CU_DEVICE_ATTRIBUTE_MAX_BLOCK_DIM_Z:
        return 64;
    case CU_DEVICE_ATTRIBUTE_MAX_GRID_DIM_X:
        return 2147483647;
    case CU_DEVICE_ATTRIBUTE_MAX_GRID_DIM_Y:
        return 65535;
    case CU_DEVICE_ATTRIBUTE_MAX_GRID_DIM_Z:
        return 65535;
    case CU_DEVICE_ATTRIBUTE_MAX_SHARED_MEMORY_PER_BLOCK:
        return 49152;
    case CU_DEVICE_ATTRIBUTE_MAX_SHARED_MEMORY_PER_BLOCK_OPTIN:
        return 232448;
    case CU_DEVICE_ATTRIBUTE_MAX_SHARED_MEMORY_PER_MULTIPROCESSOR:
        return 233472;
    case CU_DEVICE_ATTRIBUTE_TOTAL_CONSTANT_MEMORY:
        return 65536;
    case CU_DEVICE_ATTRIBUTE_WARP_SIZE:
        return 32;
    case CU_DEVICE_ATTRIBUTE_MAX_REGISTERS_PER_BLOCK:
        return 65536;
    case CU_DEVICE_ATTRIBUTE_CLOCK_RATE:
        return 1980000;
    case CU_DEVICE_ATTRIBUTE_MEMORY_CLOCK_RATE:
        return 3201000;
    case CU_DEVICE_ATTRIBUTE_GLOBAL_MEMORY_BUS_WIDTH:
        return 6144;
    case CU_DEVICE_ATTRIBUTE_L2_CACHE_SIZE:
        return 62914560;
    case CU_DEVICE_ATTRIBUTE_MULTIPROCESSOR_COUNT:
        return 132;
    case CU_DEVICE_ATTRIBUTE_MAX_THREADS_PER_MULTIPROCESSOR:
        return 2048;
    case CU_DEVICE_ATTRIBUTE_COMPUTE_CAPABILITY_MAJOR:
        return 9;
    case CU_DEVICE_ATTRIBUTE_COMPUTE_CAPABILITY_MINOR:
        return 0;
    case CU_DEVICE_ATTRIBUTE_PCI_BUS_ID:
        return 1 + device;
    case CU_DEVICE_ATTRIBUTE_ASYNC_ENGINE_COUNT:
        return 3;
    case CU_DEVICE_ATTRIBUTE_MEMPOOL_SUPPORTED_HANDLE_TYPES:
        return CU_MEM_HANDLE_TYPE_POSIX_FILE_DESCRIPTOR;
    case CU_DEVICE_ATTRIBUTE_HOST_NUMA_VIRTUAL_MEMORY_MANAGEMENT_SUPPORTED:
        return options().host_numa ? 1 : 0;
    case CU_DEVICE_ATTRIBUTE_GPU_OVERLAP:
    case CU_DEVICE_ATTRIBUTE_CAN_MAP_HOST_MEMORY:
    case CU_DEVICE_ATTRIBUTE_CONCURRENT_KERNELS:
    case CU_DEVICE_ATTRIBUTE_UNIFIED_ADDRESSING:
    case CU_DEVICE_ATTRIBUTE_STREAM_PRIORITIES_SUPPORTED:
    case CU_DEVICE_ATTRIBUTE_COOPERATIVE_LAUNCH:
    case CU_DEVICE_ATTRIBUTE_CAN_USE_HOST_POINTER_FOR_REGISTERED_MEM:
    case CU_DEVICE_ATTRIBUTE_VIRTUAL_MEMORY_MANAGEMENT_SUPPORTED:
    case CU_DEVICE_ATTRIBUTE_HANDLE_TYPE_POSIX_FILE_DESCRIPTOR_SUPPORTED:
    case CU_DEVICE_ATTRIBUTE_MEMORY_POOLS_SUPPORTED:
    case CU_DEVICE_ATTRIBUTE_CAN_USE_64_BIT_STREAM_MEM_OPS:
    case CU_DEVICE_ATTRIBUTE_HOST_REGISTER_SUPPORTED:
        return 1;
    default:
        return 0;  // also GPUDirect, managed memory and multicast: not simulated
    }
}

}  // namespace
}  // namespace transit::sim

using namespace transit::sim;

extern "C" {

CUresult CUDAAPI cuDeviceGetCount(int* count) {
    Call call{"cuDeviceGetCount", Needs::driver};
    if (call && count == nullptr) {
        return call.end(CUDA_ERROR_INVALID_VALUE);
    }
    if (call) {
        *count = Devices::instance().count();
    }
    return call.result();
}

CUresult CUDAAPI cuDeviceGet(CUdevice* device, int ordinal) {
    Call call{"cuDeviceGet", Needs::driver};
    if (!call) {
        return call.result();
    }
    if (device == nullptr) {
        return call.end(CUDA_ERROR_INVALID_VALUE);
    }
    if (Devices::instance().at(ordinal) == nullptr) {
        return call.end(CUDA_ERROR_INVALID_DEVICE);
    }
    *device = ordinal;
    return call.end(CUDA_SUCCESS);
}

CUresult CUDAAPI cuDeviceGetName(char* name, int length, CUdevice device) {
    Call call{"cuDeviceGetName", Needs::driver};
    if (!call) {
        return call.result();
    }
    if (Devices::instance().at(device) == nullptr) {
        return call.end(CUDA_ERROR_INVALID_DEVICE);
    }
    if (name == nullptr || length <= 0) {
        return call.end(CUDA_ERROR_INVALID_VALUE);
    }
    std::snprintf(name, static_cast<std::size_t>(length), "%s", "Transit simulated GPU");
    return call.end(CUDA_SUCCESS);
}

CUresult CUDAAPI cuDeviceGetAttribute(int* value, CUdevice_attribute which, CUdevice device) {
    Call call{"cuDeviceGetAttribute", Needs::driver};
    call.note("attribute", static_cast<int>(which));
    if (!call) {
        return call.result();
    }
    if (Devices::instance().at(device) == nullptr) {
        return call.end(CUDA_ERROR_INVALID_DEVICE);
    }
    if (value == nullptr || which < 1 || which >= CU_DEVICE_ATTRIBUTE_MAX) {
        return call.end(CUDA_ERROR_INVALID_VALUE);
    }
    *value = attribute(which, device);
    return call.end(CUDA_SUCCESS);
}

CUresult CUDAAPI cuDeviceTotalMem_v2(size_t* bytes, CUdevice device) {
    Call call{"cuDeviceTotalMem_v2", Needs::driver};
    if (!call) {
        return call.result();
    }
    if (Devices::instance().at(device) == nullptr) {
        return call.end(CUDA_ERROR_INVALID_DEVICE);
    }
    if (bytes == nullptr) {
        return call.end(CUDA_ERROR_INVALID_VALUE);
    }
    *bytes = options().hbm_bytes;
    return call.end(CUDA_SUCCESS);
}

CUresult CUDAAPI cuDeviceGetUuid(CUuuid* uuid, CUdevice device) {
    Call call{"cuDeviceGetUuid", Needs::driver};
    if (!call) {
        return call.result();
    }
    if (uuid == nullptr || Devices::instance().at(device) == nullptr) {
        return call.end(CUDA_ERROR_INVALID_VALUE);
    }
    std::snprintf(uuid->bytes, sizeof uuid->bytes, "transit-sim-%03d", device);
    return call.end(CUDA_SUCCESS);
}

CUresult CUDAAPI cuDeviceGetUuid_v2(CUuuid* uuid, CUdevice device) {
    return cuDeviceGetUuid(uuid, device);
}

CUresult CUDAAPI cuDeviceGetPCIBusId(char* text, int length, CUdevice device) {
    Call call{"cuDeviceGetPCIBusId", Needs::driver};
    if (!call) {
        return call.result();
    }
    if (text == nullptr || length < 13 || Devices::instance().at(device) == nullptr) {
        return call.end(CUDA_ERROR_INVALID_VALUE);
    }
    std::snprintf(text, static_cast<std::size_t>(length), "0000:%02x:00.0",
                  static_cast<unsigned>(device + 1) & 0xFFU);
    return call.end(CUDA_SUCCESS);
}

CUresult CUDAAPI cuDeviceGetByPCIBusId(CUdevice* device, const char* text) {
    Call call{"cuDeviceGetByPCIBusId", Needs::driver};
    if (!call) {
        return call.result();
    }
    const char* const after_domain = text == nullptr ? nullptr : std::strchr(text, ':');
    const long bus = after_domain == nullptr ? 0 : std::strtol(after_domain + 1, nullptr, 16);
    if (device == nullptr || Devices::instance().at(static_cast<int>(bus) - 1) == nullptr) {
        return call.end(CUDA_ERROR_INVALID_VALUE);
    }
    *device = static_cast<int>(bus) - 1;
    return call.end(CUDA_SUCCESS);
}

CUresult CUDAAPI cuDeviceCanAccessPeer(int* can, CUdevice device, CUdevice peer) {
    Call call{"cuDeviceCanAccessPeer", Needs::driver};
    if (!call) {
        return call.result();
    }
    if (Devices::instance().at(device) == nullptr || Devices::instance().at(peer) == nullptr) {
        return call.end(CUDA_ERROR_INVALID_DEVICE);
    }
    if (can == nullptr) {
        return call.end(CUDA_ERROR_INVALID_VALUE);
    }
    *can = device != peer ? 1 : 0;
    return call.end(CUDA_SUCCESS);
}

CUresult CUDAAPI cuDevicePrimaryCtxRetain(CUcontext* context, CUdevice ordinal) {
    Call call{"cuDevicePrimaryCtxRetain", Needs::driver};
    if (!call) {
        return call.result();
    }
    Device* const device = Devices::instance().at(ordinal);
    if (device == nullptr) {
        return call.end(CUDA_ERROR_INVALID_DEVICE);
    }
    if (context == nullptr) {
        return call.end(CUDA_ERROR_INVALID_VALUE);
    }
    // Made once and kept: workers and leaked frameworks may still use it after the last release.
    if (device->primary == nullptr) {
        device->primary = Devices::instance().create_context(ordinal, device->primary_flags);
    }
    ++device->primary_users;
    *context = device->primary->handle();
    return call.end(CUDA_SUCCESS);
}

CUresult CUDAAPI cuDevicePrimaryCtxRelease_v2(CUdevice ordinal) {
    Call call{"cuDevicePrimaryCtxRelease_v2", Needs::driver};
    if (!call) {
        return call.result();
    }
    Device* const device = Devices::instance().at(ordinal);
    if (device == nullptr || device->primary_users == 0) {
        return call.end(device == nullptr ? CUDA_ERROR_INVALID_DEVICE : CUDA_ERROR_INVALID_CONTEXT);
    }
    --device->primary_users;
    return call.end(wait_all(device->primary->outstanding()));
}

CUresult CUDAAPI cuDevicePrimaryCtxRelease(CUdevice ordinal) {
    return cuDevicePrimaryCtxRelease_v2(ordinal);
}

CUresult CUDAAPI cuDevicePrimaryCtxReset_v2(CUdevice ordinal) {
    Call call{"cuDevicePrimaryCtxReset_v2", Needs::nothing};
    if (!call) {
        return call.result();
    }
    Device* const device = Devices::instance().at(ordinal);
    if (device == nullptr) {
        return call.end(CUDA_ERROR_INVALID_DEVICE);
    }
    clear_sticky_error();
    if (device->primary != nullptr) {
        wait_all(device->primary->outstanding());
        Devices::instance().destroy_context(device->primary->handle());
        device->primary.reset();
        device->primary_users = 0;
    }
    return call.end(CUDA_SUCCESS);
}

CUresult CUDAAPI cuDevicePrimaryCtxReset(CUdevice ordinal) {
    return cuDevicePrimaryCtxReset_v2(ordinal);
}

CUresult CUDAAPI cuDevicePrimaryCtxSetFlags_v2(CUdevice ordinal, unsigned int flags) {
    Call call{"cuDevicePrimaryCtxSetFlags_v2", Needs::driver};
    if (!call) {
        return call.result();
    }
    Device* const device = Devices::instance().at(ordinal);
    if (device == nullptr) {
        return call.end(CUDA_ERROR_INVALID_DEVICE);
    }
    device->primary_flags = flags;
    return call.end(CUDA_SUCCESS);
}

CUresult CUDAAPI cuDevicePrimaryCtxSetFlags(CUdevice ordinal, unsigned int flags) {
    return cuDevicePrimaryCtxSetFlags_v2(ordinal, flags);
}

CUresult CUDAAPI cuDevicePrimaryCtxGetState(CUdevice ordinal, unsigned int* flags, int* active) {
    Call call{"cuDevicePrimaryCtxGetState", Needs::driver};
    if (!call) {
        return call.result();
    }
    const Device* const device = Devices::instance().at(ordinal);
    if (device == nullptr || flags == nullptr || active == nullptr) {
        return call.end(device == nullptr ? CUDA_ERROR_INVALID_DEVICE : CUDA_ERROR_INVALID_VALUE);
    }
    *flags = device->primary_flags;
    *active = device->primary_users > 0 ? 1 : 0;
    return call.end(CUDA_SUCCESS);
}

}  // extern "C"
