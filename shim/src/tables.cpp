// Tables: addresses that reach kernels through device memory. FSDP2's chunk_cat reads 6.7 GiB of
// gradients a step through pointer tables copied from the host, up to 247 ms after the last launch
// that names them.
#include <cstring>
#include <utility>
#include <vector>

#include "transit/capture.hpp"
#include "transit/hooks.hpp"
#include "transit/per_thread.hpp"
#include "transit/stats.hpp"

namespace transit {
namespace {

constexpr std::size_t kMostTableBytes = std::size_t{16} << 20;

// What the call under way overwrites, should it fail.
using Overwritten = std::vector<std::pair<std::uint64_t, Table>>;

Overwritten& overwritten() noexcept {
    static thread_local PerThread<Overwritten> kept;
    return *kept;
}

// Needs the ledger's lock. What is captured does not happen now, perhaps never: nothing is
// forgotten then.
void overwrite(Device& device, CUdeviceptr to, std::size_t bytes) noexcept {
    if (!captures_open()) device.ledger.drop_tables(to, bytes, &overwritten());
}

// Finds addresses in `words`; about 1 ns a word, since most words are none and most others repeat
// their predecessor.
std::vector<ExtentRange> addresses_in(Device& device, const void* from,
                                      std::size_t bytes) noexcept {
    std::vector<ExtentRange> reaches;
    const char* at = static_cast<const char*>(from);
    std::uint64_t start = 1;
    std::uint64_t end = 0;
    for (std::size_t i = 0; i + 8 <= bytes; i += 8) {
        std::uint64_t value = 0;
        std::memcpy(&value, at + i, 8);
        if (!device.owns(value) || (start <= value && value < end)) continue;
        Block* block = device.ledger.find(value);
        if (block != nullptr) block->listed = true;
        // An address inside the arena with no block yet may get one before the table is read: its
        // extent counts.
        start = block != nullptr ? block->start : value;
        end = block != nullptr ? block->end() : value + 1;
        reaches.push_back(block != nullptr ? block->extents : device.ledger.extents_of(value, 1));
    }
    keep_each_once(reaches);
    return reaches;
}

}  // namespace

void note_host_data(CUdeviceptr to, const void* from, std::size_t bytes) noexcept {
    Device* device = Device::active();
    if (device == nullptr || from == nullptr || bytes == 0) return;
    const std::lock_guard lock(device->ledger_mutex);
    counter(Counter::kCopies).fetch_add(1, std::memory_order_relaxed);
    overwrite(*device, to, bytes);
    if (bytes > kMostTableBytes) return;
    Table table{bytes, addresses_in(*device, from, bytes)};
    if (table.reaches.empty()) return;
    device->ledger.add_table(to, std::move(table), captures_open());
    counter(Counter::kTables).fetch_add(1, std::memory_order_relaxed);
}

void note_device_copy(CUdeviceptr to, CUdeviceptr from, std::size_t bytes) noexcept {
    Device* device = Device::active();
    if (device == nullptr || bytes == 0) return;
    const std::lock_guard lock(device->ledger_mutex);
    counter(Counter::kCopies).fetch_add(1, std::memory_order_relaxed);
    overwrite(*device, to, bytes);
    Table copied{bytes, {}};
    if (device->ledger.reach_of_tables(from, bytes, copied.reaches) > 0)
        device->ledger.add_table(to, std::move(copied), captures_open());
    if (device->ledger.opaque_in(from, bytes)) device->ledger.make_opaque(to, bytes);
}

void note_overwrite(CUdeviceptr to, std::size_t bytes) noexcept {
    Device* device = Device::active();
    if (device == nullptr || bytes == 0) return;
    const std::lock_guard lock(device->ledger_mutex);
    overwrite(*device, to, bytes);
}

CUresult settled(CUresult result) noexcept {
    Overwritten& tables = overwritten();
    if (tables.empty()) return result;
    Device* device = Device::active();
    if (result != CUDA_SUCCESS && device != nullptr) {
        const std::lock_guard lock(device->ledger_mutex);
        for (auto& [address, table] : tables)
            device->ledger.add_table(address, std::move(table), true);
    }
    tables.clear();
    return result;
}

}  // namespace transit
