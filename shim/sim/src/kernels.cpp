#include "kernels.hpp"

#include <setjmp.h>
#include <signal.h>

#include <algorithm>
#include <map>
#include <mutex>

#include "call.hpp"
#include "options.hpp"

namespace transit::sim {
namespace {

std::mutex mutex;

std::map<std::string, std::shared_ptr<const Kernel>, std::less<>>& kernels() {
    static auto* const kKernels =
        new std::map<std::string, std::shared_ptr<const Kernel>, std::less<>>;
    return *kKernels;
}

std::map<const void*, std::unique_ptr<FunctionHandle>>& handles() {
    static auto* const kHandles = new std::map<const void*, std::unique_ptr<FunctionHandle>>;
    return *kHandles;
}

std::size_t alignment_of(std::size_t bytes) {
    const std::size_t lowest_bit = bytes & (~bytes + 1);
    return std::clamp<std::size_t>(lowest_bit, 1, 8);
}

// TRANSIT_SIM_ILLEGAL_ADDRESS: as on a GPU, a fault ends the context, not the process.
thread_local sigjmp_buf* resume_point = nullptr;
struct sigaction previous_action;

void become_illegal_address(int signal, siginfo_t*, void*) {
    if (resume_point != nullptr) {
        siglongjmp(*resume_point, 1);
    }
    sigaction(signal, &previous_action, nullptr);
}

void install_handler() {
    static const bool kInstalled = [] {
        struct sigaction action{};
        action.sa_sigaction = become_illegal_address;
        action.sa_flags = SA_SIGINFO | SA_NODEFER;
        return sigaction(SIGSEGV, &action, &previous_action) == 0;
    }();
    static_cast<void>(kInstalled);
}

}  // namespace

void KernelLaunch::run() const {
    const auto call = [this] {
        kernel->body(kernel->user, packed.data(), grid[0], grid[1], grid[2], block[0], block[1],
                     block[2]);
    };
    if (!options().illegal_address) {
        call();
        return;
    }
    install_handler();
    sigjmp_buf here;
    if (sigsetjmp(here, 1) == 0) {
        resume_point = &here;
        call();
    } else {
        set_sticky_error(CUDA_ERROR_ILLEGAL_ADDRESS);
    }
    resume_point = nullptr;
}

void register_kernel(const char* name, KernelBody body, void* user, const unsigned* sizes,
                     unsigned count) {
    auto kernel = std::make_shared<Kernel>(Kernel{name, body, user, {}, 0});
    for (unsigned i = 0; i < count; ++i) {
        const std::size_t offset = round_up(kernel->packed_bytes, alignment_of(sizes[i]));
        kernel->parameters.push_back({offset, sizes[i]});
        kernel->packed_bytes = offset + sizes[i];
    }
    std::lock_guard lock(mutex);
    kernels()[name] = std::move(kernel);
}

void set_opaque(const char* name) {
    std::lock_guard lock(mutex);
    if (const auto found = kernels().find(name); found != kernels().end()) {
        auto changed = std::make_shared<Kernel>(*found->second);
        changed->opaque = true;
        found->second = std::move(changed);
    }
}

std::shared_ptr<const Kernel> find_kernel(const char* name) {
    static const bool kBuiltin = (register_builtin_kernels(), true);
    static_cast<void>(kBuiltin);
    std::lock_guard lock(mutex);
    const auto found = kernels().find(name);
    return found == kernels().end() ? nullptr : found->second;
}

FunctionHandle* new_function(FunctionHandle::Kind kind, std::shared_ptr<const Kernel> kernel,
                             void* owner) {
    std::lock_guard lock(mutex);
    for (const auto& [address, known] : handles()) {
        if (known->kind == kind && known->owner == owner && known->kernel == kernel) {
            return known.get();  // asking twice gives the same handle
        }
    }
    auto made = std::make_unique<FunctionHandle>(FunctionHandle{kind, std::move(kernel), owner});
    FunctionHandle* const handle = made.get();
    handles()[handle] = std::move(made);
    return handle;
}

FunctionHandle* find_function(const void* handle) {
    std::lock_guard lock(mutex);
    const auto found = handles().find(handle);
    return found == handles().end() ? nullptr : found->second.get();
}

void delete_functions_of(void* owner) {
    std::lock_guard lock(mutex);
    std::erase_if(handles(), [&](const auto& entry) { return entry.second->owner == owner; });
}

}  // namespace transit::sim
