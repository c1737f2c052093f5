#include "fault_injection.hpp"

#include <cstdlib>
#include <map>
#include <mutex>
#include <string>
#include <vector>

#include "options.hpp"

namespace transit::sim {
namespace {

struct Failure {
    unsigned long call;  // from 1
    CUresult result;
};

struct Injected {
    unsigned long calls = 0;
    std::vector<Failure> failures;
};

using Plan = std::map<std::string, Injected, std::less<>>;

Plan parse(const std::string& text) {
    Plan plan;
    for (std::size_t start = 0; start < text.size();) {
        std::size_t end = text.find(',', start);
        end = end == std::string::npos ? text.size() : end;
        const std::string item = text.substr(start, end - start);
        start = end + 1;
        const std::size_t first = item.find(':');
        const std::size_t second = first == std::string::npos ? first : item.find(':', first + 1);
        if (second == std::string::npos) {
            continue;
        }
        const std::string name(base_name(item.substr(0, first)));
        plan[name].failures.push_back(
            {std::strtoul(item.c_str() + first + 1, nullptr, 10),
             static_cast<CUresult>(std::strtol(item.c_str() + second + 1, nullptr, 10))});
    }
    return plan;
}

Plan& plan() {
    static Plan* const kPlan = new Plan(parse(options().failures));
    return *kPlan;
}

}  // namespace

std::string_view base_name(std::string_view name) {
    for (const std::string_view suffix : {"_ptsz", "_ptds", "_v2", "_v3", "_v4"}) {
        if (name.ends_with(suffix)) {
            name.remove_suffix(suffix.size());
        }
    }
    return name;
}

CUresult injected_failure(std::string_view function) {
    if (plan().empty()) {
        return CUDA_SUCCESS;
    }
    static std::mutex* const kMutex = new std::mutex;
    std::lock_guard lock(*kMutex);
    const auto found = plan().find(base_name(function));
    if (found == plan().end()) {
        return CUDA_SUCCESS;
    }
    const unsigned long call = ++found->second.calls;
    for (const Failure& failure : found->second.failures) {
        if (failure.call == call) {
            return failure.result;
        }
    }
    return CUDA_SUCCESS;
}

}  // namespace transit::sim
