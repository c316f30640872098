#include "tessera/cluster/tls/tls_session.h"

#include <openssl/bio.h>
#include <openssl/err.h>

#include "tessera/base/error.h"

namespace tessera::cluster {
namespace {

// Of one that has not shown who it is: a first message of 500 bytes with the secret, certificates of a few KiB.
constexpr size_t kMaxHandshakeOfSecret = 4096;
constexpr size_t kMaxHandshakeOfCertificates = size_t{48} << 10;

}  // namespace

void TlsSession::start() {
  ssl_.reset(context_->make_session());
  in_ = BIO_new(BIO_s_mem());
  out_ = BIO_new(BIO_s_mem());
  if (in_ == nullptr || out_ == nullptr) {
    BIO_free(in_);
    BIO_free(out_);
    throw IoError("no memory for a connection");
  }
  SSL_set_bio(ssl_.get(), in_, out_);
}

void TlsSession::receive(std::string_view arrived, std::string& said) {
  if (state_ != State::kHandshake && state_ != State::kOpen) return;
  if (ssl_ == nullptr) {
    if (arrived.empty() && context_->side() == TlsSide::kServer) return;
    start();
  }
  ERR_clear_error();
  if (!arrived.empty()) BIO_write(in_, arrived.data(), static_cast<int>(arrived.size()));
  if (state_ == State::kHandshake) {
    handshake_bytes_ += arrived.size();
    const int result = SSL_do_handshake(ssl_.get());
    if (result == 1) {
      finish_handshake();
    } else if (SSL_get_error(ssl_.get(), result) != SSL_ERROR_WANT_READ) {
      return fail(result);
    } else if (handshake_bytes_ >
               (context_->has_certificates() ? kMaxHandshakeOfCertificates : kMaxHandshakeOfSecret)) {
      state_ = State::kFailed;
      error_ = "its handshake is too long";
    }
  }
  char buffer[1 << 14];
  while (state_ == State::kOpen) {
    size_t count = 0;
    const int result = SSL_read_ex(ssl_.get(), buffer, sizeof(buffer), &count);
    if (result == 1) {
      said.append(buffer, count);
      continue;
    }
    const int error = SSL_get_error(ssl_.get(), result);
    if (error == SSL_ERROR_WANT_READ) return;
    if (error == SSL_ERROR_ZERO_RETURN) {
      state_ = State::kEnded;
      return;
    }
    fail(result);
  }
}

void TlsSession::fail(int result) {
  const int kind = SSL_get_error(ssl_.get(), result);
  const bool was_handshake = state_ == State::kHandshake;
  state_ = State::kFailed;
  const int64_t verified = SSL_get_verify_result(ssl_.get());
  const auto code = ERR_peek_error();
  const int reason = ERR_GET_REASON(code);
  if (reason == SSL_R_WRONG_VERSION_NUMBER || reason == SSL_R_HTTP_REQUEST || reason == SSL_R_HTTPS_PROXY_REQUEST ||
      reason == SSL_R_PACKET_LENGTH_TOO_LONG || reason == SSL_R_UNEXPECTED_MESSAGE) {
    error_ = "it speaks no TLS: a plain connection, or another program";
  } else if (reason == SSL_R_SSLV3_ALERT_CERTIFICATE_REVOKED) {
    // Before the handshake anybody at that address can say so.
    is_own_certificate_revoked_ = !was_handshake;
    error_ = "it says that the certificate of this process is revoked";
  } else if (context_->has_certificates() && verified != X509_V_OK) {
    error_ = std::string("its certificate is not to be trusted: ") + X509_verify_cert_error_string(verified);
  } else if (reason == SSL_R_PEER_DID_NOT_RETURN_A_CERTIFICATE) {
    error_ = "it has no certificate";
  } else if (!context_->has_certificates() && context_->side() == TlsSide::kServer) {
    error_ = "it does not know the job's secret";
  } else if (!context_->has_certificates()) {
    error_ = context_->use() == TlsUse::kRendezvous ? "it does not know the job's secret, or is no scheduler"
                                                    : "it does not know the job's secret";
    is_secret_unknown_ = was_handshake;
  } else {
    error_ = kind == SSL_ERROR_SYSCALL ? "its connection has ended" : "";
  }
  const std::string words = take_openssl_error();
  if (!words.empty()) error_ += (error_.empty() ? "" : " (") + words + (error_.empty() ? "" : ")");
}

// Why the other side, whose handshake is complete, is not who it should be; "" where it is.
std::string TlsSession::why_not_believed() const {
  if (!context_->has_certificates())
    return SSL_session_reused(ssl_.get()) == 1 ? "" : "it has not shown the job's secret";
  X509* certificate = SSL_get0_peer_certificate(ssl_.get());
  if (certificate == nullptr) return "it has no certificate";
  if (SSL_get_verify_result(ssl_.get()) != X509_V_OK) return "its certificate is not to be trusted";
  const auto identity = identity_of(certificate);
  if (!identity) return "its certificate does not say its role and node id (a URI tessera:ROLE:NODE_ID)";
  if (context_->use() == TlsUse::kRanks) {
    return identity->role == CertificateRole::kWorker ? "" : "its certificate is not a worker's";
  }
  const bool is_scheduler = identity->role == CertificateRole::kScheduler;
  if (is_scheduler == (context_->side() == TlsSide::kServer)) {
    return is_scheduler ? "its certificate is a scheduler's" : "its certificate is not a scheduler's";
  }
  return "";
}

void TlsSession::finish_handshake() {
  error_ = why_not_believed();
  state_ = error_.empty() ? State::kOpen : State::kFailed;
  is_secret_unknown_ = !error_.empty() && !context_->has_certificates();
  if (state_ == State::kOpen && context_->has_certificates()) {
    identity_ = *identity_of(SSL_get0_peer_certificate(ssl_.get()));
  }
}

void TlsSession::send(std::string_view plain) {
  check(state_ == State::kOpen, "only an open session sends");
  ERR_clear_error();
  while (!plain.empty()) {
    size_t count = 0;
    const int result = SSL_write_ex(ssl_.get(), plain.data(), plain.size(), &count);
    if (result != 1) return fail(result);
    plain.remove_prefix(count);
  }
}

void TlsSession::end() {
  if (ssl_ == nullptr || state_ != State::kOpen) return;
  ERR_clear_error();
  SSL_shutdown(ssl_.get());
}

std::string TlsSession::take_output() {
  if (out_ == nullptr) return "";
  std::string bytes(BIO_ctrl_pending(out_), '\0');
  if (!bytes.empty()) BIO_read(out_, bytes.data(), static_cast<int>(bytes.size()));
  return bytes;
}

std::string TlsSession::binding() const {
  check(state_ == State::kOpen, "only an open session has something that its ends alone have");
  constexpr std::string_view kLabel = "EXPORTER-Channel-Binding";
  std::string bytes(32, '\0');
  const int result = SSL_export_keying_material(ssl_.get(), reinterpret_cast<unsigned char*>(bytes.data()),
                                                bytes.size(), kLabel.data(), kLabel.size(), nullptr, 0, 0);
  check(result == 1, "TLS 1.3 exports keys");
  return bytes;
}

SslPointer TlsSession::release() {
  check(state_ == State::kOpen, "only an open session is handed over");
  check(BIO_ctrl_pending(in_) == 0 && BIO_ctrl_pending(out_) == 0 && SSL_has_pending(ssl_.get()) == 0,
        "a session is handed over between its words");
  state_ = State::kEnded;
  in_ = nullptr;
  out_ = nullptr;
  return std::move(ssl_);
}

std::string TlsSession::why_untrusted(const TlsContext& context, int64_t now_s) const {
  return ssl_ == nullptr ? "" : context.why_untrusted(ssl_.get(), now_s);
}

}  // namespace tessera::cluster
