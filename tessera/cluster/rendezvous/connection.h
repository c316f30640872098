// Connection: frames over TLS over a socket, within an event loop. It is used from the loop's thread only, and lives
// while somebody holds it or an operation of it is under way. Whatever arrives ends at most the connection.
#pragma once

#include <asio/ip/tcp.hpp>
#include <cstdint>
#include <deque>
#include <functional>
#include <memory>
#include <string>

#include "tessera/cluster/rendezvous/messages/messages.h"
#include "tessera/cluster/tls/tls_session.h"

namespace tessera::cluster::rendezvous {

// What its user hears of a connection. Each may close it.
struct ConnectionEvents {
  std::function<void()> open;  // the other side has shown who it is
  std::function<void(uint64_t generation, const Message& message)> message;
  std::function<void(const std::string& reason)> end;  // once; nothing is heard afterwards
};

class Connection : public std::enable_shared_from_this<Connection> {
 public:
  // `from`: who the other side is. `address`: its own, without the port, as accept or connect has told it: the socket
  // of one that has hung up meanwhile tells none.
  Connection(asio::ip::tcp::socket socket, std::string address, std::shared_ptr<const TlsContext> tls, Sender from);

  // Begins; to be called once. The events are dropped when it has ended.
  void start(ConnectionEvents events);
  // Sends a message. A connection that is not open drops it; one whose other side leaves too much unread ends.
  void send(const Message& message, uint64_t generation);
  // Says nothing more than what was said, hears nothing more, and ends it when the other side has, or after 2 s or so
  // (the user's tick() calls).
  void end_when_sent();
  // Ends it now.
  void close(const std::string& reason);
  // Ends it where a frame has been half there, or the last words unsent, for too long.
  void tick(int64_t now_ms);

  bool is_open() const { return session_.state() == TlsSession::State::kOpen && !has_ended_; }
  bool has_ended() const { return has_ended_; }
  const TlsSession& session() const { return session_; }
  // The other side's address, without the port.
  const std::string& address() const { return address_; }
  // The address of this side, without the port; "" when the connection has ended.
  std::string own_address() const;

 private:
  void read();
  void read_some();
  void take(std::string_view arrived);
  void take_frames();
  void flush();
  void write();
  void end_sending();

  asio::ip::tcp::socket socket_;
  std::string address_;
  TlsSession session_;
  FrameDecoder decoder_;
  ConnectionEvents events_;
  std::deque<std::string> unsent_;
  size_t unsent_bytes_ = 0;
  bool is_writing_ = false;
  bool was_open_ = false;
  bool ends_when_sent_ = false;
  bool has_ended_ = false;
  int64_t ends_at_ms_ = 0;
  int64_t half_since_ms_ = 0;  // 0: no frame is half there
};

}  // namespace tessera::cluster::rendezvous
