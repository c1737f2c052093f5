#include "transit/lifetimes.hpp"

#include <dlfcn.h>

#include <atomic>
#include <cstdint>

#include "transit/device.hpp"
#include "transit/log.hpp"
#include "transit/options.hpp"
#include "transit/stats.hpp"

namespace transit {
namespace {

enum Event : int { kSegmentBorn = 0, kBlockBorn = 1, kBlockDied = 2, kSegmentDied = 3 };
using Observer = void (*)(int event, std::uint64_t address, std::uint64_t bytes);
using Attach = int (*)(Observer);

std::atomic<bool> g_tried{false};
std::atomic<bool> g_attached{false};

void observe(int event, std::uint64_t address, std::uint64_t bytes) {
    Device* device = Device::active();
    if (device == nullptr) return;
    switch (event) {
    case kSegmentBorn:
        return device->segment_traced(address);
    case kBlockBorn:
        return device->block_born(address, bytes);
    case kBlockDied:
        return device->block_died(address);
    default:
        return;
    }
}

}  // namespace

bool lifetimes_attached() noexcept { return g_attached.load(std::memory_order_acquire); }

void attach_lifetimes() noexcept {
    const char* path = options().lifetimes.c_str();
    if (*path == '\0' || g_tried.load(std::memory_order_acquire)) return;
    // Only where PyTorch's allocator is in the process: the extension must bind to that copy, not
    // load another.
    if (dlopen("libc10_cuda.so", RTLD_NOW | RTLD_NOLOAD) == nullptr) return;
    if (g_tried.exchange(true)) return;
    void* extension = dlopen(path, RTLD_NOW | RTLD_LOCAL);
    if (extension == nullptr) {
        log(LogLevel::kWarn, "cannot load the lifetimes observer (%s); segments count as alive",
            dlerror());
        return;
    }
    const auto attach = reinterpret_cast<Attach>(dlsym(extension, "transit_lifetimes_attach"));
    if (attach == nullptr || attach(observe) != 1) {
        log(LogLevel::kInfo,
            "PyTorch's allocator has no lifetimes to observe; segments count as alive");
        return;
    }
    g_attached.store(true, std::memory_order_release);
    counter(Counter::kLifetimes).store(1, std::memory_order_relaxed);
}

}  // namespace transit
