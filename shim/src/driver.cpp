// Finding the real driver, resolving its functions on first use, and the two doors that hand out
// addresses.
#include "transit/driver.hpp"

#include <dlfcn.h>
#include <sys/stat.h>

#include <array>
#include <atomic>
#include <cstdlib>
#include <cstring>
#include <mutex>
#include <string_view>
#include <unordered_map>

#include "symbols.hpp"
#include "transit/log.hpp"
#include "transit/real.hpp"

extern "C" {
extern void* transit_slots[];
void* transit_real_dlopen = nullptr;
void* transit_resolve(std::size_t index);
const char* transit_dlopen_name(const char* name);
}

namespace transit {
namespace {

using Dlopen = void* (*)(const char*, int);

void* g_driver = nullptr;
std::once_flag g_driver_once;

// What a caller of a machine without a driver sees: the code that NVIDIA's own stub library answers
// with.
CUresult no_driver() noexcept { return CUDA_ERROR_STUB_LIBRARY; }
CUresult not_found() noexcept { return CUDA_ERROR_NOT_FOUND; }

// libcuda.so with any version or none, wherever it lies: also a toolkit's stub, which could only
// fail.
bool names_the_driver(const char* path) noexcept {
    constexpr std::string_view kDriver = "libcuda.so";
    const char* slash = std::strrchr(path, '/');
    const std::string_view base = slash == nullptr ? path : slash + 1;
    if (base.substr(0, kDriver.size()) != kDriver) return false;
    const std::string_view version = base.substr(kDriver.size());
    return version.empty() || (version[0] == '.' && version.size() > 1 &&
                               version.find_first_not_of("0123456789.") == std::string_view::npos);
}

void* real_dlopen(const char* path) noexcept {
    if (transit_real_dlopen == nullptr) transit_real_dlopen = dlsym(RTLD_NEXT, "dlopen");
    // By absolute path glibc compares file identity, so the driver's SONAME (the same as ours) does
    // not matter.
    return reinterpret_cast<Dlopen>(transit_real_dlopen)(path, RTLD_NOW | RTLD_LOCAL);
}

bool is_self(const char* path) noexcept {
    Dl_info info{};
    struct stat ours{};
    struct stat theirs{};
    return dladdr(reinterpret_cast<void*>(&open_driver), &info) != 0 &&
           stat(info.dli_fname, &ours) == 0 && stat(path, &theirs) == 0 &&
           ours.st_ino == theirs.st_ino && ours.st_dev == theirs.st_dev;
}

void* open_candidate(const char* path) noexcept {
    return path == nullptr || path[0] != '/' || is_self(path) ? nullptr : real_dlopen(path);
}

void find_driver() noexcept {
    g_driver = open_candidate(std::getenv("TRANSIT_REAL_LIBCUDA"));
    constexpr std::array kPlaces = {"/usr/local/nvidia/lib64/libcuda.so.1",
                                    "/usr/local/nvidia/lib/libcuda.so.1",
                                    "/usr/lib/x86_64-linux-gnu/libcuda.so.1",
                                    "/usr/lib64/libcuda.so.1",
                                    "/usr/lib/libcuda.so.1",
                                    "/usr/lib/x86_64-linux-gnu/nvidia/current/libcuda.so.1",
                                    "/run/opengl-driver/lib/libcuda.so.1",
                                    "/usr/lib/wsl/lib/libcuda.so.1",
                                    "/usr/local/cuda/compat/libcuda.so.1"};
    for (const char* place : kPlaces)
        if (g_driver == nullptr) g_driver = open_candidate(place);
}

const std::unordered_map<void*, void*>& hooks_by_address() {
    // Leaked on purpose: wrappers must work in static destructors that run after ours.
    static const auto* map = [] {
        auto* built = new std::unordered_map<void*, void*>;
        for (std::size_t i = 0; i < kHookCount; ++i)
            if (void* real = dlsym(g_driver, kSymbolNames[kHooks[i].symbol]))
                built->emplace(real, kHooks[i].entry);
        return built;
    }();
    return *map;
}

}  // namespace

bool open_driver() noexcept {
    std::call_once(g_driver_once, find_driver);
    return g_driver != nullptr;
}

void* substitute(void* entry) noexcept {
    const auto& hooks = hooks_by_address();
    const auto found = hooks.find(entry);
    return found == hooks.end() ? entry : found->second;
}

}  // namespace transit

extern "C" {

// Called from the assembly when a slot is used for the first time; answers where to jump.
void* transit_resolve(std::size_t index) {
    using namespace transit;
    void* entry = reinterpret_cast<void*>(&no_driver);
    if (open_driver()) {
        entry = dlsym(g_driver, kSymbolNames[index]);
        if (entry == nullptr) entry = reinterpret_cast<void*>(&not_found);
    }
    std::atomic_ref<void*>(transit_slots[index]).store(entry, std::memory_order_release);
    return entry;
}

// The name that dlopen is to look for instead of `name`: any libcuda becomes the name we are loaded
// under. The shim itself opens the driver by the pointer behind this door.
const char* transit_dlopen_name(const char* name) {
    using namespace transit;
    if (transit_real_dlopen == nullptr) transit_real_dlopen = dlsym(RTLD_NEXT, "dlopen");
    if (name == nullptr || !names_the_driver(name)) return name;
    // Without a driver the caller gets the loader's own "cannot open shared object file", as it
    // would without us.
    return open_driver() ? "libcuda.so.1" : "libcuda.so.1 (this machine has no NVIDIA driver)";
}

CUresult hook_cuGetProcAddress(const char* symbol, void** entry, int version, cuuint64_t flags) {
    const CUresult result = real_cuGetProcAddress(symbol, entry, version, flags);
    if (result == CUDA_SUCCESS && entry != nullptr && *entry != nullptr)
        *entry = transit::substitute(*entry);
    return result;
}

CUresult hook_cuGetProcAddress_v2(const char* symbol, void** entry, int version, cuuint64_t flags,
                                  CUdriverProcAddressQueryResult* status) {
    const CUresult result = real_cuGetProcAddress_v2(symbol, entry, version, flags, status);
    if (result == CUDA_SUCCESS && entry != nullptr && *entry != nullptr)
        *entry = transit::substitute(*entry);
    return result;
}

}  // extern "C"
