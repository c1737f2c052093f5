#include "group.hpp"

#include <algorithm>
#include <utility>

#include "driver.hpp"

namespace transit::sim::nccl {
namespace {

struct Batch {
    ncclComm* comm;
    cudaStream_t stream;
    std::vector<Work> works;
    bool keep = false;  // belongs to a graph, which runs it again
};

struct Group {
    int depth = 0;
    std::vector<Batch> batches;
};

Group& group() {
    thread_local auto* const kGroup = new Group;
    return *kGroup;
}

void run_batch(void* user) {
    auto* const batch = static_cast<Batch*>(user);
    execute(*batch->comm, batch->works);
    if (!batch->keep) {
        --batch->comm->queued;
        delete batch;
    }
}

ncclResult_t launch(Batch&& batch) {
    const OnDevice current(batch.comm->device);  // whose default streams have their names then
    auto* const queued = new Batch(std::move(batch));
    queued->keep = capturing(queued->stream);
    ncclComm& comm = *queued->comm;
    const int counted = queued->keep ? 0 : 1;
    comm.queued += counted;
    if (enqueue(queued->stream, &run_batch, queued) != 0) {
        comm.queued -= counted;
        delete queued;
        return ncclUnhandledCudaError;
    }
    return ncclSuccess;
}

}  // namespace

ncclResult_t group_start() {
    ++group().depth;
    return ncclSuccess;
}

ncclResult_t group_end() {
    Group& open = group();
    if (open.depth == 0) {
        return ncclInvalidUsage;
    }
    if (--open.depth > 0) {
        return ncclSuccess;
    }
    ncclResult_t result = ncclSuccess;
    for (Batch& batch : std::exchange(open.batches, {})) {
        const ncclResult_t launched = launch(std::move(batch));
        result = result == ncclSuccess ? launched : result;
    }
    return result;
}

ncclResult_t group_drop() {
    Group& open = group();
    if (open.depth == 0) {
        return ncclInvalidUsage;
    }
    if (--open.depth == 0) {
        open.batches.clear();
    }
    return ncclSuccess;
}

ncclResult_t submit(ncclComm* comm, const Work& work, cudaStream_t stream) {
    Group& open = group();
    if (open.depth == 0) {
        return launch({comm, stream, {work}});
    }
    const auto found =
        std::find_if(open.batches.begin(), open.batches.end(), [&](const Batch& batch) {
            return batch.comm == comm && batch.stream == stream;
        });
    if (found != open.batches.end()) {
        found->works.push_back(work);
    } else {
        open.batches.push_back({comm, stream, {work}});
    }
    return ncclSuccess;
}

}  // namespace transit::sim::nccl
