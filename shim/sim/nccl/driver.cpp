#include "driver.hpp"

#include <dlfcn.h>
#include <link.h>

#include <cstdlib>
#include <cstring>

namespace transit::sim::nccl {
namespace {

constexpr int kNotInitialised = 3;  // CUDA_ERROR_NOT_INITIALIZED

struct Hooks {
    int (*enqueue)(void*, void (*)(void*), void*) = nullptr;
    int (*device)(int*) = nullptr;
    int (*retain)(void**, int) = nullptr;
    int (*release)(int) = nullptr;
    int (*push)(void*) = nullptr;
    int (*pop)(void**) = nullptr;
    int (*is_capturing)(cudaStream_t, int*) = nullptr;
    void (*truth)(const char*) = nullptr;
};

// The library by its file: TRANSIT_REAL_LIBCUDA, or the name we build it under.
bool is_simulator(const char* path) {
    const char* const told = std::getenv("TRANSIT_REAL_LIBCUDA");
    return path != nullptr && ((told != nullptr && std::strcmp(path, told) == 0) ||
                               std::strstr(path, "libtransit_sim_cuda") != nullptr);
}

// Not through dlopen: with the shim preloaded libcuda.so.1 is the shim, and even an absolute path
// may lead back to it. In glibc a link map is the handle, so the library can be asked directly.
Hooks find_hooks() {
    Hooks hooks;
    void* const self = dlopen(nullptr, RTLD_LAZY);
    link_map* map = nullptr;
    if (self == nullptr || dlinfo(self, RTLD_DI_LINKMAP, &map) != 0) {
        return hooks;
    }
    while (map != nullptr && !is_simulator(map->l_name)) {
        map = map->l_next;
    }
    if (map != nullptr) {
        hooks.enqueue =
            reinterpret_cast<decltype(hooks.enqueue)>(dlsym(map, "transit_sim_enqueue"));
        hooks.device = reinterpret_cast<decltype(hooks.device)>(dlsym(map, "cuCtxGetDevice"));
        hooks.retain =
            reinterpret_cast<decltype(hooks.retain)>(dlsym(map, "cuDevicePrimaryCtxRetain"));
        hooks.release =
            reinterpret_cast<decltype(hooks.release)>(dlsym(map, "cuDevicePrimaryCtxRelease_v2"));
        hooks.push = reinterpret_cast<decltype(hooks.push)>(dlsym(map, "cuCtxPushCurrent_v2"));
        hooks.pop = reinterpret_cast<decltype(hooks.pop)>(dlsym(map, "cuCtxPopCurrent_v2"));
        hooks.is_capturing =
            reinterpret_cast<decltype(hooks.is_capturing)>(dlsym(map, "cuStreamIsCapturing"));
        hooks.truth = reinterpret_cast<decltype(hooks.truth)>(dlsym(map, "transit_sim_truth"));
    }
    return hooks;
}

const Hooks& hooks() {
    static Hooks found;
    if (found.enqueue == nullptr) {  // the driver may be loaded after us
        found = find_hooks();
    }
    return found;
}

}  // namespace

int enqueue(cudaStream_t stream, void (*body)(void*), void* user) {
    return hooks().enqueue != nullptr ? hooks().enqueue(stream, body, user) : kNotInitialised;
}

int current_device(int* device) {
    return hooks().device != nullptr ? hooks().device(device) : kNotInitialised;
}

OnDevice::OnDevice(int device) {
    int current = -1;
    void* primary = nullptr;
    if (current_device(&current) == 0 && current == device) {
        return;
    }
    if (hooks().retain == nullptr || hooks().retain(&primary, device) != 0) {
        return;
    }
    hooks().release(device);  // the communicator's user keeps it
    pushed_ = hooks().push(primary) == 0;
}

OnDevice::~OnDevice() {
    void* popped = nullptr;
    if (pushed_) {
        hooks().pop(&popped);
    }
}

bool capturing(cudaStream_t stream) {
    int status = 0;
    return hooks().is_capturing != nullptr && hooks().is_capturing(stream, &status) == 0 &&
           status == 1;
}

void truth(const char* text) {
    if (hooks().truth != nullptr) {
        hooks().truth(text);
    }
}

}  // namespace transit::sim::nccl
