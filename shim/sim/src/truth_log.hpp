// The truth log: one text line for every driver call, which the tracer's golden tests compare with.
#pragma once

#include <cstdint>
#include <string_view>

namespace transit::sim {

std::uint64_t now_ns();     // CLOCK_MONOTONIC, the clock of the uprobes
std::uint32_t thread_id();  // kernel thread id
bool truth_enabled();
// Appends one line (without its newline). Buffered; one lock, no system call in most cases.
void truth_line(std::string_view line);

}  // namespace transit::sim
