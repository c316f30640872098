// Claims about the scheduler at its port: members meet and come back, strangers and members that have gone wrong cost
// nothing but their connections.
#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <sys/resource.h>
#include <unistd.h>

#include <asio/io_context.hpp>
#include <asio/ip/tcp.hpp>
#include <atomic>
#include <chrono>
#include <cstdio>
#include <filesystem>
#include <fstream>
#include <memory>
#include <new>
#include <string>
#include <thread>
#include <vector>

#include "tessera/base/error.h"
#include "tessera/cluster/rendezvous/ask_status.h"
#include "tessera/cluster/rendezvous/client.h"
#include "tessera/cluster/rendezvous/server.h"
#include "tessera/cluster/rendezvous/test_peer.h"
#include "tessera/cluster/rendezvous/ticking_loop.h"

namespace tessera::cluster::rendezvous {
namespace {

using testing::HasSubstr;

TlsOptions secret_of(char letter) {
  return {.secret = comm::Secret(std::string(32, letter), "the test"), .certificates = std::nullopt};
}

// A scheduler in a thread of its own.
class Running {
 public:
  explicit Running(ServerOptions options) {
    if (!options.tls.secret && !options.tls.certificates) options.tls = secret_of('s');
    server = std::make_unique<RendezvousServer>(options, FileSystem::local(), Clock::system());
    thread = std::thread([this] { phase = server->run(); });
  }
  explicit Running(int num_workers) : Running(ServerOptions{.scheduler = {.num_workers = num_workers}}) {}
  ~Running() {
    server->stop();
    if (thread.joinable()) thread.join();
  }
  JobPhase wait() {
    thread.join();
    return phase;
  }
  uint16_t port() const { return server->address().port; }
  ClientOptions client(const std::string& node_id) const {
    return {.scheduler = server->address(),
            .tls = secret_of('s'),
            .host = "here",
            .node_ids = {node_id},
            .join_timeout_ms = 20000};
  }
  JobStatus status() const { return ask_status(server->address(), secret_of('s'), 20000).status; }

  std::unique_ptr<RendezvousServer> server;
  std::thread thread;
  JobPhase phase = JobPhase::kWaiting;
};

// A client that notes its end.
struct Member {
  explicit Member(const ClientOptions& options)
      : client(options, [this](const RendezvousEnd& heard) {
          const std::lock_guard lock(mutex);
          end = heard;
        }) {}
  std::optional<RendezvousEnd> heard() {
    const std::lock_guard lock(mutex);
    return end;
  }
  std::mutex mutex;
  std::optional<RendezvousEnd> end;
  RendezvousClient client;
};

template <typename Holds>
bool eventually(Holds&& holds) {
  const auto end = std::chrono::steady_clock::now() + std::chrono::seconds(20);
  while (!holds()) {
    if (std::chrono::steady_clock::now() > end) return false;
    std::this_thread::sleep_for(std::chrono::milliseconds(5));
  }
  return true;
}

TEST(RendezvousServer, MembersGetRanksTellEachOtherValuesAndLeave) {
  Running running(2);
  Member b(running.client("b"));
  Member a(running.client("a"));
  const Generation of_a = a.client.wait_for_generation();
  EXPECT_EQ(of_a.ranks.at("a"), 0);
  EXPECT_EQ(of_a.size, 2);
  EXPECT_EQ(of_a.number, 1U);
  EXPECT_TRUE(of_a.is_one_host);
  EXPECT_EQ(b.client.wait_for_generation().ranks.at("b"), 1);
  EXPECT_EQ(b.client.find("where", 1), std::nullopt);
  a.client.set("where", std::string(1 << 20, 'w'));
  EXPECT_EQ(b.client.get("where", 20000).size(), size_t{1} << 20);
  EXPECT_EQ(a.client.set_state("decisions", "1", 20000), "1");
  EXPECT_EQ(b.client.set_state("decisions", "2", 20000), "2");
  EXPECT_EQ(b.client.find_state("kernel table", 20000), std::nullopt);
  const JobStatus status = running.status();
  EXPECT_EQ(status.phase, JobPhase::kRunning);
  EXPECT_EQ(status.nodes.size(), 2U);
  a.client.leave("a", false, "");
  b.client.leave("b", false, "");
  EXPECT_EQ(running.wait(), JobPhase::kFinished);
}

TEST(RendezvousServer, ShowsWhatMembersTellOfTheirTrainings) {
  std::mutex mutex;
  std::string told;
  ServerOptions options{.scheduler = {.num_workers = 1, .wants_figures = true}};
  options.on_status = [&](const JobStatus& /*status*/, uint64_t /*generation*/,
                          const std::function<std::string(const std::string&)>& figures_of) {
    const std::lock_guard lock(mutex);
    told = figures_of("a");
  };
  Running running(options);
  Member a(running.client("a"));
  a.client.wait_for_generation();
  EXPECT_TRUE(a.client.wants_figures());
  a.client.report_figures(R"({"step":7})");
  EXPECT_TRUE(eventually([&] {
    const std::lock_guard lock(mutex);
    return told == R"({"step":7})";
  }));
}

TEST(RendezvousServer, WorkersMayComeFirstAndWait) {
  std::unique_ptr<Member> early;
  HostPort address;
  {
    Running probe(1);  // a port that is free
    address = probe.server->address();
    early = std::make_unique<Member>([&] {
      ClientOptions options = probe.client("early");
      probe.server->stop();
      probe.thread.join();
      return options;
    }());
  }
  EXPECT_EQ(early->client.find_generation(50), std::nullopt);
  Running running(ServerOptions{.address = address, .scheduler = {.num_workers = 1}});
  EXPECT_EQ(early->client.wait_for_generation().ranks.at("early"), 0);
}

TEST(RendezvousServer, F03_MembersComeBackToASchedulerThatHasDied) {
  const std::string folder = testing::TempDir() + fmt::format("rendezvous_state_{}", getpid());
  std::filesystem::remove_all(folder);
  std::filesystem::create_directories(folder);
  ServerOptions options{.scheduler = {.num_workers = 2}, .state_path = folder + "/job"};
  auto running = std::make_unique<Running>(options);
  options.address = running->server->address();
  Member b(running->client("b"));
  Member a(running->client("a"));
  a.client.wait_for_generation();
  b.client.wait_for_generation();
  a.client.set("before", "1");
  a.client.set_state("decisions", "the plan", 20000);
  running.reset();
  a.client.set("meanwhile", "2");
  EXPECT_EQ(b.client.find("meanwhile", 50), std::nullopt);
  running = std::make_unique<Running>(options);
  EXPECT_EQ(b.client.get("meanwhile", 20000), "2");
  EXPECT_EQ(b.client.get("before", 20000), "1");
  EXPECT_EQ(b.client.find_state("decisions", 20000), "the plan");
  const JobStatus status = running->status();
  EXPECT_EQ(status.phase, JobPhase::kRunning);
  EXPECT_EQ(status.nodes[1].rank, 1U);
  EXPECT_EQ(a.heard(), std::nullopt);
  std::filesystem::remove_all(folder);
}

TEST(RendezvousServer, HearsOfTheEndFromALauncherThatStaysUntilItIsStartedAgain) {
  const std::string folder = testing::TempDir() + fmt::format("rendezvous_end_{}", getpid());
  std::filesystem::remove_all(folder);
  std::filesystem::create_directories(folder);
  ServerOptions options{.scheduler = {.num_workers = 2}, .state_path = folder + "/job"};
  auto running = std::make_unique<Running>(options);
  options.address = running->server->address();
  ClientOptions of_launcher = running->client("a");
  of_launcher.role = PeerRole::kLauncher;
  of_launcher.node_ids = {"a", "b"};
  of_launcher.incarnation = 1;
  Member launcher(of_launcher);
  const auto start = [&](const char* id) {
    ClientOptions of_worker = running->client(id);
    of_worker.incarnation = 1;
    auto worker = std::make_unique<Member>(of_worker);
    worker->client.wait_for_generation();
    return worker;
  };
  launcher.client.wait_for_generation();
  auto a = start("a");
  auto b = start("b");
  EXPECT_EQ(launcher.client.return_ms(), options.scheduler.node_timeout_ms);
  running.reset();
  a.reset();
  b.reset();
  for (const char* id : {"a", "b"}) launcher.client.leave(id, /*failed=*/false, "", /*limit_ms=*/0);
  EXPECT_FALSE(launcher.client.wait_until_heard(0));
  running = std::make_unique<Running>(options);
  EXPECT_TRUE(launcher.client.wait_until_heard(20000));
  EXPECT_EQ(running->wait(), JobPhase::kFinished);
  std::filesystem::remove_all(folder);
}

TEST(RendezvousServer, WithoutAStateIsNotExpectedBack) {
  const Running running(1);
  Member a(running.client("a"));
  a.client.wait_for_generation();
  EXPECT_EQ(a.client.return_ms(), 0);
}

TEST(RendezvousServer, ASchedulerWithoutItsStateIsNotJoinedAgain) {
  auto running = std::make_unique<Running>(1);
  Member a(running->client("a"));
  a.client.wait_for_generation();
  const HostPort address = running->server->address();
  running.reset();
  running = std::make_unique<Running>(ServerOptions{.address = address, .scheduler = {.num_workers = 1}});
  ASSERT_TRUE(eventually([&] { return a.heard().has_value(); }));
  EXPECT_EQ(a.heard()->kind, RendezvousEnd::Kind::kRefused);
  EXPECT_THAT(a.heard()->reason, HasSubstr("was the scheduler started without its state?"));
}

TEST(RendezvousServer, ValuesThatMembersForgetStayForgotten) {
  const std::string folder = testing::TempDir() + fmt::format("rendezvous_forgotten_{}", getpid());
  std::filesystem::remove_all(folder);
  std::filesystem::create_directories(folder);
  ServerOptions options{.scheduler = {.num_workers = 2}, .state_path = folder + "/job"};
  auto running = std::make_unique<Running>(options);
  options.address = running->server->address();
  Member b(running->client("b"));
  Member a(running->client("a"));
  a.client.wait_for_generation();
  b.client.wait_for_generation();
  const std::string large(1 << 20, 'l');
  for (int i = 0; i < 20; ++i) {  // more than a member may keep
    const std::string name = std::to_string(i);
    a.client.set(name, large);
    EXPECT_EQ(b.client.get(name, 20000).size(), large.size());
    a.client.forget(name);
    b.client.forget(name);
  }
  a.client.set("after the last", "");
  b.client.get("after the last", 20000);
  EXPECT_EQ(b.client.find("19", 50), std::nullopt);
  // Nor does it come back when the scheduler does.
  a.client.set("kept", "1");
  EXPECT_EQ(b.client.get("kept", 20000), "1");
  running.reset();
  a.client.forget("kept");
  b.client.forget("kept");
  running = std::make_unique<Running>(options);
  a.client.set("new", "2");
  EXPECT_EQ(b.client.get("new", 20000), "2");
  EXPECT_EQ(b.client.find("kept", 50), std::nullopt);
  EXPECT_EQ(a.heard(), std::nullopt);
  std::filesystem::remove_all(folder);
}

TEST(TickingLoop, TicksOnAfterTicksThatThrow) {
  TickingLoop loop;
  int count = 0;
  loop.run("the test's loop", [&] {
    if (++count < 4) throw std::bad_alloc();
    loop.stop();
  });
  EXPECT_EQ(count, 4);
}

TEST(TickingLoop, EndsByATickThatStopsItAndThrows) {
  TickingLoop loop;
  int count = 0;
  loop.run("the test's loop", [&] {
    ++count;
    loop.stop();
    throw std::bad_alloc();
  });
  EXPECT_EQ(count, 1);
}

TEST(RendezvousServer, GoesOnAfterATickThatThrows) {
  std::atomic<int> num_thrown = 0;
  ServerOptions options{.scheduler = {.num_workers = 2, .max_restarts = 9, .reconnect_ms = 1},
                        .on_news = [&](const std::string& line) {
                          if (line.find("is lost") == std::string::npos) return;
                          ++num_thrown;
                          throw std::bad_alloc();
                        }};
  Running running(options);
  Member a(running.client("a"));
  {
    Member b(running.client("b"));
    b.client.wait_for_generation();
  }
  EXPECT_TRUE(eventually([&] { return a.heard().has_value(); }));
  EXPECT_EQ(num_thrown, 1);
}

TEST(RendezvousClient, F11_TheNewerProcessWinsThoughTheOlderOneComesLast) {
  Running running(ServerOptions{.scheduler = {.num_workers = 2, .max_restarts = 9}});
  const auto older = [&] {
    const Member gone(running.client("a"));
    return gone.client.incarnation();
  }();
  Member newer(running.client("a"));
  EXPECT_LT(older, newer.client.incarnation());
  ASSERT_TRUE(eventually([&] { return newer.client.token() != 0; }));
  ClientOptions options = running.client("a");
  options.incarnation = older;  // as its launcher has told it
  Member late(options);
  ASSERT_TRUE(eventually([&] { return late.heard().has_value(); }));
  EXPECT_EQ(late.heard()->kind, RendezvousEnd::Kind::kFenced);
  Member b(running.client("b"));
  EXPECT_EQ(newer.client.wait_for_generation().ranks.at("a"), 0);
}

TEST(RendezvousClient, SaysThatItsGenerationHasEnded) {
  Running running(ServerOptions{.scheduler = {.num_workers = 2, .max_restarts = 9, .reconnect_ms = 1}});
  Member a(running.client("a"));
  {
    Member b(running.client("b"));
    b.client.wait_for_generation();
  }
  ASSERT_TRUE(eventually([&] { return a.heard().has_value(); }));
  EXPECT_EQ(a.heard()->kind, RendezvousEnd::Kind::kGenerationEnded);
  try {
    a.client.get("a value that nobody sets", 20000);
    FAIL();
  } catch (const IoError& e) {
    EXPECT_THAT(e.what(), HasSubstr("node a is of a generation that has ended: "));
  }
}

TEST(RendezvousClient, TellsItsOwnerOfAnEndBeforeWhoeverWaits) {
  Running running(ServerOptions{.scheduler = {.num_workers = 2, .max_restarts = 9}});
  std::atomic<bool> has_heard = false;
  RendezvousClient client(running.client("a"), [&](const RendezvousEnd&) {
    std::this_thread::sleep_for(std::chrono::milliseconds(300));
    has_heard = true;
  });
  Member b(running.client("b"));
  client.wait_for_generation();
  b.client.leave("b", true, "the shape is wrong");
  EXPECT_THROW(client.get("a value that nobody sets", 20000), IoError);
  EXPECT_TRUE(has_heard);
}

TEST(RendezvousClient, SaysWhetherItSeeksASchedulerOrHasLostIt) {
  // Of what is captured of standard error.
  const auto said = [] {
    std::string text(1 << 16, '\0');
    text.resize(static_cast<size_t>(std::max<ssize_t>(pread(STDERR_FILENO, text.data(), text.size(), 0), 0)));
    return text;
  };
  const auto heard_of = [&](bool loses) {
    auto running = std::make_unique<Running>(1);
    ClientOptions options = running->client("a");
    options.quiet_ms = 0;
    if (!loses) running.reset();
    testing::internal::CaptureStderr();
    Member a(options);
    if (loses) a.client.wait_for_generation();
    running.reset();
    EXPECT_TRUE(eventually([&] { return said().find("the scheduler at") != std::string::npos; }));
    a.client.close();
    return testing::internal::GetCapturedStderr();
  };
  EXPECT_THAT(heard_of(true), HasSubstr("has lost the scheduler at 127.0.0.1:"));
  EXPECT_THAT(heard_of(false), HasSubstr("has not yet reached the scheduler at 127.0.0.1:"));
}

TEST(RendezvousServer, AFailedMemberEndsTheOthersWithItsRankAndWords) {
  Running running(2);
  Member a(running.client("a"));
  Member b(running.client("b"));
  a.client.wait_for_generation();
  b.client.leave("b", true, "the shape is wrong");
  ASSERT_TRUE(eventually([&] { return a.heard().has_value(); }));
  EXPECT_EQ(a.heard()->kind, RendezvousEnd::Kind::kJobFailed);
  EXPECT_EQ(a.heard()->rank, 1);
  EXPECT_THAT(a.heard()->reason, HasSubstr("the shape is wrong"));
  EXPECT_EQ(running.wait(), JobPhase::kFailed);
  EXPECT_EQ(running.server->failure(), "node b failed: the shape is wrong");
}

TEST(RendezvousServer, AGenerationThatEndedBeforeAMemberLookedIsTheOneItIsIn) {
  Running running(ServerOptions{.scheduler = {.num_workers = 2, .max_restarts = 9}});
  Member a(running.client("a"));
  Member b(running.client("b"));
  b.client.wait_for_generation();
  b.client.leave("b", true, "the shape is wrong");
  ASSERT_TRUE(eventually([&] { return a.heard().has_value(); }));
  ASSERT_EQ(a.heard()->kind, RendezvousEnd::Kind::kGenerationEnded);
  EXPECT_EQ(a.heard()->num_losses, 1U);
  EXPECT_EQ(a.client.wait_for_generation().ranks.at("a"), 0);
}

TEST(RendezvousServer, AWrongSecretIsRefusedAndTheClientSaysSo) {
  Running running(1);
  ClientOptions options = running.client("a");
  options.tls = secret_of('w');
  options.join_timeout_ms = 3000;
  options.refusal_ms = 600'000;
  Member wrong(options);
  try {
    wrong.client.wait_for_generation();
    FAIL();
  } catch (const IoError& e) {
    EXPECT_THAT(e.what(), HasSubstr("has not reached it (it does not know the job's secret, or is no scheduler"));
  }
  EXPECT_EQ(running.status().nodes.size(), 0U);
}

TEST(RendezvousServer, WhoAsksOneThatSaysNothingHearsThat) {
  asio::io_context loop;
  asio::ip::tcp::acceptor silent(loop, asio::ip::tcp::endpoint(asio::ip::address_v4::loopback(), 0));
  const HostPort there{"127.0.0.1", silent.local_endpoint().port()};
  EXPECT_THAT(
      [&] { ask_status(there, secret_of('s'), 1000); },
      testing::ThrowsMessage<IoError>(testing::EndsWith("does not say how its job is: it has not answered in time")));
}

// Sooner than the time to join, and with where its secret is from.
TEST(RendezvousServer, AWrongSecretIsRefusedAtLast) {
  Running running(1);
  ClientOptions options = running.client("a");
  options.tls = secret_of('w');
  options.join_timeout_ms = 600'000;
  options.refusal_ms = 100;
  options.secret_origin = "TESSERA_SECRET_FILE, \"wrong.secret\"";
  Member wrong(options);
  try {
    wrong.client.wait_for_generation();
    FAIL();
  } catch (const IoError& e) {
    EXPECT_THAT(e.what(), HasSubstr("was refused by the scheduler: it has another secret than this process"));
    EXPECT_THAT(e.what(), HasSubstr("this one's is TESSERA_SECRET_FILE, \"wrong.secret\"; give both the same"));
  }
  ASSERT_TRUE(eventually([&] { return wrong.heard().has_value(); }));
  EXPECT_EQ(wrong.heard()->kind, RendezvousEnd::Kind::kRefused);
  EXPECT_EQ(running.status().nodes.size(), 0U);
}

// Another one may stand at its address while it is away.
TEST(RendezvousServer, WhoWasWelcomeIsNotEndedByOneWithAnotherSecret) {
  auto running = std::make_unique<Running>(ServerOptions{.scheduler = {.num_workers = 2, .max_restarts = 1}});
  const HostPort address = running->server->address();
  ClientOptions options = running->client("a");
  options.refusal_ms = 100;
  Member a(options);
  ASSERT_TRUE(eventually([&] { return a.client.is_registered(); }));
  running.reset();
  const Running other(ServerOptions{.address = address, .tls = secret_of('o'), .scheduler = {.num_workers = 2}});
  std::this_thread::sleep_for(std::chrono::milliseconds(3000));
  EXPECT_FALSE(a.heard().has_value());
}

TEST(RendezvousServer, F63_AStrangerLearnsNothing) {
  Running running(2);
  Member a(running.client("the-name-of-a-node"));
  const std::string secret(32, 's');
  const auto hello = [] {
    TlsSession stranger(make_tls_context(secret_of('x'), TlsSide::kClient, 0));
    std::string said;
    stranger.receive({}, said);
    return stranger.take_output();
  }();
  const std::string frame = print_message(Register{.host = "h", .node_ids = {"x"}}, 0);
  std::vector<std::string> words = {"GET / HTTP/1.1\r\n\r\n",
                                    std::string(5000, '\xff'),
                                    std::string(64, '\0'),
                                    frame,
                                    hello,
                                    hello.substr(0, hello.size() / 2) + std::string(9000, 'x')};
  std::string random(4096, '\0');
  std::ifstream("/dev/urandom").read(random.data(), static_cast<std::streamsize>(random.size()));
  words.push_back(random);
  for (const std::string& word : words) {
    TestPeer stranger(running.port());
    stranger.say_plain(word);
    bool hung_up = false;
    const std::string heard = stranger.hear_plain(&hung_up);
    EXPECT_TRUE(hung_up) << word.substr(0, 20);
    EXPECT_LT(heard.size(), 32U);  // an alert
    EXPECT_EQ(heard.find("the-name"), std::string::npos);
    EXPECT_EQ(heard.find(secret.substr(0, 8)), std::string::npos);
  }
  Member b(running.client("b"));
  EXPECT_EQ(b.client.wait_for_generation().size, 2);
}

TEST(RendezvousServer, AClientTellsAFalseSchedulerNothing) {
  // Who listens there has another secret: the client's first words are all that it hears.
  ServerOptions options{.scheduler = {.num_workers = 1}};
  options.tls = secret_of('f');
  Running false_one(options);
  ClientOptions client = false_one.client("the-name-of-a-node");
  client.join_timeout_ms = 300;
  Member honest(client);
  EXPECT_THROW(honest.client.wait_for_generation(), IoError);
  TlsSession first(make_tls_context(secret_of('s'), TlsSide::kClient, 0));
  std::string said;
  first.receive({}, said);
  const std::string hello = first.take_output();
  EXPECT_EQ(hello.find("the-name"), std::string::npos);
  EXPECT_EQ(hello.find(std::string(8, 's')), std::string::npos);
}

TEST(RendezvousServer, F64_ARecordedHandshakeProvesNothing) {
  Running running(1);
  TlsSession member(make_tls_context(secret_of('s'), TlsSide::kClient, 0));
  std::string said;
  member.receive({}, said);
  const std::string recorded = member.take_output();
  for (int i = 0; i < 2; ++i) {
    TestPeer replayer(running.port());
    replayer.say_plain(recorded);
    replayer.say_plain(std::string(80, '\x17'));
    bool hung_up = false;
    replayer.hear_plain(&hung_up);
    EXPECT_TRUE(hung_up);
  }
  EXPECT_EQ(running.status().nodes.size(), 0U);
}

TEST(RendezvousServer, F69_F70_AMemberThatGoesWrongLosesItsConnectionAndNothingElse) {
  Running running(2);
  Member good(running.client("good"));
  const std::string begin = {'T', 'R', static_cast<char>(kProtocolVersion)};
  const std::string huge = begin + '\x03' + std::string(4, '\xff') + std::string(8, '\0');
  const std::vector<std::string> words = {
      huge,
      std::string("TR\x01\x01", 4),
      begin + '\x63',
      "garbage",
      print_message(Welcome{}, 0),
      print_frame(FrameType::kHeartbeat, 0, "x"),
      print_frame(FrameType::kRegister, 0, std::string(400, '\xff')),
      print_frame(FrameType::kSetValue, 0, std::string(8, '\xff')),
      print_message(Heartbeat{}, 99),
  };
  for (const std::string& word : words) {
    TestPeer bad(running.port());
    ASSERT_TRUE(bad.shake_hands(secret_of('s')));
    bad.say_bytes(word);
    EXPECT_TRUE(bad.hear_until<Refused>().has_value()) << word.substr(0, 8);
    EXPECT_TRUE(bad.is_hung_up());
  }
  EXPECT_EQ(running.status().phase, JobPhase::kWaiting);
  Member other(running.client("other"));
  EXPECT_EQ(good.client.wait_for_generation().size, 2);
}

TEST(RendezvousServer, F71_AMemberThatFloodsTheStoreIsRefusedAtItsQuota) {
  Running running(1);
  TestPeer bad(running.port());
  ASSERT_TRUE(bad.shake_hands(secret_of('s')));
  ASSERT_TRUE(bad.enroll("a"));
  for (int i = 0; i < 9; ++i) bad.say(SetValue{std::to_string(i), std::string(1 << 20, 'v')}, 1);
  const auto refused = bad.hear_until<Refused>();
  ASSERT_TRUE(refused);
  EXPECT_EQ(refused->reason, "its values have more than 8388608 bytes");
}

TEST(RendezvousServer, F67_WhoStopsReadingIsGivenUpAndHoldsUpNobody) {
  Running running(ServerOptions{.scheduler = {.num_workers = 2, .reconnect_ms = 500}});
  TestPeer silent(running.port());
  ASSERT_TRUE(silent.shake_hands(secret_of('s')));
  ASSERT_TRUE(silent.enroll("silent"));
  Member good(running.client("good"));
  good.client.wait_for_generation();
  good.client.set("large", std::string(1 << 20, 'l'));
  EXPECT_EQ(good.client.get("large", 20000).size(), size_t{1} << 20);
  for (int i = 0; i < 100; ++i) silent.say(GetValue{"large"}, 1);
  // It is hung up on, and after a while lost: the job, which does not recover, ends with its name.
  ASSERT_TRUE(eventually([&] { return good.heard().has_value(); }));
  EXPECT_THAT(good.heard()->reason, HasSubstr("node silent"));
}

TEST(RendezvousServer, F67_HandshakesAndSilentMembersHaveDeadlines) {
  ServerOptions options{.scheduler = {.num_workers = 1}, .strangers = {.deadline_ms = 3000}};
  Running running(options);
  const TestPeer idle(running.port());
  TestPeer slow(running.port());
  slow.say_plain("\x16\x03");
  bool hung_up = false;
  EXPECT_EQ(idle.hear_plain(&hung_up), "");
  EXPECT_TRUE(hung_up);
  slow.hear_plain(&hung_up);
  EXPECT_TRUE(hung_up);
  TestPeer known(running.port());  // it knows the secret, and says nothing
  ASSERT_TRUE(known.shake_hands(secret_of('s')));
  EXPECT_TRUE(known.is_hung_up());
}

int64_t resident_bytes() {
  std::ifstream status("/proc/self/statm");
  int64_t pages = 0;
  int64_t resident = 0;
  status >> pages >> resident;
  return resident * sysconf(_SC_PAGESIZE);
}

TEST(RendezvousServer, F66_AThousandIdleConnectionsAndSixtyHalfFramesCostLittleAndKeepNobodyOut) {
  rlimit limit{};
  getrlimit(RLIMIT_NOFILE, &limit);
  limit.rlim_cur = limit.rlim_max;
  setrlimit(RLIMIT_NOFILE, &limit);
  if (limit.rlim_max < 2048) GTEST_SKIP() << "this process may have too few descriptors for so many (ulimit -Hn)";
  Running running(1);
  running.status();  // what the first handshake allocates
  const int64_t before = resident_bytes();
  std::vector<std::unique_ptr<TestPeer>> crowd;
  int64_t most = 0;
  TlsSession stranger(make_tls_context(secret_of('x'), TlsSide::kClient, 0));
  std::string said;
  stranger.receive({}, said);
  const std::string hello = stranger.take_output();
  for (int i = 0; i < 1060; ++i) {
    crowd.push_back(std::make_unique<TestPeer>(running.port()));
    ASSERT_TRUE(crowd.back()->is_connected()) << i;
    if (i % 17 == 0) crowd.back()->say_plain(hello.substr(0, hello.size() - 1));
    most = std::max(most, resident_bytes());
  }
#ifdef __SANITIZE_ADDRESS__
  constexpr int64_t kMost = 64 << 20;  // the sanitizer keeps what is freed for a while, to notice its use
#else
  constexpr int64_t kMost = 16 << 20;
#endif
  EXPECT_LT(most - before, kMost);
  std::printf("1,060 connections: %lld KiB\n", static_cast<long long>((most - before) >> 10));
  Member late(running.client("late"));
  EXPECT_EQ(late.client.wait_for_generation().size, 1);
}

TEST(RendezvousServer, F26_ATakenPortIsNamed) {
  Running running(1);
  try {
    const Running second(ServerOptions{.address = running.server->address()});
    FAIL();
  } catch (const IoError& e) {
    EXPECT_THAT(e.what(),
                HasSubstr(fmt::format("cannot listen at 127.0.0.1:{}: Address already in use", running.port())));
  }
}

TEST(RendezvousServer, AnAddressOfAnotherMachineIsRefusedWithThoseOfThisOne) {
  try {
    const Running other(ServerOptions{.address = {"192.0.2.1", 0}});  // is nobody's
    FAIL();
  } catch (const IoError& e) {
    EXPECT_THAT(e.what(), HasSubstr("this machine has no address 192.0.2.1: --host is a name or an address of the "
                                    "machine on which the scheduler is started, which has "));
    EXPECT_THAT(e.what(), HasSubstr("127.0.0.1"));
    EXPECT_THAT(e.what(), testing::Not(HasSubstr("ss -ltnp")));
  }
}

TEST(RendezvousServer, ListensAtOneInterfaceAndNeverWithoutASecret) {
  for (const char* host : {"0.0.0.0", "::"}) {
    EXPECT_THROW(Running(ServerOptions{.address = {host, 0}}), InvalidArgument);
  }
  EXPECT_THROW(RendezvousServer(ServerOptions{}, FileSystem::local(), Clock::system()), InvalidArgument);
}

TEST(Strangers, AnAddressAtItsShareDisplacesItsOwn) {
  Strangers strangers({.most = 4, .most_of_address = 2, .grace_ms = 100, .deadline_ms = 1000});
  EXPECT_EQ(strangers.add(1, "flood", 0), std::nullopt);
  EXPECT_EQ(strangers.add(2, "flood", 0), std::nullopt);
  EXPECT_EQ(strangers.add(3, "good", 0), std::nullopt);
  const auto gone = strangers.add(4, "flood", 0);
  EXPECT_TRUE(gone == 1U || gone == 2U);
  EXPECT_TRUE(strangers.remove(*gone));
  EXPECT_FALSE(strangers.remove(*gone));
  EXPECT_TRUE(strangers.has_room(0));
  strangers.add(5, "other", 0);
  EXPECT_FALSE(strangers.has_room(99));
  EXPECT_TRUE(strangers.has_room(100));
  EXPECT_EQ(strangers.overdue(999).size(), 0U);
  EXPECT_EQ(strangers.overdue(1000).size(), 4U);
}

}  // namespace
}  // namespace tessera::cluster::rendezvous
