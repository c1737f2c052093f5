#include <doctest/doctest.h>

#include <cstdint>
#include <thread>
#include <vector>

#include "transit/extents.hpp"

using namespace transit;

TEST_SUITE("extents") {
    SCENARIO("an extent's word") {
        Extent extent;
        extent.word.fetch_add(static_cast<std::uint64_t>(Place::kDram));
        GIVEN("one open ticket") {
            const std::uint64_t before = extent.open(41, 0b100);
            THEN("it shows the operation, its stream, and the place as before") {
                const std::uint64_t word = extent.word.load();
                CHECK(place_of(before) == Place::kDram);
                CHECK(place_of(word) == Place::kDram);
                CHECK(has_tickets(word));
                CHECK_FALSE(claimed(word));
                CHECK(newest_of(word) == 41);
                CHECK(extent.streams.load() == 0b100);
            }
            WHEN("an older operation opens late, and both close") {
                const std::uint64_t between = extent.word.load();
                extent.open(7, 0b001);
                extent.close();
                extent.close();
                THEN("whoever copied meanwhile sees it, and no number is lost") {
                    CHECK_FALSE(has_tickets(extent.word.load()));
                    CHECK(newest_of(extent.word.load()) > newest_of(between));
                    CHECK(extent.streams.load() == 0b101);
                }
            }
        }
        GIVEN("a note") {
            extent.note(100, ~std::uint64_t{0});
            extent.note(60, 0);
            THEN("the newest stays, and no ticket is open") {
                CHECK(newest_of(extent.word.load()) == 100);
                CHECK_FALSE(has_tickets(extent.word.load()));
                CHECK(extent.streams.load() == ~std::uint64_t{0});
            }
        }
        GIVEN("a claim") {
            extent.word.fetch_or(kClaimed);
            THEN("a ticket shows it, and leaves it in place") {
                CHECK(claimed(extent.open(1, 1)));
                extent.close();
                CHECK(claimed(extent.word.load()));
            }
        }
        GIVEN("as many tickets as the field is meant for") {
            for (std::uint64_t i = 1; i <= 1'000'000; ++i)
                extent.open(i, 1);
            THEN("they spill into no neighbour") {
                CHECK(place_of(extent.word.load()) == Place::kDram);
                CHECK(newest_of(extent.word.load()) == 1'000'000);
                for (int i = 0; i < 1'000'000; ++i)
                    extent.close();
                CHECK_FALSE(has_tickets(extent.word.load()));
            }
        }
        GIVEN("threads that open and close at once") {
            std::vector<std::thread> threads;
            for (unsigned t = 0; t < 4; ++t)
                threads.emplace_back([&extent, t] {
                    for (std::uint64_t i = 0; i < 20'000; ++i) {
                        extent.open(4 * i + t, std::uint64_t{1} << t);
                        extent.close();
                    }
                });
            for (std::thread& thread : threads)
                thread.join();
            THEN("no ticket is left, and the newest is no older than the last") {
                CHECK_FALSE(has_tickets(extent.word.load()));
                CHECK(newest_of(extent.word.load()) >= 4 * 19'999 + 3);
                CHECK(extent.streams.load() == 0b1111);
            }
        }
    }
}
