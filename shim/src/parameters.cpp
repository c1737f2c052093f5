// Addresses in launch parameters: every aligned 8-byte word may be one.
#include "transit/hooks.hpp"
#include "transit/kernels.hpp"
#include "transit/stats.hpp"

namespace transit {
namespace {

// {BUFFER_POINTER, p, BUFFER_SIZE, &n, END}: cuBLAS passes one buffer with its tensor maps and raw
// addresses.
void scan_extra(Submission& work, void** extra) noexcept {
    const void* buffer = nullptr;
    std::size_t bytes = 0;
    for (; *extra != CU_LAUNCH_PARAM_END; extra += 2) {
        if (extra[0] == CU_LAUNCH_PARAM_BUFFER_POINTER) buffer = extra[1];
        if (extra[0] == CU_LAUNCH_PARAM_BUFFER_SIZE)
            bytes = *static_cast<const std::size_t*>(extra[1]);
    }
    if (buffer != nullptr) work.words(buffer, bytes);
}

}  // namespace

void scan_parameters(Submission& work, const KernelInfo& kernel, void** params,
                     void** extra) noexcept {
    if (extra != nullptr) scan_extra(work, extra);
    const bool unknown = params != nullptr && !kernel.layout_known;
    if (params != nullptr && kernel.layout_known)
        for (std::size_t i = 0; i < kernel.parameters.size(); ++i)
            work.words(params[i], kernel.parameters[i].bytes);
    if (unknown) return unseen_parameters(work, kernel);
    if (kernel.unseen) work.everything();
}

void unseen_parameters(Submission& work, const KernelInfo& kernel) noexcept {
    work.everything();
    counter(Counter::kUnknownLaunches).fetch_add(1, std::memory_order_relaxed);
    count_named("unknown", kernel.name.c_str());
}

}  // namespace transit
