// Copies and fills as operations of a stream, shared by their many entry points.
#pragma once

#include "call.hpp"
#include "cuda_api.hpp"

namespace transit::sim {

enum class Side { host, device, either };

// A box of bytes: 1-D copies have one row, 2-D copies one slice.
struct Box {
    std::size_t width = 0;
    std::size_t height = 1;
    std::size_t depth = 1;
};

struct Place3D {
    CUdeviceptr address = 0;
    std::size_t pitch = 0;
    std::size_t slice_pitch = 0;
};

// When the call returns.
enum class Returns {
    at_once,    // the asynchronous forms
    when_done,  // the synchronous forms, if the host takes part
};

CUresult transfer(const Place3D& dst, Side dst_side, const Place3D& src, Side src_side, Box box,
                  CUstream stream, Returns returns);

inline CUresult transfer(CUdeviceptr dst, Side dst_side, CUdeviceptr src, Side src_side,
                         std::size_t bytes, CUstream stream, Returns returns) {
    return transfer(Place3D{dst, bytes, bytes}, dst_side, Place3D{src, bytes, bytes}, src_side,
                    Box{bytes}, stream, returns);
}

CUresult fill(CUdeviceptr dst, std::size_t pitch, std::uint32_t value, unsigned element_bytes,
              std::size_t width, std::size_t height, CUstream stream, Returns returns);

}  // namespace transit::sim
