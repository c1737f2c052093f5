// One-dimensional copies.
#include "transfer.hpp"

namespace transit::sim {
namespace {

CUdeviceptr host(const void* pointer) { return reinterpret_cast<CUdeviceptr>(pointer); }

CUresult copy(const char* name, CUdeviceptr dst, Side dst_side, CUdeviceptr src, Side src_side,
              std::size_t bytes, CUstream stream, Returns returns) {
    Call call{name, Needs::context};
    call.at("dst", dst).at("src", src).note("bytes", bytes);
    if (returns == Returns::at_once) {
        call.at("stream", stream);
    }
    return call ? call.end(transfer(dst, dst_side, src, src_side, bytes, stream, returns))
                : call.result();
}

}  // namespace
}  // namespace transit::sim

using namespace transit::sim;
constexpr auto kAtOnce = Returns::at_once;
constexpr auto kWhenDone = Returns::when_done;

extern "C" {

CUresult CUDAAPI cuMemcpy(CUdeviceptr dst, CUdeviceptr src, size_t bytes) {
    return copy("cuMemcpy", dst, Side::either, src, Side::either, bytes, nullptr, kWhenDone);
}
CUresult CUDAAPI cuMemcpy_ptds(CUdeviceptr dst, CUdeviceptr src, size_t bytes) {
    return copy("cuMemcpy_ptds", dst, Side::either, src, Side::either, bytes, CU_STREAM_PER_THREAD,
                kWhenDone);
}
CUresult CUDAAPI cuMemcpyAsync(CUdeviceptr dst, CUdeviceptr src, size_t bytes, CUstream stream) {
    return copy("cuMemcpyAsync", dst, Side::either, src, Side::either, bytes, stream, kAtOnce);
}
CUresult CUDAAPI cuMemcpyPeer(CUdeviceptr dst, CUcontext, CUdeviceptr src, CUcontext,
                              size_t bytes) {
    return copy("cuMemcpyPeer", dst, Side::device, src, Side::device, bytes, nullptr, kWhenDone);
}
CUresult CUDAAPI cuMemcpyPeer_ptds(CUdeviceptr dst, CUcontext, CUdeviceptr src, CUcontext,
                                   size_t bytes) {
    return copy("cuMemcpyPeer_ptds", dst, Side::device, src, Side::device, bytes,
                CU_STREAM_PER_THREAD, kWhenDone);
}
CUresult CUDAAPI cuMemcpyPeerAsync(CUdeviceptr dst, CUcontext, CUdeviceptr src, CUcontext,
                                   size_t bytes, CUstream stream) {
    return copy("cuMemcpyPeerAsync", dst, Side::device, src, Side::device, bytes, stream, kAtOnce);
}
CUresult CUDAAPI cuMemcpyHtoD_v2(CUdeviceptr dst, const void* src, size_t bytes) {
    return copy("cuMemcpyHtoD_v2", dst, Side::device, host(src), Side::host, bytes, nullptr,
                kWhenDone);
}
CUresult CUDAAPI cuMemcpyHtoD_v2_ptds(CUdeviceptr dst, const void* src, size_t bytes) {
    return copy("cuMemcpyHtoD_v2_ptds", dst, Side::device, host(src), Side::host, bytes,
                CU_STREAM_PER_THREAD, kWhenDone);
}
CUresult CUDAAPI cuMemcpyDtoH_v2(void* dst, CUdeviceptr src, size_t bytes) {
    return copy("cuMemcpyDtoH_v2", host(dst), Side::host, src, Side::device, bytes, nullptr,
                kWhenDone);
}
CUresult CUDAAPI cuMemcpyDtoH_v2_ptds(void* dst, CUdeviceptr src, size_t bytes) {
    return copy("cuMemcpyDtoH_v2_ptds", host(dst), Side::host, src, Side::device, bytes,
                CU_STREAM_PER_THREAD, kWhenDone);
}
CUresult CUDAAPI cuMemcpyDtoD_v2(CUdeviceptr dst, CUdeviceptr src, size_t bytes) {
    return copy("cuMemcpyDtoD_v2", dst, Side::device, src, Side::device, bytes, nullptr, kWhenDone);
}
CUresult CUDAAPI cuMemcpyDtoD_v2_ptds(CUdeviceptr dst, CUdeviceptr src, size_t bytes) {
    return copy("cuMemcpyDtoD_v2_ptds", dst, Side::device, src, Side::device, bytes,
                CU_STREAM_PER_THREAD, kWhenDone);
}
CUresult CUDAAPI cuMemcpyHtoDAsync_v2(CUdeviceptr dst, const void* src, size_t bytes,
                                      CUstream stream) {
    return copy("cuMemcpyHtoDAsync_v2", dst, Side::device, host(src), Side::host, bytes, stream,
                kAtOnce);
}
CUresult CUDAAPI cuMemcpyDtoHAsync_v2(void* dst, CUdeviceptr src, size_t bytes, CUstream stream) {
    return copy("cuMemcpyDtoHAsync_v2", host(dst), Side::host, src, Side::device, bytes, stream,
                kAtOnce);
}
CUresult CUDAAPI cuMemcpyDtoDAsync_v2(CUdeviceptr dst, CUdeviceptr src, size_t bytes,
                                      CUstream stream) {
    return copy("cuMemcpyDtoDAsync_v2", dst, Side::device, src, Side::device, bytes, stream,
                kAtOnce);
}

}  // extern "C"
