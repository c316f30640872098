// Claims: whatever strategy each operator has, ten steps give the losses and the parameters of one device. Networks,
// ranks, strategies, how the batch lies and which parameters are optimizer shards follow from a seed.
#include <gtest/gtest.h>

#include <iostream>
#include <map>
#include <mutex>

#include "tessera/base/error.h"
#include "tessera/nn/losses.h"
#include "tessera/nn/optimizers/momentum.h"
#include "tessera/session/session.h"
#include "tessera/session/trace.h"
#include "tessera/testing/relative_deviation.h"
#include "tessera/testing/run_ranks.h"
#include "tests/equivalence/networks.h"
#include "tests/equivalence/random_strategies.h"

namespace tessera::equivalence {
namespace {

constexpr int kSteps = 10;
constexpr int64_t kRows = 8;

struct Outcome {
  std::vector<double> losses;
  std::map<std::string, std::vector<double>> values;
  int num_strategies = 0;
  int num_meshes = 1;
};

compiler::PlanOptions options_of(nn::Cell& network, uint64_t seed) {
  compiler::PlanOptions options{.batch_by_default = seed % 3 == 0, .whole_results = true};
  for (const nn::Parameter* parameter : network.trainable_parameters()) {
    if ((seed / 2 + options.optimizer_shards.size()) % 2 == 0) options.optimizer_shards.insert(parameter->full_name());
  }
  return options;
}

// Seed 0: one device, no strategies.
Outcome train(const std::string& name, int num_ranks, uint64_t seed, DType dtype, bool reference) {
  Outcome outcome;
  std::mutex mutex;
  run_ranks(num_ranks, [&](cluster::Context& context) {
    const auto network = make_network(name, dtype);
    network->apply_settings({.training = true, .seed = 5});
    nn::SoftmaxCrossEntropyWithLogits loss({.sparse = true, .reduction = "mean"});
    nn::Momentum optimizer({.learning_rate = 0.05, .momentum = 0.9, .weight_decay = 1e-4});
    const auto first = make_batch(name, kRows, 0, dtype);
    const std::vector<session::InputSpec> inputs = {{"x", first[0].type()}, {"label", first[1].type()}};
    ir::Graph graph = session::trace_train_step(*network, &loss, optimizer, inputs, {.training = true, .seed = 5});
    Outcome mine;
    if (seed > 0) mine.num_strategies = add_random_strategies(graph, num_ranks, seed);

    const auto verification = reference ? compiler::Verification::kAllRanks : compiler::Verification::kPlan;
    session::Session session(context, {.reference_kernels = reference, .num_threads = 1, .verification = verification});
    std::vector<nn::Parameter> parameters;
    std::vector<nn::Parameter*> trainable = network->trainable_parameters();
    for (nn::Parameter* parameter : network->parameters()) parameters.push_back(*parameter);
    const auto states = optimizer.states(trainable);
    parameters.insert(parameters.end(), states.begin(), states.end());
    for (const auto& parameter : parameters) session.declare(parameter.full_name(), parameter.type);
    session.initialize(parameters, 5);

    const mesh::Mesh mesh({{"data", num_ranks}});
    compiler::ShardingHints hints;
    if (seed % 2 == 1) {
      for (const auto& input : inputs) {
        auto rows = mesh::Sharding::replicated(input.type.shape.ndim());
        rows.dims[0] = {0};
        hints[input.name] = {mesh, rows};
      }
    }
    const auto options = seed > 0 ? options_of(*network, seed) : compiler::PlanOptions{};
    auto planned = session.plan(graph, mesh, hints, options);
    mine.num_meshes = static_cast<int>(planned.plan.meshes.size());
    session.place(session.new_layouts(planned));
    const auto executable = session.compile(std::move(planned));
    for (int step = 0; step < kSteps; ++step) {
      const auto batch = make_batch(name, kRows, step, dtype);
      for (size_t i = 0; i < inputs.size(); ++i) {
        copy_elements(mesh::piece_of(batch[i].view(), executable->input_slice(inputs[i].name)),
                      executable->input(inputs[i].name));
      }
      executable->run();
      mine.losses.push_back(Tensor::copy_of(executable->output("loss")).to_doubles()[0]);
    }
    for (const auto& value : session.names()) mine.values[value] = session.value(value).to_doubles();
    const std::lock_guard lock(mutex);
    if (context.rank() == 0) outcome = std::move(mine);
  });
  return outcome;
}

double deviation(const Outcome& one, const Outcome& many) {
  double worst = relative_deviation(one.losses, many.losses);
  for (const auto& [name, value] : one.values) worst = std::max(worst, relative_deviation(value, many.values.at(name)));
  return worst;
}

class RandomStrategies : public testing::TestWithParam<int> {};

TEST_P(RandomStrategies, GiveLossesAndParametersOfOneDevice) {
  const auto seed = static_cast<uint64_t>(GetParam());
  const std::string network = std::vector<std::string>{"mlp", "resnet", "transformer"}[seed % 3];
  const int num_ranks = std::vector<int>{2, 3, 4, 6, 8}[seed % 5];
  static std::map<std::string, Outcome> known;
  for (const bool exact : {true, false}) {
    const DType dtype = exact ? DType::kF64 : DType::kF32;
    auto& one = known[network + (exact ? " exact" : "")];
    if (one.losses.empty()) one = train(network, 1, 0, dtype, exact);
    const auto many = train(network, num_ranks, seed, dtype, exact);
    const double found = deviation(one, many);
    EXPECT_GT(many.num_strategies, 0);
    EXPECT_LT(found, exact ? 1e-10 : 1e-4);
    std::cout << fmt::format("{} on {} ranks, {} strategies on {} meshes, {}: {:.1e}\n", network, num_ranks,
                             many.num_strategies, many.num_meshes, dtype, found);
  }
}

INSTANTIATE_TEST_SUITE_P(Seeds, RandomStrategies, testing::Range(1, 51));

}  // namespace
}  // namespace tessera::equivalence
