#pragma once
// What a thread keeps between calls. The main thread's outlives its thread_local destructors, since
// static destructors and exit handlers still make driver calls.
#include <unistd.h>

namespace transit {

template <typename T>
class PerThread {
public:
    PerThread() : value_(new T) {}
    ~PerThread() {
        if (gettid() != getpid()) delete value_;
    }
    PerThread(const PerThread&) = delete;
    PerThread& operator=(const PerThread&) = delete;
    T& operator*() const noexcept { return *value_; }

private:
    T* value_;
};

}  // namespace transit
