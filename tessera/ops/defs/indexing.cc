#include "tessera/ops/functions/elementwise_functions.h"
#include "tessera/ops/registry/families.h"
#include "tessera/ops/registry/gradient_helpers.h"
#include "tessera/ops/registry/index_range.h"
#include "tessera/ops/registry/infer_helpers.h"
#include "tessera/ops/rules/localize.h"

namespace tessera::ops {
namespace {

using Gradients = std::vector<Value>;

// The rows of operand 0 along the axis.
std::optional<IndexRange> rows_of_table(const Attributes& attributes, std::span<const Type> inputs) {
  return IndexRange{1, 0, inputs[0].shape[axis_of(attributes, inputs[0])]};
}

// The same, and the index that is skipped.
std::optional<IndexRange> gathered_rows(const Attributes& attributes, std::span<const Type> inputs) {
  auto range = rows_of_table(attributes, inputs);
  if (attributes.has("skipped")) range->begin = attributes.get_int("skipped");
  return range;
}

AttributeDef skipped_attribute() {
  AttributeDef def{"skipped", std::nullopt, "-1, where that names no row; absent: every index names one"};
  def.may_be_absent = true;
  return of_run(std::move(def));
}

void require_skipped(const Attributes& attributes) {
  if (!attributes.has("skipped") || attributes.get_int("skipped") < 0) return;
  throw InvalidArgument("skipped must be negative, so that it names no row, got {}", attributes.get_int("skipped"));
}

// For the part of a table that begins at row `offset` of `size`.
void shift_skipped(Attributes& attributes, int64_t offset, int64_t size) {
  if (!attributes.has("skipped")) return;
  const int64_t skipped = attributes.get_int("skipped") - offset;
  attributes.set("skipped", skipped);
  if (attributes.has("valid")) attributes.set("valid", Ints{skipped, size - offset});
}

bool is_whole(const std::vector<mesh::Range>& slices, const Shape& global) {
  for (int d = 0; d < global.ndim(); ++d) {
    if (slices[static_cast<size_t>(d)].size != global[d]) return false;
  }
  return true;
}

void add_one_hot(OpRegistry& registry) {
  OpDef def{
      .name = "one_hot",
      .doc =
          "A new dim of size `depth` at `axis` that is `on` at the index and `off` elsewhere; an index outside "
          "[0, depth), a negative one too, gives only `off`.",
      .inputs = {"indices", "on", "off"},
      .attributes = {{"depth", std::nullopt, "size of the new dim"},
                     {"axis", int64_t{-1}, "its place in the result; negative from the end"},
                     valid_attribute("every index is good")},
      .infer = [](const Attributes& attributes, std::span<const Type> types) -> std::vector<Type> {
        require_index(types[0], "indices");
        require_valid(attributes);
        require_scalar(types[1], "on");
        require_scalar(types[2], "off");
        require_equal_dtypes(types.subspan(1));
        require_kind(types[1], Kind::kCompute, "on and off");
        const int64_t depth = attributes.get_int("depth");
        if (depth < 0) throw InvalidArgument("depth must not be negative, got {}", depth);
        const int ndim = types[0].shape.ndim() + 1;
        const int axis = normalize_axis(attributes.get_int("axis"), ndim, "axis");
        Shape shape;
        for (int d = 0, from = 0; d < ndim; ++d) shape.push_back(d == axis ? depth : types[0].shape[from++]);
        return {{types[1].dtype, shape}};
      },
      .gradient = [](const GradientContext& c) -> Gradients {
        const Value dy = c.cotangent(0);
        if (!is_floating(dy.dtype())) return {Value{}, Value{}, Value{}};
        const Value chosen = apply1("one_hot", {c.inputs[0], scalar_like(dy, 1), scalar_like(dy, 0)}, c.attributes);
        const Value on = sum_to(dy * chosen, {});
        return {Value{}, on, sum_to(dy, {}) - on};
      },
      .rule =
          [](const Attributes& attributes, std::span<const Type> inputs, std::span<const Type> outputs) {
            const int axis = normalize_axis(attributes.get_int("axis"), outputs[0].shape.ndim(), "axis");
            IndexRule rule{.inputs = {numbered_dims(inputs[0].shape.ndim()), {}, {}}};
            rule.outputs = {rule.inputs[0]};
            rule.outputs[0].insert(rule.outputs[0].begin() + axis, "v");
            return rule;
          },
      .localize = [](const LocalizeContext& c) -> std::vector<Value> {
        const int axis = normalize_axis(c.attributes.get_int("axis"), c.global_outputs[0].shape.ndim(), "axis");
        const mesh::Range& held = c.output_slices[0][static_cast<size_t>(axis)];
        Attributes attributes = c.attributes;
        attributes.set("depth", held.size);
        if (attributes.has("valid")) {
          const Ints valid = attributes.get_ints("valid");
          attributes.set("valid", Ints{valid[0] - held.offset, valid[1] - held.offset});
        }
        return {apply1("one_hot", {shift_indices(c.inputs[0], held.offset), c.inputs[1], c.inputs[2]}, attributes)};
      },
      .indices = [](const Attributes& attributes, std::span<const Type>) -> std::optional<IndexRange> {
        if (!attributes.has("valid")) return std::nullopt;
        return IndexRange{};
      }};
  const auto add = [&](DType index, const Shape& shape, DType dtype, int64_t depth, int64_t axis) {
    const Domain scalar_domain = dtype == DType::kBool ? Domain::kBool
                                 : is_floating(dtype)  ? Domain::kAny
                                                       : Domain::kIndex;
    def.examples.push_back({.inputs = {{{index, shape}, Domain::kIndex, 4},
                                       {{dtype, {}}, scalar_domain, 9},
                                       {{dtype, {}}, scalar_domain, 9}},
                            .attributes = {{"depth", depth}, {"axis", axis}}});
  };
  add(DType::kI32, {7}, DType::kF32, 4, -1);
  add(DType::kI64, {2, 3}, DType::kF64, 3, 1);
  add(DType::kI32, {3}, DType::kBF16, 5, 0);
  add(DType::kU8, {2}, DType::kI32, 4, -1);
  add(DType::kI32, {}, DType::kBool, 4, 0);
  add(DType::kI32, {0}, DType::kF32, 4, -1);
  add(DType::kI32, {2}, DType::kF32, 0, -1);
  registry.add(std::move(def));
}

void add_gather(OpRegistry& registry) {
  OpDef def{.name = "gather",
            .doc =
                "The rows of `table` along `axis` at `indices`: shape table[:axis] + indices + table[axis+1:]. The "
                "kernel makes zeros of an index outside [0, size), a negative one too; a step that is given one stops. "
                "What belongs to an index that is `skipped` is undefined.",
            .inputs = {"table", "indices"},
            .attributes = {{"axis", int64_t{0}, "in [0, ndim)"}, valid_attribute("[0, size)"), skipped_attribute()},
            .infer = [](const Attributes& attributes, std::span<const Type> types) -> std::vector<Type> {
              require_kind(types[0], Kind::kCompute, "the table");
              require_index(types[1], "indices");
              require_valid(attributes);
              require_skipped(attributes);
              const int axis = axis_of(attributes, types[0]);
              Shape shape;
              for (int d = 0; d < axis; ++d) shape.push_back(types[0].shape[d]);
              for (const auto size : types[1].shape) shape.push_back(size);
              for (int d = axis + 1; d < types[0].shape.ndim(); ++d) shape.push_back(types[0].shape[d]);
              return {{types[0].dtype, shape}};
            },
            .gradient = [](const GradientContext& c) -> Gradients {
              if (!is_floating(c.inputs[0].dtype())) return {Value{}, Value{}};
              // What belongs to such an index is undefined, and so is what would flow back to it.
              if (c.attributes.has("skipped")) throw InvalidArgument("gather: no gradient where an index is skipped");
              const Value zeros = apply1("zeros_like", {c.inputs[0]});
              return {apply1("scatter_add", {zeros, c.inputs[1], c.cotangent(0)}, c.attributes), Value{}};
            },
            // A rank that holds a piece of the axis gives zeros for the others' indices: the results add up, booleans
            // by "or".
            .rule =
                [](const Attributes& attributes, std::span<const Type> inputs, std::span<const Type>) {
                  const auto axis = static_cast<size_t>(axis_of(attributes, inputs[0]));
                  const auto table = numbered_dims(inputs[0].shape.ndim());
                  IndexRule rule{.inputs = {table, numbered_dims(inputs[1].shape.ndim(), {}, "i")}, .outputs = {{}}};
                  auto& out = rule.outputs[0];
                  out.insert(out.end(), table.begin(), table.begin() + static_cast<int64_t>(axis));
                  out.insert(out.end(), rule.inputs[1].begin(), rule.inputs[1].end());
                  out.insert(out.end(), table.begin() + static_cast<int64_t>(axis) + 1, table.end());
                  if (inputs[0].dtype == DType::kBool) rule.completions[table[axis]] = Completion::kMax;
                  return rule;
                },
            .linear_in = {{0}},
            .localize = [](const LocalizeContext& c) -> std::vector<Value> {
              const int axis = axis_of(c.attributes, c.global_inputs[0]);
              const mesh::Range& rows = c.input_slices[0][static_cast<size_t>(axis)];
              Attributes attributes = c.attributes;
              set_valid_rows(attributes, rows.offset, rows.size, c.global_inputs[0].shape[axis]);
              shift_skipped(attributes, rows.offset, c.global_inputs[0].shape[axis]);
              return {apply1("gather", {c.inputs[0], shift_indices(c.inputs[1], rows.offset)}, attributes)};
            },
            .disjoint_parts = true,
            .indices = gathered_rows};
  const auto add = [&](DType dtype, const Shape& table, DType index, const Shape& indices, int64_t axis) {
    const Domain domain = is_floating(dtype) ? Domain::kAny : dtype == DType::kBool ? Domain::kBool : Domain::kIndex;
    def.examples.push_back(
        {.inputs = {{{dtype, table}, domain, 9}, {{index, indices}, Domain::kIndex, table[static_cast<int>(axis)]}},
         .attributes = {{"axis", axis}}});
  };
  add(DType::kF32, {5, 3}, DType::kI32, {4}, 0);
  add(DType::kF64, {4, 2}, DType::kI64, {2, 3}, 0);
  add(DType::kF32, {2, 5, 2}, DType::kI32, {3}, 1);
  add(DType::kBF16, {7}, DType::kU8, {}, 0);
  add(DType::kI32, {5, 2}, DType::kI32, {7}, 0);
  add(DType::kBool, {5, 2}, DType::kI64, {4}, 0);
  add(DType::kF32, {5, 3}, DType::kI32, {0}, 0);
  add(DType::kF32, {0, 3}, DType::kI32, {0}, 0);
  registry.add(std::move(def));
}

void add_scatter_add(OpRegistry& registry) {
  OpDef def{
      .name = "scatter_add",
      .doc =
          "base with the rows of `updates` added along `axis` at `indices`, one after the other, so that equal "
          "indices add up; the kernel leaves out an index outside [0, size), a step that is given one stops. updates: "
          "base[:axis] + indices + "
          "base[axis+1:]. Half types round after each addition.",
      .inputs = {"base", "indices", "updates"},
      .attributes = {{"axis", int64_t{0}, "in [0, ndim)"}, valid_attribute("[0, size)")},
      .infer = [](const Attributes& attributes, std::span<const Type> types) -> std::vector<Type> {
        require_kind(types[0], Kind::kNumeric, "the base");
        require_index(types[1], "indices");
        require_valid(attributes);
        if (types[2].dtype != types[0].dtype) throw InvalidArgument("base and updates must have one dtype");
        const int axis = axis_of(attributes, types[0]);
        Shape shape;
        for (int d = 0; d < axis; ++d) shape.push_back(types[0].shape[d]);
        for (const auto size : types[1].shape) shape.push_back(size);
        for (int d = axis + 1; d < types[0].shape.ndim(); ++d) shape.push_back(types[0].shape[d]);
        if (!(shape == types[2].shape)) {
          throw InvalidArgument("updates must have shape {}, got {}", shape, types[2].shape);
        }
        return {types[0]};
      },
      .gradient = [](const GradientContext& c) -> Gradients {
        if (!is_floating(c.inputs[0].dtype())) return {Value{}, Value{}, Value{}};
        const Value dy = c.cotangent(0);
        return {dy, Value{}, apply1("gather", {dy, c.inputs[1]}, c.attributes)};
      },
      // Split indices leave a partial sum, to which only the first part adds the base.
      .rule =
          [](const Attributes& attributes, std::span<const Type> inputs, std::span<const Type>) {
            const auto axis = static_cast<int64_t>(axis_of(attributes, inputs[0]));
            const auto base = numbered_dims(inputs[0].shape.ndim());
            auto indices = numbered_dims(inputs[1].shape.ndim(), {}, "i");
            for (size_t d = 0; d < indices.size(); ++d) {
              // Of no index, every part would be the first.
              if (inputs[1].shape[static_cast<int>(d)] == 0) indices[d] = "";
            }
            IndexRule::Dims updates(base.begin(), base.begin() + axis);
            updates.insert(updates.end(), indices.begin(), indices.end());
            updates.insert(updates.end(), base.begin() + axis + 1, base.end());
            return IndexRule{.inputs = {base, indices, updates}, .outputs = {base}};
          },
      .linear_in = {{0, 2}},
      .flops = [](const Attributes&, std::span<const Type> inputs, std::span<const Type>) { return count(inputs[2]); },
      .localize = [](const LocalizeContext& c) -> std::vector<Value> {
        const int axis = axis_of(c.attributes, c.global_inputs[0]);
        const mesh::Range& rows = c.input_slices[0][static_cast<size_t>(axis)];
        Attributes attributes = c.attributes;
        set_valid_rows(attributes, rows.offset, rows.size, c.global_inputs[0].shape[axis]);
        Value base = c.inputs[0];
        if (!is_whole(c.input_slices[1], c.global_inputs[1].shape)) {
          bool is_first = true;
          for (const auto& range : c.input_slices[1]) is_first = is_first && range.offset == 0;
          if (!is_first) base = apply1("zeros_like", {base});
        }
        return {apply1("scatter_add", {base, shift_indices(c.inputs[1], rows.offset), c.inputs[2]}, attributes)};
      },
      .indices = rows_of_table};
  const auto add = [&](DType dtype, const Shape& base, const Shape& indices, const Shape& updates, int64_t axis) {
    const Domain domain = is_floating(dtype) ? Domain::kAny : Domain::kIndex;
    def.examples.push_back({.inputs = {{{dtype, base}, domain, 9},
                                       {{DType::kI32, indices}, Domain::kIndex, base[static_cast<int>(axis)]},
                                       {{dtype, updates}, domain, 9}},
                            .attributes = {{"axis", axis}}});
  };
  add(DType::kF32, {5, 3}, {4}, {4, 3}, 0);
  add(DType::kF64, {4, 2}, {2, 3}, {2, 3, 2}, 0);
  add(DType::kF32, {2, 5, 2}, {7}, {2, 7, 2}, 1);
  add(DType::kI32, {5}, {6}, {6}, 0);
  add(DType::kBF16, {4}, {}, {}, 0);
  add(DType::kF32, {5, 3}, {0}, {0, 3}, 0);
  registry.add(std::move(def));
}

}  // namespace

void add_indexing(OpRegistry& registry) {
  add_one_hot(registry);
  add_gather(registry);
  add_scatter_add(registry);
}

}  // namespace tessera::ops
