#include "tessera/base/logging.h"

#include <spdlog/sinks/stdout_sinks.h>
#include <spdlog/spdlog.h>

#include <deque>
#include <mutex>

namespace tessera {
namespace {

thread_local int log_rank = -1;

// Made at first use and never destroyed: threads may still log while the process exits.
spdlog::logger& logger() {
  static auto* const instance = [] {
    auto* made = new spdlog::logger("tessera", std::make_shared<spdlog::sinks::stderr_sink_mt>());
    made->set_pattern("[%L %H:%M:%S.%e%v");
    made->set_level(spdlog::level::warn);
    return made;
  }();
  return *instance;
}

spdlog::level::level_enum to_spdlog(LogLevel level) {
  switch (level) {
    case LogLevel::kDebug: return spdlog::level::debug;
    case LogLevel::kInfo: return spdlog::level::info;
    case LogLevel::kWarning: return spdlog::level::warn;
    case LogLevel::kError: return spdlog::level::err;
  }
  return spdlog::level::err;
}

// Of all ranks of the process, so that those of one are not lost among the others'.
constexpr size_t kMostLines = 320;
constexpr size_t kMostLinesOfRank = 20;
constexpr size_t kMostBytesOfLine = 500;

struct LastLines {
  std::mutex mutex;
  std::deque<std::pair<int, std::string>> lines;  // with the ranks
};
// As the logger.
LastLines& last_lines() {
  static auto* const instance = new LastLines;
  return *instance;
}

void remember(LogLevel level, std::string_view message) {
  constexpr const char* kLetters = "DIWE";
  LastLines& last = last_lines();
  const std::lock_guard lock(last.mutex);
  last.lines.emplace_back(
      log_rank, fmt::format("[{}] {}", kLetters[static_cast<size_t>(level)], message.substr(0, kMostBytesOfLine)));
  if (last.lines.size() > kMostLines) last.lines.pop_front();
}

}  // namespace

void set_log_level(LogLevel level) { logger().set_level(to_spdlog(level)); }
void set_log_rank(int rank) { log_rank = rank; }

void log(LogLevel level, std::string_view message) {
  if (logger().should_log(to_spdlog(level))) remember(level, message);
  if (log_rank >= 0) {
    logger().log(to_spdlog(level), " rank {}] {}", log_rank, message);
  } else {
    logger().log(to_spdlog(level), "] {}", message);
  }
}

std::vector<std::string> last_log_lines(int rank) {
  LastLines& last = last_lines();
  const std::lock_guard lock(last.mutex);
  std::deque<std::string> found;
  for (const auto& [of, line] : last.lines) {
    if (of != rank && of >= 0) continue;
    found.push_back(line);
    if (found.size() > kMostLinesOfRank) found.pop_front();
  }
  return {found.begin(), found.end()};
}

}  // namespace tessera
