// Connector: makes connections to a scheduler, one at a time, within an event loop. The host's name is looked up anew
// each time: a scheduler may have come back elsewhere.
#pragma once

#include <asio/io_context.hpp>
#include <asio/ip/tcp.hpp>
#include <asio/steady_timer.hpp>
#include <functional>
#include <memory>
#include <string>
#include <utility>

#include "tessera/cluster/rendezvous/connection.h"
#include "tessera/cluster/rendezvous/host_port.h"

namespace tessera::cluster::rendezvous {

// Looks the host up and returns its first address. Throws IoError naming it where there is none.
asio::ip::tcp::endpoint resolve_one(asio::io_context& loop, const HostPort& address);

class Connector {
 public:
  Connector(asio::io_context& loop, HostPort address, std::shared_ptr<const TlsContext> tls);

  // Gives `done` a connection that is not started, or none and why.
  using Done = std::function<void(std::shared_ptr<Connection> made, const std::string& reason)>;
  void connect(int64_t timeout_ms, Done done);
  // Connections from now on are made with it.
  void use(std::shared_ptr<const TlsContext> tls) { tls_ = std::move(tls); }
  // Drops what is under way.
  void cancel();

 private:
  struct Attempt;
  void finish(const std::shared_ptr<Attempt>& attempt, const asio::error_code& failure, const std::string& what);

  HostPort address_;
  std::shared_ptr<const TlsContext> tls_;
  asio::io_context& loop_;
  std::shared_ptr<Attempt> attempt_;
};

}  // namespace tessera::cluster::rendezvous
