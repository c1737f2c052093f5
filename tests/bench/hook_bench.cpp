// What the launch hook costs the CPU, by kind of launch, on the simulated driver (whose own time
// the hook does not count). Usage: hook_bench KIND LAUNCHES, under the shim with TRANSIT_RUN_DIR.
//
//   gemm   one buffer of 40 words with three addresses, as cuBLAS passes it
//   adam   a fused optimizer's 4 KiB list of 4 x 27 addresses: parameters of the 3.6 B workload
//   copy   a copier with two addresses
//   point  an elementwise kernel: 80 words with three addresses
// Between launches 1 MiB is read, and a line of each of 4096 pages, as the framework's own work
// leaves the caches and the TLB cold.
#include <cuda.h>

#include <array>
#include <cstdint>
#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <string_view>
#include <vector>

#include <dlfcn.h>

namespace {

#define CHECK(call)                                                                                \
    do {                                                                                           \
        if (const CUresult result_ = (call)) {                                                     \
            std::fprintf(stderr, "hook_bench: %s: %d\n", #call, static_cast<int>(result_));        \
            std::exit(1);                                                                          \
        }                                                                                          \
    } while (0)

constexpr std::size_t kMiB = std::size_t{1} << 20;
constexpr std::size_t kList = 4096;
constexpr std::size_t kPages = 4096;
constexpr std::size_t kPageWords = 4096 / 8;

void nothing(void*, const void*, unsigned, unsigned, unsigned, unsigned, unsigned, unsigned) {}

// Lengths of one layer's parameters in MiB, fp32: attention, feed-forward, norms.
std::vector<CUdeviceptr> make_blocks(std::size_t copies) {
    constexpr std::array<std::size_t, 9> kMegabytes = {36, 12, 12, 36, 96, 96, 96, 4, 4};
    std::vector<CUdeviceptr> blocks;
    for (std::size_t i = 0; i < copies; ++i) {
        for (std::size_t megabytes : kMegabytes) {
            CUdeviceptr at = 0;
            CHECK(cuMemAlloc(&at, megabytes * kMiB));
            blocks.push_back(at);
        }
    }
    return blocks;
}

CUfunction registered(void* simulator, CUmodule module, const char* name, unsigned bytes) {
    using Register = int (*)(const char*, decltype(&nothing), void*, const unsigned*, unsigned);
    reinterpret_cast<Register>(dlsym(simulator, "transit_sim_register_kernel"))(name, &nothing,
                                                                                nullptr, &bytes, 1);
    CUfunction function = nullptr;
    CHECK(cuModuleGetFunction(&function, module, name));
    return function;
}

}  // namespace

int main(int count, char** arguments) {
    if (count < 3) return 2;
    const std::string_view kind = arguments[1];
    const long launches = std::atol(arguments[2]);
    void* simulator = dlopen(std::getenv("SIMULATOR"), RTLD_NOW | RTLD_LOCAL);
    CUcontext context;
    CUmodule module;
    CHECK(cuInit(0));
    CHECK(cuDevicePrimaryCtxRetain(&context, 0));
    CHECK(cuCtxSetCurrent(context));
    CHECK(cuModuleLoadData(&module, "image"));
    const std::vector<CUdeviceptr> blocks = make_blocks(4 * 28);

    const char* name = kind == "adam"    ? "FusedOptimizerTensorListMetadata"
                       : kind == "copy"  ? "direct_copy_kernel"
                       : kind == "point" ? "elementwise_kernel"
                                         : "gemm";
    const std::size_t words = kind == "adam"    ? kList / 8
                              : kind == "copy"  ? 6
                              : kind == "point" ? 80
                                                : 40;
    const std::size_t lists = kind == "adam" ? 4 : 1;
    const std::size_t each = kind == "adam" ? 27 : kind == "copy" ? 2 : 3;
    const CUfunction function =
        registered(simulator, module, name, static_cast<unsigned>(words * 8));
    std::array<std::uint64_t, kList / 8> parameter{};
    std::vector<std::uint64_t> cold(kMiB / 8, 1);
    std::vector<std::uint64_t> pages(kPages * kPageWords, 1);
    std::uint64_t sum = 0;
    const std::size_t per_list = blocks.size() / 4;
    for (long i = 0; i < launches; ++i) {
        for (std::size_t w = 0; w < words; ++w)
            parameter[w] = static_cast<std::uint64_t>(i) * 977 + w;
        // PyTorch fills a list from its start and leaves what an earlier launch put behind that.
        for (std::size_t l = 0; l < lists; ++l)
            for (std::size_t k = 0; k < each; ++k)
                parameter[l * each + k] =
                    blocks[l * per_list +
                           (k < 5 ? static_cast<std::size_t>(i) * 5 + k : k) % per_list];
        for (std::uint64_t word : cold)
            sum += word;
        for (std::size_t page = 0; page < kPages; ++page)
            sum += pages[page * kPageWords + page % kPageWords];
        void* params[] = {parameter.data()};
        CHECK(cuLaunchKernel(function, 1, 1, 1, 32, 1, 1, 0, nullptr, params, nullptr));
    }
    CHECK(cuCtxSynchronize());
    return sum == 0;
}
