// A program that is linked with libcuda.so.1, as many are: which library do its calls reach?
#include <cuda.h>
#include <dlfcn.h>

#include <cstdio>
#include <cstring>

int main() {
    CUcontext context;
    CUdeviceptr memory;
    size_t total = 0;
    if (cuInit(0) || cuDevicePrimaryCtxRetain(&context, 0) || cuCtxSetCurrent(context) ||
        cuMemAlloc(&memory, 1 << 22) || cuMemGetInfo(nullptr, &total))
        return 1;
    Dl_info info{};
    dladdr(dlsym(RTLD_DEFAULT, "cuMemAlloc_v2"), &info);
    const char* slash = std::strrchr(info.dli_fname, '/');
    std::printf("%s %zu\n", slash ? slash + 1 : info.dli_fname, total);
    return cuMemFree(memory);
}
