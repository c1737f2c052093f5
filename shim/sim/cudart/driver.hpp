// The driver as the runtime reaches it: dlopen, then cuGetProcAddress for everything.
#pragma once

#include "../src/cuda_api.hpp"

namespace transit::sim::cudart {

// Null if there is no driver or it lacks the function.
void* driver_function(const char* name);

// Calls a driver function of the given prototype by the name cuGetProcAddress knows.
template <class Prototype, class... Arguments>
CUresult driver(const char* name, Arguments... arguments) {
    auto* const function = reinterpret_cast<Prototype>(driver_function(name));
    return function != nullptr ? function(arguments...) : CUDA_ERROR_NOT_INITIALIZED;
}

// The primary context of the thread's device, made current on first use.
CUresult ensure_context();
int& thread_device();

}  // namespace transit::sim::cudart
