#include <algorithm>
#include <numeric>

#include "tessera/ops/registry/families.h"
#include "tessera/ops/registry/gradient_helpers.h"
#include "tessera/ops/registry/infer_helpers.h"
#include "tessera/ops/registry/require.h"
#include "tessera/ops/rules/moved_slices.h"

namespace tessera::ops {
namespace {

using Gradients = std::vector<Value>;

Shape shape_attribute(const Attributes& attributes) {
  const Shape shape = attributes.get_shape("shape");
  for (const auto size : shape) {
    if (size < 0) throw InvalidArgument("shape {} must not have negative sizes", shape);
  }
  return shape;
}

std::vector<Value> localize_shape(const LocalizeContext& c) {
  return apply_with(c, "shape", ints_of(c.local_outputs[0].shape));
}

Example example(const Type& input, Attributes attributes) {
  return {.inputs = {{input,
                      is_floating(input.dtype)      ? Domain::kAny
                      : input.dtype == DType::kBool ? Domain::kBool
                                                    : Domain::kIndex,
                      9}},
          .attributes = std::move(attributes)};
}

// reshape ------------------------------------------------------------------------------------------------------------

void add_reshape(OpRegistry& registry) {
  OpDef def{.name = "reshape",
            .doc = "The same elements, in row-major order, with other dims.",
            .inputs = {"x"},
            .attributes = {of_run({"shape", std::nullopt, "of the result; equal number of elements"})},
            .infer = [](const Attributes& attributes, std::span<const Type> types) -> std::vector<Type> {
              const Shape shape = shape_attribute(attributes);
              if (shape.num_elements() != types[0].shape.num_elements()) {
                throw InvalidArgument("cannot reshape {} elements to {}", types[0].shape.num_elements(), shape);
              }
              return {{types[0].dtype, shape}};
            },
            .gradient = [](const GradientContext& c) -> Gradients {
              return {reshape_to(c.cotangent(0), c.inputs[0].shape())};
            },
            .rule =
                [](const Attributes&, std::span<const Type> inputs, std::span<const Type> outputs) {
                  IndexRule rule{.inputs = {IndexRule::Dims(static_cast<size_t>(inputs[0].shape.ndim()))},
                                 .outputs = {IndexRule::Dims(static_cast<size_t>(outputs[0].shape.ndim()))}};
                  // A group of dims is split by its outermost ones.
                  for (const auto& group : reshape_groups(inputs[0].shape, outputs[0].shape)) {
                    if (group.in_dim < 0 || group.out_dim < 0) continue;
                    rule.inputs[0][static_cast<size_t>(group.in_dim)] = fmt::format("d{}", group.in_dim);
                    rule.outputs[0][static_cast<size_t>(group.out_dim)] = fmt::format("d{}", group.in_dim);
                  }
                  return rule;
                },
            .linear_in = {{0}},
            .localize = localize_reshape};
  const auto add = [&](DType dtype, const Shape& from, const Ints& to) {
    def.examples.push_back(example({dtype, from}, {{"shape", to}}));
  };
  add(DType::kF32, {2, 3}, {3, 2});
  add(DType::kF32, {4, 3, 2}, {4, 6});
  add(DType::kF64, {4, 6}, {8, 3});
  add(DType::kF32, {8, 5}, {4, 2, 5});
  add(DType::kBF16, {7, 2}, {7, 1, 2});
  add(DType::kI32, {6}, {2, 3});
  add(DType::kBool, {4}, {2, 2});
  add(DType::kF32, {}, {1, 1});
  add(DType::kF32, {0, 3}, {0, 5});
  def.elements = Elements::kRelabelled;
  registry.add(std::move(def));
}

// transpose, squeeze, expand_dims ------------------------------------------------------------------------------------

void add_transpose(OpRegistry& registry) {
  OpDef transpose{.name = "transpose",
                  .doc = "Dim i of the result is dim perm[i] of x.",
                  .inputs = {"x"},
                  .attributes = {{"perm", std::nullopt, "a permutation of 0..ndim-1"}},
                  .infer = [](const Attributes& attributes, std::span<const Type> types) -> std::vector<Type> {
                    const Ints& perm = attributes.get_ints("perm");
                    Ints sorted = perm;
                    std::sort(sorted.begin(), sorted.end());
                    Ints all(static_cast<size_t>(types[0].shape.ndim()));
                    std::iota(all.begin(), all.end(), 0);
                    if (sorted != all) {
                      throw InvalidArgument("perm [{}] must be a permutation of the {} dims", fmt::join(perm, ","),
                                            types[0].shape.ndim());
                    }
                    Shape shape;
                    for (const auto dim : perm) shape.push_back(types[0].shape[static_cast<int>(dim)]);
                    return {{types[0].dtype, shape}};
                  },
                  .gradient = [](const GradientContext& c) -> Gradients {
                    const Ints& perm = c.attributes.get_ints("perm");
                    Ints inverse(perm.size());
                    for (size_t i = 0; i < perm.size(); ++i) {
                      inverse[static_cast<size_t>(perm[i])] = static_cast<int64_t>(i);
                    }
                    return {apply1("transpose", {c.cotangent(0)}, {{"perm", inverse}})};
                  },
                  .rule =
                      [](const Attributes& attributes, std::span<const Type> inputs, std::span<const Type>) {
                        IndexRule rule{.inputs = {numbered_dims(inputs[0].shape.ndim())}, .outputs = {{}}};
                        for (const auto dim : attributes.get_ints("perm")) {
                          rule.outputs[0].push_back(rule.inputs[0][static_cast<size_t>(dim)]);
                        }
                        return rule;
                      },
                  .linear_in = {{0}}};
  for (const DType dtype : {DType::kF32, DType::kF64, DType::kF16, DType::kI64, DType::kBool}) {
    transpose.examples.push_back(example({dtype, {2, 3}}, {{"perm", Ints{1, 0}}}));
  }
  transpose.examples.push_back(example({DType::kF32, {2, 7, 3, 4}}, {{"perm", Ints{0, 3, 1, 2}}}));
  transpose.examples.push_back(example({DType::kF32, {0, 3}}, {{"perm", Ints{1, 0}}}));
  transpose.examples.push_back(example({DType::kF32, {}}, {{"perm", Ints{}}}));
  transpose.elements = Elements::kMoved;
  registry.add(std::move(transpose));
}

void add_squeeze(OpRegistry& registry) {
  OpDef squeeze{.name = "squeeze",
                .doc = "x without the dims `axes`, which must have size 1.",
                .inputs = {"x"},
                .attributes = {{"axes", std::nullopt, "the dims to drop: sorted, not negative"}},
                .infer = [](const Attributes& attributes, std::span<const Type> types) -> std::vector<Type> {
                  const Ints axes = checked_axes(attributes, types[0].shape.ndim());
                  Shape shape;
                  for (int dim = 0; dim < types[0].shape.ndim(); ++dim) {
                    if (!contains(axes, dim)) {
                      shape.push_back(types[0].shape[dim]);
                    } else if (types[0].shape[dim] != 1) {
                      throw InvalidArgument("dim {} must have size 1 to be dropped, it has {}", dim,
                                            types[0].shape[dim]);
                    }
                  }
                  return {{types[0].dtype, shape}};
                },
                .gradient = [](const GradientContext& c) -> Gradients {
                  return {apply1("expand_dims", {c.cotangent(0)}, c.attributes)};
                },
                .rule =
                    [](const Attributes& attributes, std::span<const Type> inputs, std::span<const Type>) {
                      const Ints& axes = attributes.get_ints("axes");
                      IndexRule rule{.inputs = {numbered_dims(inputs[0].shape.ndim(), axes)}, .outputs = {{}}};
                      for (int dim = 0; dim < inputs[0].shape.ndim(); ++dim) {
                        if (!contains(axes, dim)) rule.outputs[0].push_back(rule.inputs[0][static_cast<size_t>(dim)]);
                      }
                      return rule;
                    },
                .linear_in = {{0}}};
  squeeze.examples = {
      example({DType::kF32, {7, 3, 1, 1}}, {{"axes", Ints{2, 3}}}), example({DType::kF64, {1, 3}}, {{"axes", Ints{0}}}),
      example({DType::kI32, {1}}, {{"axes", Ints{0}}}), example({DType::kF32, {1, 0}}, {{"axes", Ints{0}}})};
  squeeze.elements = Elements::kRelabelled;
  registry.add(std::move(squeeze));
}

void add_expand_dims(OpRegistry& registry) {
  OpDef expand{.name = "expand_dims",
               .doc = "x with new dims of size 1 at the places `axes` of the result.",
               .inputs = {"x"},
               .attributes = {{"axes", std::nullopt, "places in the result: sorted, not negative"}},
               .infer = [](const Attributes& attributes, std::span<const Type> types) -> std::vector<Type> {
                 const int ndim = types[0].shape.ndim() + static_cast<int>(attributes.get_ints("axes").size());
                 const Ints axes = checked_axes(attributes, ndim);
                 Shape shape;
                 int from = 0;
                 for (int dim = 0; dim < ndim; ++dim) {
                   shape.push_back(contains(axes, dim) ? 1 : types[0].shape[from++]);
                 }
                 return {{types[0].dtype, shape}};
               },
               .gradient = [](const GradientContext& c) -> Gradients {
                 return {apply1("squeeze", {c.cotangent(0)}, c.attributes)};
               },
               .rule =
                   [](const Attributes& attributes, std::span<const Type> inputs, std::span<const Type> outputs) {
                     const Ints& axes = attributes.get_ints("axes");
                     IndexRule rule{.inputs = {numbered_dims(inputs[0].shape.ndim())}, .outputs = {{}}};
                     size_t from = 0;
                     for (int dim = 0; dim < outputs[0].shape.ndim(); ++dim) {
                       rule.outputs[0].push_back(contains(axes, dim) ? "" : rule.inputs[0][from++]);
                     }
                     return rule;
                   },
               .linear_in = {{0}}};
  expand.examples = {example({DType::kF32, {7, 3}}, {{"axes", Ints{0, 2}}}),
                     example({DType::kF64, {3}}, {{"axes", Ints{1}}}), example({DType::kI32, {}}, {{"axes", Ints{0}}}),
                     example({DType::kF32, {0}}, {{"axes", Ints{0}}})};
  expand.elements = Elements::kRelabelled;
  registry.add(std::move(expand));
}

// concat, split ------------------------------------------------------------------------------------------------------

void add_concat_and_split(OpRegistry& registry) {
  OpDef concat{.name = "concat",
               .doc = "The operands one after the other along `axis`; all other dims must be equal.",
               .inputs = {"values..."},
               .attributes = {{"axis", std::nullopt, "in [0, ndim)"}},
               .infer = [](const Attributes& attributes, std::span<const Type> types) -> std::vector<Type> {
                 if (types.empty()) throw InvalidArgument("needs at least one operand");
                 require_equal_dtypes(types);
                 const int axis = axis_of(attributes, types[0]);
                 Shape shape = types[0].shape;
                 for (const auto& type : types.subspan(1)) {
                   Shape other = type.shape;
                   if (other.ndim() == shape.ndim()) other[axis] = shape[axis];
                   if (!(other == shape)) {
                     throw InvalidArgument("operands must agree in all dims but {}, got {} and {}", axis,
                                           types[0].shape, type.shape);
                   }
                 }
                 for (const auto& type : types.subspan(1)) shape[axis] = sum_of_sizes(shape[axis], type.shape[axis]);
                 return {{types[0].dtype, shape}};
               },
               .gradient = [](const GradientContext& c) -> Gradients {
                 const int axis = axis_of(c.attributes, c.inputs[0].type());
                 Ints sizes;
                 for (const Value& input : c.inputs) sizes.push_back(input.shape()[axis]);
                 return apply("split", {c.cotangent(0)}, {{"axis", int64_t{axis}}, {"sizes", sizes}});
               },
               .rule = [](const Attributes&, std::span<const Type> inputs,
                          std::span<const Type> outputs) { return matched_rule(inputs, outputs, {}); },
               .localize = localize_concat};
  const auto concat_example = [&](DType dtype, const std::vector<Shape>& shapes, int64_t axis) {
    Example made{.attributes = {{"axis", axis}}};
    for (const auto& shape : shapes) made.inputs.push_back(example({dtype, shape}, {}).inputs[0]);
    concat.examples.push_back(made);
  };
  concat_example(DType::kF32, {{2, 3}, {2, 1}}, 1);
  concat_example(DType::kF64, {{1, 7}, {2, 7}, {0, 7}}, 0);
  concat_example(DType::kI32, {{2}, {3}}, 0);
  concat_example(DType::kBF16, {{2, 2}}, 0);
  concat_example(DType::kF32, {{2, 0}, {2, 0}}, 0);
  registry.add(std::move(concat));

  OpDef split{.name = "split",
              .doc = "x cut along `axis` into pieces of the given sizes.",
              .inputs = {"x"},
              .attributes = {{"axis", std::nullopt, "in [0, ndim)"},
                             of_run({"sizes", std::nullopt, "of the pieces; their sum is the dim's size"})},
              .outputs = {"results..."},
              .infer = [](const Attributes& attributes, std::span<const Type> types) -> std::vector<Type> {
                const int axis = axis_of(attributes, types[0]);
                const Ints& sizes = attributes.get_ints("sizes");
                int64_t left = types[0].shape[axis];
                bool fits = !sizes.empty();
                for (const auto size : sizes) {
                  fits = fits && size >= 0 && size <= left;
                  if (fits) left -= size;
                }
                if (!fits || left != 0) {
                  throw InvalidArgument("sizes [{}] must not be negative and add up to {}, the size of dim {}",
                                        fmt::join(sizes, ","), types[0].shape[axis], axis);
                }
                std::vector<Type> results;
                for (const auto size : sizes) {
                  Shape shape = types[0].shape;
                  shape[axis] = size;
                  results.push_back({types[0].dtype, shape});
                }
                return results;
              },
              .gradient = [](const GradientContext& c) -> Gradients {
                std::vector<Value> parts;
                for (size_t i = 0; i < c.outputs.size(); ++i) parts.push_back(c.cotangent(static_cast<int>(i)));
                return apply(c.graph, "concat", parts, {{"axis", c.attributes.get_int("axis")}});
              },
              .rule = [](const Attributes&, std::span<const Type> inputs,
                         std::span<const Type> outputs) { return matched_rule(inputs, outputs, {}); },
              .linear_in = {{0}},
              .localize = localize_split};
  const auto split_example = [&](DType dtype, const Shape& shape, int64_t axis, const Ints& sizes) {
    split.examples.push_back(example({dtype, shape}, {{"axis", axis}, {"sizes", sizes}}));
  };
  split_example(DType::kF32, {2, 6}, 1, {2, 2, 2});
  split_example(DType::kF64, {5, 7}, 0, {3, 0, 2});
  split_example(DType::kI32, {4}, 0, {4});
  split_example(DType::kF32, {0, 4}, 1, {1, 3});
  split.elements = Elements::kMoved;
  registry.add(std::move(split));
}

// strided_slice, pad -------------------------------------------------------------------------------------------------

struct Slices {
  Ints begin;
  Ints end;
  Ints strides;
};

Slices slices_of(const Attributes& attributes) {
  return {attributes.get_ints("begin"), attributes.get_ints("end"), attributes.get_ints("strides")};
}

// The slice's shape; throws InvalidArgument unless begin, end and strides are normalised for `shape`.
Shape sliced_shape(const Slices& s, const Shape& shape) {
  const auto ndim = static_cast<size_t>(shape.ndim());
  if (s.begin.size() != ndim || s.end.size() != ndim || s.strides.size() != ndim) {
    throw InvalidArgument("begin, end and strides must have one entry for each of the {} dims, got {}, {} and {}", ndim,
                          s.begin.size(), s.end.size(), s.strides.size());
  }
  Shape result;
  for (size_t d = 0; d < ndim; ++d) {
    const int64_t size = shape[static_cast<int>(d)];
    const bool forward = s.strides[d] > 0;
    const int64_t low = forward ? 0 : -1;
    const int64_t high = forward ? size : size - 1;
    if (s.strides[d] == 0 || s.begin[d] < low || s.begin[d] > high || s.end[d] < low || s.end[d] > high) {
      throw InvalidArgument(
          "slice {}:{}:{} of dim {} with size {} must have a stride other than 0 and ends in [{}, {}]", s.begin[d],
          s.end[d], s.strides[d], d, size, low, high);
    }
    const int64_t span = forward ? s.end[d] - s.begin[d] : s.begin[d] - s.end[d];
    // Of a negative step the quotient: its magnitude may be no int64.
    const int64_t full_steps = span <= 0 ? 0 : std::abs((span - 1) / s.strides[d]);
    result.push_back(span <= 0 ? 0 : full_steps + 1);
  }
  return result;
}

const std::vector<AttributeDef> kSliceAttributes = {
    of_run({"begin", std::nullopt, "first index per dim, not negative"}),
    of_run({"end", std::nullopt, "index after the last per dim; -1 with a negative stride: down to the first"}),
    {"strides", std::nullopt, "step per dim, not 0"}};

void add_slices(OpRegistry& registry) {
  OpDef slice{.name = "strided_slice",
              .doc =
                  "Per dim the elements begin, begin + stride, ... before end. Normalised: one entry per dim, clamped "
                  "to the dim; a negative stride walks down to above `end`.",
              .inputs = {"x"},
              .attributes = kSliceAttributes,
              .infer = [](const Attributes& attributes, std::span<const Type> types) -> std::vector<Type> {
                return {{types[0].dtype, sliced_shape(slices_of(attributes), types[0].shape)}};
              },
              .gradient = [](const GradientContext& c) -> Gradients {
                Attributes attributes = c.attributes;
                attributes.set("shape", ints_of(c.inputs[0].shape()));
                return {apply1("strided_slice_grad", {c.cotangent(0)}, attributes)};
              },
              .rule = [](const Attributes&, std::span<const Type> inputs,
                         std::span<const Type> outputs) { return matched_rule(inputs, outputs, {}); },
              .linear_in = {{0}},
              .localize = localize_strided_slice};
  OpDef grad{.name = "strided_slice_grad",
             .doc = "The transpose of strided_slice: dy at the places that were sliced, 0 elsewhere.",
             .inputs = {"dy"},
             .attributes = kSliceAttributes,
             .infer = [](const Attributes& attributes, std::span<const Type> types) -> std::vector<Type> {
               require_kind(types[0], Kind::kCompute, "dy");
               const Shape shape = shape_attribute(attributes);
               const Shape sliced = sliced_shape(slices_of(attributes), shape);
               if (!(sliced == types[0].shape)) {
                 throw InvalidArgument("a slice of {} has shape {}, dy has {}", shape, sliced, types[0].shape);
               }
               return {{types[0].dtype, shape}};
             },
             .gradient = [](const GradientContext& c) -> Gradients {
               Attributes attributes = c.attributes;
               attributes.erase("shape");
               return {apply1("strided_slice", {c.cotangent(0)}, attributes)};
             },
             .rule = [](const Attributes&, std::span<const Type> inputs,
                        std::span<const Type> outputs) { return matched_rule(inputs, outputs, {}); },
             .linear_in = {{0}},
             .localize = localize_strided_slice_grad};
  grad.attributes.push_back(of_run({"shape", std::nullopt, "of the operand that was sliced"}));
  const auto add = [&](DType dtype, const Shape& shape, const Ints& begin, const Ints& end, const Ints& strides) {
    Attributes attributes{{"begin", begin}, {"end", end}, {"strides", strides}};
    slice.examples.push_back(example({dtype, shape}, attributes));
    if (!is_floating(dtype)) return;
    const Shape sliced = sliced_shape({begin, end, strides}, shape);
    attributes.set("shape", ints_of(shape));
    grad.examples.push_back(example({dtype, sliced}, attributes));
  };
  add(DType::kF32, {7, 5}, {0, 1}, {7, 4}, {1, 1});
  add(DType::kF64, {4, 7}, {0, 6}, {4, -1}, {1, -2});
  add(DType::kF32, {5}, {4}, {-1}, {-1});
  add(DType::kBF16, {3, 4}, {1, 0}, {2, 4}, {1, 3});
  add(DType::kI32, {6}, {1}, {6}, {2});
  add(DType::kBool, {4}, {0}, {2}, {1});
  add(DType::kF32, {4}, {2}, {2}, {1});
  add(DType::kF32, {0, 4}, {0, 1}, {0, 3}, {1, 1});
  add(DType::kF32, {}, {}, {}, {});
  slice.elements = Elements::kMoved;
  registry.add(std::move(slice));
  registry.add(std::move(grad));
}

void add_pad(OpRegistry& registry) {
  OpDef def{.name = "pad",
            .doc = "x with before[i] and after[i] elements of `value` around it along dim i.",
            .inputs = {"x"},
            .attributes = {{"before", std::nullopt, "per dim, not negative"},
                           {"after", std::nullopt, "per dim, not negative"},
                           {"value", 0.0, "of the new elements"}},
            .infer = [](const Attributes& attributes, std::span<const Type> types) -> std::vector<Type> {
              require_kind(types[0], Kind::kCompute, "the operand");
              const Ints& before = attributes.get_ints("before");
              const Ints& after = attributes.get_ints("after");
              Shape shape = types[0].shape;
              const auto ndim = static_cast<size_t>(shape.ndim());
              if (before.size() != ndim || after.size() != ndim) {
                throw InvalidArgument("before and after must have one entry for each of the {} dims, got {} and {}",
                                      ndim, before.size(), after.size());
              }
              for (size_t d = 0; d < ndim; ++d) {
                if (before[d] < 0 || after[d] < 0) {
                  throw InvalidArgument("padding of dim {} must not be negative, got {} and {}", d, before[d],
                                        after[d]);
                }
                int64_t& size = shape[static_cast<int>(d)];
                size = sum_of_sizes(size, sum_of_sizes(before[d], after[d]));
              }
              return {{types[0].dtype, shape}};
            },
            .gradient = [](const GradientContext& c) -> Gradients {
              const Ints& begin = c.attributes.get_ints("before");
              Ints end = begin;
              for (size_t d = 0; d < end.size(); ++d) end[d] += c.inputs[0].shape()[static_cast<int>(d)];
              return {apply1("strided_slice", {c.cotangent(0)},
                             {{"begin", begin}, {"end", end}, {"strides", Ints(end.size(), 1)}})};
            },
            // Linear only for value 0, which linear_in cannot say.
            .rule = [](const Attributes&, std::span<const Type> inputs,
                       std::span<const Type> outputs) { return matched_rule(inputs, outputs, {}); },
            .localize = localize_pad};
  const auto add = [&](DType dtype, const Shape& shape, const Ints& before, const Ints& after, double value) {
    def.examples.push_back(example({dtype, shape}, {{"before", before}, {"after", after}, {"value", value}}));
  };
  add(DType::kF32, {7, 3}, {0, 1}, {0, 2}, 0.0);
  add(DType::kF64, {2, 3}, {1, 0}, {0, 1}, 1.5);
  add(DType::kF16, {2}, {2}, {0}, -1.0);
  add(DType::kI32, {2, 2}, {0, 1}, {1, 0}, 7.0);
  add(DType::kF32, {0, 2}, {1, 0}, {0, 0}, 3.0);
  add(DType::kF32, {}, {}, {}, 3.0);
  registry.add(std::move(def));
}

// tile, broadcast_to -------------------------------------------------------------------------------------------------

void add_repetitions(OpRegistry& registry) {
  OpDef tile{.name = "tile",
             .doc = "x repeated multiples[i] times along dim i.",
             .inputs = {"x"},
             .attributes = {of_run({"multiples", std::nullopt, "per dim, not negative"})},
             .infer = [](const Attributes& attributes, std::span<const Type> types) -> std::vector<Type> {
               const Ints& multiples = attributes.get_ints("multiples");
               Shape shape = types[0].shape;
               if (static_cast<int>(multiples.size()) != shape.ndim()) {
                 throw InvalidArgument("multiples must have one entry for each of the {} dims, got {}", shape.ndim(),
                                       multiples.size());
               }
               for (int d = 0; d < shape.ndim(); ++d) {
                 const int64_t times = multiples[static_cast<size_t>(d)];
                 if (times < 0) throw InvalidArgument("dim {} cannot be repeated {} times", d, times);
                 shape[d] = product_of_sizes(shape[d], times);
               }
               return {{types[0].dtype, shape}};
             },
             .gradient = [](const GradientContext& c) -> Gradients {
               // One dim at a time: its copies become a dim of their own, which is summed.
               const Ints& multiples = c.attributes.get_ints("multiples");
               Value dy = c.cotangent(0);
               for (int d = 0; d < dy.ndim(); ++d) {
                 const int64_t times = multiples[static_cast<size_t>(d)];
                 if (times == 1) continue;
                 const int64_t size = c.inputs[0].shape()[d];
                 Shape copies;
                 Shape one = dy.shape();
                 one[d] = size;
                 int at = d;
                 if (dy.ndim() < kMaxNdim) {
                   for (int i = 0; i < dy.ndim(); ++i) {
                     if (i == d) copies.push_back(times);
                     copies.push_back(one[i]);
                   }
                 } else {
                   int64_t outer = 1;
                   int64_t inner = 1;
                   for (int i = 0; i < d; ++i) outer *= one[i];
                   for (int i = d; i < one.ndim(); ++i) inner *= one[i];
                   copies = {outer, times, inner};
                   at = 1;
                 }
                 dy = reshape_to(apply1("reduce_sum", {reshape_to(dy, copies)}, {{"axes", Ints{at}}}), one);
               }
               return {dy};
             },
             .rule = [](const Attributes&, std::span<const Type> inputs,
                        std::span<const Type> outputs) { return matched_rule(inputs, outputs, {}); },
             .linear_in = {{0}},
             .localize = localize_tile};
  tile.examples = {example({DType::kF32, {7, 2}}, {{"multiples", Ints{1, 3}}}),
                   example({DType::kF64, {2, 3}}, {{"multiples", Ints{2, 2}}}),
                   example({DType::kI32, {3}}, {{"multiples", Ints{0}}}),
                   example({DType::kF32, {0, 2}}, {{"multiples", Ints{2, 1}}}),
                   example({DType::kF32, {}}, {{"multiples", Ints{}}})};
  tile.elements = Elements::kMoved;
  registry.add(std::move(tile));

  OpDef broadcast{
      .name = "broadcast_to",
      .doc = "x stretched to a shape as NumPy broadcasts: aligned at the last dims, dims of size 1 repeated.",
      .inputs = {"x"},
      .attributes = {of_run({"shape", std::nullopt, "of the result"})},
      .infer = [](const Attributes& attributes, std::span<const Type> types) -> std::vector<Type> {
        const Shape shape = shape_attribute(attributes);
        if (!(broadcast_shapes(types[0].shape, shape) == shape)) {
          throw InvalidArgument("cannot stretch {} to {}", types[0].shape, shape);
        }
        return {{types[0].dtype, shape}};
      },
      .gradient = [](const GradientContext& c) -> Gradients { return {sum_to(c.cotangent(0), c.inputs[0].shape())}; },
      .rule = [](const Attributes&, std::span<const Type> inputs,
                 std::span<const Type> outputs) { return elementwise_rule(shapes_of(inputs), shapes_of(outputs)); },
      .linear_in = {{0}},
      .localize = localize_shape};
  broadcast.examples = {example({DType::kF32, {3}}, {{"shape", Ints{2, 3}}}),
                        example({DType::kF64, {7, 1}}, {{"shape", Ints{2, 7, 4}}}),
                        example({DType::kBF16, {}}, {{"shape", Ints{2, 2}}}),
                        example({DType::kI32, {1}}, {{"shape", Ints{5}}}),
                        example({DType::kF32, {2, 3}}, {{"shape", Ints{2, 3}}}),
                        example({DType::kF32, {1, 3}}, {{"shape", Ints{0, 3}}})};
  broadcast.elements = Elements::kMoved;
  registry.add(std::move(broadcast));
}

}  // namespace

void add_shape_ops(OpRegistry& registry) {
  add_reshape(registry);
  add_transpose(registry);
  add_squeeze(registry);
  add_expand_dims(registry);
  add_concat_and_split(registry);
  add_slices(registry);
  add_pad(registry);
  add_repetitions(registry);
}

}  // namespace tessera::ops
