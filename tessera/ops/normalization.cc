#include <numeric>

#include "tessera/base/error.h"
#include "tessera/ops/families.h"
#include "tessera/ops/op_def.h"
#include "tessera/ops/require.h"

namespace tessera::ops {
namespace {

// Batch normalisation. Statistics are per channel: [c]; or, grouped, per consecutive group of rows and channel: [G,c].

int64_t pixels_of(const Shape& x) {
  int64_t pixels = 1;
  for (int dim = 2; dim < x.ndim(); ++dim) pixels *= x[dim];
  return pixels;
}

// Checks x and `counts`; returns the statistics' type.
Type statistics_of(const Attributes& attributes, const Type& x) {
  require_floating(x, "x");
  if (x.shape.ndim() < 2 || x.shape.ndim() > 5) {
    throw InvalidArgument("x must have 2 to 5 dims [n,c,...], has {}", x.shape.ndim());
  }
  const Ints& counts = attributes.get_ints("counts");
  const DType dtype = statistics_dtype(x.dtype);
  const int64_t pixels = pixels_of(x.shape);
  for (const int64_t count : counts) {
    if (count < 0) throw InvalidArgument("counts must not be negative, one is {}", count);
  }
  if (!attributes.get_bool("grouped")) {
    if (counts.size() != 1) throw InvalidArgument("counts must be one number unless grouped, has {}", counts.size());
    // A rank holds a part of what is averaged, never more than all.
    if (counts[0] < x.shape[0] * pixels) {
      throw InvalidArgument("counts is {}, x alone has {} elements per channel", counts[0], x.shape[0] * pixels);
    }
    return {dtype, {x.shape[1]}};
  }
  if (pixels == 0) throw InvalidArgument("grouped statistics need images with pixels");
  int64_t rows = 0;
  for (const int64_t count : counts) {
    if (count % pixels != 0) {
      throw InvalidArgument("a group of {} elements is no whole number of rows of {}", count, pixels);
    }
    rows += count / pixels;
  }
  if (rows != x.shape[0]) throw InvalidArgument("the groups have {} rows, x has {}", rows, x.shape[0]);
  return {dtype, {static_cast<int64_t>(counts.size()), x.shape[1]}};
}

void require_statistics(const Type& given, const Type& expected, std::string_view what) {
  require_dtype(given, expected.dtype, what);
  require_shape(given, expected.shape, what);
}

void require_channels(const Type& given, const Type& x, std::string_view what) {
  if (given.dtype != x.dtype && given.dtype != statistics_dtype(x.dtype)) {
    throw InvalidArgument("{} must be {}, is {}; cast it", what, statistics_dtype(x.dtype), given.dtype);
  }
  require_shape(given, {x.shape[1]}, what);
}

void require_like(const Type& given, const Type& x, std::string_view what) {
  require_dtype(given, x.dtype, what);
  require_shape(given, x.shape, what);
}

// x's dims; the pixels split only where a group's rows need not be counted by them.
IndexRule::Dims image_dims(const Attributes& attributes, const Type& x) {
  static constexpr const char* kNames[] = {"n", "c", "d2", "d3", "d4"};
  IndexRule::Dims dims;
  for (int dim = 0; dim < x.shape.ndim(); ++dim) {
    dims.emplace_back(dim >= 2 && attributes.get_bool("grouped") ? "" : kNames[dim]);
  }
  return dims;
}
// A group is a whole number of rows, so a split of the rows is one of the groups.
IndexRule::Dims statistics_dims(const Attributes& attributes) {
  return attributes.get_bool("grouped") ? IndexRule::Dims{"n", "c"} : IndexRule::Dims{"c"};
}

// The rule of an operator on `images` images, then `statistics` statistics, then `channels` vectors [c], then
// `last_statistics` statistics again.
struct Operands {
  int images = 1;
  int statistics = 0;
  int channels = 0;
  int last_statistics = 0;
  int image_results = 0;
  int statistics_results = 0;
};
auto batch_norm_rule(Operands operands) {
  return [operands](const Attributes& attributes, std::span<const Type> inputs, std::span<const Type>) {
    const auto image = image_dims(attributes, inputs[0]);
    const auto statistics = statistics_dims(attributes);
    IndexRule rule;
    for (int i = 0; i < operands.images; ++i) rule.inputs.push_back(image);
    for (int i = 0; i < operands.statistics; ++i) rule.inputs.push_back(statistics);
    for (int i = 0; i < operands.channels; ++i) rule.inputs.push_back({"c"});
    for (int i = 0; i < operands.last_statistics; ++i) rule.inputs.push_back(statistics);
    for (int i = 0; i < operands.image_results; ++i) rule.outputs.push_back(image);
    for (int i = 0; i < operands.statistics_results; ++i) rule.outputs.push_back(statistics);
    return rule;
  };
}

// A rank that holds some of the groups counts only those. Input 0 is an image; `statistics` is the slice of one
// operand or result [G,c].
std::vector<Value> localize_groups(const LocalizeContext& context, const mesh::Range& groups) {
  const Ints& counts = context.attributes.get_ints("counts");
  const int64_t pixels = pixels_of(context.global_inputs[0].shape);
  const auto first = counts.begin() + groups.offset;
  const auto rows_of = [&](auto begin, auto end) { return std::accumulate(begin, end, int64_t{0}) / pixels; };
  const mesh::Range rows{rows_of(counts.begin(), first), rows_of(first, first + groups.size)};
  const mesh::Range& held = context.input_slices[0][0];
  // Where nothing is held the offset says nothing.
  if (held.size != rows.size || (held.size > 0 && held.offset != rows.offset)) {
    throw InvalidArgument(
        "{}: the split of the batch cuts through a group of statistics: this rank holds rows [{}, {}), its groups are "
        "rows [{}, {}); use as many groups as parts",
        context.op, held.offset, held.offset + held.size, rows.offset, rows.offset + rows.size);
  }
  Attributes attributes = context.attributes;
  attributes.set("counts", Ints(first, first + groups.size));
  return apply(context.graph, context.op, context.inputs, attributes);
}
std::vector<Value> localize_by_result(const LocalizeContext& context) {
  if (!context.attributes.get_bool("grouped"))
    return apply(context.graph, context.op, context.inputs, context.attributes);
  return localize_groups(context, context.output_slices[0][0]);
}
// `operand` is the input with the statistics.
auto localize_by_input(size_t operand) {
  return [operand](const LocalizeContext& context) {
    if (!context.attributes.get_bool("grouped")) {
      return apply(context.graph, context.op, context.inputs, context.attributes);
    }
    return localize_groups(context, context.input_slices[operand][0]);
  };
}

Attributes groups_of(const Attributes& attributes) {
  return {{"counts", attributes.get_ints("counts")}, {"grouped", attributes.get_bool("grouped")}};
}
Attributes groups_of(const Attributes& attributes, double eps) {
  Attributes result = groups_of(attributes);
  result.set("eps", eps);
  return result;
}

Value cast_to(Value value, DType dtype) {
  return value.dtype() == dtype ? value : apply1("cast", {value}, {{"dtype", dtype}});
}
Value scaled(Value value, double factor) {
  const Value scale =
      apply(value.graph(), "fill", {}, {{"shape", Ints{}}, {"value", factor}, {"dtype", value.dtype()}})[0];
  return apply1("mul", {value, scale});
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
  const Value minus_two = scaled(dvariance, -2.0);
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
  result[2] = scaled(apply1("mul", {apply1("mul", {minus_gamma_r, r}), sums[1]}), 0.5);
  return result;
}

std::vector<Value> no_second_derivative(const GradientContext&) {
  throw InvalidArgument(
      "second derivatives of batch_norm and layer_norm are not supported; write the normalisation with reduce_mean and "
      "arithmetic where they are needed");
}

auto per_element(double flops) {
  return [flops](const Attributes&, std::span<const Type> inputs, std::span<const Type>) {
    return flops * static_cast<double>(inputs[0].shape.num_elements());
  };
}

std::vector<AttributeDef> group_attributes() {
  return {{"counts", std::nullopt,
           "number of elements that each statistic averages over, in the global batch: one; or one per group"},
          {"grouped", false, "statistics [G,c] of G consecutive groups of rows instead of [c] of all"}};
}
std::vector<AttributeDef> group_attributes(std::vector<AttributeDef> more) {
  auto attributes = group_attributes();
  attributes.insert(attributes.begin(), more.begin(), more.end());
  return attributes;
}
AttributeDef eps_attribute() { return {"eps", 1e-5, "added to the variance"}; }

// The examples of one operator: `make` gives its operands.
struct Case {
  DType dtype;
  Shape x;
  Ints counts;
  bool grouped = false;

  Type image() const { return {dtype, x}; }
  Type statistics() const {
    const DType wide = statistics_dtype(dtype);
    return grouped ? Type{wide, {static_cast<int64_t>(counts.size()), x[1]}} : Type{wide, {x[1]}};
  }
  Type channels() const { return {statistics_dtype(dtype), {x[1]}}; }
  Attributes attributes() const { return {{"counts", counts}, {"grouped", grouped}}; }
  Attributes attributes(double eps) const { return {{"counts", counts}, {"grouped", grouped}, {"eps", eps}}; }
  bool is_wide() const { return dtype == DType::kF32 || dtype == DType::kF64; }
};
std::vector<Case> cases() {
  return {{DType::kF32, {4, 3, 3, 2}, {24}},
          {DType::kF64, {5, 2}, {5}},
          {DType::kF32, {3, 17, 5}, {15}},
          {DType::kF64, {2, 3, 2, 2, 2}, {16}},
          {DType::kF32, {5, 3, 2, 2}, {12, 8}, true},
          {DType::kF64, {4, 2}, {2, 1, 1}, true},
          {DType::kBF16, {4, 3, 3, 2}, {24}},
          {DType::kF16, {3, 2, 4}, {4, 8}, true},
          {DType::kF32, {0, 3, 2, 2}, {0}}};
}

void add_statistics(OpRegistry& registry) {
  OpDef mean{
      .name = "batch_norm_mean",
      .doc =
          "Per channel the sum of x [n,c,...] over all other dims, divided by counts: the batch's mean, f32 for half "
          "types; [c], or [G,c] when grouped. Over a split batch it is a partial sum: counts is global.",
      .inputs = {"x"},
      .attributes = group_attributes(),
      .outputs = {"mean"},
      .infer = [](const Attributes& attributes, std::span<const Type> inputs) -> std::vector<Type> {
        return {statistics_of(attributes, inputs[0])};
      },
      .gradient = mean_gradient,
      .rule = batch_norm_rule({.statistics_results = 1}),
      .linear_in = {{0}},
      .flops = per_element(1),
      .localize = localize_by_result,
  };
  OpDef variance{
      .name = "batch_norm_variance",
      .doc =
          "Per channel the sum of (x - mean)^2 divided by counts: the biased variance of x [n,c,...], as "
          "batch_norm_mean in all else.",
      .inputs = {"x", "mean"},
      .attributes = group_attributes(),
      .outputs = {"variance"},
      .infer = [](const Attributes& attributes, std::span<const Type> inputs) -> std::vector<Type> {
        const Type statistics = statistics_of(attributes, inputs[0]);
        require_statistics(inputs[1], statistics, "mean");
        return {statistics};
      },
      .gradient = variance_gradient,
      .rule = batch_norm_rule({.statistics = 1, .statistics_results = 1}),
      .flops = per_element(3),
      .localize = localize_by_result,
  };
  for (const Case& c : cases()) {
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
      .attributes = group_attributes(
          {eps_attribute(),
           {"batch_stats", false, "mean and variance are those of x, by batch_norm_mean and _variance"}}),
      .infer = [](const Attributes& attributes, std::span<const Type> inputs) -> std::vector<Type> {
        const Type statistics = statistics_of(attributes, inputs[0]);
        require_statistics(inputs[1], statistics, "mean");
        require_statistics(inputs[2], statistics, "variance");
        require_channels(inputs[3], inputs[0], "gamma");
        require_channels(inputs[4], inputs[0], "beta");
        return {inputs[0]};
      },
      .gradient = batch_norm_gradient,
      .rule = batch_norm_rule({.statistics = 2, .channels = 2, .image_results = 1}),
      .flops = per_element(4),
      .localize = localize_by_input(1),
  };
  OpDef reduce{
      .name = "batch_norm_grad_reduce",
      .doc =
          "The two sums that batch_norm's gradient needs, per channel (and group): of dy, and of dy times the "
          "normalised x. Partial sums over a split batch.",
      .inputs = {"dy", "x", "mean", "variance"},
      .attributes = group_attributes({eps_attribute()}),
      .outputs = {"sum_dy", "sum_dy_xhat"},
      .infer = [](const Attributes& attributes, std::span<const Type> inputs) -> std::vector<Type> {
        const Type statistics = statistics_of(attributes, inputs[1]);
        require_like(inputs[0], inputs[1], "dy");
        require_statistics(inputs[2], statistics, "mean");
        require_statistics(inputs[3], statistics, "variance");
        return {statistics, statistics};
      },
      .gradient = no_second_derivative,
      .rule = batch_norm_rule({.images = 2, .statistics = 2, .statistics_results = 2}),
      .linear_in = {{0}},
      .flops = per_element(5),
      .localize = localize_by_result,
  };
  OpDef input{
      .name = "batch_norm_grad_input",
      .doc =
          "The cotangent of batch_norm's x with batch statistics: gamma / sqrt(variance + eps) * (dy - sum_dy / "
          "count - xhat * sum_dy_xhat / count), xhat the normalised x.",
      .inputs = {"dy", "x", "mean", "variance", "gamma", "sum_dy", "sum_dy_xhat"},
      .attributes = group_attributes({eps_attribute()}),
      .outputs = {"dx"},
      .infer = [](const Attributes& attributes, std::span<const Type> inputs) -> std::vector<Type> {
        const Type statistics = statistics_of(attributes, inputs[1]);
        require_like(inputs[0], inputs[1], "dy");
        require_statistics(inputs[2], statistics, "mean");
        require_statistics(inputs[3], statistics, "variance");
        require_channels(inputs[4], inputs[1], "gamma");
        require_statistics(inputs[5], statistics, "sum_dy");
        require_statistics(inputs[6], statistics, "sum_dy_xhat");
        return {inputs[1]};
      },
      .gradient = no_second_derivative,
      .rule = batch_norm_rule({.images = 2, .statistics = 2, .channels = 1, .last_statistics = 2, .image_results = 1}),
      .linear_in = {{0, 5, 6}, {4}},
      .flops = per_element(8),
      .localize = localize_by_input(2),
  };
  for (const Case& c : cases()) {
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
        require_like(inputs[1], inputs[0], "value");
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
      .examples = {{{type_of(DType::kF32, {5}), type_of(DType::kF32, {5})}, {{"momentum", 0.9}}},
                   {{type_of(DType::kF64, {3, 4}), type_of(DType::kF64, {3, 4})},
                    {{"momentum", 0.8}, {"scales", Doubles{1.5, 1.25, 2.0}}}},
                   {{type_of(DType::kF32, {4}), type_of(DType::kF32, {4})},
                    {{"momentum", 0.5}, {"scales", Doubles{1.5}}}},
                   {{type_of(DType::kBF16, {4}), type_of(DType::kBF16, {4})}, {{"momentum", 0.9}}, false},
                   {{type_of(DType::kF32, {0}), type_of(DType::kF32, {0})}, {{"momentum", 0.9}}}},
  });
}

// Layer normalisation: over the dims from begin_axis on.

struct LayerShapes {
  Shape leading;
  Shape trailing;
};
LayerShapes layer_shapes(const Attributes& attributes, const Type& x) {
  require_floating(x, "x");
  const int64_t begin = attributes.get_int("begin_axis");
  if (begin < 0 || begin > x.shape.ndim()) {
    throw InvalidArgument("begin_axis must be in [0, {}], is {}", x.shape.ndim(), begin);
  }
  LayerShapes shapes;
  for (int dim = 0; dim < x.shape.ndim(); ++dim) {
    (dim < begin ? shapes.leading : shapes.trailing).push_back(x.shape[dim]);
  }
  return shapes;
}
void require_trailing(const Type& given, const Type& x, const Shape& trailing, std::string_view what) {
  if (given.dtype != x.dtype && given.dtype != statistics_dtype(x.dtype)) {
    throw InvalidArgument("{} must be {}, is {}; cast it", what, statistics_dtype(x.dtype), given.dtype);
  }
  require_shape(given, trailing, what);
}

struct LayerDims {
  IndexRule::Dims x;
  IndexRule::Dims leading;
  IndexRule::Dims trailing;
};
LayerDims layer_dims(const Attributes& attributes, int ndim) {
  LayerDims dims;
  for (int dim = 0; dim < ndim; ++dim) {
    const bool is_leading = dim < attributes.get_int("begin_axis");
    const std::string name = is_leading ? "d" + std::to_string(dim) : "";
    dims.x.push_back(name);
    (is_leading ? dims.leading : dims.trailing).push_back(name);
  }
  return dims;
}

std::vector<Value> layer_norm_gradient(const GradientContext& context) {
  const Value x = context.inputs[0];
  const Value gamma = context.inputs[1];
  const Value mean = context.outputs[1];
  const Value inv_std = context.outputs[2];
  const auto grads = apply("layer_norm_grad", {context.cotangent(0), x, gamma, mean, inv_std},
                           {{"begin_axis", context.attributes.get_int("begin_axis")}});
  Value dx = grads[0];
  Ints trailing_axes;
  double count = 1;
  for (int dim = mean.ndim(); dim < x.ndim(); ++dim) {
    trailing_axes.push_back(dim);
    count *= static_cast<double>(x.shape()[dim]);
  }
  const auto spread = [&](Value per_row) { return apply1("expand_dims", {per_row}, {{"axes", trailing_axes}}); };
  // d mean / dx = 1 / count; d inv_std / dx = -inv_std^3 (x - mean) / count.
  if (context.cotangents[1]) {
    const Value ones = apply1("ones_like", {x});
    dx = apply1("add",
                {dx, apply1("mul", {ones, cast_to(spread(scaled(context.cotangents[1], 1 / count)), x.dtype())})});
  }
  if (context.cotangents[2]) {
    const Value centred = apply1("sub", {cast_to(x, mean.dtype()), spread(mean)});
    const Value cubed = apply1("mul", {inv_std, apply1("square", {inv_std})});
    const Value factor = scaled(apply1("mul", {context.cotangents[2], cubed}), -1 / count);
    dx = apply1("add", {dx, cast_to(apply1("mul", {centred, spread(factor)}), x.dtype())});
  }
  return {dx, grads[1], grads[2]};
}

void add_layer_norm(OpRegistry& registry) {
  OpDef norm{
      .name = "layer_norm",
      .doc =
          "y = gamma * (x - mean) * inv_std + beta, with the mean and 1 / sqrt(variance + eps) (biased variance) "
          "over the dims from begin_axis on (Ba, Kiros and Hinton, 2016). gamma and beta have those dims, mean and "
          "inv_std (f32 for half types) the ones before.",
      .inputs = {"x", "gamma", "beta"},
      .attributes = {{"begin_axis", std::nullopt, "the first dim that is normalised over"}, eps_attribute()},
      .outputs = {"y", "mean", "inv_std"},
      .infer = [](const Attributes& attributes, std::span<const Type> inputs) -> std::vector<Type> {
        const auto shapes = layer_shapes(attributes, inputs[0]);
        require_trailing(inputs[1], inputs[0], shapes.trailing, "gamma");
        require_trailing(inputs[2], inputs[0], shapes.trailing, "beta");
        require_dtype(inputs[2], inputs[1].dtype, "beta");
        const Type statistics{statistics_dtype(inputs[0].dtype), shapes.leading};
        return {inputs[0], statistics, statistics};
      },
      .gradient = layer_norm_gradient,
      .rule =
          [](const Attributes& attributes, std::span<const Type> inputs, std::span<const Type>) {
            const auto dims = layer_dims(attributes, inputs[0].shape.ndim());
            return IndexRule{.inputs = {dims.x, dims.trailing, dims.trailing},
                             .outputs = {dims.x, dims.leading, dims.leading}};
          },
      .flops = per_element(8),
  };
  OpDef grad{
      .name = "layer_norm_grad",
      .doc = "The cotangents of layer_norm's x, gamma and beta, from dy, its operands and its mean and inv_std.",
      .inputs = {"dy", "x", "gamma", "mean", "inv_std"},
      .attributes = {{"begin_axis", std::nullopt, "the first dim that is normalised over"}},
      .outputs = {"dx", "dgamma", "dbeta"},
      .infer = [](const Attributes& attributes, std::span<const Type> inputs) -> std::vector<Type> {
        const auto shapes = layer_shapes(attributes, inputs[1]);
        require_like(inputs[0], inputs[1], "dy");
        require_trailing(inputs[2], inputs[1], shapes.trailing, "gamma");
        const Type statistics{statistics_dtype(inputs[1].dtype), shapes.leading};
        require_statistics(inputs[3], statistics, "mean");
        require_statistics(inputs[4], statistics, "inv_std");
        return {inputs[1], inputs[2], inputs[2]};
      },
      .gradient = no_second_derivative,
      .rule =
          [](const Attributes& attributes, std::span<const Type> inputs, std::span<const Type>) {
            const auto dims = layer_dims(attributes, inputs[1].shape.ndim());
            return IndexRule{.inputs = {dims.x, dims.x, dims.trailing, dims.leading, dims.leading},
                             .outputs = {dims.x, dims.trailing, dims.trailing}};
          },
      .linear_in = {{0}},
      .flops = per_element(12),
  };
  struct LayerCase {
    DType dtype;
    Shape x;
    int64_t begin_axis;
  };
  for (const auto& [dtype, x, begin_axis] :
       {LayerCase{DType::kF32, {3, 5}, 1}, LayerCase{DType::kF64, {2, 3, 7}, 2}, LayerCase{DType::kF32, {2, 3, 4}, 1},
        LayerCase{DType::kF32, {0, 4}, 1}, LayerCase{DType::kF64, {6}, 0}, LayerCase{DType::kBF16, {3, 8}, 1},
        LayerCase{DType::kF16, {2, 2, 5}, 2}}) {
    const Attributes attributes{{"begin_axis", begin_axis}};
    const auto shapes = layer_shapes(attributes, {dtype, x});
    const ExampleInput image{{dtype, x}};
    const ExampleInput vector{{statistics_dtype(dtype), shapes.trailing}};
    const ExampleInput rows{{statistics_dtype(dtype), shapes.leading}};
    const ExampleInput positive{{statistics_dtype(dtype), shapes.leading}, Domain::kPositive};
    Attributes with_eps = attributes;
    with_eps.set("eps", 1e-3);
    norm.examples.push_back({{image, vector, vector}, with_eps, dtype == DType::kF32 || dtype == DType::kF64});
    grad.examples.push_back({{image, image, vector, rows, positive}, attributes, false});
  }
  registry.add(std::move(norm));
  registry.add(std::move(grad));
}

}  // namespace

void add_normalization(OpRegistry& registry) {
  add_statistics(registry);
  add_batch_norm(registry);
  add_moving_average(registry);
  add_layer_norm(registry);
}

}  // namespace tessera::ops
