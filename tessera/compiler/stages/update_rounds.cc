#include "tessera/compiler/stages/update_rounds.h"

#include <algorithm>
#include <set>

#include "tessera/base/error.h"

namespace tessera::compiler {
namespace {

using ir::Graph;
using ir::NodeId;
using ir::ValueId;

class UpdatePlacer {
 public:
  UpdatePlacer(const Graph& graph, std::map<std::string, int>& values, const std::set<std::string>& summed)
      : graph_(graph), values_(values), summed_(summed), num_nodes_(static_cast<size_t>(graph.num_nodes())) {}

  UpdateRounds run() {
    // A state is where its new value is made, which may be made of other states.
    do place_nodes();
    while (place_states());
    for (const auto& input : graph_.inputs()) {
      if (input.kind != ir::InputKind::kInput) values_.try_emplace(input.name, kEveryStage);
    }
    find_told();
    find_rounds();
    return std::move(result_);
  }

 private:
  const ir::Node& node(size_t n) const { return graph_.node(static_cast<NodeId>(n)); }

  int stage_of(ValueId v) const {
    const auto& info = graph_.info(v);
    if (info.node != ir::kNone) return result_.nodes[static_cast<size_t>(info.node)];
    const auto it = values_.find(graph_.inputs()[static_cast<size_t>(info.index)].name);
    return it == values_.end() ? kEveryStage : it->second;
  }

  bool makes_guard(size_t n) const {
    const ir::Output* guard = graph_.find_output(ir::kUpdateGuard);
    return guard != nullptr && graph_.info(guard->value).node == static_cast<NodeId>(n);
  }

  // Where the node is computed: on the stage whose values it reads. Where several have some, numbers are told and every
  // stage goes on with them, so that a sum over all stages takes one round; else the stage that has most of it computes
  // it. The guard is for all stages.
  int place(size_t n) {
    std::map<int, int64_t> bytes;  // by stage: of the largest operand
    bool are_numbers = true;
    bool is_told = false;
    for (const ValueId v : node(n).inputs) {
      const int stage = stage_of(v);
      if (stage == kEveryStage) {
        const NodeId producer = graph_.info(v).node;
        is_told = is_told || (producer != ir::kNone && is_made_of_told_[static_cast<size_t>(producer)]);
        continue;
      }
      int64_t& most = bytes[stage];
      most = std::max(most, graph_.type(v).size_bytes());
      are_numbers = are_numbers && graph_.type(v).shape.num_elements() == 1;
    }
    const bool is_joint = makes_guard(n) || (are_numbers && (bytes.size() > 1 || (is_told && !bytes.empty())));
    is_made_of_told_[n] = is_joint || (is_told && bytes.empty());
    if (is_joint || bytes.empty()) return kEveryStage;
    return std::max_element(
               bytes.begin(), bytes.end(),
               [](const auto& x, const auto& y) { return std::pair(x.second, x.first) < std::pair(y.second, y.first); })
        ->first;
  }

  void place_nodes() {
    result_.nodes.assign(num_nodes_, kEveryStage);
    result_.is_constant.assign(num_nodes_, false);
    is_made_of_told_.assign(num_nodes_, false);
    for (size_t n = 0; n < num_nodes_; ++n) {
      const auto& inputs = node(n).inputs;
      result_.is_constant[n] = std::all_of(inputs.begin(), inputs.end(), [&](ValueId v) {
        const NodeId producer = graph_.info(v).node;
        return producer != ir::kNone && result_.is_constant[static_cast<size_t>(producer)];
      });
      result_.nodes[n] = place(n);
    }
  }

  bool place_states() {
    bool has_moved = false;
    for (const auto& output : graph_.outputs()) {
      if (graph_.find_input(output.name) == nullptr) continue;
      const int made = stage_of(output.value);
      int& own = values_.try_emplace(output.name, kEveryStage).first->second;
      if (made == own || made == kEveryStage) continue;
      if (own != kEveryStage) {
        throw InvalidArgument(
            "the update of \"{}\" of stage {} is a value of stage {}: a pipeline keeps what becomes of a parameter on "
            "the parameter's stage",
            output.name, own, made);
      }
      own = made;
      has_moved = true;
    }
    return has_moved;
  }

  // The round after which a value is there: 0 is the first.
  int level_of(ValueId v) const {
    const NodeId producer = graph_.info(v).node;
    return producer == ir::kNone ? 0 : levels_[static_cast<size_t>(producer)];
  }

  void find_told() {
    levels_.assign(num_nodes_, 0);
    int last = 0;
    for (size_t n = 0; n < num_nodes_; ++n) {
      for (const ValueId v : node(n).inputs) {
        const bool is_told = stage_of(v) != kEveryStage && stage_of(v) != result_.nodes[n];
        levels_[n] = std::max(levels_[n], level_of(v) + (is_told ? 1 : 0));
        if (!is_told) continue;
        result_.told.resize(std::max(result_.told.size(), static_cast<size_t>(level_of(v)) + 1));
        result_.told[static_cast<size_t>(level_of(v))].emplace(v, stage_of(v));
      }
      last = std::max(last, levels_[n]);
    }
    result_.num_rounds = last + 1;
    result_.told.resize(static_cast<size_t>(last));
  }

  void find_rounds() {
    const int last = result_.num_rounds - 1;
    result_.rounds.assign(num_nodes_, last);
    const auto at_latest = [&](ValueId v, int round) {
      const NodeId producer = graph_.info(v).node;
      if (producer == ir::kNone) return;
      int& own = result_.rounds[static_cast<size_t>(producer)];
      own = std::min(own, round);
    };
    for (size_t round = 0; round < result_.told.size(); ++round) {
      for (const auto& [v, stage] : result_.told[round]) at_latest(v, static_cast<int>(round));
    }
    for (size_t n = num_nodes_; n-- > 0;) {
      for (const ValueId v : node(n).inputs) at_latest(v, result_.rounds[n]);
    }
    for (const auto& name : summed_) {
      if (const ir::Input* input = graph_.find_input(name)) find_kept(input->value);
    }
  }

  // A sum that several rounds read is completed in the first of them.
  void find_kept(ValueId sum) {
    std::set<int> rounds;
    for (size_t n = 0; n < num_nodes_; ++n) {
      const auto& inputs = node(n).inputs;
      if (std::find(inputs.begin(), inputs.end(), sum) != inputs.end()) rounds.insert(result_.rounds[n]);
    }
    if (rounds.size() > 1 && !result_.is_told(sum)) result_.kept_inputs[sum] = *rounds.begin();
  }

  const Graph& graph_;
  std::map<std::string, int>& values_;
  const std::set<std::string>& summed_;
  size_t num_nodes_;
  std::vector<bool> is_made_of_told_;  // by NodeId, of those of every stage
  std::vector<int> levels_;            // by NodeId: the first round in which it can be made
  UpdateRounds result_;
};

class UpdateCutter {
 public:
  UpdateCutter(const Graph& graph, const Plan& plan, const UpdateRounds& rounds, int stage,
               const std::vector<int>& ranks)
      : graph_(graph), plan_(plan), rounds_(rounds), stage_(stage), ranks_(ranks) {
    parts_.resize(static_cast<size_t>(rounds.num_rounds));
  }

  std::vector<PlannedPart> run(const std::vector<std::string>& outputs) {
    const std::set<std::string> names(outputs.begin(), outputs.end());
    Part& last = parts_.back();
    for (size_t i = 0; i < graph_.outputs().size(); ++i) {
      const auto& output = graph_.outputs()[i];
      if (!names.contains(output.name) && output.name != ir::kUpdateGuard) continue;
      last.outputs.push_back(i);
      need(rounds_.num_rounds - 1, output.value);
      if (const ir::Input* input = graph_.find_input(output.name)) last.inputs.insert(input->value);
    }
    for (size_t round = 0; round < rounds_.told.size(); ++round) {
      for (const auto& [v, stage] : rounds_.told[round]) {
        if (stage != stage_) continue;
        need(static_cast<int>(round), v);
        parts_[round].kept.insert(v);
      }
    }
    std::vector<PlannedPart> planned;
    for (const Part& part : parts_) planned.push_back(build(part));
    return planned;
  }

 private:
  struct Part {
    std::set<NodeId> nodes;      // in the order of the graph
    std::set<ValueId> inputs;    // parameters and states
    std::set<ValueId> received;  // of an earlier round
    std::set<ValueId> kept;      // for a later one
    std::vector<size_t> outputs;
  };

  void need(int round, ValueId v) {
    Part& part = parts_[static_cast<size_t>(round)];
    const NodeId producer = graph_.info(v).node;
    if (const auto kept = rounds_.kept_inputs.find(v); kept != rounds_.kept_inputs.end() && kept->second < round) {
      part.received.insert(v);
      Part& first = parts_[static_cast<size_t>(kept->second)];
      first.inputs.insert(v);
      first.kept.insert(v);
      return;
    }
    if (producer == ir::kNone && !(rounds_.is_told(v) && round > 0)) {
      part.inputs.insert(v);
      return;
    }
    const int made = producer == ir::kNone ? 0 : rounds_.rounds[static_cast<size_t>(producer)];
    const bool is_constant = producer != ir::kNone && rounds_.is_constant[static_cast<size_t>(producer)];
    if (made < round && !is_constant) {
      if (!part.received.insert(v).second || rounds_.is_told(v)) return;
      parts_[static_cast<size_t>(made)].kept.insert(v);
      need(made, v);
      return;
    }
    if (!part.nodes.insert(producer).second) return;
    for (const ValueId operand : graph_.node(producer).inputs) need(round, operand);
  }

  PlannedPart build(const Part& part) {
    PartBuilder builder(graph_, plan_, ranks_, graph_.name());
    for (const auto& input : graph_.inputs()) {
      if (part.inputs.contains(input.value)) builder.add_input(input.value, input.kind, input.name);
    }
    for (const ValueId v : part.received) builder.add_input(v, ir::InputKind::kState, between_rounds_name(v));
    for (const NodeId n : part.nodes) builder.add_node(n);
    for (const ValueId v : part.kept) builder.add_kept(between_rounds_name(v), v);
    for (const size_t i : part.outputs) {
      const auto& output = graph_.outputs()[i];
      builder.add_output(output.name, output.value, plan_.outputs[i]);
    }
    return builder.finish();
  }

  const Graph& graph_;
  const Plan& plan_;
  const UpdateRounds& rounds_;
  int stage_;
  const std::vector<int>& ranks_;
  std::vector<Part> parts_;
};

}  // namespace

bool UpdateRounds::is_told(ValueId v) const {
  return std::any_of(told.begin(), told.end(), [&](const auto& round) { return round.contains(v); });
}

UpdateRounds place_update(const Graph& graph, std::map<std::string, int>& values, const std::set<std::string>& summed) {
  return UpdatePlacer(graph, values, summed).run();
}

std::set<ValueId> values_between_rounds(const Graph& graph, const UpdateRounds& rounds) {
  std::set<ValueId> found;
  for (const auto& round : rounds.told) {
    for (const auto& [v, stage] : round) found.insert(v);
  }
  for (const auto& [v, round] : rounds.kept_inputs) found.insert(v);
  const auto read_in = [&](ValueId v, int round) {
    const NodeId producer = graph.info(v).node;
    if (producer == ir::kNone || rounds.is_constant[static_cast<size_t>(producer)]) return;
    if (rounds.rounds[static_cast<size_t>(producer)] < round) found.insert(v);
  };
  for (NodeId n = 0; n < graph.num_nodes(); ++n) {
    for (const ValueId v : graph.node(n).inputs) read_in(v, rounds.rounds[static_cast<size_t>(n)]);
  }
  for (const auto& output : graph.outputs()) read_in(output.value, rounds.num_rounds - 1);
  return found;
}

std::string between_rounds_name(ValueId v) { return fmt::format("update.{}", v); }

std::vector<PlannedPart> cut_update(const Graph& graph, const Plan& plan, const UpdateRounds& rounds, int stage,
                                    const std::vector<std::string>& outputs, const std::vector<int>& ranks) {
  return UpdateCutter(graph, plan, rounds, stage, ranks).run(outputs);
}

}  // namespace tessera::compiler
