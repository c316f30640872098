// An index that is out of range, on a device beside which the host computes some operators: the error, the step that it
// names and all values are those of the CPU, whichever operators these are.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <cstdlib>
#include <map>
#include <mutex>
#include <set>
#include <string>
#include <vector>

#include "tessera/base/logging.h"
#include "tessera/data/dataset.h"
#include "tessera/executor/executor.h"
#include "tessera/nn/layers/linear.h"
#include "tessera/nn/losses.h"
#include "tessera/nn/optimizers/momentum.h"
#include "tessera/ops/functions/functions.h"
#include "tessera/testing/devices/fake_communicators.h"
#include "tessera/testing/devices/fake_device.h"
#include "tessera/testing/run_ranks.h"
#include "tessera/train/metrics.h"
#include "tessera/train/model.h"

namespace tessera::devices {
namespace {

using testing::Contains;
using testing::Each;
using testing::HasSubstr;
using testing::Not;
using train::ModelOptions;
using train::ParallelMode;

constexpr int64_t kBatchRows = 8;
constexpr int64_t kVocabulary = 7;
constexpr int64_t kClasses = 3;

// Of rows [n,2] of tokens: the first is a layer's, the second is gathered by the network itself, of the same table.
struct Classifier : nn::Cell {
  nn::Embedding& embedding = child<nn::Embedding>("embedding", kVocabulary, 4);
  nn::Dense& head = child<nn::Dense>("head", 8, kClasses);
  using Cell::construct;
  ir::Value construct(ir::Value tokens) override {
    const int64_t n = tokens.shape()[0];
    const ir::Value first = ops::slice(tokens, {0, 0}, {n, 1});
    const ir::Value second = ops::slice(tokens, {0, 1}, {n, 2});
    const ir::Value gathered = ops::gather(embedding.table().in(graph()), second);
    return head(ops::reshape(ops::concat({embedding(first), gathered}, 1), {n, 8}));
  }
};

// The row of one bad number among good ones, in the column of tokens or in that of labels.
struct Bad {
  int64_t row = -1;
  int64_t token_at = -1;  // -1: it is the label
  int64_t value = 0;
};

data::Dataset rows(const Bad& bad) {
  return data::generator({{"tokens", {DType::kI32, {2}}}, {"label", {DType::kI32, {}}}}, 4 * kBatchRows,
                         [bad](int64_t row, std::span<const TensorView> to) {
                           auto* const tokens = to[0].as<int32_t>();
                           auto* const label = to[1].as<int32_t>();
                           tokens[0] = static_cast<int32_t>(row % kVocabulary);
                           tokens[1] = static_cast<int32_t>((3 * row + 1) % kVocabulary);
                           *label = static_cast<int32_t>(row % kClasses);
                           if (row != bad.row) return;
                           (bad.token_at < 0 ? *label : tokens[bad.token_at]) = static_cast<int32_t>(bad.value);
                         })
      .batch(kBatchRows);
}

struct Case {
  std::string name;
  std::set<std::string> lacks;  // operators that the device has no kernels for; "all" are all but copies
  bool expands_loss = false;    // labels are read by one_hot
  int ranks = 1;
  ModelOptions options = {};
};

// What a training has met with, by rank, and the values of rank 0.
struct Outcome {
  std::vector<std::string> errors = {};
  std::vector<int64_t> steps = {};
  std::map<std::string, std::vector<double>> values = {};  // where it has stopped
  std::map<std::string, std::vector<double>> later = {};   // two good steps later
};

std::map<std::string, std::vector<double>> all_values(train::Model& model) {
  std::map<std::string, std::vector<double>> values;
  for (const auto& name : model.names()) values[name] = model.value(name).to_doubles();
  return values;
}

constexpr const char* kNothingWasThrown = "nothing was thrown";

template <typename Call>
std::string error_of(const Call& call) {
  try {
    call();
  } catch (const executor::InvalidIndex& error) {
    return error.what();
  }
  return kNothingWasThrown;
}

Outcome train_on(const Case& row, const kernels::Backend& backend, const Bad& bad) {
  const auto count = static_cast<size_t>(row.ranks);
  Outcome outcome{.errors = std::vector<std::string>(3 * count), .steps = std::vector<int64_t>(count)};
  std::mutex mutex;
  run_ranks(row.ranks, [&](cluster::Context& context) {
    Classifier network;
    nn::SoftmaxCrossEntropyWithLogits whole({.sparse = true, .reduction = "mean"});
    nn::SoftmaxCrossEntropyExpand expanded({.sparse = true});
    nn::Cell* const loss = row.expands_loss ? static_cast<nn::Cell*>(&expanded) : &whole;
    nn::Momentum optimizer({.learning_rate = 0.1, .momentum = 0.9});
    auto options = row.options;
    options.metrics = {train::accuracy()};
    options.session.backend = &backend;
    options.session.num_threads = 1;
    options.seed = 3;
    train::Model model(context, network, loss, &optimizer, options);
    const auto of_training = error_of([&] { model.train(2, rows(bad)); });
    const int64_t step = model.step();
    const auto values = all_values(model);
    // One that ranks share ends on the rank that has the bad row, and the others hear of it when that rank ends.
    const auto of_evaluation = row.ranks == 1 ? error_of([&] { model.eval(rows(bad)); }) : "not evaluated";
    const auto of_prediction = error_of([&] { model.predict({Tensor::full({DType::kI32, {2, 2}}, kVocabulary)}); });
    model.train(1, rows({}).take(2));
    const auto later = all_values(model);
    const std::lock_guard lock(mutex);
    const auto rank = static_cast<size_t>(context.rank());
    outcome.errors[rank] = of_training;
    outcome.errors[count + rank] = of_evaluation;
    outcome.errors[2 * count + rank] = of_prediction;
    outcome.steps[rank] = step;
    if (rank == 0) {
      outcome.values = values;
      outcome.later = later;
    }
  });
  return outcome;
}

// The device's kernels without those that it lacks.
KernelRegistry without_lacking(const kernels::Backend& backend, const std::set<std::string>& lacks) {
  return some_kernels(
      backend, [lacks](const KernelRequest& request) { return !lacks.contains("all") && !lacks.contains(request.op); });
}

// NOLINTNEXTLINE(readability-identifier-naming): GoogleTest finds it by this name
void PrintTo(const Case& row, std::ostream* out) { *out << row.name; }

class BadIndexBesideHost : public testing::TestWithParam<Case> {
 protected:
  // What the host computes is said for each operator: that is looked at elsewhere.
  BadIndexBesideHost() {
    set_log_level(LogLevel::kError);
    ::setenv("TESSERA_CPU_FALLBACK", "1", 1);
  }
  ~BadIndexBesideHost() override {
    ::unsetenv("TESSERA_CPU_FALLBACK");
    set_log_level(LogLevel::kWarning);
  }
};

// In the first batch each kernel is given by itself; in the third one what the device does is replayed.
TEST_P(BadIndexBesideHost, IsSaidAndStopsAsOnTheCpu) {
  for (const int64_t row : {2, 21}) {
    for (const Bad& bad : {Bad{row, 0, kVocabulary}, Bad{row, 1, -2}, Bad{row, -1, kClasses}}) {
      const auto on_cpu = train_on(GetParam(), kernels::cpu_backend(), bad);
      const std::string column = bad.token_at < 0 ? "label" : "tokens";
      EXPECT_THAT(on_cpu.errors[0], HasSubstr(fmt::format("epoch 1, batch {}: ", row / kBatchRows + 1)));
      EXPECT_THAT(on_cpu.errors[0],
                  HasSubstr(fmt::format("column \"{}\": row {} holds {} at [", column, row % kBatchRows, bad.value)));
      EXPECT_THAT(on_cpu.steps, Each(row / kBatchRows));
      EXPECT_THAT(on_cpu.errors, Not(Contains(kNothingWasThrown)));
      for (const bool communicates : {false, true}) {
        if (communicates && GetParam().ranks == 1) continue;
        FakeDevice device(/*seed=*/7);
        FakeCommunicators communicators;
        auto backend = fake_backend(device, /*plain_loops=*/false, communicates ? &communicators : nullptr);
        const KernelRegistry some = without_lacking(backend, GetParam().lacks);
        backend.registries = {&some};
        const auto there = train_on(GetParam(), backend, bad);
        EXPECT_EQ(there.errors, on_cpu.errors);
        EXPECT_EQ(there.steps, on_cpu.steps);
        EXPECT_EQ(there.values, on_cpu.values) << there.errors[0];
        EXPECT_EQ(there.later, on_cpu.later) << there.errors[0];
      }
    }
  }
}

std::vector<Case> cases() {
  std::vector<Case> all;
  const ModelOptions on_ranks{.parallel_mode = ParallelMode::kDataParallel};
  for (const int ranks : {1, 2}) {
    const std::string end = ranks == 1 ? "" : "_data_2";
    const auto add = [&](const std::string& name, const std::set<std::string>& lacks, bool expands_loss = false) {
      all.push_back({name + end, lacks, expands_loss, ranks, ranks == 1 ? ModelOptions() : on_ranks});
    };
    add("without_lookups", {"gather"});
    add("without_products", {"matmul"});
    add("without_the_loss", {"softmax_cross_entropy", "softmax_cross_entropy_grad"});
    add("without_one_hot", {"one_hot"}, /*expands_loss=*/true);
    add("without_products_beside_one_hot", {"matmul"}, /*expands_loss=*/true);
    add("without_gradients_of_tables", {"scatter_add"});
    add("without_updates", {"momentum", "update_group"});
    add("without_anything", {"all"});
  }
  all.push_back({.name = "guarded_without_updates",
                 .lacks = {"momentum", "update_group"},
                 .options = {.loss_scale = nn::dynamic_loss_scale()}});
  all.push_back({.name = "guarded_without_anything_data_2",
                 .lacks = {"all"},
                 .ranks = 2,
                 .options = {.parallel_mode = ParallelMode::kDataParallel, .loss_scale = nn::dynamic_loss_scale()}});
  return all;
}

INSTANTIATE_TEST_SUITE_P(Operators, BadIndexBesideHost, testing::ValuesIn(cases()),
                         [](const auto& info) { return info.param.name; });

}  // namespace
}  // namespace tessera::devices
