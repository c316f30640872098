// F53: what eight ranks trained predicts the same on one rank and on three; a layout that does not fit is refused.
#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <unistd.h>

#include <cmath>
#include <filesystem>

#include "tessera/base/error.h"
#include "tessera/nn/layers/linear.h"
#include "tessera/ops/functions/functions.h"
#include "tessera/testing/run_ranks.h"
#include "tessera/train/model.h"

namespace tessera::checkpoint::faults {
namespace {

constexpr int64_t kRows = 24;
constexpr int64_t kColumns = 12;
constexpr int64_t kHidden = 31;  // divides by nothing
// Sums over a hidden dim that is split are added in another order.
constexpr double kMaxUlps = 8;

// The hidden dim over `ranks` ranks.
struct Mlp : nn::Cell {
  explicit Mlp(int ranks, int64_t hidden = kHidden)
      : up(child<nn::Dense>("up", kColumns, hidden)), down(child<nn::Dense>("down", hidden, 5)) {
    up.shard("matmul", {{1, 1}, {ranks, 1}});
    down.shard("matmul", {{1, ranks}, {1, ranks}});
  }
  nn::Dense& up;
  nn::Dense& down;
  using Cell::construct;
  ir::Value construct(ir::Value x) override { return down(ops::tanh(up(x))); }
};

Tensor inputs() {
  Tensor x(DType::kF32, {kRows, kColumns});
  for (int64_t i = 0; i < x.num_elements(); ++i) {
    x.values<float>()[static_cast<size_t>(i)] = static_cast<float>(std::sin(static_cast<double>(i)));
  }
  return x;
}

struct Inference : testing::Test {
  // Predicts on so many ranks: with initial values, which are saved in slices, or with those that were saved.
  Tensor predict(int ranks, bool saves, const Encryption& encryption = {}) const {
    Tensor result;
    run_ranks(ranks, [&](cluster::Context& context) {
      Mlp network(ranks);
      train::Model model(context, network, nullptr, nullptr,
                         {.parallel_mode = train::ParallelMode::kSemiAuto, .seed = saves ? 5U : 6U});
      if (!saves) model.load_parameters(path, {.decryption = encryption});
      const auto output = model.predict({inputs()});
      if (saves) model.save_checkpoint(path, {.integrated = false, .encryption = encryption});
      if (context.rank() == 0) result = output;
    });
    return result;
  }
  ~Inference() override { std::filesystem::remove_all(folder); }

  std::filesystem::path folder =
      std::filesystem::temp_directory_path() / fmt::format("tessera-inference-{}", ::getpid());
  std::string path = (folder / "net.ckpt").string();
};

double ulps(double a, double b) {
  const auto scale = std::max({std::abs(a), std::abs(b), 1.0});
  return std::abs(a - b) / (scale * std::ldexp(1.0, -23));
}

TEST_F(Inference, F53_OnOtherRanksThanTraining) {
  const auto expected = predict(8, /*saves=*/true).to_doubles();
  for (const int ranks : {1, 3}) {
    const auto actual = predict(ranks, /*saves=*/false).to_doubles();
    ASSERT_EQ(actual.size(), expected.size());
    for (size_t i = 0; i < expected.size(); ++i) EXPECT_LE(ulps(actual[i], expected[i]), kMaxUlps) << ranks << " " << i;
  }
}

TEST_F(Inference, OfAnEncryptedCheckpointNeedsItsKey) {
  const Encryption encryption{.key = "0123456789abcdef"};
  const auto expected = predict(2, /*saves=*/true, encryption).to_doubles();
  EXPECT_EQ(predict(2, /*saves=*/false, encryption).to_doubles(), expected);
  EXPECT_THAT([&] { predict(1, /*saves=*/false); },
              testing::ThrowsMessage<InvalidArgument>(testing::HasSubstr("is encrypted")));
  EXPECT_THAT([&] { predict(2, /*saves=*/false, {.key = "another key, 16b"}); },
              testing::ThrowsMessage<Error>(testing::HasSubstr("the key is another one")));
}

TEST_F(Inference, F53_AnotherNetworkIsRefused) {
  predict(8, /*saves=*/true);
  run_ranks(3, [&](cluster::Context& context) {
    Mlp network(3, kHidden + 1);
    train::Model model(context, network, nullptr, nullptr, {.parallel_mode = train::ParallelMode::kSemiAuto});
    std::string message;
    try {
      model.load_parameters(path);
    } catch (const InvalidArgument& error) {
      message = error.what();
    }
    EXPECT_THAT(message, testing::AllOf(testing::HasSubstr("up.weight"), testing::HasSubstr("31")));
  });
}

}  // namespace
}  // namespace tessera::checkpoint::faults
