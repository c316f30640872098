#include "tessera/nn/models/models.h"

#include "tessera/base/error.h"
#include "tessera/nn/models/gpt.h"
#include "tessera/nn/models/llama.h"
#include "tessera/nn/models/resnet.h"
#include "tessera/nn/models/small.h"
#include "tessera/nn/models/translator.h"
#include "tessera/nn/optimizers/adam.h"
#include "tessera/nn/optimizers/momentum.h"

namespace tessera::nn {
namespace {

std::unique_ptr<Optimizer> momentum() {
  return std::make_unique<Momentum>(MomentumOptions{.learning_rate = 0.1, .momentum = 0.9});
}

std::unique_ptr<Optimizer> adamw() {
  return std::make_unique<AdamW>(AdamWOptions{.learning_rate = 3e-4, .beta2 = 0.95, .weight_decay = 0.1});
}

// Of a decoder: gpt or llama, with options of its own.
template <typename Options>
ModelInfo decoder_info(const std::string& name, const std::string& doc, int64_t tokens,
                       std::unique_ptr<Cell> (*make)(const Options&), const Options& options) {
  return {.name = name,
          .doc = doc,
          .inputs = {{"ids", {DType::kI32, {tokens}}}},
          .labels = tokens,
          .make =
              [make, options](int64_t num_classes) {
                auto changed = options;
                changed.vocabulary = num_classes;
                return make(changed);
              },
          .num_classes = options.vocabulary,
          .samples_per_part = 1,
          .make_optimizer = adamw};
}

// Of an image network or a small one.
ModelInfo info(const std::string& name, const std::string& doc, const std::vector<ModelInput>& inputs, int64_t labels,
               const std::function<std::unique_ptr<Cell>(int64_t)>& make) {
  return {.name = name, .doc = doc, .inputs = inputs, .labels = labels, .make = make, .make_optimizer = momentum};
}

}  // namespace

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
      info("resnet50", "ResNet-50 with the tutorials' initial values", {{"x", {DType::kF32, {3, 224, 224}}}}, 1,
           [](int64_t num_classes) { return resnet50(num_classes); }),
      info("resnet50_usual", "ResNet-50 with the usual initial values: gamma 1, he_normal convolutions",
           {{"x", {DType::kF32, {3, 224, 224}}}}, 1,
           [](int64_t num_classes) {
             return resnet50(num_classes, {.initial_values = InitialValues::kUsual, .batch_norm_momentum = 0.9});
           }),
      info("lenet5", "LeNet-5 for 32x32 images", {{"x", {DType::kF32, {3, 32, 32}}}}, 1,
           [](int64_t num_classes) { return lenet5(num_classes); }),
      info("mlp", "a perceptron of 64, 256 and num_classes features", {{"x", {DType::kF32, {64}}}}, 1,
           [](int64_t num_classes) { return mlp(num_classes); }),
      info("transformer", "a Transformer of 6 + 6 layers and width 512 for sentences of 64 of num_classes tokens",
           {{"source", {DType::kI32, {64}}}, {"target", {DType::kI32, {64}}}}, 64,
           [](int64_t num_classes) {
             return translator({.source_vocabulary = num_classes, .target_vocabulary = num_classes});
           }),
      decoder_info("gpt2_small", "GPT-2 small, 124 million parameters, sequences of 1024 tokens", 1024, gpt, {}),
      decoder_info("gpt3_96", "GPT-3, 96 layers of width 12288 and 175 billion parameters, sequences of 2048 tokens",
                   2048, gpt, {.max_length = 2048, .hidden_size = 12288, .num_layers = 96, .num_heads = 96}),
      decoder_info("llama_8b", "Llama 3 of 8 billion parameters, sequences of 8192 tokens", 8192, llama, {}),
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
