#include "tessera/compiler/partition/partition.h"

#include <algorithm>
#include <set>

#include "tessera/base/error.h"
#include "tessera/compiler/partition/collective_order.h"
#include "tessera/compiler/partition/lowering.h"
#include "tessera/compiler/partition/wide_sums.h"
#include "tessera/compiler/plan/node_planner.h"
#include "tessera/ops/functions/elementwise_functions.h"
#include "tessera/ops/registry/collective_def.h"
#include "tessera/ops/registry/op_def.h"

namespace tessera::compiler {
namespace {

using ir::Graph;
using ir::Node;
using ir::NodeId;
using ir::Value;
using ir::ValueId;
using mesh::Layout;

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
    bool read = ops::OpRegistry::instance().get(node.op).collective != nullptr;
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
  Partitioner(const Graph& graph, const Plan& plan, int rank, const PartitionOptions& options)
      : graph_(graph),
        plan_(plan),
        rank_(rank),
        options_(options),
        local_(graph.name()),
        lowering_(local_, rank, options.redistribution) {
    plan.meshes[0].coordinates(rank);  // throws for a rank that is not in it
  }

  const CollectiveFacts& facts() const { return facts_; }
  GroupLists groups() const { return lowering_.groups(); }

  Graph run() {
    local_values_.resize(static_cast<size_t>(graph_.num_values()));
    for (const auto& input : graph_.inputs()) {
      const Type& type = graph_.type(input.value);
      local_values_[static_cast<size_t>(input.value)] =
          local_.add_input(input.kind, input.name, local_type(type, plan_.layout(input.value)));
    }
    local_node_.assign(static_cast<size_t>(graph_.num_nodes()), ir::kNone);
    find_completions();
    const auto updates = find_updates(graph_);
    for (const bool late : {false, true}) {
      for (NodeId n = 0; n < graph_.num_nodes(); ++n) {
        if (updates[static_cast<size_t>(n)] != late) continue;
        if (!late) gather_ahead(n, updates);
        add_node(n);
      }
    }
    for (size_t i = 0; i < graph_.outputs().size(); ++i) {
      const auto& output = graph_.outputs()[i];
      // A state that is a partial sum keeps its type.
      const auto layout = plan_.output_layout(graph_, i);
      const Value value = use(output.value, layout);
      const bool is_completed = plan_.layout(output.value).sharding.is_partial() && !layout.sharding.is_partial();
      if (is_completed) {
        local_.set_logical(value.id(), {ir::LogicalPlace::Kind::kOutput, ir::kNone, static_cast<int>(i)});
      }
      local_.add_output(output.name, ops::cast(value, graph_.type(output.value).dtype));
    }
    facts_.bytes.insert(lowering_.collective_bytes().begin(), lowering_.collective_bytes().end());
    find_fusion_ids(updates);
    find_awaited();
    return std::move(local_);
  }

 private:
  std::vector<mesh::Range> slice_of(const Type& type, const Layout& layout) const {
    return mesh::slice_of(type.shape, layout.sharding, layout.mesh, rank_);
  }

  Type local_type(const Type& type, const Layout& layout) const {
    return {type.dtype, mesh::local_shape(type.shape, layout.sharding, layout.mesh, rank_)};
  }

  // Of the first operand's dim that names it.
  int64_t size_of_factor(NodeId n, const std::string& factor) const {
    const auto rule = ops::rule_of(graph_, n);
    for (size_t i = 0; i < rule.inputs.size(); ++i) {
      for (size_t dim = 0; dim < rule.inputs[i].size(); ++dim) {
        if (rule.inputs[i][dim] == factor) return graph_.type(graph_.node(n).inputs[i]).shape[static_cast<int>(dim)];
      }
    }
    return 0;
  }

  void add_node(NodeId n) {
    const Node& node = graph_.node(n);
    const auto at = static_cast<size_t>(n);
    const ops::OpDef& def = ops::OpRegistry::instance().get(node.op);
    const ir::NodeId forward = node.forward == ir::kNone ? ir::kNone : local_node_[static_cast<size_t>(node.forward)];
    const ir::SourceScope scope(local_, node.source, forward, node.line);
    const mesh::Mesh& mesh = plan_.mesh_of_node(n);
    ops::Placement placement{.mesh = mesh, .rank = rank_};
    placement.inputs = plan_.operands[at];
    placement.factor_axes = plan_.factors[at];
    placement.group_over = [&](const std::vector<int>& axes) { return lowering_.group_over(mesh, axes); };
    ops::LocalizeContext context{local_, node.op, node.attributes, {}, {}, {}, {}, {}, {}, {}, {}, &placement};
    for (size_t i = 0; i < node.inputs.size(); ++i) {
      const auto wanted = plan_.operand_layout(n, i);
      const Type& type = graph_.type(node.inputs[i]);
      context.inputs.push_back(use(node.inputs[i], wanted, gathers_again(n, node.inputs[i]), n));
      context.global_inputs.push_back(type);
      context.input_slices.push_back(slice_of(type, wanted));
    }
    for (const ValueId output : node.outputs) {
      const Type& type = graph_.type(output);
      const auto layout = plan_.layout(output);
      context.global_outputs.push_back(type);
      placement.outputs.push_back(layout.sharding);
      context.local_outputs.push_back(local_type(type, layout));
      context.output_slices.push_back(slice_of(type, layout));
    }
    for (const auto& [factor, axes] : plan_.factors[at]) {
      int parts = 1;
      for (const int axis : axes) parts *= mesh.axis(axis).size;
      if (parts > 1) context.parts[factor] = parts;
    }
    const auto blocks = blocks_of(graph_, n, plan_.factors[at], plan_.operands[at]);
    for (const auto& [factor, block] : blocks) {
      context.blocks[factor] = {size_of_factor(n, factor), block};
    }
    facts_.steps.push_back({.node = n, .begin = local_.num_nodes()});
    const auto results = localize_node(def, context);
    check_equal(results.size(), node.outputs.size(), "results of a localized node");
    for (size_t o = 0; o < results.size(); ++o) {
      const Type& planned = context.local_outputs[o];
      const bool is_planned =
          results[o].type() == planned || results[o].type() == Type{dtype_of_parts(planned.dtype), planned.shape};
      if (!is_planned) {
        throw InternalError(fmt::format("{}: rank {} computes {} where the plan says {}", graph_.node_name(n), rank_,
                                        results[o].type(), planned));
      }
      local_values_[static_cast<size_t>(node.outputs[o])] = results[o];
    }
    for (NodeId made = facts_.steps.back().begin; made < local_.num_nodes(); ++made) {
      local_.mutable_node(made).again = node.again;
    }
    local_node_[at] = local_.info(results[0].id()).node;
    if (def.collective != nullptr) facts_.written.insert(local_node_[at]);
    // Written by hand, along no dim: of one shape on all ranks of its group.
    const bool is_of_one_shape = def.collective != nullptr && def.collective->has_buckets &&
                                 def.collective->parts == ops::CollectiveDef::Parts::kNone;
    if (is_of_one_shape) facts_.bytes[local_node_[at]] = results[0].type().size_bytes();
    facts_.steps.back().end = local_.num_nodes();
    mark_values(n, context.inputs, results);
    for (const Value& input : context.inputs) facts_.steps.back().inputs.push_back(input.id());
    for (const Value& result : results) facts_.steps.back().outputs.push_back(result.id());
    // What will be wanted whole is completed as soon as it is there: its sum travels while the rest is computed.
    for (const ValueId v : node.outputs) {
      if (const auto it = completions_.find(v); it != completions_.end()) use(v, it->second);
    }
  }

  // Which values of the logical graph the operands and results of a node are. Who looks at a run's values compares them
  // by that (session/records). An operand is that of another node as it was made, unless it was a part of a sum there.
  void mark_values(NodeId n, const std::vector<Value>& operands, const std::vector<Value>& results) {
    using Kind = ir::LogicalPlace::Kind;
    const Node& node = graph_.node(n);
    for (size_t i = 0; i < operands.size(); ++i) {
      const bool is_completed =
          plan_.layout(node.inputs[i]).sharding.is_partial() && !plan_.operand_layout(n, i).sharding.is_partial();
      if (is_completed) local_.set_logical(operands[i].id(), {Kind::kOperand, n, static_cast<int>(i)});
    }
    for (size_t o = 0; o < results.size(); ++o) {
      const NodeId made_by = local_.info(results[o].id()).node;
      if (made_by < facts_.steps.back().begin || made_by >= facts_.steps.back().end) continue;  // an operand, handed on
      local_.set_logical(results[o].id(), {Kind::kResult, n, static_cast<int>(o)});
    }
  }

  // Starts gathering the parameters that the nodes from `n` on read, up to the limit of what may wait.
  void gather_ahead(NodeId n, const std::vector<bool>& updates) {
    for (; ahead_ < graph_.num_nodes() && (ahead_ <= n || gathered_bytes_ < options_.prefetch_bytes); ++ahead_) {
      if (updates[static_cast<size_t>(ahead_)]) continue;
      const auto& inputs = graph_.node(ahead_).inputs;
      for (size_t i = 0; i < inputs.size(); ++i) {
        const auto layout = plan_.layout(inputs[i]);
        const auto wanted = plan_.operand_layout(ahead_, i);
        if (!is_parameter(inputs[i]) || layout.sharding.is_replicated() || layout == wanted) continue;
        const bool again = gathers_again(ahead_, inputs[i]);
        if (redistributed_.contains(key_of(inputs[i], wanted, again))) continue;
        use(inputs[i], wanted, again);
        first_use_[ahead_] += graph_.type(inputs[i]).size_bytes();
        gathered_bytes_ += graph_.type(inputs[i]).size_bytes();
      }
    }
    if (const auto it = first_use_.find(n); it != first_use_.end()) gathered_bytes_ -= it->second;
  }

  bool is_parameter(ValueId v) const {
    const auto& info = graph_.info(v);
    return info.node == ir::kNone && graph_.inputs()[static_cast<size_t>(info.index)].kind == ir::InputKind::kParameter;
  }

  int fusion_id(const std::string& parameter) const {
    const auto it = options_.fusion_ids.find(parameter);
    return it != options_.fusion_ids.end() ? it->second : 1;
  }

  // The collectives that make a parameter whole, and those of the gradient that its update reads.
  void find_fusion_ids(const std::vector<bool>& updates) {
    std::map<ValueId, int> ids;
    for (const auto& input : graph_.inputs()) {
      if (input.kind == ir::InputKind::kParameter) ids[input.value] = fusion_id(input.name);
    }
    for (NodeId n = 0; n < graph_.num_nodes(); ++n) {
      if (!updates[static_cast<size_t>(n)]) continue;
      const auto& inputs = graph_.node(n).inputs;
      const auto parameter = std::find_if(inputs.begin(), inputs.end(), [&](ValueId v) { return is_parameter(v); });
      if (parameter == inputs.end()) continue;
      for (const ValueId v : inputs) {
        if (plan_.values[static_cast<size_t>(v)].is_partial()) ids.try_emplace(v, ids.at(*parameter));
      }
    }
    for (const auto& [use, way] : redistributed_) {
      const auto id = ids.find(use.first);
      // All collectives of the way, from the last back to what was there before.
      for (ValueId v = way.result.id(); id != ids.end() && v != local_values_[static_cast<size_t>(use.first)].id();) {
        const NodeId n = local_.info(v).node;
        if (n == ir::kNone || local_.node(n).inputs.empty()) break;
        if (facts_.bytes.contains(n)) facts_.fusion_ids[n] = id->second;
        v = local_.node(n).inputs[0];
      }
    }
  }

  // The collectives among the local nodes [begin, end), in their order.
  std::vector<NodeId> collectives(NodeId begin, NodeId end) const {
    std::vector<NodeId> found;
    for (NodeId n = begin; n < end; ++n) {
      if (ops::OpRegistry::instance().get(local_.node(n).op).collective) found.push_back(n);
    }
    return found;
  }

  // Finds the collectives on whose results later collectives depend. It goes by the logical graph, since ranks differ
  // in what they make of a node: one may contribute to a sum what the others do not have.
  void find_awaited() {
    std::vector<bool> leads_on(static_cast<size_t>(graph_.num_values()));
    for (const auto& [use, way] : redistributed_) {
      if (!collectives(way.begin, way.end).empty()) leads_on[static_cast<size_t>(use.first)] = true;
    }
    std::vector<bool> node_leads_on(static_cast<size_t>(graph_.num_nodes()));
    for (const auto& step : facts_.steps) {
      node_leads_on[static_cast<size_t>(step.node)] = !collectives(step.begin, step.end).empty();
    }
    const auto any_leads_on = [&](const std::vector<ValueId>& values) {
      return std::any_of(values.begin(), values.end(), [&](ValueId v) { return leads_on[static_cast<size_t>(v)]; });
    };
    for (NodeId n = graph_.num_nodes() - 1; n >= 0; --n) {
      if (any_leads_on(graph_.node(n).outputs)) node_leads_on[static_cast<size_t>(n)] = true;
      if (!node_leads_on[static_cast<size_t>(n)]) continue;
      for (const ValueId v : graph_.node(n).inputs) leads_on[static_cast<size_t>(v)] = true;
    }
    // Those of one node, or of one way, wait for each other.
    const auto add = [&](std::vector<NodeId> found, bool last_is_awaited) {
      if (!last_is_awaited && !found.empty()) found.pop_back();
      facts_.awaited.insert(found.begin(), found.end());
    };
    for (const auto& step : facts_.steps) {
      add(collectives(step.begin, step.end), any_leads_on(graph_.node(step.node).outputs));
    }
    for (const auto& [use, way] : redistributed_) {
      const bool is_read = std::any_of(way.readers.begin(), way.readers.end(),
                                       [&](NodeId reader) { return node_leads_on[static_cast<size_t>(reader)]; });
      add(collectives(way.begin, way.end), is_read || way.is_awaited);
    }
  }

  // Partial values that are completed in one way: all their uses want the same, or want it whole as it lies.
  void find_completions() {
    std::set<ValueId> several;
    const auto look = [&](ValueId v, const Layout& wanted) {
      const auto produced = plan_.layout(v);
      if (!produced.sharding.is_partial() || wanted.sharding.is_partial()) return;
      const auto [it, is_first] = completions_.emplace(v, wanted);
      if (!is_first && !(it->second == wanted)) {
        several.insert(v);
        if (is_completed_in_place(produced, wanted)) it->second = wanted;
      }
    };
    for (NodeId n = 0; n < graph_.num_nodes(); ++n) {
      const auto& inputs = graph_.node(n).inputs;
      for (size_t i = 0; i < inputs.size(); ++i) {
        look(inputs[i], plan_.copies.contains(inputs[i]) ? plan_.source_layout(inputs[i]) : plan_.operand_layout(n, i));
      }
    }
    for (size_t i = 0; i < graph_.outputs().size(); ++i) {
      look(graph_.outputs()[i].value, plan_.output_layout(graph_, i));
    }
    std::erase_if(completions_, [&](const auto& entry) {
      return several.contains(entry.first) && !is_completed_in_place(plan_.layout(entry.first), entry.second);
    });
  }

  static bool is_completed_in_place(const Layout& produced, const Layout& wanted) {
    return produced.mesh == wanted.mesh && produced.sharding.dims == wanted.sharding.dims;
  }

  // Whether node `n` reads a parameter that the forward pass has gathered and let go.
  bool gathers_again(NodeId n, ValueId v) const {
    const NodeId forward = graph_.node(n).forward;
    return forward != ir::kNone && graph_.node(forward).recompute.gathers_parameters && is_parameter(v);
  }

  static std::pair<ValueId, std::string> key_of(ValueId v, const Layout& wanted, bool again) {
    return {v, wanted.to_string() + (again ? " again" : "")};
  }

  // The value in the layout that a use wants; equal uses share the collectives, those before and after it is gathered
  // `again` with their like.
  Value use(ValueId v, const Layout& wanted, bool again = false, NodeId reader = ir::kNone) {
    const auto produced = plan_.layout(v);
    if (produced == wanted) return local_values_[static_cast<size_t>(v)];
    const auto key = key_of(v, wanted, again);
    if (const auto it = redistributed_.find(key); it != redistributed_.end()) {
      if (reader != ir::kNone) it->second.readers.push_back(reader);
      // What reads it reads the copy that it is made of.
      const auto source = key_of(v, plan_.source_layout(v), again);
      if (reader != ir::kNone && source != key && redistributed_.contains(source)) {
        redistributed_.at(source).readers.push_back(reader);
      }
      return it->second.result;
    }
    // From the copy that several readers share, where there is one.
    const auto source = plan_.source_layout(v);
    const bool from_copy = !(source == produced) && !(source == wanted);
    const Value held = from_copy ? use(v, source, again, reader) : local_values_[static_cast<size_t>(v)];
    const NodeId producer = graph_.info(v).node;
    const bool is_input = producer == ir::kNone;
    const ir::SourceScope scope(local_, is_input ? graph_.value_name(v) : graph_.node(producer).source, ir::kNone,
                                is_input ? "" : graph_.node(producer).line);
    Way way{.begin = local_.num_nodes()};
    way.result = lowering_.redistribute(held, graph_.type(v), from_copy ? source : produced, wanted);
    way.end = local_.num_nodes();
    if (from_copy && !collectives(way.begin, way.end).empty()) {
      redistributed_.at(key_of(v, source, again)).is_awaited = true;
    }
    if (reader != ir::kNone) way.readers.push_back(reader);
    return redistributed_.emplace(key, std::move(way)).first->second.result;
  }

  // A value in another layout: the local nodes [begin, end), and the logical nodes that read it so.
  struct Way {
    NodeId begin = 0;
    NodeId end = 0;
    Value result;
    std::vector<NodeId> readers;
    bool is_awaited = false;  // by collectives on the way from it to others
  };

  const Graph& graph_;
  const Plan& plan_;
  int rank_;
  const PartitionOptions& options_;
  Graph local_;
  std::vector<Value> local_values_;
  std::vector<NodeId> local_node_;
  std::map<std::pair<ValueId, std::string>, Way> redistributed_;
  std::map<ValueId, Layout> completions_;
  RedistributionLowering lowering_;
  NodeId ahead_ = 0;                     // the first node whose parameters have not been asked for
  int64_t gathered_bytes_ = 0;           // of parameters that wait to be used
  std::map<NodeId, int64_t> first_use_;  // bytes of the parameters gathered for it
  CollectiveFacts facts_;
};

}  // namespace

Graph partition(const Graph& graph, const Plan& plan, int rank, const PartitionOptions& options, GroupLists* groups,
                std::vector<LogicalStep>* steps) {
  Partitioner partitioner(graph, plan, rank, options);
  Graph local = partitioner.run();
  if (groups != nullptr) *groups = partitioner.groups();
  order_collectives(local, partitioner.facts(), options);
  if (steps != nullptr) *steps = partitioner.facts().steps;
  return local;
}

}  // namespace tessera::compiler
