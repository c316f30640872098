// The three ways to fail. InvalidArgument: the user's graph, config, shape or file is wrong. IoError: a disk, peer or
// network failed; a restart may help. check(): our own bug, reported with file and line. The first two are thrown,
// carried across threads and ranks, and swallowed nowhere. Messages: subject first, lower case, what must hold, what
// was found, the way out.
#pragma once

#include <fmt/format.h>

#include <source_location>
#include <stdexcept>
#include <string>

namespace tessera {

class Error : public std::runtime_error {
 public:
  using std::runtime_error::runtime_error;
};

class InvalidArgument : public Error {
 public:
  explicit InvalidArgument(const std::string& message) : Error(message) {}
  template <typename First, typename... Rest>
  InvalidArgument(fmt::format_string<First, Rest...> format, First&& first, Rest&&... rest)
      : Error(fmt::format(format, std::forward<First>(first), std::forward<Rest>(rest)...)) {}
};

class IoError : public Error {
 public:
  explicit IoError(const std::string& message) : Error(message) {}
  template <typename First, typename... Rest>
  IoError(fmt::format_string<First, Rest...> format, First&& first, Rest&&... rest)
      : Error(fmt::format(format, std::forward<First>(first), std::forward<Rest>(rest)...)) {}
};

// The system gives this process no more memory or descriptors. That says nothing of the file that they were for.
class NoRoom : public IoError {
 public:
  using IoError::IoError;
};

// Thrown by check(): a bug of Tessera, not of its user.
class InternalError : public Error {
 public:
  using Error::Error;
};

[[noreturn]] void fail_check(const std::string& message, std::source_location where);

// Throws InternalError with `message` and the caller's place unless `holds`.
inline void check(bool holds, const char* message = "invariant violated",
                  std::source_location where = std::source_location::current()) {
  if (!holds) fail_check(message, where);
}

// Throws InternalError naming both values unless they are equal.
template <typename A, typename B>
void check_equal(const A& a, const B& b, const char* message,
                 std::source_location where = std::source_location::current()) {
  if (!(a == b)) fail_check(fmt::format("{}: {} != {}", message, a, b), where);
}

}  // namespace tessera
