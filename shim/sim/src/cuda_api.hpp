// The driver's types and prototypes under their exported names. The build defines
// __CUDA_API_VERSION_INTERNAL; without it cuda.h would rename cuMemAlloc to cuMemAlloc_v2 and so
// on.
#pragma once

#ifndef __CUDA_API_VERSION_INTERNAL
#error "compile with -D__CUDA_API_VERSION_INTERNAL"
#endif
#include <cuda.h>

#include <cstddef>
#include <cstdint>

// Younger than the headers of CUDA 13.0, which will do too.
extern "C" {
CUresult CUDAAPI cuMemcpyWithAttributesAsync(CUdeviceptr dst, CUdeviceptr src, std::size_t bytes,
                                             CUmemcpyAttributes* attributes, CUstream stream);
CUresult CUDAAPI cuMemcpyWithAttributesAsync_ptsz(CUdeviceptr dst, CUdeviceptr src,
                                                  std::size_t bytes, CUmemcpyAttributes* attributes,
                                                  CUstream stream);
CUresult CUDAAPI cuMemcpy3DWithAttributesAsync(CUDA_MEMCPY3D_BATCH_OP* copy,
                                               unsigned long long flags, CUstream stream);
CUresult CUDAAPI cuMemcpy3DWithAttributesAsync_ptsz(CUDA_MEMCPY3D_BATCH_OP* copy,
                                                    unsigned long long flags, CUstream stream);
}

namespace transit::sim {

inline constexpr int kDriverVersion = 13000;
// What an H200 reports as the VMM granularity, both minimum and recommended.
inline constexpr std::size_t kGranularityBytes = std::size_t{2} << 20;

inline constexpr std::size_t round_up(std::size_t bytes, std::size_t unit) {
    return (bytes + unit - 1) / unit * unit;
}

}  // namespace transit::sim
