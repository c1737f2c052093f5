#pragma once
// One line to standard error, by level (TRANSIT_LOG). Never called on a launch's fast path.

namespace transit {

enum class LogLevel : int { kQuiet, kWarn, kInfo, kDebug };

[[gnu::format(printf, 2, 3)]] void log(LogLevel level, const char* format, ...) noexcept;

}  // namespace transit
