#include "options.hpp"

#include <algorithm>
#include <cstdio>
#include <cstdlib>

namespace transit::sim {
namespace {

std::uint64_t number(const char* name, std::uint64_t fallback) {
    const char* text = std::getenv(name);
    if (text == nullptr || *text == '\0') {
        return fallback;
    }
    char* end = nullptr;
    const std::uint64_t value = std::strtoull(text, &end, 0);
    if (*text >= '0' && *text <= '9' && *end == '\0') {
        return value;
    }
    std::fprintf(stderr, "simulated GPU: %s=%s is not a whole number; using %llu\n", name, text,
                 static_cast<unsigned long long>(fallback));
    return fallback;
}

std::string word(const char* name) {
    const char* text = std::getenv(name);
    return text != nullptr ? text : "";
}

// As the driver does: ordinals in order, and the list ends at the first that does not exist.
unsigned visible_devices(unsigned present) {
    const char* list = std::getenv("CUDA_VISIBLE_DEVICES");
    if (list == nullptr) {
        return present;
    }
    unsigned visible = 0;
    while (*list != '\0') {
        char* end = nullptr;
        const long ordinal = std::strtol(list, &end, 10);
        if (end == list || ordinal < 0 || static_cast<unsigned long>(ordinal) >= present) {
            break;
        }
        ++visible;
        list = *end == ',' ? end + 1 : end;
    }
    return visible;
}

Options read_options() {
    Options read{};
    read.hbm_bytes = number("TRANSIT_SIM_HBM_BYTES", std::uint64_t{1} << 30);
    read.devices = visible_devices(static_cast<unsigned>(number("TRANSIT_SIM_DEVICES", 1)));
    read.seed = number("TRANSIT_SIM_SEED", 1);
    read.latency_us = number("TRANSIT_SIM_LATENCY_US", 10);
    read.host_numa = number("TRANSIT_SIM_HOST_NUMA", 1) != 0;
    read.poison = number("TRANSIT_SIM_POISON", 0) != 0;
    read.illegal_address = number("TRANSIT_SIM_ILLEGAL_ADDRESS", 0) != 0;
    read.truth_directory = word("TRANSIT_SIM_TRUTH");
    read.failures = word("TRANSIT_SIM_FAIL");
    return read;
}

}  // namespace

const Options& options() {
    // Leaked: worker threads may still read it while the process exits.
    static const Options* const kOptions = new Options(read_options());
    return *kOptions;
}

}  // namespace transit::sim
