#include "tessera/cluster/tls/tls_context.h"

#include <openssl/err.h>
#include <openssl/x509v3.h>

#include <cstring>

#include "tessera/base/error.h"
#include "tessera/base/strings.h"
#include "tessera/cluster/tls/cipher_list.h"

namespace tessera::cluster {
namespace {

// Which key is meant, which everybody may know, and what the key is made for, of the secret.
struct KeyOfUse {
  std::string_view name;
  std::string_view derived_for;
};
constexpr KeyOfUse kKeys[] = {{"tessera rendezvous 1", "rendezvous"},
                              {"tessera ranks 1", "tensors between ranks"},
                              {"tessera hub 1", "what ranks say at the hub"}};

const KeyOfUse& key_of(TlsUse use) { return kKeys[static_cast<size_t>(use)]; }

// Both have SHA-256, with which the key is bound to the handshake.
constexpr const char* kSuitesOfSecret = "TLS_AES_128_GCM_SHA256:TLS_CHACHA20_POLY1305_SHA256";
constexpr unsigned char kSuiteOfKey[] = {0x13, 0x01};  // TLS_AES_128_GCM_SHA256

// Tensors are many bytes: the cipher comes first that this processor has instructions for.
std::string suites_of_ranks() {
  constexpr const char* kAes = "TLS_AES_128_GCM_SHA256";
  constexpr const char* kChaCha = "TLS_CHACHA20_POLY1305_SHA256";
  const bool has_aes = __builtin_cpu_supports("aes") != 0 && __builtin_cpu_supports("pclmul") != 0;
  return has_aes ? fmt::format("{}:{}", kAes, kChaCha) : fmt::format("{}:{}", kChaCha, kAes);
}

// What the other side would refuse at each handshake is refused here, before the first.
void require_purpose(const Certificates& read, const std::string& path) {
  const bool is_server = read.identity.role == CertificateRole::kScheduler;
  if (X509_check_purpose(read.own.get(), is_server ? X509_PURPOSE_SSL_SERVER : X509_PURPOSE_SSL_CLIENT, 0) == 1) return;
  ERR_clear_error();
  throw InvalidArgument(
      "the certificate in \"{}\" is of role {} and not made for it: its key usage needs digitalSignature and its "
      "extended key usage {}, where it has them; make it anew",
      path, name_of(read.identity.role), is_server ? "serverAuth" : "clientAuth");
}

}  // namespace

TlsContext::TlsContext(TlsSide side, TlsUse use)
    : side_(side),
      use_(use),
      context_(SSL_CTX_new(side == TlsSide::kServer ? TLS_server_method() : TLS_client_method())) {
  SSL_CTX* const context = context_.get();
  check(context != nullptr, "OpenSSL makes a context");
  SSL_CTX_set_min_proto_version(context, TLS1_3_VERSION);
  SSL_CTX_set_max_proto_version(context, TLS1_3_VERSION);
  // 112 bits: no RSA below 2048, no SHA-1 in signatures.
  SSL_CTX_set_security_level(context, 2);
  SSL_CTX_set_session_cache_mode(context, SSL_SESS_CACHE_OFF);
  SSL_CTX_set_num_tickets(context, 0);
  SSL_CTX_set_max_early_data(context, 0);
  SSL_CTX_set_options(context, SSL_OP_NO_COMPRESSION | SSL_OP_NO_RENEGOTIATION | SSL_OP_NO_TICKET);
  SSL_CTX_set_mode(context,
                   SSL_MODE_RELEASE_BUFFERS | SSL_MODE_ENABLE_PARTIAL_WRITE | SSL_MODE_ACCEPT_MOVING_WRITE_BUFFER);
  // Certificates come from a peer that nobody knows yet.
  SSL_CTX_set_max_cert_list(context, 16 << 10);
  SSL_CTX_set_verify(context, SSL_VERIFY_PEER | SSL_VERIFY_FAIL_IF_NO_PEER_CERT, nullptr);
  SSL_CTX_set_app_data(context, this);
  // A server that asks for certificates wants to know what a known key is for; a client's must be that of its key:
  // none.
  constexpr unsigned char kUse[] = "tessera";
  if (side == TlsSide::kServer) SSL_CTX_set_session_id_context(context, kUse, sizeof(kUse) - 1);
  // A worker's certificate is made for clients; between ranks one of two workers answers.
  if (use == TlsUse::kRanks) SSL_CTX_set_purpose(context, X509_PURPOSE_ANY);
}

std::shared_ptr<const TlsContext> TlsContext::with_secret(const comm::Secret& secret, TlsSide side, TlsUse use) {
  if (!secret) throw InvalidArgument("a job whose ranks meet at a scheduler needs a secret or certificates");
  const std::shared_ptr<TlsContext> made(new TlsContext(side, use));
  made->key_ = secret.derive(key_of(use).derived_for);
  SSL_CTX* const context = made->context_.get();
  const std::string suites = use == TlsUse::kRanks ? suites_of_ranks() : kSuitesOfSecret;
  check(SSL_CTX_set_ciphersuites(context, suites.c_str()) == 1, "OpenSSL knows the suites of TLS 1.3");
  if (side == TlsSide::kServer) {
    SSL_CTX_set_psk_find_session_callback(context, &TlsContext::find_secret);
  } else {
    SSL_CTX_set_psk_use_session_callback(context, &TlsContext::use_secret);
  }
  return made;
}

std::shared_ptr<const TlsContext> TlsContext::with_certificates(const CertificateFiles& files, TlsSide side,
                                                                int64_t now_s, TlsUse use) {
  const std::shared_ptr<TlsContext> made(new TlsContext(side, use));
  made->has_certificates_ = true;
  made->certificates_ = read_certificates(files, now_s);
  const Certificates& read = made->certificates_;
  const bool is_scheduler = read.identity.role == CertificateRole::kScheduler;
  if (use == TlsUse::kRanks && read.identity.role != CertificateRole::kWorker) {
    throw InvalidArgument("the certificate in \"{}\" is of role {}, with which nobody is a rank: a rank is a worker",
                          files.identity_path, name_of(read.identity.role));
  }
  if (use == TlsUse::kRendezvous && is_scheduler != (side == TlsSide::kServer)) {
    throw InvalidArgument("the certificate in \"{}\" is of role {}, {}", files.identity_path,
                          name_of(read.identity.role),
                          is_scheduler ? "with which nobody joins a job: a worker has one of its own"
                                       : "with which nobody is a scheduler");
  }
  require_purpose(read, files.identity_path);
  const CipherList ciphers = parse_cipher_list(files.ciphers);
  made->warnings_ = read.warnings;
  made->warnings_.insert(made->warnings_.end(), ciphers.notes.begin(), ciphers.notes.end());
  SSL_CTX* const context = made->context_.get();
  const bool has_choice = use == TlsUse::kRanks && trim(files.ciphers).empty();
  const std::string suites = has_choice ? suites_of_ranks() : ciphers.suites;
  const bool is_taken = SSL_CTX_set_ciphersuites(context, suites.c_str()) == 1 &&
                        SSL_CTX_use_certificate(context, read.own.get()) == 1 &&
                        SSL_CTX_use_PrivateKey(context, read.key.get()) == 1;
  if (!is_taken) {
    throw InvalidArgument("the certificate in \"{}\" cannot be used: {}", files.identity_path, take_openssl_error());
  }
  for (const X509Pointer& one : read.chain) SSL_CTX_add1_chain_cert(context, one.get());
  SSL_CTX_set1_cert_store(context, read.trusted.get());
  return made;
}

SSL* TlsContext::make_session() const {
  SSL* session = SSL_new(context_.get());
  if (session == nullptr) throw IoError("no memory for a connection: {}", take_openssl_error());
  if (side_ == TlsSide::kServer) {
    SSL_set_accept_state(session);
  } else {
    SSL_set_connect_state(session);
  }
  return session;
}

std::string TlsContext::why_untrusted(SSL* session, int64_t now_s) const {
  if (!has_certificates_) return "";
  X509* certificate = SSL_get0_peer_certificate(session);
  if (certificate == nullptr) return "it has no certificate";
  return cluster::why_untrusted(certificate, SSL_get_peer_cert_chain(session), certificates_.trusted.get(), now_s);
}

// A session that both sides can make: of TLS 1.3, with the key.
SSL_SESSION* TlsContext::session_of_secret(SSL* session) const {
  SSL_SESSION* made = SSL_SESSION_new();
  const SSL_CIPHER* suite = SSL_CIPHER_find(session, kSuiteOfKey);
  const bool is_made = made != nullptr && suite != nullptr &&
                       SSL_SESSION_set1_master_key(made, reinterpret_cast<const unsigned char*>(key_.bytes().data()),
                                                   key_.bytes().size()) == 1 &&
                       SSL_SESSION_set_cipher(made, suite) == 1 &&
                       SSL_SESSION_set_protocol_version(made, TLS1_3_VERSION) == 1;
  if (is_made) return made;
  SSL_SESSION_free(made);
  return nullptr;
}

int TlsContext::find_secret(SSL* session, const unsigned char* identity, size_t length, SSL_SESSION** found) {
  const auto* own = static_cast<const TlsContext*>(SSL_CTX_get_app_data(SSL_get_SSL_CTX(session)));
  const std::string_view name(reinterpret_cast<const char*>(identity), length);
  *found = name == key_of(own->use_).name ? own->session_of_secret(session) : nullptr;
  return 1;
}

int TlsContext::use_secret(SSL* session, const EVP_MD* digest, const unsigned char** identity, size_t* length,
                           SSL_SESSION** used) {
  const auto* own = static_cast<const TlsContext*>(SSL_CTX_get_app_data(SSL_get_SSL_CTX(session)));
  *used = nullptr;
  // Asked again with the digest of the suite that the other side has chosen.
  if (digest != nullptr && EVP_MD_get_size(digest) != 32) return 1;
  *used = own->session_of_secret(session);
  if (*used == nullptr) return 0;
  const std::string_view name = key_of(own->use_).name;
  *identity = reinterpret_cast<const unsigned char*>(name.data());
  *length = name.size();
  return 1;
}

}  // namespace tessera::cluster
