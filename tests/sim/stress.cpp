// Many threads against the simulated driver at once; built with -fsanitize=thread or address. Each
// thread allocates, launches, records and frees, while one remaps extents that nobody uses.
#include <cuda.h>

#include <cstdio>
#include <cstdlib>
#include <thread>
#include <vector>

extern "C" {
CUresult cuMemAlloc_v2(CUdeviceptr*, size_t);
CUresult cuMemFree_v2(CUdeviceptr);
CUresult cuStreamDestroy_v2(CUstream);
CUresult cuEventDestroy_v2(CUevent);
CUresult cuMemcpyDtoHAsync_v2(void*, CUdeviceptr, size_t, CUstream);
}

namespace {

constexpr size_t kExtentBytes = size_t{2} << 20;

void check(CUresult result, const char* what) {
    if (result != CUDA_SUCCESS) {
        std::fprintf(stderr, "%s returned %d\n", what, static_cast<int>(result));
        std::abort();
    }
}

#define CHECK(call) check(call, #call)

void work(CUcontext context, CUfunction increment, int rounds) {
    CHECK(cuCtxSetCurrent(context));
    CUstream stream, second;
    CUevent event;
    CHECK(cuStreamCreate(&stream, CU_STREAM_NON_BLOCKING));
    CHECK(cuStreamCreate(&second, CU_STREAM_DEFAULT));
    CHECK(cuEventCreate(&event, CU_EVENT_DISABLE_TIMING));
    for (int round = 0; round < rounds; ++round) {
        CUdeviceptr memory, pooled;
        CHECK(cuMemAlloc_v2(&memory, 65536));
        CHECK(cuMemAllocAsync(&pooled, 65536, stream));
        CHECK(cuMemsetD32Async(memory, 0, 64, stream));
        unsigned long long count = 64;
        void* parameters[] = {&memory, &count};
        for (int i = 0; i < 5; ++i) {
            CHECK(cuLaunchKernel(increment, 1, 1, 1, 32, 1, 1, 0, stream, parameters, nullptr));
        }
        CHECK(cuEventRecord(event, stream));
        CHECK(cuStreamWaitEvent(second, event, 0));
        CHECK(cuLaunchKernel(increment, 1, 1, 1, 32, 1, 1, 0, second, parameters, nullptr));
        CHECK(cuMemFreeAsync(pooled, stream));
        unsigned last = 0;
        CHECK(cuMemcpyDtoHAsync_v2(&last, memory + 4 * 63, 4, second));
        CHECK(cuStreamSynchronize(second));
        if (last != 6) {
            std::fprintf(stderr, "expected 6, got %u\n", last);
            std::abort();
        }
        CHECK(cuMemFree_v2(memory));
    }
    CHECK(cuEventDestroy_v2(event));
    CHECK(cuStreamDestroy_v2(stream));
    CHECK(cuStreamDestroy_v2(second));
}

void remap(int rounds) {
    CUdeviceptr base;
    CHECK(cuMemAddressReserve(&base, kExtentBytes, 0, 0, 0));
    CUmemAllocationProp device{};
    device.type = CU_MEM_ALLOCATION_TYPE_PINNED;
    device.location = {CU_MEM_LOCATION_TYPE_DEVICE, 0};
    CUmemAllocationProp host = device;
    host.location.type = CU_MEM_LOCATION_TYPE_HOST_NUMA;
    CUmemAccessDesc access{{CU_MEM_LOCATION_TYPE_DEVICE, 0}, CU_MEM_ACCESS_FLAGS_PROT_READWRITE};
    for (int round = 0; round < rounds; ++round) {
        CUmemGenericAllocationHandle frame;
        CHECK(cuMemCreate(&frame, kExtentBytes, round % 2 ? &device : &host, 0));
        CHECK(cuMemMap(base, kExtentBytes, 0, frame, 0));
        CHECK(cuMemSetAccess(base, kExtentBytes, &access, 1));
        *reinterpret_cast<volatile int*>(base) = round;
        CHECK(cuMemUnmap(base, kExtentBytes));
        CHECK(cuMemRelease(frame));
    }
}

}  // namespace

int main(int count, char** arguments) {
    const int rounds = count > 1 ? std::atoi(arguments[1]) : 200;
    CUcontext context;
    CUmodule module;
    CUfunction increment;
    CHECK(cuInit(0));
    CHECK(cuDevicePrimaryCtxRetain(&context, 0));
    CHECK(cuCtxSetCurrent(context));
    CHECK(cuModuleLoadData(&module, "image"));
    CHECK(cuModuleGetFunction(&increment, module, "sim_increment"));
    std::vector<std::thread> threads;
    for (int i = 0; i < 4; ++i) {
        threads.emplace_back(work, context, increment, rounds);
    }
    threads.emplace_back(remap, rounds * 5);
    for (std::thread& thread : threads) {
        thread.join();
    }
    CHECK(cuCtxSynchronize());
    std::puts("ok");
    return 0;
}
