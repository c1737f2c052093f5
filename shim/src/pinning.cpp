// Memory that the GPU's front end polls: addresses that outlive the call which names them. What
// they reach is pinned where it is.
#include "transit/pinning.hpp"

#include "transit/real.hpp"

namespace transit {
namespace {

constexpr int kAtomicReduction = 8;  // CU_STREAM_MEM_OP_ATOMIC_REDUCTION, which older headers lack

// Zero for barriers and flushes, which have none.
CUdeviceptr address_of(const CUstreamBatchMemOpParams& operation) noexcept {
    switch (static_cast<int>(operation.operation)) {
    case CU_STREAM_MEM_OP_WAIT_VALUE_32:
    case CU_STREAM_MEM_OP_WAIT_VALUE_64:
    case CU_STREAM_MEM_OP_WRITE_VALUE_32:
    case CU_STREAM_MEM_OP_WRITE_VALUE_64:
        return operation.waitValue.address;
    case kAtomicReduction:
        return operation.pad[2];
    default:
        return 0;
    }
}

}  // namespace

void pin_polled(CUdeviceptr address) noexcept {
    pin(kPinSemaphore, "polled by the GPU's front end",
        [&](Submission& work) { work.word(address); });
}

void pin_polled(const CUstreamBatchMemOpParams* operations, unsigned count) noexcept {
    for (unsigned i = 0; operations != nullptr && i < count; ++i)
        if (const CUdeviceptr address = address_of(operations[i]); address != 0)
            pin_polled(address);
}

}  // namespace transit

extern "C" {

CUresult hook_cuStreamWaitValue32(CUstream stream, CUdeviceptr address, cuuint32_t value,
                                  unsigned flags) {
    transit::pin_polled(address);
    return real_cuStreamWaitValue32(stream, address, value, flags);
}

CUresult hook_cuStreamWaitValue32_ptsz(CUstream stream, CUdeviceptr address, cuuint32_t value,
                                       unsigned flags) {
    transit::pin_polled(address);
    return real_cuStreamWaitValue32_ptsz(stream, address, value, flags);
}

CUresult hook_cuStreamWaitValue32_v2(CUstream stream, CUdeviceptr address, cuuint32_t value,
                                     unsigned flags) {
    transit::pin_polled(address);
    return real_cuStreamWaitValue32_v2(stream, address, value, flags);
}

CUresult hook_cuStreamWaitValue32_v2_ptsz(CUstream stream, CUdeviceptr address, cuuint32_t value,
                                          unsigned flags) {
    transit::pin_polled(address);
    return real_cuStreamWaitValue32_v2_ptsz(stream, address, value, flags);
}

CUresult hook_cuStreamWaitValue64(CUstream stream, CUdeviceptr address, cuuint64_t value,
                                  unsigned flags) {
    transit::pin_polled(address);
    return real_cuStreamWaitValue64(stream, address, value, flags);
}

CUresult hook_cuStreamWaitValue64_ptsz(CUstream stream, CUdeviceptr address, cuuint64_t value,
                                       unsigned flags) {
    transit::pin_polled(address);
    return real_cuStreamWaitValue64_ptsz(stream, address, value, flags);
}

CUresult hook_cuStreamWaitValue64_v2(CUstream stream, CUdeviceptr address, cuuint64_t value,
                                     unsigned flags) {
    transit::pin_polled(address);
    return real_cuStreamWaitValue64_v2(stream, address, value, flags);
}

CUresult hook_cuStreamWaitValue64_v2_ptsz(CUstream stream, CUdeviceptr address, cuuint64_t value,
                                          unsigned flags) {
    transit::pin_polled(address);
    return real_cuStreamWaitValue64_v2_ptsz(stream, address, value, flags);
}

CUresult hook_cuStreamWriteValue32(CUstream stream, CUdeviceptr address, cuuint32_t value,
                                   unsigned flags) {
    transit::pin_polled(address);
    return real_cuStreamWriteValue32(stream, address, value, flags);
}

CUresult hook_cuStreamWriteValue32_ptsz(CUstream stream, CUdeviceptr address, cuuint32_t value,
                                        unsigned flags) {
    transit::pin_polled(address);
    return real_cuStreamWriteValue32_ptsz(stream, address, value, flags);
}

CUresult hook_cuStreamWriteValue32_v2(CUstream stream, CUdeviceptr address, cuuint32_t value,
                                      unsigned flags) {
    transit::pin_polled(address);
    return real_cuStreamWriteValue32_v2(stream, address, value, flags);
}

CUresult hook_cuStreamWriteValue32_v2_ptsz(CUstream stream, CUdeviceptr address, cuuint32_t value,
                                           unsigned flags) {
    transit::pin_polled(address);
    return real_cuStreamWriteValue32_v2_ptsz(stream, address, value, flags);
}

CUresult hook_cuStreamWriteValue64(CUstream stream, CUdeviceptr address, cuuint64_t value,
                                   unsigned flags) {
    transit::pin_polled(address);
    return real_cuStreamWriteValue64(stream, address, value, flags);
}

CUresult hook_cuStreamWriteValue64_ptsz(CUstream stream, CUdeviceptr address, cuuint64_t value,
                                        unsigned flags) {
    transit::pin_polled(address);
    return real_cuStreamWriteValue64_ptsz(stream, address, value, flags);
}

CUresult hook_cuStreamWriteValue64_v2(CUstream stream, CUdeviceptr address, cuuint64_t value,
                                      unsigned flags) {
    transit::pin_polled(address);
    return real_cuStreamWriteValue64_v2(stream, address, value, flags);
}

CUresult hook_cuStreamWriteValue64_v2_ptsz(CUstream stream, CUdeviceptr address, cuuint64_t value,
                                           unsigned flags) {
    transit::pin_polled(address);
    return real_cuStreamWriteValue64_v2_ptsz(stream, address, value, flags);
}

CUresult hook_cuStreamBatchMemOp(CUstream stream, unsigned count,
                                 CUstreamBatchMemOpParams* operations, unsigned flags) {
    transit::pin_polled(operations, count);
    return real_cuStreamBatchMemOp(stream, count, operations, flags);
}

CUresult hook_cuStreamBatchMemOp_ptsz(CUstream stream, unsigned count,
                                      CUstreamBatchMemOpParams* operations, unsigned flags) {
    transit::pin_polled(operations, count);
    return real_cuStreamBatchMemOp_ptsz(stream, count, operations, flags);
}

CUresult hook_cuStreamBatchMemOp_v2(CUstream stream, unsigned count,
                                    CUstreamBatchMemOpParams* operations, unsigned flags) {
    transit::pin_polled(operations, count);
    return real_cuStreamBatchMemOp_v2(stream, count, operations, flags);
}

CUresult hook_cuStreamBatchMemOp_v2_ptsz(CUstream stream, unsigned count,
                                         CUstreamBatchMemOpParams* operations, unsigned flags) {
    transit::pin_polled(operations, count);
    return real_cuStreamBatchMemOp_v2_ptsz(stream, count, operations, flags);
}

}  // extern "C"
