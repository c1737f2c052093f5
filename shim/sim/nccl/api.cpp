// NCCL's entry points.
#include <unistd.h>

#include <cstdio>
#include <cstring>
#include <random>

#include "collectives.hpp"
#include "driver.hpp"
#include "group.hpp"
#include "reduce.hpp"

namespace transit::sim::nccl {
namespace {

constexpr int kVersion = 22805;
constexpr int kMaxRanks = 64;

ncclResult_t open_comm(ncclComm_t* comm, const std::string& key, int ranks, int rank) {
    auto made = std::make_unique<ncclComm>();
    made->rank = rank;
    made->ranks = ranks;
    made->key = key;
    if (current_device(&made->device) != 0) {
        return ncclUnhandledCudaError;
    }
    made->segment = Segment::join(key, rank, ranks);
    if (made->segment == nullptr) {
        return ncclSystemError;
    }
    *comm = made.release();
    return ncclSuccess;
}

ncclResult_t init(const char* name, ncclComm_t* comm, int ranks, const ncclUniqueId& id, int rank) {
    ncclResult_t result = ncclInvalidArgument;
    if (comm != nullptr && ranks > 0 && ranks <= kMaxRanks && rank >= 0 && rank < ranks) {
        result = open_comm(comm, std::string(id.internal, strnlen(id.internal, sizeof id.internal)),
                           ranks, rank);
    }
    char line[256];
    std::snprintf(line, sizeof line, "%s comm=%p ranks=%d rank=%d -> %d", name,
                  static_cast<void*>(result == ncclSuccess ? *comm : nullptr), ranks, rank,
                  static_cast<int>(result));
    truth(line);
    return result;
}

ncclResult_t queue(const char* name, ncclComm_t comm, const Work& work, cudaStream_t stream) {
    ncclResult_t result = ncclInvalidArgument;
    const bool peer_valid = comm != nullptr && work.peer >= 0 && work.peer < comm->ranks;
    if (peer_valid && bytes_of(work.type) != 0 && work.op >= ncclSum && work.op <= ncclAvg) {
        const auto error = static_cast<ncclResult_t>(comm->error.load());
        result = error != ncclSuccess ? error : submit(comm, work, stream);
    }
    char line[320];
    std::snprintf(line, sizeof line,
                  "%s send=%p receive=%p count=%zu dtype=%d op=%d peer=%d comm=%p stream=%p -> %d",
                  name, work.send, work.receive, work.count, static_cast<int>(work.type),
                  static_cast<int>(work.op), work.peer, static_cast<void*>(comm),
                  static_cast<void*>(stream), static_cast<int>(result));
    truth(line);
    return result;
}

ncclResult_t close_comm(const char* name, ncclComm_t comm, bool abort) {
    char line[128];
    std::snprintf(line, sizeof line, "%s comm=%p -> 0", name, static_cast<void*>(comm));
    truth(line);
    if (comm == nullptr) {
        return ncclSuccess;
    }
    if (abort) {
        comm->segment->abort();
    }
    while (comm->queued > 0) {
        usleep(100);
    }
    delete comm;
    return ncclSuccess;
}

using Kind = Work::Kind;

// One side of an exchange: a piece for each rank, or for the root alone.
struct Side {
    const char* base;
    std::size_t piece_bytes;
    bool with_all;
};

// Gathers, scatters and exchanges are sends and receives, as in NCCL itself.
ncclResult_t exchange(const char* name, ncclComm_t comm, Side from, Side to, size_t count,
                      ncclDataType_t type, int root, cudaStream_t stream) {
    if (comm == nullptr || root >= comm->ranks) {
        return ncclInvalidArgument;
    }
    group_start();
    for (int peer = 0; peer < comm->ranks; ++peer) {
        const auto at = static_cast<std::size_t>(peer);
        const bool sends = root < 0 || (from.with_all ? comm->rank == root : peer == root);
        const bool receives = root < 0 || (to.with_all ? comm->rank == root : peer == root);
        if (sends) {
            queue(name, comm,
                  {Kind::send, from.base + (from.with_all ? at * from.piece_bytes : 0), nullptr,
                   count, type, ncclSum, peer},
                  stream);
        }
        if (receives) {
            queue(name, comm,
                  {Kind::receive, nullptr,
                   const_cast<char*>(to.base) + (to.with_all ? at * to.piece_bytes : 0), count,
                   type, ncclSum, peer},
                  stream);
        }
    }
    return group_end();
}

Side side(const void* base, size_t count, ncclDataType_t type, bool with_all) {
    return {static_cast<const char*>(base), count * bytes_of(type), with_all};
}

}  // namespace
}  // namespace transit::sim::nccl

using namespace transit::sim::nccl;

extern "C" {

ncclResult_t ncclGetVersion(int* version) {
    *version = kVersion;
    return ncclSuccess;
}

ncclResult_t ncclGetUniqueId(ncclUniqueId* id) {
    std::random_device random;
    std::memset(id, 0, sizeof *id);
    std::snprintf(id->internal, sizeof id->internal, "%08x%08x%08x_%d", random(), random(),
                  random(), getpid());
    truth("ncclGetUniqueId -> 0");
    return ncclSuccess;
}

ncclResult_t ncclCommInitRank(ncclComm_t* comm, int ranks, ncclUniqueId id, int rank) {
    return init("ncclCommInitRank", comm, ranks, id, rank);
}

ncclResult_t ncclCommInitRankConfig(ncclComm_t* comm, int ranks, ncclUniqueId id, int rank, void*) {
    return init("ncclCommInitRankConfig", comm, ranks, id, rank);
}

// Colours and keys travel through the parent's slots; ranks of one colour then meet under a new
// key.
ncclResult_t ncclCommSplit(ncclComm_t comm, int color, int key, ncclComm_t* child, void*) {
    if (comm == nullptr || child == nullptr) {
        return ncclInvalidArgument;
    }
    std::lock_guard lock(comm->running);
    const int mine[2] = {color, key};
    std::memcpy(comm->segment->slot(comm->rank), mine, sizeof mine);
    if (!comm->segment->barrier()) {
        return ncclRemoteError;
    }
    int rank = 0;
    int ranks = 0;
    for (int other = 0; other < comm->ranks; ++other) {
        int theirs[2];
        std::memcpy(theirs, comm->segment->slot(other), sizeof theirs);
        if (theirs[0] == color) {
            ++ranks;
            rank += theirs[1] < key || (theirs[1] == key && other < comm->rank) ? 1 : 0;
        }
    }
    const std::string name =
        comm->key + "_" + std::to_string(++comm->splits) + "_" + std::to_string(color);
    if (!comm->segment->barrier()) {
        return ncclRemoteError;
    }
    *child = nullptr;
    return color < 0 ? ncclSuccess : open_comm(child, name, ranks, rank);
}

ncclResult_t ncclCommFinalize(ncclComm_t comm) {
    while (comm != nullptr && comm->queued > 0) {
        usleep(100);
    }
    return comm != nullptr ? ncclSuccess : ncclInvalidArgument;
}
ncclResult_t ncclCommDestroy(ncclComm_t comm) { return close_comm("ncclCommDestroy", comm, false); }
ncclResult_t ncclCommAbort(ncclComm_t comm) { return close_comm("ncclCommAbort", comm, true); }

ncclResult_t ncclCommGetAsyncError(ncclComm_t comm, ncclResult_t* error) {
    *error = static_cast<ncclResult_t>(comm->error.load());
    return ncclSuccess;
}
ncclResult_t ncclCommCount(const ncclComm_t comm, int* count) {
    *count = comm->ranks;
    return ncclSuccess;
}
ncclResult_t ncclCommUserRank(const ncclComm_t comm, int* rank) {
    *rank = comm->rank;
    return ncclSuccess;
}
ncclResult_t ncclCommCuDevice(const ncclComm_t comm, int* device) {
    *device = comm->device;
    return ncclSuccess;
}

const char* ncclGetErrorString(ncclResult_t result) {
    switch (result) {
    case ncclSuccess:
        return "no error";
    case ncclUnhandledCudaError:
        return "unhandled cuda error";
    case ncclSystemError:
        return "unhandled system error";
    case ncclInternalError:
        return "internal error";
    case ncclInvalidArgument:
        return "invalid argument";
    case ncclInvalidUsage:
        return "invalid usage";
    case ncclRemoteError:
        return "remote process exited or there was a network error";
    case ncclInProgress:
        return "NCCL operation in progress";
    }
    return "unknown result code";
}
const char* ncclGetLastError(ncclComm_t) { return ""; }

ncclResult_t ncclGroupStart() { return group_start(); }
ncclResult_t ncclGroupEnd() { return group_end(); }

ncclResult_t ncclAllReduce(const void* send, void* receive, size_t count, ncclDataType_t type,
                           ncclRedOp_t op, ncclComm_t comm, cudaStream_t stream) {
    return queue("ncclAllReduce", comm, {Kind::all_reduce, send, receive, count, type, op}, stream);
}
ncclResult_t ncclReduce(const void* send, void* receive, size_t count, ncclDataType_t type,
                        ncclRedOp_t op, int root, ncclComm_t comm, cudaStream_t stream) {
    return queue("ncclReduce", comm, {Kind::reduce, send, receive, count, type, op, root}, stream);
}
ncclResult_t ncclReduceScatter(const void* send, void* receive, size_t count, ncclDataType_t type,
                               ncclRedOp_t op, ncclComm_t comm, cudaStream_t stream) {
    return queue("ncclReduceScatter", comm, {Kind::reduce_scatter, send, receive, count, type, op},
                 stream);
}
ncclResult_t ncclAllGather(const void* send, void* receive, size_t count, ncclDataType_t type,
                           ncclComm_t comm, cudaStream_t stream) {
    return queue("ncclAllGather", comm, {Kind::all_gather, send, receive, count, type}, stream);
}
ncclResult_t ncclBroadcast(const void* send, void* receive, size_t count, ncclDataType_t type,
                           int root, ncclComm_t comm, cudaStream_t stream) {
    return queue("ncclBroadcast", comm,
                 {Kind::broadcast, send, receive, count, type, ncclSum, root}, stream);
}
ncclResult_t ncclBcast(void* buffer, size_t count, ncclDataType_t type, int root, ncclComm_t comm,
                       cudaStream_t stream) {
    return queue("ncclBcast", comm, {Kind::broadcast, buffer, buffer, count, type, ncclSum, root},
                 stream);
}
ncclResult_t ncclSend(const void* send, size_t count, ncclDataType_t type, int peer,
                      ncclComm_t comm, cudaStream_t stream) {
    return queue("ncclSend", comm, {Kind::send, send, nullptr, count, type, ncclSum, peer}, stream);
}
ncclResult_t ncclRecv(void* receive, size_t count, ncclDataType_t type, int peer, ncclComm_t comm,
                      cudaStream_t stream) {
    return queue("ncclRecv", comm, {Kind::receive, nullptr, receive, count, type, ncclSum, peer},
                 stream);
}

ncclResult_t ncclAlltoAll(const void* send, void* receive, size_t count, ncclDataType_t type,
                          ncclComm_t comm, cudaStream_t stream) {
    return exchange("ncclAlltoAll", comm, side(send, count, type, true),
                    side(receive, count, type, true), count, type, -1, stream);
}
ncclResult_t ncclGather(const void* send, void* receive, size_t count, ncclDataType_t type,
                        int root, ncclComm_t comm, cudaStream_t stream) {
    return exchange("ncclGather", comm, side(send, count, type, false),
                    side(receive, count, type, true), count, type, root, stream);
}
ncclResult_t ncclScatter(const void* send, void* receive, size_t count, ncclDataType_t type,
                         int root, ncclComm_t comm, cudaStream_t stream) {
    return exchange("ncclScatter", comm, side(send, count, type, true),
                    side(receive, count, type, false), count, type, root, stream);
}
ncclResult_t ncclGroupSimulateEnd(void*) { return group_drop(); }

// Registration changes nothing here; the handle is the buffer.
ncclResult_t ncclCommRegister(ncclComm_t comm, void* buffer, size_t, void** handle) {
    *handle = buffer;
    return comm != nullptr ? ncclSuccess : ncclInvalidArgument;
}
ncclResult_t ncclCommDeregister(ncclComm_t comm, void*) {
    return comm != nullptr ? ncclSuccess : ncclInvalidArgument;
}

}  // extern "C"
