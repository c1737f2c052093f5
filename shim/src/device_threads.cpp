// The device's own threads: one makes DRAM frames ahead, one (in stress tests) moves extents at
// random.
#include <pthread.h>
#include <signal.h>

#include <algorithm>
#include <cstdlib>
#include <thread>

#include "transit/clock.hpp"
#include "transit/device.hpp"
#include "transit/real.hpp"

namespace transit {
namespace {

constexpr std::uint32_t kStockAhead = 16;

}  // namespace

// DRAM frames cost 10 ms each, so a thread makes them ahead: as many as commitments exceed HBM by,
// and a few.
void Device::start_stocking() noexcept {
    if (!dram.usable()) return;
    sigset_t all;
    sigset_t before;
    sigfillset(&all);
    pthread_sigmask(SIG_BLOCK, &all, &before);  // the application's signals are not for this thread
    static std::atomic<bool> stop{false};
    static std::atomic<bool> stopped{false};
    std::thread([this] {
        real_cuCtxSetCurrent(context_);
        while (!stop.load(std::memory_order_acquire) && !ended_.load(std::memory_order_acquire)) {
            const std::uint32_t target = stock_target_.load(std::memory_order_acquire);
            if (dram.made() >= target || !dram.make_ahead()) nap_ns(2'000'000);
        }
        stopped.store(true, std::memory_order_release);
    }).detach();
    pthread_sigmask(SIG_SETMASK, &before, nullptr);
    // The driver tears down at exit; a frame in the making then would crash it.
    std::atexit([] {
        stop.store(true, std::memory_order_release);
        for (int i = 0;
             i < 100 && Device::active() != nullptr && !stopped.load(std::memory_order_acquire);
             ++i)
            nap_ns(1'000'000);
    });
}

// Stress: moves whatever may move, all the time, in an order that the seed decides.
void Device::start_forced_moves(std::uint64_t seed) noexcept {
    std::thread([this, seed] {
        real_cuCtxSetCurrent(context_);
        for (std::uint64_t state = seed; !ended_.load(std::memory_order_acquire);) {
            state ^= state << 13;  // xorshift64
            state ^= state >> 7;
            state ^= state << 17;
            std::uint32_t chosen = 0;
            {
                const std::lock_guard lock(ledger_mutex);
                if (!used.empty()) chosen = used[state % used.size()];
            }
            if (!mover.swap_place(chosen)) nap_ns(static_cast<long>(state >> 50));
        }
    }).detach();
}

// Needs the ledger's lock.
void Device::wake_stocking() noexcept {
    const std::uint32_t most = hbm.limit();
    const std::uint32_t beyond =
        committed_extents_ > most ? committed_extents_ - most + kStockAhead : 0;
    stock_target_.store(std::min(beyond, dram.limit()), std::memory_order_release);
}

}  // namespace transit
