// What a collective does when its turn comes on the stream.
#pragma once

#include <atomic>
#include <memory>
#include <mutex>
#include <string>
#include <vector>

#include "nccl_api.hpp"
#include "segment.hpp"

struct ncclComm {
    int rank = 0;
    int ranks = 1;
    int device = 0;
    std::string key;
    unsigned splits = 0;
    std::unique_ptr<transit::sim::nccl::Segment> segment;
    std::mutex running;  // operations of one communicator do not overlap
    std::atomic<int> error{ncclSuccess};
    std::atomic<int> queued{0};
};

namespace transit::sim::nccl {

struct Work {
    enum class Kind {
        all_reduce,
        reduce,
        broadcast,
        reduce_scatter,
        all_gather,
        send,
        receive
    } kind;
    const void* send = nullptr;
    void* receive = nullptr;
    std::size_t count = 0;
    ncclDataType_t type = ncclFloat32;
    ncclRedOp_t op = ncclSum;
    int peer = 0;  // or root
};

// All works of one group: collectives in order, then sends and receives together.
void execute(ncclComm& comm, const std::vector<Work>& works);

}  // namespace transit::sim::nccl
