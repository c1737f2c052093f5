// Fills.
#include "transfer.hpp"

namespace transit::sim {
namespace {

CUresult set(const char* name, CUdeviceptr dst, std::size_t pitch, std::uint32_t value,
             unsigned element_bytes, std::size_t width, std::size_t height, CUstream stream,
             Returns returns) {
    Call call{name, Needs::context};
    call.at("dst", dst).note("bytes", width * height * element_bytes).note("value", value);
    if (returns == Returns::at_once) {
        call.at("stream", stream);
    }
    return call ? call.end(fill(dst, pitch, value, element_bytes, width, height, stream, returns))
                : call.result();
}

constexpr auto kAtOnce = Returns::at_once;
constexpr auto kWhenDone = Returns::when_done;

}  // namespace
}  // namespace transit::sim

using namespace transit::sim;

extern "C" {

CUresult CUDAAPI cuMemsetD8_v2(CUdeviceptr dst, unsigned char value, size_t count) {
    return set("cuMemsetD8_v2", dst, 0, value, 1, count, 1, nullptr, kWhenDone);
}
CUresult CUDAAPI cuMemsetD8_v2_ptds(CUdeviceptr dst, unsigned char value, size_t count) {
    return set("cuMemsetD8_v2_ptds", dst, 0, value, 1, count, 1, CU_STREAM_PER_THREAD, kWhenDone);
}
CUresult CUDAAPI cuMemsetD8Async(CUdeviceptr dst, unsigned char value, size_t count,
                                 CUstream stream) {
    return set("cuMemsetD8Async", dst, 0, value, 1, count, 1, stream, kAtOnce);
}
CUresult CUDAAPI cuMemsetD2D8_v2(CUdeviceptr dst, size_t pitch, unsigned char value, size_t width,
                                 size_t height) {
    return set("cuMemsetD2D8_v2", dst, pitch, value, 1, width, height, nullptr, kWhenDone);
}
CUresult CUDAAPI cuMemsetD2D8_v2_ptds(CUdeviceptr dst, size_t pitch, unsigned char value,
                                      size_t width, size_t height) {
    return set("cuMemsetD2D8_v2_ptds", dst, pitch, value, 1, width, height, CU_STREAM_PER_THREAD,
               kWhenDone);
}
CUresult CUDAAPI cuMemsetD2D8Async(CUdeviceptr dst, size_t pitch, unsigned char value, size_t width,
                                   size_t height, CUstream stream) {
    return set("cuMemsetD2D8Async", dst, pitch, value, 1, width, height, stream, kAtOnce);
}

CUresult CUDAAPI cuMemsetD16_v2(CUdeviceptr dst, unsigned short value, size_t count) {
    return set("cuMemsetD16_v2", dst, 0, value, 2, count, 1, nullptr, kWhenDone);
}
CUresult CUDAAPI cuMemsetD16_v2_ptds(CUdeviceptr dst, unsigned short value, size_t count) {
    return set("cuMemsetD16_v2_ptds", dst, 0, value, 2, count, 1, CU_STREAM_PER_THREAD, kWhenDone);
}
CUresult CUDAAPI cuMemsetD16Async(CUdeviceptr dst, unsigned short value, size_t count,
                                  CUstream stream) {
    return set("cuMemsetD16Async", dst, 0, value, 2, count, 1, stream, kAtOnce);
}
CUresult CUDAAPI cuMemsetD2D16_v2(CUdeviceptr dst, size_t pitch, unsigned short value, size_t width,
                                  size_t height) {
    return set("cuMemsetD2D16_v2", dst, pitch, value, 2, width, height, nullptr, kWhenDone);
}
CUresult CUDAAPI cuMemsetD2D16_v2_ptds(CUdeviceptr dst, size_t pitch, unsigned short value,
                                       size_t width, size_t height) {
    return set("cuMemsetD2D16_v2_ptds", dst, pitch, value, 2, width, height, CU_STREAM_PER_THREAD,
               kWhenDone);
}
CUresult CUDAAPI cuMemsetD2D16Async(CUdeviceptr dst, size_t pitch, unsigned short value,
                                    size_t width, size_t height, CUstream stream) {
    return set("cuMemsetD2D16Async", dst, pitch, value, 2, width, height, stream, kAtOnce);
}

CUresult CUDAAPI cuMemsetD32_v2(CUdeviceptr dst, unsigned int value, size_t count) {
    return set("cuMemsetD32_v2", dst, 0, value, 4, count, 1, nullptr, kWhenDone);
}
CUresult CUDAAPI cuMemsetD32_v2_ptds(CUdeviceptr dst, unsigned int value, size_t count) {
    return set("cuMemsetD32_v2_ptds", dst, 0, value, 4, count, 1, CU_STREAM_PER_THREAD, kWhenDone);
}
CUresult CUDAAPI cuMemsetD32Async(CUdeviceptr dst, unsigned int value, size_t count,
                                  CUstream stream) {
    return set("cuMemsetD32Async", dst, 0, value, 4, count, 1, stream, kAtOnce);
}
CUresult CUDAAPI cuMemsetD2D32_v2(CUdeviceptr dst, size_t pitch, unsigned int value, size_t width,
                                  size_t height) {
    return set("cuMemsetD2D32_v2", dst, pitch, value, 4, width, height, nullptr, kWhenDone);
}
CUresult CUDAAPI cuMemsetD2D32_v2_ptds(CUdeviceptr dst, size_t pitch, unsigned int value,
                                       size_t width, size_t height) {
    return set("cuMemsetD2D32_v2_ptds", dst, pitch, value, 4, width, height, CU_STREAM_PER_THREAD,
               kWhenDone);
}
CUresult CUDAAPI cuMemsetD2D32Async(CUdeviceptr dst, size_t pitch, unsigned int value, size_t width,
                                    size_t height, CUstream stream) {
    return set("cuMemsetD2D32Async", dst, pitch, value, 4, width, height, stream, kAtOnce);
}

}  // extern "C"
