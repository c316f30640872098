#include "tessera/train/core/spilled_values.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

namespace tessera::train {
namespace {

using testing::ElementsAre;
using testing::IsEmpty;

const std::vector<ServedValue> kValues = {
    {.name = "bias", .type = {DType::kF32, {25}}},      // 100 bytes
    {.name = "wide", .type = {DType::kF32, {100, 1}}},  // 400
    {.name = "deep", .type = {DType::kF32, {100, 4}}},  // 1600
    {.name = "moment.wide", .type = {DType::kF32, {100, 1}}, .is_state = true},
    {.name = "moment.deep", .type = {DType::kF32, {100, 4}}, .is_state = true},
};

std::vector<std::string> spilled(int64_t limit_bytes) {
  std::vector<std::string> names;
  for (const auto& value : choose_spilled(kValues, limit_bytes)) names.push_back(value.name);
  return names;
}

TEST(SpilledValues, AreTheLargestAndStatesBeforeParameters) {
  EXPECT_THAT(spilled(4100), IsEmpty());
  EXPECT_THAT(spilled(4099), ElementsAre("moment.deep"));
  EXPECT_THAT(spilled(2500), ElementsAre("moment.deep"));
  EXPECT_THAT(spilled(2499), ElementsAre("moment.deep", "deep"));
  EXPECT_THAT(spilled(500), ElementsAre("moment.deep", "deep", "moment.wide"));
  EXPECT_THAT(spilled(100), ElementsAre("moment.deep", "deep", "moment.wide", "wide"));
  EXPECT_THAT(spilled(0), ElementsAre("moment.deep", "deep", "moment.wide", "wide", "bias"));
}

}  // namespace
}  // namespace tessera::train
