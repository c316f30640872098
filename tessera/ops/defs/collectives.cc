#include <algorithm>
#include <numeric>

#include "tessera/ops/functions/elementwise_functions.h"
#include "tessera/ops/registry/collective_def.h"
#include "tessera/ops/registry/families.h"
#include "tessera/ops/registry/gradient_helpers.h"
#include "tessera/ops/registry/infer_helpers.h"
#include "tessera/ops/registry/require.h"
#include "tessera/ops/rules/localize.h"
#include "tessera/ops/rules/member_pieces.h"

// Collectives are nodes of a local graph: shapes are one rank's. Every rank of the group runs the node with equal
// `order`. Their gradients are the transposes for a loss that is the sum of the ranks' losses.
//
// A kind is one function here: what it computes (OpDef), and how its ranks do it together (CollectiveDef).

namespace tessera::ops {
namespace {

using Gradients = std::vector<Value>;

std::vector<AttributeDef> group_attributes(std::vector<AttributeDef> own) {
  std::vector<AttributeDef> all = {of_run({"ranks", std::nullopt, "world ranks of the group, in order"}),
                                   of_run({"group", std::nullopt, "name of the group"}),
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
const AttributeDef kSizes = of_run({"sizes", Ints{}, "per rank, of that dim; empty: all equal"});

using Parts = CollectiveDef::Parts;
using Work = std::function<void()>;

int dim_of(const Attributes& attributes, const char* name = "dim") {
  return static_cast<int>(attributes.get_int(name));
}

std::string sizes_text(const Attributes& attributes) {
  return fmt::format("{}", fmt::join(attributes.get_ints("sizes"), ","));
}

int64_t total_bytes(const std::vector<Type>& types) {
  return std::accumulate(types.begin(), types.end(), int64_t{0},
                         [](int64_t sum, const Type& type) { return sum + type.size_bytes(); });
}

comm::ReduceOp reduce_op_of(const Attributes& attributes) {
  return comm::parse_reduce_op(attributes.get_string("reduction"));
}

// A second buffer that is needed has a byte even where this rank has no elements.
int64_t at_least_one(int64_t bytes) { return std::max<int64_t>(bytes, 1); }

// Ranks send whole pieces; along any dim but the first those do not lie together.
int64_t staging_along_dim(const CollectiveCall& call, const Type& whole) {
  return call.attributes.get_int("dim") != 0 ? at_least_one(whole.size_bytes()) : 0;
}

// Everything passes once, and in a bucket this rank's own part once more.
std::vector<Packed> packed_parts(const CollectiveCall& call, const std::vector<Type>& wholes,
                                 const std::vector<Type>& parts) {
  std::vector<Packed> packed;
  if (!call.attributes.has("dims")) return {packed_along(wholes[0], call.attributes.get_int("dim"), call.group_size())};
  for (size_t i = 0; i < wholes.size(); ++i) {
    packed.push_back(packed_along(wholes[i], call.attributes.get_ints("dims")[i], call.group_size()));
    packed.push_back({parts[i].size_bytes(), parts[i].size_bytes()});
  }
  return packed;
}

// A bucket in its second buffer: what all members have of the wholes, and this rank's parts.
struct PackedBucket {
  MemberPieces all;
  MemberPieces own;

  PackedBucket(const CollectiveRun& run, std::span<const TensorView> wholes, std::span<const TensorView> parts)
      : all(cut_packed(wholes, run.attributes, run.group.size(), run.inputs.back().data)) {
    own.strided.assign(parts.begin(), parts.end());
    const auto first = all.blocks.begin() + static_cast<ptrdiff_t>(parts.size()) * run.group.rank();
    own.blocks.assign(first, first + static_cast<ptrdiff_t>(parts.size()));
  }
};

Work prepare_all_gather(const CollectiveRun& run) {
  auto& group = run.group;
  if (run.attributes.has("dims")) {
    const PackedBucket bucket(run, run.outputs, run.inputs.first(run.outputs.size()));
    return [&group, packs = run.own.copies(bucket.own.strided, bucket.own.blocks), in = bucket.own.blocks[0].data,
            staging = run.inputs.back().data, counts = bucket.all.counts, dtype = run.inputs[0].dtype, who = run.who,
            unpacks = run.own.copies(bucket.all.blocks, bucket.all.strided)] {
      packs();
      group.all_gather(in, staging, counts, dtype, who);
      unpacks();
    };
  }
  const TensorView in = run.inputs[0];
  const TensorView out = run.outputs[0];
  const int dim = dim_of(run.attributes);
  const Ints sizes = member_sizes(run.attributes, out.shape[dim]);
  if (dim == 0) {
    return [&group, in, out, counts = cut(out, 0, sizes, out.data).counts, who = run.who] {
      group.all_gather(in.data, out.data, counts, in.dtype, who);
    };
  }
  const TensorView staging = run.inputs[1];
  const MemberPieces pieces = cut(out, dim, sizes, staging.data);
  return [&group, in, staging, counts = pieces.counts, who = run.who,
          unpacks = run.own.copies(pieces.blocks, pieces.strided)] {
    group.all_gather(in.data, staging.data, counts, in.dtype, who);
    unpacks();
  };
}

Work prepare_reduce_scatter(const CollectiveRun& run) {
  auto& group = run.group;
  const auto op = reduce_op_of(run.attributes);
  if (run.attributes.has("dims")) {
    const PackedBucket bucket(run, run.inputs.first(run.outputs.size()), run.outputs);
    return [&group, packs = run.own.copies(bucket.all.strided, bucket.all.blocks), out = bucket.own.blocks[0].data,
            staging = run.inputs.back().data, counts = bucket.all.counts, dtype = run.inputs[0].dtype, op,
            who = run.who, unpacks = run.own.copies(bucket.own.blocks, bucket.own.strided)] {
      packs();
      group.reduce_scatter(staging, out, counts, dtype, op, who);
      unpacks();
    };
  }
  const TensorView in = run.inputs[0];
  const TensorView out = run.outputs[0];
  const int dim = dim_of(run.attributes);
  const Ints sizes = member_sizes(run.attributes, in.shape[dim]);
  if (dim == 0) {
    return [&group, in, out, counts = cut(in, 0, sizes, in.data).counts, op, who = run.who] {
      group.reduce_scatter(in.data, out.data, counts, in.dtype, op, who);
    };
  }
  const TensorView staging = run.inputs[1];
  const MemberPieces pieces = cut(in, dim, sizes, staging.data);
  return [&group, packs = run.own.copies(pieces.strided, pieces.blocks), out, staging, counts = pieces.counts, op,
          who = run.who] {
    packs();
    group.reduce_scatter(staging.data, out.data, counts, out.dtype, op, who);
  };
}

void add_all_reduce(OpRegistry& registry) {
  static const CollectiveDef communication{
      .reduces = true,
      .gives_one = true,
      .has_buckets = true,
      .in_place = true,
      .num_steps = 2,
      .received = "2 (n-1)/n B",
      // A reduce_scatter and an all_gather of the whole.
      .traffic = [](const CollectiveCall& call) -> Traffic {
        const int64_t n = call.group_size();
        return {2 * (n - 1) * call.inputs[0].size_bytes() / n};
      },
      .boxes = [](const CollectiveCall& call) -> ExchangeBoxes {
        const auto whole = wholes(call.inputs[0].shape, call.group_size());
        return {whole, whole};
      },
      .agreement =
          [](const CollectiveCall& call) {
            return fmt::format("{} of {}", call.attributes.get_string("reduction"), call.outputs[0]);
          },
      // In place on the bucket that holds all operands.
      .prepare = [](const CollectiveRun& run) -> Work {
        return [&group = run.group, bucket = run.inputs[0], op = reduce_op_of(run.attributes), who = run.who] {
          group.all_reduce(bucket.data, bucket.num_elements(), bucket.dtype, op, who);
        };
      },
      .examples = {{{{3, 2}, {3, 2}, {3, 2}}, {{{"reduction", "sum"}}}},
                   {{{4}, {4}}, {{{"reduction", "max"}}}},
                   {{{4}, {4}}, {{{"reduction", "min"}}}},
                   {{{2}, {2}, {2}}, {{{"reduction", "prod"}}}}}};
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
                .collective = &communication,
                .precision = MixedPrecision::kWide});
}

void add_all_gather(OpRegistry& registry) {
  static const CollectiveDef communication{
      .gives_one = true,
      .parts = Parts::kJoined,
      .has_buckets = true,
      .received = "(n-1)/n B",
      .traffic = [](const CollectiveCall& call) -> Traffic {
        return {total_bytes(call.outputs) - total_bytes(call.inputs)};
      },
      .boxes = [](const CollectiveCall& call) -> ExchangeBoxes {
        const int dim = dim_of(call.attributes);
        const Shape& whole = call.outputs[0].shape;
        return {wholes(call.inputs[0].shape, call.group_size()),
                slabs(whole, dim, member_sizes(call.attributes, whole[dim]))};
      },
      .staging_bytes = [](const CollectiveCall& call) { return staging_along_dim(call, call.outputs[0]); },
      .packed = [](const CollectiveCall& call, int64_t) { return packed_parts(call, call.outputs, call.inputs); },
      .agreement =
          [](const CollectiveCall& call) {
            return fmt::format("to {} along dim {} of [{}]", call.outputs[0], dim_of(call.attributes),
                               sizes_text(call.attributes));
          },
      .prepare = prepare_all_gather,
      .examples = {{{{3, 2}, {3, 2}, {3, 2}}, {{{"dim", int64_t{0}}}}},
                   {{{3, 2}, {3, 2}, {3, 2}}, {{{"dim", int64_t{1}}}}},
                   {{{1, 2}, {2, 2}, {3, 2}}, {{{"dim", int64_t{0}}, {"sizes", Ints{1, 2, 3}}}}},
                   {{{2, 3}, {2, 2}, {2, 0}}, {{{"dim", int64_t{1}}, {"sizes", Ints{3, 2, 0}}}}}}};
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
                .collective = &communication});
}

void add_reduce_scatter(OpRegistry& registry) {
  static const CollectiveDef communication{
      .reduces = true,
      .parts = Parts::kCut,
      .has_buckets = true,
      .received = "(n-1)/n B",
      .traffic = [](const CollectiveCall& call) -> Traffic {
        return {(call.group_size() - 1) * total_bytes(call.outputs)};
      },
      .boxes = [](const CollectiveCall& call) -> ExchangeBoxes {
        const int dim = dim_of(call.attributes);
        const Shape& whole = call.inputs[0].shape;
        return {slabs(whole, dim, member_sizes(call.attributes, whole[dim])),
                wholes(call.outputs[0].shape, call.group_size())};
      },
      .staging_bytes = [](const CollectiveCall& call) { return staging_along_dim(call, call.inputs[0]); },
      .packed = [](const CollectiveCall& call, int64_t) { return packed_parts(call, call.inputs, call.outputs); },
      .agreement =
          [](const CollectiveCall& call) {
            return fmt::format("{} of {} along dim {} to [{}]", call.attributes.get_string("reduction"), call.inputs[0],
                               dim_of(call.attributes), sizes_text(call.attributes));
          },
      .prepare = prepare_reduce_scatter,
      .examples = {{{{3, 6}, {3, 6}, {3, 6}}, {{{"dim", int64_t{0}}}}},
                   {{{3, 6}, {3, 6}, {3, 6}}, {{{"dim", int64_t{1}}}}},
                   {{{3, 6}, {3, 6}, {3, 6}}, {{{"dim", int64_t{1}}, {"sizes", Ints{4, 0, 2}}}}}}};
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
                .collective = &communication,
                .precision = MixedPrecision::kWide});
}

void add_broadcast(OpRegistry& registry) {
  static const CollectiveDef communication{
      .gives_one = true,
      .received = "B",
      .traffic = [](const CollectiveCall& call) -> Traffic {
        return {.bytes = call.outputs[0].size_bytes(), .sender = call.attributes.get_int("root")};
      },
      .boxes = [](const CollectiveCall& call) -> ExchangeBoxes {
        const int64_t root = call.attributes.get_int("root");
        const auto whole = wholes(call.inputs[0].shape, call.group_size());
        const auto none = nothings(call.group_size());
        ExchangeBoxes boxes{call.own() == root ? whole : none, none};
        boxes.receive[static_cast<size_t>(root)] = whole[0];
        return boxes;
      },
      .agreement =
          [](const CollectiveCall& call) {
            return fmt::format("of {} from {}", call.inputs[0], call.attributes.get_int("root"));
          },
      .prepare = [](const CollectiveRun& run) -> Work {
        const int root = static_cast<int>(run.attributes.get_int("root"));
        return [&group = run.group, copies = run.own.copies({run.inputs[0]}, {run.outputs[0]}), out = run.outputs[0],
                root, who = run.who] {
          if (group.rank() == root) copies();
          group.broadcast(out.data, out.num_elements(), out.dtype, root, who);
        };
      },
      .examples = {{{{3, 2}, {3, 2}, {3, 2}}, {{{"root", int64_t{1}}}}}, {{{}, {}}, {{{"root", int64_t{0}}}}}}};
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
                .collective = &communication});
}

void add_all_to_all(OpRegistry& registry) {
  // Both halves of the second buffer begin on a cache line.
  static constexpr int64_t kLine = 64;
  static const CollectiveDef communication{
      .received = "(n-1)/n B",
      .traffic = [](const CollectiveCall& call) -> Traffic {
        const int64_t n = call.group_size();
        return {(n - 1) * call.inputs[0].size_bytes() / n};
      },
      .boxes = [](const CollectiveCall& call) -> ExchangeBoxes {
        const auto parts = [&](const Type& whole, int dim) {
          return slabs(whole.shape, dim, member_sizes(call.attributes, whole.shape[dim]));
        };
        return {parts(call.inputs[0], dim_of(call.attributes, "split_dim")),
                parts(call.outputs[0], dim_of(call.attributes, "concat_dim"))};
      },
      .staging_bytes =
          [](const CollectiveCall& call) {
            return at_least_one(2 * ((call.inputs[0].size_bytes() + kLine - 1) / kLine * kLine));
          },
      .packed = [](const CollectiveCall& call, int64_t) -> std::vector<Packed> {
        return {packed_along(call.inputs[0], call.attributes.get_int("split_dim"), call.group_size()),
                packed_along(call.outputs[0], call.attributes.get_int("concat_dim"), call.group_size())};
      },
      .agreement =
          [](const CollectiveCall& call) {
            return fmt::format("of {} from dim {} to dim {}", call.inputs[0], dim_of(call.attributes, "split_dim"),
                               dim_of(call.attributes, "concat_dim"));
          },
      .prepare = [](const CollectiveRun& run) -> Work {
        const int split = dim_of(run.attributes, "split_dim");
        const int concat = dim_of(run.attributes, "concat_dim");
        const TensorView staging = run.inputs[1];
        auto* second = static_cast<std::byte*>(staging.data) + staging.num_elements() / 2;
        const auto parts = [&](const TensorView& whole, int dim, void* block) {
          return cut(whole, dim, member_sizes(run.attributes, whole.shape[dim]), block);
        };
        const MemberPieces sent = parts(run.inputs[0], split, staging.data);
        const MemberPieces received = parts(run.outputs[0], concat, second);
        return
            [&group = run.group, packs = run.own.copies(sent.strided, sent.blocks), from = sent.blocks[0].data,
             send_counts = sent.counts, to = received.blocks[0].data, receive_counts = received.counts,
             dtype = run.inputs[0].dtype, who = run.who, unpacks = run.own.copies(received.blocks, received.strided)] {
              packs();
              group.all_to_all(from, send_counts, to, receive_counts, dtype, who);
              unpacks();
            };
      },
      .examples = {{{{3, 6}, {3, 6}, {3, 6}}, {{{"split_dim", int64_t{0}}, {"concat_dim", int64_t{1}}}}},
                   {{{3, 6}, {3, 6}, {3, 6}}, {{{"split_dim", int64_t{1}}, {"concat_dim", int64_t{0}}}}},
                   {{{3, 6}, {3, 6}, {3, 6}}, {{{"split_dim", int64_t{1}}, {"concat_dim", int64_t{1}}}}}}};
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
                .collective = &communication});
}

int64_t checked_peer(const Attributes& attributes) {
  const int64_t n = group_size(attributes);
  const int64_t peer = attributes.get_int("peer");
  if (peer < 0 || peer >= n) throw InvalidArgument("peer={} must be in [0, {})", peer, n);
  return peer;
}

// What both ends of a message count.
Traffic message_traffic(const CollectiveCall& call) {
  return {.bytes = call.outputs[0].size_bytes(), .sender = call.attributes.get_int("peer")};
}

std::string message_text(const CollectiveCall& call) { return fmt::format("message {}", call.outputs[0]); }

const AttributeDef kPeer{"peer", std::nullopt, "place of the other rank in `ranks`"};

void add_send(OpRegistry& registry) {
  static const CollectiveDef communication{.members = CollectiveDef::Members::kSender,
                                           .received = "B",
                                           .traffic = message_traffic,
                                           .agreement = message_text,
                                           .prepare = [](const CollectiveRun& run) -> Work {
                                             const int peer = static_cast<int>(run.attributes.get_int("peer"));
                                             // The result, which others read, is x.
                                             return [&group = run.group, in = run.inputs[0], peer, who = run.who,
                                                     copies = run.own.copies({run.inputs[0]}, {run.outputs[0]})] {
                                               group.send(in.data, in.num_elements(), in.dtype, peer, who);
                                               copies();
                                             };
                                           }};
  registry.add({.name = "send",
                .doc = "Sends x to a peer, whose receive is matched in order per pair of ranks; the result is x.",
                .inputs = {"x"},
                .attributes = group_attributes({kPeer}),
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
                .collective = &communication});
}

void add_receive(OpRegistry& registry) {
  static const CollectiveDef communication{.members = CollectiveDef::Members::kReceiver,
                                           .received = "B",
                                           .traffic = message_traffic,
                                           .agreement = message_text,
                                           .prepare = [](const CollectiveRun& run) -> Work {
                                             const int peer = static_cast<int>(run.attributes.get_int("peer"));
                                             return [&group = run.group, out = run.outputs[0], peer, who = run.who] {
                                               group.receive(out.data, out.num_elements(), out.dtype, peer, who);
                                             };
                                           }};
  registry.add({.name = "receive",
                .doc = "What a peer sends, of a known shape and dtype.",
                .attributes = group_attributes({kPeer, of_run({"shape", std::nullopt, "of the result"}),
                                                of_run({"dtype", std::nullopt, "of the result"})}),
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
                .collective = &communication});
}

}  // namespace

void add_collectives(OpRegistry& registry) {
  add_all_reduce(registry);
  add_all_gather(registry);
  add_reduce_scatter(registry);
  add_broadcast(registry);
  add_all_to_all(registry);
  add_send(registry);
  add_receive(registry);
}

}  // namespace tessera::ops
