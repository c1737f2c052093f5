// Programs that still call the driver while they end, and one whose children end while other
// threads are in the middle of calls.
#include <cuda.h>
#include <signal.h>
#include <sys/wait.h>
#include <unistd.h>

#include <atomic>
#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <thread>
#include <vector>

namespace {

constexpr unsigned long long kWords = 1024;

void check(CUresult result, int line) {
    if (result == CUDA_SUCCESS) return;
    std::fprintf(stderr, "line %d: driver error %d\n", line, static_cast<int>(result));
    std::_Exit(3);
}
#define CHECK(call) check(call, __LINE__)

CUcontext g_context;
CUfunction g_fill;
CUfunction g_spin;
CUdeviceptr g_memory;

void open_device() {
    CUmodule module = nullptr;
    CHECK(cuInit(0));
    CHECK(cuDevicePrimaryCtxRetain(&g_context, 0));
    CHECK(cuCtxSetCurrent(g_context));
    CHECK(cuModuleLoadData(&module, "image"));
    CHECK(cuModuleGetFunction(&g_fill, module, "sim_fill"));
    CHECK(cuModuleGetFunction(&g_spin, module, "sim_spin"));
    CHECK(cuMemAlloc(&g_memory, 8 << 20));
}

void fill(CUdeviceptr to, unsigned value, CUstream stream) {
    unsigned long long words = kWords;
    void* arguments[] = {&to, &value, &words};
    CHECK(cuLaunchKernel(g_fill, 1, 1, 1, 32, 1, 1, 0, stream, arguments, nullptr));
}

void spin(CUstream stream) {
    unsigned long long ns = 1;
    void* arguments[] = {&ns};
    CHECK(cuLaunchKernel(g_spin, 1, 1, 1, 32, 1, 1, 0, stream, arguments, nullptr));
}

// One of everything for which the shim keeps something a thread: launches, births, tables.
void use_the_device(const char* when, unsigned value) {
    std::vector<unsigned> host(kWords);
    CUdeviceptr more = 0;
    CUdeviceptr ordered = 0;
    CHECK(cuMemAlloc(&more, 4 << 20));
    CHECK(cuMemAllocAsync(&ordered, 4 << 20, nullptr));
    CHECK(cuMemcpyHtoD(more, &g_memory, sizeof g_memory));
    CHECK(cuMemsetD8(more, 0, 64));
    fill(g_memory, value, nullptr);
    fill(ordered, value, CU_STREAM_PER_THREAD);
    CHECK(cuCtxSynchronize());
    CHECK(cuMemcpyDtoH(host.data(), g_memory, kWords * sizeof(unsigned)));
    CHECK(cuMemFreeAsync(ordered, nullptr));
    CHECK(cuMemFree(more));
    std::printf("%s %u %u\n", when, host.front(), host.back());
    std::fflush(stdout);
}

struct Cache {  // as a static tensor, or a pool that is emptied at the end
    ~Cache() {
        if (g_memory == 0) return;
        use_the_device("destructor", 7);
        CHECK(cuMemFree(g_memory));
    }
} g_cache;

int end_by_return(bool in_a_thread) {
    open_device();
    if (std::atexit([] { use_the_device("handler", 6); }) != 0) return 1;
    if (in_a_thread) {
        std::thread([] {
            CHECK(cuCtxSetCurrent(g_context));
            use_the_device("thread", 4);
            std::exit(0);
        }).join();
    }
    use_the_device("main", 5);
    return 0;
}

struct Last {  // made before the thread's first call, so that it ends after what calls have made
    bool used = false;
    ~Last() {
        if (used) use_the_device("thread", 3);
    }
};
thread_local Last t_last;

// More than there are slots for streams: each must be given back.
int end_threads(int threads) {
    open_device();
    for (int t = 0; t < threads; ++t)
        std::thread([] {
            t_last.used = true;
            CHECK(cuCtxSetCurrent(g_context));
            spin(CU_STREAM_PER_THREAD);
        }).join();
    CHECK(cuMemFree(g_memory));
    g_memory = 0;
    return 0;
}

// Ends a child that does not end by itself. Returns its status.
int wait_for(pid_t child) {
    int status = 0;
    for (int naps = 0; waitpid(child, &status, WNOHANG) == 0; ++naps) {
        if (naps == 1000) {
            kill(child, SIGKILL);
            waitpid(child, &status, 0);
            return status;
        }
        usleep(5'000);
    }
    return status;
}

// This thread's own default stream is registered; the others register streams, and end them, at the
// moment of each fork.
int fork_meanwhile(int forks) {
    open_device();
    g_memory = 0;  // static destructors leave the driver alone
    spin(CU_STREAM_PER_THREAD);
    std::atomic<bool> stop{false};
    std::vector<std::thread> threads;
    for (int t = 0; t < 3; ++t)
        threads.emplace_back([&stop] {
            CHECK(cuCtxSetCurrent(g_context));
            while (!stop) {
                CUstream stream = nullptr;
                CHECK(cuStreamCreate(&stream, CU_STREAM_NON_BLOCKING));
                spin(stream);
                CHECK(cuStreamSynchronize(stream));
                CHECK(cuStreamDestroy(stream));
            }
        });
    int ended = 0;
    while (ended < forks) {
        const pid_t child = fork();
        if (child == 0) std::exit(0);
        if (wait_for(child) != 0) break;
        ++ended;
    }
    stop = true;
    for (std::thread& thread : threads)
        thread.join();
    std::printf("%d\n", ended);
    return 0;
}

}  // namespace

int main(int count, char** arguments) {
    if (count == 3 && std::strcmp(arguments[1], "forks") == 0)
        return fork_meanwhile(std::atoi(arguments[2]));
    if (count == 3 && std::strcmp(arguments[1], "threads") == 0)
        return end_threads(std::atoi(arguments[2]));
    return end_by_return(count == 2 && std::strcmp(arguments[1], "thread") == 0);
}
