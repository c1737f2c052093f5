#include "stream.hpp"

#include <pthread.h>
#include <signal.h>
#include <time.h>

#include <thread>

#include "call.hpp"
#include "options.hpp"
#include "truth_log.hpp"

namespace transit::sim {
namespace {

// Below this a sleep would last longer than it should: the kernel's timer slack is 50 us.
constexpr std::uint64_t kShortestSleepNs = 60'000;

void delay(std::uint64_t duration_ns) {
    if (duration_ns >= kShortestSleepNs) {
        const timespec pause{static_cast<time_t>(duration_ns / 1'000'000'000U),
                             static_cast<long>(duration_ns % 1'000'000'000U)};
        nanosleep(&pause, nullptr);
        return;
    }
    for (const std::uint64_t end = now_ns() + duration_ns; now_ns() < end;) {
        std::this_thread::yield();
    }
}

// Signals meant for the application must not land here; faults of kernels must.
void block_signals() {
    sigset_t blocked;
    sigfillset(&blocked);
    for (const int fault : {SIGSEGV, SIGBUS, SIGFPE, SIGILL, SIGABRT, SIGTRAP}) {
        sigdelset(&blocked, fault);
    }
    pthread_sigmask(SIG_BLOCK, &blocked, nullptr);
}

}  // namespace

Stream::Stream(Context& context, unsigned flags, int priority, std::uint64_t id)
    : context_(context), flags_(flags), priority_(priority), id_(id),
      latency_(static_cast<std::minstd_rand::result_type>(options().seed * 7919U + id)) {}

std::uint64_t Stream::try_push(Operation& operation) {
    std::lock_guard lock(mutex_);
    if (submitted_ - completed_ >= kQueueLimit) {
        return 0;
    }
    queue_.push_back(std::move(operation));
    if (!started_) {
        started_ = true;
        std::thread([self = shared_from_this()] { self->work(); }).detach();
    }
    changed_.notify_all();
    return ++submitted_;
}

void Stream::wait_for_room() {
    std::unique_lock lock(mutex_);
    changed_.wait(lock, [&] { return submitted_ - completed_ < kQueueLimit; });
}

std::uint64_t Stream::submitted() const {
    std::lock_guard lock(mutex_);
    return submitted_;
}

bool Stream::passed(std::uint64_t number) const {
    std::lock_guard lock(mutex_);
    return completed_ >= number;
}

void Stream::wait(std::uint64_t number) const {
    std::unique_lock lock(mutex_);
    changed_.wait(lock, [&] { return completed_ >= number; });
}

void Stream::retire() {
    std::lock_guard lock(mutex_);
    retired_ = true;
    changed_.notify_all();
}

void Stream::work() {
    block_signals();
    std::unique_lock lock(mutex_);
    while (true) {
        changed_.wait(lock, [&] { return !queue_.empty() || retired_; });
        if (queue_.empty()) {
            return;
        }
        {
            const Operation operation = std::move(queue_.front());
            queue_.pop_front();
            lock.unlock();
            run(operation);
        }
        lock.lock();
        ++completed_;
        changed_.notify_all();
    }
}

void Stream::run(const Operation& operation) {
    for (const Ticket& ticket : operation.waits_for) {
        ticket.stream->wait(ticket.number);
    }
    if (options().latency_us > 0) {
        delay(latency_() % (options().latency_us * 1000));
    }
    if (sticky_error() == CUDA_SUCCESS || operation.always) {
        inside_device_work() = true;
        operation.run();
        inside_device_work() = false;
    }
}

}  // namespace transit::sim
