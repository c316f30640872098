#include "tessera/checkpoint/strategy/group_file.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "tessera/base/error.h"
#include "tessera/testing/checkpoints/strategy_messages.h"

namespace tessera::checkpoint {
namespace {

using testing::ElementsAre;
using testing::HasSubstr;
using testing::IsEmpty;
using testing::StartsWith;

// Written by hand from docs/checkpoint_format.md; equal to what the reference's message classes of release 2.10 give.
const std::string kGolden = from_hex(R"(
0A 10  0A 08 '4-global'  12 04  08 00 08 04
0A 24  0A 10 'hccl_world_group'  12 10  08 00 08 01 08 02 08 03 08 04 08 05 08 06 08 07
12 04  08 00 08 04
)");

GroupFile golden() {
  return {.groups = {{"4-global", {0, 4}}, {"hccl_world_group", {0, 1, 2, 3, 4, 5, 6, 7}}}, .restore_ranks = {0, 4}};
}

std::string refusal(const std::string& bytes) {
  try {
    parse_group_file(bytes, "g");
  } catch (const InvalidArgument& error) {
    return error.what();
  }
  return "no error";
}

TEST(GroupFile, IsTheGoldenBytes) {
  EXPECT_EQ(group_file_to_protobuf(golden()), kGolden);
  EXPECT_EQ(parse_group_file(kGolden, "g"), golden());
}

TEST(GroupFile, GivesTheRanksThatHoldTheSameSlices) {
  MemoryFileSystem files;
  write_group_file(files, "ckpt_dir0/group_info.pb", golden());
  EXPECT_EQ(read_group_file(files, "ckpt_dir0/group_info.pb"), golden());
  EXPECT_THAT(restore_group_info_list(files, "ckpt_dir0/group_info.pb"), ElementsAre(0, 4));
  EXPECT_THROW(restore_group_info_list(files, "none.pb"), IoError);
}

TEST(GroupFile, WithoutAListGivesNone) {
  EXPECT_EQ(group_file_to_protobuf({}), from_hex("12 00")) << "the reference requires the list, also where empty";
  EXPECT_THAT(parse_group_file(kGolden.substr(0, 18), "g").restore_ranks, IsEmpty());
}

TEST(GroupFile, TakesPackedRanksAndLaterFields) {
  const auto file =
      parse_group_file(from_hex("12 04 0A 02 00 04  1A 01 'x'  0A 0A 0A 01 'a' 12 03 0A 01 05 18 01"), "g");
  EXPECT_EQ(file, (GroupFile{.groups = {{"a", {5}}}, .restore_ranks = {0, 4}}));
}

TEST(GroupFile, FaultsAreNamed) {
  EXPECT_EQ(refusal(""), "g: is empty, it must hold a group file");
  EXPECT_THAT(refusal(from_hex("12 04 08 00")), HasSubstr("byte 1: the file is truncated or damaged"));
  EXPECT_THAT(refusal(from_hex("12 00 12 00")), HasSubstr("byte 2: the list of restore ranks is given twice"));
  EXPECT_THAT(refusal(from_hex("12 04 08 03 08 03")), HasSubstr("the list of restore ranks has rank 3 twice"));
  EXPECT_THAT(refusal(from_hex("12 06 08 FF FF FF FF 0F")), HasSubstr("a restore rank is 4294967295"));
  EXPECT_THAT(refusal(from_hex("0A 02 12 00")), HasSubstr("a group has no name"));
  EXPECT_THAT(refusal(from_hex("0A 03 0A 01 'a'")), HasSubstr("a group, \"a\", has no content"));
  EXPECT_THAT(refusal(kGolden + kGolden.substr(0, 18)), HasSubstr("the group \"4-global\" occurs twice"));
  EXPECT_THAT(refusal(from_hex("08 01")), HasSubstr("a group has wire type 0"));
  EXPECT_THROW(group_file_to_protobuf({.groups = {{"", {}}}}), InvalidArgument);
  EXPECT_THROW(group_file_to_protobuf({.restore_ranks = {-1}}), InvalidArgument);
}

TEST(GroupFile, EveryTruncationInsideAnItemIsDetected) {
  for (size_t size = 0; size < kGolden.size(); ++size) {
    if (size == 18 || size == 56) continue;  // between items
    EXPECT_THAT(refusal(kGolden.substr(0, size)), StartsWith("g: ")) << size;
  }
}

TEST(GroupFile, AnyDamageIsRefusedOrGivesSoundData) {
  int parsed = 0;
  for_each_damage(kGolden, 10000, [&](const std::string& bytes) {
    GroupFile groups;
    try {
      groups = parse_group_file(bytes, "g");
    } catch (const InvalidArgument& error) {
      ASSERT_THAT(error.what(), StartsWith("g: "));
      return;
    }
    ++parsed;
    ASSERT_EQ(parse_group_file(group_file_to_protobuf(groups), "again"), groups);
  });
  EXPECT_GT(parsed, 100);
}

}  // namespace
}  // namespace tessera::checkpoint
