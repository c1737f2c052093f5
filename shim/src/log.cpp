#include "transit/log.hpp"

#include <unistd.h>

#include <cstdarg>
#include <cstdio>
#include <cstdlib>
#include <cstring>

namespace transit {
namespace {

LogLevel threshold() noexcept {
    static const LogLevel level = [] {
        const char* text = std::getenv("TRANSIT_LOG");
        if (text == nullptr || std::strcmp(text, "warn") == 0) return LogLevel::kWarn;
        if (std::strcmp(text, "debug") == 0) return LogLevel::kDebug;
        return std::strcmp(text, "info") == 0 ? LogLevel::kInfo : LogLevel::kQuiet;
    }();
    return level;
}

}  // namespace

void log(LogLevel level, const char* format, ...) noexcept {
    if (level > threshold()) return;
    char line[1024];
    const int head = std::snprintf(line, sizeof line, "transit[%d]: ", static_cast<int>(getpid()));
    va_list args;
    va_start(args, format);
    int length =
        head +
        std::vsnprintf(line + head, sizeof line - static_cast<std::size_t>(head) - 1, format, args);
    va_end(args);
    if (length > static_cast<int>(sizeof line) - 2) length = static_cast<int>(sizeof line) - 2;
    line[length++] = '\n';
    // One write a line, so that ranks sharing a terminal do not interleave inside it.
    [[maybe_unused]] const auto written =
        write(STDERR_FILENO, line, static_cast<std::size_t>(length));
}

}  // namespace transit
