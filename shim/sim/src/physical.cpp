#include "physical.hpp"

#include <fcntl.h>
#include <sys/mman.h>
#include <unistd.h>

#include <algorithm>
#include <cstdlib>
#include <cstring>

#include "options.hpp"

namespace transit::sim {
namespace {

// Sparse: only touched pages exist. One file, because a descriptor per frame would run out of them.
constexpr std::uint64_t kStoreBytes = std::uint64_t{1} << 42;

void poison(const Frame& frame) {
    void* at = mmap(nullptr, frame.bytes(), PROT_READ | PROT_WRITE, MAP_SHARED, frame.fd(),
                    static_cast<off_t>(frame.offset()));
    if (at != MAP_FAILED) {
        std::memset(at, 0xFF, frame.bytes());
        munmap(at, frame.bytes());
    }
}

}  // namespace

Frame::Frame(int fd, bool own_fd, std::uint64_t offset, std::size_t bytes, Place place, int device,
             bool counted)
    : fd_(fd), own_fd_(own_fd), offset_(offset), bytes_(bytes), place_(place), device_(device),
      counted_(counted) {}

Frame::~Frame() {
    PhysicalStore::instance().give_back(*this, counted_);
    if (own_fd_) {
        close(fd_);
    }
}

PhysicalStore& PhysicalStore::instance() {
    static PhysicalStore* const kStore = new PhysicalStore;
    return *kStore;
}

bool PhysicalStore::take(std::size_t bytes, Place place, int device) {
    if (place == Place::hbm) {
        std::uint64_t& used = device_bytes_[device];
        if (used + bytes > options().hbm_bytes) {
            return false;
        }
        used += bytes;
    }
    Usage& usage = usage_[static_cast<int>(place)];
    usage.bytes += bytes;
    usage.peak_bytes = std::max(usage.peak_bytes, usage.bytes);
    return true;
}

std::uint64_t PhysicalStore::place_in_store(std::size_t bytes) {
    if (store_fd_ < 0) {
        store_fd_ = memfd_create("transit_sim_memory", MFD_CLOEXEC);
        if (store_fd_ < 0 || ftruncate(store_fd_, static_cast<off_t>(kStoreBytes)) != 0) {
            std::abort();
        }
    }
    std::vector<std::uint64_t>& free = free_offsets_[bytes];
    if (!free.empty()) {
        const std::uint64_t offset = free.back();
        free.pop_back();
        return offset;
    }
    const std::uint64_t offset = store_end_;
    store_end_ += bytes;
    return offset;
}

std::shared_ptr<Frame> PhysicalStore::allocate(std::size_t bytes, Place place, int device,
                                               bool exportable) {
    std::shared_ptr<Frame> frame;
    {
        std::lock_guard lock(mutex_);
        if (!take(bytes, place, device)) {
            return nullptr;
        }
        if (exportable) {
            const int fd = memfd_create("transit_sim_shared", MFD_CLOEXEC);
            if (fd < 0 || ftruncate(fd, static_cast<off_t>(bytes)) != 0) {
                std::abort();
            }
            frame = std::make_shared<Frame>(fd, true, 0, bytes, place, device, true);
        } else {
            const std::uint64_t offset = place_in_store(bytes);
            frame = std::make_shared<Frame>(store_fd_, false, offset, bytes, place, device, true);
        }
    }
    if (options().poison) {
        poison(*frame);
    }
    return frame;
}

std::shared_ptr<Frame> PhysicalStore::adopt(int fd, std::uint64_t offset, std::size_t bytes,
                                            bool own_fd) {
    return std::make_shared<Frame>(fd, own_fd, offset, bytes, Place::hbm, 0, false);
}

void PhysicalStore::give_back(const Frame& frame, bool counted) {
    if (!counted) {
        return;
    }
    if (!frame.exportable()) {
        // Gives the pages back, so that a run's real memory follows its simulated memory.
        fallocate(frame.fd(), FALLOC_FL_PUNCH_HOLE | FALLOC_FL_KEEP_SIZE,
                  static_cast<off_t>(frame.offset()), static_cast<off_t>(frame.bytes()));
    }
    std::lock_guard lock(mutex_);
    if (!frame.exportable()) {
        free_offsets_[frame.bytes()].push_back(frame.offset());
    }
    usage_[static_cast<int>(frame.place())].bytes -= frame.bytes();
    if (frame.place() == Place::hbm) {
        device_bytes_[frame.device()] -= frame.bytes();
    }
}

std::uint64_t PhysicalStore::bytes(Place place) const {
    std::lock_guard lock(mutex_);
    return usage_[static_cast<int>(place)].bytes;
}

std::uint64_t PhysicalStore::peak_bytes(Place place) const {
    std::lock_guard lock(mutex_);
    return usage_[static_cast<int>(place)].peak_bytes;
}

std::uint64_t PhysicalStore::device_bytes(int device) const {
    std::lock_guard lock(mutex_);
    const auto found = device_bytes_.find(device);
    return found == device_bytes_.end() ? 0 : found->second;
}

}  // namespace transit::sim
