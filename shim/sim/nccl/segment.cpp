#include "segment.hpp"

#include <fcntl.h>
#include <sys/mman.h>
#include <unistd.h>

#include <cstdlib>

namespace transit::sim::nccl {
namespace {

constexpr std::uint64_t kJoinTimeoutUs = 120'000'000;
constexpr std::uint64_t kNoTimeout = ~std::uint64_t{0};
constexpr useconds_t kPollUs = 20;

std::string path_of(const std::string& key) {
    const char* directory = std::getenv("TRANSIT_SIM_NCCL_DIR");
    return std::string(directory != nullptr && *directory != '\0' ? directory : "/dev/shm") +
           "/transit_nccl_" + key;
}

}  // namespace

struct Segment::Header {
    std::atomic<std::uint32_t> arrived;
    std::atomic<std::uint32_t> generation;
    std::atomic<std::uint32_t> aborted;
};

std::unique_ptr<Segment> Segment::join(const std::string& key, int rank, int ranks) {
    const auto n = static_cast<std::size_t>(ranks);
    const std::size_t bytes = 4096 + n * kSlotBytes + n * n * sizeof(Ring);  // sparse
    const std::string path = path_of(key);
    const int fd = open(path.c_str(), O_RDWR | O_CREAT | O_CLOEXEC, 0600);
    if (fd < 0) {
        return nullptr;
    }
    void* at = MAP_FAILED;
    if (ftruncate(fd, static_cast<off_t>(bytes)) == 0) {  // zeros are the initial state
        at = mmap(nullptr, bytes, PROT_READ | PROT_WRITE, MAP_SHARED, fd, 0);
    }
    close(fd);
    if (at == MAP_FAILED) {
        return nullptr;
    }
    std::unique_ptr<Segment> segment(new Segment(static_cast<Header*>(at), bytes, ranks));
    const bool complete = segment->barrier_within(kJoinTimeoutUs);
    if (rank == 0 || !complete) {
        unlink(path.c_str());  // everyone has it mapped: nothing is left behind
    }
    return complete ? std::move(segment) : nullptr;
}

Segment::~Segment() { munmap(header_, bytes_); }

bool Segment::barrier() { return barrier_within(kNoTimeout); }

bool Segment::barrier_within(std::uint64_t timeout_us) {
    const std::uint32_t generation = header_->generation.load(std::memory_order_acquire);
    if (header_->arrived.fetch_add(1, std::memory_order_acq_rel) + 1 ==
        static_cast<std::uint32_t>(ranks_)) {
        header_->arrived.store(0, std::memory_order_relaxed);
        header_->generation.store(generation + 1, std::memory_order_release);
        return true;
    }
    for (std::uint64_t waited_us = 0;
         header_->generation.load(std::memory_order_acquire) == generation; waited_us += kPollUs) {
        if (aborted() || waited_us > timeout_us) {
            return false;
        }
        usleep(kPollUs);
    }
    return true;
}

void Segment::abort() { header_->aborted.store(1, std::memory_order_release); }

bool Segment::aborted() const { return header_->aborted.load(std::memory_order_acquire) != 0; }

unsigned char* Segment::slot(int rank) {
    return reinterpret_cast<unsigned char*>(header_) + 4096 +
           static_cast<std::size_t>(rank) * kSlotBytes;
}

Segment::Ring& Segment::ring(int from, int to) {
    auto* const rings = reinterpret_cast<Ring*>(slot(ranks_));
    return rings[from * ranks_ + to];
}

}  // namespace transit::sim::nccl
