#include "transfer.hpp"

#include <cstring>
#include <memory>
#include <vector>

#include "address_space.hpp"
#include "capture.hpp"
#include "context.hpp"

namespace transit::sim {
namespace {

std::size_t extent_of(const Place3D& place, const Box& box) {
    return (box.depth - 1) * place.slice_pitch + (box.height - 1) * place.pitch + box.width;
}

void copy_box(const Place3D& dst, const Place3D& src, const Box& box) {
    for (std::size_t z = 0; z < box.depth; ++z) {
        for (std::size_t y = 0; y < box.height; ++y) {
            std::memmove(
                reinterpret_cast<void*>(dst.address + z * dst.slice_pitch + y * dst.pitch),
                reinterpret_cast<const void*>(src.address + z * src.slice_pitch + y * src.pitch),
                box.width);
        }
    }
}

// What one end of a copy is.
struct End {
    bool valid;
    bool host;
    bool pageable;
};

End look_at(const Place3D& place, Side side, const Box& box) {
    AddressSpace& space = AddressSpace::instance();
    const bool device = space.is_device_range(place.address, extent_of(place, box));
    const bool locked = space.is_page_locked(place.address);
    switch (side) {
    case Side::device:
        return {device || locked, locked, false};
    case Side::host:
        return {place.address != 0, true, !locked && !device};
    default:
        return {place.address != 0, !device, !locked && !device};
    }
}

bool layout_fits(const Place3D& place, const Box& box) {
    return (box.height <= 1 || place.pitch >= box.width) &&
           (box.depth <= 1 || place.slice_pitch >= place.pitch);
}

}  // namespace

CUresult transfer(const Place3D& dst, Side dst_side, const Place3D& src, Side src_side, Box box,
                  CUstream handle, Returns returns) {
    const StreamRef stream = resolve_stream(handle);
    if (stream == nullptr) {
        return CUDA_ERROR_INVALID_HANDLE;
    }
    Captures& captures = Captures::instance();
    if (returns == Returns::when_done) {
        if (const CUresult refused = captures.check_unsafe(); refused != CUDA_SUCCESS) {
            return refused;
        }
    }
    if (box.width == 0 || box.height == 0 || box.depth == 0) {
        return CUDA_SUCCESS;
    }
    const End to = look_at(dst, dst_side, box);
    const End from = look_at(src, src_side, box);
    if (!to.valid || !from.valid || !layout_fits(dst, box) || !layout_fits(src, box)) {
        return CUDA_ERROR_INVALID_VALUE;
    }
    Node node{CU_GRAPH_NODE_TYPE_MEMCPY, "copy", [dst, src, box] { copy_box(dst, src, box); }};
    const bool capturing = captures.capturing(stream);
    if (returns == Returns::at_once && from.pageable && !capturing) {
        // The driver stages pageable memory before it returns; the caller may overwrite it at once.
        const std::size_t bytes = extent_of(src, box);
        auto staged = std::make_shared<std::vector<unsigned char>>(bytes);
        std::memcpy(staged->data(), reinterpret_cast<const void*>(src.address), bytes);
        node.run = [dst, src, box, staged] {
            Place3D from_copy = src;
            from_copy.address = reinterpret_cast<CUdeviceptr>(staged->data());
            copy_box(dst, from_copy, box);
        };
    }
    if (const CUresult result = captures.dispatch(stream, std::move(node));
        result != CUDA_SUCCESS) {
        return result;
    }
    const bool host_waits =
        returns == Returns::when_done ? to.host || from.host : to.pageable && !capturing;
    return host_waits ? wait_all({{stream, stream->submitted()}}) : CUDA_SUCCESS;
}

CUresult fill(CUdeviceptr dst, std::size_t pitch, std::uint32_t value, unsigned element_bytes,
              std::size_t width, std::size_t height, CUstream handle, Returns returns) {
    const StreamRef stream = resolve_stream(handle);
    if (stream == nullptr) {
        return CUDA_ERROR_INVALID_HANDLE;
    }
    if (returns == Returns::when_done) {
        if (const CUresult refused = Captures::instance().check_unsafe(); refused != CUDA_SUCCESS) {
            return refused;
        }
    }
    if (width == 0 || height == 0) {
        return CUDA_SUCCESS;
    }
    const std::size_t row_bytes = width * element_bytes;
    const Place3D place{dst, pitch, 0};
    const Box box{row_bytes, height, 1};
    if (dst % element_bytes != 0 || !layout_fits(place, box) ||
        !look_at(place, Side::device, box).valid) {
        return CUDA_ERROR_INVALID_VALUE;
    }
    // A fill of device memory returns before it is done, in its synchronous form too.
    return Captures::instance().dispatch(
        stream, {CU_GRAPH_NODE_TYPE_MEMSET, "fill", [=] {
                     for (std::size_t y = 0; y < height; ++y) {
                         auto* const row = reinterpret_cast<unsigned char*>(dst + y * pitch);
                         for (std::size_t i = 0; i < row_bytes; i += element_bytes) {
                             std::memcpy(row + i, &value,
                                         element_bytes);  // little endian: the low bytes
                         }
                     }
                 }});
}

}  // namespace transit::sim
