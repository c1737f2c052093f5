#pragma once
// One piece of work on its way to the driver: what it may touch, and the announcement that
// keeps the mover off.
//
//   Submission work(device, stream, per_thread);
//   work.word(x) / work.range(p, n) / work.everything();      what it names
//   if (CUresult r = work.open(operands)) return r;            waits for moves, maps what must be
//   mapped r = real_...(...); work.close();
//
// Between open and close no lock is held. Costs about 10 ns an extent and 30 ns a word that hits.
#include <cuda.h>

#include <cstdint>
#include <mutex>
#include <vector>

#include "transit/device.hpp"

namespace transit {

class Submission {
public:
    Submission(Device& device, CUstream stream, bool per_thread) noexcept;
    ~Submission();
    Submission(const Submission&) = delete;
    Submission& operator=(const Submission&) = delete;

    /// A word of a parameter: if it lies in a block, the whole block is touched, and what tables in
    /// it list.
    void word(std::uint64_t value) noexcept {
        if (value - last_start_ < last_bytes_) return;
        if (device_.owns(value) || (value != 0 && device_.ledger.has_foreign_tables())) hit(value);
    }
    /// All aligned words of a parameter.
    void words(const void* from, std::size_t bytes) noexcept;
    /// A range that a copy or fill names exactly.
    void range(CUdeviceptr address, std::size_t bytes) noexcept;
    void everything() noexcept { everything_ = true; }
    bool names_everything() const noexcept { return everything_; }
    bool names_any() const noexcept { return everything_ || !ranges_.empty(); }

    enum class Operands : std::uint8_t { kInPlace, kInHbm };
    /// Announces the work to its extents. `kInHbm`: the work reads its memory many times, so what
    /// is in DRAM is brought in first.
    CUresult open(Operands operands) noexcept;
    /// As open, for work that goes into a graph: its extents are pinned instead of noted.
    CUresult open_for_graph() noexcept {
        captured_ = true;
        return open(Operands::kInHbm);
    }
    /// The driver has it. An error only in a verification run: what the work itself ended
    /// with.
    CUresult close() noexcept;
    /// The touched extents may never move again (see Pin); used instead of close by what outlives
    /// its call.
    void pin(std::uint32_t reason, const char* name) noexcept;

    bool in_dram() const noexcept { return in_dram_; }
    std::int64_t waited_ns() const noexcept { return waited_ns_; }
    /// The blocks named after this may end up holding addresses: a builder of tables always, a copy
    /// if its source does.
    void spreads_addresses(bool always, bool if_source) noexcept {
        makes_opaque_ = always;
        copies_ = if_source;
    }
    /// What verification calls this work when it touches what it does not name.
    void name(const char* name) noexcept { name_ = name; }

private:
    enum class Taken : std::uint8_t { kAll, kClaimed, kUnmapped };

    void hit(std::uint64_t value) noexcept;
    void add(ExtentRange range) noexcept;
    void scan_lock() noexcept;
    void spread(Block& block) noexcept;
    void leave_out_the_dead() noexcept;
    Taken look() noexcept;
    Taken enter() noexcept;
    bool usable(std::uint32_t extent, std::uint64_t word) noexcept;
    CUresult wait_for(Taken taken, unsigned attempt) noexcept;
    void release_holds(std::size_t whole_ranges, std::uint32_t end) noexcept;

    Device& device_;
    CUstream stream_;
    bool per_thread_;
    bool everything_ = false;
    bool open_ = false;
    bool in_dram_ = false;
    bool captured_ = false;
    unsigned slot_ = 0;
    std::uint64_t sequence_ = 0;
    std::uint32_t blocked_on_ = 0;
    Taken blocked_by_ = Taken::kAll;
    std::uint64_t last_start_ = 0;  // the last block named: a tensor map's words repeat theirs
    std::uint64_t last_bytes_ = 0;
    bool makes_opaque_ = false;
    bool copies_ = false;
    bool source_holds_addresses_ = false;
    std::vector<Block*>
        named_;  // by a copy whose source holds no address so far; valid under the ledger's lock
    std::int64_t waited_ns_ = 0;
    std::uint64_t copied_bytes_ = 0;
    const char* name_ = "a copy or fill";
    std::unique_lock<std::mutex> scanning_;  // the ledger's, from the first word to open
    std::vector<ExtentRange>& ranges_;       // this thread's, reused
};

}  // namespace transit
