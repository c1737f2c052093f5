// Copies of one range, and batches of them: the ranges are in the arguments.
#include "transit/hooks.hpp"
#include "transit/real.hpp"
#include "transit/stats.hpp"

namespace transit {
namespace {

// A unified copy may have a host address on either side; only the driver knows.
bool is_host(CUdeviceptr address) noexcept {
    CUmemorytype type{};
    const CUresult result =
        real_cuPointerGetAttribute(&type, CU_POINTER_ATTRIBUTE_MEMORY_TYPE, address);
    return result != CUDA_SUCCESS || type == CU_MEMORYTYPE_HOST;
}

}  // namespace

void note_unified(CUdeviceptr to, CUdeviceptr from, std::size_t bytes) noexcept {
    Device* device = Device::active();
    if (device == nullptr) return;
    if (device->owns(from) || !is_host(from)) return note_device_copy(to, from, bytes);
    note_host_data(to, reinterpret_cast<const void*>(from), bytes);
}

namespace {

template <typename Call>
CUresult batch(const CUdeviceptr* to, const CUdeviceptr* from, const std::size_t* bytes,
               std::size_t count, CUstream stream, bool per_thread, Call&& call) noexcept {
    Device* device = Device::active();
    if (device == nullptr) return call();
    for (std::size_t i = 0; i < count; ++i)
        note_unified(to[i], from[i], bytes[i]);
    Submission work(*device, stream, per_thread);
    for (std::size_t i = 0; i < count; ++i) {
        work.range(to[i], bytes[i]);
        work.range(from[i], bytes[i]);
    }
    return carry_out(work, std::forward<Call>(call));
}

}  // namespace
}  // namespace transit

using transit::submit;

extern "C" {

CUresult hook_cuMemcpy(CUdeviceptr to, CUdeviceptr from, size_t bytes) {
    transit::note_unified(to, from, bytes);
    return submit(nullptr, false, {{to, bytes}, {from, bytes}},
                  [&] { return real_cuMemcpy(to, from, bytes); });
}

CUresult hook_cuMemcpyHtoD_v2(CUdeviceptr to, const void* from, size_t bytes) {
    transit::note_host_data(to, from, bytes);
    return submit(nullptr, false, {{to, bytes}},
                  [&] { return real_cuMemcpyHtoD_v2(to, from, bytes); });
}

CUresult hook_cuMemcpyDtoH_v2(void* to, CUdeviceptr from, size_t bytes) {
    return submit(nullptr, false, {{from, bytes}},
                  [&] { return real_cuMemcpyDtoH_v2(to, from, bytes); });
}

CUresult hook_cuMemcpyDtoD_v2(CUdeviceptr to, CUdeviceptr from, size_t bytes) {
    transit::note_device_copy(to, from, bytes);
    return submit(nullptr, false, {{to, bytes}, {from, bytes}},
                  [&] { return real_cuMemcpyDtoD_v2(to, from, bytes); });
}

CUresult hook_cuMemcpyPeer(CUdeviceptr to, CUcontext to_context, CUdeviceptr from,
                           CUcontext from_context, size_t bytes) {
    transit::note_device_copy(to, from, bytes);
    return submit(nullptr, false, {{to, bytes}, {from, bytes}},
                  [&] { return real_cuMemcpyPeer(to, to_context, from, from_context, bytes); });
}

CUresult hook_cuMemcpy_ptds(CUdeviceptr to, CUdeviceptr from, size_t bytes) {
    transit::note_unified(to, from, bytes);
    return submit(nullptr, true, {{to, bytes}, {from, bytes}},
                  [&] { return real_cuMemcpy_ptds(to, from, bytes); });
}

CUresult hook_cuMemcpyHtoD_v2_ptds(CUdeviceptr to, const void* from, size_t bytes) {
    transit::note_host_data(to, from, bytes);
    return submit(nullptr, true, {{to, bytes}},
                  [&] { return real_cuMemcpyHtoD_v2_ptds(to, from, bytes); });
}

CUresult hook_cuMemcpyDtoH_v2_ptds(void* to, CUdeviceptr from, size_t bytes) {
    return submit(nullptr, true, {{from, bytes}},
                  [&] { return real_cuMemcpyDtoH_v2_ptds(to, from, bytes); });
}

CUresult hook_cuMemcpyDtoD_v2_ptds(CUdeviceptr to, CUdeviceptr from, size_t bytes) {
    transit::note_device_copy(to, from, bytes);
    return submit(nullptr, true, {{to, bytes}, {from, bytes}},
                  [&] { return real_cuMemcpyDtoD_v2_ptds(to, from, bytes); });
}

CUresult hook_cuMemcpyPeer_ptds(CUdeviceptr to, CUcontext to_context, CUdeviceptr from,
                                CUcontext from_context, size_t bytes) {
    transit::note_device_copy(to, from, bytes);
    return submit(nullptr, true, {{to, bytes}, {from, bytes}}, [&] {
        return real_cuMemcpyPeer_ptds(to, to_context, from, from_context, bytes);
    });
}

CUresult hook_cuMemcpyAsync(CUdeviceptr to, CUdeviceptr from, size_t bytes, CUstream stream) {
    transit::note_unified(to, from, bytes);
    return submit(stream, false, {{to, bytes}, {from, bytes}},
                  [&] { return real_cuMemcpyAsync(to, from, bytes, stream); });
}

CUresult hook_cuMemcpyHtoDAsync_v2(CUdeviceptr to, const void* from, size_t bytes,
                                   CUstream stream) {
    transit::note_host_data(to, from, bytes);
    return submit(stream, false, {{to, bytes}},
                  [&] { return real_cuMemcpyHtoDAsync_v2(to, from, bytes, stream); });
}

CUresult hook_cuMemcpyDtoHAsync_v2(void* to, CUdeviceptr from, size_t bytes, CUstream stream) {
    return submit(stream, false, {{from, bytes}},
                  [&] { return real_cuMemcpyDtoHAsync_v2(to, from, bytes, stream); });
}

CUresult hook_cuMemcpyDtoDAsync_v2(CUdeviceptr to, CUdeviceptr from, size_t bytes,
                                   CUstream stream) {
    transit::note_device_copy(to, from, bytes);
    return submit(stream, false, {{to, bytes}, {from, bytes}},
                  [&] { return real_cuMemcpyDtoDAsync_v2(to, from, bytes, stream); });
}

CUresult hook_cuMemcpyPeerAsync(CUdeviceptr to, CUcontext to_context, CUdeviceptr from,
                                CUcontext from_context, size_t bytes, CUstream stream) {
    transit::note_device_copy(to, from, bytes);
    return submit(stream, false, {{to, bytes}, {from, bytes}}, [&] {
        return real_cuMemcpyPeerAsync(to, to_context, from, from_context, bytes, stream);
    });
}

CUresult hook_cuMemcpyBatchAsync(CUdeviceptr* to, CUdeviceptr* from, size_t* bytes, size_t count,
                                 CUmemcpyAttributes* attributes, size_t* indices,
                                 size_t attribute_count, size_t* failed, CUstream stream) {
    return transit::batch(to, from, bytes, count, stream, false, [&] {
        return real_cuMemcpyBatchAsync(to, from, bytes, count, attributes, indices, attribute_count,
                                       failed, stream);
    });
}

CUresult hook_cuMemcpyBatchAsync_v2(CUdeviceptr* to, CUdeviceptr* from, size_t* bytes, size_t count,
                                    CUmemcpyAttributes* attributes, size_t* indices,
                                    size_t attribute_count, CUstream stream) {
    return transit::batch(to, from, bytes, count, stream, false, [&] {
        return real_cuMemcpyBatchAsync_v2(to, from, bytes, count, attributes, indices,
                                          attribute_count, stream);
    });
}

CUresult hook_cuMemcpyAsync_ptsz(CUdeviceptr to, CUdeviceptr from, size_t bytes, CUstream stream) {
    transit::note_unified(to, from, bytes);
    return submit(stream, true, {{to, bytes}, {from, bytes}},
                  [&] { return real_cuMemcpyAsync_ptsz(to, from, bytes, stream); });
}

CUresult hook_cuMemcpyHtoDAsync_v2_ptsz(CUdeviceptr to, const void* from, size_t bytes,
                                        CUstream stream) {
    transit::note_host_data(to, from, bytes);
    return submit(stream, true, {{to, bytes}},
                  [&] { return real_cuMemcpyHtoDAsync_v2_ptsz(to, from, bytes, stream); });
}

CUresult hook_cuMemcpyDtoHAsync_v2_ptsz(void* to, CUdeviceptr from, size_t bytes, CUstream stream) {
    return submit(stream, true, {{from, bytes}},
                  [&] { return real_cuMemcpyDtoHAsync_v2_ptsz(to, from, bytes, stream); });
}

CUresult hook_cuMemcpyDtoDAsync_v2_ptsz(CUdeviceptr to, CUdeviceptr from, size_t bytes,
                                        CUstream stream) {
    transit::note_device_copy(to, from, bytes);
    return submit(stream, true, {{to, bytes}, {from, bytes}},
                  [&] { return real_cuMemcpyDtoDAsync_v2_ptsz(to, from, bytes, stream); });
}

CUresult hook_cuMemcpyPeerAsync_ptsz(CUdeviceptr to, CUcontext to_context, CUdeviceptr from,
                                     CUcontext from_context, size_t bytes, CUstream stream) {
    transit::note_device_copy(to, from, bytes);
    return submit(stream, true, {{to, bytes}, {from, bytes}}, [&] {
        return real_cuMemcpyPeerAsync_ptsz(to, to_context, from, from_context, bytes, stream);
    });
}

CUresult hook_cuMemcpyBatchAsync_ptsz(CUdeviceptr* to, CUdeviceptr* from, size_t* bytes,
                                      size_t count, CUmemcpyAttributes* attributes, size_t* indices,
                                      size_t attribute_count, size_t* failed, CUstream stream) {
    return transit::batch(to, from, bytes, count, stream, true, [&] {
        return real_cuMemcpyBatchAsync_ptsz(to, from, bytes, count, attributes, indices,
                                            attribute_count, failed, stream);
    });
}

CUresult hook_cuMemcpyBatchAsync_v2_ptsz(CUdeviceptr* to, CUdeviceptr* from, size_t* bytes,
                                         size_t count, CUmemcpyAttributes* attributes,
                                         size_t* indices, size_t attribute_count, CUstream stream) {
    return transit::batch(to, from, bytes, count, stream, true, [&] {
        return real_cuMemcpyBatchAsync_v2_ptsz(to, from, bytes, count, attributes, indices,
                                               attribute_count, stream);
    });
}

CUresult hook_cuMemcpyWithAttributesAsync(CUdeviceptr to, CUdeviceptr from, size_t bytes,
                                          CUmemcpyAttributes* attributes, CUstream stream) {
    transit::note_unified(to, from, bytes);
    return submit(stream, false, {{to, bytes}, {from, bytes}}, [&] {
        return real_cuMemcpyWithAttributesAsync(to, from, bytes, attributes, stream);
    });
}

CUresult hook_cuMemcpyWithAttributesAsync_ptsz(CUdeviceptr to, CUdeviceptr from, size_t bytes,
                                               CUmemcpyAttributes* attributes, CUstream stream) {
    transit::note_unified(to, from, bytes);
    return submit(stream, true, {{to, bytes}, {from, bytes}}, [&] {
        return real_cuMemcpyWithAttributesAsync_ptsz(to, from, bytes, attributes, stream);
    });
}

// Arrays are not managed, and count as data without addresses.
// The first ABIs take addresses of 32 bits, which ours never are.
CUresult hook_cuMemcpyAtoD_v2(CUdeviceptr to, CUarray from, size_t offset, size_t bytes) {
    transit::note_overwrite(to, bytes);
    return submit(nullptr, false, {{to, bytes}},
                  [&] { return real_cuMemcpyAtoD_v2(to, from, offset, bytes); });
}

CUresult hook_cuMemcpyDtoA_v2(CUarray to, size_t offset, CUdeviceptr from, size_t bytes) {
    return submit(nullptr, false, {{from, bytes}},
                  [&] { return real_cuMemcpyDtoA_v2(to, offset, from, bytes); });
}

CUresult hook_cuMemcpyAtoD_v2_ptds(CUdeviceptr to, CUarray from, size_t offset, size_t bytes) {
    transit::note_overwrite(to, bytes);
    return submit(nullptr, true, {{to, bytes}},
                  [&] { return real_cuMemcpyAtoD_v2_ptds(to, from, offset, bytes); });
}

CUresult hook_cuMemcpyDtoA_v2_ptds(CUarray to, size_t offset, CUdeviceptr from, size_t bytes) {
    return submit(nullptr, true, {{from, bytes}},
                  [&] { return real_cuMemcpyDtoA_v2_ptds(to, offset, from, bytes); });
}

}  // extern "C"
