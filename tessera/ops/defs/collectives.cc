#include <algorithm>
#include <numeric>

#include "tessera/ops/functions/elementwise_functions.h"
#include "tessera/ops/registry/families.h"
#include "tessera/ops/registry/gradient_helpers.h"
#include "tessera/ops/registry/infer_helpers.h"
#include "tessera/ops/registry/require.h"
#include "tessera/ops/rules/localize.h"

// Collectives are nodes of a local graph: shapes are one rank's. Every rank of the group runs the node with equal
// `order`. Their gradients are the transposes for a loss that is the sum of the ranks' losses.

namespace tessera::ops {
namespace {

using Gradients = std::vector<Value>;

std::vector<AttributeDef> group_attributes(std::vector<AttributeDef> own) {
  std::vector<AttributeDef> all = {{"ranks", std::nullopt, "world ranks of the group, in order"},
                                   {"group", std::nullopt, "name of the group"},
                                   {"rank_in_group", int64_t{0}, "this rank's place in `ranks`"},
                                   {"order", int64_t{0}, "place in the job's total order of collectives"},
                                   {"bucket", int64_t{-1}, "collectives of one bucket run as one; -1: alone"},
                                   {"lane", int64_t{0}, "1: beside those of lane 0, since computing waits for it"}};
  all.insert(all.end(), own.begin(), own.end());
  return all;
}

int64_t group_size(const Attributes& attributes) {
  const auto size = static_cast<int64_t>(attributes.get_ints("ranks").size());
  const int64_t rank = attributes.get_int("rank_in_group");
  if (size == 0) throw InvalidArgument("group \"{}\" must have at least one rank", attributes.get_string("group"));
  if (rank < 0 || rank >= size) {
    throw InvalidArgument("rank_in_group={} must be in [0, {}), the size of group \"{}\"", rank, size,
                          attributes.get_string("group"));
  }
  return size;
}

// The attributes of another collective of the same group.
Attributes same_group(const Attributes& attributes) {
  Attributes result;
  for (const char* name : {"ranks", "group", "rank_in_group"}) result.set(name, *attributes.find(name));
  return result;
}

const std::string& reduction_of(const Attributes& attributes) {
  const std::string& reduction = attributes.get_string("reduction");
  if (reduction != "sum" && reduction != "max" && reduction != "min" && reduction != "prod") {
    throw InvalidArgument("reduction must be sum, max, min or prod, got \"{}\"", reduction);
  }
  return reduction;
}

void require_reducible(const Type& type, const Attributes& attributes) {
  require_kind(type, Kind::kCompute, "the operand");
  const std::string& reduction = reduction_of(attributes);
  if (type.dtype == DType::kBool && (reduction == "sum" || reduction == "prod")) {
    throw InvalidArgument("a {} of bool is not defined; use max for any, min for all", reduction);
  }
}

Value all_reduce_of(Value x, const Attributes& group, const std::string& reduction) {
  Attributes attributes = same_group(group);
  attributes.set("reduction", reduction);
  return apply1("all_reduce", {x}, attributes);
}

// The sizes that the ranks hold of a dim: the attribute, or `equal` each.
Ints sizes_of(const Attributes& attributes, int64_t equal) {
  const int64_t n = group_size(attributes);
  Ints sizes = attributes.get_ints("sizes");
  if (sizes.empty()) return Ints(static_cast<size_t>(n), equal);
  if (static_cast<int64_t>(sizes.size()) != n || *std::min_element(sizes.begin(), sizes.end()) < 0) {
    throw InvalidArgument("sizes [{}] must have an entry >= 0 for each of the {} ranks of group \"{}\"",
                          fmt::join(sizes, ","), n, attributes.get_string("group"));
  }
  return sizes;
}

int64_t own_entry(const Ints& values, const Attributes& attributes) {
  return values[static_cast<size_t>(attributes.get_int("rank_in_group"))];
}

int64_t sum_of(const Ints& sizes) { return std::accumulate(sizes.begin(), sizes.end(), int64_t{0}, sum_of_sizes); }

Gradients all_reduce_gradient(const GradientContext& c) {
  const Value x = c.inputs[0];
  if (!is_floating(x.dtype())) return {Value{}};
  const std::string& reduction = reduction_of(c.attributes);
  const Value dy = all_reduce_of(c.cotangent(0), c.attributes, "sum");
  if (reduction == "sum") return {dy};
  if (reduction != "prod") {
    const Value holds = cast(equal(x, c.outputs[0]), x.dtype());
    const Value num_holders = all_reduce_of(holds, c.attributes, "sum");
    const Value share = dy / num_holders;
    return {holds * share};
  }
  // The product of the other ranks' values, without dividing, so that zeros are right.
  const int64_t n = group_size(c.attributes);
  const int64_t own = c.attributes.get_int("rank_in_group");
  if (x.ndim() == kMaxNdim) throw InvalidArgument("all_reduce: the gradient of a product needs fewer than 8 dims");
  Attributes gather = same_group(c.attributes);
  gather.set("dim", int64_t{0});
  const Value all = apply1("all_gather", {apply1("expand_dims", {x}, {{"axes", Ints{0}}})}, gather);
  const Value others =
      apply("concat", {slice_along(all, 0, 0, own), slice_along(all, 0, own + 1, n)}, {{"axis", int64_t{0}}}).at(0);
  return {dy * apply1("reduce_prod", {others}, {{"axes", Ints{0}}})};
}

const AttributeDef kReduction = {"reduction", "sum", "sum, max, min or prod"};
const AttributeDef kSizes = {"sizes", Ints{}, "per rank, of that dim; empty: all equal"};

void add_reducing(OpRegistry& registry) {
  registry.add({.name = "all_reduce",
                .doc = "The sum, maximum, minimum or product over the group's x, on every rank. Half types are added "
                       "in f32.",
                .inputs = {"x"},
                .attributes = group_attributes({kReduction}),
                .infer = [](const Attributes& attributes, std::span<const Type> types) -> std::vector<Type> {
                  group_size(attributes);
                  require_reducible(types[0], attributes);
                  return {types[0]};
                },
                .gradient = all_reduce_gradient,
                .collective = true,
                .precision = MixedPrecision::kWide});
  registry.add({.name = "all_gather",
                .doc = "The group's x one after the other along `dim`, on every rank.",
                .inputs = {"x"},
                .attributes = group_attributes({{"dim", int64_t{0}, "in [0, ndim)"}, kSizes}),
                .infer = [](const Attributes& attributes, std::span<const Type> types) -> std::vector<Type> {
                  require_kind(types[0], Kind::kCompute, "the operand");
                  const int dim = axis_of(attributes, types[0], "dim");
                  Shape shape = types[0].shape;
                  const Ints sizes = sizes_of(attributes, shape[dim]);
                  if (own_entry(sizes, attributes) != shape[dim]) {
                    throw InvalidArgument("sizes say that rank {} of the group has {} along dim {}, the operand has {}",
                                          attributes.get_int("rank_in_group"), own_entry(sizes, attributes), dim,
                                          shape[dim]);
                  }
                  shape[dim] = sum_of(sizes);
                  return {{types[0].dtype, shape}};
                },
                .gradient = [](const GradientContext& c) -> Gradients {
                  if (!is_floating(c.inputs[0].dtype())) return {Value{}};
                  Attributes attributes = same_group(c.attributes);
                  attributes.set("dim", c.attributes.get_int("dim"));
                  attributes.set("sizes", c.attributes.get_ints("sizes"));
                  return {apply1("reduce_scatter", {c.cotangent(0)}, attributes)};
                },
                .collective = true});
  registry.add({.name = "reduce_scatter",
                .doc = "This rank's piece along `dim` of the reduction of the group's x.",
                .inputs = {"x"},
                .attributes = group_attributes({{"dim", int64_t{0}, "in [0, ndim)"}, kSizes, kReduction}),
                .infer = [](const Attributes& attributes, std::span<const Type> types) -> std::vector<Type> {
                  require_reducible(types[0], attributes);
                  const int dim = axis_of(attributes, types[0], "dim");
                  Shape shape = types[0].shape;
                  const int64_t n = group_size(attributes);
                  const Ints sizes = sizes_of(attributes, shape[dim] / n);
                  if (sum_of(sizes) != shape[dim]) {
                    throw InvalidArgument("dim {} has size {}, which {} ranks cannot share as [{}]; give sizes", dim,
                                          shape[dim], n, fmt::join(sizes, ","));
                  }
                  shape[dim] = own_entry(sizes, attributes);
                  return {{types[0].dtype, shape}};
                },
                .gradient = [](const GradientContext& c) -> Gradients {
                  if (!is_floating(c.inputs[0].dtype())) return {Value{}};
                  if (reduction_of(c.attributes) != "sum") {
                    throw InvalidArgument(
                        "reduce_scatter: no gradient for reduction \"{}\"; use all_reduce and a slice",
                        reduction_of(c.attributes));
                  }
                  Attributes attributes = same_group(c.attributes);
                  attributes.set("dim", c.attributes.get_int("dim"));
                  attributes.set("sizes", c.attributes.get_ints("sizes"));
                  return {apply1("all_gather", {c.cotangent(0)}, attributes)};
                },
                .collective = true,
                .precision = MixedPrecision::kWide});
}

void add_moving(OpRegistry& registry) {
  registry.add({.name = "broadcast",
                .doc = "The x of the group's rank `root`, on every rank.",
                .inputs = {"x"},
                .attributes = group_attributes({{"root", int64_t{0}, "place of the sender in `ranks`"}}),
                .infer = [](const Attributes& attributes, std::span<const Type> types) -> std::vector<Type> {
                  require_kind(types[0], Kind::kCompute, "the operand");
                  const int64_t n = group_size(attributes);
                  const int64_t root = attributes.get_int("root");
                  if (root < 0 || root >= n) throw InvalidArgument("root={} must be in [0, {})", root, n);
                  return {types[0]};
                },
                .gradient = [](const GradientContext& c) -> Gradients {
                  if (!is_floating(c.inputs[0].dtype())) return {Value{}};
                  const Value sum = all_reduce_of(c.cotangent(0), c.attributes, "sum");
                  const bool is_root = c.attributes.get_int("rank_in_group") == c.attributes.get_int("root");
                  return {is_root ? sum : apply1("zeros_like", {sum})};
                },
                .collective = true});
  registry.add({.name = "all_to_all",
                .doc = "x is cut into equal parts along split_dim, one for each rank of the group; what the ranks "
                       "sent here is joined along concat_dim, in their order.",
                .inputs = {"x"},
                .attributes = group_attributes({{"split_dim", std::nullopt, "in [0, ndim); its size is divided"},
                                                {"concat_dim", std::nullopt, "in [0, ndim); its size is multiplied"}}),
                .infer = [](const Attributes& attributes, std::span<const Type> types) -> std::vector<Type> {
                  require_kind(types[0], Kind::kCompute, "the operand");
                  const int64_t n = group_size(attributes);
                  const int from = axis_of(attributes, types[0], "split_dim");
                  const int to = axis_of(attributes, types[0], "concat_dim");
                  Shape shape = types[0].shape;
                  if (shape[from] % n != 0) {
                    throw InvalidArgument("dim {} has size {}, which {} ranks cannot share equally", from, shape[from],
                                          n);
                  }
                  shape[from] /= n;
                  shape[to] = product_of_sizes(shape[to], n);
                  return {{types[0].dtype, shape}};
                },
                .gradient = [](const GradientContext& c) -> Gradients {
                  if (!is_floating(c.inputs[0].dtype())) return {Value{}};
                  Attributes attributes = same_group(c.attributes);
                  attributes.set("split_dim", c.attributes.get_int("concat_dim"));
                  attributes.set("concat_dim", c.attributes.get_int("split_dim"));
                  return {apply1("all_to_all", {c.cotangent(0)}, attributes)};
                },
                .collective = true});
}

int64_t checked_peer(const Attributes& attributes) {
  const int64_t n = group_size(attributes);
  const int64_t peer = attributes.get_int("peer");
  if (peer < 0 || peer >= n) throw InvalidArgument("peer={} must be in [0, {})", peer, n);
  return peer;
}

void add_point_to_point(OpRegistry& registry) {
  const AttributeDef peer{"peer", std::nullopt, "place of the other rank in `ranks`"};
  registry.add({.name = "send",
                .doc = "Sends x to a peer, whose receive is matched in order per pair of ranks; the result is x.",
                .inputs = {"x"},
                .attributes = group_attributes({peer}),
                .infer = [](const Attributes& attributes, std::span<const Type> types) -> std::vector<Type> {
                  require_kind(types[0], Kind::kCompute, "the operand");
                  checked_peer(attributes);
                  return {types[0]};
                },
                .gradient = [](const GradientContext& c) -> Gradients {
                  const Value x = c.inputs[0];
                  if (!is_floating(x.dtype())) return {Value{}};
                  Attributes attributes = same_group(c.attributes);
                  attributes.set("peer", c.attributes.get_int("peer"));
                  attributes.set("shape", ints_of(x.shape()));
                  attributes.set("dtype", x.dtype());
                  const Value received = apply(c.graph, "receive", {}, attributes).at(0);
                  return {c.cotangents[0] ? received + c.cotangents[0] : received};
                },
                .collective = true});
  registry.add({.name = "receive",
                .doc = "What a peer sends, of a known shape and dtype.",
                .attributes = group_attributes(
                    {peer, {"shape", std::nullopt, "of the result"}, {"dtype", std::nullopt, "of the result"}}),
                .infer = [](const Attributes& attributes, std::span<const Type>) -> std::vector<Type> {
                  checked_peer(attributes);
                  const Type type{attributes.get_dtype("dtype"), attributes.get_shape("shape")};
                  require_kind(type, Kind::kCompute, "the result");
                  return {type};
                },
                .gradient = [](const GradientContext& c) -> Gradients {
                  if (!is_floating(c.outputs[0].dtype())) return {};
                  Attributes attributes = same_group(c.attributes);
                  attributes.set("peer", c.attributes.get_int("peer"));
                  apply1("send", {c.cotangent(0)}, attributes);
                  return {};
                },
                .collective = true});
}

}  // namespace

void add_collectives(OpRegistry& registry) {
  add_reducing(registry);
  add_moving(registry);
  add_point_to_point(registry);
}

}  // namespace tessera::ops
