// Certificates, keys and revocation lists, read from files. Only the authority that is named is trusted, never the
// system's store, and a list of revoked certificates that is named and cannot be used is an error.
#pragma once

#include <openssl/pkcs12.h>
#include <openssl/x509.h>

#include <cstdint>
#include <memory>
#include <string>
#include <string_view>
#include <vector>

#include "tessera/cluster/tls/peer_identity.h"
#include "tessera/comm/wire/secret_bytes.h"

namespace tessera::cluster {

template <auto kFree>
struct OpensslFree {
  template <typename T>
  void operator()(T* object) const {
    kFree(object);
  }
};
using X509Pointer = std::unique_ptr<X509, OpensslFree<X509_free>>;
using KeyPointer = std::unique_ptr<EVP_PKEY, OpensslFree<EVP_PKEY_free>>;
using CrlPointer = std::unique_ptr<X509_CRL, OpensslFree<X509_CRL_free>>;
using StorePointer = std::unique_ptr<X509_STORE, OpensslFree<X509_STORE_free>>;

// A password: its bytes are in no core dump, and are wiped when it goes.
class Password {
 public:
  Password() = default;
  explicit Password(std::string_view text) : text_(text) {}

  // Reads the first line of a file that only its owner may read. Throws InvalidArgument naming `origin`.
  static Password from_file(const std::string& path, const std::string& origin);
  // To be put into no message.
  std::string_view text() const { return text_.view(); }
  // For OpenSSL: it ends with a zero.
  const char* c_str() const { return text_.c_str(); }
  bool empty() const { return text_.empty(); }

 private:
  comm::SecretBytes text_;
};

// Where the identity of this process lies.
struct CertificateFiles {
  std::string identity_path;  // PKCS#12: its certificate and key; only its owner may read it
  Password password;
  std::string authority_path;   // PEM: the certificate of the authority
  std::string revocation_path;  // PEM: a list of revoked certificates; empty: none
  std::string ciphers;          // as parse_cipher_list takes it
  int warning_days = 90;        // so long before a certificate expires it is spoken of
};

// What the files hold.
struct Certificates {
  X509Pointer own;
  KeyPointer key;
  std::vector<X509Pointer> chain;
  StorePointer trusted;
  PeerIdentity identity;              // of `own`
  std::vector<std::string> warnings;  // of what will expire soon
};

// Reads and checks them: the key fits, the certificate is of the authority, not expired, not revoked, and names role
// and node id. `now_s`: seconds since 1970. Throws InvalidArgument naming the file and what is wrong with it.
Certificates read_certificates(const CertificateFiles& files, int64_t now_s);

// The most rounds by which a password is hashed to open a file. Common files have thousands; with this many it takes
// about a second.
inline constexpr int64_t kMaxRounds = 2'000'000;

// Certificate, key and chain of the bytes of a PKCS#12 file, whatever these are; `path`: where it lies. Throws
// InvalidArgument naming that and what is wrong.
Certificates parse_identity(const std::string& bytes, const std::string& path, const Password& password,
                            int64_t max_rounds = kMaxRounds);
// The list of revoked certificates of this authority, of the bytes of a PEM file; likewise. Refuses one that is not
// signed by it, not valid yet, or has expired.
CrlPointer parse_revocations(const std::string& bytes, const std::string& path, X509* authority, int64_t now_s);

// Who a certificate says its holder is; nullopt where it has no such name, or several.
std::optional<PeerIdentity> identity_of(X509* certificate);
// "" where the certificate is to be trusted at that time, else why it is not.
std::string why_untrusted(X509* certificate, STACK_OF(X509) * others, X509_STORE* trusted, int64_t now_s);

// What OpenSSL says has gone wrong in this thread, in its words; the list of its errors is empty afterwards.
std::string take_openssl_error();

}  // namespace tessera::cluster
