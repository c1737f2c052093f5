// Kernel launches: every 8-byte word of the parameters may be an address.
#include <array>
#include <memory>
#include <vector>

#include "transit/clock.hpp"
#include "transit/hooks.hpp"
#include "transit/kernels.hpp"
#include "transit/real.hpp"
#include "transit/stats.hpp"

namespace transit {
namespace {

// Hook times in 50 ns bins; the last holds the rest.
class HookTimes {
public:
    void add(std::int64_t ns) noexcept {
        const auto bin = static_cast<std::size_t>(ns) / kBinNs;
        ++bins_[bin < bins_.size() ? bin : bins_.size() - 1];
        counter(Counter::kHookNs)
            .fetch_add(static_cast<std::uint64_t>(ns), std::memory_order_relaxed);
        const std::uint64_t samples =
            counter(Counter::kHookSamples).fetch_add(1, std::memory_order_relaxed) + 1;
        if (samples > 64 && samples % 64 != 0) return;
        counter(Counter::kHookP50Ns).store(quantile((samples + 1) / 2), std::memory_order_relaxed);
        counter(Counter::kHookP99Ns)
            .store(quantile(samples - samples / 100), std::memory_order_relaxed);
    }

private:
    static constexpr std::uint64_t kBinNs = 50;
    std::uint64_t quantile(std::uint64_t rank) const noexcept {
        std::uint64_t seen = 0;
        for (std::size_t i = 0; i < bins_.size(); ++i) {
            seen += bins_[i];
            if (seen >= rank) return (i + 1) * kBinNs;
        }
        return bins_.size() * kBinNs;
    }
    std::array<std::atomic<std::uint32_t>, 512> bins_{};
};

HookTimes g_hook_times;
// Two clock reads are 40 ns; so 3 ns a launch. No multiple of Streams::kMarkerEvery, or the markers
// would always be in a sample, or never.
constexpr std::uint64_t kSampleEvery = 13;

// What a launch says of itself before its parameters are looked at.
void introduce(Device& device, Submission& work, const KernelInfo& kernel) noexcept {
    device.note_kernel(kernel.kind);
    work.name(kernel.name.c_str());
    work.spreads_addresses(kernel.makes_opaque, kernel.copies);
}

void count_names(const Submission& work) noexcept {
    if (work.names_any())
        counter(Counter::kManagedLaunches).fetch_add(1, std::memory_order_relaxed);
}

template <typename Scan, typename Call>
CUresult launch_scanned(CUfunction function, CUstream stream, bool per_thread, Scan&& scan,
                        Call&& call) noexcept {
    Device* device = Device::active();
    if (device == nullptr) return std::forward<Call>(call)();
    const std::uint64_t number =
        counter(Counter::kLaunches).fetch_add(1, std::memory_order_relaxed);
    const bool sampled = number % kSampleEvery == 0;
    const std::int64_t start = sampled ? now_ns() : 0;
    const KernelInfo& kernel = kernel_info(function);
    Submission work(*device, stream, per_thread);
    introduce(*device, work, kernel);
    scan(work, kernel);
    count_names(work);
    const bool compute = kernel.kind == KernelClass::kCompute;
    if (const CUresult refused =
            work.open(compute ? Submission::Operands::kInHbm : Submission::Operands::kInPlace))
        return refused;
    if (work.in_dram()) {
        counter(Counter::kInPlaceLaunches).fetch_add(1, std::memory_order_relaxed);
        if (compute) count_named("in_place", kernel.name.c_str());
    }
    const std::int64_t before = sampled ? now_ns() : 0;
    const CUresult result = std::forward<Call>(call)();
    const std::int64_t after = sampled ? now_ns() : 0;
    const CUresult verdict = work.close();
    if (sampled) g_hook_times.add(before - start + now_ns() - after - work.waited_ns());
    return result == CUDA_SUCCESS ? verdict : result;
}

template <typename Call>
CUresult launch(CUfunction function, CUstream stream, bool per_thread, void** params, void** extra,
                Call&& call) noexcept {
    return launch_scanned(
        function, stream, per_thread,
        [&](Submission& work, const KernelInfo& kernel) {
            scan_parameters(work, kernel, params, extra);
        },
        std::forward<Call>(call));
}

// The oldest launches: cuParamSet told the driver the parameters beforehand, one by one.
template <typename Call>
CUresult launch_unseen(CUfunction function, CUstream stream, Call&& call) noexcept {
    return launch_scanned(function, stream, false, unseen_parameters, std::forward<Call>(call));
}

// One launch a device, in one call. In place: while the first is open, nothing could be brought in
// for the next without waiting for it.
template <typename Call>
CUresult launch_on_each(const CUDA_LAUNCH_PARAMS* launches, unsigned count, Call&& call) noexcept {
    Device* device = Device::active();
    if (device == nullptr || launches == nullptr) return std::forward<Call>(call)();
    counter(Counter::kLaunches).fetch_add(count, std::memory_order_relaxed);
    std::vector<std::unique_ptr<Submission>> open;
    CUresult result = CUDA_SUCCESS;
    for (unsigned i = 0; i < count && result == CUDA_SUCCESS; ++i) {
        const KernelInfo& kernel = kernel_info(launches[i].function);
        open.push_back(std::make_unique<Submission>(*device, launches[i].hStream, false));
        introduce(*device, *open.back(), kernel);
        scan_parameters(*open.back(), kernel, launches[i].kernelParams, nullptr);
        count_names(*open.back());
        result = open.back()->open(Submission::Operands::kInPlace);
    }
    if (result == CUDA_SUCCESS) result = std::forward<Call>(call)();
    for (; !open.empty(); open.pop_back())
        if (const CUresult verdict = open.back()->close(); result == CUDA_SUCCESS) result = verdict;
    return result;
}

}  // namespace
}  // namespace transit

extern "C" {

CUresult hook_cuLaunchKernel(CUfunction f, unsigned gx, unsigned gy, unsigned gz, unsigned bx,
                             unsigned by, unsigned bz, unsigned shared_bytes, CUstream stream,
                             void** params, void** extra) {
    return transit::launch(f, stream, false, params, extra, [&] {
        return real_cuLaunchKernel(f, gx, gy, gz, bx, by, bz, shared_bytes, stream, params, extra);
    });
}

CUresult hook_cuLaunchKernel_ptsz(CUfunction f, unsigned gx, unsigned gy, unsigned gz, unsigned bx,
                                  unsigned by, unsigned bz, unsigned shared_bytes, CUstream stream,
                                  void** params, void** extra) {
    return transit::launch(f, stream, true, params, extra, [&] {
        return real_cuLaunchKernel_ptsz(f, gx, gy, gz, bx, by, bz, shared_bytes, stream, params,
                                        extra);
    });
}

CUresult hook_cuLaunchKernelEx(const CUlaunchConfig* config, CUfunction f, void** params,
                               void** extra) {
    return transit::launch(f, config->hStream, false, params, extra,
                           [&] { return real_cuLaunchKernelEx(config, f, params, extra); });
}

CUresult hook_cuLaunchKernelEx_ptsz(const CUlaunchConfig* config, CUfunction f, void** params,
                                    void** extra) {
    return transit::launch(f, config->hStream, true, params, extra,
                           [&] { return real_cuLaunchKernelEx_ptsz(config, f, params, extra); });
}

CUresult hook_cuLaunchCooperativeKernel(CUfunction f, unsigned gx, unsigned gy, unsigned gz,
                                        unsigned bx, unsigned by, unsigned bz,
                                        unsigned shared_bytes, CUstream stream, void** params) {
    return transit::launch(f, stream, false, params, nullptr, [&] {
        return real_cuLaunchCooperativeKernel(f, gx, gy, gz, bx, by, bz, shared_bytes, stream,
                                              params);
    });
}

CUresult hook_cuLaunchCooperativeKernel_ptsz(CUfunction f, unsigned gx, unsigned gy, unsigned gz,
                                             unsigned bx, unsigned by, unsigned bz,
                                             unsigned shared_bytes, CUstream stream,
                                             void** params) {
    return transit::launch(f, stream, true, params, nullptr, [&] {
        return real_cuLaunchCooperativeKernel_ptsz(f, gx, gy, gz, bx, by, bz, shared_bytes, stream,
                                                   params);
    });
}

CUresult hook_cuLaunch(CUfunction f) {
    return transit::launch_unseen(f, nullptr, [&] { return real_cuLaunch(f); });
}

CUresult hook_cuLaunchGrid(CUfunction f, int width, int height) {
    return transit::launch_unseen(f, nullptr, [&] { return real_cuLaunchGrid(f, width, height); });
}

CUresult hook_cuLaunchGridAsync(CUfunction f, int width, int height, CUstream stream) {
    return transit::launch_unseen(f, stream,
                                  [&] { return real_cuLaunchGridAsync(f, width, height, stream); });
}

CUresult hook_cuLaunchCooperativeKernelMultiDevice(CUDA_LAUNCH_PARAMS* launches, unsigned count,
                                                   unsigned flags) {
    return transit::launch_on_each(launches, count, [&] {
        return real_cuLaunchCooperativeKernelMultiDevice(launches, count, flags);
    });
}

CUresult hook_cuModuleUnload(CUmodule module) {
    transit::forget_kernels();
    return real_cuModuleUnload(module);
}

CUresult hook_cuLibraryUnload(CUlibrary library) {
    transit::forget_kernels();
    return real_cuLibraryUnload(library);
}

}  // extern "C"
