// Copies and fills: the ranges are in the arguments.
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

void note_unified(CUdeviceptr to, CUdeviceptr from, std::size_t bytes) noexcept {
    Device* device = Device::active();
    if (device == nullptr) return;
    if (device->owns(from) || !is_host(from)) return note_device_copy(to, from, bytes);
    note_host_data(to, reinterpret_cast<const void*>(from), bytes);
}

// The bytes between the first and the last that a pitched copy touches, from the start of its
// array.
template <typename Copy>
Span span_of(CUmemorytype type, CUdeviceptr address, std::size_t pitch, std::size_t rows,
             const Copy& copy) noexcept {
    if (type != CU_MEMORYTYPE_DEVICE && type != CU_MEMORYTYPE_UNIFIED) return {0, 0};
    return {address, pitch == 0 ? copy.WidthInBytes : pitch * rows};
}

Span source(const CUDA_MEMCPY2D& c) noexcept {
    return span_of(c.srcMemoryType, c.srcDevice, c.srcPitch, c.srcY + c.Height, c);
}
Span target(const CUDA_MEMCPY2D& c) noexcept {
    return span_of(c.dstMemoryType, c.dstDevice, c.dstPitch, c.dstY + c.Height, c);
}
Span source(const CUDA_MEMCPY3D& c) noexcept {
    return span_of(c.srcMemoryType, c.srcDevice, c.srcPitch,
                   c.srcHeight * (c.srcZ + c.Depth) + c.srcY + c.Height, c);
}
Span target(const CUDA_MEMCPY3D& c) noexcept {
    return span_of(c.dstMemoryType, c.dstDevice, c.dstPitch,
                   c.dstHeight * (c.dstZ + c.Depth) + c.dstY + c.Height, c);
}

std::size_t depth_of(const CUDA_MEMCPY2D&) noexcept { return 1; }
std::size_t depth_of(const CUDA_MEMCPY3D& c) noexcept { return c.Depth; }
std::size_t slice(std::size_t, std::size_t, const CUDA_MEMCPY2D&, bool) noexcept { return 0; }
std::size_t slice(std::size_t z, std::size_t pitch, const CUDA_MEMCPY3D& c, bool from) noexcept {
    return from ? (c.srcZ + z) * pitch * c.srcHeight : (c.dstZ + z) * pitch * c.dstHeight;
}

// Row by row: what lies between the rows is neither read nor written.
template <typename Copy>
void note_pitched(const Copy& c) noexcept {
    if (c.dstMemoryType != CU_MEMORYTYPE_DEVICE && c.dstMemoryType != CU_MEMORYTYPE_UNIFIED) return;
    const bool from_host = c.srcMemoryType == CU_MEMORYTYPE_HOST;
    const CUdeviceptr source = from_host ? reinterpret_cast<CUdeviceptr>(c.srcHost) : c.srcDevice;
    for (std::size_t z = 0; z < depth_of(c); ++z) {
        for (std::size_t y = 0; y < c.Height; ++y) {
            const CUdeviceptr to = c.dstDevice + slice(z, c.dstPitch, c, false) +
                                   (c.dstY + y) * c.dstPitch + c.dstXInBytes;
            const CUdeviceptr from =
                source + slice(z, c.srcPitch, c, true) + (c.srcY + y) * c.srcPitch + c.srcXInBytes;
            if (from_host) note_host_data(to, reinterpret_cast<const void*>(from), c.WidthInBytes);
            if (c.srcMemoryType == CU_MEMORYTYPE_DEVICE) note_device_copy(to, from, c.WidthInBytes);
            if (c.srcMemoryType == CU_MEMORYTYPE_UNIFIED) note_unified(to, from, c.WidthInBytes);
        }
    }
}

template <typename Copy, typename Call>
CUresult pitched(const Copy* copy, CUstream stream, bool per_thread, Call&& call) noexcept {
    if (copy == nullptr || Device::active() == nullptr) return call();
    note_pitched(*copy);
    return submit(stream, per_thread, {target(*copy), source(*copy)}, std::forward<Call>(call));
}

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
    if (const CUresult refused = work.open(Submission::Operands::kInPlace)) return refused;
    const CUresult result = call();
    work.close();
    return result;
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

CUresult hook_cuMemcpy2D_v2(const CUDA_MEMCPY2D* copy) {
    return transit::pitched(copy, nullptr, false, [&] { return real_cuMemcpy2D_v2(copy); });
}

CUresult hook_cuMemcpy2DUnaligned_v2(const CUDA_MEMCPY2D* copy) {
    return transit::pitched(copy, nullptr, false,
                            [&] { return real_cuMemcpy2DUnaligned_v2(copy); });
}

CUresult hook_cuMemcpy3D_v2(const CUDA_MEMCPY3D* copy) {
    return transit::pitched(copy, nullptr, false, [&] { return real_cuMemcpy3D_v2(copy); });
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

CUresult hook_cuMemcpy2D_v2_ptds(const CUDA_MEMCPY2D* copy) {
    return transit::pitched(copy, nullptr, true, [&] { return real_cuMemcpy2D_v2_ptds(copy); });
}

CUresult hook_cuMemcpy2DUnaligned_v2_ptds(const CUDA_MEMCPY2D* copy) {
    return transit::pitched(copy, nullptr, true,
                            [&] { return real_cuMemcpy2DUnaligned_v2_ptds(copy); });
}

CUresult hook_cuMemcpy3D_v2_ptds(const CUDA_MEMCPY3D* copy) {
    return transit::pitched(copy, nullptr, true, [&] { return real_cuMemcpy3D_v2_ptds(copy); });
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

CUresult hook_cuMemcpy2DAsync_v2(const CUDA_MEMCPY2D* copy, CUstream stream) {
    return transit::pitched(copy, stream, false,
                            [&] { return real_cuMemcpy2DAsync_v2(copy, stream); });
}

CUresult hook_cuMemcpy3DAsync_v2(const CUDA_MEMCPY3D* copy, CUstream stream) {
    return transit::pitched(copy, stream, false,
                            [&] { return real_cuMemcpy3DAsync_v2(copy, stream); });
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

CUresult hook_cuMemcpy2DAsync_v2_ptsz(const CUDA_MEMCPY2D* copy, CUstream stream) {
    return transit::pitched(copy, stream, true,
                            [&] { return real_cuMemcpy2DAsync_v2_ptsz(copy, stream); });
}

CUresult hook_cuMemcpy3DAsync_v2_ptsz(const CUDA_MEMCPY3D* copy, CUstream stream) {
    return transit::pitched(copy, stream, true,
                            [&] { return real_cuMemcpy3DAsync_v2_ptsz(copy, stream); });
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

}  // extern "C"
