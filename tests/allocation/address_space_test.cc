// Sessions where the system gives less address space than they ask for. Alone in its process, whose limit it changes.
#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <sys/resource.h>

#include "tessera/base/error.h"
#include "tessera/base/limits.h"
#include "tessera/session/session.h"
#include "tessera/testing/run_ranks.h"

namespace tessera {
namespace {

using testing::AllOf;
using testing::HasSubstr;
using testing::StartsWith;
using testing::ThrowsMessage;

constexpr int64_t kGiB = int64_t{1} << 30;

// While it lives, this process can have so much more address space.
class LittleSpace {
 public:
  explicit LittleSpace(int64_t free_bytes) {
    getrlimit(RLIMIT_AS, &before_);
    rlimit little = before_;
    little.rlim_cur = static_cast<rlim_t>(address_space().used + free_bytes);
    setrlimit(RLIMIT_AS, &little);
  }
  ~LittleSpace() { setrlimit(RLIMIT_AS, &before_); }
  LittleSpace(const LittleSpace&) = delete;
  LittleSpace& operator=(const LittleSpace&) = delete;

 private:
  rlimit before_{};
};

void declare(session::Session& session, int64_t bytes) { session.declare("w", {DType::kU8, {bytes}}); }

TEST(AddressSpace, ASessionReservesAShareOfALimitedOne) {
  const LittleSpace little(4 * kGiB);
  const auto context = cluster::single_context(1);
  session::Session session(*context, {});
  declare(session, kGiB);
  EXPECT_GE(session.arena_bytes(), kGiB);
}

TEST(AddressSpace, WhatDoesNotFitIsRefusedWithTheFigures) {
  const LittleSpace little(4 * kGiB);
  const auto context = cluster::single_context(1);
  session::Session session(*context, {});
  EXPECT_THAT([&] { declare(session, 3 * kGiB); },
              ThrowsMessage<InvalidArgument>(AllOf(
                  StartsWith("arena: 3.0 GiB are needed, "), HasSubstr(" are reserved of the "),
                  HasSubstr(" of address space that this process may have (ulimit -v): raise that limit, start fewer "
                            "ranks on this host or make the batch smaller"))));
}

TEST(AddressSpace, RanksThatAreThreadsShareIt) {
  const LittleSpace little(4 * kGiB);
  run_ranks(4, [](cluster::Context& context) {
    session::Session session(context, {});
    declare(session, kGiB / 8);
  });
}

TEST(AddressSpace, WithoutAnyItIsAnErrorWithTheLimits) {
  const LittleSpace little(kGiB / 64);
  const auto context = cluster::single_context(1);
  EXPECT_THAT([&] { session::Session session(*context, {}); },
              ThrowsMessage<IoError>(AllOf(StartsWith("arena: cannot reserve "), HasSubstr("Cannot allocate memory"),
                                           HasSubstr(" of address space (ulimit -v), of which "))));
}

}  // namespace
}  // namespace tessera
