// What every entry point does first and last: initialised? context? sticky error? injected failure?
// and a line in the truth log.
#pragma once

#include <concepts>
#include <cstdio>
#include <type_traits>

#include "cuda_api.hpp"

namespace transit::sim {

// The least a function needs to be callable; `nothing` also answers after a sticky error.
enum class Needs { nothing, driver, context };

class Call {
public:
    Call(const char* name, Needs needs);
    ~Call();
    Call(const Call&) = delete;
    Call& operator=(const Call&) = delete;

    // False: return result() at once, without any effect.
    explicit operator bool() const { return result_ == CUDA_SUCCESS; }
    CUresult result() const { return result_; }
    CUresult end(CUresult result) {
        result_ = result;
        return result;
    }

    template <std::integral T>
    Call& note(const char* key, T value) {
        return add(key, static_cast<unsigned long long>(value), false);
    }
    Call& at(const char* key, CUdeviceptr address) { return add(key, address, true); }
    Call& at(const char* key, const void* address) {
        return add(key, reinterpret_cast<unsigned long long>(address), true);
    }
    Call& text(const char* key, const char* value);

private:
    Call& add(const char* key, unsigned long long value, bool hexadecimal);

    const char* name_;
    CUresult result_;
    std::uint64_t start_ns_ = 0;
    bool logged_;
    std::size_t used_ = 0;
    char notes_[320];
};

// Errors that leave a context unusable stay: every later call returns them.
void set_sticky_error(CUresult error);
CUresult sticky_error();
void clear_sticky_error();
bool is_sticky(CUresult error);

// Set by cuInit; never in a forked child of an initialised process, where CUDA is not usable.
void set_initialised();
bool initialised();

// True on a worker thread while it runs a kernel or host function: those may not call the driver.
bool& inside_device_work();

}  // namespace transit::sim
