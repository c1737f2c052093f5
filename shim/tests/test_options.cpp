#include <doctest/doctest.h>

#include <sys/wait.h>
#include <unistd.h>

#include <cstdlib>
#include <string>
#include <utility>
#include <vector>

#include "transit/options.hpp"

using transit::Options;

namespace {

using Environment = std::vector<std::pair<const char*, const char*>>;

/// What the options are under `environment`: read once a process, so each look is a child's.
template <typename Check>
bool holds(const Environment& environment, Check check) {
    const pid_t child = fork();
    if (child == 0) {
        clearenv();
        setenv("TRANSIT_LOG", "quiet", 1);
        for (const auto& [name, value] : environment)
            setenv(name, value, 1);
        _exit(check(transit::options()) ? 0 : 1);
    }
    int status = 0;
    return waitpid(child, &status, 0) == child && WIFEXITED(status) && WEXITSTATUS(status) == 0;
}

constexpr std::uint64_t kMiB = std::uint64_t{1} << 20;

}  // namespace

TEST_SUITE("options") {
    SCENARIO("nothing set leaves the defaults") {
        CHECK(holds({}, [](const Options& o) {
            return o.hbm_bytes == 0 && o.hbm_percent == 0 && o.dram_bytes == 0 &&
                   o.extent_bytes == 32 * kMiB && o.run_dir.empty() && !o.verify &&
                   o.record_step == -1 && o.force_moves_seed == 0;
        }));
    }
    SCENARIO("the HBM budget is bytes, percent or auto") {
        CHECK(holds({{"TRANSIT_HBM", "66571993088"}},
                    [](const Options& o) { return o.hbm_bytes == 66571993088; }));
        CHECK(holds({{"TRANSIT_HBM", "45.5%"}},
                    [](const Options& o) { return o.hbm_percent == 45.5 && o.hbm_bytes == 0; }));
        for (const char* odd : {"auto", "", "lots", "101%", "-3%", "0%", "5%%", "12GiB"})
            CHECK(holds({{"TRANSIT_HBM", odd}},
                        [](const Options& o) { return o.hbm_percent == 0 && o.hbm_bytes == 0; }));
    }
    SCENARIO("a shared DRAM budget is divided by the node's ranks") {
        const auto share = [](std::uint64_t bytes) {
            return [bytes](const Options& o) { return o.dram_bytes == bytes; };
        };
        CHECK(holds({{"TRANSIT_DRAM", "800"}, {"LOCAL_WORLD_SIZE", "8"}}, share(800)));
        CHECK(holds({{"TRANSIT_DRAM", "800"}, {"TRANSIT_DRAM_SHARED", "1"}}, share(800)));
        CHECK(holds(
            {{"TRANSIT_DRAM", "800"}, {"TRANSIT_DRAM_SHARED", "1"}, {"LOCAL_WORLD_SIZE", "8"}},
            share(100)));
        CHECK(holds(
            {{"TRANSIT_DRAM", "800"}, {"TRANSIT_DRAM_SHARED", "1"}, {"LOCAL_WORLD_SIZE", "0"}},
            share(800)));
    }
    SCENARIO("an extent is a power of two of at least 2 MiB") {
        CHECK(holds({{"TRANSIT_EXTENT_BYTES", "2097152"}},
                    [](const Options& o) { return o.extent_bytes == 2 * kMiB; }));
        for (const char* odd : {"1048576", "3145728", "0", "big"})
            CHECK(holds({{"TRANSIT_EXTENT_BYTES", odd}},
                        [](const Options& o) { return o.extent_bytes == 32 * kMiB; }));
    }
    SCENARIO("the rest is taken as it stands") {
        CHECK(holds({{"TRANSIT_RUN_DIR", "/run/x"},
                     {"TRANSIT_LIFETIMES", "/l.so"},
                     {"TRANSIT_VERIFY", "1"},
                     {"TRANSIT_RECORD_STEP", "0"},
                     {"TRANSIT_FORCE_MOVES", "7"}},
                    [](const Options& o) {
                        return o.run_dir == "/run/x" && o.lifetimes == "/l.so" && o.verify &&
                               o.record_step == 0 && o.force_moves_seed == 7;
                    }));
    }
    // strtoull takes a sign: -1 is 16 EiB.
    TEST_CASE("a negative size is refused") {
        CHECK(holds({{"TRANSIT_DRAM", "-1"}}, [](const Options& o) { return o.dram_bytes == 0; }));
    }
}
