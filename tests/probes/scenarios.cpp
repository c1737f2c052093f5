// Awkward ways of making calls. One file is three libraries and a program: see scenarios.py.
#include <csetjmp>
#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <string>
#include <sys/wait.h>
#include <thread>
#include <unistd.h>
#include <vector>

extern "C" {
int cuMemAlloc_v2(unsigned long long* out, size_t bytes);
int cuStreamSynchronize(void* stream);
int cudaMalloc(void** out, size_t bytes);
int cudaFree(void* pointer);
int cudaEventQuery(void* event);
int cudaStreamSynchronize(void* stream);
int ncclBroadcast(const void*, void*, size_t, int, int, void*, void*);
int ncclBcast(void*, size_t, int, int, void*, void*);
}

static jmp_buf g_back;

#if defined(CUDA)
extern "C" int cuMemAlloc_v2(unsigned long long* out, size_t bytes) {
    *out = bytes * 2;
    return 0;
}
extern "C" int cuStreamSynchronize(void*) { return 0; }
#elif defined(CUDART)
extern "C" int cudaMalloc(void** out, size_t bytes) {
    unsigned long long made = 0;
    const int result = cuMemAlloc_v2(&made, bytes);
    *out = (void*)made;
    return result;
}
extern "C" int cudaFree(void* pointer) { return pointer == nullptr ? 1 : 0; }
extern "C" int cudaEventQuery(void* event) {
    if (event != nullptr) longjmp(*(jmp_buf*)event, 1);
    return 600;
}
extern "C" int cudaStreamSynchronize(void* stream) { return cuStreamSynchronize(stream); }
#elif defined(NCCL)
extern "C" int ncclBroadcast(const void*, void*, size_t, int, int, void*, void*) { return 0; }
extern "C" int ncclBcast(void* buffer, size_t count, int type, int root, void* comm, void* stream) {
    return ncclBroadcast(buffer, buffer, count, type, root, comm, stream);
}
#else
static void allocate(int times) {
    for (int i = 1; i <= times; ++i) {
        void* pointer = nullptr;
        cudaMalloc(&pointer, (size_t)i);
        cudaFree(pointer);
    }
}

static void nested() {
    allocate(1);
    cudaFree(nullptr);
    ncclBcast((void*)4096, 10, 7, 0, (void*)8, (void*)16);
    cudaStreamSynchronize((void*)32);
}
static void thrown() {
    for (int i = 0; i < 10; ++i)
        if (setjmp(g_back) == 0) cudaEventQuery(&g_back);
    cudaEventQuery(nullptr);
    allocate(1);
}
static void threads() {
    std::vector<std::thread> all;
    for (int i = 0; i < 8; ++i)
        all.emplace_back(allocate, 500);
    for (std::thread& each : all)
        each.join();
}
static void forked() {
    const pid_t child = fork();
    if (child == 0) {
        allocate(3);
        _exit(0);
    }
    waitpid(child, nullptr, 0);
    allocate(2);
}

int main(int, char** arguments) {
    puts("ready");
    fflush(stdout);
    getchar();
    const std::string what = arguments[1];
    if (what == "nested") nested();
    if (what == "thrown") thrown();
    if (what == "threads") threads();
    if (what == "forked") forked();
    if (what == "many") allocate(atoi(arguments[2]));
    puts("done");
    fflush(stdout);
    getchar();
}
#endif
