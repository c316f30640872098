// The search finds what people have found by hand, keeps what is given, and says what it cannot do.
#include "tessera/compiler/search/search.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <atomic>
#include <numeric>

#include "tessera/base/error.h"
#include "tessera/compiler/autodiff.h"
#include "tessera/compiler/choose_plan.h"
#include "tessera/compiler/compile.h"
#include "tessera/compiler/search/plan_cost.h"
#include "tessera/compiler/verify/verify_plan.h"
#include "tessera/ops/functions/functions.h"
#include "tessera/ops/kernel_catalogue.h"
#include "tessera/testing/ticking_clock.h"

namespace tessera::compiler {
namespace {

using testing::Contains;
using testing::HasSubstr;
using testing::Not;
using testing::StartsWith;

std::vector<int> ranks(int count) {
  std::vector<int> all(static_cast<size_t>(count));
  std::iota(all.begin(), all.end(), 0);
  return all;
}

MachineProfile profile() {
  auto machine = example_profile();
  machine.kernel_overhead_seconds = 0;
  machine.intra_host.latency_seconds = 1e-7;
  return machine;
}

// One step of gradient descent.
void add_update(ir::Graph& graph, ir::Value loss, const std::vector<std::string>& parameters) {
  std::vector<ir::Value> values;
  for (const auto& name : parameters) values.push_back(graph.value(graph.find_input(name)->value));
  const auto gradients = compiler::gradients(loss, values);
  for (size_t i = 0; i < parameters.size(); ++i) graph.assign(parameters[i], ops::sub(values[i], gradients[i]));
  graph.add_output("loss", loss);
  graph.finish_assignments();
}

ir::Value parameter(ir::Graph& graph, const std::string& name, const Shape& shape) {
  return graph.add_input(ir::InputKind::kParameter, name, {DType::kF32, shape});
}

// relu(x up) down, and the mean of it.
ir::Graph wide_network(int64_t rows, int64_t width, int64_t hidden) {
  ir::Graph graph("wide");
  const auto x = graph.add_input(ir::InputKind::kInput, "x", {DType::kF32, {rows, width}});
  const auto up = ops::relu(ops::matmul(x, parameter(graph, "up", {width, hidden})));
  const auto down = ops::matmul(up, parameter(graph, "down", {hidden, width}));
  add_update(graph, ops::reduce_mean(ops::mul(down, down)), {"up", "down"});
  return simplify(graph);
}

// Rows of a large table, and the logits of all of them.
ir::Graph vocabulary_network(int64_t tokens, int64_t words, int64_t width) {
  ir::Graph graph("vocabulary");
  const auto ids = graph.add_input(ir::InputKind::kInput, "ids", {DType::kI32, {tokens}});
  const auto table = parameter(graph, "table", {words, width});
  const auto hidden = ops::gather(table, ids, 0);
  const auto logits = ops::matmul(hidden, table, false, true);
  add_update(graph, ops::reduce_mean(ops::mul(logits, logits)), {"table"});
  return simplify(graph);
}

ir::NodeId first(const ir::Graph& graph, const std::string& op) {
  for (ir::NodeId n = 0; n < graph.num_nodes(); ++n) {
    if (graph.node(n).op == op && graph.node(n).forward == ir::kNone) return n;
  }
  return ir::kNone;
}

std::string layout_of(const SearchResult& found, const std::string& input) {
  return found.choices.inputs.at(input).to_string(found.choices.mesh);
}

TEST(Search, SplitsTheBatchWhereItIsLarge) {
  const ir::Graph graph = wide_network(1 << 16, 512, 512);
  const auto found = search(graph, ranks(4), profile(), {.max_axes = 1});
  EXPECT_EQ(found.choices.nodes.at(first(graph, "matmul")).factors, (FactorAxes{{"m", {0}}}));
  EXPECT_LE(found.gap(), 1e-12);
}

TEST(Search, SplitsColumnsThenRowsWhereTheLayerIsWide) {
  const ir::Graph graph = wide_network(16, 1024, 1 << 16);
  const auto found = search(graph, ranks(4), profile(), {.max_axes = 1});
  EXPECT_EQ(layout_of(found, "up"), "[_,x]");
  EXPECT_EQ(layout_of(found, "down"), "[x,_]");
}

TEST(Search, SplitsTheVocabularyWhereMemoryIsTight) {
  const ir::Graph graph = vocabulary_network(1024, 1 << 15, 256);
  constexpr int64_t limit = 200 << 20;
  const auto plain = plan_of(graph, data_parallel_choices(graph, ranks(4), {}, false));
  EXPECT_GT(cost_of_plan(graph, plain, profile()).peak_bytes, limit);
  const auto tight = search(graph, ranks(4), profile(), {.memory_limit_bytes = limit, .max_axes = 1, .rounds = 5});
  EXPECT_LE(tight.live_bytes, limit);
  EXPECT_EQ(layout_of(tight, "table"), "[x,_]");
}

TEST(Search, SaysHowMuchMemoryWouldDo) {
  const ir::Graph graph = wide_network(64, 256, 256);
  try {
    search(graph, ranks(2), profile(), {.memory_limit_bytes = 1000, .rounds = 3});
    FAIL() << "fits";
  } catch (const InvalidArgument& error) {
    EXPECT_THAT(error.what(), HasSubstr("no plan of wide on 2 ranks fits into 1000 B a rank; the smallest"));
  }
}

TEST(Search, KeepsStrategiesAndLayoutsThatAreGiven) {
  ir::Graph graph = wide_network(64, 256, 256);
  const ir::NodeId matmul = first(graph, "matmul");
  graph.mutable_node(matmul).strategy = {{2, 1}, {1, 4}};
  const mesh::Mesh rows({{"data", 8}});
  const auto found = search(graph, ranks(8), profile(), {.hints = {{"x", {rows, {{{0}, {}}, {}}}}}});
  EXPECT_EQ(found.choices.mesh.to_string(), "[x=2, y=4]");
  EXPECT_EQ(found.choices.nodes.at(matmul).factors, (FactorAxes{{"m", {0}}, {"n", {1}}}));
  EXPECT_EQ(layout_of(found, "x"), "[x*y,_]");
}

TEST(Search, RefusesStrategiesThatNoGridHolds) {
  ir::Graph graph = wide_network(64, 256, 256);
  graph.mutable_node(first(graph, "matmul")).strategy = {{5, 1}, {1, 1}};
  EXPECT_THROW(search(graph, ranks(8), profile()), InvalidArgument);
}

// A sum may pass through its addition, which splits nothing of it: such an operator is left alone.
TEST(Search, CountersThatNothingSplitsStandBesideOperatorsThatUseAllRanks) {
  ir::Graph graph = wide_network(64, 256, 256);
  const auto step = graph.add_input(ir::InputKind::kState, "global_step", {DType::kI32, {1}});
  graph.add_output("global_step", ops::add(step, 1));
  graph = simplify(graph);
  const auto found = search(graph, ranks(2), profile(), {.max_axes = 1, .use_all_ranks = true});
  EXPECT_TRUE(found.choices.nodes.at(first(graph, "add")).through.empty());
  EXPECT_EQ(found.choices.nodes.at(first(graph, "matmul")).factors.size(), 1);
}

TEST(Search, AnOperatorCanBeFixed) {
  const ir::Graph graph = wide_network(64, 256, 256);
  const ir::NodeId matmul = first(graph, "matmul");
  const auto meshes = candidate_meshes(ranks(4), 1);
  const auto free = search(graph, ranks(4), profile(), {.meshes = meshes});
  const auto fixed =
      search(graph, ranks(4), profile(), {.meshes = meshes, .fixed = {{matmul, {.factors = {{"k", {0}}}}}}});
  EXPECT_EQ(fixed.choices.nodes.at(matmul).factors, (FactorAxes{{"k", {0}}}));
  EXPECT_GE(fixed.cost, free.cost);
}

// What the solver adds up is what the plan costs, counted apart; and the plan is sound.
TEST(Search, CostsAreThoseOfThePlan) {
  for (const auto algorithm :
       {SearchAlgorithm::kCertified, SearchAlgorithm::kDynamicProgramming, SearchAlgorithm::kRecursiveProgramming}) {
    for (const ir::Graph& graph : {wide_network(64, 256, 1024), vocabulary_network(64, 512, 32)}) {
      const auto found = search(graph, ranks(6), profile(), {.algorithm = algorithm});
      const Plan plan = plan_of(graph, found.choices);
      EXPECT_THAT(verify_plan(graph, plan), testing::IsEmpty());
      const PlanCost cost = cost_of_plan(graph, plan, profile());
      EXPECT_NEAR(cost.searched_seconds(), found.cost, 1e-9 * found.cost) << to_string(algorithm);
      // Elimination may pay for moves that no one needs.
      EXPECT_LE(cost.seconds(), found.cost * (1 + 1e-9)) << to_string(algorithm);
      if (algorithm == SearchAlgorithm::kCertified) {
        EXPECT_NEAR(cost.seconds(), found.cost, 1e-9 * found.cost);
      }
    }
  }
}

TEST(Search, OtherAlgorithmsAreNoBetterThanTheBound) {
  const ir::Graph graph = vocabulary_network(64, 512, 32);
  const auto certified = search(graph, ranks(8), profile());
  for (const auto algorithm : {SearchAlgorithm::kDynamicProgramming, SearchAlgorithm::kRecursiveProgramming}) {
    EXPECT_GE(search(graph, ranks(8), profile(), {.algorithm = algorithm}).cost, certified.bound);
  }
}

TEST(Search, SameResultEachTime) {
  const ir::Graph graph = wide_network(64, 256, 1024);
  const auto once = search(graph, ranks(8), profile(), {.rounds = 5});
  const auto again = search(graph, ranks(8), profile(), {.rounds = 5});
  EXPECT_EQ(to_json(record_plan(graph, once.choices)), to_json(record_plan(graph, again.choices)));
}

// Equal layers in a list of cells, whose update reads like an optimizer's.
ir::Graph deep_network(int layers, int64_t rows = 64, int64_t width = 128) {
  ir::Graph graph("deep");
  auto x = graph.add_input(ir::InputKind::kInput, "x", {DType::kF32, {rows, width}});
  std::vector<std::string> names;
  for (int i = 0; i < layers; ++i) {
    const ir::SourceScope scope(graph, fmt::format("layers.{}", i));
    names.push_back(fmt::format("layers.{}.weight", i));
    x = ops::relu(ops::matmul(x, parameter(graph, names.back(), {width, width})));
  }
  add_update(graph, ops::reduce_mean(ops::mul(x, x)), names);
  return simplify(graph);
}

TEST(Search, LayersThatAreAlikeAreSplitAlike) {
  const ir::Graph graph = deep_network(6);
  const auto meshes = candidate_meshes(ranks(4), 1);
  const auto each = search(graph, ranks(4), profile(), {.meshes = meshes, .gap = 0});
  const auto alike = search(graph, ranks(4), profile(), {.meshes = meshes, .fold_above = 0, .gap = 0});
  EXPECT_FALSE(each.is_folded);
  EXPECT_TRUE(alike.is_folded);
  EXPECT_LT(3 * alike.meshes[0].num_nodes, 2 * each.meshes[0].num_nodes);
  EXPECT_GE(alike.cost, each.cost * (1 - 1e-9));
  const Plan plan = plan_of(graph, alike.choices);
  EXPECT_THAT(verify_plan(graph, plan), testing::IsEmpty());
  EXPECT_NEAR(cost_of_plan(graph, plan, profile()).seconds(), alike.cost, 1e-9 * alike.cost);
  for (int i = 1; i < 6; ++i) {
    EXPECT_EQ(layout_of(alike, fmt::format("layers.{}.weight", i)), layout_of(alike, "layers.0.weight"));
  }
}

TEST(VerifyPlan, LooksAtCopies) {
  const ir::Graph graph = wide_network(64, 256, 256);
  Plan plan = plan_of(graph, data_parallel_choices(graph, ranks(2), {}, false));
  const ir::ValueId up = graph.node(first(graph, "matmul")).outputs[0];
  plan.copies[up] = {{{}, {}}, {{0, mesh::Reduction::kSum}}};
  EXPECT_THAT(verify_plan(graph, plan), testing::Contains("the copy of %1: [_,_] +x cannot be made of [x,_]"));
  plan.copies[up] = {{{0}, {0}}, {}};
  EXPECT_THAT(verify_plan(graph, plan), testing::Contains(HasSubstr("the copy of %1: ")));
  plan.copies = {{graph.num_values(), {}}};
  EXPECT_THAT(verify_plan(graph, plan), testing::Contains(HasSubstr("which is not there")));
}

TEST(CandidateMeshes, AreAllGrids) {
  std::string text;
  for (const auto& mesh : candidate_meshes(ranks(8), 3)) text += mesh.to_string();
  EXPECT_EQ(text, "[x=8][x=4, y=2][x=2, y=4][x=2, y=2, z=2]");
}

TEST(ChoosePlan, PrefersDataParallelWhereNothingIsFaster) {
  const ir::Graph graph = wide_network(1 << 16, 512, 512);
  const auto chosen = choose_plan(graph, ranks(4), profile(), {.whole_results = true, .max_axes = 1});
  EXPECT_TRUE(chosen.is_data_parallel);
  EXPECT_THAT(chosen.summary(graph), HasSubstr("data parallel; a step is predicted to take"));
}

TEST(ChoosePlan, IsNeverSlowerThanDataParallel) {
  for (const int64_t hidden : {256, 1 << 12, 1 << 16}) {
    const ir::Graph graph = wide_network(16, 1024, hidden);
    const auto chosen = choose_plan(graph, ranks(4), profile(), {.whole_results = true});
    EXPECT_LE(chosen.simulated_seconds, chosen.data_parallel_seconds);
    if (hidden == 1 << 16) {
      EXPECT_FALSE(chosen.is_data_parallel);
    }
  }
}

// Data parallel hides its gradients behind backward: what a sum prefers to it is slower.
TEST(ChoosePlan, IsNeverSlowerThanDataParallelWhateverTheAlgorithm) {
  for (const auto algorithm :
       {SearchAlgorithm::kCertified, SearchAlgorithm::kDynamicProgramming, SearchAlgorithm::kRecursiveProgramming}) {
    for (const int num_ranks : {3, 8}) {
      for (const ir::Graph& graph : {wide_network(64, 256, 1024), vocabulary_network(64, 512, 32), deep_network(4)}) {
        const auto chosen = choose_plan(graph, ranks(num_ranks), profile(), {.algorithm = algorithm});
        const auto plain = data_parallel_choices(graph, ranks(num_ranks), {}, false);
        EXPECT_LE(chosen.simulated_seconds, predict(graph, plain, profile()).step_seconds * (1 + 1e-9))
            << graph.name() << " " << num_ranks << " " << to_string(algorithm);
        EXPECT_EQ(chosen.simulated_seconds, chosen.taken().prediction.step_seconds);
        for (const auto& candidate : chosen.candidates) {
          EXPECT_THAT(verify_plan(graph, plan_of(graph, candidate.choices)), testing::IsEmpty()) << candidate.origin;
        }
      }
    }
  }
}

constexpr double kNoTime = 1e-9;  // seconds

TEST(Search, WithoutTimeForAllGridsTakesWhatOneHasAndProvesNothing) {
  const ir::Graph graph = wide_network(64, 256, 1024);
  const auto found = search(graph, ranks(8), profile(), {.timeout_seconds = kNoTime});
  EXPECT_EQ(found.meshes.size(), candidate_meshes(ranks(8), 2).size());
  EXPECT_EQ(std::count_if(found.meshes.begin(), found.meshes.end(),
                          [](const auto& outcome) { return outcome.status == solver::Status::kUnknown; }),
            static_cast<int64_t>(found.meshes.size()) - 1);
  EXPECT_EQ(found.bound, -solver::kForbidden);
  EXPECT_THAT(verify_plan(graph, plan_of(graph, found.choices)), testing::IsEmpty());
}

constexpr int64_t kMillisecond = 1'000'000;

TEST(ChoosePlan, WithoutTimeTakesDataParallelAndSaysWhatIsLeftOut) {
  const ir::Graph graph = wide_network(16, 1024, 1 << 16);
  const auto chosen = choose_plan(graph, ranks(4), profile(), {.timeout_seconds = kNoTime});
  EXPECT_TRUE(chosen.is_data_parallel);
  EXPECT_NE(chosen.taken().prediction.simulated, nullptr);
  EXPECT_EQ(chosen.simulated_seconds, chosen.data_parallel_seconds);
  EXPECT_THAT(chosen.left_out_text(), StartsWith("left out because time was up: simulating \"search\""));
  EXPECT_THAT(chosen.reason(), HasSubstr("nothing else was simulated in time"));
  EXPECT_THAT(chosen.summary(graph), HasSubstr("left out because time was up"));
  EXPECT_THAT(choose_plan(graph, ranks(4), profile(), {.max_axes = 1}).left_out, testing::IsEmpty());
}

// Data parallel keeps all of the parameters on each rank.
TEST(ChoosePlan, WithoutTimeTakesTheSearchsPlanAsItIsWhereDataParallelDoesNotFit) {
  const ir::Graph graph = wide_network(16, 1024, 1 << 16);
  const int64_t limit =
      predict(graph, data_parallel_choices(graph, ranks(4), {}, false), profile()).peak_memory_bytes / 2;
  const auto chosen =
      choose_plan(graph, ranks(4), profile(), {.memory_limit_bytes = limit, .timeout_seconds = kNoTime});
  EXPECT_EQ(chosen.taken().origin, "search");
  EXPECT_EQ(chosen.taken().prediction.simulated, nullptr);
  EXPECT_EQ(chosen.record.seconds, 0);
  EXPECT_GT(chosen.record.added_seconds, 0);
  EXPECT_THAT(chosen.reason(),
              HasSubstr("search, which there was no time to simulate: nothing that was simulated fits"));
  EXPECT_THAT(chosen.summary(graph), HasSubstr("there was no time to simulate it"));
  EXPECT_THAT(verify_plan(graph, plan_of(graph, chosen.taken().choices)), testing::IsEmpty());
}

// Whenever time is up, within the search or within a simulation, what follows asks the clock a few times only.
TEST(ChoosePlan, EndsWhenTimeIsUpWhereverItIs) {
  const ir::Graph graph = deep_network(4);
  TickingClock endless(kMillisecond);
  const auto all = choose_plan(graph, ranks(6), profile(), {.rounds = 8, .timeout_seconds = 1e6, .clock = &endless});
  EXPECT_THAT(all.left_out, testing::IsEmpty());
  constexpr double kPiece = 0.06;  // questions, by the clock above
  int num_cut = 0;
  for (const double share : {0.02, 0.1, 0.3, 0.5, 0.7, 0.9, 0.97}) {
    const double timeout = share * endless.seconds();
    TickingClock clock(kMillisecond);
    const auto chosen =
        choose_plan(graph, ranks(6), profile(), {.rounds = 8, .timeout_seconds = timeout, .clock = &clock});
    EXPECT_LE(clock.seconds(), timeout + kPiece) << share;
    EXPECT_LE(chosen.simulated_seconds, chosen.data_parallel_seconds) << share;
    num_cut += chosen.left_out.empty() ? 0 : 1;
  }
  EXPECT_GE(num_cut, 1);
}

// Whoever stops it does so while a grid is searched or a plan is simulated: neither goes on.
TEST(ChoosePlan, ThrowsWhenItIsStoppedWhereverItIs) {
  const ir::Graph graph = deep_network(4);
  for (const auto algorithm :
       {SearchAlgorithm::kCertified, SearchAlgorithm::kDynamicProgramming, SearchAlgorithm::kRecursiveProgramming}) {
    int num_words = 0;
    int stops_at = 0;
    std::atomic<bool> stop = false;
    SearchOptions options{.algorithm = algorithm, .rounds = 8, .stop = &stop};
    const auto hear = [&] {
      if (++num_words == stops_at) stop = true;
    };
    options.on_progress = [&](const SearchProgress&) { hear(); };
    options.on_simulation = [&](const SimulationProgress&) { hear(); };
    choose_plan(graph, ranks(6), profile(), options);
    const int num_all = num_words;
    ASSERT_GE(num_all, 3);
    for (stops_at = 1; stops_at < num_all; ++stops_at) {
      num_words = 0;
      stop = false;
      EXPECT_THROW(choose_plan(graph, ranks(6), profile(), options), Stopped) << stops_at << " of " << num_all;
      EXPECT_EQ(num_words, stops_at) << to_string(algorithm);
    }
    stop = true;
    EXPECT_THROW(search(graph, ranks(6), profile(), options), Stopped);
  }
}

TEST(RankClasses, AreGivenUpWhenTimeIsUp) {
  TickingClock clock(kMillisecond);
  Compiled planned;
  planned.logical = wide_network(16, 64, 64);
  planned.plan = plan_of(planned.logical, data_parallel_choices(planned.logical, ranks(4), {}, false));
  const ops::FakeKernelCatalogue catalogue;
  EXPECT_THROW(schedule_classes(planned, profile(), catalogue, {.deadline = Deadline(clock, 1e-3)}), DeadlineOver);
  const auto classes = schedule_classes(planned, profile(), catalogue, {.deadline = Deadline(clock, 1e3)});
  EXPECT_THROW(simulate(classes, profile(), Deadline(clock, 1e-9)), DeadlineOver);
}

// All that is told of how long it took.
TEST(Search, TellsTheTimeByTheClockThatItIsGiven) {
  const ir::Graph graph = deep_network(2);
  for (const auto algorithm :
       {SearchAlgorithm::kCertified, SearchAlgorithm::kDynamicProgramming, SearchAlgorithm::kRecursiveProgramming}) {
    const FakeClock still;
    const auto at_once = search(graph, ranks(4), profile(), {.algorithm = algorithm, .clock = &still});
    EXPECT_EQ(at_once.seconds, 0);
    for (const auto& outcome : at_once.meshes) EXPECT_EQ(outcome.problem_seconds + outcome.solve_seconds, 0);
    const TickingClock clock(kMillisecond);
    const auto found = search(graph, ranks(4), profile(), {.algorithm = algorithm, .clock = &clock});
    double parts = 0;
    for (const auto& outcome : found.meshes) parts += outcome.problem_seconds + outcome.solve_seconds;
    EXPECT_GT(parts, 0);
    EXPECT_LT(parts, found.seconds);
    EXPECT_LE(found.seconds, clock.seconds());
  }
}

// At a price for communication the least is found of computing and so much of it, by the lane that it runs in.
TEST(Search, CommunicationHasAPriceByLane) {
  const ir::Graph graph = deep_network(4);
  const auto find = [&](const LanePrices& prices) {
    return search(graph, ranks(4), profile(), {.max_axes = 1, .prices = prices, .gap = 0});
  };
  const auto cost = [&](const SearchResult& found) {
    return cost_of_plan(graph, plan_of(graph, found.choices), profile());
  };
  const auto full = find({});
  const auto cheap = find({.awaited = 0.05, .gradient = 0.05});
  const auto own = cost(cheap);
  const auto priced = [](const PlanCost& of) {
    return of.compute_seconds + 0.05 * (of.communication_seconds + of.repeated_seconds);
  };
  EXPECT_NEAR(priced(own), cheap.cost, 1e-9 * cheap.cost);
  EXPECT_LE(cheap.cost, priced(cost(full)) * (1 + 1e-9));
  EXPECT_GE(own.searched_seconds(), full.bound * (1 - 1e-9));
  // Gradients only: dearer than if all were cheap, cheaper than if nothing was.
  const auto mixed = find({.awaited = 1, .gradient = 0.05});
  EXPECT_GE(mixed.cost, cheap.cost);
  EXPECT_LT(mixed.cost, full.cost);
}

TEST(ChoosePlan, StrategiesThatAreGivenHoldInEveryPlanThatIsCompared) {
  ir::Graph graph = wide_network(1 << 16, 512, 512);
  const ir::NodeId matmul = first(graph, "matmul");
  graph.mutable_node(matmul).strategy = {{1, 1}, {1, 4}};
  const auto chosen = choose_plan(graph, ranks(4), profile(), {.max_axes = 1});
  EXPECT_TRUE(chosen.is_data_parallel_ruled_out);
  EXPECT_FALSE(chosen.is_data_parallel);
  for (const auto& candidate : chosen.candidates) {
    EXPECT_EQ(candidate.choices.nodes.at(matmul).factors, (FactorAxes{{"n", {0}}})) << candidate.origin;
  }
  EXPECT_THAT(chosen.reason(), HasSubstr("what is given rules data parallel out"));
  EXPECT_THAT(chosen.summary(graph), HasSubstr("what is given rules data parallel out"));
}

// Links so slow that it matters how much of what ranks exchange is hidden behind computing.
TEST(ChoosePlan, SearchesWithPricesImproveThePlanAndSettle) {
  auto machine = profile();
  machine.intra_host.bytes_per_second /= 100;
  const ir::Graph graph = deep_network(4, 1 << 15, 2048);
  const auto chosen = choose_plan(graph, ranks(4), machine, {.max_axes = 2});
  int num_priced = 0;
  for (const auto& candidate : chosen.candidates) {
    if (candidate.origin.starts_with("priced search ")) {
      ++num_priced;
    } else {
      EXPECT_LT(chosen.simulated_seconds, 0.95 * candidate.prediction.step_seconds) << candidate.origin;
    }
  }
  EXPECT_THAT(chosen.taken().origin, StartsWith("priced search "));
  EXPECT_LT(num_priced, 3) << "the third one still found another plan";
}

// Its batch over the ranks and the rest as the strategies say, without a search.
TEST(ChoosePlan, ComparesWithWhatGivenStrategiesSayOnTheirOwn) {
  const auto origins = [](const ChosenPlan& chosen) {
    std::vector<std::string> all;
    for (const auto& candidate : chosen.candidates) all.push_back(candidate.origin);
    return all;
  };
  ir::Graph graph = deep_network(4);
  EXPECT_THAT(origins(choose_plan(graph, ranks(4), profile(), {.max_axes = 1})), Not(Contains("given strategies")));
  graph.mutable_node(first(graph, "matmul")).strategy = {{1, 1}, {1, 4}};
  const auto chosen = choose_plan(graph, ranks(4), profile(), {.max_axes = 1});
  const auto all = origins(chosen);
  ASSERT_THAT(all, Contains("given strategies"));
  const auto& given = chosen.candidates[static_cast<size_t>(std::ranges::find(all, "given strategies") - all.begin())];
  EXPECT_LE(chosen.simulated_seconds, given.prediction.step_seconds);
  EXPECT_EQ(given.prediction.step_seconds, predict(graph, given.choices, profile()).step_seconds);
}

TEST(ChoosePlan, ComparesWithDataParallelWhereStrategiesAreThoseOfDataParallel) {
  ir::Graph graph = wide_network(1 << 16, 512, 512);
  graph.mutable_node(first(graph, "matmul")).strategy = {{4, 1}, {1, 1}};
  const auto chosen = choose_plan(graph, ranks(4), profile(), {.max_axes = 1});
  EXPECT_FALSE(chosen.is_data_parallel_ruled_out);
  EXPECT_TRUE(chosen.is_data_parallel);
}

// Ranks that all have the whole batch take their rows of it.
TEST(ChoosePlan, DataParallelKeepsLayoutsThatAreGiven) {
  const ir::Graph graph = wide_network(64, 256, 256);
  const mesh::Mesh four({{"data", 4}});
  const ShardingHints hints = {{"x", {four, mesh::Sharding::replicated(2)}}};
  const auto choices = data_parallel_choices(graph, ranks(4), hints, false);
  EXPECT_TRUE(choices.inputs.at("x").is_replicated());
  const Plan plan = plan_of(graph, choices);
  EXPECT_THAT(verify_plan(graph, plan), testing::IsEmpty());
  EXPECT_EQ(plan.factors[static_cast<size_t>(first(graph, "matmul"))], (FactorAxes{{"m", {0}}}));
}

// Trains on 32 samples of 64 rows each, taken two by two where `pairs_samples`.
ir::Graph network_of_samples(bool pairs_samples, int64_t width = 16) {
  ir::Graph graph("samples");
  auto x = graph.add_input(ir::InputKind::kInput, "x", {DType::kF32, {32, 64, width}});
  if (pairs_samples) x = ops::reshape(ops::relu(x), {16, 128, width});
  const auto y = ops::matmul(ops::relu(x), parameter(graph, "weight", {width, 16}));
  add_update(graph, ops::reduce_mean(ops::mul(y, y)), {"weight"});
  return simplify(graph);
}

PlanCost cost_of_samples(int num_ranks, bool pairs_samples) {
  const ir::Graph graph = network_of_samples(pairs_samples);
  return cost_of_plan(graph, plan_of(graph, data_parallel_choices(graph, ranks(num_ranks), {}, false)), profile());
}

// 11, 11 and 10 samples are no third of the rows each, but a sample's rows stay with it.
TEST(PlanCost, RowsStayWithTheirSamplesWhereRanksDoNotDivideTheBatch) {
  for (const int num_ranks : {2, 3, 5, 7}) {
    EXPECT_EQ(cost_of_samples(num_ranks, false).reshape_bytes, 0) << num_ranks;
    EXPECT_EQ(uneven_warning(cost_of_samples(num_ranks, false), num_ranks), "") << num_ranks;
  }
}

// Two samples in one: 11, 11 and 10 samples are no whole pairs.
TEST(PlanCost, CountsRowsThatReshapesExchangeWhereRanksDoNotDivideTheBatch) {
  EXPECT_EQ(cost_of_samples(4, true).reshape_bytes, 0);
  EXPECT_EQ(uneven_warning(cost_of_samples(4, true), 4), "");
  const PlanCost uneven = cost_of_samples(3, true);
  EXPECT_GT(uneven.reshape_bytes, 0);
  EXPECT_LE(uneven.reshape_bytes, uneven.received_bytes);
  EXPECT_THAT(uneven_warning(uneven, 3), HasSubstr("3 ranks do not divide what they split"));
  EXPECT_EQ(choose_plan(network_of_samples(true), ranks(4), profile(), {.max_axes = 1}).warning, "");
}

// With rows so long that they are not gathered.
TEST(ChoosePlan, WarnsOfRowsThatThePlanThatIsTakenMoves) {
  const mesh::Mesh three({{"x", 3}});
  const SearchOptions options{.hints = {{"x", {three, {{{0}, {}, {}}, {}}}}}, .meshes = {three}};
  const auto uneven = choose_plan(network_of_samples(true, 4096), ranks(3), profile(), options);
  EXPECT_THAT(uneven.warning, HasSubstr("are rows that reshapes exchange, because 3 ranks do not divide"));
  EXPECT_EQ(choose_plan(network_of_samples(false, 4096), ranks(3), profile(), options).warning, "");
}

// A sum over ranks that is returned, and that an operator reads: 4 MiB.
ir::Graph sum_that_is_returned_and_read() {
  ir::Graph graph("shared");
  const auto x = graph.add_input(ir::InputKind::kInput, "x", {DType::kF32, {1024, 256}});
  const auto sum = ops::matmul(x, parameter(graph, "weight", {256, 1024}));
  graph.add_output("sum", sum);
  graph.add_output("positive", ops::relu(sum));
  graph.add_output("the_same", sum);
  return graph;
}

TEST(PlanCost, AResultSharesItsMoveWithItsReaders) {
  const ir::Graph graph = sum_that_is_returned_and_read();
  const mesh::Mesh two({{"x", 2}});
  const Plan plan = propagate(graph, two, {{"x", {two, {{{}, {0}}, {}}}}, {"weight", {two, {{{0}, {}}, {}}}}});
  ASSERT_TRUE(plan.layout(graph.outputs()[0].value).sharding.is_partial());
  const PlanCost cost = cost_of_plan(graph, plan, profile());
  EXPECT_EQ(cost.received_bytes, 4 << 20);
  EXPECT_EQ(cost.output_bytes, 0);
  EXPECT_EQ(cost.output_seconds, 0);
}

TEST(Search, AResultSharesItsMoveWithItsReaders) {
  const ir::Graph graph = sum_that_is_returned_and_read();
  const NodeChoice by_columns{.factors = {{"k", {0}}}};
  for (const int64_t limit : {int64_t{0}, int64_t{1} << 40}) {
    const auto found = search(
        graph, ranks(2), profile(),
        {.memory_limit_bytes = limit, .meshes = candidate_meshes(ranks(2), 1), .fixed = {{0, by_columns}}, .gap = 0});
    const PlanCost cost = cost_of_plan(graph, plan_of(graph, found.choices), profile());
    EXPECT_EQ(cost.received_bytes, 4 << 20) << limit;
    EXPECT_NEAR(cost.seconds(), found.cost, 1e-9 * found.cost) << limit;
  }
}

// Of 4 MiB are the input, a result that is made early, and each value of a chain, of which two live at a time.
ir::Graph early_result_before_a_chain() {
  ir::Graph graph("early");
  const auto x = graph.add_input(ir::InputKind::kInput, "x", {DType::kF32, {1024, 1024}});
  const auto early = ops::relu(x);
  graph.add_output("early", early);
  graph.add_output("late", ops::tanh(ops::sigmoid(ops::tanh(early))));
  return graph;
}

TEST(PlanCost, AResultLivesUntilTheEnd) {
  const ir::Graph graph = early_result_before_a_chain();
  const PlanCost cost = cost_of_plan(graph, propagate(graph, mesh::Mesh({{"x", 1}}), {}), profile());
  EXPECT_EQ(cost.persistent_bytes, 4 << 20);
  EXPECT_EQ(cost.peak_bytes, 16 << 20);
  std::vector<int64_t> live;
  for (const NodeCost& node : cost.nodes) live.push_back(node.live_bytes >> 20);
  EXPECT_THAT(live, testing::ElementsAre(8, 12, 16, 16));
}

// Nothing has read them before the end, where they are made whole.
TEST(PlanCost, CountsResultsThatAreMadeWholeAtTheEnd) {
  ir::Graph graph("whole");
  const auto x = graph.add_input(ir::InputKind::kInput, "x", {DType::kF32, {1024, 1024}});
  graph.add_output("y", ops::relu(x));
  const mesh::Mesh two({{"x", 2}});
  const Plan plan = propagate(graph, two, {{"x", {two, {{{0}, {}}, {}}}}}, {.whole_results = true});
  const PlanCost cost = cost_of_plan(graph, plan, profile());
  EXPECT_EQ(cost.output_bytes, 2 << 20);
  EXPECT_EQ(cost.nodes[0].live_bytes, 4 << 20);
  EXPECT_EQ(cost.peak_bytes, 8 << 20);
}

TEST(Search, AResultLivesUntilTheEnd) {
  const ir::Graph graph = early_result_before_a_chain();
  const auto found = search(graph, ranks(1), profile(), {.memory_limit_bytes = 1 << 30});
  EXPECT_GE(found.live_bytes, 16 << 20);
  EXPECT_THROW(search(graph, ranks(1), profile(), {.memory_limit_bytes = 15 << 20, .rounds = 3}), InvalidArgument);
}

TEST(ChoosePlan, KeepsTheMemoryLimit) {
  const ir::Graph graph = vocabulary_network(1024, 1 << 15, 256);
  const auto free = choose_plan(graph, ranks(4), profile(), {.max_axes = 1});
  const int64_t limit = free.peak_memory_bytes * 95 / 100;
  const auto tight = choose_plan(graph, ranks(4), profile(), {.memory_limit_bytes = limit, .max_axes = 1, .rounds = 5});
  EXPECT_LE(tight.peak_memory_bytes, limit);
  EXPECT_GE(tight.simulated_seconds, free.simulated_seconds);
  EXPECT_THROW(choose_plan(graph, ranks(4), profile(), {.memory_limit_bytes = 1 << 20, .max_axes = 1, .rounds = 3}),
               InvalidArgument);
}

TEST(PlanRecord, ReadsWhatItWrites) {
  const ir::Graph graph = vocabulary_network(64, 512, 32);
  const auto found = search(graph, ranks(6), profile());
  auto record = record_plan(graph, found.choices, found.cost, found.bound);
  record.added_seconds = 2 * found.cost;
  record.searched_seconds = 3 * found.cost;
  const auto text = to_json(record);
  const auto parsed = parse_plan_record(text, "plan.json");
  EXPECT_EQ(to_json(parsed), text);
  EXPECT_EQ(print(graph, plan_of(graph, choices_for(graph, parsed))), print(graph, plan_of(graph, found.choices)));
}

TEST(PlanRecord, KeepsTheBlocksOfRowsThatStayTogether) {
  const ir::Graph graph = network_of_samples(false);
  const auto choices = data_parallel_choices(graph, ranks(3), {}, false);
  const auto text = to_json(record_plan(graph, choices));
  EXPECT_THAT(text, HasSubstr("\"blocks\""));
  const auto parsed = parse_plan_record(text, "plan.json");
  EXPECT_EQ(to_json(parsed), text);
  EXPECT_EQ(print(graph, plan_of(graph, choices_for(graph, parsed))), print(graph, plan_of(graph, choices)));
  const auto fault = [&](const std::string& blocks) -> std::string {
    auto edited = text;
    const auto begin = edited.find('{', edited.find("\"blocks\""));
    edited.replace(begin, edited.find('}', begin) + 1 - begin, blocks);
    try {
      choices_for(graph, parse_plan_record(edited, "plan.json"));
    } catch (const InvalidArgument& error) {
      return error.what();
    }
    return "";
  };
  EXPECT_THAT(fault(R"({"m": 9223372036854775807})"), HasSubstr("which do not divide its 2048 elements"));
  EXPECT_THAT(fault(R"({"m": 7})"), HasSubstr("has blocks of 7 of the index"));
  EXPECT_THAT(fault(R"({"k": 2})"), HasSubstr("which it does not split"));
}

TEST(PlanRecord, SaysHowMuchOfItAnotherGraphHas) {
  const ir::Graph graph = network_of_samples(false);
  const auto record = record_plan(graph, data_parallel_choices(graph, ranks(2), {}, false));
  EXPECT_EQ(difference_text(graph, record), "");
  EXPECT_THAT(
      difference_text(vocabulary_network(64, 512, 32), record),
      testing::MatchesRegex(
          "is for another graph: [0-9]+ of its [0-9]+ operators are here, the others of this graph are not split"));
}

TEST(PlanRecord, SaysWhatIsWrong) {
  const ir::Graph graph = wide_network(64, 256, 256);
  const auto found = search(graph, ranks(2), profile());
  const auto text = to_json(record_plan(graph, found.choices));
  const auto fault = [&](const std::string& from, const std::string& to) -> std::string {
    auto edited = text;
    const auto at = edited.find(from);
    EXPECT_NE(at, std::string::npos) << from;
    edited.replace(at, from.size(), to);
    try {
      choices_for(graph, parse_plan_record(edited, "plan.json"));
    } catch (const InvalidArgument& error) {
      return error.what();
    }
    return "";
  };
  EXPECT_THAT(fault("tessera plan", "plan"), HasSubstr("plan.json.format must be \"tessera plan\""));
  EXPECT_THAT(fault("\"version\": 1", "\"version\": 2"), HasSubstr("plan.json.version must be a whole number"));
  EXPECT_THAT(fault("\"mesh\"", "\"grid\""), HasSubstr("\"mesh\" is missing"));
  EXPECT_THAT(fault(":matmul\"", ":matmoul\""), HasSubstr("\":matmoul\" is not one of"));
  EXPECT_THAT(fault("{\n", "{"), testing::Eq(""));
  EXPECT_THROW(parse_plan_record("{", "plan.json"), InvalidArgument);
}

}  // namespace
}  // namespace tessera::compiler
