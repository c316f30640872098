// The equivalence matrix of plans: whatever the plan, ten steps give the losses and the parameters of one device on the
// same batches, in float64 on reference kernels to 1e-10, in float32 on fast kernels as closely as each row says.
#include <gtest/gtest.h>

#include <algorithm>
#include <functional>
#include <iostream>
#include <map>
#include <mutex>
#include <numeric>

#include "tessera/nn/losses.h"
#include "tessera/nn/optimizers/adagrad.h"
#include "tessera/nn/optimizers/adam.h"
#include "tessera/nn/optimizers/asgd.h"
#include "tessera/nn/optimizers/ftrl.h"
#include "tessera/nn/optimizers/momentum.h"
#include "tessera/nn/optimizers/rmsprop.h"
#include "tessera/nn/optimizers/sgd.h"
#include "tessera/testing/relative_deviation.h"
#include "tessera/testing/run_ranks.h"
#include "tessera/train/model.h"
#include "tests/equivalence/networks.h"
#include "tests/equivalence/where.h"
#include "tests/laws/random_plan.h"

namespace tessera::equivalence {
namespace {

struct Plan {
  std::string name;
  std::string network;
  int ranks = 1;
  // Strategies, by path of a cell and operator.
  std::vector<std::tuple<std::string, std::string, mesh::Strategy>> strategies = {};
  bool full_batch = false;
  mesh::Strategy dataset_strategy = {};
  bool parallel_optimizer = false;
  int optimizer_shard_size = 0;
  bool sharding_propagation = false;
  compiler::Fusion fusion = {};                // of collectives of all kinds
  std::map<std::string, int> fusion_ids = {};  // by path of a cell
  train::ParallelMode mode = train::ParallelMode::kSemiAuto;
  int64_t rows = 8;
  double float32_deviation = 1e-4;
  int64_t batches_per_step = 1;
  nn::TransformerParallel parallel = std::nullopt;
  // Automatic: whether the plan is the search's own, by a profile of fast or of slow links, or one at random among all
  // that are possible.
  enum class Search { kFastLinks, kSlowLinks, kRandom } search = Search::kFastLinks;
  uint64_t random_seed = 0;
  std::string optimizer = "momentum";
};

std::unique_ptr<nn::Optimizer> make_optimizer(const std::string& name) {
  if (name == "adagrad") return std::make_unique<nn::Adagrad>(nn::AdagradOptions{.weight_decay = 1e-4});
  if (name == "rmsprop") {
    return std::make_unique<nn::RMSProp>(
        nn::RMSPropOptions{.learning_rate = 0.01, .momentum = 0.9, .centered = true, .weight_decay = 1e-4});
  }
  if (name == "ftrl") return std::make_unique<nn::FTRL>(nn::FTRLOptions{.learning_rate = 0.01, .l1 = 1e-3, .l2 = 1e-3});
  // Those that leave rows alone that no batch has looked up.
  if (name == "sgd_rows") return std::make_unique<nn::SGD>(nn::SGDOptions{.learning_rate = 0.05});
  if (name == "adagrad_rows") return std::make_unique<nn::Adagrad>(nn::AdagradOptions{.learning_rate = 0.05});
  if (name == "lazy_adam") {
    return std::make_unique<nn::LazyAdam>(nn::LazyAdamOptions{.learning_rate = 0.01, .weight_decay = 1e-4});
  }
  if (name == "adamax") return std::make_unique<nn::AdaMax>(nn::AdaMaxOptions{.learning_rate = 0.01});
  if (name == "amsgrad") return std::make_unique<nn::AMSGrad>(nn::AMSGradOptions{.learning_rate = 0.01});
  if (name == "adadelta") return std::make_unique<nn::Adadelta>(nn::AdadeltaOptions{.epsilon = 1e-2});
  if (name == "asgd") return std::make_unique<nn::ASGD>(nn::ASGDOptions{.learning_rate = 0.05, .t0 = 1});
  check_equal(name, "momentum", "optimizer of a plan");
  return std::make_unique<nn::Momentum>(
      nn::MomentumOptions{.learning_rate = 0.05, .momentum = 0.9, .weight_decay = 1e-4});
}

struct Outcome {
  std::vector<double> losses;
  std::map<std::string, std::vector<double>> values;
};

compiler::PlanRecord random_plan(const ir::Graph& graph, int ranks, uint64_t seed) {
  std::vector<int> all(static_cast<size_t>(ranks));
  std::iota(all.begin(), all.end(), 0);
  const auto meshes = compiler::candidate_meshes(all, 2);
  compiler::CostModel costs(meshes[seed % meshes.size()], compiler::example_profile());
  const compiler::SearchProblem search(graph, costs, {.whole_results = true});
  return compiler::record_plan(graph, search.choices_of(laws::random_solution(search, seed)));
}

train::AutomaticPlanOptions automatic_options(const Plan& plan) {
  train::AutomaticPlanOptions options;
  options.search.rounds = 8;
  options.profile = compiler::example_profile();
  if (plan.search == Plan::Search::kFastLinks) {
    // Splitting pays even for networks as small as these.
    options.profile->flops_per_second = {{DType::kF32, 1e6}};
    options.profile->memory_bytes_per_second = 1e6;
    options.profile->kernel_overhead_seconds = 0;
    options.profile->intra_host = {1e12, 1e-9};
  } else if (plan.search == Plan::Search::kSlowLinks) {
    options.profile->intra_host = {1e6, 1e-3};
  } else if (plan.search == Plan::Search::kRandom) {
    options.planner = [ranks = plan.ranks, seed = plan.random_seed](const ir::Graph& graph) {
      return random_plan(graph, ranks, seed);
    };
  }
  return options;
}

void shard(nn::Cell& cell, const Plan& plan) {
  for (const auto& [path, op, strategy] : plan.strategies) {
    if (cell.path() == path) cell.shard(op, strategy);
  }
  if (const auto it = plan.fusion_ids.find(cell.path()); it != plan.fusion_ids.end()) cell.set_comm_fusion(it->second);
  for (const auto& [name, child] : cell.children()) shard(*child, plan);
}

Outcome train(const Plan& plan, DType dtype, bool reference, const session::SessionOptions& session) {
  Outcome outcome;
  std::mutex mutex;
  run_ranks(plan.ranks, [&](cluster::Context& context) {
    const auto network = make_network(plan.network, dtype, plan.parallel);
    shard(*network, plan);
    nn::SoftmaxCrossEntropyWithLogits loss({.sparse = true, .reduction = "mean"});
    const auto optimizer = make_optimizer(plan.optimizer);
    // In one of the two, the local graphs of all ranks are verified before they run; each rank does it, so not of many.
    const bool verifies = reference && plan.ranks <= 8;
    const auto verification = verifies ? compiler::Verification::kAllRanks : compiler::Verification::kPlan;
    auto options = session;
    options.verification = verification;
    options.partition = {
        .all_reduce_fusion = plan.fusion, .all_gather_fusion = plan.fusion, .reduce_scatter_fusion = plan.fusion};
    train::Model model(context, *network, &loss, optimizer.get(),
                       {.parallel_mode = plan.mode,
                        .gradient_accumulation_steps = plan.batches_per_step,
                        .full_batch = plan.full_batch,
                        .sharding_propagation = plan.sharding_propagation,
                        .dataset_strategy = plan.dataset_strategy,
                        .automatic = automatic_options(plan),
                        .parallel_optimizer = plan.parallel_optimizer,
                        .parallel_optimizer_threshold = 0,
                        .optimizer_weight_shard_size = plan.optimizer_shard_size,
                        .seed = 5,
                        .session = options});
    for (int64_t step = 0; step < 10; ++step) {
      const auto batch = make_batch(plan.network, plan.rows, step, dtype);
      const bool takes_rows = plan.mode == train::ParallelMode::kDataParallel;
      const auto rows = mesh::balanced_part(plan.rows, takes_rows ? plan.ranks : 1, takes_rows ? context.rank() : 0);
      const auto rows_of = [&](const Tensor& tensor) {
        std::vector<mesh::Range> slice = {rows};
        for (int dim = 1; dim < tensor.ndim(); ++dim) slice.push_back({0, tensor.shape()[dim]});
        return mesh::piece_of(tensor.view(), slice);
      };
      const double value = model.train_step({rows_of(batch[0]), rows_of(batch[1])}, plan.rows);
      const std::lock_guard lock(mutex);
      if (context.rank() == 0) outcome.losses.push_back(value);
    }
    for (const auto& name : model.names()) {
      const auto value = model.value(name).to_doubles();
      const std::lock_guard lock(mutex);
      if (context.rank() == 0) outcome.values[name] = value;
    }
  });
  return outcome;
}

double deviation_of(const Plan& plan, DType dtype, bool reference) {
  static std::map<std::string, Outcome> known;
  auto& one =
      known[fmt::format("{} {} {} {} {}", plan.network, plan.rows, plan.batches_per_step, plan.optimizer, dtype)];
  if (one.losses.empty()) {
    one = train({.network = plan.network,
                 .rows = plan.rows,
                 .batches_per_step = plan.batches_per_step,
                 .optimizer = plan.optimizer},
                dtype, reference, session_on_cpu(reference));
  }
  const auto many = train(plan, dtype, reference, session_there(reference));
  double worst = relative_deviation(one.losses, many.losses);
  for (const auto& [name, value] : one.values) worst = std::max(worst, relative_deviation(value, many.values.at(name)));
  return worst;
}

// NOLINTNEXTLINE(readability-identifier-naming): GoogleTest finds it by this name
void PrintTo(const Plan& plan, std::ostream* out) { *out << plan.name; }

class Plans : public testing::TestWithParam<Plan> {};

TEST_P(Plans, GiveLossesAndParametersOfOneDevice) {
  const double exact = deviation_of(GetParam(), DType::kF64, true);
  const double fast = deviation_of(GetParam(), DType::kF32, false);
  std::cout << fmt::format("{} {} ranks: float64 {:.1e}, float32 {:.1e}\n", GetParam().name, GetParam().ranks, exact,
                           fast);
  EXPECT_LT(exact, 1e-10);
  EXPECT_LT(fast, GetParam().float32_deviation);
}

std::vector<Plan> plans() {
  std::vector<Plan> rows;
  for (const char* network : {"mlp", "resnet", "transformer", "recurrent"}) {
    for (const int ranks : {2, 3, 4, 8}) {
      rows.push_back({.name = fmt::format("{}_data_{}", network, ranks), .network = network, .ranks = ranks});
    }
    // The graph of a network with steps is long, and each plan of it takes seconds.
    const bool is_long = std::string_view(network) == "recurrent";
    for (const int ranks : {2, 4, 6}) {
      if (is_long && ranks != 4) continue;
      const auto add = [&](const std::string& name, Plan::Search search, uint64_t seed = 0) {
        rows.push_back({.name = fmt::format("{}_auto_{}_{}", network, name, ranks),
                        .network = network,
                        .ranks = ranks,
                        .mode = train::ParallelMode::kAutomatic,
                        .search = search,
                        .random_seed = seed});
      };
      add("fast_links", Plan::Search::kFastLinks);
      add("slow_links", Plan::Search::kSlowLinks);
      for (const uint64_t seed : {1, 2, 3, 4}) {
        if (!is_long || seed == 1) add(fmt::format("random_{}", seed), Plan::Search::kRandom, seed);
      }
    }
    rows.push_back({.name = fmt::format("{}_auto_accumulated", network),
                    .network = network,
                    .ranks = 4,
                    .mode = train::ParallelMode::kAutomatic,
                    .batches_per_step = 2,
                    .search = Plan::Search::kRandom,
                    .random_seed = 5});
    rows.push_back({.name = fmt::format("{}_full_batch", network), .network = network, .ranks = 4, .full_batch = true});
    rows.push_back({.name = fmt::format("{}_optimizer_shards", network),
                    .network = network,
                    .ranks = 4,
                    .parallel_optimizer = true});
    rows.push_back({.name = fmt::format("{}_data_parallel_optimizer_shards", network),
                    .network = network,
                    .ranks = 3,
                    .parallel_optimizer = true,
                    .mode = train::ParallelMode::kDataParallel});
    rows.push_back({.name = fmt::format("{}_optimizer_shards_uneven", network),
                    .network = network,
                    .ranks = 3,
                    .parallel_optimizer = true,
                    .rows = 7});
  }
  for (const char* network : {"resnet", "transformer"}) {
    for (const auto mode : {train::ParallelMode::kDataParallel, train::ParallelMode::kSemiAuto}) {
      rows.push_back({.name = fmt::format("{}_accumulated{}", network,
                                          mode == train::ParallelMode::kSemiAuto ? "_optimizer_shards" : ""),
                      .network = network,
                      .ranks = 4,
                      .parallel_optimizer = mode == train::ParallelMode::kSemiAuto,
                      .mode = mode,
                      .batches_per_step = 5});
    }
  }
  // Columns, then rows, of a pair of products.
  const auto tensor_parallel = [](int64_t data, int64_t model) {
    return std::vector<std::tuple<std::string, std::string, mesh::Strategy>>{
        {"up", "matmul", {{data, 1}, {model, 1}}},
        {"down", "matmul", {{data, model}, {1, model}}},
    };
  };
  for (const char* network : {"mlp", "transformer"}) {
    for (const auto& [data, model] : std::vector<std::pair<int, int>>{{1, 2}, {1, 4}, {2, 2}, {2, 4}}) {
      rows.push_back({.name = fmt::format("{}_data_{}_model_{}", network, data, model),
                      .network = network,
                      .ranks = data * model,
                      .strategies = tensor_parallel(data, model)});
    }
    rows.push_back({.name = fmt::format("{}_data_2_model_2_accumulated", network),
                    .network = network,
                    .ranks = 4,
                    .strategies = tensor_parallel(2, 2),
                    .batches_per_step = 2});
    rows.push_back({.name = fmt::format("{}_data_2_model_2_optimizer_shards", network),
                    .network = network,
                    .ranks = 4,
                    .strategies = tensor_parallel(2, 2),
                    .parallel_optimizer = true});
    // Two groups that reduce parts of different sizes.
    rows.push_back({.name = fmt::format("{}_data_2_model_2_uneven", network),
                    .network = network,
                    .ranks = 4,
                    .strategies = tensor_parallel(2, 2),
                    .rows = 7});
  }
  for (const char* optimizer : {"adagrad", "rmsprop", "ftrl", "adamax", "amsgrad", "adadelta", "asgd"}) {
    rows.push_back({.name = fmt::format("mlp_{}_data", optimizer),
                    .network = "mlp",
                    .ranks = 3,
                    .mode = train::ParallelMode::kDataParallel,
                    .optimizer = optimizer});
    rows.push_back({.name = fmt::format("mlp_{}_model_optimizer_shards", optimizer),
                    .network = "mlp",
                    .ranks = 4,
                    .strategies = tensor_parallel(2, 2),
                    .parallel_optimizer = true,
                    .optimizer = optimizer});
  }
  for (const char* optimizer : {"sgd_rows", "adagrad_rows", "ftrl", "lazy_adam"}) {
    const auto add = [&](const std::string& name, Plan plan) {
      plan.name = fmt::format("clicks_{}_{}", optimizer, name);
      plan.network = "clicks";
      plan.optimizer = optimizer;
      rows.push_back(std::move(plan));
    };
    add("data", {.ranks = 3, .mode = train::ParallelMode::kDataParallel, .rows = 7});
    add("shards", {.ranks = 4, .parallel_optimizer = true});
    add("split_rows",
        {.ranks = 4, .strategies = {{"wide", "gather", {{4, 1}, {1, 1}}}, {"deep", "gather", {{2, 1}, {2, 1}}}}});
    add("split_columns", {.ranks = 2, .strategies = {{"wide", "gather", {{1, 2}, {1, 1}}}}});
    add("accumulated",
        {.ranks = 2, .parallel_optimizer = true, .mode = train::ParallelMode::kSemiAuto, .batches_per_step = 3});
    for (const uint64_t seed : {1, 2}) {
      add(fmt::format("random_{}", seed),
          {.ranks = 4, .mode = train::ParallelMode::kAutomatic, .search = Plan::Search::kRandom, .random_seed = seed});
    }
  }
  rows.push_back({.name = "resnet_split_width",
                  .network = "resnet",
                  .ranks = 8,
                  .strategies = {{"stem", "conv2d", {{1, 1, 1, 8}, {1, 1, 1, 1}}},
                                 {"bn", "batch_norm", {{1, 1, 1, 8}, {1}, {1}, {1}, {1}}},
                                 {"conv1", "conv2d", {{1, 1, 2, 4}, {1, 1, 1, 1}}},
                                 {"bn1", "batch_norm", {{1, 2, 1, 2}, {2}, {2}, {2}, {2}}}},
                  .dataset_strategy = {{1, 1, 1, 8}, {1}}});
  rows.push_back({.name = "resnet_split_channels",
                  .network = "resnet",
                  .ranks = 4,
                  .strategies = {{"stem", "conv2d", {{1, 1, 1, 1}, {4, 1, 1, 1}}},
                                 {"conv1", "conv2d", {{1, 4, 1, 1}, {1, 4, 1, 1}}},
                                 {"down", "conv2d", {{2, 1, 1, 1}, {2, 1, 1, 1}}}}});
  rows.push_back({.name = "transformer_split_vocabulary",
                  .network = "transformer",
                  .ranks = 4,
                  .strategies = {{"embedding", "gather", {{4, 1}, {1, 1}}}, {"head", "matmul", {{1, 1}, {4, 1}}}}});
  rows.push_back({.name = "transformer_split_heads",
                  .network = "transformer",
                  .ranks = 4,
                  .strategies = {{"query", "matmul", {{2, 1}, {2, 1}}},
                                 {"key", "matmul", {{2, 1}, {2, 1}}},
                                 {"value", "matmul", {{2, 1}, {2, 1}}},
                                 {"", "softmax", {{2, 2, 1, 1}}},
                                 {"output", "matmul", {{2, 2}, {1, 2}}}}});
  for (const auto& [data, model] : std::vector<std::pair<int, int>>{{2, 1}, {1, 2}, {2, 2}, {2, 4}}) {
    rows.push_back({.name = fmt::format("translator_data_{}_model_{}", data, model),
                    .network = "translator",
                    .ranks = data * model,
                    .parallel = nn::TransformerOpParallelConfig{.data_parallel = data, .model_parallel = model}});
  }
  // Rows of samples stay together where a reshape merges them, however the ranks share the batch.
  for (const char* network : {"transformer", "translator"}) {
    for (const auto& [ranks, batch] : std::vector<std::pair<int, int>>{{3, 7}, {5, 7}, {7, 12}}) {
      rows.push_back({.name = fmt::format("{}_data_{}_uneven_{}", network, ranks, batch),
                      .network = network,
                      .ranks = ranks,
                      .rows = batch});
    }
  }
  rows.push_back({.name = "transformer_data_3_model_2_uneven",
                  .network = "transformer",
                  .ranks = 6,
                  .strategies = tensor_parallel(3, 2),
                  .rows = 7});
  rows.push_back({.name = "transformer_searched_3_uneven",
                  .network = "transformer",
                  .ranks = 3,
                  .mode = train::ParallelMode::kAutomatic,
                  .rows = 7,
                  .search = Plan::Search::kFastLinks});
  rows.push_back({.name = "transformer_random_3_uneven",
                  .network = "transformer",
                  .ranks = 3,
                  .mode = train::ParallelMode::kAutomatic,
                  .rows = 7,
                  .search = Plan::Search::kRandom,
                  .random_seed = 3});
  rows.push_back({.name = "mlp_data_64", .network = "mlp", .ranks = 64});
  rows.push_back({.name = "transformer_data_8_model_4",
                  .network = "transformer",
                  .ranks = 32,
                  .strategies = tensor_parallel(8, 4)});
  rows.push_back({.name = "mlp_propagated",
                  .network = "mlp",
                  .ranks = 4,
                  .strategies = {{"up", "matmul", {{2, 1}, {2, 1}}}},
                  .sharding_propagation = true});
  using Mode = compiler::Fusion::Mode;
  const std::vector<std::pair<std::string, compiler::Fusion>> fusions = {
      {"off", {.mode = Mode::kOff}},
      {"size", {.mode = Mode::kSize, .bytes = 600}},
      {"index", {.mode = Mode::kIndex, .index = {2, 5}}}};
  for (const bool shards : {false, true}) {
    for (const auto& [name, fusion] : fusions) {
      rows.push_back({.name = fmt::format("resnet_fusion_{}{}", name, shards ? "_optimizer_shards" : ""),
                      .network = "resnet",
                      .ranks = 4,
                      .parallel_optimizer = shards,
                      .fusion = fusion,
                      .fusion_ids = {{"conv1", 2}, {"down", 0}}});
    }
    rows.push_back({.name = fmt::format("transformer_optimizer_shards_of_2_on_{}", shards ? 4 : 8),
                    .network = "transformer",
                    .ranks = shards ? 4 : 8,
                    .parallel_optimizer = true,
                    .optimizer_shard_size = 2});
  }
  return rows;
}

INSTANTIATE_TEST_SUITE_P(Matrix, Plans, testing::ValuesIn(rows_there(plans())),
                         [](const auto& info) { return info.param.name; });

}  // namespace
}  // namespace tessera::equivalence
