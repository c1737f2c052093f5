#include "call.hpp"

#include <pthread.h>

#include <algorithm>
#include <atomic>

#include "context.hpp"
#include "fault_injection.hpp"
#include "truth_log.hpp"

namespace transit::sim {
namespace {

std::atomic<int> sticky{CUDA_SUCCESS};
std::atomic<bool> ready{false};
std::atomic<bool> forked{false};

CUresult state_error(Needs needs) {
    if (needs == Needs::nothing) {
        return CUDA_SUCCESS;
    }
    if (inside_device_work()) {
        return CUDA_ERROR_NOT_PERMITTED;
    }
    if (!initialised()) {
        return CUDA_ERROR_NOT_INITIALIZED;
    }
    if (sticky.load(std::memory_order_acquire) != CUDA_SUCCESS) {
        return sticky_error();
    }
    if (needs == Needs::context && current_context() == nullptr) {
        return CUDA_ERROR_INVALID_CONTEXT;
    }
    return CUDA_SUCCESS;
}

}  // namespace

Call::Call(const char* name, Needs needs) : name_(name), logged_(truth_enabled()) {
    if (logged_) {
        start_ns_ = now_ns();
    }
    result_ = injected_failure(name);
    if (result_ != CUDA_SUCCESS) {
        if (is_sticky(result_)) {
            set_sticky_error(result_);
        }
        return;
    }
    result_ = state_error(needs);
}

Call::~Call() {
    if (!logged_) {
        return;
    }
    char line[512];
    const int length = std::snprintf(
        line, sizeof line, "%llu %u %s%.*s took_ns=%llu -> %d",
        static_cast<unsigned long long>(start_ns_), thread_id(), name_, static_cast<int>(used_),
        notes_, static_cast<unsigned long long>(now_ns() - start_ns_), static_cast<int>(result_));
    truth_line({line, static_cast<std::size_t>(length)});
}

Call& Call::add(const char* key, unsigned long long value, bool hexadecimal) {
    if (logged_) {
        const int wrote = std::snprintf(notes_ + used_, sizeof notes_ - used_,
                                        hexadecimal ? " %s=0x%llx" : " %s=%llu", key, value);
        used_ = std::min(used_ + static_cast<std::size_t>(wrote), sizeof notes_ - 1);
    }
    return *this;
}

Call& Call::text(const char* key, const char* value) {
    if (logged_) {
        const int wrote = std::snprintf(notes_ + used_, sizeof notes_ - used_, " %s=%s", key,
                                        value != nullptr && *value != '\0' ? value : "-");
        used_ = std::min(used_ + static_cast<std::size_t>(wrote), sizeof notes_ - 1);
    }
    return *this;
}

void set_sticky_error(CUresult error) {
    int none = CUDA_SUCCESS;
    sticky.compare_exchange_strong(none, error);
}

CUresult sticky_error() { return static_cast<CUresult>(sticky.load(std::memory_order_acquire)); }

void clear_sticky_error() { sticky = CUDA_SUCCESS; }

bool is_sticky(CUresult error) {
    switch (error) {
    case CUDA_ERROR_ILLEGAL_ADDRESS:
    case CUDA_ERROR_LAUNCH_TIMEOUT:
    case CUDA_ERROR_ASSERT:
    case CUDA_ERROR_HARDWARE_STACK_ERROR:
    case CUDA_ERROR_ILLEGAL_INSTRUCTION:
    case CUDA_ERROR_MISALIGNED_ADDRESS:
    case CUDA_ERROR_INVALID_ADDRESS_SPACE:
    case CUDA_ERROR_INVALID_PC:
    case CUDA_ERROR_LAUNCH_FAILED:
    case CUDA_ERROR_ECC_UNCORRECTABLE:
    case CUDA_ERROR_NVLINK_UNCORRECTABLE:
        return true;
    default:
        return false;
    }
}

void set_initialised() {
    if (!ready.exchange(true)) {
        pthread_atfork(nullptr, nullptr, [] { forked = true; });
    }
}

bool initialised() { return ready && !forked; }

bool& inside_device_work() {
    thread_local bool inside = false;
    return inside;
}

}  // namespace transit::sim
