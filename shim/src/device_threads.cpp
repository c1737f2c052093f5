// The device's own threads: one makes DRAM frames ahead, one waits for the GPU where nobody else
// may, one (in stress tests) moves extents at random.
#include <pthread.h>
#include <signal.h>

#include <algorithm>
#include <cstdlib>
#include <thread>

#include "transit/capture.hpp"
#include "transit/clock.hpp"
#include "transit/device.hpp"
#include "transit/real.hpp"

namespace transit {
namespace {

constexpr std::uint32_t kStockAhead = 16;

// The application's signals are not for a thread that is started while this lives.
class WithoutSignals {
public:
    WithoutSignals() noexcept {
        sigset_t all;
        sigfillset(&all);
        pthread_sigmask(SIG_BLOCK, &all, &before_);
    }
    ~WithoutSignals() { pthread_sigmask(SIG_SETMASK, &before_, nullptr); }
    WithoutSignals(const WithoutSignals&) = delete;
    WithoutSignals& operator=(const WithoutSignals&) = delete;

private:
    sigset_t before_;
};

}  // namespace

// DRAM frames cost 10 ms each, so a thread makes them ahead: as many as commitments exceed HBM by,
// and a few.
void Device::start_stocking() noexcept {
    if (!dram.usable()) return;
    const WithoutSignals blocked;
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
    // The driver tears down at exit; a frame in the making then would crash it.
    std::atexit([] {
        stop.store(true, std::memory_order_release);
        for (int i = 0;
             i < 100 && Device::active() != nullptr && !stopped.load(std::memory_order_acquire);
             ++i)
            nap_ns(1'000'000);
    });
}

// Work of streams that no marker can be recorded on passes by synchronisation. That may take as
// long as the application likes (a kernel can wait for the host), so a thread of its own waits.
void Device::request_synchronisation() noexcept {
    if (captures_open() || synchronising_.exchange(true, std::memory_order_acq_rel)) return;
    const auto wait = [](void* self) -> void* {
        auto& device = *static_cast<Device*>(self);
        real_cuCtxSetCurrent(device.context_);
        const OutsideCapture outside;
        if (const Marking marking; marking.allowed()) device.synchronize();
        device.synchronising_.store(false, std::memory_order_release);
        return nullptr;
    };
    pthread_t thread{};
    const WithoutSignals blocked;
    if (pthread_create(&thread, nullptr, wait, this) == 0)
        pthread_detach(thread);
    else
        synchronising_.store(false, std::memory_order_release);
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
