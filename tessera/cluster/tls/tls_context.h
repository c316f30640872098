// TlsContext: by what one side of TLS shows who it is, and whom it believes. TLS 1.3 only, without session tickets and
// early data. Where there are no certificates, both sides show the job's secret (an external pre-shared key of RFC 8446
// with an exchange of fresh keys): who does not know it gets an alert and learns nothing.
// It does not change; many sessions share one.
#pragma once

#include <openssl/ssl.h>

#include <cstdint>
#include <memory>
#include <string>
#include <vector>

#include "tessera/cluster/tls/certificates.h"
#include "tessera/comm/wire/secret.h"

namespace tessera::cluster {

enum class TlsSide : uint8_t { kServer, kClient };

// Between whom the connections are: members and the scheduler of their job, two ranks, which are workers both, or a
// rank and the hub, which has no certificates. What proves somebody in one place proves nothing in another.
enum class TlsUse : uint8_t { kRendezvous, kRanks, kHub };

class TlsContext {
 public:
  // Throws InvalidArgument for a secret that is none.
  static std::shared_ptr<const TlsContext> with_secret(const comm::Secret& secret, TlsSide side,
                                                       TlsUse use = TlsUse::kRendezvous);
  // Throws InvalidArgument as read_certificates() does, and for a certificate of another role than the side's.
  static std::shared_ptr<const TlsContext> with_certificates(const CertificateFiles& files, TlsSide side, int64_t now_s,
                                                             TlsUse use = TlsUse::kRendezvous);
  TlsContext(const TlsContext&) = delete;
  TlsContext& operator=(const TlsContext&) = delete;

  TlsSide side() const { return side_; }
  TlsUse use() const { return use_; }
  bool has_certificates() const { return has_certificates_; }
  // What is to be logged of the files: certificates that expire soon, ciphers that were dropped.
  const std::vector<std::string>& warnings() const { return warnings_; }
  // Makes a new session, which the caller frees; never null. Throws IoError without memory.
  SSL* make_session() const;
  // "" where the session's other side is still to be trusted by this context, else why it is not.
  std::string why_untrusted(SSL* session, int64_t now_s) const;

 private:
  TlsContext(TlsSide side, TlsUse use);
  static int find_secret(SSL* session, const unsigned char* identity, size_t length, SSL_SESSION** found);
  static int use_secret(SSL* session, const EVP_MD* digest, const unsigned char** identity, size_t* length,
                        SSL_SESSION** used);
  SSL_SESSION* session_of_secret(SSL* session) const;

  TlsSide side_;
  TlsUse use_;
  bool has_certificates_ = false;
  std::unique_ptr<SSL_CTX, OpensslFree<SSL_CTX_free>> context_;
  comm::Secret key_;  // made of the job's
  Certificates certificates_;
  std::vector<std::string> warnings_;
};

}  // namespace tessera::cluster
