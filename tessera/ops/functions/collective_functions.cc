#include "tessera/ops/functions/collective_functions.h"

#include "tessera/ops/registry/gradient_helpers.h"

namespace tessera::ops {
namespace {

Attributes with_group(const RankGroup& group, Attributes attributes) {
  attributes.set("group", group.name);
  attributes.set("ranks", Ints(group.ranks.begin(), group.ranks.end()));
  attributes.set("rank_in_group", int64_t{group.own});
  return attributes;
}

int64_t dim_of(Value x, int64_t dim, const char* who) { return normalize_axis(dim, x.ndim(), who); }

}  // namespace

Value collective(const std::string& op, Value x, const RankGroup& group, Attributes settings) {
  return apply1(op, {x}, with_group(group, std::move(settings)));
}

Value all_reduce(Value x, const RankGroup& group, mesh::Reduction reduction) {
  return collective("all_reduce", x, group, {{"reduction", std::string(mesh::to_string(reduction))}});
}

Value all_gather(Value x, const RankGroup& group, int64_t dim, const Ints& sizes) {
  return collective("all_gather", x, group, {{"dim", dim_of(x, dim, "all_gather")}, {"sizes", sizes}});
}

Value reduce_scatter(Value x, const RankGroup& group, int64_t dim, mesh::Reduction reduction, const Ints& sizes) {
  return collective("reduce_scatter", x, group,
                    {{"dim", dim_of(x, dim, "reduce_scatter")},
                     {"sizes", sizes},
                     {"reduction", std::string(mesh::to_string(reduction))}});
}

Value broadcast(Value x, const RankGroup& group, int root) {
  return collective("broadcast", x, group, {{"root", int64_t{root}}});
}

Value all_to_all(Value x, const RankGroup& group, int64_t split_dim, int64_t concat_dim) {
  return collective(
      "all_to_all", x, group,
      {{"split_dim", dim_of(x, split_dim, "all_to_all")}, {"concat_dim", dim_of(x, concat_dim, "all_to_all")}});
}

Value send(Value x, const RankGroup& group, int peer) {
  return collective("send", x, group, {{"peer", int64_t{peer}}});
}

Value receive(ir::Graph& graph, const RankGroup& group, int peer, const Type& type) {
  return apply(graph, "receive", {},
               with_group(group, {{"peer", int64_t{peer}}, {"shape", ints_of(type.shape)}, {"dtype", type.dtype}}))
      .at(0);
}

}  // namespace tessera::ops
