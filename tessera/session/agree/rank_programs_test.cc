#include "tessera/session/agree/rank_programs.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "tessera/base/error.h"

namespace tessera::session {
namespace {

using testing::AllOf;
using testing::HasSubstr;
using testing::ThrowsMessage;

Communication sum(const std::vector<int64_t>& members, const std::string& what = "all_reduce sum f32[4]") {
  return {.members = members, .group = members, .what = what, .source = "fc"};
}

Communication transfer(int64_t from, int64_t to) {
  return {.members = {from, to}, .group = {0, 1, 2}, .what = "transfer f32[4]", .source = "fc"};
}

TEST(RankPrograms, FitWhereGroupsMeetInOneOrder) {
  // Rows, then columns, of a grid of four.
  require_matching(
      "step",
      {{sum({0, 1}), sum({0, 2})}, {sum({0, 1}), sum({1, 3})}, {sum({2, 3}), sum({0, 2})}, {sum({2, 3}), sum({1, 3})}});
  // A pipeline, in which rank 1 receives before it sends.
  require_matching("step", {{transfer(0, 1)}, {transfer(0, 1), transfer(1, 2)}, {transfer(1, 2)}});
}

TEST(RankPrograms, AnotherOperatorOrShapeIsNamedOnBothRanks) {
  EXPECT_THAT(
      [] {
        require_matching("step", {{sum({0, 1})}, {sum({0, 1}, "all_reduce sum f32[5]")}});
      },
      ThrowsMessage<InvalidArgument>(
          AllOf(HasSubstr("graph step: rank 0 comes to all_reduce sum f32[4] \"fc\" between ranks 0, 1"),
                HasSubstr("rank 1 comes to all_reduce sum f32[5]"))));
}

TEST(RankPrograms, AMissingCollectiveIsNamed) {
  EXPECT_THAT(
      [] {
        require_matching("step", {{sum({0, 1}), sum({0, 1})}, {sum({0, 1})}});
      },
      ThrowsMessage<InvalidArgument>(HasSubstr("but rank 1 has no more of them")));
}

TEST(RankPrograms, RanksThatWaitForEachOtherAreRefused) {
  EXPECT_THAT(
      [] {
        require_matching("step", {{sum({0, 1}), sum({0, 2})}, {sum({1, 2}), sum({0, 1})}, {sum({0, 2}), sum({1, 2})}});
      },
      ThrowsMessage<InvalidArgument>(HasSubstr("rank 0 comes to")));
}

TEST(RankPrograms, AreReadBackFromTheirText) {
  const std::vector<Communication> list = {sum({0, 1}), transfer(1, 2)};
  EXPECT_EQ(parse_communications(to_text(list)), list);
  EXPECT_EQ(groups_of({list}), (compiler::GroupLists{{0, 1}, {0, 1, 2}}));
}

}  // namespace
}  // namespace tessera::session
