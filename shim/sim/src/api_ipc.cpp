// Legacy CUDA IPC: only for what cuMemAlloc gave, never for VMM or pool memory.
#include <fcntl.h>
#include <unistd.h>

#include <cstdio>
#include <cstring>

#include "address_space.hpp"
#include "call.hpp"

namespace transit::sim {
namespace {

constexpr std::uint64_t kMagic = 0x54524e5349504331U;

// What the 64 bytes of a handle hold: where another process finds the memory.
struct Shared {
    std::uint64_t magic;
    std::int64_t pid;
    std::int64_t fd;
    std::uint64_t offset;
    std::uint64_t mapped_bytes;
    std::uint64_t bytes;
};
static_assert(sizeof(Shared) <= sizeof(CUipcMemHandle));

}  // namespace
}  // namespace transit::sim

using namespace transit::sim;

extern "C" {

CUresult CUDAAPI cuIpcGetMemHandle(CUipcMemHandle* handle, CUdeviceptr address) {
    Call call{"cuIpcGetMemHandle", Needs::context};
    call.at("address", address);
    if (!call) {
        return call.result();
    }
    const auto info = AddressSpace::instance().find(address);
    if (handle == nullptr || !info || info->kind != PointerInfo::Kind::allocation ||
        info->pool != nullptr || info->imported) {
        return call.end(CUDA_ERROR_INVALID_VALUE);
    }
    const Shared shared{
        kMagic,     getpid(), info->frame->fd(), info->frame->offset(), info->frame->bytes(),
        info->bytes};
    std::memset(handle, 0, sizeof *handle);
    std::memcpy(handle, &shared, sizeof shared);
    return call.end(CUDA_SUCCESS);
}

CUresult CUDAAPI cuIpcOpenMemHandle_v2(CUdeviceptr* address, CUipcMemHandle handle, unsigned int) {
    Call call{"cuIpcOpenMemHandle_v2", Needs::context};
    if (!call) {
        return call.result();
    }
    Shared shared{};
    std::memcpy(&shared, &handle, sizeof shared);
    // The driver refuses a process its own handle.
    if (address == nullptr || shared.magic != kMagic || shared.pid == getpid()) {
        return call.end(CUDA_ERROR_INVALID_VALUE);
    }
    char path[64];
    std::snprintf(path, sizeof path, "/proc/%lld/fd/%lld", static_cast<long long>(shared.pid),
                  static_cast<long long>(shared.fd));
    const int fd = open(path, O_RDWR | O_CLOEXEC);
    if (fd < 0) {
        return call.end(CUDA_ERROR_INVALID_VALUE);
    }
    auto frame = PhysicalStore::instance().adopt(fd, shared.offset, shared.mapped_bytes, true);
    *address =
        AddressSpace::instance().add_allocation(std::move(frame), shared.bytes, nullptr, true);
    call.at("address", *address).note("bytes", shared.bytes);
    return call.end(*address != 0 ? CUDA_SUCCESS : CUDA_ERROR_OUT_OF_MEMORY);
}

CUresult CUDAAPI cuIpcOpenMemHandle(CUdeviceptr* address, CUipcMemHandle handle,
                                    unsigned int flags) {
    return cuIpcOpenMemHandle_v2(address, handle, flags);
}

CUresult CUDAAPI cuIpcCloseMemHandle(CUdeviceptr address) {
    Call call{"cuIpcCloseMemHandle", Needs::context};
    call.at("address", address);
    if (!call) {
        return call.result();
    }
    const auto info = AddressSpace::instance().allocation_starting_at(address);
    const bool closed =
        info && info->imported && AddressSpace::instance().remove_allocation(address);
    return call.end(closed ? CUDA_SUCCESS : CUDA_ERROR_INVALID_VALUE);
}

}  // extern "C"
