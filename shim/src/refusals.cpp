// What PyTorch refuses under `backend:cudaMallocAsync`, so that `transit run` can name it.
//
// The refusal is a C++ exception, thrown by torchCheckFail, which libc10 exports and all of
// PyTorch's libraries call by name; a preloaded function of that name is asked first. It notes the
// refusal in the run folder and calls the real one, which throws through it, so the job sees what
// it would have seen. Reading the job's standard error instead would need a pipe or a terminal of
// our own, and with it the job would depend on `transit run` living on.
#include <dlfcn.h>
#include <fcntl.h>
#include <unistd.h>

#include <atomic>
#include <cstdint>
#include <cstdio>
#include <cstring>
#include <string>

#include "transit/log.hpp"
#include "transit/options.hpp"

namespace transit {
namespace {

constexpr const char* kUnsupported = "cudaMallocAsync does not yet support ";
constexpr const char* kSnapshot = "Calling snapshot with backend:cudaMallocAsync";

// The refused function's name, e.g. shareIpcHandle; empty if this is any other failure.
std::string refused(const char* message) {
    if (std::strncmp(message, kSnapshot, std::strlen(kSnapshot)) == 0) return "snapshot";
    const std::size_t lead = std::strlen(kUnsupported);
    if (std::strncmp(message, kUnsupported, lead) != 0) return {};
    return {message + lead, std::strcspn(message + lead, " .(\n")};
}

// A file of its own: PyTorch may refuse before there is a device, and in a forked child.
void note_refusal(const char* message) {
    static std::atomic<bool> noted{false};
    const std::string name = message == nullptr ? "" : refused(message);
    if (name.empty() || options().run_dir.empty() || noted.exchange(true)) return;
    const std::string path = options().run_dir + "/" + std::to_string(getpid()) + ".refused";
    const int file = open(path.c_str(), O_WRONLY | O_CREAT | O_TRUNC | O_CLOEXEC, 0600);
    if (file < 0) return;
    [[maybe_unused]] const auto written = write(file, name.data(), name.size());
    close(file);
}

// PyTorch is loaded privately, so RTLD_NEXT usually does not find it; its caller's own libraries
// do, and they are the right ones where there are two PyTorches.
void* real_check_fail(const char* symbol, void* caller) {
    Dl_info info{};
    if (dladdr(caller, &info) != 0)
        if (void* library = dlopen(info.dli_fname, RTLD_LAZY | RTLD_NOLOAD))
            if (void* found = dlsym(library, symbol)) return found;
    if (void* library = dlopen("libc10.so", RTLD_LAZY | RTLD_NOLOAD))
        if (void* found = dlsym(library, symbol)) return found;
    if (void* next = dlsym(RTLD_NEXT, symbol)) return next;
    // Nothing could have called us then: the name that the caller needs is nowhere.
    log(LogLevel::kWarn, "cannot find PyTorch's %s", symbol);
    _exit(127);
}

}  // namespace
}  // namespace transit

// Declared as PyTorch does, so that the compiler makes the same names. Neither is noexcept: the
// exception passes through.
namespace c10::detail {

#define TRANSIT_EXPORT __attribute__((visibility("default"), noinline))

[[noreturn]] TRANSIT_EXPORT void torchCheckFail(const char* function, const char* file,
                                                std::uint32_t line, const char* message);
[[noreturn]] TRANSIT_EXPORT void torchCheckFail(const char* function, const char* file,
                                                std::uint32_t line, const std::string& message);

void torchCheckFail(const char* function, const char* file, std::uint32_t line,
                    const char* message) {
    using Real = void (*)(const char*, const char*, std::uint32_t, const char*);
    transit::note_refusal(message);
    reinterpret_cast<Real>(transit::real_check_fail("_ZN3c106detail14torchCheckFailEPKcS2_jS2_",
                                                    __builtin_return_address(0)))(function, file,
                                                                                  line, message);
    __builtin_unreachable();
}

void torchCheckFail(const char* function, const char* file, std::uint32_t line,
                    const std::string& message) {
    using Real = void (*)(const char*, const char*, std::uint32_t, const std::string&);
    transit::note_refusal(message.c_str());
    reinterpret_cast<Real>(transit::real_check_fail(
        "_ZN3c106detail14torchCheckFailEPKcS2_jRKNSt7__cxx1112basic_stringIcSt11char_traitsIcESaIcE"
        "EE",
        __builtin_return_address(0)))(function, file, line, message);
    __builtin_unreachable();
}

}  // namespace c10::detail
