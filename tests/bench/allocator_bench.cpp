// Replays recorded allocations through AddressSpace and prints one JSON line a granule.
//
//   gzip -dc NAME.trace.gz | allocator_bench
//
// Reads A, F and S records (the trace's README). As in the shim, every stream allocates from zones
// of its own, small blocks apart from the others.
#include <algorithm>
#include <charconv>
#include <chrono>
#include <cstdint>
#include <cstdio>
#include <iostream>
#include <map>
#include <string>
#include <string_view>
#include <unordered_map>
#include <vector>

#include "transit/address_space.hpp"

namespace {

constexpr std::uint64_t kMiB = std::uint64_t{1} << 20;
constexpr std::uint64_t kExtentBytes = 32 * kMiB;
constexpr std::uint64_t kSmallBytes = kMiB;
constexpr std::uint64_t kSmallGranule = 512;
constexpr std::uint64_t kZoneBytes = std::uint64_t{8192} * kExtentBytes;

struct Event {
    enum class Kind : std::uint8_t { kTake, kGive, kStep } kind;
    std::uint32_t block = 0;  // index of the block taken or given back
};

struct Recorded {
    std::uint64_t bytes;
    std::uint32_t stream;
};

struct Trace {
    std::vector<Event> events;
    std::vector<Recorded> blocks;
    std::uint32_t streams = 0;
};

std::vector<std::string_view> fields(std::string_view line) {
    std::vector<std::string_view> out;
    for (std::size_t at = 0; at <= line.size();) {
        const std::size_t comma = std::min(line.find(',', at), line.size());
        out.push_back(line.substr(at, comma - at));
        at = comma + 1;
    }
    return out;
}

std::uint64_t number(std::string_view text, int base) {
    std::uint64_t value = 0;
    std::from_chars(text.data(), text.data() + text.size(), value, base);
    return value;
}

Trace read(std::istream& in) {
    Trace trace;
    std::unordered_map<std::uint64_t, std::uint32_t> live;
    std::map<std::string, std::uint32_t, std::less<>> streams;
    for (std::string line; std::getline(in, line);) {
        const auto field = fields(line);
        if (field[0] == "S") {
            trace.events.push_back({Event::Kind::kStep});
        } else if (field[0] == "A") {
            const auto block = static_cast<std::uint32_t>(trace.blocks.size());
            const auto known =
                streams.emplace(field[4], static_cast<std::uint32_t>(streams.size()));
            trace.blocks.push_back({number(field[3], 10), known.first->second});
            live[number(field[2], 16)] = block;
            trace.events.push_back({Event::Kind::kTake, block});
        } else if (field[0] == "F") {
            const auto found = live.find(number(field[2], 16));
            if (found == live.end()) continue;  // cudaFree(nullptr), or older than the recording
            trace.events.push_back({Event::Kind::kGive, found->second});
            live.erase(found);
        }
    }
    trace.streams = static_cast<std::uint32_t>(streams.size());
    return trace;
}

/// How many live blocks overlap each extent.
class Backing {
public:
    explicit Backing(std::size_t extents) : blocks_(extents) {}
    void add(std::uint64_t address, std::uint64_t bytes, int delta) {
        for (std::uint64_t e = address / kExtentBytes; e <= (address + bytes - 1) / kExtentBytes;
             ++e) {
            backed_ -= blocks_[e] != 0 ? 1 : 0;
            blocks_[e] += delta;
            backed_ += blocks_[e] != 0 ? 1 : 0;
        }
    }
    std::uint64_t bytes() const { return backed_ * kExtentBytes; }

private:
    std::vector<int> blocks_;
    std::uint64_t backed_ = 0;
};

/// Two spaces a stream: small blocks, and the others.
std::vector<transit::AddressSpace> spaces(const Trace& trace, std::uint64_t granule) {
    std::vector<transit::AddressSpace> all;
    for (std::uint64_t i = 0; i < 2 * std::uint64_t{trace.streams}; ++i)
        all.emplace_back(i * kZoneBytes, kZoneBytes, i % 2 == 0 ? kSmallGranule : granule);
    return all;
}

std::vector<std::uint64_t> replay(const Trace& trace, std::vector<transit::AddressSpace>& all) {
    std::vector<std::uint64_t> addresses(trace.blocks.size());
    for (const Event event : trace.events) {
        if (event.kind == Event::Kind::kStep) continue;
        const Recorded& block = trace.blocks[event.block];
        transit::AddressSpace& space = all[2 * block.stream + (block.bytes < kSmallBytes ? 0 : 1)];
        if (event.kind == Event::Kind::kTake)
            addresses[event.block] = *space.take(block.bytes);
        else
            space.give(addresses[event.block], block.bytes);
    }
    return addresses;
}

struct Address {
    std::uint64_t at;
    bool small;
};

struct Result {
    double pair_ns = 1e18;  // the best of five runs
    std::uint64_t live_peak = 0;
    std::uint64_t backed_at_peak = 0;
    std::size_t compared = 0;
    std::size_t differing = 0;  // large blocks that lie elsewhere than in the step before
    std::size_t small_differing = 0;
    std::size_t small_differing_from_two_before = 0;
};

std::size_t differing(const std::vector<Address>& a, const std::vector<Address>& b, bool small) {
    std::size_t count = std::max(a.size(), b.size()) - std::min(a.size(), b.size());
    for (std::size_t i = 0; i < std::min(a.size(), b.size()); ++i)
        count += a[i].small == small && a[i].at != b[i].at ? 1 : 0;
    return count;
}

void compare_steps(const std::vector<std::vector<Address>>& steps, Result& out) {
    for (std::size_t i = 3; i < steps.size(); ++i) {  // the first two still set things up
        out.compared += steps[i].size();
        out.differing += differing(steps[i], steps[i - 1], false);
        out.small_differing += differing(steps[i], steps[i - 1], true);
    }
    for (std::size_t i = 4; i < steps.size(); ++i)
        out.small_differing_from_two_before += differing(steps[i], steps[i - 2], true);
}

Result measure(const Trace& trace, std::uint64_t granule) {
    Result out;
    std::vector<std::uint64_t> addresses;
    for (int run = 0; run < 5; ++run) {
        std::vector<transit::AddressSpace> all = spaces(trace, granule);
        const auto start = std::chrono::steady_clock::now();
        addresses = replay(trace, all);
        const std::chrono::duration<double, std::nano> took =
            std::chrono::steady_clock::now() - start;
        out.pair_ns = std::min(out.pair_ns, took.count() / static_cast<double>(addresses.size()));
    }
    Backing backing(2 * trace.streams * (kZoneBytes / kExtentBytes));
    std::uint64_t live = 0;
    std::vector<std::vector<Address>> steps;
    for (const Event event : trace.events) {
        if (event.kind == Event::Kind::kStep) {
            steps.emplace_back();
            continue;
        }
        const std::uint64_t bytes = trace.blocks[event.block].bytes;
        const bool taken = event.kind == Event::Kind::kTake;
        backing.add(addresses[event.block], bytes, taken ? 1 : -1);
        live += taken ? bytes : 0 - bytes;
        if (taken && !steps.empty())
            steps.back().push_back({addresses[event.block], bytes < kSmallBytes});
        if (live <= out.live_peak) continue;
        out.live_peak = live;
        out.backed_at_peak = backing.bytes();
    }
    if (!steps.empty()) steps.pop_back();  // what follows the last step
    compare_steps(steps, out);
    return out;
}

}  // namespace

int main() {
    const Trace trace = read(std::cin);
    for (const std::uint64_t granule : {std::uint64_t{512}, std::uint64_t{64} << 10, 2 * kMiB}) {
        const Result r = measure(trace, granule);
        std::printf("{\"granule_bytes\": %llu, \"pair_ns\": %.1f, \"live_peak_bytes\": %llu, "
                    "\"backed_at_peak_bytes\": %llu, \"compared\": %zu, \"differing\": %zu, "
                    "\"small_differing\": %zu, \"small_differing_from_two_before\": %zu}\n",
                    static_cast<unsigned long long>(granule), r.pair_ns,
                    static_cast<unsigned long long>(r.live_peak),
                    static_cast<unsigned long long>(r.backed_at_peak), r.compared, r.differing,
                    r.small_differing, r.small_differing_from_two_before);
    }
}
