#include "tessera/cluster/rendezvous/connector.h"

#include <asio/connect.hpp>
#include <chrono>
#include <utility>

#include "tessera/base/error.h"

namespace tessera::cluster::rendezvous {

asio::ip::tcp::endpoint resolve_one(asio::io_context& loop, const HostPort& address) {
  asio::error_code error;
  const auto literal = asio::ip::make_address(address.host, error);
  if (!error) return {literal, address.port};
  asio::ip::tcp::resolver resolver(loop);
  const auto found = resolver.resolve(address.host, std::to_string(address.port), error);
  if (error || found.empty()) throw IoError("cannot find host \"{}\": {}", address.host, error.message());
  return found.begin()->endpoint();
}

struct Connector::Attempt {
  explicit Attempt(asio::io_context& loop) : resolver(loop), socket(loop), timer(loop) {}
  void cancel() {
    asio::error_code ignored;
    resolver.cancel();
    socket.close(ignored);
    timer.cancel();
  }
  asio::ip::tcp::resolver resolver;
  asio::ip::tcp::socket socket;
  asio::steady_timer timer;
  Done done;
};

Connector::Connector(asio::io_context& loop, HostPort address, std::shared_ptr<const TlsContext> tls)
    : address_(std::move(address)), tls_(std::move(tls)), loop_(loop) {}

void Connector::connect(int64_t timeout_ms, Done done) {
  cancel();
  const auto attempt = attempt_ = std::make_shared<Attempt>(loop_);
  attempt->done = std::move(done);
  attempt->timer.expires_after(std::chrono::milliseconds(timeout_ms));
  attempt->timer.async_wait([this, attempt](const asio::error_code& failure) {
    if (!failure) finish(attempt, asio::error::timed_out, "does not answer");
  });
  const auto reach = [this, attempt](const asio::ip::tcp::resolver::results_type& found) {
    asio::async_connect(attempt->socket, found, [this, attempt](const asio::error_code& failure, const auto&) {
      finish(attempt, failure, "does not answer");
    });
  };
  // A name is asked of servers, in a thread that nobody waits for; an address is not.
  asio::error_code is_name;
  const auto literal = asio::ip::make_address(address_.host, is_name);
  if (!is_name) {
    const asio::ip::tcp::endpoint endpoint(literal, address_.port);
    return reach(asio::ip::tcp::resolver::results_type::create(endpoint, address_.host, std::to_string(address_.port)));
  }
  attempt->resolver.async_resolve(
      address_.host, std::to_string(address_.port),
      [this, attempt, reach](const asio::error_code& failure, const asio::ip::tcp::resolver::results_type& found) {
        if (failure) return finish(attempt, failure, "has a host that is not found");
        if (attempt == attempt_) reach(found);
      });
}

void Connector::finish(const std::shared_ptr<Attempt>& attempt, const asio::error_code& failure,
                       const std::string& what) {
  if (attempt != attempt_) return;  // it was dropped
  attempt_ = nullptr;
  attempt->timer.cancel();
  const Done done = std::move(attempt->done);
  if (failure) {
    attempt->cancel();
    return done(nullptr, fmt::format("{} {}: {}", address_.text(), what, failure.message()));
  }
  asio::error_code has_hung_up;
  const auto reached = attempt->socket.remote_endpoint(has_hung_up);
  const std::string address = has_hung_up ? address_.host : reached.address().to_string();
  done(std::make_shared<Connection>(std::move(attempt->socket), address, tls_, Sender::kScheduler), "");
}

void Connector::cancel() {
  if (const auto attempt = std::exchange(attempt_, nullptr)) attempt->cancel();
}

}  // namespace tessera::cluster::rendezvous
