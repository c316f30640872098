#include "tessera/cluster/rendezvous/ticking_loop.h"

#include <chrono>
#include <utility>

#include "tessera/base/logging.h"

namespace tessera::cluster::rendezvous {
namespace {

constexpr std::chrono::milliseconds kTick{50};

}  // namespace

void TickingLoop::run(std::string_view name, std::function<void()> on_tick) {
  on_tick_ = std::move(on_tick);
  auto wait = std::chrono::milliseconds(0);
  while (!context_.stopped()) {
    try {
      if (!is_armed_) arm(std::exchange(wait, kTick));
      context_.run();
    } catch (const std::exception& e) {
      try {
        log_warning("{} goes on after: {}", name, e.what());
      } catch (const std::exception&) {  // nor is there memory to say so
      }
    }
  }
}

void TickingLoop::arm(std::chrono::milliseconds wait) {
  timer_.expires_after(wait);
  timer_.async_wait([this](const asio::error_code& failure) {
    is_armed_ = false;
    if (failure) return;
    arm(kTick);  // before the tick, which may throw
    on_tick_();
  });
  is_armed_ = true;
}

}  // namespace tessera::cluster::rendezvous
