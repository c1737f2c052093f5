#include "hooks.hpp"

#include <map>
#include <mutex>
#include <string>

#include "call.hpp"
#include "capture.hpp"
#include "context.hpp"
#include "kernels.hpp"
#include "physical.hpp"
#include "truth_log.hpp"

namespace transit::sim {
namespace {

std::mutex mutex;

std::map<std::uint32_t, HiddenRange>& hidden() {
    static auto* const kHidden = new std::map<std::uint32_t, HiddenRange>;
    return *kHidden;
}

}  // namespace

HiddenRange hidden_range(std::uint32_t slot) {
    std::lock_guard lock(mutex);
    return hidden()[slot];
}

}  // namespace transit::sim

using namespace transit::sim;

extern "C" {

int transit_sim_register_kernel(const char* name, KernelBody body, void* user,
                                const unsigned* parameter_bytes, unsigned count) {
    if (name == nullptr || body == nullptr || (count > 0 && parameter_bytes == nullptr)) {
        return CUDA_ERROR_INVALID_VALUE;
    }
    find_kernel(name);  // built-in ones first, so that they can be replaced
    register_kernel(name, body, user, parameter_bytes, count);
    return 0;
}

int transit_sim_set_opaque(const char* name) {
    if (find_kernel(name) == nullptr) {
        return CUDA_ERROR_NOT_FOUND;
    }
    set_opaque(name);
    return 0;
}

int transit_sim_hide(std::uint32_t slot, unsigned long long address, unsigned long long bytes) {
    std::lock_guard lock(mutex);
    hidden()[slot] = {address, bytes};
    return 0;
}

int transit_sim_enqueue(void* stream, void (*body)(void*), void* user) {
    Call call{"transit_sim_enqueue", Needs::context};
    if (!call) {
        return call.result();
    }
    const StreamRef on = resolve_stream(static_cast<CUstream>(stream));
    if (on == nullptr) {
        return call.end(CUDA_ERROR_INVALID_HANDLE);
    }
    return call.end(Captures::instance().dispatch(
        on, {CU_GRAPH_NODE_TYPE_HOST, "transit_sim_enqueue", [body, user] { body(user); }}));
}

void transit_sim_raise(int result) { set_sticky_error(static_cast<CUresult>(result)); }

void transit_sim_truth(const char* text) {
    if (truth_enabled()) {
        truth_line(std::to_string(now_ns()) + " " + std::to_string(thread_id()) + " " + text);
    }
}

unsigned long long transit_sim_hbm_bytes() { return PhysicalStore::instance().bytes(Place::hbm); }
unsigned long long transit_sim_peak_hbm_bytes() {
    return PhysicalStore::instance().peak_bytes(Place::hbm);
}
unsigned long long transit_sim_dram_bytes() { return PhysicalStore::instance().bytes(Place::dram); }
unsigned long long transit_sim_peak_dram_bytes() {
    return PhysicalStore::instance().peak_bytes(Place::dram);
}

}  // extern "C"
