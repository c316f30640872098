#include "tessera/compiler/cuts/cut_places.h"

#include <algorithm>

#include "tessera/base/error.h"
#include "tessera/compiler/cost/collective_time.h"
#include "tessera/compiler/search/plan_cost.h"

namespace tessera::compiler {
namespace {

using ir::NodeId;
using ir::ValueId;
using pipeline::PhaseKind;

// Where it is not known which piece a node belongs to, or there is none.
constexpr int kNoPiece = -1;

bool is_named(const ir::Node& node) { return !node.source.empty() && node.source != "."; }

class PlaceFinder {
 public:
  PlaceFinder(const StagedPlan& plan, const MachineProfile& profile, const Link& link)
      : graph_(plan.micro),
        plan_(plan),
        micro_(plan.of_stage(0).micro),
        options_(plan.options),
        profile_(profile),
        link_(link),
        costs_(cost_of_plan(graph_, micro_, profile)),
        pieces_(static_cast<size_t>(graph_.num_nodes()), kNoPiece) {
    for (NodeId n = 0; n < graph_.num_nodes(); ++n) {
      if (is_forward(n)) forward_.push_back(n);
    }
    for (size_t i = 0; i < forward_.size(); ++i) {
      const ir::Node& node = graph_.node(forward_[i]);
      if (!is_named(node)) continue;
      const auto [it, is_new] = spans_.try_emplace(node.source, i, i);
      it->second.second = i;
    }
  }

  CutPlaces run(int num_chunks) {
    cut(/*whole_cells=*/true);
    if (result_.num_with_parameters() < num_chunks) cut(/*whole_cells=*/false);
    place_backward();
    add_seconds();
    add_values();
    add_persistent();
    return std::move(result_);
  }

 private:
  bool is_forward(NodeId n) const {
    return plan_.placement.phase_of(n) == PhaseKind::kForward && plan_.placement.stage_of(n) != kEveryStage;
  }
  int& piece_of(NodeId n) { return pieces_[static_cast<size_t>(n)]; }
  CutPiece& piece(int i) { return result_.problem.pieces[static_cast<size_t>(i)]; }

  int64_t local_bytes(const ir::Graph& graph, ValueId v, const mesh::Layout& layout) const {
    const Type& type = graph.type(v);
    const auto shape = mesh::local_shape(type.shape, layout.sharding, layout.mesh, layout.mesh.ranks()[0]);
    return Type{type.dtype, shape}.size_bytes();
  }
  int64_t bytes_of(ValueId v) const { return local_bytes(graph_, v, micro_.source_layout(v)); }

  // Whether a stage may begin with each of the forward nodes.
  std::vector<bool> beginnings(bool whole_cells) const {
    std::vector<bool> may_begin(forward_.size(), true);
    if (whole_cells) {
      for (const auto& [cell, span] : spans_) {
        for (size_t i = span.first + 1; i <= span.second; ++i) may_begin[i] = false;
      }
    }
    for (size_t i = 1; i < forward_.size(); ++i) {
      const ir::Node& before = graph_.node(forward_[i - 1]);
      if (!is_named(before) || before.source == graph_.node(forward_[i]).source) may_begin[i] = false;
    }
    return may_begin;
  }

  void cut(bool whole_cells) {
    result_ = {.cuts_cells = !whole_cells};
    const auto may_begin = beginnings(whole_cells);
    size_t last_cell = 0;
    for (const auto& [cell, span] : spans_) last_cell = std::max(last_cell, span.second);
    for (size_t i = 0; i < forward_.size(); ++i) {
      // At the end, what the network itself computes goes with the cell before.
      if (result_.problem.pieces.empty() || (may_begin[i] && i <= last_cell)) {
        result_.problem.pieces.emplace_back();
        result_.cells.emplace_back();
      }
      const int at = static_cast<int>(result_.problem.pieces.size()) - 1;
      piece_of(forward_[i]) = at;
      const ir::Node& node = graph_.node(forward_[i]);
      if (!is_named(node)) continue;
      if (piece(at).first.empty()) piece(at).first = node.source;
      piece(at).last = node.source;
    }
    for (const auto& [cell, span] : spans_) {
      const int first = piece_of(forward_[span.first]);
      if (first == piece_of(forward_[span.second])) result_.cells[static_cast<size_t>(first)].push_back(cell);
    }
    if (!result_.problem.pieces.empty()) result_.problem.places.resize(result_.problem.pieces.size() - 1);
    for (auto& each : result_.problem.pieces) each.has_parameters = false;
    for (const auto& [v, at] : first_readers()) {
      if (input_of(v)->kind == ir::InputKind::kParameter) piece(at).has_parameters = true;
    }
  }

  const ir::Input* input_of(ValueId v) const {
    const auto& info = graph_.info(v);
    return info.node == ir::kNone ? &graph_.inputs()[static_cast<size_t>(info.index)] : nullptr;
  }

  // Of the graph's inputs, the first piece that reads each.
  std::map<ValueId, int> first_readers() {
    std::map<ValueId, int> readers;
    for (const NodeId n : forward_) {
      for (const ValueId v : graph_.node(n).inputs) {
        if (input_of(v) != nullptr) readers.try_emplace(v, piece_of(n));
      }
    }
    return readers;
  }

  // A gradient is where its forward node is, an accumulator where its parameter is.
  void place_backward() {
    const auto readers = first_readers();
    std::map<std::string, int> parameters;
    for (const auto& [v, at] : readers) parameters[input_of(v)->name] = at;
    for (NodeId n = 0; n < graph_.num_nodes(); ++n) {
      if (piece_of(n) != kNoPiece || plan_.placement.stage_of(n) == kEveryStage) continue;
      const ir::Node& node = graph_.node(n);
      if (node.forward != ir::kNone && piece_of(node.forward) != kNoPiece) {
        piece_of(n) = piece_of(node.forward);
        continue;
      }
      for (const ValueId v : node.inputs) {
        const ir::Input* input = input_of(v);
        if (input == nullptr) {
          if (piece_of(n) == kNoPiece) piece_of(n) = piece_of(graph_.info(v).node);
          continue;
        }
        const auto accumulator = options_.accumulators.find(input->name);
        if (accumulator == options_.accumulators.end()) continue;
        const auto parameter = parameters.find(accumulator->second);
        if (parameter != parameters.end()) piece_of(n) = parameter->second;
        break;
      }
      if (piece_of(n) == kNoPiece) piece_of(n) = static_cast<int>(result_.problem.pieces.size()) - 1;
    }
  }

  void add_seconds() {
    for (NodeId n = 0; n < graph_.num_nodes(); ++n) {
      if (piece_of(n) == kNoPiece) continue;
      const NodeCost& cost = costs_.nodes[static_cast<size_t>(n)];
      piece(piece_of(n)).seconds += cost.compute_seconds + cost.own_seconds + cost.way_seconds;
    }
  }

  // What is kept for backward, and what passes each place.
  void add_values() {
    struct Reach {
      int first = 0;  // of those that read it, and the one that makes it
      int last = 0;
      bool is_kept = false;
    };
    std::map<ValueId, Reach> reaches;
    for (NodeId n = 0; n < graph_.num_nodes(); ++n) {
      if (piece_of(n) == kNoPiece) continue;
      for (const ValueId v : graph_.node(n).inputs) {
        const NodeId producer = graph_.info(v).node;
        const ir::Input* input = input_of(v);
        if (input != nullptr ? input->kind != ir::InputKind::kInput : piece_of(producer) == kNoPiece) continue;
        const int made = input != nullptr ? piece_of(n) : piece_of(producer);
        auto& reach = reaches.try_emplace(v, Reach{made, made, false}).first->second;
        reach.first = std::min(reach.first, piece_of(n));
        reach.last = std::max(reach.last, piece_of(n));
        const bool is_read_later = input != nullptr || (is_forward(producer) && !is_forward(n));
        reach.is_kept = reach.is_kept || is_read_later;
      }
    }
    auto& places = result_.problem.places;
    for (const auto& [v, reach] : reaches) {
      const int64_t bytes = bytes_of(v);
      const ir::Input* input = input_of(v);
      const bool is_made_forward = input != nullptr || is_forward(graph_.info(v).node);
      if (reach.is_kept) piece(input != nullptr ? reach.first : piece_of(graph_.info(v).node)).kept_bytes += bytes;
      if (input != nullptr) continue;  // every rank reads the batch
      const int made = piece_of(graph_.info(v).node);
      for (int i = made; is_made_forward && i < reach.last; ++i) places[static_cast<size_t>(i)].forward_bytes += bytes;
      for (int i = reach.first; !is_made_forward && i < made; ++i) {
        places[static_cast<size_t>(i)].backward_bytes += bytes;
      }
    }
    const auto seconds = [&](int64_t bytes) {
      return bytes == 0 ? 0 : link_.latency_seconds + static_cast<double>(bytes) / link_.bytes_per_second;
    };
    for (CutPlace& place : places) {
      place.forward_seconds = seconds(place.forward_bytes);
      place.backward_seconds = seconds(place.backward_bytes);
    }
  }

  // Without latencies: sums travel in buckets.
  double sum_seconds(const mesh::Layout& layout, int64_t bytes) const {
    int64_t count = 1;
    for (const auto& partial : layout.sharding.partial) count *= layout.mesh.axis(partial.axis).size;
    if (count == 1) return 0;
    const auto all = layout.mesh.ranks();
    const std::vector<int> ranks(all.begin(), all.begin() + static_cast<std::ptrdiff_t>(count));
    const GroupMembers members(ranks, ranks[0], profile_);
    return members.seconds_of(members.from_all(2 * bytes * (count - 1) / count, /*rounds=*/0));
  }

  // An optimizer has so many bytes for each of the parameters'.
  void add_persistent() {
    const Plan& update = plan_.of_stage(0).update;
    double parameter_bytes = 0;
    double state_bytes = 0;
    for (const auto& input : plan_.update.inputs()) {
      if (options_.accumulators.contains(input.name)) continue;
      const auto bytes = static_cast<double>(local_bytes(plan_.update, input.value, update.layout(input.value)));
      (input.kind == ir::InputKind::kParameter ? parameter_bytes : state_bytes) += bytes;
    }
    const double share = parameter_bytes == 0 ? 0 : state_bytes / parameter_bytes;
    std::map<std::string, std::vector<ValueId>> accumulators;  // that the graph has, by parameter
    for (const auto& [accumulator, parameter] : options_.accumulators) {
      const ir::Input* sum = graph_.find_input(accumulator);
      if (sum != nullptr) accumulators[parameter].push_back(sum->value);
    }
    for (const auto& [v, at] : first_readers()) {
      const ir::Input* input = input_of(v);
      if (input->kind == ir::InputKind::kInput) continue;
      const int64_t bytes = local_bytes(graph_, v, micro_.layout(v));
      piece(at).persistent_bytes += bytes;
      if (input->kind != ir::InputKind::kParameter) continue;
      piece(at).persistent_bytes += static_cast<int64_t>(share * static_cast<double>(bytes));
      for (const ValueId sum : accumulators[input->name]) {
        const int64_t sum_bytes = local_bytes(graph_, sum, micro_.layout(sum));
        piece(at).persistent_bytes += sum_bytes;
        piece(at).sum_seconds += sum_seconds(micro_.layout(sum), sum_bytes);
      }
    }
  }

  const ir::Graph& graph_;
  const StagedPlan& plan_;
  const Plan& micro_;
  const StageOptions& options_;
  const MachineProfile& profile_;
  const Link& link_;
  PlanCost costs_;
  std::vector<NodeId> forward_;                             // that some stage computes, in order
  std::map<std::string, std::pair<size_t, size_t>> spans_;  // of cells, as indices of `forward_`
  std::vector<int> pieces_;                                 // by NodeId
  CutPlaces result_;
};

}  // namespace

int CutPlaces::num_with_parameters() const {
  return static_cast<int>(std::count_if(problem.pieces.begin(), problem.pieces.end(),
                                        [](const CutPiece& piece) { return piece.has_parameters; }));
}

CutPlaces find_cut_places(const StagedPlan& plan, int num_chunks, const MachineProfile& profile, const Link& link) {
  check_equal(plan.num_stages(), 1, "stages of a plan that is to be cut");
  return PlaceFinder(plan, profile, link).run(num_chunks);
}

const Link& link_between(const MachineProfile& profile, const mesh::StageRanks& ranks, int from, int to) {
  const bool is_equal = ranks.count(from) == ranks.count(to);
  for (int i = 0; i < ranks.count(from); ++i) {
    for (int j = 0; j < ranks.count(to); ++j) {
      if (is_equal && i != j) continue;
      if (profile.host_of(ranks.first(from) + i) != profile.host_of(ranks.first(to) + j)) return profile.inter_host;
    }
  }
  return profile.intra_host;
}

const Link& slowest_link(const MachineProfile& profile, const mesh::StageRanks& ranks) {
  for (int stage = 0; stage + 1 < ranks.num_stages(); ++stage) {
    const Link& link = link_between(profile, ranks, stage, stage + 1);
    if (&link == &profile.inter_host) return link;
  }
  return profile.intra_host;
}

CellStages cell_stages(const CutPlaces& places, const StageCuts& cuts, const std::vector<CellStage>& chunks) {
  CellStages stages;
  int begin = 0;
  for (size_t chunk = 0; chunk < cuts.ends.size(); ++chunk) {
    for (int i = begin; i < cuts.ends[chunk]; ++i) {
      for (const auto& cell : places.cells[static_cast<size_t>(i)]) stages[cell] = chunks.at(chunk);
    }
    begin = cuts.ends[chunk];
  }
  return stages;
}

void set_stages(ir::Graph& graph, const CellStages& cells) {
  for (NodeId n = 0; n < graph.num_nodes(); ++n) {
    ir::Node& node = graph.mutable_node(n);
    const auto it = cells.find(node.source);
    node.stage = it == cells.end() ? ir::kNone : it->second.stage;
    node.segment = it == cells.end() ? 0 : it->second.segment;
  }
}

}  // namespace tessera::compiler
