#include "transit/context.hpp"

#include "transit/real.hpp"

namespace transit {

CUcontext current_context() noexcept {
    CUcontext current = nullptr;
    return real_cuCtxGetCurrent(&current) == CUDA_SUCCESS ? current : nullptr;
}

CUcontext context_of(CUstream stream) noexcept {
    if (stream == nullptr || stream == CU_STREAM_LEGACY || stream == CU_STREAM_PER_THREAD)
        return current_context();
    CUcontext context = nullptr;
    return real_cuStreamGetCtx(stream, &context) == CUDA_SUCCESS ? context : current_context();
}

InContext::InContext(CUcontext wanted) noexcept {
    if (wanted == nullptr || current_context() == wanted) return;
    pushed_ = real_cuCtxPushCurrent_v2(wanted) == CUDA_SUCCESS;
}

InContext::~InContext() {
    CUcontext popped = nullptr;
    if (pushed_) real_cuCtxPopCurrent_v2(&popped);
}

}  // namespace transit
