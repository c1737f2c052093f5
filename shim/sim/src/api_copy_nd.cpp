// Copies of boxes and of batches. Arrays (textures) are not simulated.
#include "transfer.hpp"

namespace transit::sim {
namespace {

struct End {
    Place3D place;
    Side side;
    bool supported;
};

End end_of(CUmemorytype type, const void* host, CUdeviceptr device, std::size_t offset_bytes,
           std::size_t pitch, std::size_t slice_pitch) {
    const CUdeviceptr base =
        type == CU_MEMORYTYPE_HOST ? reinterpret_cast<CUdeviceptr>(host) : device;
    const Side side = type == CU_MEMORYTYPE_HOST     ? Side::host
                      : type == CU_MEMORYTYPE_DEVICE ? Side::device
                                                     : Side::either;
    return {{base + offset_bytes, pitch, slice_pitch}, side, type != CU_MEMORYTYPE_ARRAY};
}

CUresult copy_2d(const char* name, const CUDA_MEMCPY2D* copy, CUstream stream, Returns returns) {
    Call call{name, Needs::context};
    if (!call) {
        return call.result();
    }
    if (copy == nullptr) {
        return call.end(CUDA_ERROR_INVALID_VALUE);
    }
    const std::size_t src_pitch = copy->srcPitch != 0 ? copy->srcPitch : copy->WidthInBytes;
    const std::size_t dst_pitch = copy->dstPitch != 0 ? copy->dstPitch : copy->WidthInBytes;
    const End src = end_of(copy->srcMemoryType, copy->srcHost, copy->srcDevice,
                           copy->srcY * src_pitch + copy->srcXInBytes, src_pitch, 0);
    const End dst = end_of(copy->dstMemoryType, copy->dstHost, copy->dstDevice,
                           copy->dstY * dst_pitch + copy->dstXInBytes, dst_pitch, 0);
    call.at("dst", dst.place.address).at("src", src.place.address);
    call.note("width", copy->WidthInBytes).note("height", copy->Height).at("stream", stream);
    if (!src.supported || !dst.supported) {
        return call.end(CUDA_ERROR_NOT_SUPPORTED);
    }
    return call.end(transfer(dst.place, dst.side, src.place, src.side,
                             {copy->WidthInBytes, copy->Height, 1}, stream, returns));
}

// CUDA_MEMCPY3D, or the form between two devices.
template <class Copy>
CUresult copy_3d(const char* name, const Copy* copy, CUstream stream, Returns returns) {
    Call call{name, Needs::context};
    if (!call) {
        return call.result();
    }
    if (copy == nullptr) {
        return call.end(CUDA_ERROR_INVALID_VALUE);
    }
    const std::size_t src_pitch = copy->srcPitch != 0 ? copy->srcPitch : copy->WidthInBytes;
    const std::size_t dst_pitch = copy->dstPitch != 0 ? copy->dstPitch : copy->WidthInBytes;
    const std::size_t src_slice =
        src_pitch * (copy->srcHeight != 0 ? copy->srcHeight : copy->Height);
    const std::size_t dst_slice =
        dst_pitch * (copy->dstHeight != 0 ? copy->dstHeight : copy->Height);
    const End src = end_of(copy->srcMemoryType, copy->srcHost, copy->srcDevice,
                           copy->srcZ * src_slice + copy->srcY * src_pitch + copy->srcXInBytes,
                           src_pitch, src_slice);
    const End dst = end_of(copy->dstMemoryType, copy->dstHost, copy->dstDevice,
                           copy->dstZ * dst_slice + copy->dstY * dst_pitch + copy->dstXInBytes,
                           dst_pitch, dst_slice);
    call.at("dst", dst.place.address).at("src", src.place.address);
    call.note("width", copy->WidthInBytes).note("height", copy->Height).note("depth", copy->Depth);
    if (!src.supported || !dst.supported) {
        return call.end(CUDA_ERROR_NOT_SUPPORTED);
    }
    return call.end(transfer(dst.place, dst.side, src.place, src.side,
                             {copy->WidthInBytes, copy->Height, copy->Depth}, stream, returns));
}

CUresult copy_batch(const char* name, const CUdeviceptr* dsts, const CUdeviceptr* srcs,
                    const std::size_t* sizes, std::size_t count, std::size_t* failed_at,
                    CUstream stream) {
    Call call{name, Needs::context};
    call.note("count", count).at("stream", stream);
    if (!call) {
        return call.result();
    }
    // The driver does not take the legacy stream here.
    if (dsts == nullptr || srcs == nullptr || sizes == nullptr || count == 0 || stream == nullptr ||
        stream == CU_STREAM_LEGACY) {
        return call.end(CUDA_ERROR_INVALID_VALUE);
    }
    for (std::size_t i = 0; i < count; ++i) {
        const CUresult result = transfer(dsts[i], Side::either, srcs[i], Side::either, sizes[i],
                                         stream, Returns::at_once);
        if (result != CUDA_SUCCESS) {
            if (failed_at != nullptr) {
                *failed_at = i;
            }
            return call.end(result);
        }
    }
    return call.end(CUDA_SUCCESS);
}

Place3D place_of(const CUmemcpy3DOperand& operand, const CUextent3D& extent) {
    const std::size_t pitch =
        operand.op.ptr.rowLength != 0 ? operand.op.ptr.rowLength : extent.width;
    const std::size_t rows =
        operand.op.ptr.layerHeight != 0 ? operand.op.ptr.layerHeight : extent.height;
    return {operand.op.ptr.ptr, pitch, pitch * rows};
}

CUresult copy_3d_batch(const char* name, std::size_t count, const CUDA_MEMCPY3D_BATCH_OP* copies,
                       std::size_t* failed_at, CUstream stream) {
    Call call{name, Needs::context};
    call.note("count", count).at("stream", stream);
    if (!call) {
        return call.result();
    }
    if (copies == nullptr || count == 0 || stream == nullptr || stream == CU_STREAM_LEGACY) {
        return call.end(CUDA_ERROR_INVALID_VALUE);
    }
    for (std::size_t i = 0; i < count; ++i) {
        const CUDA_MEMCPY3D_BATCH_OP& copy = copies[i];
        const bool arrays = copy.src.type != CU_MEMCPY_OPERAND_TYPE_POINTER ||
                            copy.dst.type != CU_MEMCPY_OPERAND_TYPE_POINTER;
        const CUresult result =
            arrays ? CUDA_ERROR_NOT_SUPPORTED
                   : transfer(place_of(copy.dst, copy.extent), Side::either,
                              place_of(copy.src, copy.extent), Side::either,
                              {copy.extent.width, copy.extent.height, copy.extent.depth}, stream,
                              Returns::at_once);
        if (result != CUDA_SUCCESS) {
            if (failed_at != nullptr) {
                *failed_at = i;
            }
            return call.end(result);
        }
    }
    return call.end(CUDA_SUCCESS);
}

}  // namespace
}  // namespace transit::sim

using namespace transit::sim;

extern "C" {

CUresult CUDAAPI cuMemcpy2D_v2(const CUDA_MEMCPY2D* copy) {
    return copy_2d("cuMemcpy2D_v2", copy, nullptr, Returns::when_done);
}
CUresult CUDAAPI cuMemcpy2D_v2_ptds(const CUDA_MEMCPY2D* copy) {
    return copy_2d("cuMemcpy2D_v2_ptds", copy, CU_STREAM_PER_THREAD, Returns::when_done);
}
CUresult CUDAAPI cuMemcpy2DUnaligned_v2(const CUDA_MEMCPY2D* copy) {
    return copy_2d("cuMemcpy2DUnaligned_v2", copy, nullptr, Returns::when_done);
}
CUresult CUDAAPI cuMemcpy2DUnaligned_v2_ptds(const CUDA_MEMCPY2D* copy) {
    return copy_2d("cuMemcpy2DUnaligned_v2_ptds", copy, CU_STREAM_PER_THREAD, Returns::when_done);
}
CUresult CUDAAPI cuMemcpy2DAsync_v2(const CUDA_MEMCPY2D* copy, CUstream stream) {
    return copy_2d("cuMemcpy2DAsync_v2", copy, stream, Returns::at_once);
}
CUresult CUDAAPI cuMemcpy3D_v2(const CUDA_MEMCPY3D* copy) {
    return copy_3d("cuMemcpy3D_v2", copy, nullptr, Returns::when_done);
}
CUresult CUDAAPI cuMemcpy3D_v2_ptds(const CUDA_MEMCPY3D* copy) {
    return copy_3d("cuMemcpy3D_v2_ptds", copy, CU_STREAM_PER_THREAD, Returns::when_done);
}
CUresult CUDAAPI cuMemcpy3DAsync_v2(const CUDA_MEMCPY3D* copy, CUstream stream) {
    return copy_3d("cuMemcpy3DAsync_v2", copy, stream, Returns::at_once);
}
CUresult CUDAAPI cuMemcpyBatchAsync(CUdeviceptr* dsts, CUdeviceptr* srcs, size_t* sizes,
                                    size_t count, CUmemcpyAttributes*, size_t*, size_t,
                                    size_t* failed_at, CUstream stream) {
    return copy_batch("cuMemcpyBatchAsync", dsts, srcs, sizes, count, failed_at, stream);
}
CUresult CUDAAPI cuMemcpyBatchAsync_v2(CUdeviceptr* dsts, CUdeviceptr* srcs, size_t* sizes,
                                       size_t count, CUmemcpyAttributes*, size_t*, size_t,
                                       CUstream stream) {
    return copy_batch("cuMemcpyBatchAsync_v2", dsts, srcs, sizes, count, nullptr, stream);
}
CUresult CUDAAPI cuMemcpy3DPeer(const CUDA_MEMCPY3D_PEER* copy) {
    return copy_3d("cuMemcpy3DPeer", copy, nullptr, Returns::when_done);
}
CUresult CUDAAPI cuMemcpy3DPeer_ptds(const CUDA_MEMCPY3D_PEER* copy) {
    return copy_3d("cuMemcpy3DPeer_ptds", copy, CU_STREAM_PER_THREAD, Returns::when_done);
}
CUresult CUDAAPI cuMemcpy3DPeerAsync(const CUDA_MEMCPY3D_PEER* copy, CUstream stream) {
    return copy_3d("cuMemcpy3DPeerAsync", copy, stream, Returns::at_once);
}
CUresult CUDAAPI cuMemcpy3DBatchAsync(size_t count, CUDA_MEMCPY3D_BATCH_OP* copies,
                                      size_t* failed_at, unsigned long long, CUstream stream) {
    return copy_3d_batch("cuMemcpy3DBatchAsync", count, copies, failed_at, stream);
}
CUresult CUDAAPI cuMemcpy3DBatchAsync_v2(size_t count, CUDA_MEMCPY3D_BATCH_OP* copies,
                                         unsigned long long, CUstream stream) {
    return copy_3d_batch("cuMemcpy3DBatchAsync_v2", count, copies, nullptr, stream);
}
CUresult CUDAAPI cuMemcpy3DWithAttributesAsync(CUDA_MEMCPY3D_BATCH_OP* copy, unsigned long long,
                                               CUstream stream) {
    return copy_3d_batch("cuMemcpy3DWithAttributesAsync", 1, copy, nullptr, stream);
}
CUresult CUDAAPI cuMemcpyWithAttributesAsync(CUdeviceptr dst, CUdeviceptr src, size_t bytes,
                                             CUmemcpyAttributes*, CUstream stream) {
    return copy_batch("cuMemcpyWithAttributesAsync", &dst, &src, &bytes, 1, nullptr, stream);
}

}  // extern "C"
