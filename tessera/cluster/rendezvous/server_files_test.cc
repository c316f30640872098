// Claims about what a scheduler reads and writes while it runs: certificates that change, and a disk that is full.
#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <unistd.h>

#include <atomic>
#include <chrono>
#include <ctime>
#include <filesystem>
#include <future>
#include <memory>
#include <string>
#include <thread>
#include <vector>

#include "tessera/base/error.h"
#include "tessera/cluster/rendezvous/ask_status.h"
#include "tessera/cluster/rendezvous/client.h"
#include "tessera/cluster/rendezvous/membership/scheduler_state.h"
#include "tessera/cluster/rendezvous/server.h"
#include "tessera/cluster/rendezvous/test_peer.h"
#include "tessera/cluster/tls/make_certificates.h"

namespace tessera::cluster::rendezvous {
namespace {

using std::chrono::milliseconds;

TlsOptions certificates_of(const std::string& folder, const std::string& who) {
  return {.secret = {},
          .certificates = CertificateFiles{.identity_path = folder + "/" + who + ".p12",
                                           .password = Password("pass"),
                                           .authority_path = folder + "/ca.crt",
                                           .revocation_path = folder + "/crl.pem",
                                           .ciphers = ""}};
}

class RunningServer {
 public:
  RunningServer(const ServerOptions& options, FileSystem& files, Clock& clock)
      : server_(options, files, clock), thread_([this] { server_.run(); }) {}
  ~RunningServer() {
    server_.stop();
    thread_.join();
  }
  uint16_t port() const { return server_.address().port; }

 private:
  RendezvousServer server_;
  std::thread thread_;
};

class MadeCertificates : public testing::Test {
 protected:
  MadeCertificates() {
    std::filesystem::remove_all(folder);
    make_certificates({.directory = folder, .password = Password("pass"), .node_ids = {"a"}}, std::time(nullptr));
  }
  ~MadeCertificates() override { std::filesystem::remove_all(folder); }

  // Whether the server answers who shows the certificate of clients and does not know itself that it is revoked.
  bool is_admitted(const RunningServer& server) const {
    TlsOptions tls = certificates_of(folder, "client");
    tls.certificates->revocation_path = "";
    try {
      ask_status({"127.0.0.1", server.port()}, tls, 20000);
      return true;
    } catch (const IoError&) {
      return false;
    }
  }
  // Revokes that certificate, and waits until the server has read so; it reads the files every 500 ms.
  void revoke_and_wait(const RunningServer& server) const {
    revoke_certificate(folder, "client", Password("pass"), std::time(nullptr));
    const auto end = std::chrono::steady_clock::now() + std::chrono::seconds(60);
    while (is_admitted(server)) {
      ASSERT_LT(std::chrono::steady_clock::now(), end) << "the server has not read the files again";
      std::this_thread::sleep_for(milliseconds(50));
    }
  }

  const std::string folder = testing::TempDir() + fmt::format("server_files_test_{}", getpid());
};

TEST_F(MadeCertificates, WhoIsRevokedDuringTheHandshakeIsNotLetIn) {
  const RunningServer server({.tls = certificates_of(folder, "server"), .scheduler = {.num_workers = 2}},
                             FileSystem::local(), Clock::system());
  const TlsOptions tls = certificates_of(folder, "client");
  TestPeer early(server.port());
  early.begin_handshake(tls);
  ASSERT_TRUE(is_admitted(server));  // and so the one before is accepted, with the files of now
  revoke_and_wait(server);
  if (early.finish_handshake()) {
    EXPECT_FALSE(early.enroll("any"));
    EXPECT_TRUE(early.is_hung_up());
  }
}

TEST_F(MadeCertificates, AMemberShowsItsRenewedCertificateWhenItsOldOneIsRevoked) {
  using std::filesystem::copy_options;
  const std::string other = folder + "_other";
  std::filesystem::remove_all(other);
  std::filesystem::create_directories(other);
  const auto put = [&](const std::string& name) {
    std::filesystem::copy_file(folder + "/" + name + ".p12", other + "/mine.p12", copy_options::overwrite_existing);
  };
  put("client");
  const RunningServer server({.tls = certificates_of(folder, "server"), .scheduler = {.num_workers = 1}},
                             FileSystem::local(), Clock::system());
  auto tls = certificates_of(folder, "client");
  tls.certificates->identity_path = other + "/mine.p12";
  RendezvousClient client({.scheduler = {"127.0.0.1", server.port()}, .tls = tls, .host = "here", .node_ids = {"a"}},
                          [](const RendezvousEnd&) {});
  EXPECT_EQ(client.wait_for_generation().number, 1U);
  put("a");
  revoke_and_wait(server);
  EXPECT_EQ(client.set_state("seed", "7", 20000), "7");
  std::filesystem::remove_all(other);
}

TEST_F(MadeCertificates, AMemberWhoseCertificateWasRevokedIsToldSoAndEnds) {
  auto server = std::make_unique<RunningServer>(
      ServerOptions{.tls = certificates_of(folder, "server"), .scheduler = {.num_workers = 1}}, FileSystem::local(),
      Clock::system());
  std::promise<RendezvousEnd> told;
  std::atomic<bool> is_told = false;
  RendezvousClient client({.scheduler = {"127.0.0.1", server->port()},
                           .tls = certificates_of(folder, "client"),
                           .host = "here",
                           .node_ids = {"a"},
                           .refusal_ms = 200},
                          [&](const RendezvousEnd& end) {
                            if (!is_told.exchange(true)) told.set_value(end);
                          });
  EXPECT_EQ(client.wait_for_generation().number, 1U);
  revoke_certificate(folder, "client", Password("pass"), std::time(nullptr));
  auto end = told.get_future();
  ASSERT_EQ(end.wait_for(std::chrono::seconds(20)), std::future_status::ready);
  const RendezvousEnd heard = end.get();
  EXPECT_EQ(heard.kind, RendezvousEnd::Kind::kRefused);
  EXPECT_THAT(heard.reason, testing::HasSubstr("is on the scheduler's list of revoked ones"));
}

// Every file that is begun fails.
struct FullDisk : MemoryFileSystem {
  std::unique_ptr<WritableFile> create(const std::string& path, unsigned /*mode*/) override {
    ++tries;
    throw IoError("{}: No space left on device", path);
  }
  std::atomic<int> tries = 0;
};

// 40 times as fast as the system's from when it is told to be.
struct FastClock : Clock {
  void sleep_ms(int64_t /*ms*/) override {}
  int64_t monotonic_ns() const override {
    const int64_t now = Clock::system().monotonic_ns();
    if (!is_fast) begin = now;
    return begin + (now - begin) * 40;
  }
  int64_t wall_ms() const override { return Clock::system().wall_ms(); }
  std::atomic<bool> is_fast = false;
  mutable std::atomic<int64_t> begin = 0;
};

TEST(SchedulersState, AFullDiskIsTriedEverySecondAndWarnedOfEveryMinute) {
  FullDisk files;
  FastClock clock;
  files.create_directories("d");
  const TlsOptions tls{.secret = comm::Secret(std::string(32, 's'), "the test"), .certificates = std::nullopt};
  constexpr int64_t kNever = int64_t{1} << 50;
  const ServerOptions options{
      .tls = tls,
      .scheduler = {.num_workers = 1, .join_timeout_ms = kNever, .node_timeout_ms = kNever, .reconnect_ms = kNever},
      .state_path = "d/state"};
  const int64_t begin_ns = clock.monotonic_ns();
  const auto passed_s = [&] { return static_cast<double>(clock.monotonic_ns() - begin_ns) * 1e-9; };
  testing::internal::CaptureStderr();
  {
    const RunningServer server(options, files, clock);
    TestPeer peer(server.port());
    EXPECT_TRUE(peer.shake_hands(tls));
    peer.enroll("a");
    clock.is_fast = true;
    while (passed_s() < 160) std::this_thread::sleep_for(milliseconds(10));
    // Whoever tries now has two warnings behind it, one of them a minute after the other.
    const int before = files.tries;
    while (files.tries < before + 2) std::this_thread::sleep_for(milliseconds(10));
  }
  const double seconds = passed_s();
  const std::string text = testing::internal::GetCapturedStderr();
  int warnings = 0;
  for (size_t at = 0; (at = text.find("cannot save its state", at)) != std::string::npos; ++at) ++warnings;
  EXPECT_GE(warnings, 2);
  EXPECT_LE(warnings, seconds / 60 + 2);
  EXPECT_GE(files.tries, 3);
  EXPECT_LE(files.tries, seconds + 10);
}

TEST(SchedulersState, BelongsToOneSchedulerWhileThatLives) {
  const std::string folder = testing::TempDir() + fmt::format("state_of_one_scheduler_{}", getpid());
  std::filesystem::remove_all(folder);
  std::filesystem::create_directories(folder);
  const ServerOptions options{
      .tls = {.secret = comm::Secret(std::string(32, 's'), "the test"), .certificates = std::nullopt},
      .scheduler = {.num_workers = 1},
      .state_path = folder + "/job.state"};
  {
    const RendezvousServer first(options, FileSystem::local(), Clock::system());
    EXPECT_THAT([&] { RendezvousServer(options, FileSystem::local(), Clock::system()); },
                testing::ThrowsMessage<InvalidArgument>(testing::HasSubstr(
                    fmt::format("job.state belongs to a scheduler that lives, process {}: end that one", getpid()))));
  }
  EXPECT_TRUE(std::filesystem::is_empty(folder)) << "nothing of the first is left";
  const RendezvousServer next(options, FileSystem::local(), Clock::system());
  std::filesystem::remove_all(folder);
}

TEST(TurnedAway, IsNamedByItsAddressAlsoWhenItHasHungUpBefore) {
  const ServerOptions options{
      .tls = {.secret = comm::Secret(std::string(32, 's'), "the test"), .certificates = std::nullopt},
      .scheduler = {.num_workers = 1}};
  testing::internal::CaptureStderr();
  {
    RendezvousServer server(options, FileSystem::local(), Clock::system());
    {
      const TestPeer hasty(server.address().port);
      hasty.say_plain("GET / HTTP/1.1\r\n\r\n");
      hasty.reset_when_closed();
    }
    const TestPeer patient(server.address().port);
    patient.say_plain("GET / HTTP/1.1\r\n\r\n");
    std::thread thread([&] { server.run(); });
    patient.hear_plain();  // until it is turned away, as the hasty one was before
    server.stop();
    thread.join();
  }
  const std::string text = testing::internal::GetCapturedStderr();
  EXPECT_THAT(text, testing::HasSubstr("has turned away a connection from 127.0.0.1: "));
  EXPECT_THAT(text, testing::Not(testing::HasSubstr("a connection from : ")));
}

TEST(SchedulersState, HasTheEndOfAWorkerBeforeThatWorkerGoes) {
  const std::string folder = testing::TempDir() + fmt::format("server_files_test_end_{}", getpid());
  std::filesystem::create_directories(folder);
  const TlsOptions tls{.secret = comm::Secret(std::string(32, 's'), "the test"), .certificates = std::nullopt};
  for (int round = 0; round < 20; ++round) {
    const std::string path = fmt::format("{}/{}.state", folder, round);
    const RunningServer server({.tls = tls, .scheduler = {.num_workers = 2}, .state_path = path}, FileSystem::local(),
                               Clock::system());
    std::vector<std::unique_ptr<RendezvousClient>> clients;
    for (const char* id : {"a", "b"}) {
      clients.push_back(std::make_unique<RendezvousClient>(
          ClientOptions{.scheduler = {"127.0.0.1", server.port()}, .tls = tls, .host = "here", .node_ids = {id}},
          [](const RendezvousEnd&) {}));
    }
    for (const auto& client : clients) client->wait_for_generation();
    clients[0]->leave("a", /*failed=*/false, "", 60000);
    const SchedulerState saved = load_scheduler_state(FileSystem::local(), path);
    ASSERT_EQ(saved.nodes.size(), 2U);
    EXPECT_TRUE(saved.nodes[0].has_finished);
  }
  std::filesystem::remove_all(folder);
}

// No file is made while it is held.
struct HeldDisk : MemoryFileSystem {
  std::unique_ptr<WritableFile> create(const std::string& path, unsigned mode) override {
    ++saves;
    while (is_held) std::this_thread::sleep_for(milliseconds(1));
    return MemoryFileSystem::create(path, mode);
  }
  std::atomic<int> saves = 0;
  std::atomic<bool> is_held = false;
};

TEST(SchedulersState, IsSavedOnceForManyThatComeAtOnce) {
  constexpr int kWorkers = 40;
  HeldDisk files;
  files.create_directories("d");
  const TlsOptions tls{.secret = comm::Secret(std::string(32, 's'), "the test"), .certificates = std::nullopt};
  const RunningServer server({.tls = tls, .scheduler = {.num_workers = kWorkers}, .state_path = "d/state"}, files,
                             Clock::system());
  std::vector<std::unique_ptr<TestPeer>> peers;
  for (int i = 0; i < kWorkers; ++i) {
    peers.push_back(std::make_unique<TestPeer>(server.port()));
    ASSERT_TRUE(peers.back()->shake_hands(tls));
  }
  // All come before the first one's state is saved.
  files.is_held = true;
  for (int i = 0; i < kWorkers; ++i) {
    peers[static_cast<size_t>(i)]->say(Register{.incarnation = 1, .host = "here", .node_ids = {std::to_string(i)}});
  }
  files.is_held = false;
  for (const auto& peer : peers) EXPECT_TRUE(peer->hear_until<Assigned>());
  EXPECT_LT(files.saves, kWorkers / 2);
}

}  // namespace
}  // namespace tessera::cluster::rendezvous
