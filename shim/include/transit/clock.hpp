#pragma once
#include <ctime>

#include <cstdint>

namespace transit {

/// Monotonic nanoseconds; about 20 ns a call (vDSO).
inline std::int64_t now_ns() noexcept {
    timespec time{};
    clock_gettime(CLOCK_MONOTONIC, &time);
    return std::int64_t{time.tv_sec} * 1'000'000'000 + time.tv_nsec;
}

inline void nap_ns(long ns) noexcept {
    const timespec time{0, ns};
    nanosleep(&time, nullptr);
}

}  // namespace transit
