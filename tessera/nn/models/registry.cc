#include "tessera/nn/models/registry.h"

#include "tessera/base/error.h"
#include "tessera/nn/models/resnet.h"
#include "tessera/nn/models/small.h"
#include "tessera/nn/models/translator.h"

namespace tessera::nn {

std::vector<ModelInput> ModelInfo::batch_inputs(int64_t rows) const {
  std::vector<ModelInput> result = inputs;
  for (ModelInput& input : result) {
    Shape shape{rows};
    for (const int64_t size : input.type.shape) shape.push_back(size);
    input.type.shape = shape;
  }
  return result;
}

const std::vector<ModelInfo>& models() {
  static const std::vector<ModelInfo> all = {
      {"resnet50",
       "ResNet-50 with the tutorials' initial values",
       {{"x", {DType::kF32, {3, 224, 224}}}},
       1,
       [](int64_t num_classes) { return resnet50(num_classes); }},
      {"resnet50_usual",
       "ResNet-50 with the usual initial values: gamma 1, he_normal convolutions",
       {{"x", {DType::kF32, {3, 224, 224}}}},
       1,
       [](int64_t num_classes) {
         return resnet50(num_classes, {.initial_values = InitialValues::kUsual, .batch_norm_momentum = 0.9});
       }},
      {"lenet5",
       "LeNet-5 for 32x32 images",
       {{"x", {DType::kF32, {3, 32, 32}}}},
       1,
       [](int64_t num_classes) { return lenet5(num_classes); }},
      {"mlp",
       "a perceptron of 64, 256 and num_classes features",
       {{"x", {DType::kF32, {64}}}},
       1,
       [](int64_t num_classes) { return mlp(num_classes); }},
      {"transformer",
       "a Transformer of 6 + 6 layers and width 512 for sentences of 64 of num_classes tokens",
       {{"source", {DType::kI32, {64}}}, {"target", {DType::kI32, {64}}}},
       64,
       [](int64_t num_classes) {
         return translator({.source_vocabulary = num_classes, .target_vocabulary = num_classes});
       }},
  };
  return all;
}

const ModelInfo& find_model(const std::string& name) {
  std::string names;
  for (const auto& model : models()) {
    if (model.name == name) return model;
    names += (names.empty() ? "" : ", ") + model.name;
  }
  throw InvalidArgument("model \"{}\" is not known; there are: {}", name, names);
}

std::unique_ptr<Cell> make_model(const std::string& name, int64_t num_classes) {
  const ModelInfo& model = find_model(name);
  if (num_classes < 1) throw InvalidArgument("model {}: num_classes must be at least 1, got {}", name, num_classes);
  return model.make(num_classes);
}

}  // namespace tessera::nn
