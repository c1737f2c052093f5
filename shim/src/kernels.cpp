#include "transit/kernels.hpp"

#include <cxxabi.h>

#include <array>
#include <atomic>
#include <cstdlib>
#include <mutex>
#include <unordered_map>

#include "transit/real.hpp"

namespace transit {
namespace {

// Substrings of mangled names. PyTorch's fused optimizers are FusedOptimizerTensorListMetadata
// kernels, its for-loop Adam divides by addcdiv; the last names are DeepSpeed's and Apex's.
constexpr std::array<std::string_view, 11> kOptimizers = {
    "FusedOptimizer",    "FusedAdam",      "FusedSgd",       "FusedAdagrad",
    "addcdiv",           "AddcDiv",        "fused_adam",     "multi_tensor_adam",
    "multi_tensor_lamb", "MultiTensorSGD", "sim_fused_adamw"};
// Of foreach kernels, those that optimizers are built from. On single tensors the same names are
// layers' work: a lerp, or an addcmul or the backward of a loss in PointwiseOpsKernel.cu.
constexpr std::string_view kForeach = "multi_tensor_apply";
constexpr std::array<std::string_view, 3> kForeachOptimizers = {"lerp", "Lerp", "PointwiseOp"};
// Matrix products, whatever their epilogue is called.
constexpr std::array<std::string_view, 3> kProducts = {"cutlass", "gemm", "Gemm"};
constexpr std::array<std::string_view, 16> kStreamers = {"elementwise",
                                                         "multi_tensor_apply",
                                                         "CatArrayBatchedCopy",
                                                         "chunk_cat",
                                                         "split_with_sizes",
                                                         "copy_kernel",
                                                         "fill_kernel",
                                                         "FillFunctor",
                                                         "reduce_kernel",
                                                         "distribution_nullary",
                                                         "memcpy",
                                                         "memset",
                                                         "foreach",
                                                         "sim_copy",
                                                         "sim_fill",
                                                         "sim_axpy"};
// Grouped GEMM set-up kernels write the problem pointers that the GEMM then reads.
constexpr std::array<std::string_view, 5> kTableBuilders = {"prepare_grouped_gemm", "setArray",
                                                            "set_stride_and_ptr", "sim_build_table",
                                                            "build_pointer_table"};

// Kernels that carry whatever their source holds, addresses included, to another place.
constexpr std::array<std::string_view, 5> kCopiers = {"copy_kernel", "direct_copy",
                                                      "CatArrayBatchedCopy", "memcpy", "sim_copy"};

template <std::size_t N>
bool names_any(std::string_view name, const std::array<std::string_view, N>& parts) noexcept {
    for (std::string_view part : parts)
        if (name.find(part) != std::string_view::npos) return true;
    return false;
}

struct Registry {
    std::mutex mutex;
    std::unordered_map<CUfunction, const KernelInfo*> known;
    std::atomic<std::uint32_t> generation{1};
};

Registry& registry() noexcept {
    static auto* leaked = new Registry;
    return *leaked;
}

// cudart hands a CUkernel to cuLaunchKernel; the driver then answers INVALID_HANDLE to the
// CUfunction getters.
void read_layout(CUfunction function, KernelInfo& info) noexcept {
    const char* name = nullptr;
    CUkernel kernel = reinterpret_cast<CUkernel>(function);
    bool as_kernel = false;
    if (real_cuFuncGetName(&name, function) != CUDA_SUCCESS || name == nullptr) {
        name = nullptr;
        as_kernel = real_cuKernelGetName(&name, kernel) == CUDA_SUCCESS;
    }
    info.name = name == nullptr ? "(unnamed)" : name;
    for (std::size_t i = 0;; ++i) {
        std::size_t offset = 0;
        std::size_t bytes = 0;
        CUresult result = as_kernel ? real_cuKernelGetParamInfo(kernel, i, &offset, &bytes)
                                    : real_cuFuncGetParamInfo(function, i, &offset, &bytes);
        if (i == 0 && !as_kernel && result == CUDA_ERROR_INVALID_HANDLE) {
            as_kernel = true;
            result = real_cuKernelGetParamInfo(kernel, i, &offset, &bytes);
        }
        // The end of the list is INVALID_VALUE; anything else means the driver cannot tell.
        if (result != CUDA_SUCCESS) {
            info.layout_known = result == CUDA_ERROR_INVALID_VALUE;
            return;
        }
        info.parameters.push_back(
            {static_cast<std::uint32_t>(offset), static_cast<std::uint32_t>(bytes)});
    }
}

const KernelInfo* look_up(CUfunction function) noexcept {
    Registry& all = registry();
    const std::lock_guard lock(all.mutex);
    const KernelInfo*& slot = all.known[function];
    if (slot == nullptr) {
        auto* info = new KernelInfo;
        read_layout(function, *info);
        info->kind = classify(info->name);
        info->unseen = reaches_unseen(info->name);
        info->makes_opaque = builds_tables(info->name);
        info->copies = copies_content(info->name);
        slot = info;
    }
    return slot;
}

}  // namespace

KernelClass classify(std::string_view name) noexcept {
    const bool foreach = name.find(kForeach) != std::string_view::npos;
    if (names_any(name, kOptimizers) || (foreach && names_any(name, kForeachOptimizers)))
        return KernelClass::kOptimizer;
    const bool product = !foreach && names_any(name, kProducts);
    return !product && names_any(name, kStreamers) ? KernelClass::kStreaming
                                                   : KernelClass::kCompute;
}

bool builds_tables(std::string_view name) noexcept { return names_any(name, kTableBuilders); }

bool copies_content(std::string_view name) noexcept {
    return names_any(name, kCopiers) && name.find("chunk_cat") == std::string_view::npos;
}

bool reaches_unseen(std::string_view name) noexcept {
    if (builds_tables(name)) return true;
    // A template argument can hold a pointer to pointers without being a parameter, so this errs
    // towards touching too much. A name that is not C++ has no signature to read.
    int status = 0;
    char* readable = abi::__cxa_demangle(std::string(name).c_str(), nullptr, nullptr, &status);
    const std::string_view signature = readable == nullptr ? std::string_view() : readable;
    const bool unseen = signature.find("**") != std::string_view::npos ||
                        signature.find("* const*") != std::string_view::npos;
    std::free(readable);
    return unseen;
}

const KernelInfo& kernel_info(CUfunction function) noexcept {
    struct Entry {
        CUfunction function = nullptr;
        const KernelInfo* info = nullptr;
        std::uint32_t generation = 0;
    };
    constexpr unsigned kBits = 9;
    static thread_local std::array<Entry, std::size_t{1} << kBits> cache;
    Entry& entry =
        cache[reinterpret_cast<std::uintptr_t>(function) * 0x9E3779B97F4A7C15 >> (64 - kBits)];
    const std::uint32_t generation = registry().generation.load(std::memory_order_acquire);
    if (entry.function != function || entry.generation != generation)
        entry = {function, look_up(function), generation};
    return *entry.info;
}

void forget_kernels() noexcept {
    Registry& all = registry();
    const std::lock_guard lock(all.mutex);
    all.known.clear();
    all.generation.fetch_add(1, std::memory_order_acq_rel);
}

}  // namespace transit
