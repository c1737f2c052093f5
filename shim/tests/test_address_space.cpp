#include <doctest/doctest.h>

#include <algorithm>
#include <cstdint>
#include <map>
#include <optional>
#include <random>
#include <utility>
#include <vector>

#include "transit/address_space.hpp"

using transit::AddressSpace;

namespace {

constexpr std::uint64_t kBase = std::uint64_t{1} << 40;
constexpr std::uint64_t kGranule = 512;

/// One byte a granule: the plainest thing that can be right.
class ByteMap {
public:
    explicit ByteMap(std::size_t granules) : taken_(granules, 0) {}

    /// Start of the lowest of the smallest runs that fit.
    std::optional<std::size_t> best_fit(std::size_t wanted) const {
        std::optional<std::size_t> best;
        std::size_t best_length = taken_.size() + 1;
        for (std::size_t start = 0; start < taken_.size();) {
            if (taken_[start] != 0) {
                ++start;
                continue;
            }
            std::size_t end = start;
            while (end < taken_.size() && taken_[end] == 0)
                ++end;
            if (end - start >= wanted && end - start < best_length) {
                best = start;
                best_length = end - start;
            }
            start = end;
        }
        return best;
    }
    bool is_free(std::size_t start, std::size_t count) const {
        if (start + count > taken_.size()) return false;
        const auto from = taken_.begin() + static_cast<std::ptrdiff_t>(start);
        return std::none_of(from, from + static_cast<std::ptrdiff_t>(count),
                            [](char t) { return t != 0; });
    }
    void mark(std::size_t start, std::size_t count, char value) {
        std::fill_n(taken_.begin() + static_cast<std::ptrdiff_t>(start), count, value);
    }

private:
    std::vector<char> taken_;
};

std::vector<std::optional<std::uint64_t>> random_run(unsigned seed, int calls) {
    AddressSpace space(kBase, 4096 * kGranule, kGranule);
    std::mt19937 random(seed);
    std::vector<std::pair<std::uint64_t, std::uint64_t>> held;
    std::vector<std::optional<std::uint64_t>> answers;
    for (int i = 0; i < calls; ++i) {
        if (!held.empty() && random() % 2 == 0) {
            std::swap(held[random() % held.size()], held.back());
            space.give(held.back().first, held.back().second);
            held.pop_back();
            continue;
        }
        const std::uint64_t bytes = 1 + random() % (64 * kGranule);
        answers.push_back(space.take(bytes));
        if (answers.back()) held.emplace_back(*answers.back(), bytes);
    }
    return answers;
}

}  // namespace

TEST_SUITE("address_space") {
    SCENARIO("a request takes the lowest of the smallest ranges that fit") {
        GIVEN("free ranges of 4, 2 and 2 granules, and a large rest") {
            AddressSpace space(kBase, 1024 * kGranule, kGranule);
            const std::uint64_t four = *space.take(4 * kGranule);
            space.take(1);
            const std::uint64_t two = *space.take(2 * kGranule);
            space.take(1);
            const std::uint64_t other_two = *space.take(2 * kGranule);
            space.take(1);
            space.give(other_two, 2 * kGranule);
            space.give(four, 4 * kGranule);
            space.give(two, 2 * kGranule);
            WHEN("requests of 2, 2, 3 and 2 granules follow") {
                THEN("each gets its best fit") {
                    CHECK(space.take(2 * kGranule) == two);
                    CHECK(space.take(kGranule + 1) == other_two);
                    CHECK(space.take(3 * kGranule) == four);
                    CHECK(space.take(2 * kGranule) == kBase + 11 * kGranule);
                }
            }
        }
    }

    SCENARIO("free neighbours join, whatever the order they come back in") {
        const std::vector<std::vector<std::size_t>> orders = {{0, 1, 2}, {0, 2, 1}, {1, 0, 2},
                                                              {1, 2, 0}, {2, 0, 1}, {2, 1, 0}};
        for (const auto& order : orders) {
            AddressSpace space(kBase, 3 * kGranule, kGranule);
            std::vector<std::uint64_t> held;
            for (int i = 0; i < 3; ++i)
                held.push_back(*space.take(1));
            REQUIRE_FALSE(space.take(1));
            for (const std::size_t i : order)
                space.give(held[i], 1);
            CHECK(space.take(3 * kGranule) == kBase);
        }
    }

    SCENARIO("sizes are rounded up, and nothing is taken as one granule") {
        AddressSpace space(kBase, 4 * kGranule, kGranule);
        CHECK(space.rounded(1) == kGranule);
        CHECK(space.rounded(kGranule) == kGranule);
        CHECK(space.rounded(kGranule + 1) == 2 * kGranule);
        CHECK(space.take(0) == kBase);
        CHECK(space.take(1) == kBase + kGranule);
        space.give(kBase, 0);
        CHECK(space.take(1) == kBase);
        CHECK(space.high_water() == kBase + 2 * kGranule);
    }

    SCENARIO("a chosen range is taken exactly, or not at all") {
        GIVEN("eight granules, the fourth one taken") {
            AddressSpace space(kBase, 8 * kGranule, kGranule);
            REQUIRE(space.take_at(kBase + 3 * kGranule, kGranule));
            WHEN("ranges that overlap it, or leave the space, are asked for") {
                THEN("they are refused and nothing changes") {
                    CHECK_FALSE(space.take_at(kBase + 3 * kGranule, kGranule));
                    CHECK_FALSE(space.take_at(kBase + 2 * kGranule, 2 * kGranule));
                    CHECK_FALSE(space.take_at(kBase, 8 * kGranule));
                    CHECK_FALSE(space.take_at(kBase - kGranule, kGranule));
                    CHECK_FALSE(space.take_at(kBase + 7 * kGranule, 2 * kGranule));
                    CHECK(space.take(3 * kGranule) == kBase);
                    CHECK(space.take(4 * kGranule) == kBase + 4 * kGranule);
                }
            }
            WHEN("it comes back") {
                space.give(kBase + 3 * kGranule, kGranule);
                THEN("the space is whole") { CHECK(space.take(8 * kGranule) == kBase); }
            }
        }
    }

    SCENARIO("a full space answers nothing") {
        AddressSpace space(kBase, 2 * kGranule, kGranule);
        CHECK_FALSE(space.take(3 * kGranule));
        CHECK(space.take(2 * kGranule));
        CHECK_FALSE(space.take(1));
    }

    // rounded() wraps around: 2^64 - 1 bytes are rounded to none, and take answers one granule.
    TEST_CASE("a request near 2^64 bytes is refused") {
        AddressSpace space(kBase, 8 * kGranule, kGranule);
        CHECK_FALSE(space.take(~std::uint64_t{0}));
    }

    SCENARIO("two runs of the same calls get the same addresses") {
        for (unsigned seed = 1; seed <= 5; ++seed)
            CHECK(random_run(seed, 2000) == random_run(seed, 2000));
    }

    SCENARIO("random calls agree with a byte map") {
        constexpr std::size_t kGranules = 512;
        for (unsigned seed = 1; seed <= 8; ++seed) {
            AddressSpace space(kBase, kGranules * kGranule, kGranule);
            ByteMap model(kGranules);
            std::mt19937 random(seed);
            std::map<std::size_t, std::size_t> held;  // start → granules
            for (int call = 0; call < 1500; ++call) {
                const std::size_t count = 1 + random() % 24;
                const auto kind = random() % 5;
                if (kind < 2 && !held.empty()) {
                    auto at = held.begin();
                    std::advance(at, random() % held.size());
                    space.give(kBase + at->first * kGranule, at->second * kGranule);
                    model.mark(at->first, at->second, 0);
                    held.erase(at);
                    continue;
                }
                if (kind == 2) {
                    const std::size_t start = random() % kGranules;
                    const bool is_free = model.is_free(start, count);
                    REQUIRE(space.take_at(kBase + start * kGranule, count * kGranule) == is_free);
                    if (!is_free) continue;
                    model.mark(start, count, 1);
                    held[start] = count;
                    continue;
                }
                const auto expected = model.best_fit(count);
                const auto got = space.take(count * kGranule - random() % kGranule);
                REQUIRE(got.has_value() == expected.has_value());
                if (!got) continue;
                REQUIRE(*got == kBase + *expected * kGranule);
                model.mark(*expected, count, 1);
                held[*expected] = count;
            }
        }
    }
}
