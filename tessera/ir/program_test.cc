#include "tessera/ir/program.h"

#include <gtest/gtest.h>

#include <fmt/ranges.h>

#include <map>

#include "tessera/base/error.h"

namespace tessera::ir {
namespace {

constexpr const char* kFirst = R"(program of stage 0 of 2: 2 micro-batches in 2 slots
  run forward m0 slot 0
  send forward m0 slot 0 to stage 1
  receive backward m0 slot 0 from stage 1
  run forward m1 slot 1
  send forward m1 slot 1 to stage 1
  receive backward m1 slot 1 from stage 1
  await backward m0 slot 0 from stage 1
  run backward m0 slot 0
  await backward m1 slot 1 from stage 1
  run backward m1 slot 1
  run update
)";
constexpr const char* kSecond = R"(program of stage 1 of 2: 2 micro-batches in 1 slots
  receive forward m0 slot 0 from stage 0
  await forward m0 slot 0 from stage 0
  run forward m0 slot 0
  run backward m0 slot 0
  send backward m0 slot 0 to stage 0
  receive forward m1 slot 0 from stage 0
  await forward m1 slot 0 from stage 0
  run forward m1 slot 0
  run backward m1 slot 0
  send backward m1 slot 0 to stage 0
  run update
)";

std::string replaced(std::string text, const std::string& what, const std::string& by) {
  const auto at = text.find(what);
  if (at != std::string::npos) text.replace(at, what.size(), by);
  return text;
}

std::string faults_of(const std::string& first, const std::string& second) {
  const Program programs[] = {parse_program(first), parse_program(second)};
  return fmt::format("{}", fmt::join(verify_programs(programs), "\n"));
}

TEST(Program, ReadsBackWhatItPrints) {
  for (const char* text : {kFirst, kSecond}) EXPECT_EQ(print(parse_program(text)), text);
}

TEST(Program, NamesTheLineThatIsNoItem) {
  try {
    parse_program(replaced(kFirst, "await", "wait"));
    FAIL() << "nothing was thrown";
  } catch (const InvalidArgument& error) {
    EXPECT_STREQ(
        error.what(),
        "program text, line 8: expected receive, await, run, send or pass at \"wait backward m0 slot 0 from stage 1\"");
  }
}

TEST(Program, IsSoundWhereEverythingIsDoneOnceAndInOrder) { EXPECT_EQ(faults_of(kFirst, kSecond), ""); }

// What two stages do about a parameter that both have.
std::string with_sums(const char* text) {
  return replaced(text, "  run update\n",
                  text == kFirst ? "  receive backward from stage 1\n"
                                   "  await backward from stage 1\n"
                                   "  run update\n"
                                   "  send update to stage 1\n"
                                 : "  send backward to stage 0\n"
                                   "  run update\n"
                                   "  receive update from stage 0\n"
                                   "  await update from stage 0\n");
}

TEST(Program, PassesWhatIsOfAllMicroBatchesOnceAStep) {
  EXPECT_EQ(faults_of(with_sums(kFirst), with_sums(kSecond)), "");
  for (const char* text : {kFirst, kSecond}) {
    const auto all = with_sums(text);
    EXPECT_EQ(print(parse_program(all)), all);
  }
}

TEST(Program, HasAFaultWhereWhatIsOfAllMicroBatchesComesTooEarly) {
  auto early = replaced(with_sums(kSecond), "  send backward to stage 0\n", "");
  early = replaced(early, "  run backward m1 slot 0\n", "  send backward to stage 0\n  run backward m1 slot 0\n");
  EXPECT_EQ(faults_of(with_sums(kFirst), early).find("stage 1, \"send backward to stage 0\": has not run yet"), 0U);
  auto before = replaced(with_sums(kFirst), "  send update to stage 1\n", "");
  before = replaced(before, "  run update\n", "  send update to stage 1\n  run update\n");
  EXPECT_EQ(faults_of(before, with_sums(kSecond)), "stage 0, \"send update to stage 1\": comes before the update");
}

// Stage 1 has the second and the third chunk of three, stage 0 has the first.
constexpr const char* kTurn = R"(program of stage 1 of 2: 2 micro-batches in 1 slots, c2 in 1 slots
  receive forward m0 slot 0 from stage 0
  await forward m0 slot 0 from stage 0
  run forward m0 slot 0
  pass forward m0 slot 0 to stage 1 c2
  run forward c2 m0 slot 0
  run backward c2 m0 slot 0
  pass backward c2 m0 slot 0 to stage 1
  run backward m0 slot 0
  send backward m0 slot 0 to stage 0
  receive forward m1 slot 0 from stage 0
  await forward m1 slot 0 from stage 0
  run forward m1 slot 0
  pass forward m1 slot 0 to stage 1 c2
  run forward c2 m1 slot 0
  run backward c2 m1 slot 0
  pass backward c2 m1 slot 0 to stage 1
  run backward m1 slot 0
  send backward m1 slot 0 to stage 0
  run update
)";

TEST(Program, PassesMessagesBetweenChunksOfItsStage) {
  EXPECT_EQ(print(parse_program(kTurn)), kTurn);
  EXPECT_EQ(parse_program(kTurn).slots, (std::map<int, int>{{1, 1}, {2, 1}}));
  EXPECT_EQ(faults_of(kFirst, kTurn), "");
}

TEST(Program, HasAFaultWhereAMessageIsPassedTooEarlyOrTooLate) {
  const std::string pass = "  pass forward m0 slot 0 to stage 1 c2\n";
  const std::string run = "  run forward m0 slot 0\n";
  EXPECT_EQ(faults_of(kFirst, replaced(kTurn, run + pass, pass + run)),
            "stage 1, \"pass forward m0 slot 0 to stage 1 c2\": has not run yet");
  const std::string late = "  run forward m1 slot 0\n";
  EXPECT_EQ(faults_of(kFirst, replaced(replaced(kTurn, pass, ""), late, late + pass))
                .find("stage 1, \"pass forward m0 slot 0 to stage 1 c2\": the slot is another micro-batch's"),
            0U);
  EXPECT_EQ(faults_of(kFirst, replaced(kTurn, "m1 slot 0 to stage 1 c2", "m1 slot 0 to stage 0 c2"))
                .find("stage 1, \"pass forward m1 slot 0 to stage 0 c2\": that is another stage: it must be sent"),
            0U);
  EXPECT_EQ(faults_of(kFirst, replaced(kTurn, "  run backward c2 m1 slot 0\n", "")),
            "stage 1, \"pass backward c2 m1 slot 0 to stage 1\": has not run yet\n"
            "stage 1, chunk 2: 1 of 2 micro-batches have a backward");
}

TEST(Program, HasAFaultWhereAPhaseIsMissing) {
  EXPECT_EQ(faults_of(kFirst, replaced(kSecond, "  run backward m1 slot 0\n", "")),
            "stage 1, \"send backward m1 slot 0 to stage 0\": has not run yet\n"
            "stage 1: 1 of 2 micro-batches have a backward");
}

TEST(Program, HasAFaultWhereTwoMicroBatchesShareASlot) {
  EXPECT_EQ(faults_of(replaced(kFirst, "run forward m1 slot 1", "run forward m1 slot 0"), kSecond),
            "stage 0, \"run forward m1 slot 0\": the slot is that of m0\n"
            "stage 0, \"await backward m0 slot 0 from stage 1\": the slot is that of m1");
}

TEST(Program, HasAFaultWhereOneEndOfAMessageIsMissing) {
  EXPECT_EQ(faults_of(replaced(kFirst, "  send forward m1 slot 1 to stage 1\n", ""), kSecond),
            "stage 0 sends other messages of forward to stage 1 than that receives");
}

TEST(Program, HasAFaultWhereItStandsInAnothersPlace) {
  const auto faults = faults_of(kSecond, kFirst);
  EXPECT_EQ(
      faults,
      "the program of stage 1 stands in the place of stage 0\nthe program of stage 0 stands in the place of stage 1");
}

TEST(Program, HasAFaultWhereStagesWaitForEachOther) {
  const std::string send = "  send forward m0 slot 0 to stage 1\n";
  const std::string await = "  await backward m0 slot 0 from stage 1\n";
  std::string late = replaced(replaced(kFirst, send, ""), await, "");
  late = replaced(late, "  run forward m1 slot 1\n", await + send + "  run forward m1 slot 1\n");
  EXPECT_EQ(faults_of(late, kSecond),
            "stage 0 waits for ever at \"await backward m0 slot 0 from stage 1\"\n"
            "stage 1 waits for ever at \"await forward m0 slot 0 from stage 0\"");
}

}  // namespace
}  // namespace tessera::ir
