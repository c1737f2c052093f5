// Collectives, by name: their kernels read buffers whose addresses no launch parameter shows.
//
// A collective inside a group is only submitted when the outermost group ends, so it stays
// open until then.
#include <dlfcn.h>

#include <array>
#include <cstddef>
#include <memory>
#include <vector>

#include "transit/context.hpp"
#include "transit/hooks.hpp"
#include "transit/log.hpp"
#include "transit/pinning.hpp"
#include "transit/real.hpp"
#include "transit/stats.hpp"

namespace transit {
namespace {

// PyTorch loads NCCL privately, so RTLD_NEXT does not find it.
void* real_nccl(const char* name) noexcept {
    if (void* next = dlsym(RTLD_NEXT, name)) return next;
    void* library = dlopen("libnccl.so.2", RTLD_NOW | RTLD_NOLOAD);
    return library == nullptr ? nullptr : dlsym(library, name);
}

constexpr int kNcclSystemError = 2;  // ncclSystemError: what a missing symbol amounts to
constexpr std::array<std::size_t, 12> kTypeBytes = {1, 1, 4, 4, 8, 8,
                                                    2, 4, 8, 2, 1, 1};  // ncclDataType_t, by value

std::size_t bytes_of(int type) noexcept {
    return type >= 0 && static_cast<std::size_t>(type) < kTypeBytes.size()
               ? kTypeBytes[static_cast<std::size_t>(type)]
               : 8;
}

// Null if this NCCL is too old to have the function, which our own symbol hides from its callers.
template <typename Function>
Function resolved(const char* name) noexcept {
    void* found = real_nccl(name);
    if (found == nullptr) log(LogLevel::kWarn, "%s was called, but the job's NCCL has none", name);
    return reinterpret_cast<Function>(found);
}

// NCCL works on the communicator's device, whatever is current: a default stream is that one's.
CUcontext context_of_default(CUstream stream, void* communicator) noexcept {
    if (stream != nullptr && stream != CU_STREAM_LEGACY && stream != CU_STREAM_PER_THREAD)
        return nullptr;
    static const auto device_of = resolved<int (*)(void*, int*)>("ncclCommCuDevice");
    CUdevice here = -1;
    int device = -1;
    CUcontext primary = nullptr;
    if (device_of == nullptr || device_of(communicator, &device) != 0 ||
        (real_cuCtxGetDevice(&here) == CUDA_SUCCESS && here == device) ||
        real_cuDevicePrimaryCtxRetain(&primary, device) != CUDA_SUCCESS)
        return current_context();
    real_cuDevicePrimaryCtxRelease_v2(device);  // the communicator keeps it
    return primary;
}

// What the open group has named so far, one entry a stream. Default streams have their names in a
// context each; it is null for the others.
struct Waiting {
    CUcontext context;
    CUstream stream;
    std::vector<Span> spans;
};

thread_local int t_group_depth = 0;
thread_local std::vector<Waiting>* t_waiting = nullptr;

void wait_for_group(CUcontext context, CUstream stream, const std::vector<Span>& spans) noexcept {
    if (t_waiting == nullptr) t_waiting = new std::vector<Waiting>;
    for (Waiting& one : *t_waiting) {
        if (one.stream != stream || one.context != context) continue;
        one.spans.insert(one.spans.end(), spans.begin(), spans.end());
        return;
    }
    t_waiting->push_back({context, stream, spans});
}

// Buffers of a group that has not ended: pinned in place by a touch of everything would stop all
// moves, so the touches are replayed when the group ends, and the group's end is bracketed by them.
int submit_group(int (*end)()) noexcept {
    Device* device = Device::active();
    if (device == nullptr || t_waiting == nullptr || t_waiting->empty()) return end();
    std::vector<Waiting> waiting;
    waiting.swap(*t_waiting);
    std::vector<std::unique_ptr<Submission>> open;
    bool refused = false;
    for (const Waiting& one : waiting) {
        const InContext inside(one.context);
        auto work = std::make_unique<Submission>(*device, one.stream, false);
        for (const Span& span : one.spans)
            work->range(span.address, span.bytes);
        // While one is open, nothing that came before it can be seen to pass: the others run where
        // their memory is.
        const auto operands =
            open.empty() ? Submission::Operands::kInHbm : Submission::Operands::kInPlace;
        if (work->open(operands) == CUDA_SUCCESS)
            open.push_back(std::move(work));
        else
            refused = true;
    }
    // NCCL cannot be told to forget a group, so it ends even where some memory found no frame.
    const int result = end();
    while (!open.empty()) {  // nested submissions end in the reverse order
        open.back()->close();
        open.pop_back();
    }
    return refused && result == 0 ? kNcclSystemError : result;
}

template <typename Call>
int collective(CUstream stream, void* communicator, const std::vector<Span>& spans,
               Call&& call) noexcept {
    Device* device = Device::active();
    if (device == nullptr) return call();
    counter(Counter::kCollectives).fetch_add(1, std::memory_order_relaxed);
    const CUcontext context = context_of_default(stream, communicator);
    if (t_group_depth > 0) {
        wait_for_group(context, stream, spans);
        return call();
    }
    Submission work(*device, stream, false);
    for (const Span& span : spans)
        work.range(span.address, span.bytes);
    {
        const InContext inside(context);
        if (work.open(Submission::Operands::kInHbm) != CUDA_SUCCESS) return kNcclSystemError;
    }
    const int result = call();
    work.close();
    return result;
}

Span span(const void* buffer, std::size_t count, int type) noexcept {
    return {reinterpret_cast<CUdeviceptr>(buffer), count * bytes_of(type)};
}

int ranks_of(void* communicator) noexcept {
    static const auto count = resolved<int (*)(void*, int*)>("ncclCommCount");
    int ranks = 1;
    return count != nullptr && count(communicator, &ranks) == 0 ? ranks : 1;
}

}  // namespace
}  // namespace transit

using transit::collective;
using transit::resolved;
using transit::span;

extern "C" {

__attribute__((visibility("default"))) int ncclAllReduce(const void* from, void* to,
                                                         std::size_t count, int type, int op,
                                                         void* communicator, CUstream stream) {
    static const auto real =
        resolved<int (*)(const void*, void*, std::size_t, int, int, void*, CUstream)>(
            "ncclAllReduce");
    if (real == nullptr) return transit::kNcclSystemError;
    return collective(stream, communicator, {span(from, count, type), span(to, count, type)},
                      [&] { return real(from, to, count, type, op, communicator, stream); });
}

__attribute__((visibility("default"))) int ncclReduce(const void* from, void* to, std::size_t count,
                                                      int type, int op, int root,
                                                      void* communicator, CUstream stream) {
    static const auto real =
        resolved<int (*)(const void*, void*, std::size_t, int, int, int, void*, CUstream)>(
            "ncclReduce");
    if (real == nullptr) return transit::kNcclSystemError;
    return collective(stream, communicator, {span(from, count, type), span(to, count, type)},
                      [&] { return real(from, to, count, type, op, root, communicator, stream); });
}

__attribute__((visibility("default"))) int ncclBroadcast(const void* from, void* to,
                                                         std::size_t count, int type, int root,
                                                         void* communicator, CUstream stream) {
    static const auto real =
        resolved<int (*)(const void*, void*, std::size_t, int, int, void*, CUstream)>(
            "ncclBroadcast");
    if (real == nullptr) return transit::kNcclSystemError;
    return collective(stream, communicator, {span(from, count, type), span(to, count, type)},
                      [&] { return real(from, to, count, type, root, communicator, stream); });
}

__attribute__((visibility("default"))) int ncclBcast(void* buffer, std::size_t count, int type,
                                                     int root, void* communicator,
                                                     CUstream stream) {
    static const auto real =
        resolved<int (*)(void*, std::size_t, int, int, void*, CUstream)>("ncclBcast");
    if (real == nullptr) return transit::kNcclSystemError;
    return collective(stream, communicator, {span(buffer, count, type)},
                      [&] { return real(buffer, count, type, root, communicator, stream); });
}

__attribute__((visibility("default"))) int ncclAllGather(const void* from, void* to,
                                                         std::size_t count, int type,
                                                         void* communicator, CUstream stream) {
    static const auto real =
        resolved<int (*)(const void*, void*, std::size_t, int, void*, CUstream)>("ncclAllGather");
    if (real == nullptr) return transit::kNcclSystemError;
    const auto ranks = static_cast<std::size_t>(transit::ranks_of(communicator));
    return collective(stream, communicator,
                      {span(from, count, type), span(to, count * ranks, type)},
                      [&] { return real(from, to, count, type, communicator, stream); });
}

__attribute__((visibility("default"))) int ncclReduceScatter(const void* from, void* to,
                                                             std::size_t count, int type, int op,
                                                             void* communicator, CUstream stream) {
    static const auto real =
        resolved<int (*)(const void*, void*, std::size_t, int, int, void*, CUstream)>(
            "ncclReduceScatter");
    if (real == nullptr) return transit::kNcclSystemError;
    const auto ranks = static_cast<std::size_t>(transit::ranks_of(communicator));
    return collective(stream, communicator,
                      {span(from, count * ranks, type), span(to, count, type)},
                      [&] { return real(from, to, count, type, op, communicator, stream); });
}

__attribute__((visibility("default"))) int ncclSend(const void* from, std::size_t count, int type,
                                                    int peer, void* communicator, CUstream stream) {
    static const auto real =
        resolved<int (*)(const void*, std::size_t, int, int, void*, CUstream)>("ncclSend");
    if (real == nullptr) return transit::kNcclSystemError;
    return collective(stream, communicator, {span(from, count, type)},
                      [&] { return real(from, count, type, peer, communicator, stream); });
}

__attribute__((visibility("default"))) int ncclRecv(void* to, std::size_t count, int type, int peer,
                                                    void* communicator, CUstream stream) {
    static const auto real =
        resolved<int (*)(void*, std::size_t, int, int, void*, CUstream)>("ncclRecv");
    if (real == nullptr) return transit::kNcclSystemError;
    return collective(stream, communicator, {span(to, count, type)},
                      [&] { return real(to, count, type, peer, communicator, stream); });
}

// Since NCCL 2.28.
__attribute__((visibility("default"))) int ncclAlltoAll(const void* from, void* to,
                                                        std::size_t count, int type,
                                                        void* communicator, CUstream stream) {
    static const auto real =
        resolved<int (*)(const void*, void*, std::size_t, int, void*, CUstream)>("ncclAlltoAll");
    if (real == nullptr) return transit::kNcclSystemError;
    const auto all = count * static_cast<std::size_t>(transit::ranks_of(communicator));
    return collective(stream, communicator, {span(from, all, type), span(to, all, type)},
                      [&] { return real(from, to, count, type, communicator, stream); });
}

// Only the root has the whole; what the others give for it may be no address at all.
__attribute__((visibility("default"))) int ncclGather(const void* from, void* to, std::size_t count,
                                                      int type, int root, void* communicator,
                                                      CUstream stream) {
    static const auto real =
        resolved<int (*)(const void*, void*, std::size_t, int, int, void*, CUstream)>("ncclGather");
    if (real == nullptr) return transit::kNcclSystemError;
    const auto all = count * static_cast<std::size_t>(transit::ranks_of(communicator));
    return collective(stream, communicator, {span(from, count, type), span(to, all, type)},
                      [&] { return real(from, to, count, type, root, communicator, stream); });
}

__attribute__((visibility("default"))) int ncclScatter(const void* from, void* to,
                                                       std::size_t count, int type, int root,
                                                       void* communicator, CUstream stream) {
    static const auto real =
        resolved<int (*)(const void*, void*, std::size_t, int, int, void*, CUstream)>(
            "ncclScatter");
    if (real == nullptr) return transit::kNcclSystemError;
    const auto all = count * static_cast<std::size_t>(transit::ranks_of(communicator));
    return collective(stream, communicator, {span(from, all, type), span(to, count, type)},
                      [&] { return real(from, to, count, type, root, communicator, stream); });
}

// A scalar on the device is read by every collective that uses the operation.
__attribute__((visibility("default"))) int
ncclRedOpCreatePreMulSum(int* op, void* scalar, int type, int residence, void* communicator) {
    constexpr int kOnDevice = 0;  // ncclScalarDevice
    static const auto real =
        resolved<int (*)(int*, void*, int, int, void*)>("ncclRedOpCreatePreMulSum");
    if (residence == kOnDevice)
        transit::pin(transit::kPinSemaphore, "read by collectives", [&](transit::Submission& work) {
            work.word(reinterpret_cast<CUdeviceptr>(scalar));
        });
    return real == nullptr ? transit::kNcclSystemError
                           : real(op, scalar, type, residence, communicator);
}

__attribute__((visibility("default"))) int ncclGroupStart() {
    static const auto real = resolved<int (*)()>("ncclGroupStart");
    if (real == nullptr) return transit::kNcclSystemError;
    const int result = real();
    if (result == 0) ++transit::t_group_depth;
    return result;
}

__attribute__((visibility("default"))) int ncclGroupEnd() {
    static const auto real = resolved<int (*)()>("ncclGroupEnd");
    if (real == nullptr) return transit::kNcclSystemError;
    if (transit::t_group_depth > 0) --transit::t_group_depth;
    return transit::t_group_depth > 0 ? real() : transit::submit_group(real);
}

// Ends a group like ncclGroupEnd, but submits nothing.
__attribute__((visibility("default"))) int ncclGroupSimulateEnd(void* estimate) {
    static const auto real = resolved<int (*)(void*)>("ncclGroupSimulateEnd");
    if (real == nullptr) return transit::kNcclSystemError;
    if (transit::t_group_depth > 0) --transit::t_group_depth;
    if (transit::t_group_depth == 0 && transit::t_waiting != nullptr) transit::t_waiting->clear();
    return real(estimate);
}

}  // extern "C"
