#include <doctest/doctest.h>

#include <array>
#include <string>
#include <string_view>
#include <thread>
#include <vector>

#include "fake_driver.hpp"
#include "transit/kernels.hpp"

using namespace transit;

namespace {

// Recorded from PyTorch 2.11 (dense3b-native).
constexpr std::string_view kFusedAdamW =
    "_ZN2at6native52_GLOBAL__N__c815dac0_19_fused_adamw_impl_cu_8b44fa2325multi_tensor_apply_kernel"
    "INS1_32FusedOptimizerTensorListMetadataILi4EEENS1_20FusedAdamMathFunctorIfLi4ELNS0_9ADAM_"
    "MODEE1"
    "ELb0EEEJPKfdddddbS9_S9_EEEvT_T0_DpT1_";
constexpr std::string_view kChunkCat =
    "_ZN2at6native6detail21chunk_cat_cuda_kernelIfN3c108BFloat16EEEvPPT0_PT_PlSA_SA_SA_SA_SA_lll";

constexpr std::array<std::string_view, 8> kStreaming = {
    "_ZN2at6native29vectorized_elementwise_kernelILi4ENS0_11FillFunctorIfEESt5arrayIPcLm1EEEEviT0_"
    "T1_",
    "_ZN2at6native18elementwise_kernelILi128ELi4EZNS0_22gpu_kernel_impl_nocastINS0_13BinaryFunctorI"
    "N3c108BFloat16ES5_S5_NS0_15binary_internal10MulFunctorIfEEEEEEvRNS_18TensorIteratorBaseERKT_"
    "EUliE_EEviT1_",
    "_ZN2at6native29vectorized_elementwise_kernelILi8EZNS0_25bfloat16_copy_kernel_cudaERNS_"
    "18TensorIteratorBaseEEUlfE_St5arrayIPcLm2EEEEviT0_T1_",
    "_ZN2at6native13reduce_kernelILi512ELi1ENS0_8ReduceOpIfNS0_10NormTwoOpsIfffLb1EEEjfLi4ELi4EEEEE"
    "vT1_",
    "_ZN2at6native40_GLOBAL__N__0f1a8107_8_Shape_cu_49f7391c19CatArrayBatchedCopyINS1_10OpaqueTypeI"
    "Lj2EEEjLi4ELi64ELi64EEEvPT_NS1_25CatArrInputTensorMetadataIS5_T0_XT2_EXT3_EEENS1_"
    "16TensorSizeStrideIS8_Lj4EEEiS8_",
    "_ZN2at6native51_GLOBAL__N__d9d46141_18_ForeachReduceOp_cu_b83ec48c25multi_tensor_apply_kernel"
    "INS1_18TensorListMetadataILi1EEENS0_13LpNormFunctorIfLNS0_8NormTypeE1EfLi1ELi1ELi0EEEJPfiEEEvT"
    "_T0_DpT1_",
    "_ZN2at6native57_GLOBAL__N__e658eeb9_24_ForeachBinaryOpScalar_cu_86b9896c25multi_tensor_apply_"
    "kernelINS1_18TensorListMetadataILi1EEENS1_"
    "21BinaryOpScalarFunctorIfLi1ELi1ELi0EEEJSt4plusIfEfEE"
    "EvT_T0_DpT1_",
    kChunkCat};

constexpr std::array<std::string_view, 6> kCompute = {
    "nvjet_sm90_tst_256x128_64x4_1x2_h_bz_coopA_TNT",
    "cudnn_generated_fort_native_sdpa_sm90_flash_fprop_wgmma_f16_knob_7_64x128x128_4x1x1_cga1x1x1_"
    "kernel0_0",
    "_ZN7cutlass13device_kernelINS_4gemm6kernel13GemmUniversalIN4cute5tupleIJiiiEEEvvEEEEvNT_"
    "6ParamsE",
    "_ZN5flash16flash_fwd_kernelI23Flash_fwd_kernel_traitsILi128EEEEvNS_16Flash_fwd_paramsE",
    "_ZN2at6native24vectorized_gather_kernelILi16ElEEvPcS2_PT0_illllb",
    "_ZN2at6native53_GLOBAL__N__21739cd4_20_layer_norm_kernel_cu_9c5ada8a28vectorized_layer_norm_"
    "kernelIN3c108BFloat16EfLb1EEEviT0_PKT_S8_S8_PS5_S9_PS6_"};

}  // namespace

TEST_SUITE("kernels") {
    SCENARIO("recorded names are told apart") {
        CHECK(classify(kFusedAdamW) == KernelClass::kOptimizer);
        for (const std::string_view name : kStreaming) {
            CAPTURE(name);
            CHECK(classify(name) == KernelClass::kStreaming);
        }
        for (const std::string_view name : kCompute) {
            CAPTURE(name);
            CHECK(classify(name) == KernelClass::kCompute);
        }
        CHECK(classify("") == KernelClass::kCompute);
    }

    SCENARIO("what optimizers and layers share ends a step in foreach form only") {
        const auto named = [](std::string_view around, std::string_view functor) {
            return classify(std::string(around) + std::string(functor));
        };
        constexpr std::string_view kForeach =
            "_ZN2at6native57_GLOBAL__N__e658eeb9_24_ForeachPointwiseOp_cu_86b9896c25multi_tensor_"
            "apply_kernelINS1_18TensorListMetadataILi4EEENS1_";
        constexpr std::string_view kSingle =
            "_ZN2at6native29vectorized_elementwise_kernelILi4EZZZNS0_55_GLOBAL__N__0f1a8107_21_"
            "PointwiseOpsKernel_cu_49f7391c";
        CHECK(named(kForeach, "25PointwiseOpScalarFunctor") == KernelClass::kOptimizer);
        CHECK(named(kForeach, "21TernaryOpScalarFunctorIfNS0_4LerpIfE") == KernelClass::kOptimizer);
        CHECK(named(kSingle, "19addcdiv_cuda_kernel") == KernelClass::kOptimizer);
        CHECK(named(kSingle, "19addcmul_cuda_kernel") == KernelClass::kStreaming);
        CHECK(named(kSingle, "24mse_backward_cuda_kernel") == KernelClass::kStreaming);
        CHECK(
            classify("_ZN2at6native29vectorized_elementwise_kernelILi4EZZZN49_GLOBAL__N__a_7_Lerp_"
                     "cu_b18lerp_scalar_kernelEviT0_T1_") == KernelClass::kStreaming);
    }

    SCENARIO("a product with an elementwise epilogue computes") {
        CHECK(classify("_ZN7cutlass13device_kernelINS_4gemm6kernel13GemmUniversalINS_8epilogue6"
                       "thread18elementwise_kernelEEEEEvNT_6ParamsE") == KernelClass::kCompute);
    }

    SCENARIO("what recorded kernels reach is seen, but for those that read pointer tables") {
        CHECK(reaches_unseen(kChunkCat));  // its first parameter is T0**
        CHECK(reaches_unseen("_ZN2at6native6detail51split_with_sizes_copy_out_contiguous_no_cast_"
                             "kernelEPPcS3_PlS4_S4_ll"));  // FSDP2's other one
        CHECK_FALSE(reaches_unseen(kFusedAdamW));
        for (const std::string_view name : kStreaming) {
            CAPTURE(name);
            CHECK(reaches_unseen(name) == (name == kChunkCat));
        }
        for (const std::string_view name : kCompute) {
            CAPTURE(name);
            CHECK_FALSE(reaches_unseen(name));
        }
    }

    SCENARIO("pointers to pointers, and builders of tables, reach unseen") {
        CHECK(reaches_unseen("_Z6gatherPPfi"));
        CHECK(reaches_unseen("_Z1gIfEvPKPKT_PPS0_S5_"));  // g(const T* const*, T**, const T*)
        CHECK(reaches_unseen("_ZN2at4cuda20prepare_grouped_gemm_dataEv"));
        CHECK_FALSE(reaches_unseen("_Z3addPKfS0_Pf"));
    }

    // The type pointed to is a substitution: f(float*, float**) and h<T>(T*, T**).
    TEST_CASE("a pointer to a pointer that was named before is seen") {
        CHECK(reaches_unseen("_Z1fPfPS_"));
        CHECK(reaches_unseen("_Z1hIfEvPT_PS1_"));
    }
    // "Ev" is looked for from the end and found in a type's name: n<T>(T**, Event).
    TEST_CASE("a type whose name begins with Ev hides nothing") {
        CHECK(reaches_unseen("_Z1nIfEvPPT_5Event"));
    }

    SCENARIO("a kernel's layout is read once, from either kind of handle") {
        fake::Kernel function{"nvjet", {{0, 8}, {8, 4}}};
        fake::Kernel kernel{std::string(kFusedAdamW), {{0, 4096}}, true};
        fake::Kernel opaque{"opaque", {}, false, CUDA_ERROR_NOT_SUPPORTED};
        const KernelInfo& seen = kernel_info(function.handle());
        CHECK(seen.layout_known);
        CHECK(seen.parameters.size() == 2);
        CHECK(seen.parameters[1].offset == 8);
        CHECK(&kernel_info(function.handle()) == &seen);
        CHECK(kernel_info(kernel.handle()).kind == KernelClass::kOptimizer);
        CHECK(kernel_info(kernel.handle()).parameters.size() == 1);
        CHECK_FALSE(kernel_info(opaque.handle()).layout_known);
        forget_kernels();
    }

    SCENARIO("a handle that comes back as another kernel is read again") {
        fake::Kernel kernel{"nvjet", {{0, 8}}};
        CHECK(kernel_info(kernel.handle()).name == "nvjet");
        forget_kernels();
        kernel.name = "fill_kernel";
        CHECK(kernel_info(kernel.handle()).kind == KernelClass::kStreaming);
        forget_kernels();
    }

    SCENARIO("threads may look kernels up while others unload them") {
        std::array<fake::Kernel, 8> kernels;
        for (fake::Kernel& kernel : kernels)
            kernel = {"nvjet", {{0, 8}}};
        std::vector<std::thread> threads;
        std::atomic<int> wrong{0};
        for (int t = 0; t < 3; ++t)
            threads.emplace_back([&kernels, &wrong] {
                for (std::size_t i = 0; i < 3000; ++i)
                    wrong += kernel_info(kernels[i % 8].handle()).parameters.size() != 1 ? 1 : 0;
            });
        for (int i = 0; i < 20; ++i)
            forget_kernels();
        for (std::thread& thread : threads)
            thread.join();
        CHECK(wrong == 0);
    }
}
