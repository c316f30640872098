#include "tessera/compiler/partition.h"

#include <algorithm>
#include <set>

#include "tessera/base/error.h"
#include "tessera/ops/op_def.h"

namespace tessera::compiler {
namespace {

using ir::Graph;
using ir::Node;
using ir::NodeId;
using ir::Value;
using ir::ValueId;
using mesh::Mesh;
using mesh::Partial;
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

class Partitioner {
 public:
  Partitioner(const Graph& graph, const Plan& plan, int rank)
      : graph_(graph), plan_(plan), mesh_(plan.mesh), rank_(rank), local_(graph.name()) {
    at_ = mesh_.coordinates(rank);
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
    ops::LocalizeContext context{local_, node.op, node.attributes, {}, {}, {}, {}, {}, {}, {}};
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
      context.local_outputs.push_back(local_type(type, sharding));
      context.output_slices.push_back(mesh::slice_of(type.shape, sharding, mesh_, rank_));
    }
    for (const auto& [factor, axes] : plan_.factors[at]) {
      int parts = 1;
      for (const int axis : axes) parts *= mesh_.axis(axis).size;
      if (parts > 1) context.parts[factor] = parts;
    }
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
    // What will be wanted whole is completed as soon as it is there: its sum travels while the rest is computed.
    for (const ValueId v : node.outputs) {
      if (const auto it = completions_.find(v); it != completions_.end()) use(v, it->second);
    }
  }

  // The values that a later use wants whole in the dims that they are made in.
  void find_completions() {
    const auto look = [&](ValueId v, const Sharding& wanted) {
      const auto& produced = plan_.values[static_cast<size_t>(v)];
      if (produced.is_partial() && !wanted.is_partial() && produced.dims == wanted.dims) completions_[v] = wanted;
    };
    for (NodeId n = 0; n < graph_.num_nodes(); ++n) {
      const auto& inputs = graph_.node(n).inputs;
      for (size_t i = 0; i < inputs.size(); ++i) look(inputs[i], plan_.operands[static_cast<size_t>(n)][i]);
    }
    for (size_t i = 0; i < graph_.outputs().size(); ++i) look(graph_.outputs()[i].value, plan_.outputs[i]);
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

  // Complete what is partial, gather what is split and should not be (innermost axis first), then slice.
  Value redistribute(ValueId v, Sharding from, const Sharding& to) {
    Value value = local_values_[static_cast<size_t>(v)];
    const NodeId producer = graph_.info(v).node;
    const ir::SourceScope scope(local_, producer == ir::kNone ? graph_.value_name(v) : graph_.node(producer).source);
    for (const Partial& partial : std::vector<Partial>(from.partial)) {
      if (std::find(to.partial.begin(), to.partial.end(), partial) != to.partial.end()) continue;
      value = collective("all_reduce", value, partial.axis,
                         {{"reduction", std::string(mesh::to_string(partial.reduction))}});
      std::erase(from.partial, partial);
    }
    check(from.partial == to.partial, "a whole value cannot become partial");
    const Shape& shape = graph_.type(v).shape;
    for (size_t dim = 0; dim < from.dims.size(); ++dim) {
      auto& have = from.dims[dim];
      const auto& want = to.dims[dim];
      // Keep the common outer axes.
      size_t common = 0;
      while (common < have.size() && common < want.size() && have[common] == want[common]) ++common;
      while (have.size() > common) {
        const int axis = have.back();
        have.pop_back();
        const int64_t outer = mesh::local_shape(shape, from, mesh_, rank_)[static_cast<int>(dim)];
        value = collective(
            "all_gather", value, axis,
            {{"dim", static_cast<int64_t>(dim)}, {"sizes", mesh::balanced_sizes(outer, mesh_.axis(axis).size)}});
      }
    }
    if (from == to) return value;
    const auto held = mesh::slice_of(shape, from, mesh_, rank_);
    const auto wanted = mesh::slice_of(shape, to, mesh_, rank_);
    Ints begin;
    Ints end;
    for (size_t dim = 0; dim < held.size(); ++dim) {
      begin.push_back(wanted[dim].offset - held[dim].offset);
      end.push_back(begin.back() + wanted[dim].size);
    }
    return ops::apply1("strided_slice", {value}, {{"begin", begin}, {"end", end}, {"strides", Ints(held.size(), 1)}});
  }

  Value collective(const std::string& op, Value value, int axis, Attributes attributes) {
    const auto ranks = mesh_.group(rank_, {axis});
    if (ranks.size() == 1) return value;
    attributes.set("group", mesh_.axis(axis).name);
    attributes.set("ranks", Ints(ranks.begin(), ranks.end()));
    attributes.set("rank_in_group", static_cast<int64_t>(at_[static_cast<size_t>(axis)]));
    return ops::apply1(op, {value}, attributes);
  }

  const Graph& graph_;
  const Plan& plan_;
  const Mesh& mesh_;
  int rank_;
  std::vector<int> at_;
  Graph local_;
  std::vector<Value> local_values_;
  std::vector<NodeId> local_node_;
  std::map<std::pair<ValueId, std::string>, Value> redistributed_;
  std::map<ValueId, Sharding> completions_;
};

// By value: whether something that is communicated later depends on it.
std::vector<bool> find_awaited(const Graph& local) {
  std::vector<bool> awaited(static_cast<size_t>(local.num_values()));
  for (NodeId n = local.num_nodes() - 1; n >= 0; --n) {
    const Node& node = local.node(n);
    bool leads_on = ops::OpRegistry::instance().get(node.op).collective;
    for (const ValueId v : node.outputs) leads_on = leads_on || awaited[static_cast<size_t>(v)];
    if (!leads_on) continue;
    for (const ValueId v : node.inputs) awaited[static_cast<size_t>(v)] = true;
  }
  return awaited;
}

// Puts all_reduces into buckets, and numbers the collectives in the order in which they are sent: a bucket goes when
// its last member is there. It is closed when it is full or one of its results is wanted.
void order_collectives(Graph& local, const PartitionOptions& options) {
  struct Bucket {
    int64_t number = 0;
    int64_t bytes = 0;
  };
  const auto awaited = find_awaited(local);
  std::map<std::string, Bucket> open;      // by group, reduction and dtype
  std::map<ValueId, std::string> pending;  // results of open buckets
  std::map<int64_t, NodeId> last_member;
  const auto close = [&](const std::string& key) {
    open.erase(key);
    std::erase_if(pending, [&](const auto& entry) { return entry.second == key; });
  };
  int64_t next_bucket = 0;
  for (NodeId n = 0; n < local.num_nodes(); ++n) {
    Node& node = local.mutable_node(n);
    for (const ValueId input : node.inputs) {
      if (const auto it = pending.find(input); it != pending.end()) close(std::string(it->second));
    }
    if (node.op != "all_reduce") continue;
    const Type& type = local.type(node.inputs[0]);
    // What backward waits for (statistics of a split batch, say) does not travel with gradients that only updates need.
    const auto key =
        fmt::format("{} {} {}{}", node.attributes.get_string("group"), node.attributes.get_string("reduction"),
                    type.dtype, awaited[static_cast<size_t>(node.outputs[0])] ? " awaited" : "");
    const auto [it, is_new] = open.try_emplace(key);
    if (is_new) it->second.number = next_bucket++;
    it->second.bytes += type.size_bytes();
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

Graph partition(const Graph& graph, const Plan& plan, int rank, const PartitionOptions& options) {
  Graph local = Partitioner(graph, plan, rank).run();
  order_collectives(local, options);
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
