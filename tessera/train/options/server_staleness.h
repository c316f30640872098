// ServerStaleness: how far workers of a job with parameter servers may be ahead of each other.
#pragma once

#include <fmt/format.h>

#include <limits>
#include <string>

namespace tessera::train {

class ServerStaleness {
 public:
  // Servers add up the gradients of all workers, which wait for each other in every step.
  ServerStaleness() = default;
  // A worker may be at most so many steps ahead of the slowest one.
  static ServerStaleness steps(int bound) { return ServerStaleness(bound); }
  // Workers do not wait at all.
  static ServerStaleness asynchronous() { return ServerStaleness(kUnbounded); }

  bool is_synchronous() const { return bound_ == kSynchronous; }
  bool is_bounded() const { return !is_synchronous() && bound_ != kUnbounded; }
  // Of one that is bounded.
  int bound() const { return bound_; }
  // "asynchronous", "3", or "None" for one that is synchronous.
  std::string to_string() const {
    return is_bounded() ? fmt::format("{}", bound_) : is_synchronous() ? "None" : "asynchronous";
  }
  bool operator==(const ServerStaleness&) const = default;

 private:
  explicit ServerStaleness(int bound) : bound_(bound) {}
  static constexpr int kSynchronous = -1;
  static constexpr int kUnbounded = std::numeric_limits<int>::max();

  int bound_ = kSynchronous;
};

}  // namespace tessera::train
