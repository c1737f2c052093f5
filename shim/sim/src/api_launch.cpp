// Kernel launches.
#include <cstring>

#include "call.hpp"
#include "capture.hpp"
#include "context.hpp"
#include "kernels.hpp"

namespace transit::sim {
namespace {

struct Shape {
    unsigned grid[3];
    unsigned block[3];
    unsigned shared_bytes;
};

bool valid(const Shape& shape) {
    for (int i = 0; i < 3; ++i) {
        if (shape.grid[i] == 0 || shape.block[i] == 0) {
            return false;
        }
    }
    return std::uint64_t{shape.block[0]} * shape.block[1] * shape.block[2] <= 1024;
}

// The parameters in one buffer, at the offsets cuFuncGetParamInfo tells; false if they do not fit.
bool pack(const Kernel& kernel, void** parameters, void** extra, std::vector<std::byte>& packed) {
    packed.assign(kernel.packed_bytes, std::byte{0});
    if (parameters != nullptr) {
        for (std::size_t i = 0; i < kernel.parameters.size(); ++i) {
            std::memcpy(packed.data() + kernel.parameters[i].offset, parameters[i],
                        kernel.parameters[i].bytes);
        }
        return extra == nullptr;
    }
    if (extra == nullptr) {
        return kernel.parameters.empty();
    }
    const void* buffer = nullptr;
    std::size_t bytes = 0;
    for (; *extra != CU_LAUNCH_PARAM_END; extra += 2) {
        if (*extra == CU_LAUNCH_PARAM_BUFFER_POINTER) {
            buffer = extra[1];
        } else if (*extra == CU_LAUNCH_PARAM_BUFFER_SIZE) {
            bytes = *static_cast<const std::size_t*>(extra[1]);
        } else {
            return false;
        }
    }
    if (bytes < kernel.packed_bytes || (buffer == nullptr && bytes > 0)) {
        return false;
    }
    if (kernel.packed_bytes > 0) {
        std::memcpy(packed.data(), buffer, kernel.packed_bytes);
    }
    return true;
}

CUresult launch(const char* name, CUfunction handle, const Shape& shape, CUstream stream_handle,
                void** parameters, void** extra) {
    Call call{name, Needs::context};
    call.at("function", handle).at("stream", stream_handle);
    if (!call) {
        return call.result();
    }
    // A CUkernel cast to CUfunction is taken too: the runtime does that.
    const FunctionHandle* const function = find_function(handle);
    const StreamRef stream = resolve_stream(stream_handle);
    if (function == nullptr || stream == nullptr) {
        return call.end(CUDA_ERROR_INVALID_HANDLE);
    }
    call.text("name", function->kernel->name.c_str());
    auto made = std::make_shared<KernelLaunch>(
        KernelLaunch{function->kernel, handle, {}, {}, shape.shared_bytes, {}});
    std::memcpy(made->grid, shape.grid, sizeof shape.grid);
    std::memcpy(made->block, shape.block, sizeof shape.block);
    if (!valid(shape) || !pack(*function->kernel, parameters, extra, made->packed)) {
        return call.end(CUDA_ERROR_INVALID_VALUE);
    }
    std::shared_ptr<const KernelLaunch> ready = std::move(made);
    Node node{CU_GRAPH_NODE_TYPE_KERNEL, ready->kernel->name.c_str(), [ready] { ready->run(); },
              ready};
    return call.end(Captures::instance().dispatch(stream, std::move(node)));
}

}  // namespace
}  // namespace transit::sim

using namespace transit::sim;

extern "C" {

CUresult CUDAAPI cuLaunchKernel(CUfunction function, unsigned int grid_x, unsigned int grid_y,
                                unsigned int grid_z, unsigned int block_x, unsigned int block_y,
                                unsigned int block_z, unsigned int shared_bytes, CUstream stream,
                                void** parameters, void** extra) {
    return launch("cuLaunchKernel", function,
                  {{grid_x, grid_y, grid_z}, {block_x, block_y, block_z}, shared_bytes}, stream,
                  parameters, extra);
}

CUresult CUDAAPI cuLaunchKernelEx(const CUlaunchConfig* config, CUfunction function,
                                  void** parameters, void** extra) {
    if (config == nullptr) {
        return CUDA_ERROR_INVALID_VALUE;
    }
    return launch("cuLaunchKernelEx", function,
                  {{config->gridDimX, config->gridDimY, config->gridDimZ},
                   {config->blockDimX, config->blockDimY, config->blockDimZ},
                   config->sharedMemBytes},
                  config->hStream, parameters, extra);
}

CUresult CUDAAPI cuLaunchCooperativeKernel(CUfunction function, unsigned int grid_x,
                                           unsigned int grid_y, unsigned int grid_z,
                                           unsigned int block_x, unsigned int block_y,
                                           unsigned int block_z, unsigned int shared_bytes,
                                           CUstream stream, void** parameters) {
    return launch("cuLaunchCooperativeKernel", function,
                  {{grid_x, grid_y, grid_z}, {block_x, block_y, block_z}, shared_bytes}, stream,
                  parameters, nullptr);
}

}  // extern "C"
