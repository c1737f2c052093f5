#include <doctest/doctest.h>

#include <limits>
#include <vector>

#include "transit/policy.hpp"

using namespace transit;

TEST_SUITE("policy") {
    SCENARIO("those touched longest ago leave first") {
        GIVEN("candidates in any order, two of them touched by one operation") {
            const std::vector<Candidate> candidates = {{7, 30}, {3, 10}, {9, 20}, {1, 20}};
            THEN("the oldest come first, ties by address") {
                CHECK(least_recently_touched(candidates, 3) == std::vector<std::uint32_t>{3, 1, 9});
            }
            THEN("asking for more answers all, asking for none answers none") {
                CHECK(least_recently_touched(candidates, 99) ==
                      std::vector<std::uint32_t>{3, 1, 9, 7});
                CHECK(least_recently_touched(candidates, 0).empty());
                CHECK(least_recently_touched({}, 4).empty());
            }
        }
    }

    SCENARIO("only what does not fit must leave") {
        CHECK(must_leave({0, 0, 0}) == 0);
        CHECK(must_leave({10, 5, 15}) == 0);
        CHECK(must_leave({10, 6, 15}) == 1);
        CHECK(must_leave({0, 3, 0}) == 3);
        CHECK(must_leave({20, 0, 15}) == 5);  // the budget shrank
    }

    SCENARIO("the demand may exceed 32 bits") {
        const std::uint32_t most = std::numeric_limits<std::uint32_t>::max();
        CHECK(must_leave({most, 1, most}) == 1);
        CHECK(must_leave({most, 0, 0}) == most);
    }
}
