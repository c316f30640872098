// TlsSession: TLS of one connection as a function of bytes. What arrives is put in, what is to be sent and what was
// said is taken out; sockets and clocks are its user's. It throws nothing on input, and keeps nothing for a peer that
// has not sent a byte.
#pragma once

#include <cstddef>
#include <memory>
#include <optional>
#include <string>
#include <string_view>

#include "tessera/cluster/tls/tls_context.h"

namespace tessera::cluster {

using SslPointer = std::unique_ptr<SSL, OpensslFree<SSL_free>>;

class TlsSession {
 public:
  explicit TlsSession(std::shared_ptr<const TlsContext> context) : context_(std::move(context)) {}

  enum class State : uint8_t {
    kHandshake,  // nobody is known yet
    kOpen,       // the other side has shown who it is
    kEnded,      // it has said that it sends no more
    kFailed,     // error() says why
  };

  // Goes on with the handshake; a client's first call makes its first bytes. `arrived` may be empty. What the peer has
  // said is appended to `said`.
  void receive(std::string_view arrived, std::string& said);
  // Encrypts; only when kOpen.
  void send(std::string_view plain);
  // Says that nothing more will be sent.
  void end();
  // Takes the bytes that are to go to the peer.
  std::string take_output();

  State state() const { return state_; }
  TlsSide context_side() const { return context_->side(); }
  // What has failed, in words that follow "it" or "its"; empty before.
  const std::string& error() const { return error_; }
  // Whether what has failed is that the two sides have not shown each other one secret.
  bool is_secret_unknown() const { return is_secret_unknown_; }
  // Whether the other side, which has shown who it is, has said that this one's certificate is on its list of revoked
  // ones.
  bool is_own_certificate_revoked() const { return is_own_certificate_revoked_; }
  // Who the other side is, once kOpen.
  const PeerIdentity& identity() const { return identity_; }
  // 32 bytes that both ends of this connection have and nobody else does, once kOpen: what is proven of them is proven
  // here (RFC 9266).
  std::string binding() const;
  // Hands over an open connection to who moves its bytes without copies; this object is at its end. All bytes that have
  // come must have been put in, and none of them said what has not been read.
  SslPointer release();
  // "" where the other side is still to be trusted by `context`, which has come in place of this session's.
  std::string why_untrusted(const TlsContext& context, int64_t now_s) const;

 private:
  void start();
  void fail(int result);
  void finish_handshake();
  std::string why_not_believed() const;

  std::shared_ptr<const TlsContext> context_;
  SslPointer ssl_;
  BIO* in_ = nullptr;   // the session's
  BIO* out_ = nullptr;  // the session's
  State state_ = State::kHandshake;
  std::string error_;
  bool is_secret_unknown_ = false;
  bool is_own_certificate_revoked_ = false;
  PeerIdentity identity_;
  size_t handshake_bytes_ = 0;
};

}  // namespace tessera::cluster
