// Networks that ranks write by hand give what one device gives: results, losses and, after some batches, parameters; in
// float64 to 1e-12, in float32 as closely as is stated. Ranks as threads here, as processes in tests/processes.
#include <gtest/gtest.h>

#include <iostream>
#include <mutex>

#include "tessera/testing/run_ranks.h"
#include "tests/equivalence/hybrid_networks.h"
#include "tests/equivalence/where.h"

namespace tessera::equivalence {
namespace {

class Hybrid : public testing::TestWithParam<std::tuple<size_t, int>> {
 protected:
  HybridDeviation worst_of(DType dtype) const {
    const auto [index, ranks] = GetParam();
    HybridDeviation worst;
    std::mutex mutex;
    run_ranks(ranks, [&, index = index](cluster::Context& context) {
      const auto own =
          compare_with_one_device(context, hybrid_cases()[index], dtype, 4, session_there(dtype == DType::kF64));
      const std::lock_guard lock(mutex);
      worst = {std::max(worst.output, own.output), std::max(worst.loss, own.loss),
               std::max(worst.parameters, own.parameters)};
    });
    std::cout << fmt::format("{} {} ranks {}: output {:.1e}, losses {:.1e}, parameters {:.1e}\n",
                             hybrid_cases()[index].name, ranks, dtype, worst.output, worst.loss, worst.parameters);
    return worst;
  }
};

TEST_P(Hybrid, EqualsOneDeviceInFloat64) { EXPECT_LT(worst_of(DType::kF64).worst(), 1e-12); }
TEST_P(Hybrid, EqualsOneDeviceInFloat32) { EXPECT_LT(worst_of(DType::kF32).worst(), 1e-5); }

INSTANTIATE_TEST_SUITE_P(
    Networks, Hybrid, testing::Combine(testing::Range(size_t{0}, hybrid_cases().size()), testing::Values(1, 2, 3, 4)),
    [](const auto& info) {
      return fmt::format("{}_{}", hybrid_cases()[std::get<0>(info.param)].name, std::get<1>(info.param));
    });

}  // namespace
}  // namespace tessera::equivalence
