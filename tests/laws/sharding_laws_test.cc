// Every operator under every sharding that its rule allows computes what one device computes, and so do its gradients.
// Compiled twice: with a small sample for the fast suite, and for the laws suite, where TESSERA_TEST_FULL=1 takes all.
#include "tests/laws/sharding_laws.h"

#include <gtest/gtest.h>

#include <iostream>

#include "tessera/testing/full.h"
namespace tessera::laws {
namespace {

constexpr uint64_t kSeed = 20240611;
constexpr size_t kSample = TESSERA_LAWS_SAMPLE;
constexpr int kFailuresShown = 5;  // of an operator

Tally& tally() {
  static Tally all;
  return all;
}

const std::vector<OperatorCases>& operators() {
  static const std::vector<OperatorCases> all = [] {
    auto made = all_sharding_cases(kSeed);
    size_t total = 0;
    for (const auto& each : made) total += each.cases.size();
    if (!TESSERA_LAWS_MAY_BE_FULL || !is_full_test()) keep_sample(made, kSample, kSeed);
    std::cout << "seed " << kSeed << ", " << total << " cases exist\n";
    return made;
  }();
  return all;
}

class ShardingLaws : public testing::TestWithParam<std::string> {};

TEST_P(ShardingLaws, EverySplitComputesWhatOneDeviceComputes) {
  for (const auto& each : operators()) {
    if (each.op != GetParam()) continue;
    int failures = 0;
    for (const auto& sharding_case : each.cases) {
      const auto result = check_case(sharding_case);
      tally().add(sharding_case, result);
      if (result.verdict != Verdict::kFails || ++failures > kFailuresShown) continue;
      ADD_FAILURE() << sharding_case.name() << ": " << result.message;
    }
    if (failures > kFailuresShown) ADD_FAILURE() << failures << " failures of " << each.op;
  }
}

std::vector<std::string> operator_names() {
  std::vector<std::string> names;
  for (const auto& [name, def] : ops::OpRegistry::instance().all()) {
    if (!def.collective) names.push_back(name);
  }
  return names;
}

INSTANTIATE_TEST_SUITE_P(All, ShardingLaws, testing::ValuesIn(operator_names()),
                         [](const auto& info) { return info.param; });

}  // namespace
}  // namespace tessera::laws

int main(int argc, char** argv) {
  testing::InitGoogleTest(&argc, argv);
  const int status = RUN_ALL_TESTS();
  const auto& tally = tessera::laws::tally();
  std::cout << tally.report() << tally.cases() << " cases, " << tally.failures() << " failures\n";
  return status;
}
