#include <doctest/doctest.h>

#include <cstdint>
#include <memory>
#include <thread>
#include <vector>

#include "transit/extents.hpp"

using namespace transit;

TEST_SUITE("extents") {
    SCENARIO("an extent's word") {
        // Not on the stack: GCC 13's address sanitizer aligns frames to less than 64 bytes.
        const auto owned = std::make_unique<Extent>();
        Extent& extent = *owned;
        extent.word.fetch_add(static_cast<std::uint64_t>(Place::kDram));
        GIVEN("an announced operation") {
            const std::uint64_t before = extent.announce(41, 0b100);
            THEN("the word shows it and its stream, and the place as before") {
                const std::uint64_t word = extent.word.load();
                CHECK(place_of(before) == Place::kDram);
                CHECK(place_of(word) == Place::kDram);
                CHECK_FALSE(held(word));
                CHECK_FALSE(claimed(word));
                CHECK(newest_of(word) == 41);
                CHECK(extent.streams.load() == 0b100);
            }
            WHEN("an older one is announced late") {
                extent.announce(7, 0b001);
                THEN("whoever copied meanwhile sees it, and no number is lost") {
                    CHECK(newest_of(extent.word.load()) == 42);
                    CHECK(extent.streams.load() == 0b101);
                }
            }
        }
        GIVEN("a hold") {
            const std::uint64_t before = extent.hold();
            THEN("it shows until it is released, and whoever copied meanwhile sees that it was") {
                CHECK(held(extent.word.load()));
                CHECK(extent.streams.load() == 0);
                extent.release();
                CHECK_FALSE(held(extent.word.load()));
                CHECK(extent.word.load() != before);
                CHECK(place_of(extent.word.load()) == Place::kDram);
            }
        }
        GIVEN("a note") {
            extent.note(100, ~std::uint64_t{0});
            extent.note(60, 0);
            THEN("the newest stays, and nothing is held") {
                CHECK(newest_of(extent.word.load()) == 100);
                CHECK_FALSE(held(extent.word.load()));
                CHECK(extent.streams.load() == ~std::uint64_t{0});
            }
        }
        GIVEN("a claim") {
            extent.word.fetch_or(kClaimed);
            THEN("an announcement shows it, and leaves it in place") {
                CHECK(claimed(extent.announce(1, 1)));
                CHECK(claimed(extent.word.load()));
            }
        }
        GIVEN("as many holds as the field is meant for") {
            for (int i = 0; i < 4095; ++i)
                extent.hold();
            THEN("they spill into no neighbour") {
                CHECK(place_of(extent.word.load()) == Place::kDram);
                CHECK(newest_of(extent.word.load()) == 4095);
                for (int i = 0; i < 4095; ++i)
                    extent.release();
                CHECK_FALSE(held(extent.word.load()));
            }
        }
        GIVEN("births, more than their field counts") {
            extent.announce(41, 1);
            std::uint64_t before = extent.word.load();
            THEN("each changes the word, and the number only grows") {
                for (int i = 0; i < 3000; ++i) {
                    extent.count_birth();
                    CHECK(extent.word.load() > before);
                    before = extent.word.load();
                }
                CHECK(newest_of(before) == 43);
                CHECK_FALSE(held(before));
                CHECK_FALSE(claimed(before));
                CHECK(place_of(before) == Place::kDram);
            }
        }
        GIVEN("threads that announce and hold at once") {
            std::vector<std::thread> threads;
            for (unsigned t = 0; t < 4; ++t)
                threads.emplace_back([&extent, t] {
                    for (std::uint64_t i = 0; i < 20'000; ++i) {
                        extent.announce(4 * i + t, std::uint64_t{1} << t);
                        extent.hold();
                        extent.release();
                    }
                });
            for (std::thread& thread : threads)
                thread.join();
            THEN("nothing is held, and the newest is no older than the last") {
                CHECK_FALSE(held(extent.word.load()));
                CHECK(newest_of(extent.word.load()) >= 4 * 19'999 + 3);
                CHECK(extent.streams.load() == 0b1111);
            }
        }
    }
}
