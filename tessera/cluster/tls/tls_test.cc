// Claims about who is believed: certificates of a right and of a wrong kind, files that cannot be used, the secret.
#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <openssl/pkcs12.h>
#include <sys/stat.h>
#include <unistd.h>

#include <cstdlib>
#include <ctime>
#include <filesystem>
#include <fstream>
#include <string>

#include "tessera/base/error.h"
#include "tessera/cluster/tls/cipher_list.h"
#include "tessera/cluster/tls/make_certificates.h"
#include "tessera/cluster/tls/tls_config.h"
#include "tessera/cluster/tls/tls_options.h"
#include "tessera/cluster/tls/tls_session.h"
#include "tessera/comm/wire/test_dumps.h"

namespace tessera::cluster {
namespace {

using testing::ElementsAre;
using testing::HasSubstr;
using testing::IsEmpty;

constexpr int64_t kDay = 86400;

int64_t now_s() { return std::time(nullptr); }

std::string message_of_refusal(const std::function<void()>& work) {
  try {
    work();
  } catch (const Error& e) {
    return e.what();
  }
  return "";
}

// Two ends that talk until nobody has anything to say.
struct Talk {
  Talk(std::shared_ptr<const TlsContext> of_server, std::shared_ptr<const TlsContext> of_client)
      : server(std::move(of_server)), client(std::move(of_client)) {
    std::string heard;
    client.receive({}, heard);
    for (int i = 0; i < 6; ++i) {
      server.receive(client.take_output(), said_to_server);
      client.receive(server.take_output(), said_to_client);
    }
  }
  bool is_open() const {
    return server.state() == TlsSession::State::kOpen && client.state() == TlsSession::State::kOpen;
  }
  TlsSession server;
  TlsSession client;
  std::string said_to_server;
  std::string said_to_client;
};

TEST(Password, ItsBytesAreInNoCoreDump) {
  const std::string path = testing::TempDir() + fmt::format("password_{}", getpid());
  FileSystem::local().write_atomically(path, "swordfish\r\nanother line", 0600);
  const Password read = Password::from_file(path, "a test");
  std::filesystem::remove(path);
  EXPECT_EQ(read.text(), "swordfish");
  const CertificateFiles copied{
      .identity_path = "", .password = read, .authority_path = "", .revocation_path = "", .ciphers = ""};
  for (const Password& one : {Password("a short one"), read, copied.password}) {
    EXPECT_TRUE(comm::is_left_out_of_dumps(one.text().data()));
    EXPECT_EQ(std::string(one.c_str()), one.text());
  }
}

class Certified : public testing::Test {
 protected:
  static void SetUpTestSuite() {
    std::filesystem::remove_all(folder());
    make_certificates(
        {.directory = folder() + "/a", .password = Password("pass"), .node_ids = {"worker_1", "worker_2"}}, now_s());
    make_certificates({.directory = folder() + "/b", .password = Password("pass"), .node_ids = {}}, now_s());
  }
  static void TearDownTestSuite() { std::filesystem::remove_all(folder()); }
  static std::string folder() { return testing::TempDir() + fmt::format("tls_test_{}", getpid()); }
  static CertificateFiles files(const std::string& name, const std::string& authority = "a",
                                const std::string& password = "pass") {
    return {.identity_path = folder() + "/" + name + ".p12",
            .password = Password(password),
            .authority_path = folder() + "/" + authority + "/ca.crt",
            .revocation_path = folder() + "/" + authority + "/crl.pem",
            .ciphers = ""};
  }
  static std::shared_ptr<const TlsContext> server(const CertificateFiles& of) {
    return TlsContext::with_certificates(of, TlsSide::kServer, now_s());
  }
  static std::shared_ptr<const TlsContext> client(const CertificateFiles& of) {
    return TlsContext::with_certificates(of, TlsSide::kClient, now_s());
  }
  static std::string refusal(const CertificateFiles& of, int64_t at_s = now_s()) {
    return message_of_refusal([&] { read_certificates(of, at_s); });
  }
};

// Bytes of a PKCS#12 file of these; with `of_code` -1, one without a code that shows whether it was changed.
std::string print_identity(const Certificates& of, const char* password, int iterations, int of_code) {
  PKCS12* made = PKCS12_create(password, "", of.key.get(), of.own.get(), nullptr, 0, 0, iterations, of_code, 0);
  unsigned char* data = nullptr;
  const int size = i2d_PKCS12(made, &data);
  PKCS12_free(made);
  if (size < 0) return "";
  const std::string bytes(reinterpret_cast<const char*>(data), static_cast<size_t>(size));
  OPENSSL_free(data);
  return bytes;
}

TEST_F(Certified, AFileWhosePasswordIsHashedForHoursIsRefused) {
  const Certificates own = read_certificates(files("a/client"), now_s());
  for (const auto& [iterations, of_code] : {std::pair{5, 1}, std::pair{1, 5}, std::pair{5, -1}}) {
    const char* const password = of_code < 0 ? "" : "pass";  // OpenSSL 3.0 takes one without a code without a password
    const std::string bytes = print_identity(own, password, iterations, of_code);
    const auto refusal = [&](int64_t max_rounds) {
      return message_of_refusal([&] { parse_identity(bytes, "own.p12", Password(password), max_rounds); });
    };
    EXPECT_THAT(refusal(4), HasSubstr("\"own.p12\": a password would be hashed more than 4 times to open it"));
    EXPECT_EQ(refusal(5), "") << iterations << " " << of_code;
  }
}

TEST_F(Certified, BothSidesLearnWhoTheOtherOneIs) {
  Talk talk(server(files("a/server")), client(files("a/worker_1")));
  ASSERT_TRUE(talk.is_open()) << talk.server.error() << talk.client.error();
  EXPECT_EQ(talk.server.identity().role, CertificateRole::kWorker);
  EXPECT_EQ(talk.server.identity().node_id, "worker_1");
  EXPECT_TRUE(talk.server.identity().may_be_node("worker_1"));
  EXPECT_FALSE(talk.server.identity().may_be_node("worker_10"));
  EXPECT_EQ(talk.client.identity().role, CertificateRole::kScheduler);
  talk.client.send("hello");
  std::string said;
  talk.server.receive(talk.client.take_output(), said);
  EXPECT_EQ(said, "hello");
}

TEST_F(Certified, F55_ACertificateOfAnotherAuthorityIsNotBelieved) {
  // It has the authority's file of `a`, but its own certificate is of `b`.
  EXPECT_THAT(refusal(files("b/client", "a")), HasSubstr("is not to be trusted"));
  Talk talk(server(files("a/server")), client(files("b/client", "b")));
  EXPECT_FALSE(talk.is_open());
  EXPECT_THAT(talk.client.error(), HasSubstr("its certificate is not to be trusted"));
  EXPECT_EQ(talk.said_to_server, "");
}

TEST_F(Certified, F55_WithoutACertificateNobodyComesIn) {
  const comm::Secret secret(std::string(32, 's'), "the test");
  Talk talk(server(files("a/server")), TlsContext::with_secret(secret, TlsSide::kClient));
  EXPECT_FALSE(talk.is_open());
  Talk other(TlsContext::with_secret(secret, TlsSide::kServer), client(files("a/client")));
  EXPECT_FALSE(other.is_open());
}

TEST_F(Certified, F56_TheSystemsAuthoritiesAreNotTrusted) {
  setenv("SSL_CERT_FILE", (folder() + "/b/ca.crt").c_str(), 1);
  EXPECT_THAT(refusal(files("b/client", "a")), HasSubstr("is not to be trusted"));
  unsetenv("SSL_CERT_FILE");
}

TEST_F(Certified, F57_ExpiredAndNotYetValidOnesAreNamed) {
  CertificateFiles without_list = files("a/client");
  without_list.revocation_path.clear();
  EXPECT_THAT(refusal(without_list, now_s() + 366 * kDay), HasSubstr("certificate has expired"));
  EXPECT_THAT(refusal(without_list, now_s() - kDay), HasSubstr("certificate is not yet valid"));
  EXPECT_THAT(read_certificates(files("a/client"), now_s()).warnings, IsEmpty());
  const auto late = read_certificates(files("a/client"), now_s() + 300 * kDay);
  ASSERT_EQ(late.warnings.size(), 2U);
  EXPECT_THAT(late.warnings[0], HasSubstr("the certificate will expire in 6"));
}

TEST_F(Certified, F58_WhoHasNotShownWhoItIsCannotSayThatOneIsRevoked) {
  TlsSession session(client(files("a/worker_1")));
  std::string said;
  session.receive({}, said);
  // A fatal alert of that reason, as anybody at the port can send it.
  session.receive(std::string_view("\x15\x03\x03\x00\x02\x02\x2c", 7), said);
  EXPECT_EQ(session.state(), TlsSession::State::kFailed);
  EXPECT_THAT(session.error(), HasSubstr("is revoked"));
  EXPECT_FALSE(session.is_own_certificate_revoked());
}

TEST_F(Certified, F58_ARevokedOneIsNotBelievedAlsoByWhoHasItAlready) {
  const auto before = server(files("a/server"));
  const auto of_client = client(files("a/client"));
  Talk talk(before, of_client);
  ASSERT_TRUE(talk.is_open());
  const CertificateFiles revoked = files("a/client");
  revoke_certificate(folder() + "/a", "client", Password("pass"), now_s());
  const auto after = server(files("a/server"));
  EXPECT_THAT(talk.server.why_untrusted(*after, now_s()), HasSubstr("revoked"));
  EXPECT_EQ(talk.server.why_untrusted(*before, now_s()), "");
  EXPECT_THAT(refusal(revoked), HasSubstr("certificate revoked"));
  EXPECT_TRUE(Talk(after, of_client).client.is_own_certificate_revoked());
  Talk other(after, client(files("a/worker_1")));
  EXPECT_TRUE(other.is_open()) << other.server.error();
}

TEST_F(Certified, F59_AListThatCannotBeUsedAdmitsNobody) {
  const auto with_list = [&](const std::string& path) {
    CertificateFiles of = files("a/server");
    of.revocation_path = path;
    return refusal(of);
  };
  const std::string garbage = folder() + "/garbage";
  std::ofstream(garbage) << "no list";
  EXPECT_THAT(with_list(folder() + "/none"), HasSubstr("No such file"));
  EXPECT_THAT(with_list(garbage), HasSubstr("is none in PEM"));
  EXPECT_THAT(with_list(folder() + "/b/crl.pem"), HasSubstr("signature that is not the authority's"));
  EXPECT_THAT(refusal(files("a/server"), now_s() + 400 * kDay), HasSubstr("has expired"));
}

TEST_F(Certified, F60_TheWrongRoleIsRefusedOnBothSides) {
  EXPECT_THAT(message_of_refusal([&] { server(files("a/worker_1")); }),
              HasSubstr("is of role worker, with which nobody is a scheduler"));
  EXPECT_THAT(message_of_refusal([&] { client(files("a/server")); }),
              HasSubstr("is of role scheduler, with which nobody joins a job"));
}

TEST_F(Certified, TwoWorkersTalkAsRanksAndNobodyElseDoes) {
  const auto rank = [](const CertificateFiles& of, TlsSide side) {
    return TlsContext::with_certificates(of, side, now_s(), TlsUse::kRanks);
  };
  Talk talk(rank(files("a/worker_1"), TlsSide::kServer), rank(files("a/worker_2"), TlsSide::kClient));
  ASSERT_TRUE(talk.is_open()) << talk.server.error() << talk.client.error();
  EXPECT_EQ(talk.client.identity().node_id, "worker_1");
  for (const TlsSide side : {TlsSide::kServer, TlsSide::kClient}) {
    EXPECT_THAT(message_of_refusal([&] { rank(files("a/server"), side); }),
                HasSubstr("is of role scheduler, with which nobody is a rank"));
    EXPECT_THAT(message_of_refusal([&] { rank(files("a/observer"), side); }),
                HasSubstr("is of role observer, with which nobody is a rank"));
  }
  // Those who joined a scheduler by their certificates, too.
  Talk with_scheduler(server(files("a/server")), rank(files("a/worker_1"), TlsSide::kClient));
  EXPECT_EQ(with_scheduler.client.error(), "its certificate is not a worker's");
  Talk with_observer(rank(files("a/worker_1"), TlsSide::kServer), client(files("a/observer")));
  EXPECT_FALSE(with_observer.is_open());
  Talk of_others(rank(files("a/worker_1"), TlsSide::kServer), rank(files("b/client", "b"), TlsSide::kClient));
  EXPECT_FALSE(of_others.is_open());
}

TEST_F(Certified, F61_FilesThatCannotBeUsedAreNamedWithoutTheirPassword) {
  EXPECT_THAT(refusal(files("a/server", "a", "wrong")), HasSubstr("the password is wrong"));
  EXPECT_THAT(refusal(files("a/server", "a", "")), HasSubstr("the password is missing"));
  EXPECT_EQ(refusal(files("a/server", "a", "wrong")).find("wrong\""), std::string::npos);
  std::ofstream(folder() + "/garbage.p12") << "no container";
  std::filesystem::permissions(folder() + "/garbage.p12", std::filesystem::perms(0600));
  EXPECT_THAT(refusal(files("garbage")), HasSubstr("is no PKCS#12"));
  EXPECT_THAT(refusal(files("none")), HasSubstr("No such file"));
  std::filesystem::copy_file(folder() + "/a/server.p12", folder() + "/open.p12");
  std::filesystem::permissions(folder() + "/open.p12", std::filesystem::perms(0644));
  EXPECT_THAT(refusal(files("open")), HasSubstr("others may read or write it; chmod 600"));
}

TEST_F(Certified, KeysAreReadByTheirOwnerOnlyAndNothingIsOverwritten) {
  for (const char* name : {"ca.key", "server.p12", "client.p12", "observer.p12", "worker_1.p12"}) {
    struct stat status {};
    ASSERT_EQ(stat((folder() + "/a/" + name).c_str(), &status), 0) << name;
    EXPECT_EQ(status.st_mode & 0777U, 0600U) << name;
  }
  EXPECT_THAT(message_of_refusal([&] {
                make_certificates({.directory = folder() + "/a", .password = Password("x"), .node_ids = {}}, now_s());
              }),
              HasSubstr("is there already"));
}

TEST_F(Certified, TheConfigurationThatIsMadeIsRead) {
  const CertificateFiles found = read_tls_config(folder() + "/a/config.json", TlsSide::kServer, Password("pass"));
  EXPECT_THAT(found.identity_path, testing::EndsWith("a/server.p12"));
  EXPECT_EQ(read_certificates(found, now_s()).identity.role, CertificateRole::kScheduler);
  std::ofstream(folder() + "/wrong.json") << "{\"ca_cert_path\": 3}";
  EXPECT_THAT(message_of_refusal([&] { read_tls_config(folder() + "/wrong.json", TlsSide::kClient, Password()); }),
              HasSubstr("needs a text for client_cert_path"));
  std::ofstream(folder() + "/misspelt.json") << "{\"crl_paht\": \"crl.pem\"}";
  EXPECT_THAT(message_of_refusal([&] { read_tls_config(folder() + "/misspelt.json", TlsSide::kClient, Password()); }),
              HasSubstr("crl_paht, which is no key of it; did you mean crl_path?"));
}

TEST(CipherList, F62_NamesThatAreNoneAreSaidWithTheirPosition) {
  const CipherList list =
      parse_cipher_list("ECDHE-R SA-AES128-GCM-SHA256:ECDHE-ECDSA-AES256-GCM-SHA384:DHE-DSS-AES256-GCM-SHA384");
  EXPECT_EQ(list.suites, "TLS_AES_256_GCM_SHA384");
  EXPECT_THAT(list.notes, ElementsAre("cipher 1, \"ECDHE-R SA-AES128-GCM-SHA256\", is not known",
                                      "cipher 3, \"DHE-DSS-AES256-GCM-SHA384\", is none that Tessera uses"));
  EXPECT_THAT(message_of_refusal([] { parse_cipher_list("PSK-CHACHA20-POLY1305:NULL"); }),
              HasSubstr("has no cipher that can be used"));
  EXPECT_THAT(parse_cipher_list("").suites, HasSubstr("TLS_AES_128_GCM_SHA256"));
}

TEST_F(Certified, F62_CiphersThatDoNotOverlapAreNoConnection) {
  CertificateFiles one = files("a/server");
  one.ciphers = "TLS_AES_256_GCM_SHA384";
  CertificateFiles other = files("a/worker_1");
  other.ciphers = "TLS_CHACHA20_POLY1305_SHA256";
  Talk talk(server(one), client(other));
  EXPECT_FALSE(talk.is_open());
  EXPECT_THAT(talk.server.error(), HasSubstr("no shared cipher"));
}

TEST(TlsBySecret, OpensForTheSameSecretOnly) {
  const auto context = [](char letter, TlsSide side) {
    return TlsContext::with_secret(comm::Secret(std::string(32, letter), "the test"), side);
  };
  Talk same(context('a', TlsSide::kServer), context('a', TlsSide::kClient));
  EXPECT_TRUE(same.is_open()) << same.server.error() << same.client.error();
  EXPECT_FALSE(same.server.identity().is_certified);
  Talk other(context('a', TlsSide::kServer), context('b', TlsSide::kClient));
  EXPECT_FALSE(other.is_open());
  EXPECT_THAT(other.server.error(), HasSubstr("it does not know the job's secret"));
  EXPECT_THAT(other.client.error(), HasSubstr("it does not know the job's secret, or is no scheduler"));
}

TEST(TlsBySecret, WhatIsShownForOneUseShowsNothingForAnother) {
  const comm::Secret secret(std::string(32, 'a'), "the test");
  constexpr TlsUse kUses[] = {TlsUse::kRendezvous, TlsUse::kRanks, TlsUse::kHub};
  for (const TlsUse of_server : kUses) {
    for (const TlsUse of_client : kUses) {
      Talk talk(TlsContext::with_secret(secret, TlsSide::kServer, of_server),
                TlsContext::with_secret(secret, TlsSide::kClient, of_client));
      EXPECT_EQ(talk.is_open(), of_server == of_client);
    }
  }
}

TEST(TlsBySecret, EachConnectionHasABindingOfItsOwn) {
  const comm::Secret secret(std::string(32, 'a'), "the test");
  const auto of_server = TlsContext::with_secret(secret, TlsSide::kServer);
  const auto of_client = TlsContext::with_secret(secret, TlsSide::kClient);
  Talk one(of_server, of_client);
  Talk other(of_server, of_client);
  EXPECT_EQ(one.server.binding().size(), 32U);
  EXPECT_EQ(one.server.binding(), one.client.binding());
  EXPECT_NE(one.server.binding(), other.server.binding());
}

TEST(TlsBySecret, AnOpenConnectionIsHandedOverBetweenItsWords) {
  const comm::Secret secret(std::string(32, 'a'), "the test");
  Talk talk(TlsContext::with_secret(secret, TlsSide::kServer), TlsContext::with_secret(secret, TlsSide::kClient));
  talk.client.send("half said");
  EXPECT_THROW(talk.client.release(), InternalError);
  const std::string record = talk.client.take_output();
  EXPECT_NE(talk.client.release(), nullptr);
  EXPECT_EQ(talk.client.state(), TlsSession::State::kEnded);
  EXPECT_EQ(talk.client.take_output(), "");
  talk.server.receive(record, talk.said_to_server);
  EXPECT_EQ(talk.said_to_server, "half said");
}

TEST(TlsBySecret, EveryFlippedBitOfAMemberEndsItsConnection) {
  const comm::Secret secret(std::string(32, 'a'), "the test");
  const auto of_server = TlsContext::with_secret(secret, TlsSide::kServer);
  const auto of_client = TlsContext::with_secret(secret, TlsSide::kClient);
  Talk talk(of_server, of_client);
  talk.client.send("a frame");
  const std::string record = talk.client.take_output();
  for (size_t byte = 0; byte < record.size(); ++byte) {
    Talk fresh(of_server, of_client);
    ASSERT_TRUE(fresh.is_open());
    fresh.client.send("a frame");
    std::string damaged = fresh.client.take_output();
    damaged[byte] = static_cast<char>(damaged[byte] ^ 1);
    std::string said;
    fresh.server.receive(damaged + std::string(300, '\0'), said);
    EXPECT_EQ(said, "");
    EXPECT_EQ(fresh.server.state(), TlsSession::State::kFailed) << byte;
  }
}

TEST(IdentityUri, ComesBackAndNothingElseIsOne) {
  const auto identity = parse_identity_uri(print_identity_uri(CertificateRole::kWorker, "left/0"));
  ASSERT_TRUE(identity);
  EXPECT_EQ(identity->node_id, "left/0");
  for (const char* wrong : {"", "tessera:", "tessera:worker", "tessera:worker:", "tessera:root:x", "https://worker:x",
                            "tessera:worker:a b"}) {
    EXPECT_FALSE(parse_identity_uri(wrong)) << wrong;
  }
}

}  // namespace
}  // namespace tessera::cluster
