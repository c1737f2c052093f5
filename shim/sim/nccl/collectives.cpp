#include "collectives.hpp"

#include <unistd.h>

#include <algorithm>
#include <cstring>

#include "reduce.hpp"

namespace transit::sim::nccl {
namespace {

constexpr useconds_t kPollUs = 20;

const unsigned char* at(const void* base, std::size_t offset) {
    return static_cast<const unsigned char*>(base) + offset;
}

unsigned char* at(void* base, std::size_t offset) {
    return static_cast<unsigned char*>(base) + offset;
}

// Each chunk: publish, wait for all, take what is ours, wait until all have taken theirs.
template <class Publish, class Take>
bool in_chunks(ncclComm& comm, std::size_t bytes, std::size_t chunk_bytes, Publish publish,
               Take take) {
    for (std::size_t done = 0; done < bytes; done += chunk_bytes) {
        const std::size_t part = std::min(chunk_bytes, bytes - done);
        publish(done, part);
        if (!comm.segment->barrier()) {
            return false;
        }
        take(done, part);
        if (!comm.segment->barrier()) {
            return false;
        }
    }
    return true;
}

bool run_reduce(ncclComm& comm, const Work& work, bool here) {
    Segment& segment = *comm.segment;
    const std::size_t element = bytes_of(work.type);
    return in_chunks(
        comm, work.count * element, Segment::kSlotBytes,
        [&](std::size_t done, std::size_t part) {
            std::memcpy(segment.slot(comm.rank), at(work.send, done), part);
        },
        [&](std::size_t done, std::size_t part) {
            std::vector<const void*> inputs;
            inputs.reserve(static_cast<std::size_t>(comm.ranks));
            for (int rank = 0; rank < comm.ranks; ++rank) {
                inputs.push_back(segment.slot(rank));
            }
            if (here) {
                reduce(at(work.receive, done), inputs.data(), comm.ranks, part / element, work.type,
                       work.op);
            }
        });
}

bool run_broadcast(ncclComm& comm, const Work& work) {
    Segment& segment = *comm.segment;
    const bool root = comm.rank == work.peer;
    return in_chunks(
        comm, work.count * bytes_of(work.type), Segment::kSlotBytes,
        [&](std::size_t done, std::size_t part) {
            if (root) {
                std::memcpy(segment.slot(work.peer), at(work.send, done), part);
            }
        },
        [&](std::size_t done, std::size_t part) {
            std::memcpy(at(work.receive, done), segment.slot(work.peer), part);
        });
}

bool run_all_gather(ncclComm& comm, const Work& work) {
    Segment& segment = *comm.segment;
    const std::size_t bytes = work.count * bytes_of(work.type);
    return in_chunks(
        comm, bytes, Segment::kSlotBytes,
        [&](std::size_t done, std::size_t part) {
            std::memcpy(segment.slot(comm.rank), at(work.send, done), part);
        },
        [&](std::size_t done, std::size_t part) {
            for (int rank = 0; rank < comm.ranks; ++rank) {
                std::memcpy(at(work.receive, static_cast<std::size_t>(rank) * bytes + done),
                            segment.slot(rank), part);
            }
        });
}

bool run_reduce_scatter(ncclComm& comm, const Work& work) {
    Segment& segment = *comm.segment;
    const std::size_t element = bytes_of(work.type);
    const std::size_t bytes = work.count * element;
    const auto ranks = static_cast<std::size_t>(comm.ranks);
    // A slot holds one piece for every rank.
    const std::size_t piece = Segment::kSlotBytes / ranks / 8 * 8;
    return in_chunks(
        comm, bytes, piece,
        [&](std::size_t done, std::size_t part) {
            for (std::size_t to = 0; to < ranks; ++to) {
                std::memcpy(segment.slot(comm.rank) + to * piece, at(work.send, to * bytes + done),
                            part);
            }
        },
        [&](std::size_t done, std::size_t part) {
            std::vector<const void*> inputs;
            inputs.reserve(static_cast<std::size_t>(comm.ranks));
            for (int rank = 0; rank < comm.ranks; ++rank) {
                inputs.push_back(segment.slot(rank) + static_cast<std::size_t>(comm.rank) * piece);
            }
            reduce(at(work.receive, done), inputs.data(), comm.ranks, part / element, work.type,
                   work.op);
        });
}

bool run_collective(ncclComm& comm, const Work& work) {
    switch (work.kind) {
    case Work::Kind::all_reduce:
        return run_reduce(comm, work, true);
    case Work::Kind::reduce:
        return run_reduce(comm, work, comm.rank == work.peer);
    case Work::Kind::broadcast:
        return run_broadcast(comm, work);
    case Work::Kind::all_gather:
        return run_all_gather(comm, work);
    case Work::Kind::reduce_scatter:
        return run_reduce_scatter(comm, work);
    default:
        return true;
    }
}

struct Flow {
    const Work* work;
    std::size_t bytes;
    std::size_t done = 0;
};

// Moves what fits now; true if anything moved.
bool progress(ncclComm& comm, Flow& flow) {
    const bool sends = flow.work->kind == Work::Kind::send;
    Segment::Ring& ring = sends ? comm.segment->ring(comm.rank, flow.work->peer)
                                : comm.segment->ring(flow.work->peer, comm.rank);
    const std::uint64_t written = ring.written.load(std::memory_order_acquire);
    const std::uint64_t read = ring.read.load(std::memory_order_acquire);
    const std::uint64_t position = (sends ? written : read) % Segment::kRingBytes;
    const std::uint64_t possible = sends ? Segment::kRingBytes - (written - read) : written - read;
    const std::uint64_t part = std::min({possible, std::uint64_t{flow.bytes - flow.done},
                                         std::uint64_t{Segment::kRingBytes - position}});
    if (part == 0) {
        return false;
    }
    if (sends) {
        std::memcpy(ring.data + position, at(flow.work->send, flow.done), part);
        ring.written.store(written + part, std::memory_order_release);
    } else {
        std::memcpy(at(flow.work->receive, flow.done), ring.data + position, part);
        ring.read.store(read + part, std::memory_order_release);
    }
    flow.done += part;
    return true;
}

// Together, since a ring is small: a send may only end when its receive has begun. Flows over the
// same ring go one after the other, in the order of the calls.
bool run_flows(ncclComm& comm, std::vector<Flow> flows) {
    while (!flows.empty()) {
        bool moved = false;
        std::vector<std::pair<Work::Kind, int>> busy;
        for (Flow& flow : flows) {
            const std::pair ring{flow.work->kind, flow.work->peer};
            if (std::find(busy.begin(), busy.end(), ring) == busy.end()) {
                busy.push_back(ring);
                moved |= progress(comm, flow);
            }
        }
        std::erase_if(flows, [](const Flow& flow) { return flow.done == flow.bytes; });
        if (comm.segment->aborted()) {
            return false;
        }
        if (!moved && !flows.empty()) {
            usleep(kPollUs);
        }
    }
    return true;
}

}  // namespace

void execute(ncclComm& comm, const std::vector<Work>& works) {
    std::lock_guard lock(comm.running);
    bool sound = !comm.segment->aborted();
    std::vector<Flow> flows;
    for (const Work& work : works) {
        if (work.kind == Work::Kind::send || work.kind == Work::Kind::receive) {
            flows.push_back({&work, work.count * bytes_of(work.type)});
        } else {
            sound = sound && run_collective(comm, work);
        }
    }
    std::erase_if(flows, [](const Flow& flow) { return flow.bytes == 0; });
    sound = sound && run_flows(comm, std::move(flows));
    if (!sound) {
        comm.error = ncclRemoteError;
    }
}

}  // namespace transit::sim::nccl
