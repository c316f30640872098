#include "tessera/base/logging.h"

#include <spdlog/sinks/stdout_sinks.h>
#include <spdlog/spdlog.h>

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

}  // namespace

void set_log_level(LogLevel level) { logger().set_level(to_spdlog(level)); }
void set_log_rank(int rank) { log_rank = rank; }

void log(LogLevel level, std::string_view message) {
  if (log_rank >= 0) {
    logger().log(to_spdlog(level), " rank {}] {}", log_rank, message);
  } else {
    logger().log(to_spdlog(level), "] {}", message);
  }
}

}  // namespace tessera
