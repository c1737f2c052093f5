#pragma once
// What the application was given: allocations (as the driver handed them out) and blocks (the units
// that live and die), the extents under them, and the tables of addresses stored in them. Pure; the
// device guards it with one lock.
#include <atomic>
#include <cstdint>
#include <map>
#include <memory>
#include <optional>
#include <unordered_map>
#include <vector>

#include "transit/huge_pages.hpp"

namespace transit {

struct ExtentRange {
    std::uint32_t first = 0;
    std::uint32_t last = 0;  // inclusive
};

/// Sorts them and leaves out what repeats.
void keep_each_once(std::vector<ExtentRange>& ranges);

struct Block {
    std::uint64_t start = 0;
    std::uint64_t bytes = 0;
    std::uint32_t born_boundary = 0;  // step boundaries seen before it was made
    bool lifetime_known = false;  // freed when the application frees it, not when its segment goes
    bool opaque = false;          // may hold addresses computed on the device
    bool has_tables = false;      // addresses are stored in it
    bool listed = false;          // some table has held its address
    ExtentRange extents;

    std::uint64_t end() const { return start + bytes; }
};

inline constexpr std::uint32_t kNoZone =
    ~std::uint32_t{0};  // addresses that are not given back to a zone

/// An allocation that the driver call returned: a segment of a caching allocator, or a tensor.
struct Allocation {
    std::uint64_t bytes = 0;       // asked for
    std::uint64_t span_bytes = 0;  // taken from the address space
    bool traced = false;           // its blocks are announced by the allocator's observer
    std::uint32_t zone = 0;        // of the arena that its addresses came from
};

/// Addresses found in host data that was copied to the device, by the extents they reach.
struct Table {
    std::uint64_t bytes = 0;
    std::vector<ExtentRange> reaches;
    bool foreign = false;  // lies in no block of ours
};

class Ledger {
public:
    /// A block as an extent lists it: its bounds by value, since a launch looks up a hundred
    /// addresses and each block it need not follow saves a cache miss.
    struct Listed {
        std::uint64_t start;
        std::uint64_t end;
        Block* block;
        bool holds_addresses;  // has tables, or is opaque
    };

    Ledger(std::uint64_t base, std::uint32_t extents, std::uint64_t extent_bytes);

    void add_allocation(std::uint64_t address, const Allocation& allocation);
    std::optional<Allocation> remove_allocation(std::uint64_t address);
    Allocation* allocation_at(std::uint64_t address);
    /// Start and record of the allocation that contains `address`.
    std::optional<std::pair<std::uint64_t, Allocation>>
    allocation_around(std::uint64_t address) const;

    /// Adds a block; any block it overlaps is removed first (its free was never announced).
    /// `born` receives the extents that had no live block before, `died` those that lost their last
    /// on the way.
    void add_block(const Block& block, std::vector<std::uint32_t>& born,
                   std::vector<std::uint32_t>* died = nullptr);
    /// Removes the block starting at `address`; `died` receives the extents left without a live
    /// block.
    std::optional<Block> remove_block(std::uint64_t address, std::vector<std::uint32_t>& died);
    /// Removes every block in [address, address + bytes).
    void remove_blocks(std::uint64_t address, std::uint64_t bytes,
                       std::vector<std::uint32_t>& died);

    /// The block that contains `address`, or nullptr. A binary search among the blocks of one
    /// extent.
    const Listed* look_up(std::uint64_t address) const;
    Block* find(std::uint64_t address) {
        const Listed* listed = look_up(address);
        return listed == nullptr ? nullptr : listed->block;
    }
    /// From now on `block` may hold addresses computed on the device.
    void make_opaque(Block& block);
    const std::vector<Listed>& blocks_in(std::uint32_t extent) const { return by_extent_[extent]; }

    /// True if a block in [address, address + bytes) may hold addresses computed on the device.
    bool opaque_in(std::uint64_t address, std::uint64_t bytes) const;
    /// The blocks in [address, address + bytes) may hold such addresses from now on.
    void make_opaque(std::uint64_t address, std::uint64_t bytes);

    /// Records a table. One that it covers is forgotten, or joined if the new one only comes beside
    /// it.
    void add_table(std::uint64_t address, Table table, bool beside = false);
    /// Forgets tables that lie in [address, address + bytes); answers how many. `dropped` receives
    /// them.
    std::size_t drop_tables(std::uint64_t address, std::uint64_t bytes,
                            std::vector<std::pair<std::uint64_t, Table>>* dropped = nullptr);
    /// Appends what the tables in [address, address + bytes) reach; answers how many tables there
    /// are.
    std::size_t reach_of_tables(std::uint64_t address, std::uint64_t bytes,
                                std::vector<ExtentRange>& out) const;
    bool has_foreign_tables() const { return foreign_tables_.load(std::memory_order_relaxed) != 0; }

    /// The extents of the block that contains `address`, if `remember` was told of it and nothing
    /// died or came to hold addresses there since; else nullptr. 5 ns. A look-up costs 30 ns, and
    /// several times that when its lines are cold.
    const ExtentRange* recall(std::uint64_t address) const {
        const Known& known = known_[place_in_memo(address)];
        return known.address == address && known.changes == changes_[extent_of(address)]
                   ? &known.extents
                   : nullptr;
    }
    /// Brings what `recall` reads nearer. Needs no lock.
    void prefetch(std::uint64_t address) const {
        __builtin_prefetch(&known_[place_in_memo(address)]);
        __builtin_prefetch(&changes_[extent_of(address)]);
    }
    /// For blocks that hold no addresses: what is recalled is all there is to know.
    void remember(std::uint64_t address, ExtentRange extents) {
        known_[place_in_memo(address)] = {address, changes_[extent_of(address)], extents};
    }
    bool live(std::uint32_t extent) const { return !by_extent_[extent].empty(); }
    std::uint64_t live_bytes() const { return live_bytes_; }
    std::size_t block_count() const { return blocks_.size(); }
    ExtentRange extents_of(std::uint64_t address, std::uint64_t bytes) const;
    bool contains(std::uint64_t address) const { return address - base_ < span_; }

private:
    using Blocks = std::map<std::uint64_t, std::unique_ptr<Block>>;

    struct Known {
        std::uint64_t address = 0;  // in no arena, so an empty entry answers nothing
        std::uint64_t changes = 0;
        ExtentRange extents;
    };
    static constexpr unsigned kMemoBits =
        12;  // a model of 300 parameters has 1,200 blocks that stay

    static std::size_t place_in_memo(std::uint64_t address) {
        return address * 0x9E3779B97F4A7C15 >> (64 - kMemoBits);
    }
    std::size_t extent_of(std::uint64_t address) const {
        return (address - base_) >> extent_shift_;
    }

    Blocks::const_iterator first_reaching(std::uint64_t address) const;
    void list_as_holder(const Block& block);
    void unlink(Block& block, std::vector<std::uint32_t>& died);

    std::uint64_t base_;
    std::uint64_t span_;
    unsigned extent_shift_;
    std::uint64_t live_bytes_ = 0;
    std::atomic<std::size_t> foreign_tables_{0};  // read without the lock
    std::map<std::uint64_t, Allocation> allocations_;
    Blocks blocks_;
    OnHugePages<std::vector<Listed>> by_extent_;  // sorted by start
    OnHugePages<std::uint64_t> changes_;          // of each extent: deaths, and blocks come to hold
    OnHugePages<Known> known_;
    std::map<std::uint64_t, Table> tables_;
};

}  // namespace transit
