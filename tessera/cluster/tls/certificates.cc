#include "tessera/cluster/tls/certificates.h"

#include <fcntl.h>
#include <openssl/bio.h>
#include <openssl/err.h>
#include <openssl/pem.h>
#include <openssl/x509v3.h>
#include <sys/stat.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <cstdint>
#include <cstring>
#include <span>

#include "tessera/base/error.h"

namespace tessera::cluster {
namespace {

constexpr size_t kMaxFileBytes = size_t{1} << 20;
constexpr int64_t kSecondsOfDay = 86400;

using BioPointer = std::unique_ptr<BIO, OpensslFree<BIO_free_all>>;
using Pkcs12Pointer = std::unique_ptr<PKCS12, OpensslFree<PKCS12_free>>;
using NamesPointer = std::unique_ptr<GENERAL_NAMES, OpensslFree<GENERAL_NAMES_free>>;
using StoreContextPointer = std::unique_ptr<X509_STORE_CTX, OpensslFree<X509_STORE_CTX_free>>;

struct DescriptorCloser {
  int fd;
  ~DescriptorCloser() {
    if (fd >= 0) close(fd);
  }
};

// How many bytes a file has, which are put there; with `is_private`, of one that only its owner may read. `bytes` has
// room for one more than a file may have.
size_t read_file_into(std::span<char> bytes, const std::string& path, const std::string& what, bool is_private) {
  // A FIFO is not waited for.
  const DescriptorCloser file{open(path.c_str(), O_RDONLY | O_CLOEXEC | O_NONBLOCK)};
  if (file.fd < 0) throw InvalidArgument("{} \"{}\": {}", what, path, std::strerror(errno));
  struct stat status {};
  if (fstat(file.fd, &status) != 0 || !S_ISREG(status.st_mode)) {
    throw InvalidArgument("{} \"{}\": that is no regular file", what, path);
  }
  if (is_private && status.st_uid != geteuid())
    throw InvalidArgument("{} \"{}\": it belongs to another user", what, path);
  if (is_private && (status.st_mode & 077) != 0) {
    throw InvalidArgument("{} \"{}\": others may read or write it; chmod 600", what, path);
  }
  size_t size = 0;
  ssize_t count;
  while ((count = read(file.fd, bytes.data() + size, bytes.size() - size)) > 0) size += static_cast<size_t>(count);
  if (count < 0) throw InvalidArgument("{} \"{}\": {}", what, path, std::strerror(errno));
  if (size > kMaxFileBytes) throw InvalidArgument("{} \"{}\": it has more than {} bytes", what, path, kMaxFileBytes);
  return size;
}

std::string read_file(const std::string& path, const std::string& what, bool is_private) {
  std::string bytes(kMaxFileBytes + 1, '\0');
  bytes.resize(read_file_into(bytes, path, what, is_private));
  return bytes;
}

comm::SecretBytes read_secret_file(const std::string& path, const std::string& what) {
  comm::SecretBytes bytes = comm::SecretBytes::zeros(kMaxFileBytes + 1);
  const size_t size = read_file_into({bytes.data(), bytes.size()}, path, what, /*is_private=*/true);
  return comm::SecretBytes(bytes.view().substr(0, size));
}

BioPointer bio_of(const std::string& bytes) {
  return BioPointer(BIO_new_mem_buf(bytes.data(), static_cast<int>(bytes.size())));
}

constexpr const char* kIdentity = "the certificate file";

// What stands beside the name of an algorithm; null where it is none of these.
template <typename T, auto kFree>
std::unique_ptr<T, OpensslFree<kFree>> parameters_of(const X509_ALGOR* algorithm, const ASN1_ITEM* item) {
  int type = 0;
  const void* found = nullptr;
  X509_ALGOR_get0(nullptr, &type, &found, algorithm);
  if (type != V_ASN1_SEQUENCE) return nullptr;
  return std::unique_ptr<T, OpensslFree<kFree>>(
      static_cast<T*>(ASN1_item_unpack(static_cast<const ASN1_STRING*>(found), item)));
}

// Beyond any limit where it is no number of rounds.
int64_t number_of_rounds(const ASN1_INTEGER* rounds) {
  int64_t number = 0;
  if (rounds == nullptr) return 1;
  return ASN1_INTEGER_get_int64(&number, rounds) == 1 && number >= 0 ? number : INT64_MAX;
}

int number_of(const X509_ALGOR* algorithm) {
  const ASN1_OBJECT* name = nullptr;
  X509_ALGOR_get0(&name, nullptr, nullptr, algorithm);
  return OBJ_obj2nid(name);
}

// How often an algorithm hashes a password before it is a key; 0 where it hashes none.
int64_t rounds_of(const X509_ALGOR* algorithm) {
  const int number = number_of(algorithm);
  if (number == NID_pbes2 || number == NID_pbmac1) {  // of one form
    const auto of_both = parameters_of<PBE2PARAM, PBE2PARAM_free>(algorithm, ASN1_ITEM_rptr(PBE2PARAM));
    if (of_both == nullptr || number_of(of_both->keyfunc) != NID_id_pbkdf2) return 0;
    const auto found = parameters_of<PBKDF2PARAM, PBKDF2PARAM_free>(of_both->keyfunc, ASN1_ITEM_rptr(PBKDF2PARAM));
    return found == nullptr ? 0 : number_of_rounds(found->iter);
  }
  const auto found = parameters_of<PBEPARAM, PBEPARAM_free>(algorithm, ASN1_ITEM_rptr(PBEPARAM));
  return found == nullptr ? 0 : number_of_rounds(found->iter);
}

int64_t most_rounds_of_bags(const STACK_OF(PKCS12_SAFEBAG) * bags) {
  int64_t most = 0;
  for (int i = 0; i < sk_PKCS12_SAFEBAG_num(bags); ++i) {
    const PKCS12_SAFEBAG* bag = sk_PKCS12_SAFEBAG_value(bags, i);
    const X509_ALGOR* algorithm = nullptr;
    if (const X509_SIG* key = PKCS12_SAFEBAG_get0_pkcs8(bag); key != nullptr) {
      X509_SIG_get0(key, &algorithm, nullptr);
      most = std::max(most, rounds_of(algorithm));
    }
    if (const auto* inner = PKCS12_SAFEBAG_get0_safes(bag); inner != nullptr) {
      most = std::max(most, most_rounds_of_bags(inner));
    }
  }
  return most;
}

// The most rounds that anything in the file asks for which is not encrypted itself.
int64_t most_rounds(PKCS12* file) {
  struct FreeSafes {
    void operator()(STACK_OF(PKCS7) * safes) const { sk_PKCS7_pop_free(safes, PKCS7_free); }
  };
  struct FreeBags {
    void operator()(STACK_OF(PKCS12_SAFEBAG) * bags) const { sk_PKCS12_SAFEBAG_pop_free(bags, PKCS12_SAFEBAG_free); }
  };
  int64_t most = 0;
  if (PKCS12_mac_present(file) == 1) {
    const ASN1_INTEGER* rounds = nullptr;
    const X509_ALGOR* algorithm = nullptr;
    PKCS12_get0_mac(nullptr, &algorithm, nullptr, &rounds, file);
    most = std::max(number_of_rounds(rounds), rounds_of(algorithm));
  }
  const std::unique_ptr<STACK_OF(PKCS7), FreeSafes> safes(PKCS12_unpack_authsafes(file));
  for (int i = 0; i < sk_PKCS7_num(safes.get()); ++i) {
    PKCS7* safe = sk_PKCS7_value(safes.get(), i);
    if (PKCS7_type_is_encrypted(safe) && safe->d.encrypted != nullptr) {
      most = std::max(most, rounds_of(safe->d.encrypted->enc_data->algorithm));
    } else if (PKCS7_type_is_data(safe) && safe->d.data != nullptr) {
      const std::unique_ptr<STACK_OF(PKCS12_SAFEBAG), FreeBags> bags(PKCS12_unpack_p7data(safe));
      most = std::max(most, most_rounds_of_bags(bags.get()));
    }
  }
  ERR_clear_error();
  return most;
}

}  // namespace

Certificates parse_identity(const std::string& bytes, const std::string& path, const Password& password,
                            int64_t max_rounds) {
  const char* const what = kIdentity;
  Certificates into;
  const BioPointer bio = bio_of(bytes);
  const Pkcs12Pointer pkcs12(d2i_PKCS12_bio(bio.get(), nullptr));
  ERR_clear_error();
  if (pkcs12 == nullptr) throw InvalidArgument("{} \"{}\" is no PKCS#12", what, path);
  if (most_rounds(pkcs12.get()) > max_rounds) {
    throw InvalidArgument(
        "{} \"{}\": a password would be hashed more than {} times to open it: make it anew by OpenSSL 3 (-iter)", what,
        path, max_rounds);
  }
  const bool has_mac = PKCS12_mac_present(pkcs12.get()) == 1;
  if (has_mac && PKCS12_verify_mac(pkcs12.get(), password.c_str(), -1) != 1) {
    ERR_clear_error();
    throw InvalidArgument("{} \"{}\": the password {}", what, path, password.empty() ? "is missing" : "is wrong");
  }
  EVP_PKEY* key = nullptr;
  X509* own = nullptr;
  STACK_OF(X509)* chain = nullptr;
  const bool is_read = PKCS12_parse(pkcs12.get(), password.c_str(), &key, &own, &chain) == 1;
  into.key.reset(key);
  into.own.reset(own);
  while (chain != nullptr && sk_X509_num(chain) > 0) into.chain.emplace_back(sk_X509_shift(chain));
  sk_X509_free(chain);
  if (!is_read) {
    const std::string reason = take_openssl_error();
    const bool is_old = reason.find("unsupported") != std::string::npos;
    throw InvalidArgument("{} \"{}\" cannot be opened: {}{}", what, path, reason,
                          is_old ? "; it is encrypted by an old algorithm (RC2, RC4): make it anew by OpenSSL 3" : "");
  }
  if (own == nullptr || key == nullptr) {
    throw InvalidArgument("{} \"{}\" has no {}", what, path, own == nullptr ? "certificate" : "key");
  }
  if (X509_check_private_key(own, key) != 1) {
    ERR_clear_error();
    throw InvalidArgument("{} \"{}\": its key is not that of its certificate", what, path);
  }
  return into;
}

CrlPointer parse_revocations(const std::string& bytes, const std::string& path, X509* authority, int64_t now_s) {
  const BioPointer bio = bio_of(bytes);
  CrlPointer list(PEM_read_bio_X509_CRL(bio.get(), nullptr, nullptr, nullptr));
  ERR_clear_error();
  const auto refuse = [&](const char* why) { throw InvalidArgument("the revocation list \"{}\" {}", path, why); };
  if (list == nullptr) refuse("is none in PEM");
  if (X509_NAME_cmp(X509_CRL_get_issuer(list.get()), X509_get_subject_name(authority)) != 0) {
    refuse("is of another authority");
  }
  if (X509_CRL_verify(list.get(), X509_get0_pubkey(authority)) != 1) {
    ERR_clear_error();
    refuse("has a signature that is not the authority's");
  }
  time_t now = now_s;
  const ASN1_TIME* next = X509_CRL_get0_nextUpdate(list.get());
  if (X509_cmp_time(X509_CRL_get0_lastUpdate(list.get()), &now) > 0) refuse("is not valid yet");
  if (next != nullptr && X509_cmp_time(next, &now) < 0) refuse("has expired: fetch a newer one");
  return list;
}

namespace {

X509Pointer read_authority(const std::string& path) {
  const std::string bytes = read_file(path, "the authority's certificate", /*is_private=*/false);
  const BioPointer bio = bio_of(bytes);
  X509Pointer authority(PEM_read_bio_X509(bio.get(), nullptr, nullptr, nullptr));
  ERR_clear_error();
  if (authority == nullptr) throw InvalidArgument("the authority's certificate \"{}\" is none in PEM", path);
  if (X509_check_ca(authority.get()) == 0) {
    throw InvalidArgument("the authority's certificate \"{}\" is not one of an authority", path);
  }
  return authority;
}

void add_expiry_warning(const std::string& what, X509* certificate, const CertificateFiles& files, int64_t now_s,
                        std::vector<std::string>& warnings) {
  int days = 0;
  int seconds = 0;
  ASN1_TIME* now = ASN1_TIME_set(nullptr, now_s);
  const bool is_known = ASN1_TIME_diff(&days, &seconds, now, X509_get0_notAfter(certificate)) == 1;
  ASN1_TIME_free(now);
  if (!is_known || days >= files.warning_days) return;
  warnings.push_back(fmt::format("the certificate will expire in {} days: {}", days, what));
}

}  // namespace

Password Password::from_file(const std::string& path, const std::string& origin) {
  const comm::SecretBytes text = read_secret_file(path, origin);
  return Password(text.view().substr(0, text.view().find_first_of("\r\n")));
}

std::string take_openssl_error() {
  std::string text;
  for (unsigned long code; (code = ERR_get_error()) != 0;) {  // NOLINT(google-runtime-int): OpenSSL's type
    const char* reason = ERR_reason_error_string(code);
    const std::string words = reason != nullptr ? reason : fmt::format("error {:x}", code);
    if (text.find(words) == std::string::npos) text += (text.empty() ? "" : ", ") + words;
  }
  return text;
}

std::optional<PeerIdentity> identity_of(X509* certificate) {
  const NamesPointer names(
      static_cast<GENERAL_NAMES*>(X509_get_ext_d2i(certificate, NID_subject_alt_name, nullptr, nullptr)));
  ERR_clear_error();
  std::optional<PeerIdentity> found;
  for (int i = 0; names != nullptr && i < sk_GENERAL_NAME_num(names.get()); ++i) {
    const GENERAL_NAME* name = sk_GENERAL_NAME_value(names.get(), i);
    if (name->type != GEN_URI) continue;
    const ASN1_IA5STRING* uri = name->d.uniformResourceIdentifier;
    const auto length = static_cast<size_t>(ASN1_STRING_length(uri));
    auto identity = parse_identity_uri({reinterpret_cast<const char*>(ASN1_STRING_get0_data(uri)), length});
    if (!identity) continue;
    if (found) return std::nullopt;
    found = std::move(identity);
  }
  return found;
}

std::string why_untrusted(X509* certificate, STACK_OF(X509) * others, X509_STORE* trusted, int64_t now_s) {
  const StoreContextPointer context(X509_STORE_CTX_new());
  if (context == nullptr || X509_STORE_CTX_init(context.get(), trusted, certificate, others) != 1) {
    return take_openssl_error();
  }
  X509_STORE_CTX_set_time(context.get(), 0, now_s);
  const bool is_trusted = X509_verify_cert(context.get()) == 1;
  ERR_clear_error();
  return is_trusted ? "" : X509_verify_cert_error_string(X509_STORE_CTX_get_error(context.get()));
}

Certificates read_certificates(const CertificateFiles& files, int64_t now_s) {
  Certificates read = parse_identity(read_file(files.identity_path, kIdentity, /*is_private=*/true),
                                     files.identity_path, files.password);
  const X509Pointer authority = read_authority(files.authority_path);
  read.trusted.reset(X509_STORE_new());
  check(read.trusted != nullptr && X509_STORE_add_cert(read.trusted.get(), authority.get()) == 1,
        "a store takes a certificate");
  if (!files.revocation_path.empty()) {
    const std::string& path = files.revocation_path;
    const CrlPointer revoked =
        parse_revocations(read_file(path, "the revocation list", /*is_private=*/false), path, authority.get(), now_s);
    check(X509_STORE_add_crl(read.trusted.get(), revoked.get()) == 1, "a store takes a revocation list");
    X509_STORE_set_flags(read.trusted.get(), X509_V_FLAG_CRL_CHECK | X509_V_FLAG_CRL_CHECK_ALL);
  }
  STACK_OF(X509)* others = sk_X509_new_null();
  for (const X509Pointer& one : read.chain) sk_X509_push(others, one.get());
  const std::string reason = why_untrusted(read.own.get(), others, read.trusted.get(), now_s);
  sk_X509_free(others);
  if (!reason.empty()) {
    throw InvalidArgument("the certificate in \"{}\" is not to be trusted by \"{}\": {}", files.identity_path,
                          files.authority_path, reason);
  }
  const auto identity = identity_of(read.own.get());
  if (!identity) {
    throw InvalidArgument(
        "the certificate in \"{}\" does not say who its holder is: its alternative names must have one URI "
        "tessera:ROLE:NODE_ID, as those of `tessera cluster make-certificates` do",
        files.identity_path);
  }
  read.identity = *identity;
  add_expiry_warning(files.identity_path, read.own.get(), files, now_s, read.warnings);
  add_expiry_warning(files.authority_path, authority.get(), files, now_s, read.warnings);
  return read;
}

}  // namespace tessera::cluster
