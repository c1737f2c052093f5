#include "transit/recorder.hpp"

#include <unistd.h>

#include <cstdio>
#include <mutex>
#include <string>
#include <unordered_map>
#include <vector>

#include "transit/capture.hpp"
#include "transit/clock.hpp"
#include "transit/device.hpp"
#include "transit/kernels.hpp"
#include "transit/log.hpp"
#include "transit/options.hpp"
#include "transit/per_thread.hpp"
#include "transit/real.hpp"

namespace transit {

constinit std::atomic<bool> g_recording{false};

namespace {

struct Timed {
    std::size_t operation;
    CUevent event;
};

// All of it under one mutex: a recorded step may be slower, it may not be wrong.
struct Recorder {
    std::mutex mutex;
    std::string lines;
    std::int64_t start_ns = 0;
    std::size_t operations = 0;
    CUevent first = nullptr;
    std::vector<Timed> timed;
    std::unordered_map<std::string, unsigned> kernels;
};

Recorder& recorder() noexcept {
    static auto* leaked = new Recorder;
    return *leaked;
}

using Operands = std::vector<std::pair<CUdeviceptr, std::uint64_t>>;

Operands& operands() noexcept {
    static thread_local PerThread<Operands> kept;
    return *kept;
}

long long now_us(const Recorder& r) noexcept { return (now_ns() - r.start_ns) / 1000; }

template <typename... Values>
void line(Recorder& r, const char* format, Values... values) noexcept {
    char text[160];
    std::snprintf(text, sizeof text, format, values...);
    r.lines += text;
}

CUevent mark(CUstream stream) noexcept {
    CUevent event = nullptr;
    if (captures_open() || real_cuEventCreate(&event, CU_EVENT_DEFAULT) != CUDA_SUCCESS)
        return nullptr;
    return real_cuEventRecord(event, stream) == CUDA_SUCCESS ? event : nullptr;
}

void begin(Recorder& r) noexcept {
    r.start_ns = now_ns();
    r.first = mark(nullptr);
    line(r, "S,0,%lld\n", static_cast<long long>(options().record_step));
}

// What lives already, without which nobody could tell how much lives at each operation. The
// ledger's lock is held from here to the flag, so that no birth falls in between.
void record_living(Recorder& r, Device& device) noexcept {
    const std::lock_guard ledger(device.ledger_mutex);
    const std::lock_guard lock(r.mutex);
    for (std::uint32_t e : device.used)
        for (const Ledger::Listed& listed : device.ledger.blocks_in(e))
            if (listed.block->extents.first == e)
                line(r, "B,%llx,%llu\n", static_cast<unsigned long long>(listed.start),
                     static_cast<unsigned long long>(listed.block->bytes));
    g_recording.store(true, std::memory_order_release);
}

// A copy or fill has no kernel's name.
char kind_of(const char* name, std::uint64_t bytes) noexcept {
    if (bytes != 0) return 'm';
    switch (classify(name)) {
    case KernelClass::kOptimizer:
        return 'o';
    case KernelClass::kStreaming:
        return 's';
    default:
        return 'c';
    }
}

// GPU times: when each operation had ended on its stream, from the step's first event.
void finish(Recorder& r) noexcept {
    g_recording.store(false, std::memory_order_release);
    line(r, "S,%lld,-1\n", now_us(r));
    real_cuCtxSynchronize();
    for (const Timed& one : r.timed) {
        float ms = 0;
        if (r.first != nullptr && real_cuEventElapsedTime(&ms, r.first, one.event) == CUDA_SUCCESS)
            line(r, "G,%zu,%.3f\n", one.operation, static_cast<double>(ms) * 1000);
    }
    const std::string path = options().run_dir + "/" + std::to_string(getpid()) + ".step";
    std::FILE* file = std::fopen(path.c_str(), "w");
    const bool written =
        file != nullptr && std::fwrite(r.lines.data(), 1, r.lines.size(), file) == r.lines.size();
    if (file == nullptr || std::fclose(file) != 0 || !written)
        log(LogLevel::kWarn, "cannot write the recorded step to %s", path.c_str());
    r.lines.clear();
}

}  // namespace

void record_boundary(std::uint32_t steps_done, Device& device) noexcept {
    const std::int64_t wanted = options().record_step;
    if (wanted < 0 || options().run_dir.empty()) return;
    Recorder& r = recorder();
    {
        const std::lock_guard lock(r.mutex);
        if (steps_done == wanted) begin(r);
        if (steps_done == wanted + 1 && recording()) finish(r);
    }
    // Apart from the above: elsewhere the ledger's lock is the outer one of the two.
    if (steps_done == wanted) record_living(r, device);
}

void record_allocation(CUdeviceptr address, std::uint64_t bytes) noexcept {
    Recorder& r = recorder();
    const std::lock_guard lock(r.mutex);
    line(r, "A,%lld,%llx,%llu\n", now_us(r), address, static_cast<unsigned long long>(bytes));
}

void record_free(CUdeviceptr address) noexcept {
    Recorder& r = recorder();
    const std::lock_guard lock(r.mutex);
    line(r, "F,%lld,%llx\n", now_us(r), address);
}

void record_operand(CUdeviceptr block, std::uint64_t offset) noexcept {
    operands().emplace_back(block, offset);
}

void record_operation(const char* name, std::uint64_t bytes, CUstream stream,
                      unsigned slot) noexcept {
    Recorder& r = recorder();
    const std::lock_guard lock(r.mutex);
    const auto [known, fresh] =
        r.kernels.try_emplace(name, static_cast<unsigned>(r.kernels.size()));
    if (fresh) {
        line(r, "K,%u,%c,", known->second, kind_of(name, bytes));
        r.lines += name;
        r.lines += '\n';
    }
    line(r, "%c,%lld,%u,%u", bytes == 0 ? 'L' : 'M', now_us(r), known->second, slot);
    if (bytes != 0) line(r, ",%llu", static_cast<unsigned long long>(bytes));
    Operands& named_blocks = operands();
    for (const auto& [block, offset] : named_blocks)
        line(r, ",%llx+%llx", block, static_cast<unsigned long long>(offset));
    r.lines += '\n';
    named_blocks.clear();
    if (const CUevent event = mark(stream)) r.timed.push_back({r.operations, event});
    ++r.operations;
}

}  // namespace transit
