#include "tessera/cluster/tls/make_certificates.h"

#include <openssl/bio.h>
#include <openssl/crypto.h>
#include <openssl/ec.h>
#include <openssl/err.h>
#include <openssl/evp.h>
#include <openssl/pem.h>
#include <openssl/rand.h>
#include <openssl/x509v3.h>

#include <algorithm>
#include <array>
#include <filesystem>
#include <nlohmann/json.hpp>
#include <utility>

#include "tessera/base/error.h"
#include "tessera/base/logging.h"
#include "tessera/base/strings.h"
#include "tessera/base/usage_error.h"

namespace tessera::cluster {
namespace {

constexpr int64_t kSecondsPerDay = 86400;
// Clocks of hosts differ.
constexpr int64_t kEarlierS = 300;

using BioOfBytes = std::unique_ptr<BIO, OpensslFree<BIO_free_all>>;

void require(bool holds, const char* what) {
  if (!holds) throw IoError("cannot make {}: {}", what, take_openssl_error());
}

std::string bytes_of(BIO* bio) {
  char* data = nullptr;
  const auto length = static_cast<size_t>(BIO_get_mem_data(bio, &data));
  return {data, length};
}

KeyPointer make_key() {
  KeyPointer key(EVP_EC_gen("P-256"));
  require(key != nullptr, "a key");
  return key;
}

struct Authority {
  X509Pointer certificate;
  KeyPointer key;
};

void add_extension(X509* certificate, X509* issuer, int id, const std::string& value) {
  X509V3_CTX context;
  X509V3_set_ctx(&context, issuer, certificate, nullptr, nullptr, 0);
  const std::unique_ptr<X509_EXTENSION, OpensslFree<X509_EXTENSION_free>> extension(
      X509V3_EXT_conf_nid(nullptr, &context, id, value.c_str()));
  require(extension != nullptr && X509_add_ext(certificate, extension.get(), -1) == 1, "an extension");
}

// A certificate without its signature.
X509Pointer draft(EVP_PKEY* key, const std::string& name, int64_t now_s, int days) {
  X509Pointer made(X509_new());
  require(made != nullptr && X509_set_version(made.get(), 2) == 1, "a certificate");
  unsigned char serial[16];
  require(RAND_bytes(serial, sizeof(serial)) == 1, "a serial number");
  serial[0] &= 0x7F;
  serial[0] |= 0x01;
  BIGNUM* number = BN_bin2bn(serial, sizeof(serial), nullptr);
  BN_to_ASN1_INTEGER(number, X509_get_serialNumber(made.get()));
  BN_free(number);
  ASN1_TIME_set(X509_getm_notBefore(made.get()), now_s - kEarlierS);
  ASN1_TIME_set(X509_getm_notAfter(made.get()), now_s + days * kSecondsPerDay);
  X509_set_pubkey(made.get(), key);
  X509_NAME_add_entry_by_txt(X509_get_subject_name(made.get()), "CN", MBSTRING_UTF8,
                             reinterpret_cast<const unsigned char*>(name.data()), static_cast<int>(name.size()), -1, 0);
  return made;
}

Authority make_authority(int64_t now_s, int days) {
  Authority made{nullptr, make_key()};
  made.certificate = draft(made.key.get(), "Tessera test authority", now_s, days);
  X509* const certificate = made.certificate.get();
  X509_set_issuer_name(certificate, X509_get_subject_name(certificate));
  add_extension(certificate, certificate, NID_basic_constraints, "critical,CA:TRUE,pathlen:0");
  add_extension(certificate, certificate, NID_key_usage, "critical,keyCertSign,cRLSign");
  add_extension(certificate, certificate, NID_subject_key_identifier, "hash");
  require(X509_sign(certificate, made.key.get(), EVP_sha256()) > 0, "the authority's signature");
  return made;
}

// A PKCS#12 of a new key with its certificate.
std::string make_identity(const Authority& authority, CertificateRole role, const std::string& node_id,
                          const Password& password, int64_t now_s, int days) {
  const KeyPointer key = make_key();
  const X509Pointer certificate = draft(key.get(), fmt::format("{} {}", name_of(role), node_id), now_s, days);
  X509* const made = certificate.get();
  X509_set_issuer_name(made, X509_get_subject_name(authority.certificate.get()));
  const bool is_scheduler = role == CertificateRole::kScheduler;
  add_extension(made, authority.certificate.get(), NID_basic_constraints, "critical,CA:FALSE");
  add_extension(made, authority.certificate.get(), NID_key_usage, "critical,digitalSignature");
  add_extension(made, authority.certificate.get(), NID_ext_key_usage, is_scheduler ? "serverAuth" : "clientAuth");
  add_extension(made, authority.certificate.get(), NID_subject_alt_name, "URI:" + print_identity_uri(role, node_id));
  require(X509_sign(made, authority.key.get(), EVP_sha256()) > 0, "a signature");
  const std::unique_ptr<PKCS12, OpensslFree<PKCS12_free>> pkcs12(
      PKCS12_create(password.c_str(), node_id.c_str(), key.get(), made, nullptr, 0, 0, 0, 0, 0));
  const BioOfBytes bio(BIO_new(BIO_s_mem()));
  require(pkcs12 != nullptr && i2d_PKCS12_bio(bio.get(), pkcs12.get()) == 1, "a PKCS#12");
  return bytes_of(bio.get());
}

// Signs the list anew; it holds until the authority's certificate expires.
std::string print_list(X509_CRL* list, const Authority& authority, int64_t now_s) {
  ASN1_TIME* now = ASN1_TIME_set(nullptr, now_s - kEarlierS);
  X509_CRL_set1_lastUpdate(list, now);
  ASN1_TIME_free(now);
  X509_CRL_set1_nextUpdate(list, X509_get0_notAfter(authority.certificate.get()));
  X509_CRL_sort(list);
  require(X509_CRL_sign(list, authority.key.get(), EVP_sha256()) > 0, "the list's signature");
  const BioOfBytes bio(BIO_new(BIO_s_mem()));
  require(PEM_write_bio_X509_CRL(bio.get(), list) == 1, "the list");
  return bytes_of(bio.get());
}

std::string make_list(const Authority& authority, int64_t now_s) {
  const CrlPointer list(X509_CRL_new());
  require(list != nullptr && X509_CRL_set_version(list.get(), 1) == 1, "the list");
  X509_CRL_set_issuer_name(list.get(), X509_get_subject_name(authority.certificate.get()));
  return print_list(list.get(), authority, now_s);
}

std::string print_config(const std::string& directory) {
  const auto path = [&](const char* name) { return std::filesystem::absolute(join_path(directory, name)).string(); };
  nlohmann::ordered_json config;
  config["server_cert_path"] = path("server.p12");
  config["crl_path"] = path("crl.pem");
  config["client_cert_path"] = path("client.p12");
  config["ca_cert_path"] = path("ca.crt");
  config["cipher_list"] = "";
  config["cert_expire_warning_time_in_day"] = 90;
  return config.dump(2) + "\n";
}

// A node id may be no file's name: left/0 has left_0.p12.
std::string file_name_of(std::string node_id) {
  std::ranges::replace(node_id, '/', '_');
  return node_id + ".p12";
}

// One of them is the authority's key.
struct NewFile {
  ~NewFile() { OPENSSL_cleanse(bytes.data(), bytes.size()); }

  std::string name;
  unsigned mode = 0;
  std::string bytes;
};

// Throws InvalidArgument where a file of the set, or another set, is in the directory.
void require_no_certificates(FileSystem& files, const std::string& directory, const std::vector<NewFile>& set) {
  constexpr std::array kOfEverySet = {"ca.crt",     "ca.key",       "crl.pem",    "server.p12",
                                      "client.p12", "observer.p12", "config.json"};
  std::vector<std::string> there;
  for (const NewFile& file : set) {
    if (files.exists(join_path(directory, file.name))) there.push_back(file.name);
  }
  if (there.empty()) return;
  std::vector<std::string> missing;
  for (const char* name : kOfEverySet) {
    if (std::ranges::find(there, name) == there.end()) missing.emplace_back(name);
  }
  if (missing.empty()) {
    throw InvalidArgument("\"{}\" is there already: give another folder", join_path(directory, there.front()));
  }
  throw InvalidArgument(
      "the set of certificates in \"{}\" is incomplete: {} {} there, {} {} not; remove what is there, or give another "
      "folder",
      directory, fmt::join(there, ", "), there.size() == 1 ? "is" : "are", fmt::join(missing, ", "),
      missing.size() == 1 ? "is" : "are");
}

// By this file the others are found: it is put into place last.
constexpr const char* kSetIndex = "config.json";
// In the folder that a set is written into first: the names of its files, once all of them are there.
constexpr const char* kSetNames = "names";

std::string beside_path(const std::string& directory) { return join_path(directory, ".new"); }

// Whether a process was killed while it put a set into place.
bool is_unfinished(FileSystem& files, const std::string& directory) {
  const std::string beside = beside_path(directory);
  return files.exists(join_path(beside, kSetNames)) && files.exists(join_path(beside, kSetIndex));
}

// Removes what a process that was killed has left, but no set that was in place.
void remove_unfinished(FileSystem& files, const std::string& directory) {
  const std::string beside = beside_path(directory);
  if (!files.exists(beside)) return;
  if (is_unfinished(files, directory)) {
    const std::string names = files.read_text(join_path(beside, kSetNames));
    for (const std::string_view line : split(names, '\n')) {
      const std::string name(line);
      const std::string path = join_path(directory, name);
      const bool is_name = !name.empty() && base_name(name) == name && name != "." && name != "..";
      if (is_name && !files.exists(join_path(beside, name)) && files.exists(path)) files.remove(path);
    }
    log_warning(
        "\"{}\": who made certificates here last was ended in the midst of it; what was there of them is removed",
        directory);
  }
  files.remove_directory_tree(beside);
}

// Writes all files into a folder beside them, then puts them into place: where one cannot be written, none is there.
void write_set(FileSystem& files, const std::string& directory, const std::vector<NewFile>& set) {
  const std::string beside = beside_path(directory);
  std::vector<std::string> placed;
  const auto place = [&](const std::string& name) {
    const std::string path = join_path(directory, name);
    files.rename(join_path(beside, name), path);
    placed.push_back(path);
  };
  try {
    files.create_directories(beside);
    std::string names;
    for (const NewFile& file : set) {
      files.write_atomically(join_path(beside, file.name), file.bytes, file.mode);
      names += file.name + "\n";
    }
    files.write_atomically(join_path(beside, kSetNames), names, 0600);
    for (const NewFile& file : set) {
      if (file.name != kSetIndex) place(file.name);
    }
    files.sync_directory(directory);
    place(kSetIndex);
    files.sync_directory(directory);
    files.remove_directory_tree(beside);
  } catch (const std::exception&) {
    try {
      for (const std::string& path : placed) files.remove(path);
      files.remove_directory_tree(beside);
    } catch (const Error& error) {  // what was wrong first is what is told
      log_warning("{}", error.what());
    }
    throw;
  }
}

// The lock's file does not stay alone in a folder that was made for nothing.
void remove_empty_folder(FileSystem& files, const std::string& directory, const std::string& lock) {
  if (files.list(directory) != std::vector{base_name(lock)}) return;
  files.remove(lock);
  std::error_code ignored;
  std::filesystem::remove(directory, ignored);
}

std::string lock_path(const std::string& directory) { return join_path(directory, ".lock"); }

// What is in the files of an authority: each is read, and fits the others.
struct AuthorityFiles {
  Authority authority;
  CrlPointer list;
};

AuthorityFiles read_authority_files(FileSystem& files, const std::string& directory) {
  const auto path = [&](const char* name) { return join_path(directory, name); };
  const auto read = [&](const char* name, auto parse) {
    std::string bytes = files.read_text(path(name));
    const BioOfBytes bio(BIO_new_mem_buf(bytes.data(), static_cast<int>(bytes.size())));
    auto* const found = parse(bio.get(), nullptr, nullptr, nullptr);
    OPENSSL_cleanse(bytes.data(), bytes.size());  // one of them is a key
    if (found == nullptr) throw InvalidArgument("\"{}\" cannot be read: {}", path(name), take_openssl_error());
    return found;
  };
  AuthorityFiles found;
  found.authority.certificate.reset(read("ca.crt", PEM_read_bio_X509));
  found.authority.key.reset(read("ca.key", PEM_read_bio_PrivateKey));
  found.list.reset(read("crl.pem", PEM_read_bio_X509_CRL));
  X509* const certificate = found.authority.certificate.get();
  if (X509_check_private_key(certificate, found.authority.key.get()) != 1) {
    ERR_clear_error();
    throw InvalidArgument(
        "\"{}\" is not the key of \"{}\": what it signs nobody believes; put the key of that authority there",
        path("ca.key"), path("ca.crt"));
  }
  if (X509_NAME_cmp(X509_CRL_get_issuer(found.list.get()), X509_get_subject_name(certificate)) != 0 ||
      X509_CRL_verify(found.list.get(), X509_get0_pubkey(certificate)) != 1) {
    ERR_clear_error();
    throw InvalidArgument("\"{}\" is a list of another authority than \"{}\": put that one's list there",
                          path("crl.pem"), path("ca.crt"));
  }
  return found;
}

}  // namespace

std::unique_ptr<FileLock> lock_certificates(FileSystem& files, const std::string& directory, Clock& clock) {
  constexpr int64_t kMostNs = int64_t{10} * 1'000'000'000;
  constexpr int64_t kLookMs = 20;
  const std::string path = lock_path(directory);
  const int64_t begin_ns = clock.monotonic_ns();
  while (true) {
    if (auto lock = files.try_lock(path)) return lock;
    if (clock.monotonic_ns() - begin_ns >= kMostNs) break;
    clock.sleep_ms(kLookMs);
  }
  const int64_t holder = files.lock_holder(path);
  throw IoError("{} has worked on the certificates in \"{}\" for more than 10 s; try again when it has ended",
                holder > 0 ? fmt::format("process {}", holder) : "another process", directory);
}

void make_certificates(const NewCertificates& wanted, int64_t now_s, FileSystem& files) {
  if (wanted.days < 1) throw UsageError("certificates hold for 1 day at least, got {}", wanted.days);
  const Authority authority = make_authority(now_s, wanted.days);
  const auto identity = [&](CertificateRole role, const std::string& node_id) {
    return make_identity(authority, role, node_id, wanted.password, now_s, wanted.days);
  };
  const BioOfBytes certificate(BIO_new(BIO_s_mem()));
  const BioOfBytes key(BIO_new(BIO_s_mem()));
  require(PEM_write_bio_X509(certificate.get(), authority.certificate.get()) == 1 &&
              PEM_write_bio_PKCS8PrivateKey(key.get(), authority.key.get(), nullptr, nullptr, 0, nullptr, nullptr) == 1,
          "the authority's files");
  std::vector<NewFile> made = {{"ca.crt", 0644, bytes_of(certificate.get())},
                               {"ca.key", 0600, bytes_of(key.get())},
                               {"crl.pem", 0644, make_list(authority, now_s)},
                               {"server.p12", 0600, identity(CertificateRole::kScheduler, "scheduler")},
                               {"client.p12", 0600, identity(CertificateRole::kWorker, "*")},
                               {"observer.p12", 0600, identity(CertificateRole::kObserver, "*")},
                               {"config.json", 0644, print_config(wanted.directory)}};
  for (const std::string& node_id : wanted.node_ids) {
    // A comma would begin another name of the certificate.
    if (!parse_identity_uri(print_identity_uri(CertificateRole::kWorker, node_id)) ||
        node_id.find(',') != std::string::npos) {
      throw UsageError("\"{}\" is no node id of a certificate: 1 to 100 characters of visible ASCII, no comma",
                       node_id);
    }
    const std::string name = file_name_of(node_id);
    if (std::ranges::find(made, name, &NewFile::name) != made.end()) {
      throw UsageError("two certificates would have the file {}: give nodes other names", name);
    }
    made.push_back({name, 0600, identity(CertificateRole::kWorker, node_id)});
  }
  const bool is_new = !files.exists(wanted.directory);
  files.create_directories(wanted.directory);
  const auto lock = lock_certificates(files, wanted.directory, Clock::system());
  remove_unfinished(files, wanted.directory);
  require_no_certificates(files, wanted.directory, made);
  try {
    write_set(files, wanted.directory, made);
  } catch (const std::exception&) {
    if (is_new) remove_empty_folder(files, wanted.directory, lock_path(wanted.directory));
    throw;
  }
}

bool revoke_certificate(const std::string& directory, const std::string& name, const Password& password,
                        int64_t now_s) {
  FileSystem& files = FileSystem::local();
  read_authority_files(files, directory);  // a folder without them gets no lock
  const auto lock = lock_certificates(files, directory, Clock::system());
  if (is_unfinished(files, directory)) {
    throw InvalidArgument(
        "the set of certificates in \"{}\" is incomplete: who made it was ended in the midst of it; make it again",
        directory);
  }
  const AuthorityFiles read = read_authority_files(files, directory);
  const Certificates revoked = read_certificates({.identity_path = join_path(directory, name + ".p12"),
                                                  .password = password,
                                                  .authority_path = join_path(directory, "ca.crt"),
                                                  .revocation_path = "",
                                                  .ciphers = ""},
                                                 now_s);
  X509_REVOKED* known = nullptr;
  if (X509_CRL_get0_by_cert(read.list.get(), &known, revoked.own.get()) == 1) return false;
  std::unique_ptr<X509_REVOKED, OpensslFree<X509_REVOKED_free>> entry(X509_REVOKED_new());
  ASN1_TIME* now = ASN1_TIME_set(nullptr, now_s);
  X509_REVOKED_set_revocationDate(entry.get(), now);
  ASN1_TIME_free(now);
  X509_REVOKED_set_serialNumber(entry.get(), X509_get_serialNumber(revoked.own.get()));
  require(X509_CRL_add0_revoked(read.list.get(), entry.release()) == 1, "a new list");
  files.write_atomically(join_path(directory, "crl.pem"), print_list(read.list.get(), read.authority, now_s));
  return true;
}

}  // namespace tessera::cluster
