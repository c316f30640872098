#include "tessera/compiler/stages/stage_placement.h"

#include <algorithm>
#include <optional>
#include <tuple>

#include "tessera/base/error.h"
#include "tessera/ops/registry/op_def.h"

namespace tessera::compiler {
namespace {

using ir::Graph;
using ir::Node;
using ir::NodeId;
using ir::ValueId;
using pipeline::PhaseKind;

std::string cell_of(const Node& node) {
  return node.source.empty() || node.source == "." ? "the network itself" : fmt::format("cell \"{}\"", node.source);
}

class Placer {
 public:
  Placer(const Graph& graph, const StageOptions& options)
      : graph_(graph), options_(options), num_nodes_(static_cast<size_t>(graph.num_nodes())) {
    result_.num_stages = options.num_stages;
    result_.split_backward = options.split_backward;
    result_.gathered = options.gathered;
    result_.nodes.assign(num_nodes_, ir::kNone);
    result_.phases.assign(num_nodes_, PhaseKind::kForward);
    result_.is_constant.assign(num_nodes_, false);
  }

  StagePlacement run() {
    check_range();
    find_forward();
    find_common();
    place_forward();
    place_values();
    place_backward();
    if (options_.require_parameters) require_parameters();
    if (options_.split_backward) split_backward();
    return std::move(result_);
  }

 private:
  const Node& node(size_t n) const { return graph_.node(static_cast<NodeId>(n)); }
  int& stage(size_t n) { return result_.nodes[n]; }

  const ir::Input* input_of(ValueId v) const {
    const auto& info = graph_.info(v);
    return info.node == ir::kNone ? &graph_.inputs()[static_cast<size_t>(info.index)] : nullptr;
  }
  bool is_common_input(ValueId v) const {
    const ir::Input* input = input_of(v);
    return input != nullptr && options_.common_states.contains(input->name);
  }
  bool is_forward(size_t n) const { return is_forward_[n]; }

  void check_range() {
    for (size_t n = 0; n < num_nodes_; ++n) {
      const int wanted = node(n).stage;
      if (wanted < options_.num_stages) continue;
      throw InvalidArgument(
          "{} is on stage {}, but the stages are 0 to {}: give it one of these by set_stage(), or make "
          "more stages",
          cell_of(node(n)), wanted, options_.num_stages - 1);
    }
  }

  // What the loss and new values of states are made of; all else is backward.
  void find_forward() {
    is_forward_.assign(num_nodes_, false);
    std::vector<bool> wanted(static_cast<size_t>(graph_.num_values()));
    for (const auto& output : graph_.outputs()) {
      if (!options_.accumulators.contains(output.name)) wanted[static_cast<size_t>(output.value)] = true;
    }
    for (size_t n = num_nodes_; n-- > 0;) {
      const auto& outputs = node(n).outputs;
      is_forward_[n] =
          std::any_of(outputs.begin(), outputs.end(), [&](ValueId v) { return wanted[static_cast<size_t>(v)]; });
      if (!is_forward_[n]) {
        result_.phases[n] = PhaseKind::kBackward;
        continue;
      }
      for (const ValueId v : node(n).inputs) wanted[static_cast<size_t>(v)] = true;
    }
  }

  void find_common() {
    for (size_t n = 0; n < num_nodes_; ++n) {
      const auto& inputs = node(n).inputs;
      if (ops::OpRegistry::instance().get(node(n).op).collective) continue;
      const bool is_common = std::all_of(inputs.begin(), inputs.end(), [&](ValueId v) {
        const NodeId producer = graph_.info(v).node;
        return producer == ir::kNone ? is_common_input(v) : stage(static_cast<size_t>(producer)) == kEveryStage;
      });
      if (!is_common) continue;
      stage(n) = kEveryStage;
      result_.is_constant[n] = std::all_of(inputs.begin(), inputs.end(), [&](ValueId v) {
        const NodeId producer = graph_.info(v).node;
        return producer != ir::kNone && result_.is_constant[static_cast<size_t>(producer)];
      });
    }
  }

  // The last of the stages whose results the node reads, and a node that makes one of them.
  std::pair<int, NodeId> latest_input(size_t n) {
    std::pair<int, NodeId> latest{0, ir::kNone};
    for (const ValueId v : node(n).inputs) {
      const NodeId producer = graph_.info(v).node;
      if (producer == ir::kNone) continue;
      const int from = stage(static_cast<size_t>(producer));
      if (from > latest.first || latest.second == ir::kNone) latest = {std::max(from, 0), producer};
    }
    return latest;
  }

  void place_forward() {
    std::vector<int> earliest_user(num_nodes_, options_.num_stages);
    for (size_t n = num_nodes_; n-- > 0;) {
      if (!is_forward(n) || stage(n) == kEveryStage) continue;
      const int wanted = node(n).stage != ir::kNone ? node(n).stage : earliest_user[n];
      for (const ValueId v : node(n).inputs) {
        const NodeId producer = graph_.info(v).node;
        if (producer == ir::kNone) continue;
        int& earliest = earliest_user[static_cast<size_t>(producer)];
        earliest = std::min(earliest, wanted);
      }
    }
    for (size_t n = 0; n < num_nodes_; ++n) {
      if (!is_forward(n) || stage(n) == kEveryStage) continue;
      const auto [least, producer] = latest_input(n);
      if (node(n).stage == ir::kNone) {
        stage(n) = earliest_user[n] < options_.num_stages ? std::max(earliest_user[n], least) : least;
        continue;
      }
      stage(n) = node(n).stage;
      if (stage(n) >= least) continue;
      throw InvalidArgument(
          "{} is on stage {} and reads what {} computes on stage {}: a stage reads only what comes "
          "before it; set_stage({}) or later for the first, or an earlier stage for the second",
          cell_of(node(n)), stage(n), cell_of(graph_.node(producer)), least, least);
    }
  }

  // Parameters and states are where they are read.
  void place_values() {
    std::map<ValueId, size_t> first_reader;
    std::map<ValueId, std::set<int>> stages;
    for (size_t n = 0; n < num_nodes_; ++n) {
      if (!is_forward(n) || stage(n) == kEveryStage) continue;
      for (const ValueId v : node(n).inputs) {
        const ir::Input* input = input_of(v);
        if (input == nullptr || input->kind == ir::InputKind::kInput || is_common_input(v)) continue;
        const auto [it, is_first] = first_reader.emplace(v, n);
        stages[v].insert(stage(n));
        if (is_first || stage(it->second) == stage(n) || input->kind == ir::InputKind::kParameter) continue;
        const size_t first = it->second;
        throw InvalidArgument(
            "state \"{}\" is read by {} on stage {} and by {} on stage {}: a pipeline keeps it on one stage; give both "
            "cells one stage",
            input->name, cell_of(node(first)), stage(first), cell_of(node(n)), stage(n));
      }
    }
    for (const auto& input : graph_.inputs()) {
      if (input.kind == ir::InputKind::kInput || options_.accumulators.contains(input.name)) continue;
      if (is_common_input(input.value)) {
        result_.values[input.name] = kEveryStage;
        continue;
      }
      const auto readers = stages.find(input.value);
      result_.values[input.name] = readers == stages.end() ? 0 : *readers->second.begin();
      if (readers != stages.end() && readers->second.size() > 1) {
        result_.shared[input.name].assign(readers->second.begin(), readers->second.end());
      }
    }
    // A state that is written and not read.
    for (const auto& output : graph_.outputs()) {
      const ir::Input* input = graph_.find_input(output.name);
      const NodeId producer = graph_.info(output.value).node;
      if (input == nullptr || producer == ir::kNone || first_reader.contains(input->value)) continue;
      if (options_.accumulators.contains(output.name) || is_common_input(input->value)) continue;
      result_.values[output.name] = std::max(0, stage(static_cast<size_t>(producer)));
    }
    for (const auto& [accumulator, parameter] : options_.accumulators) {
      if (graph_.find_input(accumulator) == nullptr) continue;
      const auto own = options_.other_accumulators.find(accumulator);
      const auto at = result_.values.find(parameter);
      result_.values[accumulator] = own != options_.other_accumulators.end() ? own->second.stage
                                    : at == result_.values.end()             ? 0
                                                                             : at->second;
    }
  }

  void place_backward() {
    for (size_t n = 0; n < num_nodes_; ++n) {
      if (is_forward(n) || stage(n) == kEveryStage) continue;
      const NodeId forward = node(n).forward;
      if (forward != ir::kNone && stage(static_cast<size_t>(forward)) >= 0) {
        stage(n) = stage(static_cast<size_t>(forward));
        continue;
      }
      stage(n) = stage_of_operands(n);
    }
  }

  // Of an accumulator among them, else of the first that some stage has.
  int stage_of_operands(size_t n) {
    std::optional<int> found;
    for (const ValueId v : node(n).inputs) {
      const ir::Input* input = input_of(v);
      if (input != nullptr && options_.accumulators.contains(input->name)) return result_.values.at(input->name);
      int at = kEveryStage;
      if (input != nullptr) {
        const auto it = result_.values.find(input->name);
        if (it != result_.values.end()) at = it->second;
      } else {
        at = stage(static_cast<size_t>(graph_.info(v).node));
      }
      if (at >= 0 && !found) found = at;
    }
    return found.value_or(options_.num_stages - 1);
  }

  void require_parameters() const {
    std::vector<bool> has_parameters(static_cast<size_t>(options_.num_stages));
    for (const auto& input : graph_.inputs()) {
      if (input.kind != ir::InputKind::kParameter) continue;
      const int at = result_.values.at(input.name);
      if (at >= 0) has_parameters[static_cast<size_t>(at)] = true;
    }
    for (const auto& [name, stages] : result_.shared) {
      for (const int at : stages) has_parameters[static_cast<size_t>(at)] = true;
    }
    for (size_t s = 0; s < has_parameters.size(); ++s) {
      if (has_parameters[s]) continue;
      bool any = false;
      for (size_t n = 0; n < num_nodes_; ++n) any = any || node(n).stage != ir::kNone;
      throw InvalidArgument(
          "stage {} of {} has no parameters{}: call set_stage({}) on a cell that has some, or use fewer "
          "stages",
          s, options_.num_stages, any ? "" : ", because no cell names its stage", s);
    }
  }

  // What no other stage waits for is the gradient of parameters.
  void split_backward() {
    std::vector<bool> leaves(static_cast<size_t>(graph_.num_values()));
    for (const auto& message : stage_messages(graph_, result_)) {
      if (message.made != PhaseKind::kForward) leaves[static_cast<size_t>(message.value)] = true;
    }
    for (size_t n = num_nodes_; n-- > 0;) {
      if (is_forward(n)) continue;
      const auto& outputs = node(n).outputs;
      const bool is_awaited =
          std::any_of(outputs.begin(), outputs.end(), [&](ValueId v) { return leaves[static_cast<size_t>(v)]; });
      result_.phases[n] = is_awaited ? PhaseKind::kBackward : PhaseKind::kWeightGradient;
      if (!is_awaited) continue;
      for (const ValueId v : node(n).inputs) leaves[static_cast<size_t>(v)] = true;
    }
  }

  const Graph& graph_;
  const StageOptions& options_;
  size_t num_nodes_;
  std::vector<bool> is_forward_;
  StagePlacement result_;
};

}  // namespace

void require_micro_batches(int num_stages, int micro_batches) {
  if (micro_batches >= num_stages) return;
  throw InvalidArgument(
      "a pipeline of {} stages needs as many micro-batches at least, got {}: cut the batch into more, or use fewer "
      "stages",
      num_stages, micro_batches);
}

StagePlacement place_on_stages(const Graph& graph, const StageOptions& options) { return Placer(graph, options).run(); }

std::string gathered_name(const std::string& parameter) { return "whole." + parameter; }

std::vector<StageMessage> stage_messages(const Graph& graph, const StagePlacement& placement) {
  std::map<std::pair<ValueId, int>, StageMessage> found;
  for (NodeId n = 0; n < graph.num_nodes(); ++n) {
    const int reader = placement.stage_of(n);
    if (reader == kEveryStage) continue;
    for (const ValueId v : graph.node(n).inputs) {
      const NodeId producer = graph.info(v).node;
      if (producer == ir::kNone) continue;
      const int from = placement.stage_of(producer);
      if (from == kEveryStage || from == reader) continue;
      const auto [it, is_new] = found.emplace(
          std::pair{v, reader}, StageMessage{v, from, reader, placement.phase_of(producer), placement.phase_of(n)});
      if (!is_new) it->second.read = std::min(it->second.read, placement.phase_of(n));
    }
  }
  std::vector<StageMessage> messages;
  for (const auto& [key, message] : found) messages.push_back(message);
  std::sort(messages.begin(), messages.end(), [](const StageMessage& a, const StageMessage& b) {
    return std::tuple(a.from, a.made, a.to, a.value) < std::tuple(b.from, b.made, b.to, b.value);
  });
  return messages;
}

}  // namespace tessera::compiler
