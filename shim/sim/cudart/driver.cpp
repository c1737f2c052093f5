#include "driver.hpp"

#include <dlfcn.h>

#include <map>
#include <mutex>
#include <string>

namespace transit::sim::cudart {
namespace {

using GetProcAddress = decltype(&cuGetProcAddress_v2);

GetProcAddress find_door() {
    void* const library = dlopen("libcuda.so.1", RTLD_NOW);
    if (library == nullptr) {
        return nullptr;
    }
    const auto bootstrap = reinterpret_cast<GetProcAddress>(dlsym(library, "cuGetProcAddress_v2"));
    void* door = nullptr;
    CUdriverProcAddressQueryResult status{};
    if (bootstrap == nullptr ||
        bootstrap("cuGetProcAddress", &door, kDriverVersion, 0, &status) != CUDA_SUCCESS) {
        return nullptr;
    }
    return reinterpret_cast<GetProcAddress>(door);
}

}  // namespace

void* driver_function(const char* name) {
    static const GetProcAddress kDoor = find_door();
    static auto* const kMutex = new std::mutex;
    static auto* const kFound = new std::map<std::string, void*, std::less<>>;
    if (kDoor == nullptr) {
        return nullptr;
    }
    std::lock_guard lock(*kMutex);
    const auto known = kFound->find(name);
    if (known != kFound->end()) {
        return known->second;
    }
    void* function = nullptr;
    CUdriverProcAddressQueryResult status{};
    kDoor(name, &function, kDriverVersion, 0, &status);
    return (*kFound)[name] = function;
}

int& thread_device() {
    thread_local int device = 0;
    return device;
}

CUresult ensure_context() {
    static const CUresult kInit = driver<decltype(&cuInit)>("cuInit", 0U);
    thread_local int current = -1;
    if (kInit != CUDA_SUCCESS || current == thread_device()) {
        return kInit;
    }
    CUcontext context = nullptr;
    CUresult result = driver<decltype(&cuDevicePrimaryCtxRetain)>("cuDevicePrimaryCtxRetain",
                                                                  &context, thread_device());
    if (result == CUDA_SUCCESS) {
        result = driver<decltype(&cuCtxSetCurrent)>("cuCtxSetCurrent", context);
    }
    current = result == CUDA_SUCCESS ? thread_device() : -1;
    return result;
}

}  // namespace transit::sim::cudart
