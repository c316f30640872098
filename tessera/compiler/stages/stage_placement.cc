#include "tessera/compiler/stages/stage_placement.h"

#include <algorithm>
#include <optional>
#include <tuple>

#include "tessera/base/error.h"
#include "tessera/ir/cell_name.h"
#include "tessera/ops/registry/op_def.h"

namespace tessera::compiler {
namespace {

using ir::Graph;
using ir::Node;
using ir::NodeId;
using ir::ValueId;
using pipeline::PhaseKind;

std::string cell_of(const Node& node) { return fmt::format("cell \"{}\"", ir::cell_name(node.source)); }

class Placer {
 public:
  Placer(const Graph& graph, const StageOptions& options)
      : graph_(graph), options_(options), num_nodes_(static_cast<size_t>(graph.num_nodes())) {
    result_.num_stages = options.num_stages;
    result_.split_backward = options.split_backward;
    result_.gathered = options.gathered;
    result_.reads_rows_in_place = options.reads_rows_in_place;
    result_.nodes.assign(num_nodes_, ir::kNone);
    result_.phases.assign(num_nodes_, PhaseKind::kForward);
    result_.is_constant.assign(num_nodes_, false);
  }

  StagePlacement run() {
    check_range();
    find_forward();
    result_.chunks = number_chunks(graph_, is_forward_, options_.num_stages);
    find_common();
    place_forward();
    place_values();
    place_backward();
    // Workers may have none: all lie on servers.
    if (options_.require_parameters && options_.served.empty()) require_parameters();
    if (options_.split_backward) split_backward();
    return std::move(result_);
  }

 private:
  const Node& node(size_t n) const { return graph_.node(static_cast<NodeId>(n)); }
  int& chunk(size_t n) { return result_.nodes[n]; }
  int num_chunks() const { return result_.num_chunks(); }
  int stage_of(int chunk) const { return result_.stage_of_chunk(chunk); }

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

  int named_chunk(size_t n) const { return result_.chunks.chunk_at(node(n).stage, node(n).segment); }
  int segment_of(int chunk) const { return result_.chunks.segments[static_cast<size_t>(chunk)]; }

  // "stage 1", or "stage 1, segment 0" of a network that has several.
  std::string place_name(int chunk) const {
    if (num_chunks() == options_.num_stages) return fmt::format("stage {}", stage_of(chunk));
    return fmt::format("stage {}, segment {}", stage_of(chunk), segment_of(chunk));
  }
  std::string call_for(int chunk) const {
    if (num_chunks() == options_.num_stages) return fmt::format("set_stage({})", stage_of(chunk));
    return fmt::format("set_stage({}, {})", stage_of(chunk), segment_of(chunk));
  }

  void find_common() {
    for (size_t n = 0; n < num_nodes_; ++n) {
      const auto& inputs = node(n).inputs;
      if (ops::OpRegistry::instance().get(node(n).op).collective) continue;
      const bool is_common = std::all_of(inputs.begin(), inputs.end(), [&](ValueId v) {
        const NodeId producer = graph_.info(v).node;
        return producer == ir::kNone ? is_common_input(v) : chunk(static_cast<size_t>(producer)) == kEveryStage;
      });
      if (!is_common) continue;
      chunk(n) = kEveryStage;
      result_.is_constant[n] = std::all_of(inputs.begin(), inputs.end(), [&](ValueId v) {
        const NodeId producer = graph_.info(v).node;
        return producer != ir::kNone && result_.is_constant[static_cast<size_t>(producer)];
      });
    }
  }

  // The last of the chunks whose results the node reads, and a node that makes one of them.
  std::pair<int, NodeId> latest_input(size_t n) {
    std::pair<int, NodeId> latest{0, ir::kNone};
    for (const ValueId v : node(n).inputs) {
      const NodeId producer = graph_.info(v).node;
      if (producer == ir::kNone) continue;
      const int from = chunk(static_cast<size_t>(producer));
      if (from > latest.first || latest.second == ir::kNone) latest = {std::max(from, 0), producer};
    }
    return latest;
  }

  void place_forward() {
    std::vector<int> earliest_user(num_nodes_, num_chunks());
    for (size_t n = num_nodes_; n-- > 0;) {
      if (!is_forward(n) || chunk(n) == kEveryStage) continue;
      const int wanted = node(n).stage != ir::kNone ? named_chunk(n) : earliest_user[n];
      for (const ValueId v : node(n).inputs) {
        const NodeId producer = graph_.info(v).node;
        if (producer == ir::kNone) continue;
        int& earliest = earliest_user[static_cast<size_t>(producer)];
        earliest = std::min(earliest, wanted);
      }
    }
    for (size_t n = 0; n < num_nodes_; ++n) {
      if (!is_forward(n) || chunk(n) == kEveryStage) continue;
      const auto [least, producer] = latest_input(n);
      if (node(n).stage == ir::kNone) {
        chunk(n) = earliest_user[n] < num_chunks() ? std::max(earliest_user[n], least) : least;
        continue;
      }
      chunk(n) = named_chunk(n);
      if (chunk(n) >= least) continue;
      throw InvalidArgument(
          "{} is on {} and reads what {} computes on {}: a stage reads only what comes before it; {} or later for the "
          "first, or an earlier stage{} for the second",
          cell_of(node(n)), place_name(chunk(n)), cell_of(graph_.node(producer)), place_name(least), call_for(least),
          num_chunks() == options_.num_stages ? "" : " or segment");
    }
  }

  // Whether forward gives the state another value.
  bool is_assigned(const std::string& state) const {
    const ir::Output* output = graph_.find_output(state);
    if (output == nullptr) return false;
    const NodeId producer = graph_.info(output->value).node;
    return producer != ir::kNone && is_forward(static_cast<size_t>(producer));
  }

  // Parameters and states are where they are read.
  void place_values() {
    std::map<ValueId, size_t> first_reader;
    std::map<ValueId, std::set<int>> readers;  // chunks
    for (size_t n = 0; n < num_nodes_; ++n) {
      if (!is_forward(n) || chunk(n) == kEveryStage) continue;
      for (const ValueId v : node(n).inputs) {
        const ir::Input* input = input_of(v);
        if (input == nullptr || input->kind == ir::InputKind::kInput || is_common_input(v)) continue;
        const auto [it, is_first] = first_reader.emplace(v, n);
        readers[v].insert(chunk(n));
        if (is_first || chunk(it->second) == chunk(n) || input->kind == ir::InputKind::kParameter) continue;
        const size_t first = it->second;
        if (stage_of(chunk(first)) == stage_of(chunk(n)) && !is_assigned(input->name)) continue;
        throw InvalidArgument(
            "state \"{}\" is read by {} on {} and by {} on {}: a pipeline keeps it {}; give both cells one stage{}",
            input->name, cell_of(node(first)), place_name(chunk(first)), cell_of(node(n)), place_name(chunk(n)),
            stage_of(chunk(first)) == stage_of(chunk(n)) ? "in one segment, because micro-batches change it"
                                                         : "on one stage",
            num_chunks() == options_.num_stages ? "" : " and one segment");
      }
    }
    for (const auto& input : graph_.inputs()) {
      if (input.kind == ir::InputKind::kInput || options_.accumulators.contains(input.name)) continue;
      if (is_common_input(input.value)) {
        put(input.name, kEveryStage);
        continue;
      }
      const auto found = readers.find(input.value);
      if (found == readers.end()) {
        put(input.name, 0);
        continue;
      }
      auto chunks = found->second;
      if (options_.served.contains(input.name)) chunks.insert(result_.chunks.chunk_at(0, 0));
      std::set<int> stages;
      for (const int c : chunks) stages.insert(stage_of(c));
      put(input.name,
          *std::find_if(chunks.begin(), chunks.end(), [&](int c) { return stage_of(c) == *stages.begin(); }));
      if (stages.size() > 1) result_.shared[input.name].assign(stages.begin(), stages.end());
      if (chunks.size() > 1 && input.kind == ir::InputKind::kParameter) result_.shared_by_chunks.insert(input.name);
    }
    // A state that is written and not read.
    for (const auto& output : graph_.outputs()) {
      const ir::Input* input = graph_.find_input(output.name);
      const NodeId producer = graph_.info(output.value).node;
      if (input == nullptr || producer == ir::kNone || first_reader.contains(input->value)) continue;
      if (options_.accumulators.contains(output.name) || is_common_input(input->value)) continue;
      put(output.name, std::max(0, chunk(static_cast<size_t>(producer))));
    }
    for (const auto& [accumulator, parameter] : options_.accumulators) {
      if (graph_.find_input(accumulator) == nullptr) continue;
      const auto own = options_.other_accumulators.find(accumulator);
      const auto at = result_.value_chunks.find(parameter);
      put(accumulator, own != options_.other_accumulators.end() ? own->second.chunk
                       : at == result_.value_chunks.end()       ? 0
                                                                : at->second);
    }
    find_unsummed();
  }

  void find_unsummed() {
    std::vector<bool> is_read(static_cast<size_t>(graph_.num_values()));
    for (size_t n = 0; n < num_nodes_; ++n) {
      for (const ValueId v : node(n).inputs) is_read[static_cast<size_t>(v)] = true;
    }
    for (const auto& output : graph_.outputs()) {
      const ir::Input* held = options_.accumulators.contains(output.name) ? graph_.find_input(output.name) : nullptr;
      if (held == nullptr || held->value == output.value || is_read[static_cast<size_t>(held->value)]) continue;
      result_.unsummed.insert(output.name);
    }
  }

  void put(const std::string& value, int chunk) {
    result_.values[value] = stage_of(chunk);
    result_.value_chunks[value] = chunk;
  }

  // Gradients go to earlier chunks only. Where branches are beside each other, their gradients are added up in the
  // chunk that comes first, whose own is there last, in whatever order the branches were traced.
  void place_backward() {
    for (size_t n = 0; n < num_nodes_; ++n) {
      if (is_forward(n) || chunk(n) == kEveryStage) continue;
      if (const auto accumulator = accumulator_of(n)) {
        chunk(n) = result_.value_chunks.at(*accumulator);
        continue;
      }
      const NodeId forward = node(n).forward;
      const bool has_place = forward != ir::kNone && chunk(static_cast<size_t>(forward)) >= 0;
      chunk(n) = std::min(has_place ? chunk(static_cast<size_t>(forward)) : chunk_of_operands(n), earliest_gradient(n));
    }
  }

  // The accumulator that the node adds to.
  std::optional<std::string> accumulator_of(size_t n) const {
    for (const ValueId v : node(n).inputs) {
      const ir::Input* input = input_of(v);
      if (input != nullptr && options_.accumulators.contains(input->name)) return input->name;
    }
    return std::nullopt;
  }

  // The earliest chunk that has made a gradient which the node reads; one past the last where there is none.
  int earliest_gradient(size_t n) {
    int earliest = num_chunks();
    for (const ValueId v : node(n).inputs) {
      const NodeId producer = graph_.info(v).node;
      if (producer == ir::kNone || is_forward(static_cast<size_t>(producer))) continue;
      if (const int at = chunk(static_cast<size_t>(producer)); at >= 0) earliest = std::min(earliest, at);
    }
    return earliest;
  }

  // Of the first operand that some chunk has.
  int chunk_of_operands(size_t n) {
    for (const ValueId v : node(n).inputs) {
      int at = kEveryStage;
      if (const ir::Input* input = input_of(v); input != nullptr) {
        const auto it = result_.value_chunks.find(input->name);
        if (it != result_.value_chunks.end()) at = it->second;
      } else {
        at = chunk(static_cast<size_t>(graph_.info(v).node));
      }
      if (at >= 0) return at;
    }
    return num_chunks() - 1;
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

  // What no other chunk waits for is the gradient of parameters.
  void split_backward() {
    std::vector<bool> leaves(static_cast<size_t>(graph_.num_values()));
    for (const auto& message : chunk_messages(graph_, result_)) {
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
    for (size_t n = 0; n < num_nodes_; ++n) {
      if (joins_backward(n, leaves)) result_.phases[n] = PhaseKind::kBackward;
    }
  }

  // A node of several results, such as the gradient of a layer normalisation, may be awaited for one of them alone.
  // What is made of the others is added up beside it: else they would be kept until the weight gradients, and what
  // passes from phase to phase is summed over the ranks, for each micro-batch.
  bool joins_backward(size_t n, const std::vector<bool>& awaited) const {
    if (is_forward(n) || result_.nodes[n] == kEveryStage || result_.phases[n] != PhaseKind::kWeightGradient)
      return false;
    bool reads_others = false;
    for (const ValueId v : node(n).inputs) {
      const NodeId producer = graph_.info(v).node;
      if (producer == ir::kNone || is_forward(static_cast<size_t>(producer))) continue;
      const auto from = static_cast<size_t>(producer);
      if (result_.nodes[from] == kEveryStage) continue;
      if (result_.phases[from] == PhaseKind::kWeightGradient) return false;
      reads_others = reads_others || (result_.nodes[from] == result_.nodes[n] && !awaited[static_cast<size_t>(v)]);
    }
    return reads_others;
  }

  const Graph& graph_;
  const StageOptions& options_;
  size_t num_nodes_;
  std::vector<bool> is_forward_;
  StagePlacement result_;
};

}  // namespace

void require_micro_batches(const StageOptions& stages, int micro_batches) {
  if (micro_batches >= stages.num_stages || !stages.served.empty()) return;
  throw InvalidArgument(
      "a pipeline of {} stages needs as many micro-batches at least, got {}: cut the batch into more, or use fewer "
      "stages",
      stages.num_stages, micro_batches);
}

StagePlacement place_on_stages(const Graph& graph, const StageOptions& options) { return Placer(graph, options).run(); }

std::string gathered_name(const std::string& parameter) { return "whole." + parameter; }

int StagePlacement::chunk_of_result(const Graph& graph, ValueId result) const {
  const NodeId producer = graph.info(result).node;
  const int at = producer == ir::kNone ? kEveryStage : chunk_of(producer);
  return at == kEveryStage ? num_chunks() - 1 : at;
}

std::vector<int> StagePlacement::chunks_of(int stage) const {
  std::vector<int> chunks;
  for (int chunk = 0; chunk < num_chunks(); ++chunk) {
    if (stage_of_chunk(chunk) == stage) chunks.push_back(chunk);
  }
  return chunks;
}

bool StagePlacement::is_read_in_slot(const Graph& graph, const ir::Output& output) const {
  if (!unsummed.contains(output.name)) return false;
  const auto& info = graph.info(output.value);
  if (info.node == ir::kNone) {
    return graph.inputs()[static_cast<size_t>(info.index)].kind == ir::InputKind::kInput;
  }
  const int from = chunk_of(info.node);
  return from != kEveryStage && from != value_chunks.at(output.name);
}

std::vector<ChunkMessage> chunk_messages(const Graph& graph, const StagePlacement& placement) {
  std::map<std::pair<ValueId, int>, ChunkMessage> found;
  const auto add = [&](ValueId v, int reader, PhaseKind read) {
    const NodeId producer = graph.info(v).node;
    if (producer == ir::kNone) return;
    const int from = placement.chunk_of(producer);
    if (from == kEveryStage || from == reader) return;
    const auto [it, is_new] =
        found.emplace(std::pair{v, reader}, ChunkMessage{v, from, reader, placement.phase_of(producer), read});
    if (!is_new) it->second.read = std::min(it->second.read, read);
  };
  for (NodeId n = 0; n < graph.num_nodes(); ++n) {
    const int reader = placement.chunk_of(n);
    if (reader == kEveryStage) continue;
    for (const ValueId v : graph.node(n).inputs) add(v, reader, placement.phase_of(n));
  }
  // What the update reads has come by the end of backward.
  for (const auto& output : graph.outputs()) {
    if (!placement.is_read_in_slot(graph, output)) continue;
    add(output.value, placement.value_chunks.at(output.name), PhaseKind::kBackward);
  }
  std::vector<ChunkMessage> messages;
  for (const auto& [key, message] : found) messages.push_back(message);
  std::sort(messages.begin(), messages.end(), [](const ChunkMessage& a, const ChunkMessage& b) {
    return std::tuple(a.from, a.made, a.to, a.value) < std::tuple(b.from, b.made, b.to, b.value);
  });
  return messages;
}

}  // namespace tessera::compiler
