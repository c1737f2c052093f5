// Fills: the range is in the arguments, and what tables it held are gone.
#include "transit/hooks.hpp"
#include "transit/real.hpp"

namespace transit {
namespace {

template <typename Call>
CUresult fill(CUdeviceptr to, std::size_t bytes, CUstream stream, bool per_thread,
              Call&& call) noexcept {
    note_overwrite(to, bytes);
    return submit(stream, per_thread, {{to, bytes}}, std::forward<Call>(call));
}

// What lies between the rows stays, tables too.
template <typename Call>
CUresult fill_rows(CUdeviceptr to, std::size_t pitch, std::size_t width, std::size_t height,
                   CUstream stream, bool per_thread, Call&& call) noexcept {
    for (std::size_t y = 0; y < height; ++y)
        note_overwrite(to + y * pitch, width);
    const std::size_t bytes = height == 0 ? 0 : pitch * (height - 1) + width;
    return submit(stream, per_thread, {{to, bytes}}, std::forward<Call>(call));
}

}  // namespace
}  // namespace transit

using transit::fill;
using transit::fill_rows;

extern "C" {

CUresult hook_cuMemsetD8_v2(CUdeviceptr to, unsigned char value, size_t count) {
    return fill(to, count, nullptr, false, [&] { return real_cuMemsetD8_v2(to, value, count); });
}

CUresult hook_cuMemsetD2D8_v2(CUdeviceptr to, size_t pitch, unsigned char value, size_t width,
                              size_t height) {
    return fill_rows(to, pitch, width, height, nullptr, false,
                     [&] { return real_cuMemsetD2D8_v2(to, pitch, value, width, height); });
}

CUresult hook_cuMemsetD8_v2_ptds(CUdeviceptr to, unsigned char value, size_t count) {
    return fill(to, count, nullptr, true,
                [&] { return real_cuMemsetD8_v2_ptds(to, value, count); });
}

CUresult hook_cuMemsetD2D8_v2_ptds(CUdeviceptr to, size_t pitch, unsigned char value, size_t width,
                                   size_t height) {
    return fill_rows(to, pitch, width, height, nullptr, true,
                     [&] { return real_cuMemsetD2D8_v2_ptds(to, pitch, value, width, height); });
}

CUresult hook_cuMemsetD8Async(CUdeviceptr to, unsigned char value, size_t count, CUstream stream) {
    return fill(to, count, stream, false,
                [&] { return real_cuMemsetD8Async(to, value, count, stream); });
}

CUresult hook_cuMemsetD2D8Async(CUdeviceptr to, size_t pitch, unsigned char value, size_t width,
                                size_t height, CUstream stream) {
    return fill_rows(to, pitch, width, height, stream, false, [&] {
        return real_cuMemsetD2D8Async(to, pitch, value, width, height, stream);
    });
}

CUresult hook_cuMemsetD8Async_ptsz(CUdeviceptr to, unsigned char value, size_t count,
                                   CUstream stream) {
    return fill(to, count, stream, true,
                [&] { return real_cuMemsetD8Async_ptsz(to, value, count, stream); });
}

CUresult hook_cuMemsetD2D8Async_ptsz(CUdeviceptr to, size_t pitch, unsigned char value,
                                     size_t width, size_t height, CUstream stream) {
    return fill_rows(to, pitch, width, height, stream, true, [&] {
        return real_cuMemsetD2D8Async_ptsz(to, pitch, value, width, height, stream);
    });
}

CUresult hook_cuMemsetD16_v2(CUdeviceptr to, unsigned short value, size_t count) {
    return fill(to, count * 2, nullptr, false,
                [&] { return real_cuMemsetD16_v2(to, value, count); });
}

CUresult hook_cuMemsetD2D16_v2(CUdeviceptr to, size_t pitch, unsigned short value, size_t width,
                               size_t height) {
    return fill_rows(to, pitch, width * 2, height, nullptr, false,
                     [&] { return real_cuMemsetD2D16_v2(to, pitch, value, width, height); });
}

CUresult hook_cuMemsetD16_v2_ptds(CUdeviceptr to, unsigned short value, size_t count) {
    return fill(to, count * 2, nullptr, true,
                [&] { return real_cuMemsetD16_v2_ptds(to, value, count); });
}

CUresult hook_cuMemsetD2D16_v2_ptds(CUdeviceptr to, size_t pitch, unsigned short value,
                                    size_t width, size_t height) {
    return fill_rows(to, pitch, width * 2, height, nullptr, true,
                     [&] { return real_cuMemsetD2D16_v2_ptds(to, pitch, value, width, height); });
}

CUresult hook_cuMemsetD16Async(CUdeviceptr to, unsigned short value, size_t count,
                               CUstream stream) {
    return fill(to, count * 2, stream, false,
                [&] { return real_cuMemsetD16Async(to, value, count, stream); });
}

CUresult hook_cuMemsetD2D16Async(CUdeviceptr to, size_t pitch, unsigned short value, size_t width,
                                 size_t height, CUstream stream) {
    return fill_rows(to, pitch, width * 2, height, stream, false, [&] {
        return real_cuMemsetD2D16Async(to, pitch, value, width, height, stream);
    });
}

CUresult hook_cuMemsetD16Async_ptsz(CUdeviceptr to, unsigned short value, size_t count,
                                    CUstream stream) {
    return fill(to, count * 2, stream, true,
                [&] { return real_cuMemsetD16Async_ptsz(to, value, count, stream); });
}

CUresult hook_cuMemsetD2D16Async_ptsz(CUdeviceptr to, size_t pitch, unsigned short value,
                                      size_t width, size_t height, CUstream stream) {
    return fill_rows(to, pitch, width * 2, height, stream, true, [&] {
        return real_cuMemsetD2D16Async_ptsz(to, pitch, value, width, height, stream);
    });
}

CUresult hook_cuMemsetD32_v2(CUdeviceptr to, unsigned value, size_t count) {
    return fill(to, count * 4, nullptr, false,
                [&] { return real_cuMemsetD32_v2(to, value, count); });
}

CUresult hook_cuMemsetD2D32_v2(CUdeviceptr to, size_t pitch, unsigned value, size_t width,
                               size_t height) {
    return fill_rows(to, pitch, width * 4, height, nullptr, false,
                     [&] { return real_cuMemsetD2D32_v2(to, pitch, value, width, height); });
}

CUresult hook_cuMemsetD32_v2_ptds(CUdeviceptr to, unsigned value, size_t count) {
    return fill(to, count * 4, nullptr, true,
                [&] { return real_cuMemsetD32_v2_ptds(to, value, count); });
}

CUresult hook_cuMemsetD2D32_v2_ptds(CUdeviceptr to, size_t pitch, unsigned value, size_t width,
                                    size_t height) {
    return fill_rows(to, pitch, width * 4, height, nullptr, true,
                     [&] { return real_cuMemsetD2D32_v2_ptds(to, pitch, value, width, height); });
}

CUresult hook_cuMemsetD32Async(CUdeviceptr to, unsigned value, size_t count, CUstream stream) {
    return fill(to, count * 4, stream, false,
                [&] { return real_cuMemsetD32Async(to, value, count, stream); });
}

CUresult hook_cuMemsetD2D32Async(CUdeviceptr to, size_t pitch, unsigned value, size_t width,
                                 size_t height, CUstream stream) {
    return fill_rows(to, pitch, width * 4, height, stream, false, [&] {
        return real_cuMemsetD2D32Async(to, pitch, value, width, height, stream);
    });
}

CUresult hook_cuMemsetD32Async_ptsz(CUdeviceptr to, unsigned value, size_t count, CUstream stream) {
    return fill(to, count * 4, stream, true,
                [&] { return real_cuMemsetD32Async_ptsz(to, value, count, stream); });
}

CUresult hook_cuMemsetD2D32Async_ptsz(CUdeviceptr to, size_t pitch, unsigned value, size_t width,
                                      size_t height, CUstream stream) {
    return fill_rows(to, pitch, width * 4, height, stream, true, [&] {
        return real_cuMemsetD2D32Async_ptsz(to, pitch, value, width, height, stream);
    });
}

}  // extern "C"
