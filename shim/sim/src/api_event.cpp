// Events.
#include <map>
#include <mutex>

#include "call.hpp"
#include "capture.hpp"
#include "context.hpp"
#include "event.hpp"

namespace transit::sim {
namespace {

std::mutex events_mutex;

std::map<CUevent, std::shared_ptr<Event>>& events() {
    static auto* const kEvents = new std::map<CUevent, std::shared_ptr<Event>>;
    return *kEvents;
}

std::shared_ptr<Event> find(CUevent handle) {
    std::lock_guard lock(events_mutex);
    const auto found = events().find(handle);
    return found == events().end() ? nullptr : found->second;
}

CUresult record(const char* name, CUevent handle, CUstream stream_handle) {
    Call call{name, Needs::context};
    call.at("event", handle).at("stream", stream_handle);
    if (!call) {
        return call.result();
    }
    const auto event = find(handle);
    const StreamRef stream = resolve_stream(stream_handle);
    if (event == nullptr || stream == nullptr || event->context != &stream->context()) {
        return call.end(CUDA_ERROR_INVALID_HANDLE);
    }
    return call.end(Captures::instance().record_event(stream, *event));
}

CUresult elapsed(const char* name, float* milliseconds, CUevent start_handle, CUevent end_handle) {
    Call call{name, Needs::context};
    if (!call) {
        return call.result();
    }
    const auto start = find(start_handle);
    const auto end = find(end_handle);
    if (milliseconds == nullptr) {
        return call.end(CUDA_ERROR_INVALID_VALUE);
    }
    const bool timed = start != nullptr && end != nullptr && start->record != nullptr &&
                       end->record != nullptr &&
                       ((start->flags | end->flags) & CU_EVENT_DISABLE_TIMING) == 0;
    if (!timed) {
        return call.end(CUDA_ERROR_INVALID_HANDLE);
    }
    const std::uint64_t from_ns = start->record->passed_at_ns;
    const std::uint64_t to_ns = end->record->passed_at_ns;
    if (from_ns == 0 || to_ns == 0) {
        return call.end(CUDA_ERROR_NOT_READY);
    }
    *milliseconds =
        static_cast<float>(static_cast<double>(to_ns) - static_cast<double>(from_ns)) / 1e6F;
    return call.end(CUDA_SUCCESS);
}

}  // namespace
}  // namespace transit::sim

using namespace transit::sim;

extern "C" {

CUresult CUDAAPI cuEventCreate(CUevent* event, unsigned int flags) {
    Call call{"cuEventCreate", Needs::context};
    call.note("flags", flags);
    if (!call) {
        return call.result();
    }
    if (event == nullptr) {
        return call.end(CUDA_ERROR_INVALID_VALUE);
    }
    auto made = std::make_shared<Event>();
    made->flags = flags;
    made->context = current_context();
    *event = reinterpret_cast<CUevent>(made.get());
    call.at("event", *event);
    std::lock_guard lock(events_mutex);
    events()[*event] = std::move(made);
    return call.end(CUDA_SUCCESS);
}

CUresult CUDAAPI cuEventDestroy_v2(CUevent event) {
    Call call{"cuEventDestroy_v2", Needs::driver};
    call.at("event", event);
    if (!call) {
        return call.result();
    }
    std::lock_guard lock(events_mutex);
    return call.end(events().erase(event) != 0 ? CUDA_SUCCESS : CUDA_ERROR_INVALID_HANDLE);
}

CUresult CUDAAPI cuEventRecord(CUevent event, CUstream stream) {
    return record("cuEventRecord", event, stream);
}

CUresult CUDAAPI cuEventRecordWithFlags(CUevent event, CUstream stream, unsigned int) {
    return record("cuEventRecordWithFlags", event, stream);
}

CUresult CUDAAPI cuEventQuery(CUevent handle) {
    Call call{"cuEventQuery", Needs::context};
    call.at("event", handle);
    if (!call) {
        return call.result();
    }
    const auto event = find(handle);
    if (event == nullptr) {
        return call.end(CUDA_ERROR_INVALID_HANDLE);
    }
    if (const CUresult refused = Captures::instance().check_event(*event);
        refused != CUDA_SUCCESS) {
        return call.end(refused);
    }
    const auto record = event->record;
    const bool passed = record == nullptr || record->ticket.stream->passed(record->ticket.number);
    return call.end(passed ? sticky_error() : CUDA_ERROR_NOT_READY);
}

CUresult CUDAAPI cuEventSynchronize(CUevent handle) {
    Call call{"cuEventSynchronize", Needs::context};
    call.at("event", handle);
    if (!call) {
        return call.result();
    }
    const auto event = find(handle);
    if (event == nullptr) {
        return call.end(CUDA_ERROR_INVALID_HANDLE);
    }
    if (const CUresult refused = Captures::instance().check_event(*event);
        refused != CUDA_SUCCESS) {
        return call.end(refused);
    }
    const auto record = event->record;
    return call.end(record == nullptr ? CUDA_SUCCESS : wait_all({record->ticket}));
}

CUresult CUDAAPI cuEventElapsedTime(float* milliseconds, CUevent start, CUevent end) {
    return elapsed("cuEventElapsedTime", milliseconds, start, end);
}

CUresult CUDAAPI cuEventElapsedTime_v2(float* milliseconds, CUevent start, CUevent end) {
    return elapsed("cuEventElapsedTime_v2", milliseconds, start, end);
}

CUresult CUDAAPI cuStreamWaitEvent(CUstream stream_handle, CUevent handle, unsigned int) {
    Call call{"cuStreamWaitEvent", Needs::context};
    call.at("stream", stream_handle).at("event", handle);
    if (!call) {
        return call.result();
    }
    const auto event = find(handle);
    const StreamRef stream = resolve_stream(stream_handle);
    if (event == nullptr || stream == nullptr || event->context != &stream->context()) {
        return call.end(CUDA_ERROR_INVALID_HANDLE);
    }
    return call.end(Captures::instance().wait_event(stream, *event));
}

}  // extern "C"
