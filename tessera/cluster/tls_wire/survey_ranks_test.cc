// Claims about who is said not to reach whom.
#include "tessera/cluster/tls_wire/survey_ranks.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <netinet/in.h>
#include <sys/socket.h>
#include <unistd.h>

#include <string>
#include <thread>
#include <vector>

#include "tessera/cluster/tls_wire/test_ranks.h"

namespace tessera::cluster {
namespace {

using testing::AllOf;
using testing::Each;
using testing::ElementsAre;
using testing::Field;
using testing::HasSubstr;

// A port of 127.0.0.1 at which nobody listens while this lives.
class RefusedPort {
 public:
  RefusedPort() : socket_(socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC, 0)) {
    sockaddr_in own{};
    own.sin_family = AF_INET;
    own.sin_addr.s_addr = htonl(INADDR_LOOPBACK);
    socklen_t length = sizeof(own);
    EXPECT_EQ(bind(socket_, reinterpret_cast<const sockaddr*>(&own), length), 0);
    EXPECT_EQ(getsockname(socket_, reinterpret_cast<sockaddr*>(&own), &length), 0);
    port_ = ntohs(own.sin_port);
  }
  ~RefusedPort() { close(socket_); }
  std::string address() const { return "127.0.0.1:" + std::to_string(port_); }

 private:
  int socket_;
  uint16_t port_ = 0;
};

// What the ranks of a job on threads have reported, by rank, and the codes with which they have ended; -1: they go on.
struct SurveyOfThreads {
  std::vector<Survey> surveys;
  std::vector<int> codes;
  std::vector<std::string> errors;

  SurveyOfThreads(int size, int64_t timeout_ms, MemoryStore& store)
      : surveys(static_cast<size_t>(size)), codes(static_cast<size_t>(size), -1), errors(static_cast<size_t>(size)) {
    std::vector<std::thread> threads;
    for (int rank = 0; rank < size; ++rank) {
      threads.emplace_back([&, rank] {
        const auto place = static_cast<size_t>(rank);
        const Surveyor surveyor{.words = [](int own) { return "host of rank " + std::to_string(own); },
                                .report =
                                    [&](const Survey& survey) {
                                      surveys[place] = survey;
                                      return 10 + rank;
                                    }};
        try {
          survey_ranks(surveyor, test_meeting(rank, size, timeout_ms), store);
        } catch (const SurveyEnd& end) {
          codes[place] = end.code();
        } catch (const std::exception& error) {
          errors[place] = error.what();
        }
      });
    }
    for (std::thread& thread : threads) thread.join();
  }
};

TEST(SurveyRanks, LetsRanksGoOnThatAllReachEachOther) {
  MemoryStore store;
  const SurveyOfThreads survey(3, 20000, store);
  EXPECT_THAT(survey.errors, Each(""));
  EXPECT_THAT(survey.codes, Each(-1));
  // What the job itself says of its meeting is not met by what the survey has left.
  EXPECT_FALSE(store.find("tls/met/0", 0).has_value());
}

TEST(SurveyRanks, NamesTheRanksThatDoNotReachEachOtherOnEachRank) {
  const RefusedPort nobody;
  // Rank 2 is led to where nobody listens, in place of rank 1.
  MemoryStore store([&](const std::string& name, std::string value) {
    return name == "survey/tls/address/1" ? nobody.address() : value;
  });
  const SurveyOfThreads survey(3, 4000, store);  // in which rank 0 meets the others, however slow they are
  EXPECT_THAT(survey.errors, Each(""));
  EXPECT_THAT(survey.codes, ElementsAre(10, 11, 12));
  for (const Survey& one : survey.surveys) {
    EXPECT_THAT(one.words, ElementsAre("host of rank 0", "host of rank 1", "host of rank 2"));
    EXPECT_EQ(one.missing, "");
    EXPECT_THAT(one.gaps,
                ElementsAre(AllOf(Field(&Gap::rank, 1), Field(&Gap::peer, 2), Field(&Gap::why, "it has not come")),
                            AllOf(Field(&Gap::rank, 2), Field(&Gap::peer, 1), Field(&Gap::address, nobody.address()),
                                  Field(&Gap::why, HasSubstr("refused")))));
  }
}

}  // namespace
}  // namespace tessera::cluster
