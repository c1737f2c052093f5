// Devices, contexts and their streams, and what is current on a thread.
#pragma once

#include <map>
#include <memory>
#include <mutex>
#include <vector>

#include "cuda_api.hpp"
#include "stream.hpp"

namespace transit::sim {

class Pool;

class Context {
public:
    Context(int device, unsigned flags, std::uint64_t id);

    int device() const { return device_; }
    unsigned flags = 0;
    std::uint64_t id() const { return id_; }
    CUcontext handle() { return reinterpret_cast<CUcontext>(this); }

    StreamRef create_stream(unsigned flags, int priority);
    // Null if the handle is not one of this context's streams (or the default ones).
    StreamRef stream(CUstream handle);
    bool destroy_stream(CUstream handle);
    const StreamRef& legacy() const { return legacy_; }

    // Queues, blocking while the stream is full, and returns the ticket number. Orders the legacy
    // stream against the blocking ones: each waits for what the other was given before.
    std::uint64_t submit(const StreamRef& stream, Operation operation);
    // What a sync of this stream must wait for: for the legacy stream all blocking streams too.
    std::vector<Ticket> outstanding(const StreamRef& stream);
    std::vector<Ticket> outstanding();

private:
    std::vector<Ticket> unpassed(const std::vector<StreamRef>& streams);
    void forget_drained();

    const int device_;
    const std::uint64_t id_;
    std::mutex mutex_;
    StreamRef legacy_;
    std::map<CUstream, StreamRef> streams_;
    std::vector<StreamRef> destroyed_;  // but not drained: a sync still waits for them
};

struct Device {
    int ordinal = 0;
    std::shared_ptr<Context> primary;
    unsigned primary_users = 0;
    unsigned primary_flags = 0;
    std::unique_ptr<Pool> default_pool;
    Pool* pool = nullptr;
};

class Devices {
public:
    static Devices& instance();
    Device* at(int ordinal);  // null if there is none
    int count() const { return static_cast<int>(devices_.size()); }
    std::mutex& mutex() { return mutex_; }

    std::shared_ptr<Context> create_context(int device, unsigned flags);
    bool destroy_context(CUcontext handle);
    bool is_context(CUcontext handle);
    StreamRef find_stream(CUstream handle);  // in any context; null for unknown handles
    std::vector<Pool*> pools();
    Pool* add_pool(int device);
    bool remove_pool(Pool* pool);
    bool is_pool(Pool* pool);

private:
    Devices();
    std::mutex mutex_;
    std::vector<Device> devices_;
    std::map<Context*, std::shared_ptr<Context>> contexts_;
    std::vector<std::unique_ptr<Pool>> made_pools_;
};

// The stream a handle names for the calling thread; null if there is none.
StreamRef resolve_stream(CUstream handle);

std::vector<Context*>& context_stack();  // of the calling thread
Context* current_context();

// Waits, then gives unused pool memory back as a sync of the real driver does.
CUresult wait_all(const std::vector<Ticket>& tickets);
bool all_passed(const std::vector<Ticket>& tickets);

}  // namespace transit::sim
