// What the fusion pass makes of batch normalisation and its neighbours, on the graph of one rank: these operators are
// neither split nor differentiated. Each reads its images once. Masks and sums are those of the results before they
// are rounded to a half type.
#include "tessera/base/error.h"
#include "tessera/ops/defs/batch_norm_types.h"
#include "tessera/ops/registry/families.h"
#include "tessera/ops/registry/infer_helpers.h"
#include "tessera/ops/registry/op_def.h"
#include "tessera/ops/registry/require.h"
#include "tessera/ops/rules/batch_norm_operands.h"

namespace tessera::ops {
namespace {

// x, mean, variance, gamma and beta from input `first` on.
constexpr size_t kNormOperands = 5;
void require_norm(const Attributes& attributes, std::span<const Type> inputs, size_t first) {
  const Type& x = inputs[first];
  const Type statistics = batch_norm_statistics_of(attributes, x);
  require_type(inputs[first + 1], statistics, "mean");
  require_type(inputs[first + 2], statistics, "variance");
  require_channels(inputs[first + 3], x, "gamma");
  require_channels(inputs[first + 4], x, "beta");
}

// Statistics of x alone: over a split batch they would not be sums.
void require_whole_counts(const Attributes& attributes, const Type& x) {
  if (attributes.get_bool("grouped")) return;
  const int64_t count = attributes.get_ints("counts")[0];
  const int64_t held = x.shape[0] * pixels_of(x.shape);
  if (count != held) throw InvalidArgument("counts must be {}, the elements of x per channel, is {}", held, count);
}

std::vector<ExampleInput> norm_operands(const BatchNormExample& c) {
  return {{c.image()}, {c.statistics()}, {c.statistics(), Domain::kPositive}, {c.channels()}, {c.channels()}};
}

void add_batch_norm_statistics(OpRegistry& registry) {
  OpDef statistics{
      .name = "batch_norm_statistics",
      .doc = "batch_norm_mean and batch_norm_variance of x [n,c,...] in one read; x is all that they average over.",
      .inputs = {"x"},
      .attributes = batch_norm_attributes(),
      .outputs = {"mean", "variance"},
      .infer = [](const Attributes& attributes, std::span<const Type> inputs) -> std::vector<Type> {
        const Type type = batch_norm_statistics_of(attributes, inputs[0]);
        require_whole_counts(attributes, inputs[0]);
        return {type, type};
      },
      .flops = per_element(3),
      .images = ImageOrder::kBestChannelsLast,
  };
  for (const BatchNormExample& c : batch_norm_examples())
    statistics.examples.push_back({{{c.image()}}, c.attributes()});
  registry.add(std::move(statistics));
}

std::vector<Type> infer_fused_batch_norm(const Attributes& attributes, std::span<const Type> inputs) {
  const std::string& residual = attributes.get_string("residual");
  if (residual != "none" && residual != "value" && residual != "batch_norm") {
    throw InvalidArgument("residual must be none, value or batch_norm, is \"{}\"", residual);
  }
  const size_t more = residual == "none" ? 0 : residual == "value" ? 1 : kNormOperands;
  if (inputs.size() != kNormOperands + more) {
    throw InvalidArgument("with residual \"{}\" it takes {} operands, got {}", residual, kNormOperands + more,
                          inputs.size());
  }
  require_norm(attributes, inputs, 0);
  if (more > 0) require_type(inputs[kNormOperands], inputs[0], "the residual");
  if (residual == "batch_norm") require_norm(attributes, inputs, kNormOperands);
  return {inputs[0]};
}

void add_fused_batch_norm_forward(OpRegistry& registry) {
  OpDef norm{
      .name = "fused_batch_norm",
      .doc =
          "batch_norm of x [n,c,...] plus a residual, then relu, in one pass. Operands: x, mean, variance, gamma and "
          "beta; then, with residual \"value\", an image of x's type; with \"batch_norm\" the five operands of another "
          "batch_norm, of the same counts.",
      .inputs = {"values..."},
      .attributes =
          batch_norm_attributes({eps_attribute(),
                                 {"relu", false, "negative results are 0"},
                                 {"residual", std::string("none"), "what is added: none, value or batch_norm"},
                                 {"residual_eps", 1e-5, "added to the variance of the residual batch_norm"}}),
      .infer = infer_fused_batch_norm,
      .flops = per_element(6),
      .images = ImageOrder::kBestChannelsLast,
  };
  for (const BatchNormExample& c : batch_norm_examples()) {
    for (const char* residual : {"none", "value", "batch_norm"}) {
      auto inputs = norm_operands(c);
      if (residual == std::string("value")) inputs.push_back({c.image()});
      if (residual == std::string("batch_norm")) {
        for (const ExampleInput& input : norm_operands(c)) inputs.push_back(input);
      }
      auto attributes = c.attributes(1e-3);
      attributes.set("residual", std::string(residual));
      attributes.set("residual_eps", 1e-2);
      attributes.set("relu", c.x[0] != 4);
      norm.examples.push_back({inputs, attributes});
    }
  }
  registry.add(std::move(norm));
}

void add_fused_batch_norm_backward(OpRegistry& registry) {
  OpDef reduce{
      .name = "batch_norm_relu_grad_reduce",
      .doc =
          "batch_norm_grad_reduce of dy where relu(batch_norm(x)) is positive, and of 0 elsewhere: the mask is "
          "computed from x again, so that neither the result nor the masked dy is needed.",
      .inputs = {"dy", "x", "mean", "variance", "gamma", "beta"},
      .attributes = batch_norm_attributes({eps_attribute()}),
      .outputs = {"sum_dy", "sum_dy_xhat"},
      .infer = [](const Attributes& attributes, std::span<const Type> inputs) -> std::vector<Type> {
        require_norm(attributes, inputs, 1);
        require_type(inputs[0], inputs[1], "dy");
        return {inputs[2], inputs[2]};
      },
      .flops = per_element(8),
      .images = ImageOrder::kBestChannelsLast,
  };
  OpDef input{
      .name = "batch_norm_relu_grad_input",
      .doc = "batch_norm_grad_input of what batch_norm_relu_grad_reduce sums.",
      .inputs = {"dy", "x", "mean", "variance", "gamma", "beta", "sum_dy", "sum_dy_xhat"},
      .attributes = batch_norm_attributes({eps_attribute()}),
      .outputs = {"dx"},
      .infer = [](const Attributes& attributes, std::span<const Type> inputs) -> std::vector<Type> {
        require_norm(attributes, inputs, 1);
        require_type(inputs[0], inputs[1], "dy");
        require_type(inputs[6], inputs[2], "sum_dy");
        require_type(inputs[7], inputs[2], "sum_dy_xhat");
        return {inputs[1]};
      },
      .flops = per_element(11),
      .images = ImageOrder::kBestChannelsLast,
  };
  OpDef masked{
      .name = "masked_batch_norm_grad_reduce",
      .doc =
          "masked_dy is the sum of the one or two `dys` where y is positive, and 0 elsewhere: the cotangent of what "
          "relu made y of, a batch_norm of x plus a residual. The other results are batch_norm_grad_reduce of it.",
      .inputs = {"y", "x", "mean", "variance", "dys..."},
      .attributes = batch_norm_attributes({eps_attribute()}),
      .outputs = {"masked_dy", "sum_dy", "sum_dy_xhat"},
      .infer = [](const Attributes& attributes, std::span<const Type> inputs) -> std::vector<Type> {
        if (inputs.size() != 5 && inputs.size() != 6) {
          throw InvalidArgument("it takes one or two dys, got {} operands", inputs.size());
        }
        const Type statistics = batch_norm_statistics_of(attributes, inputs[1]);
        require_type(inputs[0], inputs[1], "y");
        require_type(inputs[2], statistics, "mean");
        require_type(inputs[3], statistics, "variance");
        for (const Type& dy : inputs.subspan(4)) require_type(dy, inputs[1], "dy");
        return {inputs[1], statistics, statistics};
      },
      .flops = per_element(7),
      .images = ImageOrder::kBestChannelsLast,
  };
  for (const BatchNormExample& c : batch_norm_examples()) {
    const ExampleInput image{c.image()};
    const ExampleInput statistics{c.statistics()};
    auto norm = norm_operands(c);
    norm.insert(norm.begin(), image);
    reduce.examples.push_back({norm, c.attributes(1e-3)});
    norm.push_back(statistics);
    norm.push_back(statistics);
    input.examples.push_back({norm, c.attributes(1e-3)});
    std::vector<ExampleInput> inputs = {image, image, statistics, {c.statistics(), Domain::kPositive}, image};
    masked.examples.push_back({inputs, c.attributes(1e-3)});
    inputs.push_back(image);
    masked.examples.push_back({inputs, c.attributes(1e-3)});
  }
  registry.add(std::move(reduce));
  registry.add(std::move(input));
  registry.add(std::move(masked));
}

}  // namespace

void add_fused_norms(OpRegistry& registry) {
  add_batch_norm_statistics(registry);
  add_fused_batch_norm_forward(registry);
  add_fused_batch_norm_backward(registry);
}

}  // namespace tessera::ops
