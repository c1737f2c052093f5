// Contexts: current, stack, limits, peers, synchronisation.
#include <algorithm>
#include <set>

#include "call.hpp"
#include "capture.hpp"
#include "context.hpp"

namespace transit::sim {
namespace {

std::mutex peers_mutex;

std::set<std::pair<Context*, CUcontext>>& peers() {
    static auto* const kPeers = new std::set<std::pair<Context*, CUcontext>>;
    return *kPeers;
}

CUresult create(CUcontext* context, unsigned flags, CUdevice device) {
    if (context == nullptr) {
        return CUDA_ERROR_INVALID_VALUE;
    }
    if (Devices::instance().at(device) == nullptr) {
        return CUDA_ERROR_INVALID_DEVICE;
    }
    const auto made = Devices::instance().create_context(device, flags);
    context_stack().push_back(made.get());
    *context = made->handle();
    return CUDA_SUCCESS;
}

}  // namespace
}  // namespace transit::sim

using namespace transit::sim;

extern "C" {

CUresult CUDAAPI cuCtxCreate_v2(CUcontext* context, unsigned int flags, CUdevice device) {
    Call call{"cuCtxCreate_v2", Needs::driver};
    return call ? call.end(create(context, flags, device)) : call.result();
}

CUresult CUDAAPI cuCtxCreate_v3(CUcontext* context, CUexecAffinityParam*, int, unsigned int flags,
                                CUdevice device) {
    Call call{"cuCtxCreate_v3", Needs::driver};
    return call ? call.end(create(context, flags, device)) : call.result();
}

CUresult CUDAAPI cuCtxCreate_v4(CUcontext* context, CUctxCreateParams*, unsigned int flags,
                                CUdevice device) {
    Call call{"cuCtxCreate_v4", Needs::driver};
    return call ? call.end(create(context, flags, device)) : call.result();
}

CUresult CUDAAPI cuCtxDestroy_v2(CUcontext context) {
    Call call{"cuCtxDestroy_v2", Needs::driver};
    if (!call) {
        return call.result();
    }
    if (!Devices::instance().is_context(context)) {
        return call.end(CUDA_ERROR_INVALID_CONTEXT);
    }
    auto* const gone = reinterpret_cast<Context*>(context);
    wait_all(gone->outstanding());
    if (current_context() == gone) {
        context_stack().pop_back();
    }
    return call.end(Devices::instance().destroy_context(context) ? CUDA_SUCCESS
                                                                 : CUDA_ERROR_INVALID_CONTEXT);
}

CUresult CUDAAPI cuCtxGetCurrent(CUcontext* context) {
    Call call{"cuCtxGetCurrent", Needs::driver};
    if (call && context == nullptr) {
        return call.end(CUDA_ERROR_INVALID_VALUE);
    }
    if (call) {
        *context = current_context() != nullptr ? current_context()->handle() : nullptr;
    }
    return call.result();
}

CUresult CUDAAPI cuCtxSetCurrent(CUcontext context) {
    Call call{"cuCtxSetCurrent", Needs::driver};
    if (!call) {
        return call.result();
    }
    if (context != nullptr && !Devices::instance().is_context(context)) {
        return call.end(CUDA_ERROR_INVALID_CONTEXT);
    }
    auto& stack = context_stack();
    if (!stack.empty()) {
        stack.pop_back();
    }
    if (context != nullptr) {
        stack.push_back(reinterpret_cast<Context*>(context));
    }
    return call.end(CUDA_SUCCESS);
}

CUresult CUDAAPI cuCtxPushCurrent_v2(CUcontext context) {
    Call call{"cuCtxPushCurrent_v2", Needs::driver};
    if (!call) {
        return call.result();
    }
    if (!Devices::instance().is_context(context)) {
        return call.end(CUDA_ERROR_INVALID_CONTEXT);
    }
    context_stack().push_back(reinterpret_cast<Context*>(context));
    return call.end(CUDA_SUCCESS);
}

CUresult CUDAAPI cuCtxPopCurrent_v2(CUcontext* context) {
    Call call{"cuCtxPopCurrent_v2", Needs::context};
    if (!call) {
        return call.result();
    }
    if (context != nullptr) {
        *context = current_context()->handle();
    }
    context_stack().pop_back();
    return call.end(CUDA_SUCCESS);
}

CUresult CUDAAPI cuCtxGetDevice(CUdevice* device) {
    Call call{"cuCtxGetDevice", Needs::context};
    if (call && device == nullptr) {
        return call.end(CUDA_ERROR_INVALID_VALUE);
    }
    if (call) {
        *device = current_context()->device();
    }
    return call.result();
}

CUresult CUDAAPI cuCtxGetDevice_v2(CUdevice* device, CUcontext context) {
    Call call{"cuCtxGetDevice_v2", Needs::driver};
    if (!call) {
        return call.result();
    }
    if (device == nullptr || !Devices::instance().is_context(context)) {
        return call.end(device == nullptr ? CUDA_ERROR_INVALID_VALUE : CUDA_ERROR_INVALID_CONTEXT);
    }
    *device = reinterpret_cast<Context*>(context)->device();
    return call.end(CUDA_SUCCESS);
}

CUresult CUDAAPI cuCtxGetFlags(unsigned int* flags) {
    Call call{"cuCtxGetFlags", Needs::context};
    if (call && flags == nullptr) {
        return call.end(CUDA_ERROR_INVALID_VALUE);
    }
    if (call) {
        *flags = current_context()->flags;
    }
    return call.result();
}

CUresult CUDAAPI cuCtxGetId(CUcontext context, unsigned long long* id) {
    Call call{"cuCtxGetId", Needs::driver};
    if (!call) {
        return call.result();
    }
    Context* const which =
        context == nullptr ? current_context() : reinterpret_cast<Context*>(context);
    if (which == nullptr || !Devices::instance().is_context(which->handle())) {
        return call.end(CUDA_ERROR_INVALID_CONTEXT);
    }
    *id = which->id();
    return call.end(CUDA_SUCCESS);
}

CUresult CUDAAPI cuCtxGetApiVersion(CUcontext, unsigned int* version) {
    Call call{"cuCtxGetApiVersion", Needs::driver};
    if (call && version == nullptr) {
        return call.end(CUDA_ERROR_INVALID_VALUE);
    }
    if (call) {
        *version = 3020;
    }
    return call.result();
}

CUresult CUDAAPI cuCtxGetStreamPriorityRange(int* least, int* greatest) {
    Call call{"cuCtxGetStreamPriorityRange", Needs::context};
    if (call && least != nullptr) {
        *least = 0;
    }
    if (call && greatest != nullptr) {
        *greatest = -5;
    }
    return call.result();
}

CUresult CUDAAPI cuCtxSetLimit(CUlimit, size_t) {
    Call call{"cuCtxSetLimit", Needs::context};
    return call.result();
}

CUresult CUDAAPI cuCtxGetLimit(size_t* value, CUlimit) {
    Call call{"cuCtxGetLimit", Needs::context};
    if (call && value == nullptr) {
        return call.end(CUDA_ERROR_INVALID_VALUE);
    }
    if (call) {
        *value = 1024;
    }
    return call.result();
}

CUresult CUDAAPI cuCtxSynchronize(void) {
    Call call{"cuCtxSynchronize", Needs::context};
    if (!call) {
        return call.result();
    }
    if (const CUresult refused = Captures::instance().check_sync(nullptr);
        refused != CUDA_SUCCESS) {
        return call.end(refused);
    }
    return call.end(wait_all(current_context()->outstanding()));
}

CUresult CUDAAPI cuCtxSynchronize_v2(CUcontext context) {
    Call call{"cuCtxSynchronize_v2", Needs::driver};
    if (!call) {
        return call.result();
    }
    if (!Devices::instance().is_context(context)) {
        return call.end(CUDA_ERROR_INVALID_CONTEXT);
    }
    if (const CUresult refused = Captures::instance().check_sync(nullptr);
        refused != CUDA_SUCCESS) {
        return call.end(refused);
    }
    return call.end(wait_all(reinterpret_cast<Context*>(context)->outstanding()));
}

CUresult CUDAAPI cuCtxEnablePeerAccess(CUcontext peer, unsigned int flags) {
    Call call{"cuCtxEnablePeerAccess", Needs::context};
    call.at("peer", peer);
    if (!call) {
        return call.result();
    }
    if (flags != 0) {
        return call.end(CUDA_ERROR_INVALID_VALUE);
    }
    if (!Devices::instance().is_context(peer)) {
        return call.end(CUDA_ERROR_INVALID_CONTEXT);
    }
    if (reinterpret_cast<Context*>(peer)->device() == current_context()->device()) {
        return call.end(CUDA_ERROR_PEER_ACCESS_UNSUPPORTED);
    }
    std::lock_guard lock(peers_mutex);
    const bool fresh = peers().insert({current_context(), peer}).second;
    return call.end(fresh ? CUDA_SUCCESS : CUDA_ERROR_PEER_ACCESS_ALREADY_ENABLED);
}

CUresult CUDAAPI cuCtxDisablePeerAccess(CUcontext peer) {
    Call call{"cuCtxDisablePeerAccess", Needs::context};
    call.at("peer", peer);
    if (!call) {
        return call.result();
    }
    std::lock_guard lock(peers_mutex);
    const bool known = peers().erase({current_context(), peer}) != 0;
    return call.end(known ? CUDA_SUCCESS : CUDA_ERROR_PEER_ACCESS_NOT_ENABLED);
}

}  // extern "C"
