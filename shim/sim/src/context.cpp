#include "context.hpp"

#include <algorithm>
#include <atomic>

#include "call.hpp"
#include "options.hpp"
#include "pool.hpp"

namespace transit::sim {
namespace {

std::uint64_t next_stream_id() {
    static std::atomic<std::uint64_t> next{1};
    return next++;
}

std::map<std::uint64_t, StreamRef>& per_thread_streams() {
    thread_local auto* const kStreams = new std::map<std::uint64_t, StreamRef>;  // by context id
    return *kStreams;
}

}  // namespace

Context::Context(int device, unsigned context_flags, std::uint64_t id)
    : flags(context_flags), device_(device), id_(id),
      legacy_(std::make_shared<Stream>(*this, CU_STREAM_DEFAULT, 0, next_stream_id())) {}

StreamRef Context::create_stream(unsigned stream_flags, int priority) {
    auto made = std::make_shared<Stream>(*this, stream_flags, priority, next_stream_id());
    std::lock_guard lock(mutex_);
    streams_[reinterpret_cast<CUstream>(made.get())] = made;
    return made;
}

StreamRef Context::stream(CUstream handle) {
    if (handle == nullptr || handle == CU_STREAM_LEGACY) {
        return legacy_;
    }
    if (handle == CU_STREAM_PER_THREAD) {
        StreamRef& mine = per_thread_streams()[id_];
        if (mine == nullptr) {
            mine = create_stream(CU_STREAM_DEFAULT, 0);
        }
        return mine;
    }
    std::lock_guard lock(mutex_);
    const auto found = streams_.find(handle);
    return found == streams_.end() ? nullptr : found->second;
}

bool Context::destroy_stream(CUstream handle) {
    std::lock_guard lock(mutex_);
    const auto found = streams_.find(handle);
    if (found == streams_.end()) {
        return false;
    }
    found->second->retire();
    destroyed_.push_back(std::move(found->second));
    streams_.erase(found);
    forget_drained();
    return true;
}

void Context::forget_drained() {
    std::erase_if(destroyed_,
                  [](const StreamRef& stream) { return stream->passed(stream->submitted()); });
}

std::vector<Ticket> Context::unpassed(const std::vector<StreamRef>& streams) {
    std::vector<Ticket> tickets;
    for (const StreamRef& stream : streams) {
        const std::uint64_t number = stream->submitted();
        if (!stream->passed(number)) {
            tickets.push_back({stream, number});
        }
    }
    return tickets;
}

std::uint64_t Context::submit(const StreamRef& stream, Operation operation) {
    const bool legacy = stream == legacy_;
    while (true) {
        stream->wait_for_room();  // holding nothing
        std::lock_guard lock(mutex_);
        std::vector<StreamRef> others;
        if (legacy) {
            for (const auto& [handle, other] : streams_) {
                if (other->blocking()) {
                    others.push_back(other);
                }
            }
            std::copy_if(destroyed_.begin(), destroyed_.end(), std::back_inserter(others),
                         [](const StreamRef& other) { return other->blocking(); });
        } else if (stream->blocking()) {
            others.push_back(legacy_);
        }
        const std::size_t own_waits = operation.waits_for.size();
        for (Ticket& ticket : unpassed(others)) {
            operation.waits_for.push_back(std::move(ticket));
        }
        if (const std::uint64_t number = stream->try_push(operation); number != 0) {
            return number;
        }
        operation.waits_for.resize(own_waits);
    }
}

std::vector<Ticket> Context::outstanding(const StreamRef& stream) {
    if (stream != legacy_) {
        return {{stream, stream->submitted()}};
    }
    std::vector<StreamRef> streams{legacy_};
    std::lock_guard lock(mutex_);
    for (const auto& [handle, other] : streams_) {
        if (other->blocking()) {
            streams.push_back(other);
        }
    }
    return unpassed(streams);
}

std::vector<Ticket> Context::outstanding() {
    std::lock_guard lock(mutex_);
    forget_drained();
    std::vector<StreamRef> streams = destroyed_;
    streams.push_back(legacy_);
    for (const auto& [handle, other] : streams_) {
        streams.push_back(other);
    }
    return unpassed(streams);
}

Devices::Devices() : devices_(options().devices) {
    for (std::size_t i = 0; i < devices_.size(); ++i) {
        devices_[i].ordinal = static_cast<int>(i);
        devices_[i].default_pool = std::make_unique<Pool>(static_cast<int>(i));
        devices_[i].pool = devices_[i].default_pool.get();
    }
}

Devices& Devices::instance() {
    static Devices* const kDevices = new Devices;
    return *kDevices;
}

Device* Devices::at(int ordinal) {
    return ordinal >= 0 && ordinal < count() ? &devices_[static_cast<std::size_t>(ordinal)]
                                             : nullptr;
}

std::shared_ptr<Context> Devices::create_context(int device, unsigned flags) {
    static std::atomic<std::uint64_t> next_id{1};
    auto made = std::make_shared<Context>(device, flags, next_id++);
    std::lock_guard lock(mutex_);
    contexts_[made.get()] = made;
    return made;
}

bool Devices::destroy_context(CUcontext handle) {
    std::lock_guard lock(mutex_);
    const auto found = contexts_.find(reinterpret_cast<Context*>(handle));
    if (found == contexts_.end()) {
        return false;
    }
    // Leaked on purpose: workers hold references, and an address that is never used again keeps
    // stale handles recognisable.
    new std::shared_ptr<Context>(std::move(found->second));
    contexts_.erase(found);
    return true;
}

bool Devices::is_context(CUcontext handle) {
    std::lock_guard lock(mutex_);
    return contexts_.count(reinterpret_cast<Context*>(handle)) != 0;
}

StreamRef Devices::find_stream(CUstream handle) {
    std::lock_guard lock(mutex_);
    for (const auto& [address, context] : contexts_) {
        if (StreamRef found = context->stream(handle)) {
            return found;
        }
    }
    return nullptr;
}

std::vector<Pool*> Devices::pools() {
    std::lock_guard lock(mutex_);
    std::vector<Pool*> all;
    all.reserve(devices_.size() + made_pools_.size());
    for (const Device& device : devices_) {
        all.push_back(device.default_pool.get());
    }
    for (const auto& pool : made_pools_) {
        all.push_back(pool.get());
    }
    return all;
}

Pool* Devices::add_pool(int device) {
    std::lock_guard lock(mutex_);
    return made_pools_.emplace_back(std::make_unique<Pool>(device)).get();
}

bool Devices::remove_pool(Pool* pool) {
    std::lock_guard lock(mutex_);
    const auto found = std::find_if(made_pools_.begin(), made_pools_.end(),
                                    [&](const auto& made) { return made.get() == pool; });
    if (found == made_pools_.end()) {
        return false;
    }
    // Leaked: outstanding allocations still refer to it.
    [[maybe_unused]] const Pool* const leaked = found->release();
    made_pools_.erase(found);
    return true;
}

bool Devices::is_pool(Pool* pool) {
    const auto all = pools();
    return std::find(all.begin(), all.end(), pool) != all.end();
}

StreamRef resolve_stream(CUstream handle) {
    Context* const current = current_context();
    StreamRef found = current != nullptr ? current->stream(handle) : nullptr;
    return found != nullptr ? found : Devices::instance().find_stream(handle);
}

std::vector<Context*>& context_stack() {
    thread_local auto* const kStack = new std::vector<Context*>;
    return *kStack;
}

Context* current_context() { return context_stack().empty() ? nullptr : context_stack().back(); }

CUresult wait_all(const std::vector<Ticket>& tickets) {
    for (const Ticket& ticket : tickets) {
        ticket.stream->wait(ticket.number);
    }
    for (Pool* pool : Devices::instance().pools()) {
        pool->trim_to_threshold();
    }
    return sticky_error();
}

bool all_passed(const std::vector<Ticket>& tickets) {
    return std::all_of(tickets.begin(), tickets.end(),
                       [](const Ticket& ticket) { return ticket.stream->passed(ticket.number); });
}

}  // namespace transit::sim
