// Waiting for and writing words in memory, in stream order. Stream 0 of the host polls as the GPU
// front end does: the address must stay mapped while a wait is pending.
#include <atomic>
#include <thread>

#include "call.hpp"
#include "capture.hpp"
#include "context.hpp"

namespace transit::sim {
namespace {

template <class Word>
CUresult write_word(const char* name, CUstream handle, CUdeviceptr address, Word value) {
    Call call{name, Needs::context};
    call.at("stream", handle).at("address", address).note("value", value);
    if (!call) {
        return call.result();
    }
    const StreamRef stream = resolve_stream(handle);
    if (stream == nullptr || address % sizeof(Word) != 0) {
        return call.end(stream == nullptr ? CUDA_ERROR_INVALID_HANDLE : CUDA_ERROR_INVALID_VALUE);
    }
    return call.end(Captures::instance().dispatch(
        stream, {CU_GRAPH_NODE_TYPE_BATCH_MEM_OP, "write_value", [=] {
                     std::atomic_ref(*reinterpret_cast<Word*>(address))
                         .store(value, std::memory_order_release);
                 }}));
}

template <class Word>
bool satisfied(Word current, Word value, unsigned flags) {
    switch (flags & 3U) {
    case CU_STREAM_WAIT_VALUE_GEQ:
        return static_cast<std::make_signed_t<Word>>(current - value) >= 0;
    case CU_STREAM_WAIT_VALUE_EQ:
        return current == value;
    case CU_STREAM_WAIT_VALUE_AND:
        return (current & value) != 0;
    default:
        return static_cast<Word>(~(current | value)) != 0;
    }
}

template <class Word>
CUresult wait_word(const char* name, CUstream handle, CUdeviceptr address, Word value,
                   unsigned flags) {
    Call call{name, Needs::context};
    call.at("stream", handle).at("address", address).note("value", value).note("flags", flags);
    if (!call) {
        return call.result();
    }
    const StreamRef stream = resolve_stream(handle);
    if (stream == nullptr || address % sizeof(Word) != 0) {
        return call.end(stream == nullptr ? CUDA_ERROR_INVALID_HANDLE : CUDA_ERROR_INVALID_VALUE);
    }
    return call.end(Captures::instance().dispatch(
        stream, {CU_GRAPH_NODE_TYPE_BATCH_MEM_OP, "wait_value", [=] {
                     std::atomic_ref<Word> word(*reinterpret_cast<Word*>(address));
                     while (!satisfied<Word>(word.load(std::memory_order_acquire), value, flags) &&
                            sticky_error() == CUDA_SUCCESS) {
                         std::this_thread::sleep_for(std::chrono::microseconds(20));
                     }
                 }}));
}

}  // namespace
}  // namespace transit::sim

using namespace transit::sim;

extern "C" {

CUresult CUDAAPI cuStreamWriteValue32(CUstream stream, CUdeviceptr address, cuuint32_t value,
                                      unsigned int) {
    return write_word("cuStreamWriteValue32", stream, address, value);
}
CUresult CUDAAPI cuStreamWriteValue32_v2(CUstream stream, CUdeviceptr address, cuuint32_t value,
                                         unsigned int) {
    return write_word("cuStreamWriteValue32_v2", stream, address, value);
}
CUresult CUDAAPI cuStreamWriteValue64(CUstream stream, CUdeviceptr address, cuuint64_t value,
                                      unsigned int) {
    return write_word("cuStreamWriteValue64", stream, address, value);
}
CUresult CUDAAPI cuStreamWriteValue64_v2(CUstream stream, CUdeviceptr address, cuuint64_t value,
                                         unsigned int) {
    return write_word("cuStreamWriteValue64_v2", stream, address, value);
}
CUresult CUDAAPI cuStreamWaitValue32(CUstream stream, CUdeviceptr address, cuuint32_t value,
                                     unsigned int flags) {
    return wait_word("cuStreamWaitValue32", stream, address, value, flags);
}
CUresult CUDAAPI cuStreamWaitValue32_v2(CUstream stream, CUdeviceptr address, cuuint32_t value,
                                        unsigned int flags) {
    return wait_word("cuStreamWaitValue32_v2", stream, address, value, flags);
}
CUresult CUDAAPI cuStreamWaitValue64(CUstream stream, CUdeviceptr address, cuuint64_t value,
                                     unsigned int flags) {
    return wait_word("cuStreamWaitValue64", stream, address, value, flags);
}
CUresult CUDAAPI cuStreamWaitValue64_v2(CUstream stream, CUdeviceptr address, cuuint64_t value,
                                        unsigned int flags) {
    return wait_word("cuStreamWaitValue64_v2", stream, address, value, flags);
}

}  // extern "C"
