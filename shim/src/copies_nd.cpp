// Copies of boxes: pitched ones of two and three dimensions, between devices, and batches of them.
#include "transit/hooks.hpp"
#include "transit/real.hpp"

namespace transit {
namespace {

enum class Kind : std::uint8_t { kHost, kDevice, kUnified, kArray };

// One end of a copy: where its first byte is, and how far apart rows and slices are.
struct End {
    Kind kind;
    CUdeviceptr start;
    std::size_t pitch;
    std::size_t slice;
};

struct Box {
    End to;
    End from;
    std::size_t width;
    std::size_t height;
    std::size_t depth;
};

Kind kind_of(CUmemorytype type) noexcept {
    switch (type) {
    case CU_MEMORYTYPE_HOST:
        return Kind::kHost;
    case CU_MEMORYTYPE_DEVICE:
        return Kind::kDevice;
    case CU_MEMORYTYPE_UNIFIED:
        return Kind::kUnified;
    default:
        return Kind::kArray;
    }
}

struct Corner {
    std::size_t x_bytes, y, z;
};

// No pitch, and no height of a slice, mean that rows and slices follow each other.
End end(CUmemorytype type, const void* host, CUdeviceptr device, Corner corner, std::size_t pitch,
        std::size_t rows) noexcept {
    const CUdeviceptr base =
        type == CU_MEMORYTYPE_HOST ? reinterpret_cast<CUdeviceptr>(host) : device;
    const std::size_t slice = pitch * rows;
    return {kind_of(type), base + corner.z * slice + corner.y * pitch + corner.x_bytes, pitch,
            slice};
}

std::size_t either(std::size_t told, std::size_t otherwise) noexcept {
    return told != 0 ? told : otherwise;
}

Box box(const CUDA_MEMCPY2D& c) noexcept {
    return {end(c.dstMemoryType, c.dstHost, c.dstDevice, {c.dstXInBytes, c.dstY, 0},
                either(c.dstPitch, c.dstXInBytes + c.WidthInBytes), 0),
            end(c.srcMemoryType, c.srcHost, c.srcDevice, {c.srcXInBytes, c.srcY, 0},
                either(c.srcPitch, c.srcXInBytes + c.WidthInBytes), 0),
            c.WidthInBytes, c.Height, 1};
}

// CUDA_MEMCPY3D, and the form between two devices.
template <typename Copy>
Box box(const Copy& c) noexcept {
    return {end(c.dstMemoryType, c.dstHost, c.dstDevice, {c.dstXInBytes, c.dstY, c.dstZ},
                either(c.dstPitch, c.dstXInBytes + c.WidthInBytes),
                either(c.dstHeight, c.dstY + c.Height)),
            end(c.srcMemoryType, c.srcHost, c.srcDevice, {c.srcXInBytes, c.srcY, c.srcZ},
                either(c.srcPitch, c.srcXInBytes + c.WidthInBytes),
                either(c.srcHeight, c.srcY + c.Height)),
            c.WidthInBytes, c.Height, c.Depth};
}

// Lengths are in elements: bytes between two pointers, up to 16 of them where an array takes part.
End end(const CUmemcpy3DOperand& operand, const CUextent3D& extent, std::size_t element) noexcept {
    if (operand.type != CU_MEMCPY_OPERAND_TYPE_POINTER) return {Kind::kArray, 0, 0, 0};
    const std::size_t pitch = either(operand.op.ptr.rowLength, extent.width) * element;
    return {Kind::kUnified, operand.op.ptr.ptr, pitch,
            pitch * either(operand.op.ptr.layerHeight, extent.height)};
}

Box box(const CUDA_MEMCPY3D_BATCH_OP& c) noexcept {
    constexpr std::size_t kMostElementBytes = 16;
    const bool pointers = c.src.type == CU_MEMCPY_OPERAND_TYPE_POINTER &&
                          c.dst.type == CU_MEMCPY_OPERAND_TYPE_POINTER;
    const std::size_t element = pointers ? 1 : kMostElementBytes;
    return {end(c.dst, c.extent, element), end(c.src, c.extent, element), c.extent.width * element,
            c.extent.height, c.extent.depth};
}

// From the first byte to the last.
Span span_of(const End& end, const Box& box) noexcept {
    if (end.kind == Kind::kHost || end.kind == Kind::kArray) return {0, 0};
    if (box.width == 0 || box.height == 0 || box.depth == 0) return {0, 0};
    return {end.start, (box.depth - 1) * end.slice + (box.height - 1) * end.pitch + box.width};
}

void note_row(const Box& box, CUdeviceptr to, CUdeviceptr from) noexcept {
    if (box.from.kind == Kind::kHost)
        note_host_data(to, reinterpret_cast<const void*>(from), box.width);
    else if (box.from.kind == Kind::kDevice)
        note_device_copy(to, from, box.width);
    else
        note_unified(to, from, box.width);
}

// Row by row: what lies between the rows is neither read nor written. What comes from an array
// leaves the tables there were: how far it reaches is not known to the byte.
void note(const Box& box) noexcept {
    if (box.to.kind == Kind::kHost || box.to.kind == Kind::kArray || box.from.kind == Kind::kArray)
        return;
    for (std::size_t z = 0; z < box.depth; ++z)
        for (std::size_t y = 0; y < box.height; ++y)
            note_row(box, box.to.start + z * box.to.slice + y * box.to.pitch,
                     box.from.start + z * box.from.slice + y * box.from.pitch);
}

template <typename Copy, typename Call>
CUresult copy_boxes(const Copy* copies, std::size_t count, CUstream stream, bool per_thread,
                    Call&& call) noexcept {
    Device* device = Device::active();
    if (copies == nullptr || device == nullptr) return call();
    for (std::size_t i = 0; i < count; ++i)
        note(box(copies[i]));
    Submission work(*device, stream, per_thread);
    for (std::size_t i = 0; i < count; ++i) {
        const Box one = box(copies[i]);
        for (const Span& span : {span_of(one.to, one), span_of(one.from, one)})
            work.range(span.address, span.bytes);
    }
    return carry_out(work, std::forward<Call>(call));
}

template <typename Copy, typename Call>
CUresult copy_box(const Copy* copy, CUstream stream, bool per_thread, Call&& call) noexcept {
    return copy_boxes(copy, 1, stream, per_thread, std::forward<Call>(call));
}

}  // namespace
}  // namespace transit

extern "C" {

CUresult hook_cuMemcpy2D_v2(const CUDA_MEMCPY2D* copy) {
    return transit::copy_box(copy, nullptr, false, [&] { return real_cuMemcpy2D_v2(copy); });
}

CUresult hook_cuMemcpy2DUnaligned_v2(const CUDA_MEMCPY2D* copy) {
    return transit::copy_box(copy, nullptr, false,
                             [&] { return real_cuMemcpy2DUnaligned_v2(copy); });
}

CUresult hook_cuMemcpy3D_v2(const CUDA_MEMCPY3D* copy) {
    return transit::copy_box(copy, nullptr, false, [&] { return real_cuMemcpy3D_v2(copy); });
}

CUresult hook_cuMemcpy2D_v2_ptds(const CUDA_MEMCPY2D* copy) {
    return transit::copy_box(copy, nullptr, true, [&] { return real_cuMemcpy2D_v2_ptds(copy); });
}

CUresult hook_cuMemcpy2DUnaligned_v2_ptds(const CUDA_MEMCPY2D* copy) {
    return transit::copy_box(copy, nullptr, true,
                             [&] { return real_cuMemcpy2DUnaligned_v2_ptds(copy); });
}

CUresult hook_cuMemcpy3D_v2_ptds(const CUDA_MEMCPY3D* copy) {
    return transit::copy_box(copy, nullptr, true, [&] { return real_cuMemcpy3D_v2_ptds(copy); });
}

CUresult hook_cuMemcpy2DAsync_v2(const CUDA_MEMCPY2D* copy, CUstream stream) {
    return transit::copy_box(copy, stream, false,
                             [&] { return real_cuMemcpy2DAsync_v2(copy, stream); });
}

CUresult hook_cuMemcpy3DAsync_v2(const CUDA_MEMCPY3D* copy, CUstream stream) {
    return transit::copy_box(copy, stream, false,
                             [&] { return real_cuMemcpy3DAsync_v2(copy, stream); });
}

CUresult hook_cuMemcpy2DAsync_v2_ptsz(const CUDA_MEMCPY2D* copy, CUstream stream) {
    return transit::copy_box(copy, stream, true,
                             [&] { return real_cuMemcpy2DAsync_v2_ptsz(copy, stream); });
}

CUresult hook_cuMemcpy3DAsync_v2_ptsz(const CUDA_MEMCPY3D* copy, CUstream stream) {
    return transit::copy_box(copy, stream, true,
                             [&] { return real_cuMemcpy3DAsync_v2_ptsz(copy, stream); });
}

CUresult hook_cuMemcpy3DPeer(const CUDA_MEMCPY3D_PEER* copy) {
    return transit::copy_box(copy, nullptr, false, [&] { return real_cuMemcpy3DPeer(copy); });
}

CUresult hook_cuMemcpy3DPeer_ptds(const CUDA_MEMCPY3D_PEER* copy) {
    return transit::copy_box(copy, nullptr, true, [&] { return real_cuMemcpy3DPeer_ptds(copy); });
}

CUresult hook_cuMemcpy3DPeerAsync(const CUDA_MEMCPY3D_PEER* copy, CUstream stream) {
    return transit::copy_box(copy, stream, false,
                             [&] { return real_cuMemcpy3DPeerAsync(copy, stream); });
}

CUresult hook_cuMemcpy3DWithAttributesAsync(CUDA_MEMCPY3D_BATCH_OP* copy, unsigned long long flags,
                                            CUstream stream) {
    return transit::copy_box(copy, stream, false, [&] {
        return real_cuMemcpy3DWithAttributesAsync(copy, flags, stream);
    });
}

CUresult hook_cuMemcpy3DBatchAsync(size_t count, CUDA_MEMCPY3D_BATCH_OP* copies, size_t* failed,
                                   unsigned long long flags, CUstream stream) {
    return transit::copy_boxes(copies, count, stream, false, [&] {
        return real_cuMemcpy3DBatchAsync(count, copies, failed, flags, stream);
    });
}

CUresult hook_cuMemcpy3DBatchAsync_v2(size_t count, CUDA_MEMCPY3D_BATCH_OP* copies,
                                      unsigned long long flags, CUstream stream) {
    return transit::copy_boxes(copies, count, stream, false, [&] {
        return real_cuMemcpy3DBatchAsync_v2(count, copies, flags, stream);
    });
}

CUresult hook_cuMemcpy3DPeerAsync_ptsz(const CUDA_MEMCPY3D_PEER* copy, CUstream stream) {
    return transit::copy_box(copy, stream, true,
                             [&] { return real_cuMemcpy3DPeerAsync_ptsz(copy, stream); });
}

CUresult hook_cuMemcpy3DWithAttributesAsync_ptsz(CUDA_MEMCPY3D_BATCH_OP* copy,
                                                 unsigned long long flags, CUstream stream) {
    return transit::copy_box(copy, stream, true, [&] {
        return real_cuMemcpy3DWithAttributesAsync_ptsz(copy, flags, stream);
    });
}

CUresult hook_cuMemcpy3DBatchAsync_ptsz(size_t count, CUDA_MEMCPY3D_BATCH_OP* copies,
                                        size_t* failed, unsigned long long flags, CUstream stream) {
    return transit::copy_boxes(copies, count, stream, true, [&] {
        return real_cuMemcpy3DBatchAsync_ptsz(count, copies, failed, flags, stream);
    });
}

CUresult hook_cuMemcpy3DBatchAsync_v2_ptsz(size_t count, CUDA_MEMCPY3D_BATCH_OP* copies,
                                           unsigned long long flags, CUstream stream) {
    return transit::copy_boxes(copies, count, stream, true, [&] {
        return real_cuMemcpy3DBatchAsync_v2_ptsz(count, copies, flags, stream);
    });
}

}  // extern "C"
