#include <doctest/doctest.h>

#include <algorithm>
#include <cstdint>
#include <map>
#include <random>
#include <set>
#include <vector>

#include "transit/ledger.hpp"

using namespace transit;

namespace {

constexpr std::uint64_t kExtent = std::uint64_t{2} << 20;
constexpr std::uint64_t kBase = 64 * kExtent;
constexpr std::uint32_t kExtents = 16;

using Extents = std::vector<std::uint32_t>;

Block block(std::uint64_t start, std::uint64_t bytes) {
    Block made;
    made.start = start;
    made.bytes = bytes;
    return made;
}

Extents add(Ledger& ledger, std::uint64_t start, std::uint64_t bytes) {
    Extents born;
    ledger.add_block(block(start, bytes), born);
    return born;
}

Extents remove(Ledger& ledger, std::uint64_t start) {
    Extents died;
    CHECK(ledger.remove_block(start, died));
    return died;
}

/// Extents that the tables in [address, address + bytes) reach.
std::set<std::uint32_t> reach(const Ledger& ledger, std::uint64_t address, std::uint64_t bytes) {
    std::vector<ExtentRange> ranges;
    ledger.reach_of_tables(address, bytes, ranges);
    std::set<std::uint32_t> extents;
    for (const ExtentRange range : ranges)
        for (std::uint32_t e = range.first; e <= range.last; ++e)
            extents.insert(e);
    return extents;
}

}  // namespace

TEST_SUITE("ledger") {
    SCENARIO("an extent lives as long as one of its blocks") {
        GIVEN("two blocks that share extent 1") {
            Ledger ledger(kBase, kExtents, kExtent);
            CHECK(add(ledger, kBase + kExtent / 2, kExtent) == Extents{0, 1});
            CHECK(add(ledger, kBase + kExtent * 3 / 2, kExtent) == Extents{2});
            CHECK(ledger.live_bytes() == 2 * kExtent);
            WHEN("the first goes") {
                const Extents died = remove(ledger, kBase + kExtent / 2);
                THEN("only extent 0 dies, and lives again with the next block") {
                    CHECK(died == Extents{0});
                    CHECK_FALSE(ledger.live(0));
                    CHECK(ledger.live(1));
                    CHECK(add(ledger, kBase, kExtent + 512) == Extents{0});
                }
            }
            WHEN("both go") {
                remove(ledger, kBase + kExtent / 2);
                THEN("all are dead") {
                    CHECK(remove(ledger, kBase + kExtent * 3 / 2) == Extents{1, 2});
                    CHECK(ledger.live_bytes() == 0);
                    CHECK(ledger.block_count() == 0);
                }
            }
        }
    }

    SCENARIO("a block is recalled until something there dies or comes to hold addresses") {
        GIVEN("two blocks in extent 1, remembered") {
            Ledger ledger(kBase, kExtents, kExtent);
            const std::uint64_t first = kBase + kExtent;
            const std::uint64_t second = first + 4096;
            add(ledger, first, 4096);
            add(ledger, second, kExtent);
            CHECK(ledger.recall(second + 64) == nullptr);
            ledger.remember(second + 64, {1, 2});
            WHEN("nothing changes but a birth") {
                add(ledger, kBase + 3 * kExtent / 2 + kExtent, 512);
                THEN("its extents are known, of that address alone") {
                    REQUIRE(ledger.recall(second + 64) != nullptr);
                    CHECK(ledger.recall(second + 64)->first == 1);
                    CHECK(ledger.recall(second + 64)->last == 2);
                    CHECK(ledger.recall(second) == nullptr);
                }
            }
            WHEN("its neighbour dies") {
                remove(ledger, first);
                THEN("it is looked up again") { CHECK(ledger.recall(second + 64) == nullptr); }
            }
            WHEN("it becomes opaque") {
                ledger.make_opaque(second, 8);
                THEN("it is looked up again") { CHECK(ledger.recall(second + 64) == nullptr); }
            }
            WHEN("a table is stored in it") {
                ledger.add_table(second + 128, {64, {{5, 5}}});
                THEN("it is looked up again") { CHECK(ledger.recall(second + 64) == nullptr); }
            }
        }
    }

    SCENARIO("a block that ends where an extent does stays out of the next one") {
        Ledger ledger(kBase, kExtents, kExtent);
        CHECK(add(ledger, kBase + kExtent, kExtent) == Extents{1});
        CHECK_FALSE(ledger.live(2));
        CHECK(ledger.extents_of(kBase + kExtent - 1, 2).last == 1);
        CHECK(ledger.extents_of(kBase + kExtents * kExtent - 1, 4096).last == kExtents - 1);
    }

    SCENARIO("a block removes what it overlaps") {
        GIVEN("blocks before, inside, and around the new one's ends") {
            Ledger ledger(kBase, kExtents, kExtent);
            add(ledger, kBase, 512);
            add(ledger, kBase + 512, 1024);
            add(ledger, kBase + 2048, 512);
            add(ledger, kBase + 4096, 1024);
            add(ledger, kBase + 8192, 512);
            WHEN("a block from the middle of the second to the middle of the fourth comes") {
                add(ledger, kBase + 1024, 3584);
                THEN("those three are gone, the others are not") {
                    CHECK(ledger.block_count() == 3);
                    CHECK(ledger.find(kBase)->start == kBase);
                    CHECK(ledger.find(kBase + 512) == nullptr);
                    CHECK(ledger.find(kBase + 2048)->start == kBase + 1024);
                    CHECK(ledger.find(kBase + 4608) == nullptr);
                    CHECK(ledger.find(kBase + 8192)->start == kBase + 8192);
                    CHECK(ledger.live_bytes() == 512 + 3584 + 512);
                }
            }
            WHEN("the same range comes again") {
                add(ledger, kBase + 512, 1024);
                THEN("nothing is counted twice") {
                    CHECK(ledger.block_count() == 5);
                    CHECK(ledger.live_bytes() == 3 * 512 + 2 * 1024);
                }
            }
        }
    }

    SCENARIO("an address is found in its block and nowhere else") {
        Ledger ledger(kBase, kExtents, kExtent);
        for (std::uint64_t i = 0; i < 1000; ++i)
            add(ledger, kBase + i * 4096, 3584);
        for (std::uint64_t i = 0; i < 1000; ++i) {
            const std::uint64_t start = kBase + i * 4096;
            REQUIRE(ledger.find(start)->start == start);
            REQUIRE(ledger.find(start + 3583)->start == start);
            REQUIRE(ledger.find(start + 3584) == nullptr);
        }
        CHECK(ledger.find(kBase - 1) == nullptr);
        CHECK(ledger.find(kBase + kExtents * kExtent) == nullptr);
        CHECK(ledger.find(0) == nullptr);
    }

    SCENARIO("allocations are found by start and by what lies inside") {
        Ledger ledger(kBase, kExtents, kExtent);
        ledger.add_allocation(kBase + 1024, {700, 1024, false, 2});
        CHECK(ledger.allocation_at(kBase + 1024)->zone == 2);
        CHECK(ledger.allocation_at(kBase + 1025) == nullptr);
        CHECK(ledger.allocation_around(kBase + 2047)->first == kBase + 1024);
        CHECK_FALSE(ledger.allocation_around(kBase + 2048));
        CHECK_FALSE(ledger.allocation_around(kBase));
        CHECK(ledger.remove_allocation(kBase + 1024)->bytes == 700);
        CHECK_FALSE(ledger.remove_allocation(kBase + 1024));
    }

    SCENARIO("a table reaches its extents until it is overwritten or its block goes") {
        GIVEN("three blocks over shared extents") {
            Ledger ledger(kBase, kExtents, kExtent);
            const std::uint64_t half = kExtent / 2;
            add(ledger, kBase, half);
            add(ledger, kBase + half, 2 * kExtent);
            add(ledger, kBase + half + 2 * kExtent, half);
            const auto holds = [&](std::uint64_t offset) {
                return ledger.look_up(kBase + offset)->holds_addresses;
            };
            WHEN("a table comes into the middle one") {
                ledger.add_table(kBase + kExtent, {64, {{9, 9}}});
                THEN("each of its extents lists it as a holder, and it alone") {
                    CHECK(holds(half));
                    CHECK(holds(kExtent + half));
                    CHECK(holds(2 * kExtent));
                    CHECK_FALSE(holds(0));
                    CHECK_FALSE(holds(half + 2 * kExtent));
                }
            }
            WHEN("the middle one becomes opaque") {
                ledger.make_opaque(*ledger.find(kBase + half));
                THEN("each of its extents lists it as a holder") {
                    CHECK(ledger.find(kBase + half)->opaque);
                    CHECK(holds(half));
                    CHECK(holds(2 * kExtent + half - 1));
                    CHECK_FALSE(holds(half - 1));
                }
            }
        }
        GIVEN("a block with two tables") {
            Ledger ledger(kBase, kExtents, kExtent);
            add(ledger, kBase, 4096);
            ledger.add_table(kBase + 512, {64, {{3, 4}}});
            ledger.add_table(kBase + 1024, {64, {{7, 7}}});
            CHECK(ledger.find(kBase)->has_tables);
            THEN("ranges reach the tables they overlap") {
                CHECK(reach(ledger, kBase, 4096) == std::set<std::uint32_t>{3, 4, 7});
                CHECK(reach(ledger, kBase, 512).empty());
                CHECK(reach(ledger, kBase + 575, 1) == std::set<std::uint32_t>{3, 4});
                CHECK(reach(ledger, kBase + 576, 448).empty());
            }
            WHEN("half of one is overwritten") {
                CHECK(ledger.drop_tables(kBase + 512, 32) == 0);
                THEN("it still reaches") { CHECK(reach(ledger, kBase, 1024).size() == 2); }
            }
            WHEN("all of one is overwritten") {
                CHECK(ledger.drop_tables(kBase + 512, 64) == 1);
                THEN("the other is left") { CHECK(reach(ledger, kBase, 4096).count(7) == 1); }
            }
            WHEN("the block goes") {
                remove(ledger, kBase);
                THEN("so do its tables") { CHECK(reach(ledger, kBase, 4096).empty()); }
            }
        }
    }

    SCENARIO("tables outside the arena are counted") {
        Ledger ledger(kBase, kExtents, kExtent);
        CHECK_FALSE(ledger.has_foreign_tables());
        ledger.add_table(4096, {64, {{1, 1}}});
        ledger.add_table(8192, {64, {{2, 2}}});
        CHECK(ledger.has_foreign_tables());
        CHECK(reach(ledger, 4100, 1) == std::set<std::uint32_t>{1});
        ledger.drop_tables(4096, 64);
        CHECK(ledger.has_foreign_tables());
        ledger.drop_tables(8000, 4096);
        CHECK_FALSE(ledger.has_foreign_tables());
    }

    TEST_CASE("a short table over the start of a long one does not forget the rest") {
        Ledger ledger(kBase, kExtents, kExtent);
        add(ledger, kBase, 4096);
        ledger.add_table(kBase, {1024, {{5, 6}}});
        ledger.add_table(kBase, {8, {{7, 7}}});
        CHECK(reach(ledger, kBase, 4096) == std::set<std::uint32_t>{5, 6, 7});
    }
    TEST_CASE("a short table inside a long one joins it and hides nothing") {
        Ledger ledger(kBase, kExtents, kExtent);
        ledger.add_table(4096, {1024, {{5, 6}}});
        ledger.add_table(4352, {8, {{7, 7}}});
        CHECK(reach(ledger, 4864, 1) == std::set<std::uint32_t>{5, 6, 7});
    }
    TEST_CASE("a table where no block is, inside the arena, is not foreign") {
        Ledger ledger(kBase, kExtents, kExtent);
        ledger.add_table(kBase, {64, {{1, 1}}});
        ledger.drop_tables(kBase, 64);
        CHECK_FALSE(ledger.has_foreign_tables());
    }

    SCENARIO("random blocks agree with a map of bytes") {
        constexpr std::uint64_t kUnit = kExtent / 8;
        constexpr std::size_t kUnits = kExtents * 8;
        for (unsigned seed = 1; seed <= 8; ++seed) {
            Ledger ledger(kBase, kExtents, kExtent);
            std::map<std::size_t, std::size_t> model;  // start → units
            std::mt19937 random(seed);
            for (int call = 0; call < 1500; ++call) {
                if (random() % 2 == 0 && !model.empty()) {
                    auto at = model.begin();
                    std::advance(at, random() % model.size());
                    remove(ledger, kBase + at->first * kUnit);
                    model.erase(at);
                } else {
                    const std::size_t start = random() % (kUnits - 20);
                    const std::size_t count = 1 + random() % 20;
                    std::erase_if(model, [&](const auto& other) {
                        return other.first < start + count && start < other.first + other.second;
                    });
                    model[start] = count;
                    add(ledger, kBase + start * kUnit, count * kUnit);
                }
                std::vector<std::size_t> owner(kUnits, kUnits);
                std::uint64_t live = 0;
                for (const auto& [start, count] : model) {
                    std::fill_n(owner.begin() + static_cast<std::ptrdiff_t>(start), count, start);
                    live += count * kUnit;
                }
                REQUIRE(ledger.live_bytes() == live);
                REQUIRE(ledger.block_count() == model.size());
                for (std::size_t unit = 0; unit < kUnits; ++unit) {
                    Block* found = ledger.find(kBase + unit * kUnit + random() % kUnit);
                    REQUIRE((found == nullptr) == (owner[unit] == kUnits));
                    if (found != nullptr) REQUIRE(found->start == kBase + owner[unit] * kUnit);
                }
                for (std::uint32_t e = 0; e < kExtents; ++e) {
                    const auto from = owner.begin() + e * 8;
                    REQUIRE(ledger.live(e) ==
                            std::any_of(from, from + 8, [](std::size_t o) { return o != kUnits; }));
                }
            }
        }
    }

    SCENARIO("what may hold addresses is marked by the block") {
        GIVEN("three blocks next to each other") {
            Ledger ledger(kBase, kExtents, kExtent);
            add(ledger, kBase, 4096);
            add(ledger, kBase + 4096, 4096);
            add(ledger, kBase + 8192, 4096);
            WHEN("a range that reaches into the middle one is marked") {
                ledger.make_opaque(kBase + 5000, 8);
                THEN("it alone is opaque, wherever it is touched") {
                    CHECK(ledger.opaque_in(kBase + 8191, 1));
                    CHECK(ledger.opaque_in(kBase, 12288));
                    CHECK_FALSE(ledger.opaque_in(kBase, 4096));
                    CHECK_FALSE(ledger.opaque_in(kBase + 8192, 4096));
                }
            }
            WHEN("the range spans two") {
                ledger.make_opaque(kBase + 4095, 2);
                THEN("both are") {
                    CHECK(ledger.opaque_in(kBase, 1));
                    CHECK(ledger.opaque_in(kBase + 4096, 1));
                    CHECK_FALSE(ledger.opaque_in(kBase + 8192, 1));
                }
            }
        }
    }
}
