// Modules, libraries and the handles of their kernels. Any image loads; kernels are found by name.
#include <map>
#include <mutex>

#include "call.hpp"
#include "kernels.hpp"

namespace transit::sim {
namespace {

using Kind = FunctionHandle::Kind;

// A module or a library; a library has a module within, whose functions its kernels stand for.
struct Image {
    Kind gives;
};

std::mutex images_mutex;

std::map<void*, std::unique_ptr<Image>>& images() {
    static auto* const kImages = new std::map<void*, std::unique_ptr<Image>>;
    return *kImages;
}

bool is_image(void* handle, Kind gives) {
    std::lock_guard lock(images_mutex);
    const auto found = images().find(handle);
    return found != images().end() && found->second->gives == gives;
}

template <class Handle>
CUresult load(const char* name, Handle* handle, const void* image, Kind gives) {
    Call call{name, Needs::context};
    if (!call) {
        return call.result();
    }
    if (handle == nullptr || image == nullptr) {
        return call.end(CUDA_ERROR_INVALID_VALUE);
    }
    auto made = std::make_unique<Image>(Image{gives});
    *handle = reinterpret_cast<Handle>(made.get());
    call.at("image", *handle);
    std::lock_guard lock(images_mutex);
    images()[made.get()] = std::move(made);
    return call.end(CUDA_SUCCESS);
}

CUresult unload(const char* name, void* handle, Kind gives) {
    Call call{name, Needs::driver};
    call.at("image", handle);
    if (!call) {
        return call.result();
    }
    if (!is_image(handle, gives)) {
        return call.end(CUDA_ERROR_INVALID_HANDLE);
    }
    delete_functions_of(handle);
    std::lock_guard lock(images_mutex);
    images().erase(handle);
    return call.end(CUDA_SUCCESS);
}

template <class Handle>
CUresult get(const char* entry, Handle* function, void* image, const char* name, Kind gives) {
    Call call{entry, Needs::driver};
    call.at("image", image).text("name", name);
    if (!call) {
        return call.result();
    }
    if (function == nullptr || name == nullptr) {
        return call.end(CUDA_ERROR_INVALID_VALUE);
    }
    if (!is_image(image, gives)) {
        return call.end(CUDA_ERROR_INVALID_HANDLE);
    }
    auto kernel = find_kernel(name);
    if (kernel == nullptr) {
        return call.end(CUDA_ERROR_NOT_FOUND);
    }
    *function = reinterpret_cast<Handle>(new_function(gives, std::move(kernel), image));
    call.at("function", *function);
    return call.end(CUDA_SUCCESS);
}

// A CUkernel given to a cuFunc… query is an invalid handle, though a launch takes it.
const FunctionHandle* of_kind(const void* handle, Kind kind) {
    const FunctionHandle* const found = find_function(handle);
    return found != nullptr && found->kind == kind ? found : nullptr;
}

CUresult name_of(const char* entry, const char** name, const void* handle, Kind kind) {
    Call call{entry, Needs::driver};
    call.at("function", handle);
    if (!call) {
        return call.result();
    }
    const FunctionHandle* const function = of_kind(handle, kind);
    if (function == nullptr || name == nullptr) {
        return call.end(function == nullptr ? CUDA_ERROR_INVALID_HANDLE : CUDA_ERROR_INVALID_VALUE);
    }
    *name = function->kernel->name.c_str();
    return call.end(CUDA_SUCCESS);
}

CUresult parameter_of(const char* entry, const void* handle, std::size_t index, std::size_t* offset,
                      std::size_t* bytes, Kind kind) {
    Call call{entry, Needs::driver};
    call.at("function", handle).note("index", index);
    if (!call) {
        return call.result();
    }
    const FunctionHandle* const function = of_kind(handle, kind);
    if (function == nullptr) {
        return call.end(CUDA_ERROR_INVALID_HANDLE);
    }
    if (function->kernel->opaque) {
        return call.end(CUDA_ERROR_NOT_SUPPORTED);
    }
    if (offset == nullptr || index >= function->kernel->parameters.size()) {
        return call.end(CUDA_ERROR_INVALID_VALUE);
    }
    *offset = function->kernel->parameters[index].offset;
    if (bytes != nullptr) {
        *bytes = function->kernel->parameters[index].bytes;
    }
    return call.end(CUDA_SUCCESS);
}

}  // namespace
}  // namespace transit::sim

using namespace transit::sim;

extern "C" {

CUresult CUDAAPI cuModuleLoadData(CUmodule* module, const void* image) {
    return load("cuModuleLoadData", module, image, Kind::function);
}
CUresult CUDAAPI cuModuleLoadDataEx(CUmodule* module, const void* image, unsigned int,
                                    CUjit_option*, void**) {
    return load("cuModuleLoadDataEx", module, image, Kind::function);
}
CUresult CUDAAPI cuModuleLoadFatBinary(CUmodule* module, const void* image) {
    return load("cuModuleLoadFatBinary", module, image, Kind::function);
}
CUresult CUDAAPI cuModuleLoad(CUmodule* module, const char* path) {
    return load("cuModuleLoad", module, path, Kind::function);
}
CUresult CUDAAPI cuModuleUnload(CUmodule module) {
    return unload("cuModuleUnload", module, Kind::function);
}
CUresult CUDAAPI cuModuleGetFunction(CUfunction* function, CUmodule module, const char* name) {
    return get("cuModuleGetFunction", function, module, name, Kind::function);
}
CUresult CUDAAPI cuModuleGetGlobal_v2(CUdeviceptr*, size_t*, CUmodule, const char* name) {
    Call call{"cuModuleGetGlobal_v2", Needs::driver};
    call.text("name", name);
    return call ? call.end(CUDA_ERROR_NOT_FOUND) : call.result();
}
CUresult CUDAAPI cuModuleGetLoadingMode(CUmoduleLoadingMode* mode) {
    Call call{"cuModuleGetLoadingMode", Needs::driver};
    if (call && mode != nullptr) {
        *mode = CU_MODULE_LAZY_LOADING;
    }
    return call.result();
}
CUresult CUDAAPI cuLibraryLoadData(CUlibrary* library, const void* code, CUjit_option*, void**,
                                   unsigned int, CUlibraryOption*, void**, unsigned int) {
    return load("cuLibraryLoadData", library, code, Kind::kernel);
}
CUresult CUDAAPI cuLibraryUnload(CUlibrary library) {
    return unload("cuLibraryUnload", library, Kind::kernel);
}
CUresult CUDAAPI cuLibraryGetKernel(CUkernel* kernel, CUlibrary library, const char* name) {
    return get("cuLibraryGetKernel", kernel, library, name, Kind::kernel);
}
CUresult CUDAAPI cuLibraryGetGlobal(CUdeviceptr*, size_t*, CUlibrary, const char* name) {
    Call call{"cuLibraryGetGlobal", Needs::driver};
    call.text("name", name);
    return call ? call.end(CUDA_ERROR_NOT_FOUND) : call.result();
}

CUresult CUDAAPI cuKernelGetFunction(CUfunction* function, CUkernel kernel) {
    Call call{"cuKernelGetFunction", Needs::context};
    call.at("kernel", kernel);
    if (!call) {
        return call.result();
    }
    const FunctionHandle* const found = of_kind(kernel, Kind::kernel);
    if (found == nullptr || function == nullptr) {
        return call.end(found == nullptr ? CUDA_ERROR_INVALID_HANDLE : CUDA_ERROR_INVALID_VALUE);
    }
    *function =
        reinterpret_cast<CUfunction>(new_function(Kind::function, found->kernel, found->owner));
    call.at("function", *function);
    return call.end(CUDA_SUCCESS);
}

CUresult CUDAAPI cuFuncGetName(const char** name, CUfunction function) {
    return name_of("cuFuncGetName", name, function, Kind::function);
}
CUresult CUDAAPI cuKernelGetName(const char** name, CUkernel kernel) {
    return name_of("cuKernelGetName", name, kernel, Kind::kernel);
}
CUresult CUDAAPI cuFuncGetParamInfo(CUfunction function, size_t index, size_t* offset,
                                    size_t* bytes) {
    return parameter_of("cuFuncGetParamInfo", function, index, offset, bytes, Kind::function);
}
CUresult CUDAAPI cuKernelGetParamInfo(CUkernel kernel, size_t index, size_t* offset,
                                      size_t* bytes) {
    return parameter_of("cuKernelGetParamInfo", kernel, index, offset, bytes, Kind::kernel);
}
CUresult CUDAAPI cuFuncSetAttribute(CUfunction function, CUfunction_attribute, int) {
    Call call{"cuFuncSetAttribute", Needs::driver};
    return call ? call.end(find_function(function) ? CUDA_SUCCESS : CUDA_ERROR_INVALID_HANDLE)
                : call.result();
}
CUresult CUDAAPI cuFuncGetAttribute(int* value, CUfunction_attribute which, CUfunction function) {
    Call call{"cuFuncGetAttribute", Needs::driver};
    if (!call) {
        return call.result();
    }
    if (value == nullptr || of_kind(function, Kind::function) == nullptr) {
        return call.end(value == nullptr ? CUDA_ERROR_INVALID_VALUE : CUDA_ERROR_INVALID_HANDLE);
    }
    *value = which == CU_FUNC_ATTRIBUTE_MAX_THREADS_PER_BLOCK ? 1024 : 0;
    return call.end(CUDA_SUCCESS);
}
CUresult CUDAAPI cuFuncGetModule(CUmodule* module, CUfunction function) {
    Call call{"cuFuncGetModule", Needs::driver};
    if (!call) {
        return call.result();
    }
    const FunctionHandle* const found = of_kind(function, Kind::function);
    if (module == nullptr || found == nullptr) {
        return call.end(CUDA_ERROR_INVALID_HANDLE);
    }
    *module = static_cast<CUmodule>(found->owner);
    return call.end(CUDA_SUCCESS);
}

}  // extern "C"
