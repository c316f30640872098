#include "tessera/compiler/simulate.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <cmath>

#include "tessera/base/error.h"
#include "tessera/compiler/cost/operator_time.h"
#include "tessera/tensor/alignment.h"

namespace tessera::compiler {
namespace {

using testing::ElementsAre;
using testing::HasSubstr;
using testing::ThrowsMessage;

// Numbers whose quotients are exact: 16 operations and 64 bytes a second, half a second a step.
MachineProfile round_numbers() {
  return {.name = "round",
          .flops_per_second = {{DType::kF32, 16}, {DType::kBF16, 64}},
          .memory_bytes_per_second = 64,
          .kernel_overhead_seconds = 0.5,
          .ranks_per_host = 2,
          .intra_host = {32, 0.25},
          .inter_host = {8, 1}};
}

// A schedule written step by step; each value has memory of its own.
class Builder {
 public:
  explicit Builder(int64_t persistent_bytes = 0) {
    schedule_.persistent_bytes = schedule_.arena_bytes = persistent_bytes;
  }
  int value(const Type& type) {
    schedule_.values.push_back({"v", type, dense_strides(type.shape), schedule_.arena_bytes});
    schedule_.arena_bytes += aligned(type.size_bytes());
    return static_cast<int>(schedule_.values.size()) - 1;
  }
  // A data input of the step.
  void read(const std::string& name, int value) { schedule_.inputs[name] = value; }
  int floats(int64_t n) { return value({DType::kF32, {n}}); }
  // Reads and writes 4 bytes for each element: 0.5 s + n / 8 s.
  void negate(int64_t n) { compute("neg", {floats(n)}, {floats(n)}); }
  void compute(const std::string& op, std::vector<int> inputs, std::vector<int> outputs, Attributes attributes = {}) {
    schedule_.steps.push_back({.op = op,
                               .kernel = "fake." + op,
                               .attributes = std::move(attributes),
                               .inputs = std::move(inputs),
                               .outputs = std::move(outputs)});
  }
  int start(const std::string& op, Ints ranks, int64_t order, std::vector<int> inputs, std::vector<int> outputs,
            int64_t lane = ir::kGradientLane) {
    Attributes attributes{{"group", "g"}, {"ranks", std::move(ranks)}, {"order", order},
                          {"lane", lane}, {"root", int64_t{0}},        {"dim", int64_t{0}}};
    schedule_.steps.push_back({.kind = ir::StepKind::kStart,
                               .op = op,
                               .attributes = std::move(attributes),
                               .inputs = std::move(inputs),
                               .outputs = std::move(outputs)});
    return static_cast<int>(schedule_.steps.size()) - 1;
  }
  // An all_reduce of n floats.
  int sum(Ints ranks, int64_t order, int64_t n, int64_t lane = ir::kGradientLane) {
    const int bucket = floats(n);
    return start("all_reduce", std::move(ranks), order, {bucket}, {bucket}, lane);
  }
  void wait(int started) { schedule_.steps.push_back({.kind = ir::StepKind::kWait, .op = "sum", .joins = started}); }
  ir::Schedule schedule() const { return schedule_; }

 private:
  ir::Schedule schedule_;
};

TEST(Simulate, AStepTakesTheLongerOfItsArithmeticAndItsMemory) {
  Builder arithmetic;
  arithmetic.compute("matmul", {arithmetic.value({DType::kF32, {4, 8}}), arithmetic.value({DType::kF32, {8, 2}})},
                     {arithmetic.value({DType::kF32, {4, 2}})}, {{"transpose_a", false}, {"transpose_b", false}});
  // 2*4*8*2 operations in 8 s; 4 * (32+16+8) bytes in 3.5 s.
  EXPECT_EQ(simulate(std::vector<RankClass>{{{0}, arithmetic.schedule()}}, round_numbers()).step_seconds, 8.5);

  Builder memory;
  memory.negate(32);  // 256 bytes in 4 s, 32 operations in 2 s
  EXPECT_EQ(simulate(std::vector<RankClass>{{{0}, memory.schedule()}}, round_numbers()).step_seconds, 4.5);
}

TEST(Simulate, ArithmeticRunsAtTheSpeedOfItsDtype) {
  Builder half;
  half.compute("matmul", {half.value({DType::kBF16, {4, 8}}), half.value({DType::kBF16, {8, 2}})},
               {half.value({DType::kBF16, {4, 2}})}, {{"transpose_a", false}, {"transpose_b", false}});
  // 128 operations in 2 s; 2 * 56 bytes in 1.75 s.
  EXPECT_EQ(simulate(std::vector<RankClass>{{{0}, half.schedule()}}, round_numbers()).step_seconds, 2.5);
}

TEST(Simulate, AnAllReduceIsHiddenBehindComputingAndTheRestIsExposed) {
  Builder rank;
  rank.negate(8);                               // until 1.5
  const int started = rank.sum({0, 1}, 0, 16);  // 64 bytes: 2 rounds of 0.25 s, 64 bytes received in 2 s: until 4
  rank.negate(4);                               // until 2.5
  rank.wait(started);                           // until 4
  rank.negate(4);                               // until 5
  const auto simulation = simulate(std::vector<RankClass>{{{0, 1}, rank.schedule()}}, round_numbers());
  ASSERT_EQ(simulation.classes.size(), 1U);
  const auto& both = simulation.classes[0];
  EXPECT_EQ(simulation.step_seconds, 5);
  EXPECT_EQ(both.compute_seconds, 3.5);
  EXPECT_EQ(both.exposed_seconds, 1.5);
  EXPECT_EQ(both.communication_seconds, 2.5);
  EXPECT_EQ(both.received_bytes, 64);
  EXPECT_EQ(simulation.received_bytes, 128);
  EXPECT_EQ(both.groups.at("g").num_collectives, 1);
  EXPECT_EQ(both.groups.at("g").group_size, 2);

  std::vector<std::vector<double>> timeline;
  for (const auto& step : both.timeline) {
    timeline.push_back({static_cast<double>(step.step), step.begin_seconds, step.end_seconds});
  }
  EXPECT_THAT(timeline, ElementsAre(ElementsAre(0, 0, 1.5), ElementsAre(1, 1.5, 4), ElementsAre(2, 1.5, 2.5),
                                    ElementsAre(3, 2.5, 4), ElementsAre(4, 4, 5)));
}

TEST(Simulate, WhatIsHiddenSlowsComputingDownWhereTheSameCoresDoIt) {
  Builder rank;
  const int started = rank.sum({0, 1}, 0, 16);  // until 2.5
  rank.negate(4);                               // until 1
  rank.wait(started);                           // stands for 1.5, and has lost half of 1
  auto profile = round_numbers();
  profile.communication_load = 0.5;
  const auto simulation = simulate(std::vector<RankClass>{{{0, 1}, rank.schedule()}}, profile);
  EXPECT_EQ(simulation.step_seconds, 3);
  EXPECT_EQ(simulation.classes[0].exposed_seconds, 2);
  EXPECT_EQ(simulation.classes[0].communication_seconds, 2.5);
}

TEST(Simulate, ACollectiveBeginsWhenTheLastRankHasCome) {
  Builder early;
  early.wait(early.sum({0, 1}, 0, 16));
  Builder late;
  late.negate(60);  // 8 s
  late.wait(late.sum({0, 1}, 0, 16));
  const auto simulation =
      simulate(std::vector<RankClass>{{{0}, early.schedule()}, {{1}, late.schedule()}}, round_numbers());
  EXPECT_EQ(simulation.step_seconds, 10.5);
  EXPECT_EQ(simulation.classes[0].exposed_seconds, 10.5);
  EXPECT_EQ(simulation.classes[0].communication_seconds, 2.5);
  EXPECT_EQ(simulation.classes[1].exposed_seconds, 2.5);
}

TEST(Simulate, AStepIsNoShorterThanItsDataTakeToComeFromTheHost) {
  Builder rank;
  rank.negate(4);  // 1 s
  rank.read("x", rank.floats(16));
  rank.read("label", rank.floats(4));
  const std::vector<RankClass> classes = {{{0, 1}, rank.schedule()}};
  auto profile = round_numbers();
  EXPECT_EQ(simulate_with_data(classes, profile).step_seconds, 1);  // ranks compute in the host's memory
  profile.host_link = {16, 0.25};                                   // two copies: 0.5 s, and 80 bytes in 5 s
  const auto fed = simulate_with_data(classes, profile);
  EXPECT_EQ(fed.step_seconds, 5.5);
  EXPECT_EQ(fed.classes[0].compute_seconds, 1);
  EXPECT_EQ(fed.classes[0].exposed_seconds, 4.5);
  EXPECT_EQ(simulate(classes, profile).step_seconds, 1);
  profile.host_link = {1000, 0.25};  // 0.58 s, beside the step before
  EXPECT_EQ(simulate_with_data(classes, profile).step_seconds, 1);
}

TEST(Simulate, WhatIsAwaitedDoesNotStandBehindGradients) {
  Builder rank;
  const int gradients = rank.sum({0, 1}, 0, 16);                // until 2.5
  const int first = rank.sum({0, 1}, 1, 4, ir::kAwaitedLane);   // until 1
  const int second = rank.sum({0, 1}, 2, 4, ir::kAwaitedLane);  // until 2
  rank.wait(first);
  rank.negate(4);  // until 2
  rank.wait(second);
  rank.wait(gradients);
  const auto simulation = simulate(std::vector<RankClass>{{{0, 1}, rank.schedule()}}, round_numbers());
  EXPECT_EQ(simulation.step_seconds, 2.5);
  EXPECT_EQ(simulation.classes[0].exposed_seconds, 1.5);
  EXPECT_EQ(simulation.classes[0].communication_seconds, 4.5);
}

TEST(Simulate, CollectivesOfALaneRunOneAfterTheOther) {
  Builder rank;
  const int first = rank.sum({0, 1}, 0, 16);
  const int second = rank.sum({0, 1}, 1, 16);
  rank.wait(second);
  rank.wait(first);
  EXPECT_EQ(simulate(std::vector<RankClass>{{{0, 1}, rank.schedule()}}, round_numbers()).step_seconds, 5);
}

TEST(Simulate, WhatComesFromOtherHostsComesOverTheirLink) {
  Builder rank;
  const int in = rank.floats(8);
  rank.wait(rank.start("all_gather", {0, 1, 2, 3}, 0, {in}, {rank.floats(32)}));
  // 32 bytes of the neighbour in 1 s, 64 of the other host in 8 s, a round over the slower link in 1 s.
  const auto simulation = simulate(std::vector<RankClass>{{{0, 1, 2, 3}, rank.schedule()}}, round_numbers());
  EXPECT_EQ(simulation.step_seconds, 10);
  EXPECT_EQ(simulation.classes[0].received_bytes, 96);
}

TEST(Simulate, LargerGroupsOfAHostMayHaveSlowerLinks) {
  auto profile = round_numbers();
  profile.ranks_per_host = 4;
  profile.intra_host_by_ranks = {{3, {16, 0.5}}};
  const auto seconds_among = [&](const std::vector<int>& ranks) {
    Builder rank;
    const int in = rank.floats(8);
    const auto num = static_cast<int64_t>(ranks.size());
    rank.wait(rank.start("all_gather", Ints(ranks.begin(), ranks.end()), 0, {in}, {rank.floats(8 * num)}));
    return simulate(std::vector<RankClass>{{ranks, rank.schedule()}}, profile).step_seconds;
  };
  EXPECT_EQ(seconds_among({0, 1}), 0.25 + 32.0 / 32);
  EXPECT_EQ(seconds_among({0, 1, 2, 3}), 0.5 + 96.0 / 16);
}

TEST(Simulate, EachCollectiveReceivesWhatItsRankHasNot) {
  const auto received = [](const std::string& op, int64_t in, int64_t out, int rank) {
    Builder own;
    const int operand = own.floats(in);
    own.wait(own.start(op, {0, 1}, 0, {operand}, {own.floats(out)}));
    Builder other = own;
    return simulate(std::vector<RankClass>{{{0}, own.schedule()}, {{1}, other.schedule()}}, round_numbers())
        .classes[static_cast<size_t>(rank)]
        .received_bytes;
  };
  EXPECT_EQ(received("all_gather", 6, 10, 0), 16);
  EXPECT_EQ(received("reduce_scatter", 10, 6, 0), 24);
  EXPECT_EQ(received("all_to_all", 8, 8, 0), 16);
  EXPECT_EQ(received("broadcast", 8, 8, 0), 0);
  EXPECT_EQ(received("broadcast", 8, 8, 1), 32);
}

TEST(Simulate, ABucketOfGathersReceivesWhatEachOfThemDoes) {
  Builder rank;
  const int a = rank.floats(2);
  const int b = rank.floats(3);
  const int staging = rank.floats(10);
  rank.wait(rank.start("all_gather", {0, 1}, 0, {a, b, staging}, {rank.floats(4), rank.floats(6)}));
  EXPECT_EQ(simulate(std::vector<RankClass>{{{0, 1}, rank.schedule()}}, round_numbers()).classes[0].received_bytes, 20);
}

TEST(Simulate, WhatPassesThroughASecondBufferIsCopied) {
  Builder rank;
  const int in = rank.floats(8);
  const int staging = rank.floats(16);
  rank.wait(rank.start("all_gather", {0, 1}, 0, {in, staging}, {rank.floats(16)}));
  // A round in 0.25 s, 32 bytes received in 1 s, 64 read and written in 2 s.
  EXPECT_EQ(simulate(std::vector<RankClass>{{{0, 1}, rank.schedule()}}, round_numbers()).step_seconds, 3.25);
}

TEST(Simulate, AGroupOfOneRankReceivesNothing) {
  Builder rank;
  rank.wait(rank.sum({0}, 0, 16));
  const auto simulation = simulate(std::vector<RankClass>{{{0}, rank.schedule()}}, round_numbers());
  EXPECT_EQ(simulation.step_seconds, 0);
  EXPECT_EQ(simulation.received_bytes, 0);
}

TEST(Simulate, MemoryIsTheHighestByteThatAStepTouches) {
  Builder rank(128);
  rank.negate(20);  // two values of 80 bytes, 128 each with their alignment
  rank.floats(1000);
  const auto simulation = simulate(std::vector<RankClass>{{{0}, rank.schedule()}}, round_numbers());
  EXPECT_EQ(simulation.classes[0].peak_memory_bytes, 128 + 2 * 128);
  EXPECT_EQ(simulation.classes[0].persistent_bytes, 128);
}

TEST(Simulate, RanksThatWaitForOneAnotherForEverAreNamed) {
  Builder zero;
  zero.wait(zero.sum({0, 1}, 0, 4));
  Builder one;
  one.wait(one.sum({0, 1}, 7, 4));
  EXPECT_THAT(
      [&] {
        simulate(std::vector<RankClass>{{{0}, zero.schedule()}, {{1}, one.schedule()}}, round_numbers());
      },
      ThrowsMessage<InvalidArgument>("rank 0 waits for ever in all_reduce #0 of group \"g\": the schedules do not "
                                     "communicate alike"));
}

TEST(Simulate, RefusesGroupsWithRanksThatAreNotThereAndPointToPointSteps) {
  Builder rank;
  rank.wait(rank.sum({0, 5}, 0, 4));
  EXPECT_THAT(
      [&] {
        simulate(std::vector<RankClass>{{{0}, rank.schedule()}}, round_numbers());
      },
      ThrowsMessage<InvalidArgument>("rank 5 of group \"g\" is in no class"));
  Builder other;
  other.wait(other.sum({1, 2}, 0, 4));
  EXPECT_THAT(
      [&] {
        simulate(std::vector<RankClass>{{{0}, other.schedule()}}, round_numbers());
      },
      ThrowsMessage<InvalidArgument>(HasSubstr("rank 0 takes part in all_reduce of group \"g\"")));
  Builder sender;
  const int x = sender.floats(4);
  sender.wait(sender.start("send", {0, 1}, 0, {x}, {x}));
  EXPECT_THAT(
      [&] {
        simulate(std::vector<RankClass>{{{0, 1}, sender.schedule()}}, round_numbers());
      },
      ThrowsMessage<InvalidArgument>(HasSubstr("send")));
}

constexpr const char* kProfile = R"({
  "name": "two hosts",
  "flops_per_second": {"f32": 1000000000000.0, "bf16": 4000000000000.0},
  "memory_bytes_per_second": 100000000000.0,
  "kernel_overhead_seconds": 1e-06,
  "ranks_per_host": 4,
  "intra_host": {"bytes_per_second": 50000000000.0, "latency_seconds": 0.0},
  "inter_host": {"bytes_per_second": 1000000000.0, "latency_seconds": 5e-05}
})";

std::string with(std::string text, const std::string& from, const std::string& to) {
  return text.replace(text.find(from), from.size(), to);
}

TEST(MachineProfile, ReadsWhatItWrites) {
  const auto profile = parse_profile(kProfile, "p.json");
  EXPECT_EQ(profile.name, "two hosts");
  EXPECT_EQ(profile.flops_of(DType::kBF16, "matmul"), 4e12);
  EXPECT_EQ(profile.flops_of(DType::kF64, "matmul"), 1e12);
  EXPECT_EQ(profile.ranks_per_host, 4);
  EXPECT_EQ(profile.host_of(7), 1);
  EXPECT_EQ(profile.inter_host.latency_seconds, 5e-5);
  EXPECT_EQ(to_json(parse_profile(to_json(profile), "again")), to_json(profile));
  EXPECT_EQ(to_json(parse_profile(to_json(example_profile()), "example")), to_json(example_profile()));
}

TEST(MachineProfile, SpeedsOfConvolutionsAndOfLargerGroupsMayDiffer) {
  const auto profile = parse_profile(with(kProfile, "\"name\"", R"("memory_bytes": 8e10,
      "convolution_flops_per_second": {"bf16": 3e12},
      "intra_host_by_ranks": {"3": {"bytes_per_second": 2e10, "latency_seconds": 1e-6},
                              "4": {"bytes_per_second": 1e10, "latency_seconds": 2e-6}}, "name")"),
                                     "p.json");
  EXPECT_EQ(profile.memory_bytes, 80'000'000'000);
  EXPECT_EQ(profile.flops_of(DType::kBF16, "conv2d_grad_input"), 3e12);
  EXPECT_EQ(profile.flops_of(DType::kF32, "conv2d"), 1e12);
  EXPECT_EQ(profile.flops_of(DType::kBF16, "matmul"), 4e12);
  EXPECT_EQ(profile.flops_of(DType::kBF16, "gelu"), 4e12);
  EXPECT_EQ(profile.intra_host_of(2).bytes_per_second, 5e10);
  EXPECT_EQ(profile.intra_host_of(3).bytes_per_second, 2e10);
  EXPECT_EQ(profile.intra_host_of(64).latency_seconds, 2e-6);
  EXPECT_EQ(to_json(parse_profile(to_json(profile), "again")), to_json(profile));
}

TEST(MachineProfile, ProductsOfFloat32MayBeRoundedAndDevicesHaveALinkToTheirHost) {
  const auto profile = parse_profile(with(with(kProfile, "\"bf16\"", "\"tf32\": 3e12, \"bf16\""), "\"name\"",
                                          R"("convolution_flops_per_second": {"tf32": 2e12},
      "host_link": {"bytes_per_second": 5e10, "latency_seconds": 1e-5}, "name")"),
                                     "p.json");
  EXPECT_EQ(profile.tf32_flops_per_second, 3e12);
  EXPECT_EQ(profile.tf32_convolution_flops_per_second, 2e12);
  EXPECT_EQ(profile.flops_of(DType::kF32, "matmul"), 1e12);
  EXPECT_EQ(profile.with_tf32().flops_of(DType::kF32, "matmul"), 3e12);
  EXPECT_EQ(profile.with_tf32().flops_of(DType::kF32, "conv2d"), 2e12);
  EXPECT_EQ(profile.host_link.bytes_per_second, 5e10);
  EXPECT_EQ(to_json(parse_profile(to_json(profile), "again")), to_json(profile));
}

TEST(MachineProfile, CachesAndOtherOperatorsMayHaveSpeedsOfTheirOwn) {
  const auto profile = parse_profile(with(kProfile, "\"name\"", R"("vector_flops_per_second": {"f32": 1e11},
      "cached_bytes_per_second": {"1000": 4e11, "1000000": 2e11}, "communication_load": 0.25, "name")"),
                                     "p.json");
  EXPECT_EQ(profile.flops_of(DType::kF32, "softmax"), 1e11);
  EXPECT_EQ(profile.flops_of(DType::kF32, "fused_matmul"), 1e12);
  EXPECT_EQ(profile.flops_of(DType::kF32, "attention"), 1e12);
  EXPECT_EQ(profile.flops_of(DType::kF32, "conv2d"), 1e12);
  EXPECT_EQ(profile.bytes_per_second_of(1000), 4e11);
  EXPECT_EQ(profile.bytes_per_second_of(1001), 2e11);
  EXPECT_EQ(profile.bytes_per_second_of(1e7), 1e11);
  EXPECT_EQ(profile.communication_load, 0.25);
  EXPECT_EQ(profile.work_seconds("add", DType::kF32, 1e6, 2e6), 1e-6 + 2e-5);
  EXPECT_EQ(profile.work_seconds("add", DType::kF32, 1e7, 100), 1e-6 + 1e-4);
  EXPECT_EQ(to_json(parse_profile(to_json(profile), "again")), to_json(profile));
}

// Forward alone was measured at two sizes of each kind, the gradient of the weight at one.
constexpr const char* kShares = R"("convolutions": {"in_channels": [4, 64], "out_channels": [16, 64],
      "pixels": [64, 4096], "shares": {
        "conv2d": [0.1, 0.2, 0.2, 0.4, 0.4, 0.8, 0.5, 1],
        "conv2d strided": [0.05, 0.1, 0.1, 0.2, 0.2, 0.4, 0.25, 0.5],
        "conv2d_grad_weight": [0.3, 0.3, 0.3, 0.3, 0.3, 0.3, 0.3, 1.2]}}, "name")";

TEST(MachineProfile, SmallConvolutionsReachAShareOfTheSpeed) {
  const auto profile = parse_profile(with(kProfile, "\"name\"", kShares), "p.json");
  const auto share = [&](int64_t in_channels, int64_t out_channels, int64_t pixels) {
    return profile.convolution_shares.of(
        {.op = "conv2d", .in_channels = in_channels, .out_channels = out_channels, .pixels = pixels});
  };
  EXPECT_NEAR(share(4, 16, 64), 0.1, 1e-12);
  EXPECT_NEAR(share(64, 64, 4096), 1, 1e-12);
  // Images of few channels make results of many, and the other way round.
  EXPECT_NEAR(share(4, 64, 4096), 0.4, 1e-12);
  EXPECT_NEAR(share(64, 16, 4096), 0.8, 1e-12);
  // Half way, as logarithms are.
  EXPECT_NEAR(share(4, 16, 512), std::sqrt(0.1 * 0.2), 1e-12);
  EXPECT_NEAR(share(16, 16, 64), std::sqrt(0.1 * 0.4), 1e-12);
  EXPECT_NEAR(share(64, 32, 64), std::sqrt(0.4 * 0.5), 1e-12);
  // What lies beyond is as the nearest.
  EXPECT_NEAR(share(1, 1, 1), 0.1, 1e-12);
  EXPECT_NEAR(share(1024, 1024, 1 << 20), 1, 1e-12);
  EXPECT_EQ(example_profile().convolution_shares.of({.op = "conv2d"}), 1);
  EXPECT_EQ(to_json(parse_profile(to_json(profile), "again")), to_json(profile));
}

TEST(MachineProfile, KindsOfConvolutionsHaveSharesOfTheirOwn) {
  const auto profile = parse_profile(with(kProfile, "\"name\"", kShares), "p.json");
  const auto share = [&](const std::string& op, bool is_pointwise, bool is_strided) {
    return profile.convolution_shares.of({op, is_pointwise, is_strided, 64, 64, 4096});
  };
  EXPECT_NEAR(share("conv2d", false, false), 1, 1e-12);
  EXPECT_NEAR(share("conv2d", false, true), 0.5, 1e-12);
  EXPECT_NEAR(share("conv2d_grad_weight", false, false), 1.2, 1e-12);
  // A kind that nobody measured is as its operator, an operator as one that is large.
  EXPECT_NEAR(share("conv2d", true, true), 1, 1e-12);
  EXPECT_NEAR(share("conv2d_grad_weight", true, true), 1.2, 1e-12);
  EXPECT_NEAR(share("conv2d_grad_input", false, false), 1, 1e-12);
}

TEST(MachineProfile, ShortPiecesAreCopiedSlowly) {
  const auto profile = parse_profile(
      with(kProfile, "\"name\"", R"("copied_bytes_per_second": {"4": 1e9, "64": 4e9, "1024": 2e11}, "name")"),
      "p.json");
  EXPECT_NEAR(profile.copy_seconds(1e6, 1), 1e-3, 1e-9);
  EXPECT_NEAR(profile.copy_seconds(1e6, 4), 1e-3, 1e-9);
  EXPECT_NEAR(profile.copy_seconds(1e6, 16), 0.5e-3, 1e-9);
  EXPECT_NEAR(profile.copy_seconds(1e6, 64), 0.25e-3, 1e-9);
  // Never faster than memory, which is all that is known where nothing was measured.
  EXPECT_NEAR(profile.copy_seconds(1e6, 1024), 1e-5, 1e-12);
  EXPECT_NEAR(profile.copy_seconds(1e6, 1 << 20), 1e-5, 1e-12);
  EXPECT_NEAR(parse_profile(kProfile, "p.json").copy_seconds(1e6, 4), 1e-5, 1e-12);
  EXPECT_EQ(to_json(parse_profile(to_json(profile), "again")), to_json(profile));
}

// The same images: channels that are split are fewer, and slower than their part of the work; which ones are, and what
// is computed of them, makes a difference.
TEST(OperatorTime, ASplitConvolutionTakesMoreThanItsPart) {
  auto profile = parse_profile(with(kProfile, "\"name\"", kShares), "p.json");
  profile.kernel_overhead_seconds = 0;
  profile.memory_bytes_per_second = 1e18;
  const auto seconds = [&](const std::string& op, std::initializer_list<Type> inputs, const Type& output) {
    return operator_seconds(op, {}, std::vector<Type>(inputs), std::vector<Type>{output}, profile);
  };
  const auto images = [](int64_t channels) { return Type{DType::kF32, {64, channels, 8, 8}}; };
  const auto weight = [](int64_t to, int64_t from) { return Type{DType::kF32, {to, from, 3, 3}}; };
  const double whole = 2.0 * 64 * 64 * 64 * 64 * 9 / 1e12;
  EXPECT_NEAR(seconds("conv2d", {images(64), weight(64, 64)}, images(64)), whole, 1e-9 * whole);
  const double quarter = 0.25 * whole;
  EXPECT_NEAR(seconds("conv2d", {images(64), weight(16, 64)}, images(16)), quarter / 0.8, 1e-9 * whole);
  EXPECT_NEAR(seconds("conv2d", {images(16), weight(64, 16)}, images(64)), quarter / std::sqrt(0.4 * 1), 1e-9 * whole);
  EXPECT_NEAR(seconds("conv2d_grad_weight", {images(64), images(64)}, weight(64, 64)), whole / 1.2, 1e-9 * whole);
  EXPECT_NEAR(seconds("conv2d_grad_weight", {images(16), images(64)}, weight(16, 64)), quarter / 0.3, 1e-9 * whole);
}

TEST(OperatorTime, AConvolutionHasAKindAndTheChannelsOfAGroup) {
  const Type images{DType::kF32, {64, 64, 8, 8}};
  const auto size = convolution_size("conv2d", {{"groups", int64_t{16}}, {"strides", Ints{1, 2}}},
                                     std::vector<Type>{images, Type{DType::kF32, {32, 4, 1, 1}}},
                                     std::vector<Type>{Type{DType::kF32, {64, 32, 8, 4}}});
  ASSERT_TRUE(size);
  EXPECT_EQ(size->kind(), "conv2d 1x1 strided");
  EXPECT_EQ(size->in_channels, 4);
  EXPECT_EQ(size->out_channels, 2);
  EXPECT_EQ(size->pixels, 2048);
  const auto gradient = convolution_size("conv2d_grad_input", {{"strides", Ints{1, 1}}},
                                         std::vector<Type>{images, Type{DType::kF32, {64, 8, 3, 3}}},
                                         std::vector<Type>{Type{DType::kF32, {64, 8, 8, 8}}});
  ASSERT_TRUE(gradient);
  EXPECT_EQ(gradient->kind(), "conv2d_grad_input");
  EXPECT_EQ(gradient->in_channels, 8);
  EXPECT_EQ(gradient->out_channels, 64);
  EXPECT_FALSE(convolution_size("matmul", {}, {}, {}));
}

// 4096 bytes in either order, at 4 bytes a microsecond where single elements are moved.
TEST(OperatorTime, ImagesThatLieInAnotherOrderAreCopiedOnTheirWay) {
  MachineProfile profile;
  profile.memory_bytes_per_second = 1e18;
  profile.copied_bytes_per_second = {{4, 8e6}};
  const Shape shape{4, 16, 4, 4};
  const Type type{DType::kF32, shape};
  const ir::ScheduledValue channels_last{"a", type, channels_last_strides(shape), 0};
  const ir::ScheduledValue row_major{"b", type, dense_strides(shape), 0};
  const ir::ScheduledValue weight{"w", type, dense_strides(shape), 0};
  const ir::ScheduledValue row{"r", {DType::kF32, {16}}, {1}, 0};
  const auto seconds = [&](const std::string& op, std::vector<ir::ScheduledValue> in,
                           std::vector<ir::ScheduledValue> out) { return rearranging_seconds(op, in, out, profile); };
  const double once = 2 * 4096 / 8e6;
  EXPECT_EQ(seconds("add", {channels_last, channels_last}, {channels_last}), 0);
  EXPECT_EQ(seconds("add", {row_major, row_major}, {row_major}), 0);
  EXPECT_NEAR(seconds("add", {row_major, channels_last}, {channels_last}), once, 1e-12);
  EXPECT_NEAR(seconds("relu", {channels_last}, {row_major}), once, 1e-12);
  // These work on channels-last images; a weight is none.
  EXPECT_EQ(seconds("conv2d", {channels_last, weight}, {channels_last}), 0);
  EXPECT_NEAR(seconds("conv2d", {row_major, weight}, {channels_last}), once, 1e-12);
  EXPECT_NEAR(seconds("conv2d_grad_weight", {row_major, row_major}, {weight}), 2 * once, 1e-12);
  EXPECT_NEAR(seconds("batch_norm_mean", {row_major}, {row}), once, 1e-12);
  EXPECT_EQ(seconds("reduce_sum", {row_major}, {row}), 0);
  // Convolutions do so in a way of their own, where that was measured.
  profile.rearranged_bytes_per_second = 2e6;
  EXPECT_NEAR(seconds("conv2d", {row_major, weight}, {channels_last}), 4 * once, 1e-12);
  EXPECT_NEAR(seconds("relu", {channels_last}, {row_major}), once, 1e-12);

  EXPECT_NEAR(copy_seconds(channels_last, row_major, profile), once, 1e-12);
  EXPECT_NEAR(copy_seconds(row_major, row_major, profile), 0, 1e-12);
}

TEST(MachineProfile, RefusalsNameFileMemberAndValue) {
  const auto refusal = [](const std::string& from, const std::string& to) -> std::string {
    try {
      parse_profile(with(kProfile, from, to), "p.json");
    } catch (const InvalidArgument& error) {
      return error.what();
    }
    return "accepted";
  };
  EXPECT_EQ(refusal("\"ranks_per_host\": 4", "\"ranks_per_host\": 0"),
            "p.json: \"ranks_per_host\" must be a number above 0, got 0");
  EXPECT_EQ(refusal("\"ranks_per_host\": 4", "\"ranks_per_host\": 1.5"),
            "p.json: \"ranks_per_host\" must be a whole number from 1 to 1000000, got 1.5");
  EXPECT_EQ(refusal("\"latency_seconds\": 0.0", "\"latency_seconds\": -1"),
            "p.json: intra_host: \"latency_seconds\" must be a number of at least 0, got -1");
  EXPECT_EQ(refusal("\"f32\": 1000000000000.0, ", ""), "p.json: flops_per_second: \"f32\" is missing");
  EXPECT_EQ(refusal("\"bf16\": 4000000000000.0", "\"bf16\": \"fast\""),
            "p.json: flops_per_second: \"bf16\" must be a number above 0, got \"fast\"");
  EXPECT_THAT(refusal("\"bf16\"", "\"b16\""), HasSubstr("b16"));
  EXPECT_EQ(refusal("\"bf16\"", "\"tf32\": 0, \"bf16\""),
            "p.json: flops_per_second: \"tf32\" must be a number above 0, got 0");
  EXPECT_THAT(refusal("\"name\"", "\"vector_flops_per_second\": {\"tf32\": 1e11}, \"name\""), HasSubstr("tf32"));
  EXPECT_EQ(refusal("\"name\"", "\"host_link\": {\"bytes_per_second\": 0, \"latency_seconds\": 0}, \"name\""),
            "p.json: host_link: \"bytes_per_second\" must be a number above 0, got 0");
  EXPECT_EQ(refusal("\"name\": \"two hosts\"", "\"name\": 7"), "p.json: \"name\" must be a string, got 7");
  EXPECT_THAT(refusal("\"name\"", "\"nmae\""), HasSubstr("p.json: \"nmae\" is not known; there are: name, "));
  EXPECT_THAT(refusal("\"ranks_per_host\": 4,", ""), HasSubstr("p.json: \"ranks_per_host\" is missing"));
  EXPECT_THAT(refusal("{\"bytes_per_second\": 50000000000.0, \"latency_seconds\": 0.0}", "3"),
              "p.json: intra_host: must be an object, got 3");
  EXPECT_THAT(refusal("{", ""), HasSubstr("p.json: not JSON: "));
  EXPECT_EQ(refusal("\"name\"", "\"communication_load\": 1.5, \"name\""),
            "p.json: \"communication_load\" must be from 0 to 1, got 1.5");
  EXPECT_EQ(refusal("\"name\"", "\"cached_bytes_per_second\": {\"0\": 3e11}, \"name\""),
            "p.json: cached_bytes_per_second: \"0\" must be a number of bytes from 1 to 1000000000000000000");
  EXPECT_EQ(refusal("\"name\"", "\"cached_bytes_per_second\": {\"10\": 3e11, \"20\": 4e11}, \"name\""),
            "p.json: cached_bytes_per_second: 3e+11 bytes a second of 10 bytes are less than 4e+11 of more "
            "bytes");
  EXPECT_EQ(refusal("\"name\"", "\"cached_bytes_per_second\": {\"10\": 3e10}, \"name\""),
            "p.json: cached_bytes_per_second: 3e+10 bytes a second of 10 bytes are less than 1e+11 of more "
            "bytes");
  const auto refused = [&](const std::string& member) { return refusal("\"name\"", member + ", \"name\""); };
  const auto convolutions = [&](const std::string& in_channels, const std::string& shares) {
    return refused(R"("convolutions": {"in_channels": )" + in_channels +
                   R"(, "out_channels": [8], "pixels": [64, 512], "shares": {)" + shares + "}}");
  };
  EXPECT_EQ(convolutions("[8]", R"("conv2d": [0.5, 1.5])"), "accepted");
  EXPECT_EQ(convolutions("[8, 4]", ""),
            "p.json: convolutions: in_channels must be whole numbers above 0, each above the one before, got [8,4]");
  EXPECT_EQ(convolutions("[]", ""),
            "p.json: convolutions: in_channels must be whole numbers above 0, each above the one before, got []");
  EXPECT_EQ(
      convolutions("[4, 8]", R"("conv2d 1x1": [0.5, 1])"),
      "p.json: convolutions: shares: conv2d 1x1 must be 4 numbers above 0: one for each in_channels, out_channels "
      "and pixels");
  EXPECT_EQ(
      convolutions("[8]", R"("conv2d": [0.5, 0])"),
      "p.json: convolutions: shares: conv2d must be 2 numbers above 0: one for each in_channels, out_channels and "
      "pixels");
  EXPECT_THAT(convolutions("[8]", R"("conv3d": [0.5, 1])"),
              HasSubstr("p.json: convolutions: shares: \"conv3d\" is not known; there are: conv2d, "));
  EXPECT_EQ(refused(R"("convolution_shares": {"8": {"64": 0.5}})"),
            "p.json: \"convolution_shares\" is of an older version, which knew one number of channels and no kinds of "
            "convolutions; measure the machine again (tessera calibrate), or take the member out");
  EXPECT_EQ(refused(R"("rearranged_bytes_per_second": 0)"),
            "p.json: \"rearranged_bytes_per_second\" must be a number above 0, got 0");
  EXPECT_EQ(refused(R"("copied_bytes_per_second": {"4": 0})"),
            "p.json: copied_bytes_per_second: \"4\" must be a number above 0, got 0");
  EXPECT_EQ(refused(R"("disturbed_share": 2)"), "p.json: \"disturbed_share\" must be from 0 to 1, got 2.0");
  EXPECT_EQ(refusal("\"name\"", "\"memory_bytes\": 0, \"name\""),
            "p.json: \"memory_bytes\" must be a number above 0, got 0");
  EXPECT_EQ(refusal("\"name\"", "\"intra_host_by_ranks\": {\"1\": 3}, \"name\""),
            "p.json: intra_host_by_ranks: \"1\" must be a number of ranks from 2 to 1000000");
}

}  // namespace
}  // namespace tessera::compiler
