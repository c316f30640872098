// TestPeer: somebody at a scheduler's port who says what it likes: bytes, bytes within TLS, frames. Blocking; for
// tests.
#pragma once

#include <arpa/inet.h>
#include <gtest/gtest.h>
#include <netinet/in.h>
#include <poll.h>
#include <sys/socket.h>
#include <unistd.h>

#include <ctime>
#include <memory>
#include <optional>
#include <string>
#include <utility>

#include "tessera/cluster/hub/hub_socket.h"
#include "tessera/cluster/rendezvous/messages/messages.h"
#include "tessera/cluster/tls/tls_options.h"
#include "tessera/cluster/tls/tls_session.h"

namespace tessera::cluster::rendezvous {

class TestPeer {
 public:
  // Connects to the port of this host.
  explicit TestPeer(uint16_t port) : socket_(::socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC, 0)) {
    sockaddr_in address{};
    address.sin_family = AF_INET;
    address.sin_port = htons(port);
    address.sin_addr.s_addr = htonl(INADDR_LOOPBACK);
    is_connected_ = connect(socket_.fd(), reinterpret_cast<sockaddr*>(&address), sizeof(address)) == 0;
  }
  bool is_connected() const { return is_connected_; }

  // Says bytes without TLS.
  void say_plain(std::string_view bytes) const {
    [[maybe_unused]] const ssize_t sent = ::send(socket_.fd(), bytes.data(), bytes.size(), MSG_NOSIGNAL);
  }
  // Its end will be a reset, in place of the usual last words.
  void reset_when_closed() const {
    const linger at_once{.l_onoff = 1, .l_linger = 0};
    setsockopt(socket_.fd(), SOL_SOCKET, SO_LINGER, &at_once, sizeof(at_once));
  }
  // All bytes until the other side hangs up, or 10 s. `hung_up` tells which.
  std::string hear_plain(bool* hung_up = nullptr) const {
    std::string heard;
    char buffer[4096];
    ssize_t count = 0;
    while (wait(10000) && (count = recv(socket_.fd(), buffer, sizeof(buffer), 0)) > 0) {
      heard.append(buffer, static_cast<size_t>(count));
    }
    if (hung_up != nullptr) *hung_up = count <= 0;
    return heard;
  }

  // Shows who it is. False where the other side does not believe it, or is not believed.
  bool shake_hands(const TlsOptions& tls) {
    begin_handshake(tls);
    return finish_handshake();
  }
  // The same in two parts: reads the files, and says the first word.
  void begin_handshake(const TlsOptions& tls) {
    session_ = std::make_unique<TlsSession>(make_tls_context(tls, TlsSide::kClient, std::time(nullptr)));
  }
  bool finish_handshake() {
    session_->receive({}, said_);
    flush();
    while (session_->state() == TlsSession::State::kHandshake && receive(10000)) {
    }
    return session_->state() == TlsSession::State::kOpen;
  }
  const TlsSession& session() const { return *session_; }
  void say_bytes(std::string_view bytes) {
    if (session_->state() == TlsSession::State::kOpen) session_->send(bytes);
    flush();
  }
  void say(const Message& message, uint64_t generation = 0) { say_bytes(print_message(message, generation)); }
  // Registers as a worker and returns whether it is welcome.
  bool enroll(const std::string& node_id, uint64_t incarnation = 1) {
    say(Register{.incarnation = incarnation, .host = "here", .node_ids = {node_id}});
    return hear_until<Welcome>().has_value();
  }
  // The next message of this kind; nullopt when the other side has hung up, or after 10 s.
  template <typename Body>
  std::optional<Body> hear_until() {
    while (true) {
      decoder_.add(std::exchange(said_, {}));
      while (auto frame = decoder_.next()) {
        FrameError error;
        const auto message = parse_message(*frame, error);
        EXPECT_TRUE(message) << error.what;
        if (!message) return std::nullopt;
        if (const auto* body = std::get_if<Body>(&*message)) return *body;
      }
      if (!receive(10000)) return std::nullopt;
    }
  }
  // Whether the other side hangs up within 10 s.
  bool is_hung_up() {
    while (receive(10000)) {
    }
    return has_ended_ || session_->state() != TlsSession::State::kOpen;
  }

 private:
  bool wait(int limit_ms) const {
    pollfd one{socket_.fd(), POLLIN, 0};
    return poll(&one, 1, limit_ms) > 0;
  }
  void flush() {
    const std::string bytes = session_->take_output();
    for (size_t sent = 0; sent < bytes.size();) {
      const ssize_t count = ::send(socket_.fd(), bytes.data() + sent, bytes.size() - sent, MSG_NOSIGNAL);
      if (count <= 0) return;
      sent += static_cast<size_t>(count);
    }
  }
  bool receive(int limit_ms) {
    char buffer[1 << 14];
    if (has_ended_ || !wait(limit_ms)) return false;
    const ssize_t count = recv(socket_.fd(), buffer, sizeof(buffer), 0);
    if (count <= 0) {
      has_ended_ = true;
      return false;
    }
    session_->receive({buffer, static_cast<size_t>(count)}, said_);
    flush();
    const auto state = session_->state();
    return state == TlsSession::State::kOpen || state == TlsSession::State::kHandshake || !said_.empty();
  }

  Socket socket_;
  bool is_connected_ = false;
  bool has_ended_ = false;
  std::unique_ptr<TlsSession> session_;
  std::string said_;
  FrameDecoder decoder_{Sender::kScheduler};
};

}  // namespace tessera::cluster::rendezvous
