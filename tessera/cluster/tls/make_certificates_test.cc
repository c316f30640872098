// Claims about the files of certificates: several who make and revoke at once, disks that are full, files that do not
// belong together.
#include "tessera/cluster/tls/make_certificates.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <openssl/pem.h>
#include <openssl/pkcs12.h>
#include <openssl/x509v3.h>
#include <sys/resource.h>
#include <unistd.h>

#include <algorithm>
#include <ctime>
#include <filesystem>
#include <functional>
#include <string>
#include <thread>
#include <vector>

#include "tessera/base/error.h"
#include "tessera/base/limits.h"
#include "tessera/cluster/tls/tls_context.h"

namespace tessera::cluster {
namespace {

using testing::AllOf;
using testing::AnyOf;
using testing::HasSubstr;
using testing::UnorderedElementsAre;

const Password kPassword("pass");

std::string words_of_refusal(const std::function<void()>& work) {
  try {
    work();
  } catch (const Error& e) {
    return e.what();
  }
  return "";
}

// Does the work of all numbers at once, and returns what they were refused with; "": they were not.
std::vector<std::string> at_once(int count, const std::function<void(int)>& work) {
  std::vector<std::string> words(static_cast<size_t>(count));
  std::vector<std::thread> threads;
  for (int i = 0; i < count; ++i) {
    threads.emplace_back([&, i] { words[static_cast<size_t>(i)] = words_of_refusal([&] { work(i); }); });
  }
  for (std::thread& thread : threads) thread.join();
  return words;
}

class CertificateFolder : public testing::Test {
 protected:
  CertificateFolder() { std::filesystem::remove_all(scratch); }
  ~CertificateFolder() override { std::filesystem::remove_all(scratch); }

  static void make(const std::string& directory, const std::vector<std::string>& node_ids = {}) {
    make_certificates({.directory = directory, .password = kPassword, .node_ids = node_ids}, std::time(nullptr));
  }
  static bool revoke(const std::string& directory, const std::string& name) {
    return revoke_certificate(directory, name, kPassword, std::time(nullptr));
  }
  static int num_revoked(const std::string& directory) {
    const std::string text = files().read_text(directory + "/crl.pem");
    BIO* bio = BIO_new_mem_buf(text.data(), static_cast<int>(text.size()));
    const CrlPointer list(PEM_read_bio_X509_CRL(bio, nullptr, nullptr, nullptr));
    BIO_free(bio);
    check(list != nullptr, "the list can be read");
    return std::max(sk_X509_REVOKED_num(X509_CRL_get_REVOKED(list.get())), 0);
  }
  static FileSystem& files() { return FileSystem::local(); }
  void copy_from_other(const std::string& name) const {
    std::filesystem::copy_file(other + "/" + name, folder + "/" + name,
                               std::filesystem::copy_options::overwrite_existing);
  }

  const std::string scratch = testing::TempDir() + fmt::format("make_certificates_test_{}", getpid());
  const std::string folder = scratch + "/tls";
  const std::string other = scratch + "/other";
};

TEST_F(CertificateFolder, HasTheRevocationsOfAllWhoRevokeAtOnce) {
  const std::vector<std::string> nodes = {"w0", "w1", "w2", "w3", "w4", "w5"};
  make(folder, nodes);
  for (const std::string& words :
       at_once(6, [&](int i) { EXPECT_TRUE(revoke(folder, nodes[static_cast<size_t>(i)])); })) {
    EXPECT_EQ(words, "");
  }
  EXPECT_EQ(num_revoked(folder), 6);
}

TEST_F(CertificateFolder, ListsACertificateOnceHoweverOftenItIsRevoked) {
  make(folder, {"w0"});
  EXPECT_TRUE(revoke(folder, "w0"));
  EXPECT_FALSE(revoke(folder, "w0"));
  EXPECT_EQ(num_revoked(folder), 1);
  EXPECT_TRUE(revoke(folder, "client"));
  EXPECT_EQ(num_revoked(folder), 2);
}

TEST_F(CertificateFolder, IsMadeByOneOfThoseWhoMakeItAtOnce) {
  int num_made = 0;
  for (const std::string& words : at_once(4, [&](int /*i*/) { make(folder, {"w0"}); })) {
    num_made += words.empty() ? 1 : 0;
    EXPECT_THAT(words, AnyOf("", HasSubstr("is there already: give another folder")));
  }
  EXPECT_EQ(num_made, 1);
  EXPECT_TRUE(revoke(folder, "w0"));  // its files are of one authority
}

TEST_F(CertificateFolder, IsWholeOrAbsentWhereTheDiskIsFull) {
  make_file_size_limit_an_error();
  rlimit before{};
  ASSERT_EQ(getrlimit(RLIMIT_FSIZE, &before), 0);
  const auto make_on_full_disk = [&] {
    const rlimit small{.rlim_cur = 1000, .rlim_max = before.rlim_max};  // a certificate fits, one with its key does not
    setrlimit(RLIMIT_FSIZE, &small);
    const std::string words = words_of_refusal([&] { make(folder); });
    setrlimit(RLIMIT_FSIZE, &before);
    return words;
  };
  EXPECT_THAT(make_on_full_disk(), HasSubstr("server.p12"));
  EXPECT_FALSE(files().exists(folder));
  files().create_directories(folder);
  files().write_atomically(folder + "/password", "pass");
  EXPECT_THAT(make_on_full_disk(), HasSubstr("server.p12"));
  EXPECT_THAT(files().list(folder), UnorderedElementsAre(".lock", "password"));
  make(folder);
  EXPECT_THAT(files().list(folder), UnorderedElementsAre(".lock", "ca.crt", "ca.key", "client.p12", "config.json",
                                                         "crl.pem", "observer.p12", "password", "server.p12"));
}

// A process that does so many things to files, and is killed then: it catches nothing any more.
class MortalFiles final : public MemoryFileSystem {
 public:
  struct Killed {};
  void kill_after(int count) { left_ = count; }
  void let_live() { left_ = -1; }

  std::unique_ptr<WritableFile> create(const std::string& path, unsigned mode) override {
    live();
    return MemoryFileSystem::create(path, mode);
  }
  void rename(const std::string& from, const std::string& to) override {
    live();
    MemoryFileSystem::rename(from, to);
  }
  void remove(const std::string& path) override {
    live();
    MemoryFileSystem::remove(path);
  }
  void create_directories(const std::string& path) override {
    live();
    MemoryFileSystem::create_directories(path);
  }
  void remove_directory_tree(const std::string& path) override {
    live();
    MemoryFileSystem::remove_directory_tree(path);
  }

 private:
  void live() {
    if (left_ == 0) throw Killed();
    if (left_ > 0) --left_;
  }
  int left_ = -1;
};

TEST_F(CertificateFolder, IsWholeOrAbsentWhereItsMakerIsKilled) {
  const NewCertificates wanted{.directory = "/tls", .password = kPassword, .node_ids = {"left/0"}};
  const auto whole = UnorderedElementsAre(".lock", "ca.crt", "ca.key", "client.p12", "config.json", "crl.pem",
                                          "left_0.p12", "observer.p12", "password", "server.p12");
  int num_killed = 0;
  for (bool is_killed = true; is_killed; ++num_killed) {
    SCOPED_TRACE(fmt::format("killed after {} changes", num_killed));
    MortalFiles disk;
    disk.create_directories("/tls");
    disk.write_atomically("/tls/password", "pass");
    disk.kill_after(num_killed);
    try {
      make_certificates(wanted, std::time(nullptr), disk);
      is_killed = false;
    } catch (const MortalFiles::Killed&) {
    }
    disk.let_live();
    const bool is_there = disk.exists("/tls/config.json");
    if (is_there) {
      const std::string authority = disk.read_text("/tls/ca.crt");
      EXPECT_THAT(words_of_refusal([&] { make_certificates(wanted, std::time(nullptr), disk); }),
                  HasSubstr("is there already: give another folder"));
      EXPECT_EQ(disk.read_text("/tls/ca.crt"), authority);
    } else {
      EXPECT_EQ(words_of_refusal([&] { make_certificates(wanted, std::time(nullptr), disk); }), "");
    }
    EXPECT_THAT(disk.list("/tls"), whole);
  }
  EXPECT_GT(num_killed, 20);
}

TEST_F(CertificateFolder, RevokesNothingOfASetWhoseMakerWasKilled) {
  make(folder);
  files().create_directories(folder + "/.new");
  files().rename(folder + "/config.json", folder + "/.new/config.json");
  files().write_atomically(folder + "/.new/names", "ca.crt\nca.key\nconfig.json\n");
  EXPECT_THAT(words_of_refusal([&] { revoke(folder, "client"); }),
              HasSubstr("who made it was ended in the midst of it"));
  EXPECT_EQ(num_revoked(folder), 0);
}

TEST_F(CertificateFolder, SaysWhatOfAnIncompleteSetIsThereAndWhatIsNot) {
  make(folder);
  for (const char* name : {"client.p12", "observer.p12", "config.json"}) files().remove(folder + "/" + name);
  EXPECT_EQ(words_of_refusal([&] { make(folder); }),
            "the set of certificates in \"" + folder +
                "\" is incomplete: ca.crt, ca.key, crl.pem, server.p12 are there, client.p12, observer.p12, "
                "config.json are not; remove what is there, or give another folder");
}

TEST_F(CertificateFolder, RevokesNothingByFilesOfSeveralAuthorities) {
  make(folder);
  make(other);
  copy_from_other("crl.pem");
  EXPECT_THAT(words_of_refusal([&] { revoke(folder, "client"); }),
              HasSubstr(folder + "/crl.pem\" is a list of another authority than \"" + folder + "/ca.crt\""));
  copy_from_other("ca.key");
  EXPECT_THAT(words_of_refusal([&] { revoke(folder, "client"); }),
              HasSubstr(folder + "/ca.key\" is not the key of \"" + folder + "/ca.crt\""));
  EXPECT_EQ(num_revoked(folder), 0);
}

TEST_F(CertificateFolder, IsNotWaitedForForEver) {
  make(folder);
  FakeClock clock;
  const auto held = lock_certificates(files(), folder, clock);
  EXPECT_THAT(words_of_refusal([&] { lock_certificates(files(), folder, clock); }),
              HasSubstr(fmt::format("process {} has worked on the certificates in \"{}\" for more than 10 s", getpid(),
                                    folder)));
}

// Puts a certificate for the other side of a handshake into the file of a worker or a scheduler.
void change_purpose(const std::string& folder, const std::string& name, const char* purpose) {
  const std::string path = folder + "/" + name + ".p12";
  const Certificates read = read_certificates({.identity_path = path,
                                               .password = kPassword,
                                               .authority_path = folder + "/ca.crt",
                                               .revocation_path = "",
                                               .ciphers = ""},
                                              std::time(nullptr));
  const std::string text = FileSystem::local().read_text(folder + "/ca.key");
  BIO* bio = BIO_new_mem_buf(text.data(), static_cast<int>(text.size()));
  const KeyPointer key(PEM_read_bio_PrivateKey(bio, nullptr, nullptr, nullptr));
  BIO_free(bio);
  X509* const own = read.own.get();
  X509_EXTENSION_free(X509_delete_ext(own, X509_get_ext_by_NID(own, NID_ext_key_usage, -1)));
  X509_EXTENSION* extension = X509V3_EXT_conf_nid(nullptr, nullptr, NID_ext_key_usage, purpose);
  X509_add_ext(own, extension, -1);
  X509_EXTENSION_free(extension);
  check(X509_sign(own, key.get(), EVP_sha256()) > 0, "a signature");
  const std::unique_ptr<PKCS12, OpensslFree<PKCS12_free>> made(
      PKCS12_create(kPassword.c_str(), "changed", read.key.get(), own, nullptr, 0, 0, 0, 0, 0));
  BIO* bytes = BIO_new(BIO_s_mem());
  check(i2d_PKCS12_bio(bytes, made.get()) == 1, "a PKCS#12");
  char* data = nullptr;
  const auto length = static_cast<size_t>(BIO_get_mem_data(bytes, &data));
  FileSystem::local().write_atomically(path, {data, length}, 0600);
  BIO_free(bytes);
}

TEST_F(CertificateFolder, ACertificateThatTheOtherSideWouldRefuseIsRefusedBeforeItIsShown) {
  make(folder, {"w0"});
  const auto use = [&](const std::string& name, TlsSide side, TlsUse of) {
    return words_of_refusal([&] {
      TlsContext::with_certificates({.identity_path = folder + "/" + name + ".p12",
                                     .password = kPassword,
                                     .authority_path = folder + "/ca.crt",
                                     .revocation_path = folder + "/crl.pem",
                                     .ciphers = ""},
                                    side, std::time(nullptr), of);
    });
  };
  EXPECT_EQ(use("w0", TlsSide::kClient, TlsUse::kRendezvous), "");
  change_purpose(folder, "w0", "serverAuth");
  for (const TlsUse of : {TlsUse::kRendezvous, TlsUse::kRanks}) {
    EXPECT_THAT(use("w0", TlsSide::kClient, of),
                AllOf(HasSubstr("w0.p12\" is of role worker and not made for it"), HasSubstr("clientAuth")));
  }
  EXPECT_EQ(use("server", TlsSide::kServer, TlsUse::kRendezvous), "");
  change_purpose(folder, "server", "clientAuth");
  EXPECT_THAT(use("server", TlsSide::kServer, TlsUse::kRendezvous), HasSubstr("serverAuth"));
  EXPECT_TRUE(revoke(folder, "w0"));
}

}  // namespace
}  // namespace tessera::cluster
