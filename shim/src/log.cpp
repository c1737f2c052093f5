#include "transit/log.hpp"

#include <strings.h>
#include <unistd.h>

#include <cstdarg>
#include <cstdio>
#include <cstdlib>

namespace transit {
namespace {

void write_line(const char* format, va_list args) noexcept {
    char line[1024];
    const int head = std::snprintf(line, sizeof line, "transit[%d]: ", static_cast<int>(getpid()));
    int length =
        head +
        std::vsnprintf(line + head, sizeof line - static_cast<std::size_t>(head) - 1, format, args);
    if (length > static_cast<int>(sizeof line) - 2) length = static_cast<int>(sizeof line) - 2;
    line[length++] = '\n';
    // One write a line, so that ranks sharing a terminal do not interleave inside it.
    [[maybe_unused]] const auto written =
        write(STDERR_FILENO, line, static_cast<std::size_t>(length));
}

void always(const char* format, ...) noexcept {
    va_list args;
    va_start(args, format);
    write_line(format, args);
    va_end(args);
}

LogLevel read_threshold() noexcept {
    struct Named {
        const char* name;
        LogLevel level;
    };
    constexpr Named kLevels[] = {{"quiet", LogLevel::kQuiet},
                                 {"warn", LogLevel::kWarn},
                                 {"info", LogLevel::kInfo},
                                 {"debug", LogLevel::kDebug}};
    const char* text = std::getenv("TRANSIT_LOG");
    if (text == nullptr || *text == '\0') return LogLevel::kWarn;
    for (const Named& each : kLevels)
        if (strcasecmp(text, each.name) == 0) return each.level;
    always("TRANSIT_LOG=%s is none of quiet, warn, info and debug; using warn", text);
    return LogLevel::kWarn;
}

LogLevel threshold() noexcept {
    static const LogLevel level = read_threshold();
    return level;
}

}  // namespace

void log(LogLevel level, const char* format, ...) noexcept {
    if (level > threshold()) return;
    va_list args;
    va_start(args, format);
    write_line(format, args);
    va_end(args);
}

}  // namespace transit
