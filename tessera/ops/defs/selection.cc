// Operators that choose elements along a dim: argmax and top_k.
#include <algorithm>
#include <limits>

#include "tessera/ops/functions/elementwise_functions.h"
#include "tessera/ops/registry/families.h"
#include "tessera/ops/registry/gradient_helpers.h"
#include "tessera/ops/registry/infer_helpers.h"
#include "tessera/ops/rules/localize.h"

namespace tessera::ops {
namespace {

using Gradients = std::vector<Value>;

// Each part's largest element is compared with that of all; where several parts have it, the lowest index wins, which
// completes the result.
std::vector<Value> localize_argmax(const LocalizeContext& c) {
  if (!c.is_split("s")) return apply(c.graph, c.op, c.inputs, c.attributes);
  const int axis = axis_of(c.attributes, c.global_inputs[0]);
  const Value x = c.inputs[0].dtype() == DType::kBool ? cast_to(c.inputs[0], DType::kU8) : c.inputs[0];
  const Value own = apply1("reduce_max", {x}, {{"axes", Ints{axis}}});
  const Value largest = reduce_over(c, {"s"}, own, "max");
  constexpr double kNoIndex = std::numeric_limits<int32_t>::max();
  const mesh::Range& held = c.input_slices[0][static_cast<size_t>(axis)];
  if (held.size == 0) {
    const Shape& shape = c.local_outputs[0].shape;
    return apply(c.graph, "fill", {}, {{"shape", ints_of(shape)}, {"value", kNoIndex}, {"dtype", DType::kI32}});
  }
  // A NaN is the largest, and equals nothing.
  Value has_largest = equal(own, largest);
  if (is_floating(own.dtype())) has_largest = logical_or(has_largest, not_equal(own, own));
  const Value index = apply1("argmax", {x}, {{"axis", int64_t{axis}}}) + static_cast<double>(held.offset);
  return {select(has_largest, index, kNoIndex)};
}

void add_argmax(OpRegistry& registry) {
  OpDef def{
      .name = "argmax",
      .doc =
          "The index (i32) of the largest element along `axis`, the first where several tie; a NaN is the "
          "largest. The axis disappears and must not be empty.",
      .inputs = {"x"},
      .attributes = {{"axis", std::nullopt, "in [0, ndim)"}},
      .infer = [](const Attributes& attributes, std::span<const Type> types) -> std::vector<Type> {
        require_kind(types[0], Kind::kCompute, "the operand");
        const int axis = axis_of(attributes, types[0]);
        if (types[0].shape[axis] == 0) throw InvalidArgument("dim {} is empty and has no largest element", axis);
        Shape shape;
        for (int dim = 0; dim < types[0].shape.ndim(); ++dim) {
          if (dim != axis) shape.push_back(types[0].shape[dim]);
        }
        return {{DType::kI32, shape}};
      },
      .rule =
          [](const Attributes& attributes, std::span<const Type> inputs, std::span<const Type>) {
            const int axis = axis_of(attributes, inputs[0]);
            IndexRule rule{.inputs = {numbered_dims(inputs[0].shape.ndim())}};
            rule.outputs = {rule.inputs[0]};
            rule.outputs[0].erase(rule.outputs[0].begin() + axis);
            rule.inputs[0][static_cast<size_t>(axis)] = "s";
            rule.completions["s"] = Completion::kMin;
            return rule;
          },
      .flops = [](const Attributes&, std::span<const Type> inputs, std::span<const Type>) { return count(inputs[0]); },
      .localize = localize_argmax};
  for (const DType dtype : {DType::kF32, DType::kF64, DType::kF16, DType::kI32, DType::kBool}) {
    const Domain domain = is_floating(dtype) ? Domain::kAny : dtype == DType::kBool ? Domain::kBool : Domain::kIndex;
    def.examples.push_back(
        {.inputs = {{{dtype, {3, 4}}, domain, 5}}, .attributes = {{"axis", int64_t{1}}}, .check_gradient = false});
  }
  def.examples.push_back(
      {.inputs = {{{DType::kF32, {7, 2, 3}}}}, .attributes = {{"axis", int64_t{0}}}, .check_gradient = false});
  def.examples.push_back(
      {.inputs = {{{DType::kF32, {2, 0}}}}, .attributes = {{"axis", int64_t{0}}}, .check_gradient = false});
  registry.add(std::move(def));
}

// Each part's k largest are candidates; all ranks choose among them.
std::vector<Value> localize_top_k(const LocalizeContext& c) {
  if (!c.is_split("s")) return apply(c.graph, c.op, c.inputs, c.attributes);
  const Value x = c.inputs[0];
  const int last = x.ndim() - 1;
  const int64_t k = c.attributes.get_int("k");
  Ints candidates = part_sizes(c, "s", c.global_inputs[0].shape[last]);
  for (int64_t& size : candidates) size = std::min(size, k);
  const auto own = apply("top_k", {x}, {{"k", std::min(k, x.shape()[last])}});
  const auto offset = static_cast<double>(c.input_slices[0].back().offset);
  const Value values = gather_over(c, "s", own[0], last, candidates);
  const Value indices = gather_over(c, "s", own[1] + offset, last, candidates);
  // The parts come in their order, so that of equal candidates the first has the lowest index.
  const auto best = apply("top_k", {values}, {{"k", k}});
  const Value chosen = apply1("one_hot", {best[1], scalar_like(indices, 1), scalar_like(indices, 0)},
                              {{"depth", indices.shape()[last]}, {"axis", int64_t{-1}}});
  const Value rows = apply1("expand_dims", {indices}, {{"axes", Ints{last}}});
  return {best[0], apply1("reduce_sum", {chosen * rows}, {{"axes", Ints{last + 1}}})};
}

void add_top_k(OpRegistry& registry) {
  OpDef def{.name = "top_k",
            .doc =
                "The k largest elements along the last dim, in descending order, and their indices (i32); of equal "
                "elements the one with the lower index comes first.",
            .inputs = {"x"},
            .attributes = {{"k", std::nullopt, "in [0, size of the last dim]"}},
            .outputs = {"values", "indices"},
            .infer = [](const Attributes& attributes, std::span<const Type> types) -> std::vector<Type> {
              require_kind(types[0], Kind::kNumeric, "the operand");
              Shape shape = types[0].shape;
              if (shape.ndim() == 0)
                throw InvalidArgument("the operand must have a dim to choose from, it is a scalar");
              const int64_t k = attributes.get_int("k");
              if (k < 0 || k > shape.back()) {
                throw InvalidArgument("k={} must be in [0, {}], the size of the last dim", k, shape.back());
              }
              shape[shape.ndim() - 1] = k;
              return {{types[0].dtype, shape}, {DType::kI32, shape}};
            },
            .gradient = [](const GradientContext& c) -> Gradients {
              if (!is_floating(c.inputs[0].dtype())) return {Value{}};
              return {apply1("top_k_grad", {c.cotangent(0), c.outputs[1]}, {{"size", c.inputs[0].shape().back()}})};
            },
            .rule =
                [](const Attributes&, std::span<const Type> inputs, std::span<const Type> outputs) {
                  IndexRule rule = matched_rule(inputs, outputs, {inputs[0].shape.ndim() - 1});
                  rule.inputs[0].back() = "s";
                  rule.completions["s"] = Completion::kWhole;
                  return rule;
                },
            .flops = [](const Attributes&, std::span<const Type> inputs,
                        std::span<const Type>) { return 8 * count(inputs[0]); },
            .localize = localize_top_k};
  for (const DType dtype : {DType::kF32, DType::kF64, DType::kBF16, DType::kI32}) {
    def.examples.push_back({.inputs = {{{dtype, {3, 5}}, is_floating(dtype) ? Domain::kAny : Domain::kIndex, 9}},
                            .attributes = {{"k", int64_t{2}}}});
  }
  def.examples.push_back({.inputs = {{{DType::kF32, {4}}}}, .attributes = {{"k", int64_t{4}}}});
  def.examples.push_back({.inputs = {{{DType::kF32, {2, 4}}}}, .attributes = {{"k", int64_t{0}}}});
  def.examples.push_back({.inputs = {{{DType::kF32, {0, 3}}}}, .attributes = {{"k", int64_t{1}}}});
  registry.add(std::move(def));

  OpDef grad{
      .name = "top_k_grad",
      .doc =
          "dvalues added at their indices in a last dim of `size` elements, 0 elsewhere; an index outside of it is "
          "left out.",
      .inputs = {"dvalues", "indices"},
      .attributes = {of_run({"size", std::nullopt, "of the last dim of the result"})},
      .infer = [](const Attributes& attributes, std::span<const Type> types) -> std::vector<Type> {
        require_kind(types[0], Kind::kFloating, "dvalues");
        require_index(types[1], "indices");
        Shape shape = types[0].shape;
        if (shape.ndim() == 0 || !(types[1].shape == shape)) {
          throw InvalidArgument("dvalues and indices must have one shape of at least one dim");
        }
        shape[shape.ndim() - 1] = attributes.get_int("size");
        return {{types[0].dtype, shape}};
      },
      .gradient = [](const GradientContext& c) -> Gradients {
        // Reads back at the indices: a row of a one_hot per index, times the cotangent.
        const Value g = c.cotangent(0);
        const Value chosen = apply1("one_hot", {c.inputs[1], scalar_like(g, 1), scalar_like(g, 0)},
                                    {{"depth", c.attributes.get_int("size")}, {"axis", int64_t{-1}}});
        const Value rows = apply1("expand_dims", {g}, {{"axes", Ints{g.ndim() - 1}}});
        return {apply1("reduce_sum", {chosen * rows}, {{"axes", Ints{g.ndim()}}}), Value{}};
      },
      // The places are found in each part; what is split of the values adds to each.
      .rule =
          [](const Attributes&, std::span<const Type> inputs, std::span<const Type> outputs) {
            IndexRule rule = matched_rule(inputs, outputs, {});
            rule.inputs[0].back() = rule.inputs[1].back() = "k";
            rule.outputs[0].back() = "s";
            return rule;
          },
      .linear_in = {{0}},
      .localize = [](const LocalizeContext& c) -> std::vector<Value> {
        const mesh::Range& held = c.output_slices[0].back();
        return {apply1("top_k_grad", {c.inputs[0], shift_indices(c.inputs[1], held.offset)}, {{"size", held.size}})};
      },
      .disjoint_parts = true};
  for (const DType dtype : {DType::kF32, DType::kF64}) {
    grad.examples.push_back({.inputs = {{{dtype, {3, 1}}}, {{DType::kI32, {3, 1}}, Domain::kIndex, 4}},
                             .attributes = {{"size", int64_t{4}}}});
  }
  grad.examples.push_back({.inputs = {{{DType::kF32, {2, 3}}}, {{DType::kI32, {2, 3}}, Domain::kIndex, 5}},
                           .attributes = {{"size", int64_t{5}}}});
  registry.add(std::move(grad));
}

}  // namespace

void add_selection(OpRegistry& registry) {
  add_argmax(registry);
  add_top_k(registry);
}

}  // namespace tessera::ops
