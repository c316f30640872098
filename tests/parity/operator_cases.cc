// Losses and optimizers, each alone: small graphs on seeded values.
#include <cmath>
#include <functional>
#include <memory>

#include "tessera/base/error.h"
#include "tessera/base/random.h"
#include "tessera/cluster/ranks/context.h"
#include "tessera/compiler/autodiff.h"
#include "tessera/nn/initializers.h"
#include "tessera/nn/losses.h"
#include "tessera/nn/optimizers/adam.h"
#include "tessera/nn/optimizers/momentum.h"
#include "tessera/nn/optimizers/sgd.h"
#include "tessera/session/session.h"
#include "tests/parity/cases.h"

namespace tessera::parity {
namespace {

using nlohmann::json;

constexpr int kSteps = 10;

// What a dtype runs on and how far it may be from PyTorch: float64 on plain loops, float32 on the kernels of a
// training.
struct Arithmetic {
  DType dtype;
  bool reference_kernels;
  double limit;
};
constexpr Arithmetic kArithmetics[] = {{DType::kF64, true, 1e-12}, {DType::kF32, false, 2e-6}};

Tensor normal(const Shape& shape, double scale, const std::string& name, uint64_t step = 0) {
  Tensor tensor(DType::kF64, shape);
  const auto values = tensor.values<double>();
  for (size_t i = 0; i < values.size(); ++i) {
    values[i] = scale * random_normal({.seed = 11, .stream = hash_name(name), .step = step}, i);
  }
  return tensor;
}

Tensor class_numbers(int64_t rows, int64_t classes) {
  Tensor labels(DType::kI32, Shape{rows});
  const auto values = labels.values<int32_t>();
  for (size_t i = 0; i < values.size(); ++i) {
    values[i] = static_cast<int32_t>(random_below({.seed = 11, .stream = hash_name("labels")}, i, classes));
  }
  return labels;
}

// Rows that sum to 1, no element 0.
Tensor distributions(int64_t rows, int64_t classes) {
  Tensor labels = normal({rows, classes}, 1, "distributions");
  const auto values = labels.values<double>();
  for (int64_t r = 0; r < rows; ++r) {
    const auto row = values.subspan(static_cast<size_t>(r * classes), static_cast<size_t>(classes));
    double sum = 0;
    for (double& value : row) sum += value = std::exp(value);
    for (double& value : row) value /= sum;
  }
  return labels;
}

struct LossCase {
  std::string name;
  nn::Loss& loss;
  bool sparse;
  std::string reduction;
  double scale = 3;  // of the logits
};

void write_loss(CaseFolder& folder, const LossCase& described) {
  constexpr int64_t kRows = 37;
  constexpr int64_t kClasses = 11;
  for (const auto& arithmetic : kArithmetics) {
    const DType dtype = arithmetic.dtype;
    const Tensor logits = normal({kRows, kClasses}, described.scale, "logits").cast(dtype);
    const Tensor labels =
        described.sparse ? class_numbers(kRows, kClasses) : distributions(kRows, kClasses).cast(dtype);
    const Tensor cotangent =
        described.reduction == "none" ? normal({kRows}, 1, "cotangent").cast(dtype) : Tensor::full({dtype, {}}, 0.75);

    ir::Graph graph("loss");
    const auto x = graph.add_input(ir::InputKind::kInput, "logits", logits.type());
    const auto y = graph.add_input(ir::InputKind::kInput, "labels", labels.type());
    const auto seed = graph.add_input(ir::InputKind::kInput, "cotangent", cotangent.type());
    const auto value = described.loss(x, y);
    const ir::Value wrt[] = {x};
    graph.add_output("loss", value);
    graph.add_output("gradient", compiler::gradients(value, wrt, seed)[0]);
    auto tensors = session::evaluate(graph, {{"logits", logits}, {"labels", labels}, {"cotangent", cotangent}},
                                     {.reference_kernels = arithmetic.reference_kernels});
    folder.add({.name = fmt::format("{} {} {} {}", described.name, described.sparse ? "sparse" : "dense",
                                    described.reduction, dtype),
                .kind = "loss",
                .limit = arithmetic.limit,
                .facts = {{"reduction", described.reduction}, {"sparse", described.sparse}},
                .tensors = {{"logits", logits},
                            {"labels", labels},
                            {"cotangent", cotangent},
                            {"loss", tensors.at("loss")},
                            {"gradient", tensors.at("gradient")}}});
  }
}

struct OptimizerCase {
  std::string name;
  std::function<std::unique_ptr<nn::Optimizer>()> make;
  json facts;
  double loss_scale = 1;  // the optimizer divides by it; PyTorch is given the gradients themselves
};

struct OneWeight : nn::Cell {
  explicit OneWeight(const Type& type) : weight(parameter("weight", type, nn::zeros())) {}
  nn::Parameter& weight;
};

void write_optimizer(CaseFolder& folder, const OptimizerCase& described) {
  const Shape shape{17, 9};
  for (const auto& arithmetic : kArithmetics) {
    const Type type{arithmetic.dtype, shape};
    OneWeight cell(type);
    const auto optimizer = described.make();
    ir::Graph graph("update");
    const nn::ParameterGradient pair{&cell.weight, graph.add_input(ir::InputKind::kInput, "gradient", type)};
    optimizer->update(graph, {&pair, 1});
    graph.finish_assignments();

    const auto context = cluster::single_context(1);
    session::Session session(*context, {.reference_kernels = arithmetic.reference_kernels});
    nn::Parameter* const parameters[] = {&cell.weight};
    const auto states = optimizer->states(parameters);
    session.declare("weight", type);
    for (const auto& state : states) session.declare(state.full_name(), state.type);
    session.initialize(states, 1);
    const Tensor start = normal(shape, 1, "parameter").cast(type.dtype);
    session.set_value("weight", start);
    const auto executable = session.compile_local(graph);

    Case added{.name = fmt::format("{} {}", described.name, type.dtype),
               .kind = "optimizer",
               .limit = arithmetic.limit,
               .facts = described.facts,
               .tensors = {{"parameter", start}}};
    added.facts["steps"] = kSteps;
    for (int step = 0; step < kSteps; ++step) {
      const Tensor gradient = normal(shape, 1, "gradient", static_cast<uint64_t>(step)).cast(type.dtype);
      Tensor scaled = gradient.cast(DType::kF64);
      for (double& value : scaled.values<double>()) value *= described.loss_scale;
      copy_elements(scaled.view(), executable->input("gradient"));
      executable->run();
      added.tensors.emplace_back(fmt::format("gradient.{}", step), gradient);
    }
    added.tensors.emplace_back("result", session.value("weight"));
    folder.add(added);
  }
}

template <typename Optimizer, typename Options>
std::function<std::unique_ptr<nn::Optimizer>()> maker(Options options) {
  return [options] { return std::make_unique<Optimizer>(options); };
}

}  // namespace

void write_losses(CaseFolder& folder) {
  for (const bool sparse : {true, false}) {
    for (const char* reduction : {"none", "mean", "sum"}) {
      nn::SoftmaxCrossEntropyWithLogits loss({.sparse = sparse, .reduction = reduction});
      write_loss(folder, {"SoftmaxCrossEntropyWithLogits", loss, sparse, reduction});
      // exp(300) is beyond float32: the maximum must be subtracted first.
      write_loss(folder, {"SoftmaxCrossEntropyWithLogits, large logits,", loss, sparse, reduction, 100});
    }
    nn::SoftmaxCrossEntropyExpand expand({.sparse = sparse});
    write_loss(folder, {"SoftmaxCrossEntropyExpand", expand, sparse, "mean"});
  }
}

void write_optimizers(CaseFolder& folder) {
  const auto schedule =
      nn::with_warmup(nn::cosine_decay_lr({.max_lr = 0.1, .total_steps = kSteps, .decay_epochs = 8}), 3);

  write_optimizer(folder, {"Momentum",
                           maker<nn::Momentum>(nn::MomentumOptions{.learning_rate = 0.1, .momentum = 0.9}),
                           {{"optimizer", "momentum"}, {"learning_rate", 0.1}, {"momentum", 0.9}}});
  write_optimizer(folder,
                  {"Momentum, weight decay",
                   maker<nn::Momentum>(nn::MomentumOptions{.learning_rate = 0.1, .weight_decay = 0.05}),
                   {{"optimizer", "momentum"}, {"learning_rate", 0.1}, {"momentum", 0.9}, {"weight_decay", 0.05}}});
  write_optimizer(
      folder, {"Momentum, nesterov",
               maker<nn::Momentum>(nn::MomentumOptions{.learning_rate = 0.1, .momentum = 0.8, .use_nesterov = true}),
               {{"optimizer", "momentum"}, {"learning_rate", 0.1}, {"momentum", 0.8}, {"nesterov", true}}});
  write_optimizer(folder,
                  {"Momentum, nesterov, weight decay, schedule, loss scale",
                   maker<nn::Momentum>(nn::MomentumOptions{
                       .learning_rate = schedule, .weight_decay = 0.05, .loss_scale = 1024, .use_nesterov = true}),
                   {{"optimizer", "momentum"},
                    {"learning_rate", schedule},
                    {"momentum", 0.9},
                    {"weight_decay", 0.05},
                    {"nesterov", true}},
                   1024});

  write_optimizer(
      folder,
      {"SGD", maker<nn::SGD>(nn::SGDOptions{.learning_rate = 0.1}), {{"optimizer", "sgd"}, {"learning_rate", 0.1}}});
  write_optimizer(folder, {"SGD, weight decay, schedule",
                           maker<nn::SGD>(nn::SGDOptions{.learning_rate = schedule, .weight_decay = 0.05}),
                           {{"optimizer", "sgd"}, {"learning_rate", schedule}, {"weight_decay", 0.05}}});
  write_optimizer(folder, {"SGD, momentum, weight decay",
                           maker<nn::SGD>(nn::SGDOptions{.learning_rate = 0.1, .momentum = 0.7, .weight_decay = 0.05}),
                           {{"optimizer", "sgd"}, {"learning_rate", 0.1}, {"momentum", 0.7}, {"weight_decay", 0.05}}});
  write_optimizer(
      folder,
      {"SGD, nesterov, loss scale",
       maker<nn::SGD>(nn::SGDOptions{.learning_rate = 0.1, .momentum = 0.9, .loss_scale = 512, .nesterov = true}),
       {{"optimizer", "sgd"}, {"learning_rate", 0.1}, {"momentum", 0.9}, {"nesterov", true}},
       512});

  write_optimizer(folder, {"Adam",
                           maker<nn::Adam>(nn::AdamOptions{.learning_rate = 0.01}),
                           {{"optimizer", "adam"}, {"learning_rate", 0.01}}});
  write_optimizer(folder, {"Adam, betas, eps, weight decay, schedule, loss scale",
                           maker<nn::Adam>(nn::AdamOptions{.learning_rate = schedule,
                                                           .beta1 = 0.8,
                                                           .beta2 = 0.99,
                                                           .eps = 1e-3,
                                                           .weight_decay = 0.05,
                                                           .loss_scale = 1024}),
                           {{"optimizer", "adam"},
                            {"learning_rate", schedule},
                            {"beta1", 0.8},
                            {"beta2", 0.99},
                            {"eps", 1e-3},
                            {"weight_decay", 0.05}},
                           1024});

  write_optimizer(folder, {"AdamW",
                           maker<nn::AdamW>(nn::AdamWOptions{.learning_rate = 0.01}),
                           {{"optimizer", "adamw"}, {"learning_rate", 0.01}, {"weight_decay", 0.01}}});
  write_optimizer(folder, {"AdamW, betas, eps, weight decay, schedule, loss scale",
                           maker<nn::AdamW>(nn::AdamWOptions{.learning_rate = schedule,
                                                             .beta1 = 0.8,
                                                             .beta2 = 0.99,
                                                             .eps = 1e-3,
                                                             .weight_decay = 0.05,
                                                             .loss_scale = 1024}),
                           {{"optimizer", "adamw"},
                            {"learning_rate", schedule},
                            {"beta1", 0.8},
                            {"beta2", 0.99},
                            {"eps", 1e-3},
                            {"weight_decay", 0.05}},
                           1024});

  write_optimizer(folder, {"AdamWeightDecay",
                           maker<nn::AdamWeightDecay>(nn::AdamWeightDecayOptions{.learning_rate = 0.01}),
                           {{"optimizer", "adam_weight_decay"}, {"learning_rate", 0.01}, {"eps", 1e-6}}});
  write_optimizer(folder,
                  {"AdamWeightDecay, betas, eps, weight decay, schedule",
                   maker<nn::AdamWeightDecay>(nn::AdamWeightDecayOptions{
                       .learning_rate = schedule, .beta1 = 0.8, .beta2 = 0.99, .eps = 1e-3, .weight_decay = 0.05}),
                   {{"optimizer", "adam_weight_decay"},
                    {"learning_rate", schedule},
                    {"beta1", 0.8},
                    {"beta2", 0.99},
                    {"eps", 1e-3},
                    {"weight_decay", 0.05}}});
}

}  // namespace tessera::parity
