#include "tessera/compiler/stages/shared_parameters.h"

#include <algorithm>
#include <map>
#include <set>
#include <tuple>

#include "tessera/base/error.h"
#include "tessera/compiler/passes/passes.h"
#include "tessera/compiler/passes/rewrite.h"

namespace tessera::compiler {
namespace {

using ir::Graph;
using ir::Node;
using ir::NodeId;
using ir::Value;
using ir::ValueId;

const ir::Input* input_of(const ir::Graph& graph, ValueId v) {
  const auto& info = graph.info(v);
  return info.node == ir::kNone ? &graph.inputs()[static_cast<size_t>(info.index)] : nullptr;
}

bool is_parameter(const Graph& graph, ValueId v) {
  const ir::Input* input = input_of(graph, v);
  return input != nullptr && input->kind == ir::InputKind::kParameter;
}

// Splits sums of gradients into the parts that the chunks have.
class GradientSplitter {
 public:
  GradientSplitter(Graph& graph, const StagePlacement& placement) : graph_(graph), placement_(placement) {}

  // By chunk; what no chunk has in particular is the owner's.
  std::map<int, Value> parts_of(ValueId v, int owner) {
    const NodeId producer = graph_.info(v).node;
    if (producer == ir::kNone) return {{owner, graph_.value(v)}};
    const Node node = graph_.node(producer);  // a copy: adding nodes moves the originals
    std::map<int, Value> parts;
    if (node.op == "add" && graph_.type(node.inputs[0]) == graph_.type(node.inputs[1])) {
      parts = parts_of(node.inputs[0], owner);
      for (const auto& [chunk, part] : parts_of(node.inputs[1], owner)) {
        const auto [it, is_first] = parts.emplace(chunk, part);
        if (!is_first) it->second = apply(node, std::vector{it->second, part}, v);
      }
    } else if (node.op == "cast") {
      for (const auto& [chunk, part] : parts_of(node.inputs[0], owner)) {
        parts.emplace(chunk, apply(node, std::vector{part}, v));
      }
    } else {
      const int chunk = placement_.chunk_of(producer);
      return {{chunk == kEveryStage ? owner : chunk, graph_.value(v)}};
    }
    if (parts.size() == 1) return {{parts.begin()->first, graph_.value(v)}};
    return parts;
  }

  // A node like that one, for other operands.
  Value apply(const Node& like, const std::vector<Value>& inputs, ValueId result) {
    graph_.set_origin({like.source, ir::kNone, {}, ir::kNone, 0, like.line});
    const std::vector<Type> types = {graph_.type(result)};
    Value made = graph_.add_node(like.op, inputs, like.attributes, types)[0];
    graph_.set_origin({});
    return made;
  }

 private:
  Graph& graph_;
  const StagePlacement& placement_;
};

// Whether the value is a served parameter, or a cast of one.
bool is_served(const ir::Graph& graph, ValueId v, const std::set<std::string>& served) {
  if (const ir::Input* input = input_of(graph, v)) return served.contains(input->name);
  const ir::Node& node = graph.node(graph.info(v).node);
  return node.op == "cast" && is_served(graph, node.inputs[0], served);
}

// By NodeId: whether its results are made of data inputs and constants alone.
std::vector<bool> made_of_data(const ir::Graph& graph) {
  std::vector<bool> result(static_cast<size_t>(graph.num_nodes()));
  for (NodeId n = 0; n < graph.num_nodes(); ++n) {
    const auto& inputs = graph.node(n).inputs;
    result[static_cast<size_t>(n)] = std::all_of(inputs.begin(), inputs.end(), [&](ValueId v) {
      const ir::Input* input = input_of(graph, v);
      return input != nullptr ? input->kind == ir::InputKind::kInput : result[static_cast<size_t>(graph.info(v).node)];
    });
  }
  return result;
}

std::vector<SharedMessage> by_stages(const std::map<std::pair<int, int>, std::vector<std::string>>& found) {
  std::vector<SharedMessage> messages;
  for (const auto& [stages, values] : found) messages.push_back({values, stages.first, stages.second});
  return messages;
}

}  // namespace

Graph repeat_casts(const Graph& graph, const StagePlacement& placement) {
  Rewriter rewriter(graph);
  std::map<std::pair<ValueId, int>, Value> repeated;
  for (NodeId n = 0; n < graph.num_nodes(); ++n) {
    const Node& node = graph.node(n);
    const int chunk = placement.chunk_of(n);
    std::map<ValueId, Value> originals;
    for (const ValueId v : node.inputs) {
      const auto it = repeated.find({v, chunk});
      if (it == repeated.end()) continue;
      originals.emplace(v, rewriter.at(v));
      rewriter.set(v, it->second);
    }
    rewriter.copy(n);
    for (const auto& [v, value] : originals) rewriter.set(v, value);
    if (node.op != "cast" || node.forward != ir::kNone || !is_parameter(graph, node.inputs[0])) continue;
    const ValueId v = node.outputs[0];
    for (NodeId reader = n + 1; reader < graph.num_nodes(); ++reader) {
      const int other = placement.chunk_of(reader);
      const auto& inputs = graph.node(reader).inputs;
      if (other == chunk || other == kEveryStage || repeated.contains({v, other})) continue;
      if (std::find(inputs.begin(), inputs.end(), v) == inputs.end()) continue;
      const Value original = rewriter.at(v);
      rewriter.copy(n);
      repeated.emplace(std::pair{v, other}, rewriter.at(v));
      ir::Node& made = rewriter.graph().mutable_node(rewriter.new_node(n));
      made.stage = placement.stage_of_chunk(other);
      made.segment = placement.chunks.segments[static_cast<size_t>(other)];
      rewriter.set(v, original);
      rewriter.stands_for(n, rewriter.graph().info(original.id()).node);
    }
  }
  return rewriter.finish();
}

Graph split_accumulators(const Graph& graph, const StagePlacement& placement, StageOptions& options) {
  Graph result = graph;
  const auto& outputs = graph.outputs();
  result.clear_outputs();
  const auto accumulators = options.accumulators;
  GradientSplitter splitter(result, placement);
  for (const auto& output : outputs) {
    const auto accumulator = accumulators.find(output.name);
    const bool is_shared =
        accumulator != accumulators.end() && placement.shared_by_chunks.contains(accumulator->second);
    const NodeId producer = graph.info(output.value).node;
    // Rows are put one behind the other where their parameter is, whoever makes them, or taken as they are.
    if (!is_shared || producer == ir::kNone || graph.node(producer).op == "scatter_add" ||
        placement.unsummed.contains(output.name)) {
      result.add_output(output.name, result.value(output.value));
      continue;
    }
    const Node& sum = graph.node(producer);
    const ValueId held = graph.find_input(output.name)->value;
    check(sum.op == "add" && sum.inputs[0] == held, "a gradient is added to its accumulator");
    const int owner = placement.value_chunks.at(accumulator->second);
    const Type type = graph.type(held);
    const auto parts = splitter.parts_of(sum.inputs[1], owner);
    // An owner that adds up nothing itself leaves its accumulator to the first of the others.
    const int keeper = parts.contains(owner) ? owner : parts.begin()->first;
    for (const auto& [chunk, part] : parts) {
      std::string name = output.name;
      if (chunk == keeper && chunk != owner) options.other_accumulators[name] = {name, chunk};
      if (chunk != keeper) {
        name = fmt::format("{} of chunk {}", output.name, chunk);
        options.accumulators[name] = accumulator->second;
        options.other_accumulators[name] = {output.name, chunk};
      }
      const Value own = result.add_input(ir::InputKind::kState, name, type);
      result.add_output(name, splitter.apply(sum, std::vector{own, part}, output.value));
    }
  }
  return remove_dead_code(result);
}

Graph sum_accumulators(const Graph& update, const StageOptions& options) {
  Rewriter rewriter(update);
  Graph& graph = rewriter.graph();
  for (const auto& [name, other_chunk] : options.other_accumulators) {
    const ir::Input* held = update.find_input(other_chunk.of_owner);
    if (held == nullptr || name == other_chunk.of_owner) continue;
    const Value other = graph.add_input(ir::InputKind::kState, name, update.type(held->value));
    graph.set_origin({"accumulate", ir::kNone, {}, ir::kNone});
    const Value operands[] = {rewriter.at(held->value), other};
    const Type types[] = {update.type(held->value)};
    rewriter.set(held->value, graph.add_node("add", operands, {}, types)[0]);
  }
  for (NodeId n = 0; n < update.num_nodes(); ++n) rewriter.copy(n);
  return rewriter.finish();
}

std::vector<SharedMessage> messages_of_sums(const StagePlacement& placement, const StageOptions& options) {
  std::map<std::pair<int, int>, std::vector<std::string>> found;
  for (const auto& [accumulator, other] : options.other_accumulators) {
    const int from = placement.stage_of_chunk(other.chunk);
    const int to = placement.values.at(options.accumulators.at(accumulator));
    if (from != to) found[{from, to}].push_back(accumulator);
  }
  return by_stages(found);
}

std::vector<SharedMessage> messages_of_values(const StagePlacement& placement, const StageOptions& options) {
  std::set<std::string> trained;
  for (const auto& [accumulator, parameter] : options.accumulators) trained.insert(parameter);
  std::map<std::pair<int, int>, std::vector<std::string>> found;
  for (const auto& [parameter, stages] : placement.shared) {
    if (!trained.contains(parameter)) continue;
    for (const int stage : stages) {
      if (stage != stages.front()) found[{stages.front(), stage}].push_back(parameter);
    }
  }
  return by_stages(found);
}

void place_for_servers(ir::Graph& graph, const std::set<std::string>& served) {
  const auto is_data = made_of_data(graph);
  for (NodeId n = 0; n < graph.num_nodes(); ++n) {
    ir::Node& node = graph.mutable_node(n);
    node.stage = 1;
    node.segment = 0;
    // What data alone is made into is wherever it is read first.
    if (is_data[static_cast<size_t>(n)]) node.stage = ir::kNone;
    if (node.op != "gather" || node.attributes.get_int("axis") != 0 || !is_served(graph, node.inputs[0], served))
      continue;
    const ir::Input* indices = input_of(graph, node.inputs[1]);
    const bool are_data = indices != nullptr ? indices->kind == ir::InputKind::kInput
                                             : is_data[static_cast<size_t>(graph.info(node.inputs[1]).node)];
    if (!are_data) continue;
    node.stage = 0;
    for (ValueId v = node.inputs[0]; input_of(graph, v) == nullptr; v = graph.node(graph.info(v).node).inputs[0]) {
      graph.mutable_node(graph.info(v).node).stage = 0;
    }
  }
}

}  // namespace tessera::compiler
