// Claims about the states of a job that have a line for each thing.
#include "tessera/train/core/job_lines.h"

#include <gtest/gtest.h>

namespace tessera::train {
namespace {

TEST(JobLines, ALineIsFoundByItsWholeKey) {
  const std::string state = with_line(with_line("", "1 ", "42"), "11 ", "-7");
  EXPECT_EQ(state, "1 42\n11 -7\n");
  EXPECT_EQ(find_line(state, "1 "), "42");
  EXPECT_EQ(find_line(state, "11 "), "-7");
  EXPECT_EQ(find_line(state, "2 "), std::nullopt);
  EXPECT_EQ(find_line("", "1 "), std::nullopt);
}

TEST(JobLines, ANewLineTakesThePlaceOfTheOneOfItsKey) {
  std::string state = with_line("", "other\t", "x");
  for (int i = 0; i < 1000; ++i) state = with_line(state, "1\tmodel\t", "model_" + std::to_string(i));
  EXPECT_EQ(state, "other\tx\n1\tmodel\tmodel_999\n");
}

}  // namespace
}  // namespace tessera::train
