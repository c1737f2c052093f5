#include "transit/options.hpp"

#include <bit>
#include <cstdlib>
#include <cstring>

#include "transit/log.hpp"

namespace transit {
namespace {

constexpr std::uint64_t kDefaultExtentBytes = std::uint64_t{32} << 20;
constexpr std::uint64_t kMinExtentBytes = std::uint64_t{2} << 20;

std::uint64_t number(const char* name, std::uint64_t otherwise) noexcept {
    const char* text = std::getenv(name);
    if (text == nullptr || *text == '\0') return otherwise;
    char* end = nullptr;
    const std::uint64_t value = std::strtoull(text, &end, 10);
    if (*end == '\0' && *text >= '0' && *text <= '9') return value;
    log(LogLevel::kWarn, "%s=%s is not a whole number; ignored", name, text);
    return otherwise;
}

void read_hbm(Options& out) noexcept {
    const char* text = std::getenv("TRANSIT_HBM");
    if (text == nullptr || std::strcmp(text, "auto") == 0) return;
    char* end = nullptr;
    if (std::strchr(text, '%') != nullptr) {
        out.hbm_percent = std::strtod(text, &end);
        if (std::strcmp(end, "%") == 0 && out.hbm_percent > 0 && out.hbm_percent <= 100) return;
        out.hbm_percent = 0;
        log(LogLevel::kWarn, "TRANSIT_HBM=%s is not a percentage from 0 to 100; using auto", text);
        return;
    }
    out.hbm_bytes = number("TRANSIT_HBM", 0);
}

Options read() noexcept {
    Options out;
    read_hbm(out);
    out.dram_bytes = number("TRANSIT_DRAM", 0);
    if (number("TRANSIT_DRAM_SHARED", 0) == 1) {
        const std::uint64_t ranks = number("LOCAL_WORLD_SIZE", 1);
        out.dram_bytes /= ranks == 0 ? 1 : ranks;
    }
    out.extent_bytes = number("TRANSIT_EXTENT_BYTES", kDefaultExtentBytes);
    if (out.extent_bytes < kMinExtentBytes || !std::has_single_bit(out.extent_bytes)) {
        log(LogLevel::kWarn,
            "TRANSIT_EXTENT_BYTES must be a power of two of at least 2 MiB; using 32 MiB");
        out.extent_bytes = kDefaultExtentBytes;
    }
    if (const char* text = std::getenv("TRANSIT_RUN_DIR")) out.run_dir = text;
    if (const char* text = std::getenv("TRANSIT_LIFETIMES")) out.lifetimes = text;
    out.verify = number("TRANSIT_VERIFY", 0) == 1;
    if (std::getenv("TRANSIT_RECORD_STEP") != nullptr)
        out.record_step = static_cast<std::int64_t>(number("TRANSIT_RECORD_STEP", 0));
    out.force_moves_seed = number("TRANSIT_FORCE_MOVES", 0);
    return out;
}

}  // namespace

const Options& options() noexcept {
    static const auto* read_once = new Options(read());
    return *read_once;
}

}  // namespace transit
