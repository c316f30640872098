// Claims about what ranks send each other by TLS: all of it comes, in order, and every wait ends as it should.
#include "tessera/cluster/tls_wire/tls_wire.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <unistd.h>

#include <algorithm>
#include <chrono>
#include <ctime>
#include <deque>
#include <filesystem>
#include <numeric>
#include <random>
#include <thread>

#include "tessera/base/error.h"
#include "tessera/cluster/ranks/rank_context.h"
#include "tessera/cluster/tls/make_certificates.h"
#include "tessera/cluster/tls_wire/test_ranks.h"
#include "tessera/testing/allocation_count.h"
#include "tessera/testing/collective_script.h"
#include "tessera/testing/run_ranks.h"

namespace tessera::cluster {
namespace {

using comm::Wire;
using testing::AllOf;
using testing::Each;
using testing::HasSubstr;

double seconds_of(const std::function<void()>& work) {
  const auto start = std::chrono::steady_clock::now();
  work();
  return std::chrono::duration<double>(std::chrono::steady_clock::now() - start).count();
}

std::unique_ptr<Context> context_of(TestRank& rank) {
  return std::make_unique<RankContext>(RankPlace{.rank = rank.rank, .size = rank.size},
                                       comm::make_wire_transport(rank.wire, *rank.job, {.timeout_ms = 20000}),
                                       std::make_unique<LocalMembership>(rank.job, rank.rank));
}

void expect_well(const std::vector<std::string>& errors) { EXPECT_THAT(errors, Each("")); }

// Both ends of one: the sender's bytes are those that the receiver gets.
void exchange(TestRank& rank, int64_t bytes, int tag, uint32_t seed) {
  TestMessage message(rank);
  if (rank.rank == 0) message.send(test_bytes(bytes, seed), 1, tag).wait();
  if (rank.rank != 1) return;
  EXPECT_EQ(message.receive(bytes, 0, tag).wait(), test_bytes(bytes, seed)) << bytes;
}

TEST(TlsWire, GivesTheBitsOfThreads) {
  for (const int size : {2, 3, 5}) {
    uint64_t expected = 0;
    run_ranks(size, [&](Context& context) {
      const uint64_t hash = run_collective_script(context);
      if (context.rank() == 0) expected = hash;
    });
    expect_well(run_test_ranks(size, [&](TestRank& rank) {
      const auto context = context_of(rank);
      EXPECT_EQ(context->transport(), "tls");
      EXPECT_EQ(run_collective_script(*context), expected) << size;
    }));
  }
}

TEST(TlsWire, CarriesMessagesOfEverySize) {
  expect_well(run_test_ranks(2, [](TestRank& rank) {
    uint32_t seed = 0;
    for (const int64_t bytes :
         {0, 1, 23, 16'000, 16'384 - 24, 16'384, 65'535, 65'536, 65'537, 1 << 20, (3 << 20) + 7}) {
      exchange(rank, bytes, 1, ++seed);
    }
  }));
}

TEST(TlsWire, MatchesManyTagsInTheOrderOfEachWhateverTheOrderAmongThem) {
  constexpr int kTags = 40;
  constexpr int kOfTag = 4;
  constexpr int64_t kSizes[] = {0, 700, 65'536, 200'000, 1, 65'537};
  const auto size_of = [&](int tag, int i) { return kSizes[(tag + i) % 6]; };
  const auto seed_of = [](int tag, int i) { return static_cast<uint32_t>(100 * tag + i); };
  for (uint32_t seed = 0; seed < 3; ++seed) {
    expect_well(run_test_ranks(2, [&](TestRank& rank) {
      std::vector<int> tags;
      for (int tag = 0; tag < kTags; ++tag) tags.insert(tags.end(), kOfTag, tag);
      std::mt19937 draws(2 * seed + static_cast<uint32_t>(rank.rank));
      std::ranges::shuffle(tags, draws);
      // All are under way at a time.
      std::deque<TestMessage> messages;
      std::vector<std::pair<int, int>> meant;
      std::vector<int> num_of_tag(kTags);
      for (const int tag : tags) {
        const int i = num_of_tag[static_cast<size_t>(tag)]++;
        meant.emplace_back(tag, i);
        TestMessage& message = messages.emplace_back(rank);
        if (rank.rank == 0) message.send(test_bytes(size_of(tag, i), seed_of(tag, i)), 1, tag);
        if (rank.rank == 1) message.receive(size_of(tag, i), 0, tag);
      }
      std::vector<size_t> order(messages.size());
      std::iota(order.begin(), order.end(), size_t{0});
      std::ranges::shuffle(order, draws);
      for (const size_t at : order) {
        const auto& bytes = messages[at].wait();
        const auto [tag, i] = meant[at];
        if (rank.rank == 1) {
          ASSERT_EQ(bytes, test_bytes(size_of(tag, i), seed_of(tag, i))) << "seed " << seed << " tag " << tag;
        }
      }
    }));
  }
}

TEST(TlsWire, MessagesThatNobodyTakesYetStandInNobodysWay) {
  constexpr int kMessages = 100;  // of 64 KiB: more than is kept of them
  expect_well(run_test_ranks(2, [](TestRank& rank) {
    std::deque<TestMessage> waiting;
    TestMessage large(rank);
    if (rank.rank == 0) {
      large.send(test_bytes(5 << 20, 1), 1, 1);
      for (int i = 0; i < kMessages; ++i) waiting.emplace_back(rank).send(test_bytes(65'536, 10U + i), 1, 2);
      for (int i = 0; i < kMessages; ++i) waiting.emplace_back(rank).send({}, 1, 3);
    }
    exchange(rank, 1000, 4, 2);
    exchange(rank, 1 << 20, 4, 3);
    if (rank.rank == 0) {
      for (TestMessage& message : waiting) message.wait();
      large.wait();
      return;
    }
    EXPECT_EQ(large.receive(5 << 20, 0, 1).wait(), test_bytes(5 << 20, 1));
    for (int i = 0; i < kMessages; ++i) TestMessage(rank).receive(0, 0, 3).wait();
    for (int i = 0; i < kMessages; ++i) {
      EXPECT_EQ(TestMessage(rank).receive(65'536, 0, 2).wait(), test_bytes(65'536, 10U + i));
    }
  }));
}

TEST(TlsWire, BothDirectionsAreFullAtATime) {
  expect_well(run_test_ranks(3, [](TestRank& rank) {
    const auto seed = [](int from, int to) { return static_cast<uint32_t>(10 * from + to); };
    std::deque<TestMessage> sends;
    std::deque<TestMessage> receives;
    for (int peer = 0; peer < 3; ++peer) {
      if (peer == rank.rank) continue;
      sends.emplace_back(rank).send(test_bytes(8 << 20, seed(rank.rank, peer)), peer, 5);
      receives.emplace_back(rank).receive(8 << 20, peer, 5);
    }
    for (int peer = 0, i = 0; peer < 3; ++peer) {
      if (peer == rank.rank) continue;
      EXPECT_EQ(receives[static_cast<size_t>(i++)].wait(), test_bytes(8 << 20, seed(peer, rank.rank)));
    }
    for (TestMessage& send : sends) send.wait();
  }));
}

TEST(TlsWire, ThreadsOfARankWaitAtTheSameTime) {
  constexpr int kThreads = 4;
  expect_well(run_test_ranks(2, [](TestRank& rank) {
    std::vector<std::thread> threads;
    for (int t = 0; t < kThreads; ++t) {
      threads.emplace_back([&rank, t] {
        for (uint32_t i = 0; i < 60; ++i) {
          const int64_t bytes = i % 3 == 0 ? 300'000 : 900;
          exchange(rank, bytes, t, i);
          TestMessage back(rank);
          if (rank.rank == 1) back.send(test_bytes(bytes, i + 1), 0, t).wait();
          if (rank.rank == 1) continue;
          EXPECT_EQ(back.receive(bytes, 1, t).wait(), test_bytes(bytes, i + 1));
        }
      });
    }
    for (std::thread& thread : threads) thread.join();
  }));
}

TEST(TlsWire, TakesAnotherKeyAfterManyBytes) {
  expect_well(run_test_ranks(2,
                             [](TestRank& rank) {
                               for (uint32_t i = 0; i < 40; ++i) exchange(rank, i % 2 == 0 ? 1 << 20 : 20'000, 1, i);
                             },
                             {.bytes_per_key = 100'000}));
}

// But for a message that comes earlier than any before it, which needs memory to wait in: once, since that is kept.
TEST(TlsWire, AllocatesNothingOnceWarm) {
  expect_well(run_test_ranks(3, [](TestRank& rank) {
    const auto context = context_of(rank);
    comm::Communicator& world = context->world();
    const std::vector<int64_t> counts = {20'000, 0, 10'000};
    std::vector<float> data(600'000);
    std::vector<float> out(30'000);
    const auto step = [&] {
      for (const int64_t count : {1, 3'000, 600'000}) {
        world.all_reduce(data.data(), count, DType::kF32, comm::ReduceOp::kMax, "an operator with a rather long name");
      }
      world.all_gather(data.data(), out.data(), counts, DType::kF32, "x");
      world.reduce_scatter(data.data(), out.data(), counts, DType::kF32, comm::ReduceOp::kMax, "x");
      world.broadcast(data.data(), 30'000, DType::kF32, 1, "x");
      world.barrier("x");
      if (rank.rank == 0) world.send(data.data(), 30'000, DType::kF32, 1, "x");
      if (rank.rank == 1) world.receive(data.data(), 30'000, DType::kF32, 0, "x");
    };
    for (int i = 0; i < 10; ++i) step();
    const int64_t own = num_allocations_of_this_thread();
    constexpr int kSteps = 60;
    for (int i = 0; i < kSteps; ++i) step();
    EXPECT_LT(num_allocations_of_this_thread() - own, kSteps / 3);
    world.barrier("end");
  }));
}

TEST(Ends, ALateRankIsWaitedForUntilTheDeadline) {
  std::atomic<bool> is_over{false};
  expect_well(run_test_ranks(2, [&](TestRank& rank) {
    if (rank.rank == 0) {
      TestMessage message(rank);
      message.receive(100, 1, 1);
      EXPECT_EQ(message.end(300), Wire::End::kLate);
      is_over = true;
    }
    while (!is_over) std::this_thread::yield();
  }));
}

TEST(Ends, WhoHasLeftIsNotWaitedFor) {
  expect_well(run_test_ranks(2, [](TestRank& rank) {
    exchange(rank, 3 << 20, 1, 1);
    if (rank.rank == 1) return;
    TestMessage message(rank);
    message.receive(100, 1, 1);
    const double seconds = seconds_of([&] { EXPECT_EQ(message.end(), Wire::End::kLeft); });
    EXPECT_LT(seconds, 10);
  }));
}

// The process of a rank that has come to its end stays until all others have.
TEST(Ends, WhoHasLeftIsNotWaitedForThoughItsConnectionsAreOpen) {
  std::atomic<bool> is_over{false};
  expect_well(run_test_ranks(2, [&](TestRank& rank) {
    exchange(rank, 3 << 20, 1, 1);
    if (rank.rank == 1) {
      TestMessage(rank).send(test_bytes(60'000, 3), 0, 1).wait();
      rank.wire->leave();
      while (!is_over) std::this_thread::yield();
      return;
    }
    const std::shared_ptr<void> ends(nullptr, [&](void*) { is_over = true; });
    rank.job->leave(1);
    EXPECT_EQ(TestMessage(rank).receive(60'000, 1, 1).wait(), test_bytes(60'000, 3));
    TestMessage message(rank);
    message.receive(100, 1, 1);
    const double seconds = seconds_of([&] { EXPECT_EQ(message.end(), Wire::End::kLeft); });
    EXPECT_LT(seconds, 8);
  }));
}

TEST(Ends, TheLastWordsOfWhoLeavesAreHeard) {
  std::atomic<bool> has_left{false};
  expect_well(run_test_ranks(2, [&](TestRank& rank) {
    if (rank.rank == 0) {
      for (int i = 0; i < 5; ++i) TestMessage(rank).send(test_bytes(60'000, 3), 1, 1).wait();
      rank.wire.reset();
      has_left = true;
      return;
    }
    while (!has_left) std::this_thread::yield();
    for (int i = 0; i < 5; ++i) EXPECT_EQ(TestMessage(rank).receive(60'000, 0, 1).wait(), test_bytes(60'000, 3));
  }));
}

TEST(Ends, AFailureInTheJobEndsAWaitAtOnce) {
  // Rank 2 has left, which counts less than that it has failed, where the job hears of that soon enough.
  bool has_failed_in_time = false;
  for (int attempt = 0; attempt < 20 && !has_failed_in_time; ++attempt) {
    expect_well(run_test_ranks(3, [&](TestRank& rank) {
      exchange(rank, 10, 1, 1);
      if (rank.rank != 0) return;
      TestMessage message(rank);
      message.receive(100, 2, 1);
      double failed_after = 0;
      const auto start = std::chrono::steady_clock::now();
      std::thread fails([&] {
        std::this_thread::sleep_for(std::chrono::milliseconds(100));
        rank.job->fail(2, "its disk is full");
        failed_after = std::chrono::duration<double>(std::chrono::steady_clock::now() - start).count();
      });
      const Wire::End how = message.end();
      const double seconds = std::chrono::duration<double>(std::chrono::steady_clock::now() - start).count();
      fails.join();
      EXPECT_LT(seconds, 10);
      has_failed_in_time = failed_after * 1000 < static_cast<double>(comm::kLeftGraceMs);
      if (has_failed_in_time) {
        EXPECT_EQ(how, Wire::End::kFailed);
      }
    }));
  }
  EXPECT_TRUE(has_failed_in_time) << "this machine has no time for the threads of this test";
}

TEST(Ends, AThreadThatSleepsHearsOfTheEnd) {
  expect_well(run_test_ranks(2, [](TestRank& rank) {
    exchange(rank, 10, 1, 1);
    if (rank.rank != 0) {
      std::this_thread::sleep_for(std::chrono::milliseconds(200));
      rank.job->fail(0, "to go without a word");
      return;
    }
    std::vector<std::thread> threads;
    for (int tag = 1; tag < 4; ++tag) {
      threads.emplace_back([&rank, tag] {
        TestMessage message(rank);
        message.receive(100, 1, tag);
        EXPECT_EQ(message.end(), Wire::End::kLost);
        EXPECT_THAT(message.reason(), testing::AnyOf(HasSubstr("has ended without a word"), HasSubstr("given up")));
      });
    }
    const double seconds = seconds_of([&] {
      for (std::thread& thread : threads) thread.join();
    });
    EXPECT_LT(seconds, 10);
  }));
}

TEST(Ends, OtherBytesThanExpectedEndTheJobAndGoNowhere) {
  for (const int64_t bytes : {10, 70'000, 3 << 20}) {
    run_test_ranks(2, [&](TestRank& rank) {
      TestMessage message(rank);
      if (rank.rank == 0) {
        message.send(test_bytes(bytes, 1), 1, 1).end();  // done where it was on its way before the other one looked
        return;
      }
      message.receive(bytes + 1, 0, 1);
      EXPECT_EQ(message.end(), Wire::End::kLost);
      EXPECT_EQ(message.reason(),
                fmt::format("it says what no rank says: {} bytes where {} are expected", bytes, bytes + 1));
    });
  }
}

// For so long ranks that refuse each other try: time enough to hear why.
constexpr int64_t kRefusedMs = 4000;

class CertifiedRanks : public testing::Test {
 protected:
  static std::string folder() { return testing::TempDir() + "tls_wire_test_" + std::to_string(getpid()); }
  static void SetUpTestSuite() {
    std::filesystem::remove_all(folder());
    make_certificates({.directory = folder(), .password = Password("pass"), .node_ids = {"left/0", "right/0"}},
                      std::time(nullptr));
  }
  static void TearDownTestSuite() { std::filesystem::remove_all(folder()); }
  static CertificateFiles files(const std::string& name) {
    return {.identity_path = folder() + "/" + name + ".p12",
            .password = Password("pass"),
            .authority_path = folder() + "/ca.crt",
            .revocation_path = folder() + "/crl.pem",
            .ciphers = ""};
  }
  // Rank 0 is node left/0, rank 1 right/0; they show these certificates.
  static std::vector<std::string> meet(const std::string& first, const std::string& second, int64_t timeout_ms) {
    return run_test_ranks(2, [](TestRank& rank) { exchange(rank, 100'000, 1, 1); },
                          {.timeout_ms = timeout_ms, .change = [&](int rank, MeetingOptions& meeting) {
                             meeting.tls.certificates = files(rank == 0 ? first : second);
                             meeting.node_ids = {"left/0", "right/0"};
                           }});
  }
};

TEST_F(CertifiedRanks, MeetAsTheNodesThatTheirCertificatesName) {
  expect_well(meet("left_0", "right_0", 20000));
  expect_well(meet("client", "client", 20000));  // of all nodes
}

TEST_F(CertifiedRanks, ACertificateOfAnotherNodeIsRefused) {
  EXPECT_THAT(meet("left_0", "left_0", kRefusedMs)[0],
              HasSubstr("it has a certificate for node left/0, but is rank 1, of node right/0"));
  EXPECT_THAT(meet("right_0", "right_0", kRefusedMs)[1],
              HasSubstr("it has a certificate for node right/0, but is rank 0, of node left/0"));
}

TEST_F(CertifiedRanks, NobodyIsARankByTheCertificateOfAnotherRole) {
  EXPECT_THAT(meet("server", "right_0", kRefusedMs)[0], HasSubstr("is of role scheduler, with which nobody is a rank"));
  EXPECT_THAT(meet("left_0", "observer", kRefusedMs)[1], HasSubstr("is of role observer, with which nobody is a rank"));
}

TEST_F(CertifiedRanks, TheSecretAloneIsNotEnough) {
  const auto errors =
      run_test_ranks(2, [](TestRank&) {}, {.timeout_ms = kRefusedMs, .change = [&](int rank, MeetingOptions& meeting) {
                                             if (rank == 0) meeting.tls.certificates = files("left_0");
                                           }});
  EXPECT_THAT(errors, Each(HasSubstr("cannot connect to its peers by TLS")));
}

TEST(Meeting, RanksOfAnotherSecretGenerationJobOrSizeDoNotMeet) {
  const auto meet = [](const std::function<void(MeetingOptions&)>& change) {
    const auto errors = run_test_ranks(2, [](TestRank&) { ADD_FAILURE() << "they have met"; },
                                       {.timeout_ms = kRefusedMs, .change = [&](int rank, MeetingOptions& meeting) {
                                          if (rank == 1) change(meeting);
                                        }});
    EXPECT_THAT(errors[1], AllOf(HasSubstr("rank 1 cannot connect to its peers by TLS from 127.0.0.1 within 4000 ms"),
                                 HasSubstr("rank 0 at 127.0.0.1:")));
    return errors[0];
  };
  EXPECT_THAT(meet([](MeetingOptions& meeting) { meeting.tls.secret = meeting.place.secret = test_secret('t'); }),
              HasSubstr("it does not know the job's secret"));
  EXPECT_THAT(meet([](MeetingOptions& meeting) { meeting.place.secret = test_secret('t'); }),
              HasSubstr("it is of another job"));
  EXPECT_THAT(meet([](MeetingOptions& meeting) { meeting.place.generation = 6; }),
              HasSubstr("it is of generation 6, not 7"));
  EXPECT_THAT(meet([](MeetingOptions& meeting) { meeting.place.job_id = "another"; }),
              HasSubstr("it is of another job"));
  EXPECT_THAT(meet([](MeetingOptions& meeting) { meeting.place.size = 3; }),
              HasSubstr("it is of a job of 3 ranks, not 2"));
}

TEST(Meeting, ManyRanksMeet) {
  expect_well(run_test_ranks(12, [](TestRank& rank) {
    const auto context = context_of(rank);
    int64_t sum = rank.rank;
    context->world().all_reduce(&sum, 1, DType::kI64, comm::ReduceOp::kSum, "sum");
    EXPECT_EQ(sum, 66);
  }));
}

}  // namespace
}  // namespace tessera::cluster
