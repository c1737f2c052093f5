// A stream: a queue of operations and the thread that runs them, in order, behind the host.
#pragma once

#include <condition_variable>
#include <cstdint>
#include <deque>
#include <functional>
#include <memory>
#include <mutex>
#include <random>
#include <vector>

#include "cuda_api.hpp"

namespace transit::sim {

class Capture;
class Context;
class Stream;
using StreamRef = std::shared_ptr<Stream>;

// A place in a stream's order; passed when everything submitted up to it has run.
struct Ticket {
    StreamRef stream;
    std::uint64_t number = 0;
};

struct Operation {
    const char* name;
    std::function<void()> run;
    std::vector<Ticket> waits_for = {};
    bool always = false;  // runs even after a sticky error: bookkeeping, not device work
};

class Stream : public std::enable_shared_from_this<Stream> {
public:
    // As on the device: the host blocks when this many operations are queued.
    static constexpr std::uint64_t kQueueLimit = 1024;

    Stream(Context& context, unsigned flags, int priority, std::uint64_t id);

    Context& context() const { return context_; }
    unsigned flags() const { return flags_; }
    int priority() const { return priority_; }
    std::uint64_t id() const { return id_; }
    bool blocking() const { return (flags_ & CU_STREAM_NON_BLOCKING) == 0; }

    // Pushes unless the queue is full; 0 then, else the operation's ticket number.
    std::uint64_t try_push(Operation& operation);
    void wait_for_room();
    std::uint64_t submitted() const;
    bool passed(std::uint64_t number) const;
    void wait(std::uint64_t number) const;
    // No more operations will come; the thread ends when the queue is empty.
    void retire();

    std::shared_ptr<Capture> capture;  // guarded by the capture registry

private:
    void work();
    void run(const Operation& operation);

    Context& context_;
    const unsigned flags_;
    const int priority_;
    const std::uint64_t id_;

    mutable std::mutex mutex_;
    mutable std::condition_variable changed_;
    std::deque<Operation> queue_;
    std::uint64_t submitted_ = 0;
    std::uint64_t completed_ = 0;
    bool started_ = false;
    bool retired_ = false;
    std::minstd_rand latency_;  // used by the worker only
};

}  // namespace transit::sim
