// The shared file through which the ranks of a communicator exchange data.
#pragma once

#include <atomic>
#include <cstddef>
#include <cstdint>
#include <memory>
#include <string>

namespace transit::sim::nccl {

class Segment {
public:
    static constexpr std::size_t kSlotBytes = std::size_t{1} << 20;
    static constexpr std::size_t kRingBytes = std::size_t{256} << 10;

    // One direction between two ranks: a ring of bytes.
    struct Ring {
        alignas(64) std::atomic<std::uint64_t> written;
        alignas(64) std::atomic<std::uint64_t> read;
        alignas(64) unsigned char data[kRingBytes];
    };

    // Opens (the first makes it) and waits until all ranks have; null after a timeout.
    static std::unique_ptr<Segment> join(const std::string& key, int rank, int ranks);
    ~Segment();

    // Waits for all ranks; false when the communicator was aborted.
    bool barrier();
    void abort();
    bool aborted() const;
    unsigned char* slot(int rank);
    Ring& ring(int from, int to);

private:
    struct Header;
    Segment(Header* header, std::size_t bytes, int ranks)
        : header_(header), bytes_(bytes), ranks_(ranks) {}
    bool barrier_within(std::uint64_t timeout_us);

    Header* header_;
    std::size_t bytes_;
    int ranks_;
};

}  // namespace transit::sim::nccl
