// Kernels: host functions found by name, and the handles an application launches them by.
#pragma once

#include <memory>
#include <string>
#include <vector>

#include "cuda_api.hpp"

namespace transit::sim {

using KernelBody = void (*)(void* user, const void* packed, unsigned grid_x, unsigned grid_y,
                            unsigned grid_z, unsigned block_x, unsigned block_y, unsigned block_z);

struct Parameter {
    std::size_t offset;
    std::size_t bytes;
};

struct Kernel {
    std::string name;
    KernelBody body;
    void* user;
    std::vector<Parameter> parameters;  // natural alignment, at most 8
    std::size_t packed_bytes;
    bool opaque = false;  // the driver does not tell its layout
};

// A launch with its parameters copied, as the driver does at the call.
struct KernelLaunch {
    std::shared_ptr<const Kernel> kernel;
    CUfunction function;
    unsigned grid[3];
    unsigned block[3];
    unsigned shared_bytes;
    std::vector<std::byte> packed;

    void run() const;
};

void register_kernel(const char* name, KernelBody body, void* user, const unsigned* sizes,
                     unsigned count);
void set_opaque(const char* name);
void register_builtin_kernels();
std::shared_ptr<const Kernel> find_kernel(const char* name);

// What CUfunction and CUkernel point to. The driver launches either.
struct FunctionHandle {
    enum class Kind { function, kernel } kind;
    std::shared_ptr<const Kernel> kernel;
    void* owner;                         // module or library
    FunctionHandle* function = nullptr;  // of a kernel
};

FunctionHandle* new_function(FunctionHandle::Kind kind, std::shared_ptr<const Kernel> kernel,
                             void* owner);
FunctionHandle* find_function(const void* handle);  // null for stale or foreign handles
void delete_functions_of(void* owner);

}  // namespace transit::sim
