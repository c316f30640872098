#include <numeric>

#include "tessera/base/error.h"
#include "tessera/ops/functions/elementwise_functions.h"
#include "tessera/ops/registry/families.h"
#include "tessera/ops/registry/gradient_helpers.h"
#include "tessera/ops/registry/infer_helpers.h"
#include "tessera/ops/registry/op_def.h"
#include "tessera/ops/registry/require.h"
#include "tessera/ops/rules/localize.h"

// Layer normalisation: over the dims from begin_axis on.
namespace tessera::ops {
namespace {

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
    const auto name = fmt::format("d{}", dim);
    dims.x.push_back(name);
    (dim < attributes.get_int("begin_axis") ? dims.leading : dims.trailing).push_back(name);
  }
  return dims;
}

// The statistics are computed with the result, so that they are whole where what they are taken over is split.
std::map<std::string, Completion> whole_trailing(const LayerDims& dims) {
  std::map<std::string, Completion> completions;
  for (const auto& factor : dims.trailing) completions[factor] = Completion::kWhole;
  return completions;
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
                {dx, apply1("mul", {ones, cast_to(spread(scale_by(context.cotangents[1], 1 / count)), x.dtype())})});
  }
  if (context.cotangents[2]) {
    const Value centred = apply1("sub", {cast_to(x, mean.dtype()), spread(mean)});
    const Value cubed = apply1("mul", {inv_std, apply1("square", {inv_std})});
    const Value factor = scale_by(apply1("mul", {context.cotangents[2], cubed}), -1 / count);
    dx = apply1("add", {dx, cast_to(apply1("mul", {centred, spread(factor)}), x.dtype())});
  }
  return {dx, grads[1], grads[2]};
}

// Trailing dims that are split: sums over them are completed between the ranks, that for the mean first, then that for
// the variance.
class TrailingDims {
 public:
  // `image` is the operand x.
  TrailingDims(const LocalizeContext& context, size_t image) : context_(context) {
    const Shape& x = context.global_inputs[image].shape;
    for (int dim = static_cast<int>(context.attributes.get_int("begin_axis")); dim < x.ndim(); ++dim) {
      axes_.push_back(dim);
      count_ *= static_cast<double>(x[dim]);
      const auto factor = fmt::format("d{}", dim);
      if (context.is_split(factor)) factors_.push_back(factor);
    }
  }

  bool are_split() const { return !factors_.empty(); }
  // Over all elements that are normalised together, which keep their dims.
  Value mean(Value value) const {
    const Value sum = apply1("reduce_sum", {value}, {{"axes", axes_}, {"keep_dims", true}});
    return reduce_over(context_, factors_, sum, "sum") / count_;
  }
  // One number per group of them, with dims to broadcast over it.
  Value spread(Value per_row) const { return apply1("expand_dims", {per_row}, {{"axes", axes_}}); }
  Value without_dims(Value per_row) const { return apply1("squeeze", {per_row}, {{"axes", axes_}}); }

 private:
  const LocalizeContext& context_;
  Ints axes_;
  std::vector<std::string> factors_;
  double count_ = 1;
};

std::vector<Value> localize_layer_norm(const LocalizeContext& context) {
  const TrailingDims trailing(context, 0);
  if (!trailing.are_split()) return apply(context.graph, context.op, context.inputs, context.attributes);
  const DType dtype = statistics_dtype(context.inputs[0].dtype());
  const Value x = cast_to(context.inputs[0], dtype);
  const Value gamma = cast_to(context.inputs[1], dtype);
  const Value beta = cast_to(context.inputs[2], dtype);
  const Value mean = trailing.mean(x);
  const Value centred = x - mean;
  const Value inv_std = rsqrt(trailing.mean(square(centred)) + context.attributes.get_double("eps"));
  const Value y = centred * inv_std * gamma + beta;
  return {cast_to(y, context.local_outputs[0].dtype), trailing.without_dims(mean), trailing.without_dims(inv_std)};
}

std::vector<Value> localize_layer_norm_grad(const LocalizeContext& context) {
  const TrailingDims trailing(context, 1);
  if (!trailing.are_split()) return apply(context.graph, context.op, context.inputs, context.attributes);
  const DType dtype = statistics_dtype(context.inputs[1].dtype());
  const Value dy = cast_to(context.inputs[0], dtype);
  const Value x = cast_to(context.inputs[1], dtype);
  const Value gamma = cast_to(context.inputs[2], dtype);
  const Value inv_std = trailing.spread(context.inputs[4]);
  const Value normalised = (x - trailing.spread(context.inputs[3])) * inv_std;
  const Value scaled = dy * gamma;
  const Value mean = trailing.mean(scaled);
  const Value slope = trailing.mean(scaled * normalised);
  const Value dx = inv_std * (scaled - mean - normalised * slope);
  // Partial sums where leading dims are split too.
  Ints leading(static_cast<size_t>(context.attributes.get_int("begin_axis")));
  std::iota(leading.begin(), leading.end(), 0);
  const auto over_rows = [&](Value value, size_t output) {
    return cast_to(apply1("reduce_sum", {value}, {{"axes", leading}}), context.local_outputs[output].dtype);
  };
  return {cast_to(dx, context.local_outputs[0].dtype), over_rows(dy * normalised, 1), over_rows(dy, 2)};
}

}  // namespace

void add_layer_norm(OpRegistry& registry) {
  OpDef norm{
      .name = "layer_norm",
      .doc =
          "y = gamma * (x - mean) * inv_std + beta, with the mean and 1 / sqrt(variance + eps) (biased variance) "
          "over the dims from begin_axis on (Ba, Kiros and Hinton, 2016). gamma and beta have those dims, mean and "
          "inv_std (f32 for half types) the ones before.",
      .inputs = {"x", "gamma", "beta"},
      .attributes = {{"begin_axis", std::nullopt, "the first dim that is normalised over"},
                     {"eps", 1e-5, "added to the variance"}},
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
                             .outputs = {dims.x, dims.leading, dims.leading},
                             .completions = whole_trailing(dims)};
          },
      .flops = per_element(8),
      .localize = localize_layer_norm,
      .precision = MixedPrecision::kWideParams,
  };
  OpDef grad{
      .name = "layer_norm_grad",
      .doc = "The cotangents of layer_norm's x, gamma and beta, from dy, its operands and its mean and inv_std.",
      .inputs = {"dy", "x", "gamma", "mean", "inv_std"},
      .attributes = {{"begin_axis", std::nullopt, "the first dim that is normalised over"}},
      .outputs = {"dx", "dgamma", "dbeta"},
      .infer = [](const Attributes& attributes, std::span<const Type> inputs) -> std::vector<Type> {
        const auto shapes = layer_shapes(attributes, inputs[1]);
        require_type(inputs[0], inputs[1], "dy");
        require_trailing(inputs[2], inputs[1], shapes.trailing, "gamma");
        const Type statistics{statistics_dtype(inputs[1].dtype), shapes.leading};
        require_type(inputs[3], statistics, "mean");
        require_type(inputs[4], statistics, "inv_std");
        return {inputs[1], inputs[2], inputs[2]};
      },
      .gradient = [](const GradientContext&) -> std::vector<Value> {
        throw InvalidArgument(
            "second derivatives of layer_norm are not supported; write it with reduce_mean and arithmetic where they "
            "are needed");
      },
      .rule =
          [](const Attributes& attributes, std::span<const Type> inputs, std::span<const Type>) {
            const auto dims = layer_dims(attributes, inputs[1].shape.ndim());
            return IndexRule{.inputs = {dims.x, dims.x, dims.trailing, dims.leading, dims.leading},
                             .outputs = {dims.x, dims.trailing, dims.trailing}};
          },
      .linear_in = {{0}},
      .flops = per_element(12),
      .localize = localize_layer_norm_grad,
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

}  // namespace tessera::ops
