#include "tessera/compiler/partition.h"

#include <algorithm>
#include <numeric>
#include <set>

#include "tessera/base/error.h"
#include "tessera/mesh/exchange.h"
#include "tessera/ops/exchange.h"
#include "tessera/ops/op_def.h"

namespace tessera::compiler {
namespace {

using ir::Graph;
using ir::Node;
using ir::NodeId;
using ir::Value;
using ir::ValueId;
using mesh::Mesh;
using mesh::Range;
using mesh::Sharding;

// Nodes that only make new values of parameters and states, which nothing reads. They go last, so that everything that
// is communicated stands before them.
std::vector<bool> find_updates(const Graph& graph) {
  std::vector<bool> is_read(static_cast<size_t>(graph.num_values()));
  std::vector<bool> is_new_value(static_cast<size_t>(graph.num_values()));
  for (const auto& output : graph.outputs()) {
    const ir::Input* input = graph.find_input(output.name);
    if (input != nullptr && input->kind != ir::InputKind::kInput)
      is_new_value[static_cast<size_t>(output.value)] = true;
  }
  std::vector<bool> updates(static_cast<size_t>(graph.num_nodes()));
  for (NodeId n = graph.num_nodes() - 1; n >= 0; --n) {
    const Node& node = graph.node(n);
    bool read = ops::OpRegistry::instance().get(node.op).collective;
    bool updating = false;
    for (const ValueId v : node.outputs) {
      read = read || is_read[static_cast<size_t>(v)];
      updating = updating || is_new_value[static_cast<size_t>(v)];
    }
    updates[static_cast<size_t>(n)] = updating && !read;
    for (const ValueId v : node.inputs) is_read[static_cast<size_t>(v)] = true;
  }
  return updates;
}

// The local nodes of one logical node. What they read and make as a whole: a rank whose part is empty may leave out
// nodes, but decides on the order of collectives as if it had not.
struct LogicalStep {
  NodeId begin = 0;
  NodeId end = 0;  // behind its last local node
  std::vector<ValueId> inputs;
  std::vector<ValueId> outputs;
};

// What order_collectives() needs to know beside the local graph, the same on every rank.
struct CollectiveFacts {
  std::vector<LogicalStep> steps;
  // Of the all_reduces of redistributions: bytes of the largest part. Those inside of operators count as nothing: they
  // are small.
  std::map<NodeId, int64_t> bytes;
};

class Partitioner {
 public:
  Partitioner(const Graph& graph, const Plan& plan, int rank, const PartitionOptions& options)
      : graph_(graph), plan_(plan), mesh_(plan.mesh), rank_(rank), options_(options), local_(graph.name()) {
    mesh_.coordinates(rank);  // throws for a rank that is not in it
  }

  const CollectiveFacts& facts() const { return facts_; }

  // The groups of all ranks.
  GroupLists groups() const {
    GroupLists lists;
    for (const auto& [mesh, axes] : used_groups_) {
      for (const int rank : mesh.ranks()) lists.insert(mesh::ordered_group(mesh, rank, axes));
    }
    return lists;
  }

  Graph run() {
    local_values_.resize(static_cast<size_t>(graph_.num_values()));
    for (const auto& input : graph_.inputs()) {
      const Type& type = graph_.type(input.value);
      const auto& sharding = plan_.values[static_cast<size_t>(input.value)];
      local_values_[static_cast<size_t>(input.value)] =
          local_.add_input(input.kind, input.name, local_type(type, sharding));
    }
    local_node_.assign(static_cast<size_t>(graph_.num_nodes()), ir::kNone);
    find_completions();
    const auto updates = find_updates(graph_);
    for (const bool late : {false, true}) {
      for (NodeId n = 0; n < graph_.num_nodes(); ++n) {
        if (updates[static_cast<size_t>(n)] == late) add_node(n);
      }
    }
    for (size_t i = 0; i < graph_.outputs().size(); ++i) {
      const auto& output = graph_.outputs()[i];
      local_.add_output(output.name, use(output.value, plan_.outputs[i]));
    }
    return std::move(local_);
  }

 private:
  Type local_type(const Type& type, const Sharding& sharding) const {
    return {type.dtype, mesh::local_shape(type.shape, sharding, mesh_, rank_)};
  }

  void add_node(NodeId n) {
    const Node& node = graph_.node(n);
    const auto at = static_cast<size_t>(n);
    const ops::OpDef& def = ops::OpRegistry::instance().get(node.op);
    const ir::NodeId forward = node.forward == ir::kNone ? ir::kNone : local_node_[static_cast<size_t>(node.forward)];
    const ir::SourceScope scope(local_, node.source, forward);
    ops::Placement placement{.mesh = mesh_, .rank = rank_};
    placement.inputs = plan_.operands[at];
    placement.factor_axes = plan_.factors[at];
    placement.group_over = [this](const std::vector<int>& axes) { return group_over(mesh_, axes); };
    ops::LocalizeContext context{local_, node.op, node.attributes, {}, {}, {}, {}, {}, {}, {}, &placement};
    for (size_t i = 0; i < node.inputs.size(); ++i) {
      const auto& wanted = plan_.operands[at][i];
      const Type& type = graph_.type(node.inputs[i]);
      context.inputs.push_back(use(node.inputs[i], wanted));
      context.global_inputs.push_back(type);
      context.input_slices.push_back(mesh::slice_of(type.shape, wanted, mesh_, rank_));
    }
    for (const ValueId output : node.outputs) {
      const Type& type = graph_.type(output);
      const auto& sharding = plan_.values[static_cast<size_t>(output)];
      context.global_outputs.push_back(type);
      placement.outputs.push_back(sharding);
      context.local_outputs.push_back(local_type(type, sharding));
      context.output_slices.push_back(mesh::slice_of(type.shape, sharding, mesh_, rank_));
    }
    for (const auto& [factor, axes] : plan_.factors[at]) {
      int parts = 1;
      for (const int axis : axes) parts *= mesh_.axis(axis).size;
      if (parts > 1) context.parts[factor] = parts;
    }
    facts_.steps.push_back({.begin = local_.num_nodes()});
    const auto results =
        def.localize ? def.localize(context) : ops::apply(local_, node.op, context.inputs, node.attributes);
    check_equal(results.size(), node.outputs.size(), "results of a localized node");
    for (size_t o = 0; o < results.size(); ++o) {
      if (!(results[o].type() == context.local_outputs[o])) {
        throw InternalError(fmt::format("{}: rank {} computes {} where the plan says {}", graph_.node_name(n), rank_,
                                        results[o].type(), context.local_outputs[o]));
      }
      local_values_[static_cast<size_t>(node.outputs[o])] = results[o];
    }
    local_node_[at] = local_.info(results[0].id()).node;
    facts_.steps.back().end = local_.num_nodes();
    for (const Value& input : context.inputs) facts_.steps.back().inputs.push_back(input.id());
    for (const Value& result : results) facts_.steps.back().outputs.push_back(result.id());
    // What will be wanted whole is completed as soon as it is there: its sum travels while the rest is computed.
    for (const ValueId v : node.outputs) {
      if (const auto it = completions_.find(v); it != completions_.end()) use(v, it->second);
    }
  }

  // Partial values that are completed in one way: all their uses want the same, or want it whole as it lies.
  void find_completions() {
    std::set<ValueId> several;
    const auto look = [&](ValueId v, const Sharding& wanted) {
      const auto& produced = plan_.values[static_cast<size_t>(v)];
      if (!produced.is_partial() || wanted.is_partial()) return;
      const auto [it, is_first] = completions_.emplace(v, wanted);
      if (!is_first && !(it->second == wanted)) {
        several.insert(v);
        if (produced.dims == wanted.dims) it->second = wanted;
      }
    };
    for (NodeId n = 0; n < graph_.num_nodes(); ++n) {
      const auto& inputs = graph_.node(n).inputs;
      for (size_t i = 0; i < inputs.size(); ++i) look(inputs[i], plan_.operands[static_cast<size_t>(n)][i]);
    }
    for (size_t i = 0; i < graph_.outputs().size(); ++i) look(graph_.outputs()[i].value, plan_.outputs[i]);
    std::erase_if(completions_, [&](const auto& entry) {
      return several.contains(entry.first) && entry.second.dims != plan_.values[static_cast<size_t>(entry.first)].dims;
    });
  }

  // The value in the sharding that a use wants; equal uses share the collectives.
  Value use(ValueId v, const Sharding& wanted) {
    const auto& produced = plan_.values[static_cast<size_t>(v)];
    if (produced == wanted) return local_values_[static_cast<size_t>(v)];
    const auto key = std::make_pair(v, wanted.to_string(mesh_));
    if (const auto it = redistributed_.find(key); it != redistributed_.end()) return it->second;
    const Value result = redistribute(v, produced, wanted);
    redistributed_[key] = result;
    return result;
  }

  Value redistribute(ValueId v, const Sharding& from, const Sharding& to) {
    Value value = local_values_[static_cast<size_t>(v)];
    const Type& type = graph_.type(v);
    const NodeId producer = graph_.info(v).node;
    const ir::SourceScope scope(local_, producer == ir::kNone ? graph_.value_name(v) : graph_.node(producer).source);
    const auto& way = find_way(type, from, to);
    mesh::Layout at{mesh_, from};
    for (const auto& step : way.steps) {
      const mesh::Layout after{way.meshes[static_cast<size_t>(step.mesh)], step.after};
      value = lower(step, type.shape, value, at, after);
      at = after;
    }
    return value;
  }

  const mesh::Redistribution& find_way(const Type& type, const Sharding& from, const Sharding& to) {
    const auto key = fmt::format("{} {} {}", type, from.to_string(mesh_), to.to_string(mesh_));
    auto [it, is_new] = ways_.try_emplace(key);
    if (is_new) {
      it->second = mesh::redistribute(type.shape, static_cast<int64_t>(size_bytes(type.dtype)), {mesh_, from},
                                      {mesh_, to}, options_.redistribution);
    }
    return it->second;
  }

  // One step of a redistribution as nodes of this rank.
  Value lower(const mesh::Step& step, const Shape& shape, Value value, const mesh::Layout& before,
              const mesh::Layout& after) {
    switch (step.kind) {
      case mesh::StepKind::kRelabel: return value;
      case mesh::StepKind::kSlice: return slice(shape, value, before, after);
      case mesh::StepKind::kAllToAll: return swap_slices(step, shape, value, before, after);
      case mesh::StepKind::kExchange: return exchange(shape, value, before, after);
      case mesh::StepKind::kAllReduce:
      case mesh::StepKind::kAllGather:
      case mesh::StepKind::kReduceScatter: break;
    }
    Attributes attributes = group_over(before.mesh, step.axes);
    if (attributes.get_ints("ranks").size() == 1) return value;
    if (step.kind == mesh::StepKind::kAllReduce) {
      attributes.set("reduction", std::string(mesh::to_string(step.reduction)));
      // The first rank of a mesh has the largest parts.
      const Shape largest = mesh::local_shape(shape, after.sharding, after.mesh, after.mesh.ranks()[0]);
      facts_.bytes[local_.num_nodes()] = Type{value.dtype(), largest}.size_bytes();
      return ops::apply1("all_reduce", {value}, attributes);
    }
    const bool gathers = step.kind == mesh::StepKind::kAllGather;
    const auto& whole = gathers ? after : before;
    const int64_t size = mesh::local_shape(shape, whole.sharding, whole.mesh, rank_)[step.dim];
    attributes.set("dim", static_cast<int64_t>(step.dim));
    attributes.set("sizes", mesh::part_sizes(size, before.mesh, step.axes));
    if (!gathers) attributes.set("reduction", std::string(mesh::to_string(step.reduction)));
    return ops::apply1(gathers ? "all_gather" : "reduce_scatter", {value}, attributes);
  }

  std::vector<Range> slice_of(const Shape& shape, const mesh::Layout& layout, int rank) const {
    return mesh::slice_of(shape, layout.sharding, layout.mesh, rank);
  }

  Value slice(const Shape& shape, Value value, const mesh::Layout& before, const mesh::Layout& after) const {
    const auto held = slice_of(shape, before, rank_);
    const auto wanted = slice_of(shape, after, rank_);
    Ints begin;
    Ints end;
    for (size_t dim = 0; dim < held.size(); ++dim) {
      begin.push_back(wanted[dim].size == 0 ? 0 : wanted[dim].offset - held[dim].offset);
      end.push_back(begin.back() + wanted[dim].size);
    }
    return ops::apply1("strided_slice", {value}, {{"begin", begin}, {"end", end}, {"strides", Ints(held.size(), 1)}});
  }

  // Along some axes, between the ranks that differ along them only.
  Value swap_slices(const mesh::Step& step, const Shape& shape, Value value, const mesh::Layout& before,
                    const mesh::Layout& after) {
    const Attributes group = group_over(before.mesh, step.axes);
    std::vector<ops::Box> held;
    std::vector<ops::Box> wanted;
    for (const int64_t rank : group.get_ints("ranks")) {
      held.push_back(slice_of(shape, before, static_cast<int>(rank)));
      wanted.push_back(slice_of(shape, after, static_cast<int>(rank)));
    }
    return ops::exchange(value, group, held, wanted);
  }

  // Between all ranks, from any layout to any other.
  Value exchange(const Shape& shape, Value value, const mesh::Layout& before, const mesh::Layout& after) {
    std::vector<int> all(static_cast<size_t>(before.mesh.num_axes()));
    std::iota(all.begin(), all.end(), 0);
    Attributes attributes = group_over(before.mesh, all);
    const auto plan = mesh::exchange_plan(shape, before, after, rank_);
    ops::ExchangeBoxes boxes = ops::no_boxes(attributes.get_ints("ranks").size(), shape.ndim());
    const auto place = [&](int rank) {
      const Ints& ranks = attributes.get_ints("ranks");
      return static_cast<size_t>(std::find(ranks.begin(), ranks.end(), rank) - ranks.begin());
    };
    for (const auto& piece : plan.sends) boxes.send[place(piece.rank)] = piece.box;
    for (const auto& piece : plan.receives) boxes.receive[place(piece.rank)] = piece.box;
    if (plan.kept) {
      boxes.send[place(rank_)] = plan.kept->from_box;
      boxes.receive[place(rank_)] = plan.kept->to_box;
    }
    ops::set_exchange(attributes, boxes, mesh::local_shape(shape, after.sharding, after.mesh, rank_));
    return ops::apply1("exchange", {value}, attributes);
  }

  // The attributes of a collective between the ranks that differ from this one along these axes only.
  Attributes group_over(const Mesh& mesh, const std::vector<int>& axes) {
    const auto ranks = mesh::ordered_group(mesh, rank_, axes);
    std::string name;
    for (const int axis : axes) name += (name.empty() ? "" : "*") + mesh.axis(axis).name;
    Attributes attributes;
    attributes.set("group", name);
    attributes.set("ranks", Ints(ranks.begin(), ranks.end()));
    attributes.set("rank_in_group", static_cast<int64_t>(std::find(ranks.begin(), ranks.end(), rank_) - ranks.begin()));
    if (ranks.size() > 1) {
      const bool known = std::any_of(used_groups_.begin(), used_groups_.end(),
                                     [&](const auto& used) { return used.second == axes && used.first == mesh; });
      if (!known) used_groups_.emplace_back(mesh, axes);
    }
    return attributes;
  }

  const Graph& graph_;
  const Plan& plan_;
  const Mesh& mesh_;
  int rank_;
  const PartitionOptions& options_;
  Graph local_;
  std::vector<Value> local_values_;
  std::vector<NodeId> local_node_;
  std::map<std::pair<ValueId, std::string>, Value> redistributed_;
  std::map<ValueId, Sharding> completions_;
  std::map<std::string, mesh::Redistribution> ways_;
  std::vector<std::pair<Mesh, std::vector<int>>> used_groups_;
  CollectiveFacts facts_;
};

// By value: whether something that is communicated later depends on it.
std::vector<bool> find_awaited(const Graph& local, const std::vector<LogicalStep>& steps) {
  std::vector<bool> awaited(static_cast<size_t>(local.num_values()));
  const auto pass_on = [&](bool leads_on, const std::vector<ValueId>& inputs, const std::vector<ValueId>& outputs) {
    for (const ValueId v : outputs) leads_on = leads_on || awaited[static_cast<size_t>(v)];
    if (!leads_on) return;
    for (const ValueId v : inputs) awaited[static_cast<size_t>(v)] = true;
  };
  auto step = steps.rbegin();
  for (NodeId n = local.num_nodes(); n >= 0; --n) {
    // Behind the last node of a step; a step without nodes of its own hands its operand on.
    for (; step != steps.rend() && step->end == n; ++step) pass_on(false, step->inputs, step->outputs);
    if (n == 0) break;
    const Node& node = local.node(n - 1);
    pass_on(ops::OpRegistry::instance().get(node.op).collective, node.inputs, node.outputs);
  }
  return awaited;
}

// Puts all_reduces into buckets, and numbers the collectives in the order in which they are sent: a bucket goes when
// its last member is there. It is closed when it is full or one of its results is wanted.
void order_collectives(Graph& local, const CollectiveFacts& facts, const PartitionOptions& options) {
  struct Bucket {
    int64_t number = 0;
    int64_t bytes = 0;
  };
  const auto awaited = find_awaited(local, facts.steps);
  std::map<std::string, Bucket> open;      // by group, reduction and dtype
  std::map<ValueId, std::string> pending;  // results of open buckets
  std::map<int64_t, NodeId> last_member;
  const auto close = [&](const std::string& key) {
    open.erase(key);
    std::erase_if(pending, [&](const auto& entry) { return entry.second == key; });
  };
  int64_t next_bucket = 0;
  const auto close_for = [&](const std::vector<ValueId>& inputs) {
    for (const ValueId input : inputs) {
      if (const auto it = pending.find(input); it != pending.end()) close(std::string(it->second));
    }
  };
  auto step = facts.steps.begin();
  for (NodeId n = 0; n < local.num_nodes(); ++n) {
    for (; step != facts.steps.end() && step->begin <= n; ++step) close_for(step->inputs);
    Node& node = local.mutable_node(n);
    close_for(node.inputs);
    if (node.op != "all_reduce") continue;
    const Type& type = local.type(node.inputs[0]);
    // What backward waits for (statistics of a split batch, say) does not travel with gradients that only updates need.
    const auto key =
        fmt::format("{} {} {} {}{}", node.attributes.get_string("group"),
                    fmt::join(node.attributes.get_ints("ranks"), "-"), node.attributes.get_string("reduction"),
                    type.dtype, awaited[static_cast<size_t>(node.outputs[0])] ? " awaited" : "");
    const auto [it, is_new] = open.try_emplace(key);
    if (is_new) it->second.number = next_bucket++;
    if (const auto known = facts.bytes.find(n); known != facts.bytes.end()) it->second.bytes += known->second;
    node.attributes.set("bucket", it->second.number);
    last_member[it->second.number] = n;
    pending[node.outputs[0]] = key;
    if (it->second.bytes >= options.bucket_bytes) close(std::string(key));
  }
  int64_t order = 0;
  std::map<int64_t, int64_t> order_of_bucket;
  for (NodeId n = 0; n < local.num_nodes(); ++n) {
    Node& node = local.mutable_node(n);
    if (!ops::OpRegistry::instance().get(node.op).collective) continue;
    if (node.op != "all_reduce") {
      node.attributes.set("order", order++);
    } else if (const int64_t bucket = node.attributes.get_int("bucket"); last_member.at(bucket) == n) {
      order_of_bucket[bucket] = order++;
    }
  }
  for (NodeId n = 0; n < local.num_nodes(); ++n) {
    Node& node = local.mutable_node(n);
    if (node.op == "all_reduce") node.attributes.set("order", order_of_bucket.at(node.attributes.get_int("bucket")));
  }
}

}  // namespace

Graph partition(const Graph& graph, const Plan& plan, int rank, const PartitionOptions& options, GroupLists* groups) {
  Partitioner partitioner(graph, plan, rank, options);
  Graph local = partitioner.run();
  if (groups != nullptr) *groups = partitioner.groups();
  order_collectives(local, partitioner.facts(), options);
  return local;
}

std::string collective_list(const Graph& local) {
  std::map<int64_t, std::string> lines;
  for (NodeId n = 0; n < local.num_nodes(); ++n) {
    const Node& node = local.node(n);
    if (!ops::OpRegistry::instance().get(node.op).collective) continue;
    auto& line = lines[node.attributes.get_int("order")];
    const auto& group = node.attributes.get_string("group");
    const auto moved = node.op == "all_reduce" ? local.type(node.inputs[0]).to_string() : "";
    line += fmt::format("{} {} {};", group, node.op, moved);
  }
  std::string text;
  for (const auto& [order, line] : lines) text += fmt::format("{} {}\n", order, line);
  return text;
}

}  // namespace tessera::compiler
