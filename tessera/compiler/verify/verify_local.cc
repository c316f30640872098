#include "tessera/compiler/verify/verify_local.h"

#include <algorithm>
#include <deque>
#include <set>

#include "tessera/base/error.h"
#include "tessera/base/integers.h"
#include "tessera/compiler/verify/piece.h"
#include "tessera/ops/registry/op_def.h"

namespace tessera::compiler {
namespace {

using ir::Graph;
using ir::Node;
using ir::NodeId;
using ir::ValueId;
using mesh::Box;

class LocalVerifier {
 public:
  LocalVerifier(const Graph& graph, const Plan& plan, std::span<const RankGraph> ranks)
      : graph_(graph), plan_(plan), ranks_(ranks) {}

  std::vector<std::string> run() {
    auto faults = verify_communication(ranks_);
    if (!faults.empty()) return faults;
    for (const auto& each : ranks_) {
      place_[each.rank] = local_.size();
      index(each, local_.emplace_back());
      claim(each, local_.back());
    }
    if (faults_.empty()) {
      for (size_t i = 0; i < ranks_.size(); ++i) check(i);
    }
    for (const auto& [text, who] : faults_) {
      faults.push_back(fmt::format("rank{} {}: {}", who.size() > 1 ? "s" : "", fmt::join(who, ","), text));
    }
    return faults;
  }

 private:
  struct LocalValue {
    std::vector<Piece> pieces;  // more than one where an operator hands its operand on
    bool is_known = false;      // else a redistribution makes it
    bool is_zero = false;       // the terms of a sum that other ranks contribute
  };
  // Of one rank.
  struct Local {
    std::vector<LocalValue> values;
    std::map<NodeId, const LogicalStep*> step_of;  // by logical node
    // The collectives by their number in the order of all; those of a bucket in the order of its members. Ranks whose
    // groups differ do the same collective under the same number.
    std::map<int64_t, std::vector<NodeId>> by_order;
  };

  void fault(int rank, const std::string& text) { faults_[text].insert(rank); }

  static void index(const RankGraph& each, Local& local) {
    local.values.resize(static_cast<size_t>(each.graph.num_values()));
    for (NodeId n = 0; n < each.graph.num_nodes(); ++n) {
      const Node& node = each.graph.node(n);
      if (!ops::OpRegistry::instance().get(node.op).collective) continue;
      local.by_order[node.attributes.get_int("order")].push_back(n);
    }
  }

  // What the inputs and the results of operators are, by the plan.
  void claim(const RankGraph& each, Local& local) {
    const auto add = [&](ValueId at, ValueId v) {
      local.values[static_cast<size_t>(at)].pieces.push_back(piece_of(graph_.type(v), v, plan_.layout(v), each.rank));
    };
    for (const auto& input : graph_.inputs()) {
      const ir::Input* own = each.graph.find_input(input.name);
      if (own == nullptr) {
        fault(each.rank, fmt::format("has no input \"{}\"", input.name));
      } else {
        local.values[static_cast<size_t>(own->value)].is_known = true;
        add(own->value, input.value);
      }
    }
    for (const LogicalStep& step : each.steps) {
      if (!local.step_of.emplace(step.node, &step).second) {
        fault(each.rank, fmt::format("does {} twice", graph_.node_name(step.node)));
      }
      for (NodeId n = step.begin; n < step.end; ++n) {
        for (const ValueId v : each.graph.node(n).outputs) local.values[static_cast<size_t>(v)].is_known = true;
      }
      const auto& outputs = graph_.node(step.node).outputs;
      for (size_t o = 0; o < outputs.size(); ++o) add(step.outputs[o], outputs[o]);
    }
    for (NodeId n = 0; n < graph_.num_nodes(); ++n) {
      if (!local.step_of.contains(n)) fault(each.rank, fmt::format("leaves out {}", graph_.node_name(n)));
    }
    if (each.graph.outputs().size() != graph_.outputs().size()) {
      fault(each.rank,
            fmt::format("returns {} values, the graph {}", each.graph.outputs().size(), graph_.outputs().size()));
    }
  }

  void check(size_t i) {
    const RankGraph& each = ranks_[i];
    for (const auto& step : each.steps) {
      const auto& inputs = graph_.node(step.node).inputs;
      for (size_t k = 0; k < inputs.size(); ++k) {
        const auto local_at = [&](size_t at) { return local_[at].step_of.at(step.node)->inputs[k]; };
        check_use(i, inputs[k], plan_.operand_layout(step.node, k), local_at, [&] {
          return fmt::format("{}: operand {} ({})", graph_.node_name(step.node), k, graph_.value_name(inputs[k]));
        });
      }
      check_inside(each, step);
      check_draws(each, step);
    }
    for (size_t o = 0; o < graph_.outputs().size(); ++o) {
      const auto local_at = [&](size_t at) { return ranks_[at].graph.outputs()[o].value; };
      check_use(i, graph_.outputs()[o].value, plan_.output_layout(graph_, o), local_at,
                [&] { return "return " + graph_.outputs()[o].name; });
    }
  }

  // The piece of `v` that a local value is, rather one with this box.
  const Piece* find_piece(size_t i, ValueId local, ValueId v, const Box& box) {
    const Piece* found = nullptr;
    for (const Piece& piece : value_of(i, local).pieces) {
      if (piece.logical != v) continue;
      found = &piece;
      if (same_box(piece.box, box)) break;
    }
    return found;
  }

  // Whether what a rank reads is what the plan says. `local_at` gives the local value of the same use by place of the
  // rank, `who` the name of the use for messages.
  template <typename LocalAt, typename Who>
  void check_use(size_t i, ValueId v, const mesh::Layout& layout, const LocalAt& local_at, const Who& who) {
    const int rank = ranks_[i].rank;
    const Piece wanted = piece_of(graph_.type(v), v, layout, rank);
    const Piece* had = find_piece(i, local_at(i), v, wanted.box);
    if (had != nullptr && same_box(had->box, wanted.box)) {
      if (same_terms(*had, wanted) || is_one_term(*had, wanted, local_at)) return;
    } else if (had == nullptr && value_of(i, local_at(i)).is_zero) {
      // The ranks that contribute say whether they are those that should.
      for (const int other : wanted.terms) {
        const size_t at = place_.at(other);
        if (wanted.reduction == "sum" && !value_of(at, local_at(at)).is_zero) return;
      }
    }
    fault(rank, fmt::format("{} is {}, {}; wanted: {}", who(), ranks_[i].graph.value_name(local_at(i)),
                            had == nullptr ? "no piece of it" : text_of(*had), text_of(wanted)));
  }

  // A value that is less of a sum than is wanted: the ranks that it does not name contribute zeros.
  template <typename LocalAt>
  bool is_one_term(const Piece& had, const Piece& wanted, const LocalAt& local_at) {
    if (wanted.reduction != "sum" || wanted.terms.size() <= had.terms.size()) return false;
    return std::all_of(wanted.terms.begin(), wanted.terms.end(), [&](int rank) {
      const size_t at = place_.at(rank);
      return contains(had.terms, rank) != value_of(at, local_at(at)).is_zero;
    });
  }

  // An operator reads its operands and what it has made of them.
  void check_inside(const RankGraph& each, const LogicalStep& step) {
    for (NodeId n = step.begin; n < step.end; ++n) {
      for (const ValueId v : each.graph.node(n).inputs) {
        const NodeId producer = each.graph.info(v).node;
        const bool is_operand = std::find(step.inputs.begin(), step.inputs.end(), v) != step.inputs.end();
        if (is_operand || (producer >= step.begin && producer < step.end)) continue;
        fault(each.rank, fmt::format("{}: {} reads {}, which is no operand of it", graph_.node_name(step.node),
                                     each.graph.node_name(n), each.graph.value_name(v)));
      }
    }
  }

  // Replicas draw equal numbers and other slices others: by the place of the slice in the global value.
  void check_draws(const RankGraph& each, const LogicalStep& step) {
    const Node& logical = graph_.node(step.node);
    if (!logical.attributes.has("stream")) return;
    for (NodeId n = step.begin; n < step.end; ++n) {
      const Node& node = each.graph.node(n);
      if (node.op != logical.op) continue;
      const ValueId v = logical.outputs[0];
      Ints shape = logical.attributes.get_ints("global_shape");
      if (shape.empty()) shape = graph_.type(v).shape.to_vector();
      Ints offset = logical.attributes.get_ints("offset");
      offset.resize(shape.size());
      const Piece piece = piece_of(graph_.type(v), v, plan_.layout(v), each.rank);
      for (size_t dim = 0; dim < offset.size(); ++dim) offset[dim] += piece.box[dim].offset;
      const bool same_stream = *node.attributes.find("stream") == *logical.attributes.find("stream") &&
                               *node.attributes.find("seed") == *logical.attributes.find("seed");
      const auto& has_shape = node.attributes.get_ints("global_shape");
      const auto& has_offset = node.attributes.get_ints("offset");
      if (same_stream && has_shape == shape && has_offset == offset) continue;
      fault(each.rank,
            fmt::format("{} draws the elements from [{}] of [{}]{}, its piece begins at [{}] of [{}]",
                        graph_.node_name(step.node), fmt::join(has_offset, ","), fmt::join(has_shape, ","),
                        same_stream ? "" : " in another stream", fmt::join(offset, ","), fmt::join(shape, ",")));
    }
  }

  const LocalValue& value_of(size_t i, ValueId at) {
    auto& value = local_[i].values[static_cast<size_t>(at)];
    if (value.is_known) return value;
    value.is_known = true;  // before it is, so that a circle of redistributions ends
    const RankGraph& each = ranks_[i];
    const NodeId n = each.graph.info(at).node;
    const Node& node = each.graph.node(n);
    std::string why = "moves a value of which nothing is known";
    const auto keep = [&](PieceOrReason outcome) {
      if (outcome.piece) {
        value.pieces.push_back(std::move(*outcome.piece));
      } else {
        why = std::move(outcome.why);
      }
    };
    if (ops::OpRegistry::instance().get(node.op).collective) {
      meet(i, n, keep);
    } else if (node.op == "strided_slice") {
      for (const Piece& piece : value_of(i, node.inputs[0]).pieces) keep(slice_piece(node, piece));
    } else if (node.op == "cast") {
      // Back from the wider dtype in which parts were added; only what is whole, or leaves the graph, may be rounded.
      const LocalValue& operand = value_of(i, node.inputs[0]);
      value.is_zero = operand.is_zero;
      const bool rounds = size_bytes(each.graph.type(at).dtype) < size_bytes(each.graph.type(node.inputs[0]).dtype) &&
                          std::none_of(each.graph.outputs().begin(), each.graph.outputs().end(),
                                       [at](const ir::Output& output) { return output.value == at; });
      for (const Piece& piece : operand.pieces) {
        if (rounds && piece.terms.size() > 1) {
          keep({std::nullopt, fmt::format("rounds {}", text_of(piece))});
        } else {
          keep({piece, ""});
        }
      }
    } else if (node.op == "fill" && node.attributes.get_double("value") == 0) {
      value.is_zero = true;
    } else {
      why = "stands between operators, where values are only moved";
    }
    if (value.pieces.empty() && !value.is_zero) {
      fault(each.rank, fmt::format("{} = {}: {}", each.graph.value_name(at), each.graph.node_name(n), why));
    }
    return value;
  }

  // The node by which the rank at place `at` does the same collective as the one at `i` does by `n`.
  const Node* counterpart(size_t i, NodeId n, size_t at) const {
    const int64_t order = ranks_[i].graph.node(n).attributes.get_int("order");
    const auto& own = local_[i].by_order.at(order);
    const auto member = static_cast<size_t>(std::find(own.begin(), own.end(), n) - own.begin());
    const auto other = local_[at].by_order.find(order);
    if (other == local_[at].by_order.end() || member >= other->second.size()) return nullptr;
    return &ranks_[at].graph.node(other->second[member]);
  }

  // For each piece that all members have of one logical value.
  template <typename Keep>
  void meet(size_t i, NodeId n, const Keep& keep) {
    const Node& node = ranks_[i].graph.node(n);
    for (const Piece& piece : std::vector<Piece>(value_of(i, node.inputs.at(0)).pieces)) {
      std::vector<Member> members;
      for (const int64_t rank : node.attributes.get_ints("ranks")) {
        const size_t at = place_.at(static_cast<int>(rank));
        const Node* other = counterpart(i, n, at);
        if (other == nullptr) break;
        for (const Piece& theirs : value_of(at, other->inputs.at(0)).pieces) {
          if (theirs.logical != piece.logical) continue;
          members.push_back({static_cast<int>(rank), other, theirs});
          break;
        }
      }
      if (members.size() != node.attributes.get_ints("ranks").size()) {
        keep({std::nullopt, "brings another value than the other ranks of its group do"});
        continue;
      }
      std::vector<std::vector<int>> groups;
      for (const int rank : piece.terms) {
        const Node* other = counterpart(i, n, place_.at(rank));
        if (other == nullptr) continue;
        const Ints& group = other->attributes.get_ints("ranks");
        groups.emplace_back(group.begin(), group.end());
      }
      const auto own = static_cast<size_t>(node.attributes.get_int("rank_in_group"));
      keep(meet_pieces(members, own, groups));
    }
  }

  const Graph& graph_;
  const Plan& plan_;
  std::span<const RankGraph> ranks_;
  std::map<int, size_t> place_;  // of a rank in ranks_ and local_
  std::deque<Local> local_;
  std::map<std::string, std::set<int>> faults_;
};

}  // namespace

std::vector<std::string> verify_local(const Graph& graph, const Plan& plan, std::span<const RankGraph> ranks) {
  return LocalVerifier(graph, plan, ranks).run();
}

std::vector<RankGraph> partition_all(const Graph& graph, const Plan& plan, const PartitionOptions& options) {
  std::vector<RankGraph> all;
  for (const int rank : plan.ranks()) {
    RankGraph& each = all.emplace_back();
    each.rank = rank;
    each.graph = partition(graph, plan, rank, options, nullptr, &each.steps);
  }
  return all;
}

}  // namespace tessera::compiler
