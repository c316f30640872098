// A rank that hangs in a generation that has ended is noticed, and one that works, waits or saves is not.
#include "tessera/cluster/left_behind.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

namespace tessera::cluster {
namespace {

RankGlance glance_at(uint64_t count, const std::string& phase) {
  RankGlance glance;
  glance.progress.count = count;
  glance.progress.step = 5;
  glance.progress.phase = phase;
  return glance;
}

TEST(LeftBehind, ARankThatComesNoFurtherForTheTimeoutHangsOnceItsGenerationHasEnded) {
  LeftBehind behind(3000);
  const RankGlance hangs = glance_at(7, "the callbacks");
  EXPECT_EQ(behind.look(hangs, /*is_over=*/false, 1000), "");
  EXPECT_EQ(behind.look(hangs, /*is_over=*/false, 4500), "") << "nobody has given it up";
  EXPECT_EQ(behind.look(hangs, /*is_over=*/true, 5000), "") << "it may be about to notice";
  EXPECT_EQ(behind.look(hangs, /*is_over=*/true, 6000),
            "it hangs: it has come no further for 5000 ms: step 5, the callbacks; its generation has ended, and the "
            "others wait");
}

TEST(LeftBehind, ARankThatComesFurtherHasItsTimeAnew) {
  LeftBehind behind(3000);
  EXPECT_EQ(behind.look(glance_at(7, "the callbacks"), true, 0), "");
  EXPECT_EQ(behind.look(glance_at(8, "the callbacks"), true, 2900), "");
  EXPECT_EQ(behind.look(glance_at(8, "the callbacks"), true, 5800), "");
  EXPECT_NE(behind.look(glance_at(8, "the callbacks"), true, 5900), "");
}

TEST(LeftBehind, WhoWaitsForOthersSavesCompilesOrDoesWhatNobodyKnowsIsNotJudged) {
  for (const char* phase : {"", comm::RankProgress::kSave, comm::RankProgress::kCompilation, "waits"}) {
    LeftBehind behind(3000);
    RankGlance glance = glance_at(7, phase);
    if (glance.progress.phase == "waits") glance.waits.emplace_back();
    for (int64_t now_ms = 0; now_ms < 600'000; now_ms += 1000) EXPECT_EQ(behind.look(glance, true, now_ms), "");
  }
}

}  // namespace
}  // namespace tessera::cluster
