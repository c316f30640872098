// ResNet-50: its initial values, batches, losses and first gradients.
#include "tessera/base/error.h"
#include "tessera/cluster/ranks/context.h"
#include "tessera/data/batch_iterator.h"
#include "tessera/nn/losses.h"
#include "tessera/nn/models/resnet.h"
#include "tessera/nn/optimizers/momentum.h"
#include "tessera/train/model.h"
#include "tests/parity/cases.h"

namespace tessera::parity {
namespace {

std::vector<nn::ParameterGroup> groups_of(const std::map<std::string, double>& learning_rates) {
  std::vector<nn::ParameterGroup> groups;
  for (const auto& [prefix, rate] : learning_rates) {
    groups.push_back({.matches = [prefix = prefix](const std::string& name) { return name.starts_with(prefix); },
                      .learning_rate = rate});
  }
  return groups;
}

}  // namespace

void write_training(CaseFolder& folder, const data::Dataset& images, const Training& training) {
  constexpr double kMomentum = 0.9;
  const auto network = nn::resnet50(10, {.initial_values = nn::InitialValues::kUsual});
  nn::set_parameter_dtype(*network, training.dtype);
  nn::SoftmaxCrossEntropyWithLogits loss({.sparse = true, .reduction = "mean"});
  nn::Momentum optimizer(
      {.learning_rate = training.learning_rate, .momentum = kMomentum, .groups = groups_of(training.learning_rates)});
  const auto context = cluster::single_context(2);
  train::Model model(*context, *network, &loss, &optimizer,
                     {.seed = 1, .session = {.reference_kernels = training.reference_kernels, .num_threads = 2}});

  Case added{.name = training.name,
             .kind = "training",
             .limit = training.limit,
             .facts = {{"num_classes", 10},
                       {"learning_rate", training.learning_rate},
                       {"learning_rates", training.learning_rates},
                       {"momentum", kMomentum},
                       {"steps", training.steps},
                       {"num_batches", training.num_batches},
                       {"loss_falls_by", training.loss_falls_by}}};
  if (training.gradient_limit) added.facts["gradient_limit"] = *training.gradient_limit;
  for (const nn::Parameter* parameter : network->parameters()) {
    const auto name = parameter->full_name();
    added.tensors.emplace_back("parameter." + name, model.value(name).clone());
  }
  // Not shuffled: each repetition would draw other images.
  auto batches = images.take(training.batch_size * training.num_batches)
                     .repeat()
                     .map("image", {data::resize(training.image_size), data::rescale(1 / 255.0, 0),
                                    data::normalize({0.4914, 0.4822, 0.4465}, {0.2023, 0.1994, 0.2010}),
                                    data::hwc2chw(), data::type_cast(training.dtype)})
                     .map("label", {data::type_cast(DType::kI32)})
                     .batch(training.batch_size)
                     .batches();
  std::vector<double> losses;
  for (int64_t step = 0; step < training.steps; ++step) {
    const auto batch = *batches.next();
    added.tensors.emplace_back(fmt::format("image.{}", step), batch[0]);
    added.tensors.emplace_back(fmt::format("label.{}", step), batch[1]);
    losses.push_back(model.train_step({batch[0].view(), batch[1].view()}, training.batch_size));
    if (step > 0) continue;
    // Moments start at 0: after one step they are the gradients.
    for (const nn::Parameter* parameter : network->trainable_parameters()) {
      const auto name = parameter->full_name();
      added.tensors.emplace_back("gradient." + name, model.value("moments." + name).clone());
    }
  }
  added.tensors.emplace_back("losses",
                             Tensor::of({static_cast<int64_t>(losses.size())}, std::span<const double>(losses)));
  folder.add(added);
}

}  // namespace tessera::parity
