// TickingLoop: an event loop that calls a function every 50 ms. What that function or another handler throws, for want
// of memory, is logged, and the loop goes on. All but stop() is for the thread that runs it.
#pragma once

#include <asio/io_context.hpp>
#include <asio/steady_timer.hpp>
#include <functional>
#include <string_view>

namespace tessera::cluster::rendezvous {

class TickingLoop {
 public:
  asio::io_context& context() { return context_; }
  // Calls `on_tick` at once and then every 50 ms, until stop(). `name` is the loop's in the log.
  void run(std::string_view name, std::function<void()> on_tick);
  void stop() { context_.stop(); }

 private:
  void arm(std::chrono::milliseconds wait);

  asio::io_context context_{1};
  asio::steady_timer timer_{context_};
  bool is_armed_ = false;
  std::function<void()> on_tick_;
};

}  // namespace tessera::cluster::rendezvous
