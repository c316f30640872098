#include <limits>

#include "tessera/base/error.h"
#include "tessera/ops/registry/families.h"
#include "tessera/ops/registry/gradient_helpers.h"
#include "tessera/ops/registry/infer_helpers.h"
#include "tessera/ops/registry/op_def.h"
#include "tessera/ops/registry/require.h"
#include "tessera/ops/rules/localize.h"

namespace tessera::ops {
namespace {

std::vector<Type> infer_along_axis(const Attributes& attributes, std::span<const Type> inputs) {
  require_floating(inputs[0], "the operand");
  normalize_axis(attributes.get_int("axis"), inputs[0].shape.ndim(), "attribute axis");
  for (const Type& other : inputs.subspan(1)) {
    require_dtype(other, inputs[0].dtype, "y");
    require_shape(other, inputs[0].shape, "y");
  }
  return {inputs[0]};
}

// The axis itself is the factor "s": along it the ranks combine their maxima and sums.
IndexRule rule_along_axis(const Attributes& attributes, std::span<const Type> inputs, std::span<const Type>) {
  const int ndim = inputs[0].shape.ndim();
  const int axis = normalize_axis(attributes.get_int("axis"), ndim, "axis");
  IndexRule::Dims dims;
  for (int dim = 0; dim < ndim; ++dim) dims.push_back(dim == axis ? "s" : "d" + std::to_string(dim));
  return {.inputs = std::vector<IndexRule::Dims>(inputs.size(), dims), .outputs = {dims}};
}

Value sum_along(const GradientContext& context, Value value) {
  const int axis = normalize_axis(context.attributes.get_int("axis"), value.ndim(), "axis");
  return apply1("reduce_sum", {value}, {{"axes", Ints{axis}}, {"keep_dims", true}});
}
Value mul(Value a, Value b) { return apply1("mul", {a, b}); }
Value sub(Value a, Value b) { return apply1("sub", {a, b}); }

// x minus its maximum along a split axis, and the sum of its exponentials; half types in f32.
struct Exponents {
  Value shifted;
  Value exponentials;
  Value sum;
};
Exponents exponents(const LocalizeContext& context, Value x, int axis, const std::string& factor) {
  const Attributes along{{"axes", Ints{axis}}, {"keep_dims", true}};
  const Value wide = cast_to(x, statistics_dtype(x.dtype()));
  const Value maximum = reduce_over(context, {factor}, apply1("reduce_max", {wide}, along), "max");
  const Value shifted = sub(wide, maximum);
  const Value exponentials = apply1("exp", {shifted});
  const Value sum = reduce_over(context, {factor}, apply1("reduce_sum", {exponentials}, along), "sum");
  return {shifted, exponentials, sum};
}

// Writes an operator along an axis for a rank that has a part of the axis: `split` says how, on wide operands.
auto localize_along_axis(Value (*split)(const LocalizeContext&, int axis)) {
  return [split](const LocalizeContext& context) -> std::vector<Value> {
    if (!context.is_split("s")) return apply(context.graph, context.op, context.inputs, context.attributes);
    const int axis = normalize_axis(context.attributes.get_int("axis"), context.inputs[0].ndim(), "axis");
    return {cast_to(split(context, axis), context.local_outputs[0].dtype)};
  };
}
Value wide_input(const LocalizeContext& context, size_t i) {
  return cast_to(context.inputs[i], statistics_dtype(context.inputs[i].dtype()));
}
Value whole_sum(const LocalizeContext& context, int axis, Value value) {
  return reduce_over(context, {"s"}, apply1("reduce_sum", {value}, {{"axes", Ints{axis}}, {"keep_dims", true}}), "sum");
}
Value split_softmax(const LocalizeContext& context, int axis) {
  const auto e = exponents(context, context.inputs[0], axis, "s");
  return apply1("div", {e.exponentials, e.sum});
}
Value split_log_softmax(const LocalizeContext& context, int axis) {
  const auto e = exponents(context, context.inputs[0], axis, "s");
  return sub(e.shifted, apply1("log", {e.sum}));
}
Value split_softmax_grad(const LocalizeContext& context, int axis) {
  const Value dy = wide_input(context, 0);
  const Value y = wide_input(context, 1);
  return mul(y, sub(dy, whole_sum(context, axis, mul(dy, y))));
}
Value split_log_softmax_grad(const LocalizeContext& context, int axis) {
  const Value dy = wide_input(context, 0);
  return sub(dy, mul(apply1("exp", {wide_input(context, 1)}), whole_sum(context, axis, dy)));
}

std::vector<AttributeDef> axis_attribute() {
  return {{"axis", int64_t{-1}, "the dim whose elements are normalised together; -1 counts from the end"}};
}

// The four operators along an axis have equal operands.
std::vector<Example> axis_examples(size_t num_inputs) {
  std::vector<Example> examples;
  const auto add = [&](DType dtype, const Shape& shape, int64_t axis) {
    examples.push_back({std::vector<ExampleInput>(num_inputs, ExampleInput{{dtype, shape}}),
                        {{"axis", axis}},
                        dtype == DType::kF32 || dtype == DType::kF64});
  };
  add(DType::kF32, {3, 5}, -1);
  add(DType::kF64, {2, 3, 4}, 1);
  add(DType::kF32, {4, 3}, 0);
  add(DType::kF32, {7}, 0);
  add(DType::kF32, {0, 5}, 1);
  add(DType::kF32, {3, 0}, 1);
  add(DType::kF32, {3, 1}, 1);
  add(DType::kBF16, {3, 6}, -1);
  add(DType::kF16, {2, 3, 2}, 1);
  return examples;
}

void add_softmax_along_axis(OpRegistry& registry) {
  registry.add({
      .name = "softmax",
      .doc = "exp(x) / sum(exp(x)) along axis, computed from x minus its maximum.",
      .inputs = {"x"},
      .attributes = axis_attribute(),
      .infer = infer_along_axis,
      .gradient = [](const GradientContext& context) -> std::vector<Value> {
        return {apply1("softmax_grad", {context.cotangent(0), context.outputs[0]}, context.attributes)};
      },
      .rule = rule_along_axis,
      .flops = per_element(5),
      .localize = localize_along_axis(split_softmax),
      .precision = MixedPrecision::kWide,
      .examples = axis_examples(1),
  });
  registry.add({
      .name = "softmax_grad",
      .doc = "The cotangent of softmax's x from dy and its result y: y * (dy - sum(dy * y)) along axis.",
      .inputs = {"dy", "y"},
      .attributes = axis_attribute(),
      .infer = infer_along_axis,
      .gradient = [](const GradientContext& context) -> std::vector<Value> {
        const Value dx = context.cotangent(0);
        const Value dy = context.inputs[0];
        const Value y = context.inputs[1];
        const Value dx_y = sum_along(context, mul(dx, y));
        const Value by_y = sub(mul(dx, sub(dy, sum_along(context, mul(dy, y)))), mul(dy, dx_y));
        return {apply1("softmax_grad", {dx, y}, context.attributes), by_y};
      },
      .rule = rule_along_axis,
      .linear_in = {{0}},
      .flops = per_element(4),
      .localize = localize_along_axis(split_softmax_grad),
      .examples = axis_examples(2),
  });
  registry.add({
      .name = "log_softmax",
      .doc = "x - log(sum(exp(x))) along axis, computed from x minus its maximum.",
      .inputs = {"x"},
      .attributes = axis_attribute(),
      .infer = infer_along_axis,
      .gradient = [](const GradientContext& context) -> std::vector<Value> {
        return {apply1("log_softmax_grad", {context.cotangent(0), context.outputs[0]}, context.attributes)};
      },
      .rule = rule_along_axis,
      .flops = per_element(5),
      .localize = localize_along_axis(split_log_softmax),
      .precision = MixedPrecision::kWide,
      .examples = axis_examples(1),
  });
  registry.add({
      .name = "log_softmax_grad",
      .doc = "The cotangent of log_softmax's x from dy and its result y: dy - exp(y) * sum(dy) along axis.",
      .inputs = {"dy", "y"},
      .attributes = axis_attribute(),
      .infer = infer_along_axis,
      .gradient = [](const GradientContext& context) -> std::vector<Value> {
        const Value dx = context.cotangent(0);
        const Value probabilities = apply1("exp", {context.inputs[1]});
        const Value weighted = mul(dx, probabilities);
        return {sub(dx, sum_along(context, weighted)),
                apply1("neg", {mul(weighted, sum_along(context, context.inputs[0]))})};
      },
      .rule = rule_along_axis,
      .linear_in = {{0}},
      .flops = per_element(4),
      .localize = localize_along_axis(split_log_softmax_grad),
      .examples = axis_examples(2),
  });
}

void require_labels(const Type& scores, const Type& labels, std::string_view what) {
  require_ndim(scores, 2, what);
  require_floating(scores, what);
  if (labels.dtype != DType::kI32 && labels.dtype != DType::kI64) {
    throw InvalidArgument("labels must be i32 or i64, are {}", labels.dtype);
  }
  require_shape(labels, {scores.shape[0]}, "labels");
}

std::vector<Value> cross_entropy_gradient(const GradientContext& context) {
  const Value probabilities = context.outputs[1];
  Value dlogits;
  if (context.cotangents[0]) {
    dlogits = apply1("softmax_cross_entropy_grad", {probabilities, context.inputs[1], context.cotangents[0]});
  }
  if (context.cotangents[1]) {
    const Value by_probabilities =
        apply1("softmax_grad", {context.cotangents[1], probabilities}, {{"axis", int64_t{1}}});
    dlogits = dlogits ? apply1("add", {dlogits, by_probabilities}) : by_probabilities;
  }
  return {dlogits, Value()};
}

std::vector<Value> cross_entropy_second_gradient(const GradientContext& context) {
  const Value dlogits = context.cotangent(0);
  const Value probabilities = context.inputs[0];
  const Value labels = context.inputs[1];
  const Value dlosses = context.inputs[2];
  // Rows whose label is no class stay zero, as the operator makes them.
  const Value scaled_rows = [&] {
    const auto number = [&](double value) {
      return apply(dlogits.graph(), "fill", {}, {{"shape", Ints{}}, {"value", value}, {"dtype", dlosses.dtype()}})[0];
    };
    const Value one_hot = apply1("one_hot", {labels, number(1), number(0)}, {{"depth", probabilities.shape()[1]}});
    const Value is_class = apply1("reduce_sum", {one_hot}, {{"axes", Ints{1}}});
    return apply1("expand_dims", {mul(dlosses, is_class)}, {{"axes", Ints{1}}});
  }();
  const Value unit = apply1("softmax_cross_entropy_grad", {probabilities, labels, apply1("ones_like", {dlosses})});
  return {mul(dlogits, scaled_rows), Value(), apply1("reduce_sum", {mul(dlogits, unit)}, {{"axes", Ints{1}}})};
}

// Classes that are split over ranks: each rank looks for the label among its own.

// A row [n,c] of zeros with a one where the label is, for the classes in `slice` of `num_classes`.
Value one_hot_of(Value labels, const mesh::Range& slice, int64_t num_classes, DType dtype) {
  ir::Graph& graph = labels.graph();
  const Value own = sub(labels, scalar(graph, labels.dtype(), static_cast<double>(slice.offset)));
  return apply1("one_hot", {own, scalar(graph, dtype, 1), scalar(graph, dtype, 0)},
                {{"depth", slice.size}, {"valid", Ints{-slice.offset, num_classes - slice.offset}}});
}

// bool [n]: whether the label is one of [0, num_classes).
Value is_class_of(Value labels, int64_t num_classes) {
  const Value below = apply1("less", {labels, scalar_like(labels, static_cast<double>(num_classes))});
  return apply1("logical_and", {apply1("greater_equal", {labels, scalar_like(labels, 0)}), below});
}

std::vector<Value> localize_cross_entropy(const LocalizeContext& context) {
  if (!context.is_split("c")) return apply(context.graph, context.op, context.inputs, context.attributes);
  const auto e = exponents(context, context.inputs[0], 1, "c");
  const Value labels = context.inputs[1];
  const DType dtype = e.sum.dtype();
  const int64_t num_classes = context.global_inputs[0].shape[1];
  const Value chosen = one_hot_of(labels, context.input_slices[0][1], num_classes, dtype);
  const Value at_label = apply1("reduce_sum", {mul(chosen, e.shifted)}, {{"axes", Ints{1}}});
  // The losses are the sum over the ranks of these: minus the label's score where it is, and once the rest.
  Value losses = apply1("neg", {at_label});
  if (part_index(context, "c") == 0) {
    const Value log_sum = apply1("reshape", {apply1("log", {e.sum})}, {{"shape", at_label.shape().to_vector()}});
    // A label that is no class has no loss.
    const Value nan = scalar(context.graph, dtype, std::numeric_limits<double>::quiet_NaN());
    const Value is_class = is_class_of(labels, num_classes);
    losses = apply1("add", {losses, apply1("select", {is_class, log_sum, nan})});
  }
  return {cast_to(losses, context.local_outputs[0].dtype),
          cast_to(apply1("div", {e.exponentials, e.sum}), context.local_outputs[1].dtype)};
}

std::vector<Value> localize_cross_entropy_grad(const LocalizeContext& context) {
  if (!context.is_split("c")) return apply(context.graph, context.op, context.inputs, context.attributes);
  const Value probabilities = wide_input(context, 0);
  const Value labels = context.inputs[1];
  const DType dtype = probabilities.dtype();
  const int64_t num_classes = context.global_inputs[0].shape[1];
  const Value row = sub(probabilities, one_hot_of(labels, context.input_slices[0][1], num_classes, dtype));
  const Value is_class = is_class_of(labels, num_classes);
  const Value dlosses = apply1("select", {is_class, wide_input(context, 2), scalar(context.graph, dtype, 0)});
  const Value scaled = mul(row, apply1("expand_dims", {dlosses}, {{"axes", Ints{1}}}));
  return {cast_to(scaled, context.local_outputs[0].dtype)};
}

void add_cross_entropy(OpRegistry& registry) {
  OpDef loss{
      .name = "softmax_cross_entropy",
      .doc =
          "Per row of logits [n,c] the loss -log(softmax(logits)[label]): losses [n], and probabilities [n,c] = "
          "softmax(logits). labels are i32 or i64 [n]; a step stops that is given one outside [0, c), of which the "
          "kernel makes a loss of NaN and a gradient of zero.",
      .inputs = {"logits", "labels"},
      .outputs = {"losses", "probabilities"},
      .infer = [](const Attributes&, std::span<const Type> inputs) -> std::vector<Type> {
        require_labels(inputs[0], inputs[1], "logits");
        return {{inputs[0].dtype, {inputs[0].shape[0]}}, inputs[0]};
      },
      .gradient = cross_entropy_gradient,
      .rule = [](const Attributes&, std::span<const Type>,
                 std::span<const Type>) { return parse_rule("n c, n -> n, n c"); },
      .flops = per_element(6),
      .localize = localize_cross_entropy,
      .indices = [](const Attributes&, std::span<const Type> inputs) -> std::optional<IndexRange> {
        return IndexRange{1, 0, inputs[0].shape[1]};
      },
      .precision = MixedPrecision::kWide,
  };
  OpDef grad{
      .name = "softmax_cross_entropy_grad",
      .doc =
          "The cotangent of softmax_cross_entropy's logits: dlosses [n] times (probabilities [n,c] - one_hot(label)); "
          "a row of zeros where the label is outside [0, c).",
      .inputs = {"probabilities", "labels", "dlosses"},
      .infer = [](const Attributes&, std::span<const Type> inputs) -> std::vector<Type> {
        require_labels(inputs[0], inputs[1], "probabilities");
        require_dtype(inputs[2], inputs[0].dtype, "dlosses");
        require_shape(inputs[2], inputs[1].shape, "dlosses");
        return {inputs[0]};
      },
      .gradient = cross_entropy_second_gradient,
      .rule = [](const Attributes&, std::span<const Type>,
                 std::span<const Type>) { return parse_rule("n c, n, n -> n c"); },
      .linear_in = {{2}},
      .flops = per_element(2),
      .localize = localize_cross_entropy_grad,
  };
  struct Case {
    DType dtype;
    DType labels;
    Shape shape;
  };
  for (const auto& [dtype, label_dtype, shape] :
       {Case{DType::kF32, DType::kI32, {4, 5}}, Case{DType::kF64, DType::kI64, {3, 10}},
        Case{DType::kF32, DType::kI32, {0, 5}}, Case{DType::kF32, DType::kI32, {3, 1}},
        Case{DType::kBF16, DType::kI32, {4, 6}}, Case{DType::kF16, DType::kI64, {2, 7}}}) {
    const ExampleInput scores{{dtype, shape}};
    const ExampleInput labels{{label_dtype, {shape[0]}}, Domain::kIndex, shape[1]};
    const bool check_gradient = dtype == DType::kF32 || dtype == DType::kF64;
    loss.examples.push_back({{scores, labels}, {}, check_gradient});
    grad.examples.push_back({{scores, labels, {{dtype, {shape[0]}}}}, {}, check_gradient});
  }
  registry.add(std::move(loss));
  registry.add(std::move(grad));
}

}  // namespace

void add_softmax(OpRegistry& registry) {
  add_softmax_along_axis(registry);
  add_cross_entropy(registry);
}

}  // namespace tessera::ops
