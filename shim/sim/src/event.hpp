// Events. A record is a ticket of the stream it was recorded on, so it outlives event and stream.
#pragma once

#include <atomic>
#include <memory>

#include "cuda_api.hpp"
#include "stream.hpp"

namespace transit::sim {

struct EventRecord {
    Ticket ticket;
    std::atomic<std::uint64_t> passed_at_ns{0};
};

struct Event {
    unsigned flags = 0;
    const Context* context = nullptr;  // whose streams alone may record it
    std::shared_ptr<EventRecord> record;
    // If the last record was captured: where in which capture.
    std::shared_ptr<Capture> capture;
    StreamRef captured_on;
    std::uint64_t captured_at = 0;
};

}  // namespace transit::sim
