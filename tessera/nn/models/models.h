// The built-in networks by name, for programs that take one as an argument.
#pragma once

#include <functional>
#include <memory>
#include <string>
#include <vector>

#include "tessera/nn/cell.h"
#include "tessera/nn/optimizers/optimizer.h"

namespace tessera::nn {

// A ModelInput is an input of a network, for one sample.
struct ModelInput {
  std::string name;
  Type type;  // without the batch: f32[3,224,224]
};

// No values are made with a network: one of any size can be traced and planned.
struct ModelInfo {
  std::string name;
  std::string doc;
  std::vector<ModelInput> inputs;
  int64_t labels = 1;  // class numbers that a sample is to be given; the logits have that many rows for each
  std::function<std::unique_ptr<Cell>(int64_t num_classes)> make;
  int64_t num_classes = 10;  // where nothing else is said; of a language model its vocabulary
  int64_t samples_per_part =
      32;  // the samples of a batch for each part that it is split into, where nothing else is said
  // What it is usually trained with.
  std::function<std::unique_ptr<Optimizer>()> make_optimizer;

  // The inputs of a batch of `rows` samples.
  std::vector<ModelInput> batch_inputs(int64_t rows) const;
  // The type of the labels of so many rows: i32[rows * labels].
  Type batch_labels(int64_t rows) const { return {DType::kI32, {rows * labels}}; }
};

const std::vector<ModelInfo>& models();
// Throws InvalidArgument listing the names.
const ModelInfo& find_model(const std::string& name);
// Throws InvalidArgument for an unknown name and for fewer than one class.
std::unique_ptr<Cell> make_model(const std::string& name, int64_t num_classes);

}  // namespace tessera::nn
