// One line per event, to stderr: `[W 12:03:44.120 rank 2] message`. Levels: debug, info, warning, error; the default
// is warning. Front ends set the level and the rank's name once; libraries only log.
#pragma once

#include <fmt/format.h>

#include <string>
#include <string_view>
#include <vector>

namespace tessera {

enum class LogLevel { kDebug, kInfo, kWarning, kError };

void set_log_level(LogLevel level);
// Names the calling thread's rank in the lines that it logs; ranks can be threads of one process.
void set_log_rank(int rank);
void log(LogLevel level, std::string_view message);
// The last lines that were written by threads of this rank, and by those that name none: at most 20, the latest last.
std::vector<std::string> last_log_lines(int rank);

template <typename... Args>
void log_debug(fmt::format_string<Args...> format, Args&&... args) {
  log(LogLevel::kDebug, fmt::format(format, std::forward<Args>(args)...));
}
template <typename... Args>
void log_info(fmt::format_string<Args...> format, Args&&... args) {
  log(LogLevel::kInfo, fmt::format(format, std::forward<Args>(args)...));
}
template <typename... Args>
void log_warning(fmt::format_string<Args...> format, Args&&... args) {
  log(LogLevel::kWarning, fmt::format(format, std::forward<Args>(args)...));
}
template <typename... Args>
void log_error(fmt::format_string<Args...> format, Args&&... args) {
  log(LogLevel::kError, fmt::format(format, std::forward<Args>(args)...));
}

}  // namespace tessera
