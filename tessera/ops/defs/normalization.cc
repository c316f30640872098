#include "tessera/base/error.h"
#include "tessera/ops/defs/batch_norm_types.h"
#include "tessera/ops/registry/families.h"
#include "tessera/ops/registry/gradient_helpers.h"
#include "tessera/ops/registry/infer_helpers.h"
#include "tessera/ops/registry/op_def.h"
#include "tessera/ops/registry/require.h"
#include "tessera/ops/rules/batch_norm_operands.h"

namespace tessera::ops {
namespace {

// Batch normalisation. Statistics are per channel: [c]; or, grouped, per consecutive group of rows and channel: [G,c].

IndexRule::Dims image_dims(const Type& x) {
  static constexpr const char* kNames[] = {"n", "c", "d2", "d3", "d4"};
  return IndexRule::Dims(kNames, kNames + x.shape.ndim());
}
// Groups lie in the order of their rows: a split of the rows is one of the groups.
IndexRule::Dims statistics_dims(const Attributes& attributes) {
  return attributes.get_bool("grouped") ? IndexRule::Dims{"n", "c"} : IndexRule::Dims{"c"};
}

constexpr BatchNormOperands kMean{.statistics_results = 1, .averages = true};
constexpr BatchNormOperands kVariance{.statistics = 1, .statistics_results = 1, .averages = true};
constexpr BatchNormOperands kNorm{.statistics = 2, .channels = 2, .image_results = 1};
constexpr BatchNormOperands kReduce{.images = 2, .statistics = 2, .statistics_results = 2};
constexpr BatchNormOperands kInput{.images = 2, .statistics = 2, .channels = 1, .sums = 2, .image_results = 1};

auto batch_norm_rule(BatchNormOperands operands) {
  return [operands](const Attributes& attributes, std::span<const Type> inputs, std::span<const Type>) {
    const auto image = image_dims(inputs[0]);
    const auto statistics = statistics_dims(attributes);
    IndexRule rule;
    for (int i = 0; i < operands.images; ++i) rule.inputs.push_back(image);
    for (int i = 0; i < operands.statistics; ++i) rule.inputs.push_back(statistics);
    for (int i = 0; i < operands.channels; ++i) rule.inputs.push_back({"c"});
    for (int i = 0; i < operands.sums; ++i) rule.inputs.push_back(statistics);
    for (int i = 0; i < operands.image_results; ++i) rule.outputs.push_back(image);
    for (int i = 0; i < operands.statistics_results; ++i) rule.outputs.push_back(statistics);
    return rule;
  };
}

auto batch_norm_localize(BatchNormOperands operands) {
  return [operands](const LocalizeContext& context) { return localize_batch_norm(context, operands); };
}

Attributes groups_of(const Attributes& attributes) {
  return {{"counts", attributes.get_ints("counts")}, {"grouped", attributes.get_bool("grouped")}};
}
Attributes groups_of(const Attributes& attributes, double eps) {
  Attributes result = groups_of(attributes);
  result.set("eps", eps);
  return result;
}

// Sums over the elements that share a statistic, whose cotangent is spread over them: batch_norm_grad_input with unit
// scale gives (-sum_dy - (x - mean) * sum_dy_xhat) / count for a zero dy, for every grouping and dtype.
Value spread(const GradientContext& context, Value mean, Value sum_dy, Value sum_dy_xhat) {
  const Value x = context.inputs[0];
  const Value one = apply1("ones_like", {mean});
  const Value gamma =
      apply(x.graph(), "fill", {}, {{"shape", Ints{x.shape()[1]}}, {"value", 1.0}, {"dtype", mean.dtype()}})[0];
  return apply1("batch_norm_grad_input", {apply1("zeros_like", {x}), x, mean, one, gamma, sum_dy, sum_dy_xhat},
                groups_of(context.attributes, 0.0));
}

std::vector<Value> mean_gradient(const GradientContext& context) {
  const Value dmean = context.cotangent(0);
  const Value zero = apply1("zeros_like", {dmean});
  return {spread(context, zero, apply1("neg", {dmean}), zero)};
}

std::vector<Value> variance_gradient(const GradientContext& context) {
  const Value dvariance = context.cotangent(0);
  const Value mean = context.inputs[1];
  const Value minus_two = scale_by(dvariance, -2.0);
  const Value dx = spread(context, mean, apply1("zeros_like", {mean}), minus_two);
  // Zero where `mean` is the mean of x, as it is in training.
  const Value own_mean = apply1("batch_norm_mean", {context.inputs[0]}, groups_of(context.attributes));
  return {dx, apply1("mul", {minus_two, apply1("sub", {own_mean, mean})})};
}

std::vector<Value> batch_norm_gradient(const GradientContext& context) {
  const Value dy = context.cotangent(0);
  const Value x = context.inputs[0];
  const Value mean = context.inputs[1];
  const Value variance = context.inputs[2];
  const Value gamma = context.inputs[3];
  const bool grouped = context.attributes.get_bool("grouped");
  const double eps = context.attributes.get_double("eps");
  const Attributes attributes = groups_of(context.attributes, eps);
  const auto sums = apply("batch_norm_grad_reduce", {dy, x, mean, variance}, attributes);
  const auto of_channel = [&](Value sum, DType dtype) {
    return cast_to(grouped ? apply1("reduce_sum", {sum}, {{"axes", Ints{0}}}) : sum, dtype);
  };
  std::vector<Value> result(5);
  result[3] = of_channel(sums[1], gamma.dtype());
  result[4] = of_channel(sums[0], context.inputs[4].dtype());
  if (context.attributes.get_bool("batch_stats")) {
    // What x's influence on mean and variance adds is part of dx.
    result[0] = apply1("batch_norm_grad_input", {dy, x, mean, variance, gamma, sums[0], sums[1]}, attributes);
    return result;
  }
  const Value zero = apply1("zeros_like", {mean});
  result[0] = apply1("batch_norm_grad_input", {dy, x, mean, variance, gamma, zero, zero}, attributes);
  // d/dmean = -gamma r sum_dy and d/dvariance = -gamma r^2 sum_dy_xhat / 2, with r = 1 / sqrt(variance + eps).
  const Value shift = apply(x.graph(), "fill", {}, {{"shape", Ints{}}, {"value", eps}, {"dtype", mean.dtype()}})[0];
  const Value r = apply1("rsqrt", {apply1("add", {variance, shift})});
  const Value minus_gamma_r = apply1("neg", {apply1("mul", {r, cast_to(gamma, mean.dtype())})});
  result[1] = apply1("mul", {minus_gamma_r, sums[0]});
  result[2] = scale_by(apply1("mul", {apply1("mul", {minus_gamma_r, r}), sums[1]}), 0.5);
  return result;
}

std::vector<Value> no_second_derivative(const GradientContext&) {
  throw InvalidArgument(
      "second derivatives of batch_norm are not supported; write the normalisation with reduce_mean and arithmetic "
      "where they are needed");
}

void add_statistics(OpRegistry& registry) {
  OpDef mean{
      .name = "batch_norm_mean",
      .doc =
          "Per channel the sum of x [n,c,...] over all other dims, divided by counts: the batch's mean, f32 for half "
          "types; [c], or [G,c] when grouped. Over a split batch it is a partial sum: counts is global.",
      .inputs = {"x"},
      .attributes = batch_norm_attributes(),
      .outputs = {"mean"},
      .infer = [](const Attributes& attributes, std::span<const Type> inputs) -> std::vector<Type> {
        return {batch_norm_statistics_of(attributes, inputs[0])};
      },
      .gradient = mean_gradient,
      .rule = batch_norm_rule(kMean),
      .linear_in = {{0}},
      .flops = per_element(1),
      .localize = batch_norm_localize(kMean),
      .images = ImageOrder::kBestChannelsLast,
      .precision = MixedPrecision::kWideParams,
  };
  OpDef variance{
      .name = "batch_norm_variance",
      .doc =
          "Per channel the sum of (x - mean)^2 divided by counts: the biased variance of x [n,c,...], as "
          "batch_norm_mean in all else.",
      .inputs = {"x", "mean"},
      .attributes = batch_norm_attributes(),
      .outputs = {"variance"},
      .infer = [](const Attributes& attributes, std::span<const Type> inputs) -> std::vector<Type> {
        const Type statistics = batch_norm_statistics_of(attributes, inputs[0]);
        require_type(inputs[1], statistics, "mean");
        return {statistics};
      },
      .gradient = variance_gradient,
      .rule = batch_norm_rule(kVariance),
      .flops = per_element(3),
      .localize = batch_norm_localize(kVariance),
      .images = ImageOrder::kBestChannelsLast,
      .precision = MixedPrecision::kWideParams,
  };
  for (const BatchNormExample& c : batch_norm_examples()) {
    mean.examples.push_back({{{c.image()}}, c.attributes(), c.is_wide()});
    // Of no elements the mean, and with it the variance's gradient, is NaN.
    variance.examples.push_back({{{c.image()}, {c.statistics()}}, c.attributes(), c.is_wide() && c.x[0] > 0});
  }
  registry.add(std::move(mean));
  registry.add(std::move(variance));
}

void add_batch_norm(OpRegistry& registry) {
  OpDef norm{
      .name = "batch_norm",
      .doc =
          "gamma * (x - mean) / sqrt(variance + eps) + beta, per channel of x [n,c,...]; mean and variance [c], or "
          "[G,c] when grouped; gamma and beta [c]. With batch_stats they are x's own statistics and its gradient "
          "counts what x does to them (Ioffe and Szegedy, 2015).",
      .inputs = {"x", "mean", "variance", "gamma", "beta"},
      .attributes = batch_norm_attributes(
          {eps_attribute(),
           {"batch_stats", false, "mean and variance are those of x, by batch_norm_mean and _variance"}}),
      .infer = [](const Attributes& attributes, std::span<const Type> inputs) -> std::vector<Type> {
        const Type statistics = batch_norm_statistics_of(attributes, inputs[0]);
        require_type(inputs[1], statistics, "mean");
        require_type(inputs[2], statistics, "variance");
        require_channels(inputs[3], inputs[0], "gamma");
        require_channels(inputs[4], inputs[0], "beta");
        return {inputs[0]};
      },
      .gradient = batch_norm_gradient,
      .rule = batch_norm_rule(kNorm),
      .flops = per_element(4),
      .localize = batch_norm_localize(kNorm),
      .images = ImageOrder::kBestChannelsLast,
      .precision = MixedPrecision::kWideParams,
  };
  OpDef reduce{
      .name = "batch_norm_grad_reduce",
      .doc =
          "The two sums that batch_norm's gradient needs, per channel (and group): of dy, and of dy times the "
          "normalised x. Partial sums over a split batch.",
      .inputs = {"dy", "x", "mean", "variance"},
      .attributes = batch_norm_attributes({eps_attribute()}),
      .outputs = {"sum_dy", "sum_dy_xhat"},
      .infer = [](const Attributes& attributes, std::span<const Type> inputs) -> std::vector<Type> {
        const Type statistics = batch_norm_statistics_of(attributes, inputs[1]);
        require_type(inputs[0], inputs[1], "dy");
        require_type(inputs[2], statistics, "mean");
        require_type(inputs[3], statistics, "variance");
        return {statistics, statistics};
      },
      .gradient = no_second_derivative,
      .rule = batch_norm_rule(kReduce),
      .linear_in = {{0}},
      .flops = per_element(5),
      .localize = batch_norm_localize(kReduce),
      .images = ImageOrder::kBestChannelsLast,
  };
  OpDef input{
      .name = "batch_norm_grad_input",
      .doc =
          "The cotangent of batch_norm's x with batch statistics: gamma / sqrt(variance + eps) * (dy - sum_dy / "
          "count - xhat * sum_dy_xhat / count), xhat the normalised x.",
      .inputs = {"dy", "x", "mean", "variance", "gamma", "sum_dy", "sum_dy_xhat"},
      .attributes = batch_norm_attributes({eps_attribute()}),
      .outputs = {"dx"},
      .infer = [](const Attributes& attributes, std::span<const Type> inputs) -> std::vector<Type> {
        const Type statistics = batch_norm_statistics_of(attributes, inputs[1]);
        require_type(inputs[0], inputs[1], "dy");
        require_type(inputs[2], statistics, "mean");
        require_type(inputs[3], statistics, "variance");
        require_channels(inputs[4], inputs[1], "gamma");
        require_type(inputs[5], statistics, "sum_dy");
        require_type(inputs[6], statistics, "sum_dy_xhat");
        return {inputs[1]};
      },
      .gradient = no_second_derivative,
      .rule = batch_norm_rule(kInput),
      .linear_in = {{0, 5, 6}, {4}},
      .flops = per_element(8),
      .localize = batch_norm_localize(kInput),
      .images = ImageOrder::kBestChannelsLast,
  };
  for (const BatchNormExample& c : batch_norm_examples()) {
    const ExampleInput image{c.image()};
    const ExampleInput statistics{c.statistics()};
    const ExampleInput positive{c.statistics(), Domain::kPositive};
    const ExampleInput channels{c.channels()};
    // The gradient of batch_stats is that of a function of x alone: differences in mean and variance do not show it.
    for (const bool batch_stats : {false, true}) {
      auto attributes = c.attributes(1e-3);
      attributes.set("batch_stats", batch_stats);
      norm.examples.push_back(
          {{image, statistics, positive, channels, channels}, attributes, c.is_wide() && !batch_stats});
    }
    reduce.examples.push_back({{image, image, statistics, positive}, c.attributes(1e-3), false});
    input.examples.push_back(
        {{image, image, statistics, positive, channels, statistics, statistics}, c.attributes(1e-3), false});
  }
  registry.add(std::move(norm));
  registry.add(std::move(reduce));
  registry.add(std::move(input));
}

void add_moving_average(OpRegistry& registry) {
  const auto type_of = [](DType dtype, const Shape& shape) { return ExampleInput{{dtype, shape}}; };
  registry.add({
      .name = "moving_average",
      .doc = "momentum * moving + (1 - momentum) * scale * value; scale is scales[0], or one per index of dim 0 (the "
             "groups of batch_norm).",
      .inputs = {"moving", "value"},
      .attributes = {{"momentum", std::nullopt, "the weight of what was"},
                     {"scales", Doubles{1.0}, "factors of value: one, or one per index of dim 0"}},
      .infer = [](const Attributes& attributes, std::span<const Type> inputs) -> std::vector<Type> {
        require_floating(inputs[0], "moving");
        require_type(inputs[1], inputs[0], "value");
        attributes.get_double("momentum");
        const size_t scales = attributes.get_doubles("scales").size();
        const Shape& shape = inputs[0].shape;
        if (scales != 1 && (shape.ndim() == 0 || static_cast<int64_t>(scales) != shape[0])) {
          throw InvalidArgument("scales must be one number or one per index of dim 0, has {}", scales);
        }
        return {inputs[0]};
      },
      .gradient = [](const GradientContext& context) -> std::vector<Value> {
        const Value dy = context.cotangent(0);
        const Value zero = apply1("zeros_like", {dy});
        return {apply1("moving_average", {dy, zero}, context.attributes),
                apply1("moving_average", {zero, dy}, context.attributes)};
      },
      .rule =
          [](const Attributes&, std::span<const Type> inputs, std::span<const Type> outputs) {
            return elementwise_rule({inputs[0].shape, inputs[1].shape}, {outputs[0].shape});
          },
      .linear_in = {{0, 1}},
      .flops = per_element(3),
      .localize =
          [](const LocalizeContext& context) {
            Attributes attributes = context.attributes;
            const Doubles& scales = context.attributes.get_doubles("scales");
            if (scales.size() > 1) {
              const mesh::Range& held = context.output_slices[0][0];
              // A lone scale would be read as that of every index, which is the same for a slice of one; none at all
              // is no legal attribute.
              attributes.set("scales", held.size == 0 ? Doubles{1.0}
                                                      : Doubles(scales.begin() + held.offset,
                                                                scales.begin() + held.offset + held.size));
            }
            return apply(context.graph, context.op, context.inputs, attributes);
          },
      .precision = MixedPrecision::kWide,
      .examples = {{{type_of(DType::kF32, {5}), type_of(DType::kF32, {5})}, {{"momentum", 0.9}}},
                   {{type_of(DType::kF64, {3, 4}), type_of(DType::kF64, {3, 4})},
                    {{"momentum", 0.8}, {"scales", Doubles{1.5, 1.25, 2.0}}}},
                   {{type_of(DType::kF32, {4}), type_of(DType::kF32, {4})},
                    {{"momentum", 0.5}, {"scales", Doubles{1.5}}}},
                   {{type_of(DType::kBF16, {4}), type_of(DType::kBF16, {4})}, {{"momentum", 0.9}}, false},
                   {{type_of(DType::kF32, {0}), type_of(DType::kF32, {0})}, {{"momentum", 0.9}}}},
  });
}

}  // namespace

void add_normalization(OpRegistry& registry) {
  add_statistics(registry);
  add_batch_norm(registry);
  add_moving_average(registry);
}

}  // namespace tessera::ops
