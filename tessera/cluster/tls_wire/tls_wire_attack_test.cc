// Claims about who reads, changes or cuts what ranks send each other, and who comes in a rank's place.
#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <netinet/in.h>
#include <sys/socket.h>
#include <unistd.h>

#include <cerrno>
#include <chrono>
#include <cstring>
#include <ctime>

#include "tessera/base/error.h"
#include "tessera/cluster/tls_wire/pair_frame.h"
#include "tessera/cluster/tls_wire/test_ranks.h"

namespace tessera::cluster {
namespace {

using comm::Wire;
using testing::AllOf;
using testing::Each;
using testing::HasSubstr;

// Ranks 0 and 1, with a relay between them.
struct Overheard {
  std::unique_ptr<Relay> relay;
  std::vector<std::string> errors;

  void run(const std::function<void(TestRank&)>& f, const std::function<void(Relay&)>& prepare = {}) {
    errors = run_test_ranks(2, f, {.timeout_ms = 20000, .told = [&](const std::string& name, std::string value) {
                                     if (name != "tls/address/0") return value;
                                     relay = std::make_unique<Relay>(value);
                                     if (prepare) prepare(*relay);
                                     return relay->address();
                                   }});
  }
};

TEST(OnTheWay, NoBytesOfATensorAreSeen) {
  // Bytes that would be found wherever a record begins.
  std::vector<std::byte> tensor(1 << 20, std::byte{'T'});
  Overheard overheard;
  overheard.run([&](TestRank& rank) {
    for (const int64_t bytes : {100, 1 << 20}) {
      TestMessage message(rank);
      tensor.resize(1 << 20);
      const std::vector<std::byte> sent(tensor.begin(), tensor.begin() + bytes);
      if (rank.rank == 0) message.send(sent, 1, 1).wait();
      if (rank.rank == 1) {
        EXPECT_EQ(message.receive(bytes, 0, 1).wait(), sent);
      }
    }
  });
  EXPECT_THAT(overheard.errors, Each(""));
  const std::string heard = overheard.relay->heard();
  EXPECT_GT(heard.size(), size_t{1} << 20);
  EXPECT_EQ(heard.find("TTTTTT"), std::string::npos);
  EXPECT_EQ(heard.find("a job"), std::string::npos);
  EXPECT_EQ(heard.find(std::string(32, 's')), std::string::npos);
}

// Where a bit is flipped, nobody takes what came for what was sent, and who is waited for is named.
TEST(OnTheWay, F25_AFlippedBitEndsTheJobAndAltersNoValue) {
  constexpr int64_t kBytes = 400'000;
  for (const bool to_rank_0 : {true, false}) {
    for (const int64_t position : {5'000, 60'000, 250'000}) {
      Overheard overheard;
      std::atomic<int> num_lost{0};
      overheard.run(
          [&](TestRank& rank) {
            const int peer = 1 - rank.rank;
            const auto transport = comm::make_wire_transport(rank.wire, *rank.job, {.timeout_ms = 20000});
            const auto world = transport->create_communicator({.name = "world", .rank = rank.rank, .ranks = {0, 1}});
            for (uint32_t i = 0; i < 4; ++i) {
              const auto sent = test_bytes(kBytes, 10 * i + static_cast<uint32_t>(rank.rank));
              const auto expected = test_bytes(kBytes, 10 * i + static_cast<uint32_t>(peer));
              std::vector<std::byte> both(2 * kBytes);
              const std::vector<int64_t> counts = {kBytes, kBytes};
              try {
                world->all_gather(sent.data(), both.data(), counts, DType::kU8, "a tensor");
              } catch (const IoError&) {
                ++num_lost;
                throw;
              }
              EXPECT_EQ(std::memcmp(both.data() + peer * kBytes, expected.data(), kBytes), 0);
            }
          },
          [&](Relay& relay) { relay.flip(to_rank_0, position); });
      EXPECT_EQ(num_lost, 2) << position;
      const int reader = to_rank_0 ? 0 : 1;
      EXPECT_THAT(overheard.errors[static_cast<size_t>(reader)],
                  AllOf(HasSubstr(fmt::format("rank {} lost rank {}", reader, 1 - reader)),
                        HasSubstr("has been tampered with: what came is not what was sent")));
      EXPECT_THAT(overheard.errors[static_cast<size_t>(1 - reader)],
                  HasSubstr(fmt::format("rank {} lost rank {}", 1 - reader, reader)));
    }
  }
}

TEST(OnTheWay, F24_ACutIsHeardAtOnce) {
  Overheard overheard;
  std::atomic<int> num_lost{0};
  overheard.run([&](TestRank& rank) {
    TestMessage hello(rank);
    if (rank.rank == 0) hello.send(test_bytes(10, 1), 1, 1).wait();
    if (rank.rank == 1) hello.receive(10, 0, 1).wait();
    if (rank.rank == 1) overheard.relay->cut();
    TestMessage message(rank);
    message.receive(1000, 1 - rank.rank, 2);
    const auto start = std::chrono::steady_clock::now();
    if (message.end() == Wire::End::kLost) ++num_lost;
    EXPECT_LT(std::chrono::steady_clock::now() - start, std::chrono::seconds(10));
    EXPECT_THAT(message.reason(), HasSubstr("the connection has ended"));
  });
  EXPECT_EQ(num_lost, 2);
}

// Somebody who stands at rank 0's door before rank 1 hears of it.
class Stranger {
 public:
  explicit Stranger(const std::string& address) : socket_(connect_to(address)) {
    const timeval limit{.tv_sec = 10, .tv_usec = 0};
    setsockopt(socket_, SOL_SOCKET, SO_RCVTIMEO, &limit, sizeof(limit));
  }
  ~Stranger() { close(socket_); }
  Stranger(const Stranger&) = delete;
  Stranger& operator=(const Stranger&) = delete;

  void say(std::string_view bytes) const { ::send(socket_, bytes.data(), bytes.size(), MSG_NOSIGNAL); }
  // What comes until the other side hangs up; it does within 10 s.
  std::string hear_all() const {
    std::string heard;
    char buffer[4096];
    ssize_t count;
    while ((count = recv(socket_, buffer, sizeof(buffer), 0)) > 0) heard.append(buffer, static_cast<size_t>(count));
    EXPECT_TRUE(count == 0 || errno == ECONNRESET) << "nobody hangs up";
    return heard;
  }
  // TLS by this secret, up to the first words.
  TlsSession& shake_hands(const comm::Secret& secret, TlsUse use = TlsUse::kRanks) {
    session_ = std::make_unique<TlsSession>(
        make_tls_context({.secret = secret, .certificates = std::nullopt}, TlsSide::kClient, std::time(nullptr), use));
    std::string said;
    session_->receive({}, said);
    say(session_->take_output());
    char buffer[4096];
    for (ssize_t count; session_->state() == TlsSession::State::kHandshake &&
                        (count = recv(socket_, buffer, sizeof(buffer), 0)) > 0;) {
      session_->receive({buffer, static_cast<size_t>(count)}, said);
      say(session_->take_output());
    }
    return *session_;
  }
  void say_within(std::string_view bytes) {
    session_->send(bytes);
    say(session_->take_output());
  }

 private:
  int socket_;
  std::unique_ptr<TlsSession> session_;
};

// The ranks meet and send, whatever `attack` does at rank 0's door, which is done before rank 1 knows of it.
double seconds_with(const std::function<void(const std::string& address)>& attack, int64_t timeout_ms = 20000) {
  const auto start = std::chrono::steady_clock::now();
  std::thread attacker;
  std::mutex mutex;
  std::condition_variable is_there;
  bool has_begun = false;
  const auto errors =
      run_test_ranks(3,
                     [](TestRank& rank) {
                       TestMessage message(rank);
                       if (rank.rank == 0) message.send(test_bytes(200'000, 1), 2, 1).wait();
                       if (rank.rank != 2) return;
                       EXPECT_EQ(message.receive(200'000, 0, 1).wait(), test_bytes(200'000, 1));
                     },
                     {.timeout_ms = timeout_ms, .told = [&](const std::string& name, std::string value) {
                        if (name != "tls/address/0") return value;
                        // Rank 0 has just begun to listen, and serves nobody before this returns.
                        attacker = std::thread([&, value] {
                          {
                            const std::lock_guard lock(mutex);
                            has_begun = true;
                          }
                          is_there.notify_all();
                          attack(value);
                        });
                        std::unique_lock lock(mutex);
                        is_there.wait(lock, [&] { return has_begun; });
                        return value;
                      }});
  const double seconds = std::chrono::duration<double>(std::chrono::steady_clock::now() - start).count();
  attacker.join();
  EXPECT_THAT(errors, Each(""));
  return seconds;
}

TEST(AtTheDoor, GarbageIsAnsweredByAnAlertAtMost) {
  seconds_with([](const std::string& address) {
    for (const std::string& said :
         {std::string("GET / HTTP/1.1\r\n\r\n"), std::string(5000, '\xff'), std::string(64, '\0')}) {
      try {
        const Stranger stranger(address);
        stranger.say(said);
        EXPECT_LT(stranger.hear_all().size(), 64U);
      } catch (const IoError&) {  // all ranks are there, and nobody listens any more
      }
    }
  });
}

TEST(AtTheDoor, WhoSaysNothingOrHalfOfItIsNotWaitedFor) {
  std::vector<std::unique_ptr<Stranger>> strangers;
  const double seconds = seconds_with(
      [&](const std::string& address) {
        try {
          for (int i = 0; i < 40; ++i) {
            strangers.push_back(std::make_unique<Stranger>(address));
            if (i % 2 == 1) strangers.back()->say({"\x16\x03\x01\x02\x00\x01\x00\x01", 8});
          }
        } catch (const IoError&) {
        }
      },
      120'000);
  EXPECT_LT(seconds, 20) << "each of them has 5 s, one after the other";
  for (const auto& stranger : strangers) EXPECT_EQ(stranger->hear_all().find("job"), std::string::npos);
}

TEST(AtTheDoor, AFloodKeepsNobodyOut) {
  std::vector<std::unique_ptr<Stranger>> strangers;
  seconds_with([&](const std::string& address) {
    try {
      for (int i = 0; i < 600; ++i) strangers.push_back(std::make_unique<Stranger>(address));
    } catch (const IoError&) {
    }
  });
}

TEST(AtTheDoor, WhoKnowsTheSecretOfAnotherUseIsRefused) {
  seconds_with([](const std::string& address) {
    try {
      Stranger stranger(address);
      EXPECT_NE(stranger.shake_hands(test_secret(), TlsUse::kRendezvous).state(), TlsSession::State::kOpen);
      Stranger other(address);
      EXPECT_NE(other.shake_hands(test_secret('t')).state(), TlsSession::State::kOpen);
    } catch (const IoError&) {
    }
  });
}

// Nobody else is to come but the stranger: a rank that has the secret and does not say who it is. For that it has a
// quarter of the time to meet.
TEST(AtTheDoor, HalfAGreetingEndsAtTheDeadline) {
  double seconds = 0;
  MemoryStore store([&](const std::string&, std::string value) { return value; });
  std::thread stranger([&] {
    Stranger one(store.get("tls/address/0", 10000));
    ASSERT_EQ(one.shake_hands(test_secret()).state(), TlsSession::State::kOpen);
    one.say_within(std::string(20, 'x'));
    const auto start = std::chrono::steady_clock::now();
    one.hear_all();
    seconds = std::chrono::duration<double>(std::chrono::steady_clock::now() - start).count();
  });
  comm::JobState job(2);
  const MeetingOptions meeting = test_meeting(0, 2, 8000);
  try {
    make_tls_wire(meeting, false, store, job);
    ADD_FAILURE() << "the stranger is taken for rank 1";
  } catch (const IoError& e) {
    EXPECT_THAT(e.what(), AllOf(HasSubstr("rank 1: it has not come"),
                                HasSubstr("127.0.0.1: it has not shown in time who it is")));
  }
  stranger.join();
  EXPECT_LT(seconds, 6);
}

TEST(AtTheDoor, WhoStandsInRankZerosPlaceHearsNoGreeting) {
  const int listener = socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC, 0);
  listen(listener, 8);  // at a port that the system chooses, of all addresses
  sockaddr_storage own{};
  socklen_t length = sizeof(own);
  getsockname(listener, reinterpret_cast<sockaddr*>(&own), &length);
  const int port = ntohs(reinterpret_cast<const sockaddr_in*>(&own)->sin_port);
  std::string heard;
  std::thread thief([&] {
    const int caller = accept(listener, nullptr, nullptr);
    char buffer[4096];
    for (ssize_t count; (count = recv(caller, buffer, sizeof(buffer), 0)) > 0;) {
      heard.append(buffer, static_cast<size_t>(count));
      [[maybe_unused]] const ssize_t echoed = ::send(caller, buffer, static_cast<size_t>(count), MSG_NOSIGNAL);
    }
    close(caller);
  });
  const auto errors =
      run_test_ranks(2, [](TestRank&) {}, {.timeout_ms = 4000, .told = [&](const std::string& name, std::string value) {
                                             return name == "tls/address/0" ? fmt::format("127.0.0.1:{}", port) : value;
                                           }});
  thief.join();
  close(listener);
  EXPECT_THAT(errors, Each(HasSubstr("cannot connect to its peers by TLS")));
  EXPECT_GT(heard.size(), 100U);
  EXPECT_EQ(heard.find("a job"), std::string::npos);
}

// A rank that is of the job, and says this, header by header, each with its bytes of zeros.
std::string reason_after(const std::vector<FrameHeader>& frames) {
  MemoryStore store;
  std::thread wrong([&] {
    const MeetingOptions meeting = test_meeting(1, 2, 10000);
    const auto streams = meet_peers(meeting, store, Clock::system());
    std::vector<std::byte> said;
    for (const FrameHeader& frame : frames) {
      const bool has_bytes = frame.kind == PairFrameKind::kEager || frame.kind == PairFrameKind::kData;
      const size_t at = said.size();
      said.resize(at + kFrameHeaderBytes + (has_bytes ? std::min<size_t>(frame.bytes, 1 << 20) : 0));
      print_frame_header(frame, said.data() + at);
    }
    for (size_t at = 0; at < said.size();) {
      size_t count = 0;
      const auto result = streams[0]->write(said.data() + at, said.size() - at, count);
      if (result == TlsStream::Result::kMoved) at += count;
      if (result == TlsStream::Result::kFailed) return;  // it has heard enough
    }
    std::byte heard[4096];
    for (size_t count = 0;;) {
      const auto result = streams[0]->read(heard, sizeof(heard), count);
      if (result == TlsStream::Result::kEnded || result == TlsStream::Result::kFailed) return;
    }
  });
  std::string reason;
  {
    TestRank rank{0, 2, std::make_shared<comm::JobState>(2), nullptr};
    const MeetingOptions meeting = test_meeting(0, 2, 10000);
    rank.wire = make_tls_wire(meeting, false, store, *rank.job);
    TestMessage message(rank);
    message.receive(100, 1, 1);
    EXPECT_EQ(message.end(), Wire::End::kLost);
    reason = message.reason();
  }
  wrong.join();
  return reason;
}

TEST(ARankThatGoesWrong, EndsItsPairWhateverItSays) {
  const std::string wrong = "it says what no rank says: ";
  constexpr auto kEager = PairFrameKind::kEager;
  constexpr auto kData = PairFrameKind::kData;
  constexpr uint64_t kHuge = ~uint64_t{0};
  EXPECT_EQ(reason_after({{static_cast<PairFrameKind>(0), 1, 1, 1}}), wrong + "a frame of an unknown kind");
  EXPECT_EQ(reason_after({{static_cast<PairFrameKind>(6), 1, 1, 1}}), wrong + "a frame of an unknown kind");
  EXPECT_EQ(reason_after({{kEager, 1, 99, 99}}), wrong + "99 bytes where 100 are expected");
  EXPECT_EQ(reason_after({{kEager, 1, 100, 99}}), wrong + "a message beyond its credit");
  EXPECT_EQ(reason_after({{kEager, 2, kEagerBytes + 1, kEagerBytes + 1}}), wrong + "a message beyond its credit");
  EXPECT_EQ(reason_after({{kEager, 2, kHuge, kHuge}}), wrong + "a message beyond its credit");
  EXPECT_EQ(reason_after(std::vector<FrameHeader>(8, {kEager, 2, kEagerBytes, kEagerBytes})),
            wrong + "a message beyond its credit");
  EXPECT_EQ(reason_after(std::vector<FrameHeader>(10000, {kEager, 2, 0, 0})), wrong + "a message beyond its credit");
  EXPECT_EQ(reason_after({{kData, 1, 100, 100}}), wrong + "a message that was not asked for");
  EXPECT_EQ(reason_after({{PairFrameKind::kRequest, 1, 99, 0}}), wrong + "99 bytes where 100 are expected");
  EXPECT_EQ(reason_after({{PairFrameKind::kRequest, 1, kHuge, 0}}), wrong + "a request of a large message");
  EXPECT_EQ(reason_after({{PairFrameKind::kRequest, 1, 100, 0}, {kData, 1, 1, 99}}),
            wrong + "99 bytes where 100 are expected");
  EXPECT_EQ(reason_after({{PairFrameKind::kRequest, 1, 100, 0}, {kData, 1, 60, 100}, {kData, 1, 41, 100}}),
            wrong + "a message with a tail");
  EXPECT_EQ(reason_after(std::vector<FrameHeader>(20000, {PairFrameKind::kRequest, 2, 1, 0})),
            wrong + "too many messages at a time");
  EXPECT_EQ(reason_after({{PairFrameKind::kCredit, 0, 1, 0}}), wrong + "more credit than was used");
  EXPECT_EQ(reason_after({{PairFrameKind::kCredit, 0, kHuge, 0}}), wrong + "more credit than was used");
  std::vector<FrameHeader> tags;
  for (uint32_t tag = 0; tag < 70000; ++tag) tags.push_back({PairFrameKind::kReady, tag, 0, 0});
  EXPECT_EQ(reason_after(tags), wrong + "too many tags");
}

}  // namespace
}  // namespace tessera::cluster
