// What choosing a plan costs on many ranks, and what classes of ranks its candidates are priced by.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <map>
#include <numeric>

#include "tessera/compiler/choose_plan.h"
#include "tessera/compiler/search/least_memory.h"
#include "tessera/nn/losses.h"
#include "tessera/nn/models/models.h"
#include "tessera/ops/kernel_catalogue.h"
#include "tessera/ops/registry/collective_def.h"
#include "tessera/session/trace.h"
#include "tests/laws/train_step.h"

namespace tessera::compiler {
namespace {

using testing::HasSubstr;
using testing::ThrowsMessage;

// The step that `tessera plan` plans: as large as the network is.
ir::Graph whole_step(const std::string& network, int num_ranks) {
  const auto& model = nn::find_model(network);
  const auto cell = model.make(model.num_classes);
  const int64_t batch = model.samples_per_part * num_ranks;
  std::vector<session::InputSpec> inputs;
  for (auto& input : model.batch_inputs(batch)) inputs.push_back({input.name, input.type});
  inputs.push_back({"label", model.batch_labels(batch)});
  nn::SoftmaxCrossEntropyWithLogits loss({.sparse = true, .reduction = "mean"});
  return simplify(session::trace_train_step(*cell, &loss, *model.make_optimizer(), inputs, {.training = true}));
}

std::vector<int> first_ranks(int num_ranks) {
  std::vector<int> ranks(static_cast<size_t>(num_ranks));
  std::iota(ranks.begin(), ranks.end(), 0);
  return ranks;
}

// Each rank has its part of the batch.
ShardingHints split_batch(const ir::Graph& graph, int num_ranks) {
  const mesh::Mesh mesh({{"data", num_ranks}});
  ShardingHints hints;
  for (const auto& input : graph.inputs()) {
    if (input.kind != ir::InputKind::kInput) continue;
    auto sharding = mesh::Sharding::replicated(graph.type(input.value).shape.ndim());
    sharding.dims[0] = {0};
    hints[input.name] = {mesh, sharding};
  }
  return hints;
}

// The classes that are compiled for each plan that is compared.
class CountedClasses {
 public:
  SearchOptions options(const ir::Graph& graph, int num_ranks) {
    return {.hints = split_batch(graph, num_ranks), .on_simulation = [this](const SimulationProgress& progress) {
              EXPECT_LE(progress.classes_done, progress.num_classes);
              ++by_plan_[progress.plan];
              ++num_compiled_;
            }};
  }
  const std::map<std::string, size_t>& by_plan() const { return by_plan_; }
  size_t num_compiled() const { return num_compiled_; }

 private:
  std::map<std::string, size_t> by_plan_;
  size_t num_compiled_ = 0;
};

class ManyRanks : public testing::TestWithParam<std::pair<const char*, int>> {};

// A schedule of a thousand ranks is megabytes, and a rank's compilation up to a quarter of a second.
TEST_P(ManyRanks, AreFewClassesOfWhichFewSchedulesAreKept) {
  const auto [network, num_ranks] = GetParam();
  const ir::Graph graph = whole_step(network, num_ranks);
  CountedClasses counted;
  const auto chosen = choose_plan(graph, first_ranks(num_ranks), example_profile(), counted.options(graph, num_ranks));
  EXPECT_EQ(counted.by_plan().size(), chosen.candidates.size());
  EXPECT_LE(counted.num_compiled(), 48U);
  size_t num_schedules = 0;
  for (const auto& candidate : chosen.candidates) {
    ASSERT_NE(candidate.prediction.simulated, nullptr);
    EXPECT_LE(counted.by_plan().at(candidate.origin), most_classes(graph.num_nodes()));
    EXPECT_EQ(counted.by_plan().at(candidate.origin), candidate.prediction.simulated->simulation.classes.size());
    const bool is_said = chosen.coarse_text().find(candidate.origin + " (") != std::string::npos;
    EXPECT_EQ(is_said, candidate.prediction.simulated->is_coarse) << chosen.coarse_text();
    const bool is_kept = candidate.prediction.simulated->slowest_schedule != nullptr;
    num_schedules += is_kept ? 1 : 0;
    EXPECT_TRUE(is_kept || &candidate != &chosen.taken());
  }
  EXPECT_LE(num_schedules, 2U);
}

INSTANTIATE_TEST_SUITE_P(LanguageModels, ManyRanks,
                         testing::Values(std::pair{"gpt2_small", 64}, std::pair{"gpt2_small", 1024},
                                         std::pair{"llama_8b", 64}, std::pair{"llama_8b", 1024}),
                         [](const auto& info) { return fmt::format("{}_{}", info.param.first, info.param.second); });

Compiled planned_as(const ir::Graph& graph, const PlanChoices& choices) {
  Compiled planned;
  planned.logical = graph;
  planned.plan = plan_of(graph, choices);
  return planned;
}

// Every rank of a plan in a class of its own.
std::vector<RankClass> all_ranks(Compiled planned) {
  std::vector<RankClass> all;
  for (const int rank : planned.plan.ranks()) {
    compile_rank(planned, rank, layout_of(planned, rank), ops::FakeKernelCatalogue(),
                 {.verification = Verification::kNone});
    all.push_back({{rank}, planned.schedule});
  }
  return all;
}

// What it is chosen by are predictions; here every rank of both plans is compiled and simulated.
TEST(ChoosePlan, OfALanguageModelIsNoSlowerThanDataParallel) {
  const ir::Graph graph = whole_step("gpt2_small", 8);
  const auto hints = split_batch(graph, 8);
  const auto seconds_of = [&](const PlanChoices& choices) {
    return simulate(all_ranks(planned_as(graph, choices)), example_profile()).step_seconds;
  };
  const auto chosen = choose_plan(graph, first_ranks(8), example_profile(), {.hints = hints});
  const auto plain = data_parallel_choices(graph, first_ranks(8), hints, false);
  EXPECT_FALSE(chosen.is_data_parallel_ruled_out);
  EXPECT_LE(seconds_of(chosen.taken().choices), seconds_of(plain) * (1 + 1e-9)) << chosen.taken().origin;
}

// Where values lie on several ranks each, which share in sending them: what a rank sends and receives tells, not where
// it stands.
TEST(RankClasses, OfExchangesBetweenReplicasAreThoseThatExchangeAlike) {
  const ir::Graph graph = whole_step("gpt2_small", 64);
  const auto found = search(graph, first_ranks(64), example_profile(),
                            {.hints = split_batch(graph, 64), .meshes = {mesh::Mesh({{"x", 8}, {"y", 8}})}});
  const auto planned = planned_as(graph, found.choices);
  const auto classes =
      schedule_classes(planned, example_profile(), ops::FakeKernelCatalogue(), {.verification = Verification::kNone});
  EXPECT_LE(classes.size(), 20U);
  const auto by_class = simulate(classes, example_profile());
  const auto by_rank = simulate(all_ranks(planned), example_profile());
  EXPECT_NEAR(by_class.step_seconds, by_rank.step_seconds, 1e-6 * by_rank.step_seconds);
  EXPECT_EQ(by_class.received_bytes, by_rank.received_bytes);
  for (const auto& c : by_class.classes) {
    for (const int rank : c.ranks) {
      const auto& own = by_rank.classes.at(static_cast<size_t>(rank));
      EXPECT_EQ(c.received_bytes, own.received_bytes) << rank;
      EXPECT_EQ(c.peak_memory_bytes, own.peak_memory_bytes) << rank;
    }
  }
}

// Halos: inside of operators each rank is told by its place.
TEST(RankClasses, WhereThereAreTooManyFewerStandForAllRanks) {
  const auto graph = ir::parse(R"(graph g
  input x f32[8,1,100,100]
  param w f32[1,1,3,3]
  %1 = conv2d x, w {dilation=[1,1], groups=1, padding=[1,1,1,1], strides=[1,1]} : f32[8,1,100,100] shard ((1,1,16,1),(1,1,1,1))
  %2 = reduce_sum %1 {axes=[0,1,2,3], keep_dims=false} : f32[]
  return loss = %2
)");
  const auto planned = plan_ranks(graph, mesh::Mesh({{"rows", 16}}), {});
  const auto exact = schedule_classes(planned, example_profile(), ops::FakeKernelCatalogue());
  const auto seconds = simulate(exact, example_profile()).step_seconds;
  ASSERT_GT(exact.size(), 4U);
  size_t last = exact.size();
  for (const size_t most : {exact.size(), exact.size() - 1, size_t{2}, size_t{1}}) {
    size_t told = 0;
    const auto sample = sample_classes(planned, example_profile(), ops::FakeKernelCatalogue(), {},
                                       {.most_classes = most, .on_class_done = [&](size_t done, size_t all) {
                                          EXPECT_EQ(done, ++told);
                                          EXPECT_LE(all, most);
                                        }});
    EXPECT_EQ(told, sample.classes.size());
    EXPECT_EQ(sample.is_coarse, most < exact.size());
    EXPECT_LE(sample.classes.size(), std::min(most, last));
    last = sample.classes.size();
    std::vector<int> ranks;
    for (const auto& c : sample.classes) ranks.insert(ranks.end(), c.ranks.begin(), c.ranks.end());
    std::sort(ranks.begin(), ranks.end());
    EXPECT_EQ(ranks, first_ranks(16));
    EXPECT_NEAR(simulate(sample.classes, example_profile()).step_seconds, seconds, 0.1 * seconds) << most;
  }
}

// Groups of five on hosts of eight: no two ranks have their peers alike, and that which others wait for is not the
// first.
TEST(RankClasses, ARankThatStandsForAllIsOneThatOthersWaitFor) {
  const ir::Graph graph = whole_step("gpt2_small", 60);
  const auto found = search(graph, first_ranks(60), example_profile(),
                            {.hints = split_batch(graph, 60), .meshes = {mesh::Mesh({{"x", 12}, {"y", 5}})}});
  const auto planned = planned_as(graph, found.choices);
  const auto sample = sample_classes(planned, example_profile(), ops::FakeKernelCatalogue(),
                                     {.verification = Verification::kNone}, {.most_classes = 8});
  ASSERT_EQ(sample.classes.size(), 1U);
  EXPECT_TRUE(sample.is_coarse);
  const auto exact = simulate(all_ranks(planned), example_profile()).step_seconds;
  EXPECT_NEAR(simulate(sample.classes, example_profile()).step_seconds, exact, 0.03 * exact);
}

TEST(LeastMemory, IsNoMoreThanWhatAnyPlanTakes) {
  for (const char* network : {"mlp", "lenet5", "resnet50", "transformer"}) {
    const ir::Graph graph = simplify(laws::train_step(network, 24));
    for (const int num_ranks : {1, 3, 4}) {
      const auto least = least_memory(graph).on_a_rank(num_ranks);
      EXPECT_GT(least, 0);
      const auto found = search(graph, first_ranks(num_ranks), example_profile(), {.max_axes = 1, .rounds = 2});
      const auto taken = simulate_plan(graph, plan_of(graph, found.choices), example_profile(), 0);
      EXPECT_LE(least, taken.peak_memory_bytes) << network << " on " << num_ranks;
      // However much is computed again.
      for (const int64_t limit : {taken.peak_memory_bytes / 2, taken.peak_memory_bytes * 3 / 4}) {
        const auto fitted = simulate_plan(graph, plan_of(graph, found.choices), example_profile(), limit);
        EXPECT_TRUE(!fitted.fits || least <= fitted.peak_memory_bytes) << network << " on " << num_ranks;
      }
    }
  }
}

// No search is begun, and nothing is simulated.
TEST(LeastMemory, RefusesAtOnceWhatNoPlanCanKeep) {
  const ir::Graph graph = whole_step("resnet50", 8);
  const auto refused = [&](int64_t limit) {
    choose_plan(graph, first_ranks(8), example_profile(),
                {.memory_limit_bytes = limit,
                 .on_progress = [](const SearchProgress&) { FAIL() << "a search was begun"; },
                 .on_simulation = [](const SimulationProgress&) { FAIL() << "a plan was simulated"; }});
  };
  EXPECT_THAT([&] { refused(100 << 20); },
              ThrowsMessage<InvalidArgument>(testing::AllOf(
                  HasSubstr("no plan fits into 100.0 MiB of memory on a rank: parameters and states take"),
                  HasSubstr("of 8 ranks; use more ranks, a smaller batch or a higher memory limit"))));
  EXPECT_THAT([&] { refused(10 << 20); },
              ThrowsMessage<InvalidArgument>(HasSubstr("parameters and states alone take")));
}

// What all ranks exchange in the step, the batch split over them, without labels: those of a sample may be many rows.
int num_exchanges(const ir::Graph& step, int num_ranks) {
  const ir::Graph graph = simplify(step);
  auto planned = planned_as(graph, data_parallel_choices(graph, first_ranks(num_ranks), {}, false));
  int count = 0;
  for (int rank = 0; rank < num_ranks; ++rank) {
    const auto local = partition(planned.logical, planned.plan, rank);
    for (ir::NodeId n = 0; n < local.num_nodes(); ++n) {
      const auto* collective = ops::collective_of(local.node(n));
      if (collective != nullptr && collective->names_boxes && local.node(n).source != "label") ++count;
    }
  }
  return count;
}

// 32 samples on 3 ranks are 11, 11 and 10: what belongs to a sample stays with it, whatever shape it has.
TEST(UnevenBatches, OfNetworksMoveNoRows) {
  for (const int num_ranks : {2, 3, 5}) {
    EXPECT_EQ(num_exchanges(laws::train_step("resnet50", 32), num_ranks), 0) << num_ranks;
    EXPECT_EQ(num_exchanges(laws::train_step("lenet5", 32), num_ranks), 0) << num_ranks;
    EXPECT_EQ(num_exchanges(whole_step("gpt2_small", 32), num_ranks), 0) << num_ranks;
  }
}

}  // namespace
}  // namespace tessera::compiler
