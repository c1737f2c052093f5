#pragma once
// What is known of each kernel: where its parameters lie, and how it treats memory (by name, for
// now).
#include <cuda.h>

#include <cstdint>
#include <string>
#include <string_view>
#include <vector>

namespace transit {

enum class KernelClass : std::uint8_t {
    kCompute,  // reads operands many times: they belong in HBM (a GEMM on DRAM is 50 times slower)
    kStreaming,  // passes over its memory once: may run on DRAM in place
    kOptimizer,  // streaming, and ends a step
};

/// By mangled name. Pure.
KernelClass classify(std::string_view name) noexcept;

/// True for kernels that may reach memory which no address in their parameters shows: those that
/// build tables of addresses on the device, and signatures with a pointer to pointers. The list is
/// in docs/touches.md. Pure.
bool reaches_unseen(std::string_view name) noexcept;
bool builds_tables(std::string_view name) noexcept;
bool copies_content(std::string_view name) noexcept;

struct Parameter {
    std::uint32_t offset;
    std::uint32_t bytes;
};

struct KernelInfo {
    std::string name;
    std::vector<Parameter> parameters;
    bool layout_known = false;
    bool unseen = false;
    bool makes_opaque = false;  // what it writes may hold addresses that no host copy showed
    bool copies = false;        // what it writes holds addresses if what it reads does
    KernelClass kind = KernelClass::kCompute;
};

/// Looked up once a handle (CUfunction or a CUkernel cast to one); a small per-thread cache answers
/// after that. The record is never freed.
const KernelInfo& kernel_info(CUfunction function) noexcept;

/// Handles come back for other kernels after a module is unloaded.
void forget_kernels() noexcept;

}  // namespace transit
